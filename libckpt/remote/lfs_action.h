/* lfs_action - what an LFS server says is to be done with an object; for lfs_http. */
#ifndef CKPT_LIBCKPT_REMOTE_LFS_ACTION_H
#define CKPT_LIBCKPT_REMOTE_LFS_ACTION_H

#include <jansson.h>
#include <time.h>

#include "libckpt/mem.h"
#include "libckpt/remote/lfs_http.h"

/* Arrays of parts are empty for an object that is sent whole. */
struct lfs_action {
    bool         present;       /* the server has it */
    const char  *href;          /* of the object, or of the completion of its parts */
    const char  *headers;       /* lines for the request to href, each ended by '\n' */
    const char  *verify;        /* or NULL */
    const char  *verify_headers;
    uint64_t     chunk;         /* bytes of a part */
    size_t       n_parts;
    const char **part;          /* address of each */
    const char **tag;           /* ETag of each that was sent, else NULL */
    time_t       until;         /* when the addresses expire; 0: not known */
};

/* Read the entry of an answer for object o.  CKPT_EPROTOCOL, or the server's refusal. */
int lfs_action_read(struct lfs_action *a, struct ckpt_arena *arena, const struct lfs_object *o,
                    const json_t *entry, const char *server, struct ckpt_err *err);
/* The same of an answer to "download": only href, NULL when none is named, headers and until. */
int lfs_action_read_download(struct lfs_action *a, struct ckpt_arena *arena,
                             const struct lfs_object *o, const json_t *entry, const char *server,
                             struct ckpt_err *err);
/* The record of an action for the journal, and back; false when it is of another object, or its
 * addresses have expired. */
json_t *lfs_action_record(const struct lfs_action *a, const struct lfs_object *o);
bool lfs_action_resume(struct lfs_action *a, struct ckpt_arena *arena, const struct lfs_object *o,
                       const json_t *record);

#endif
