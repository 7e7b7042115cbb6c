/* objects - the LFS objects of a plan, to a server over HTTP. */
#ifndef CKPT_TOOLS_PUSH_OBJECTS_H
#define CKPT_TOOLS_PUSH_OBJECTS_H

#include "libckpt/remote/http.h"
#include "tools/cli.h"
#include "tools/push/plan.h"

/* Where they go. */
struct push_objects {
    const char             *url;        /* of the LFS server */
    const char             *name;       /* for messages */
    const char             *ref;        /* the branch, as the server wants it; NULL: not named */
    const char             *target;     /* names the journal */
    const struct http_auth *auth;       /* or NULL */
    const struct cli       *cli;
    bool                    follow;
};

/* Send the object of each file that has lfs set and an oid, once each, as far as the server lacks
 * it.  *sent gets the bytes of those. */
int push_objects_send(const struct push_objects *to, struct push_plan *p, uint64_t *sent,
                      struct ckpt_err *err);

#endif
