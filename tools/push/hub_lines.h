/*
 * hub_lines - what a commit on the Hub sends: lines of JSON, one for each file.
 *
 * They are short where files go as LFS objects, and have the bytes of all others; beyond a MiB they
 * lie in an unnamed file.
 */
#ifndef CKPT_TOOLS_PUSH_HUB_LINES_H
#define CKPT_TOOLS_PUSH_HUB_LINES_H

#include "libckpt/remote/http.h"
#include "tools/push/hub_plan.h"

struct hub_lines {
    struct ckpt_buf   text;     /* all lines, or those that are not in the file yet */
    int               fd;       /* the file; -1: there is none */
    struct ckpt_file *file;     /* the same, when all lines are in it */
    uint64_t          bytes;    /* of all lines */
};

/* The lines of a commit on parent; gone: published paths that it removes.  To be released, after a
 * failure too.  CKPT_EFORMAT "changed" when a file is no longer the one that was digested. */
int hub_lines_make(struct hub_lines *l, const struct hub_plan *h, const char *summary,
                   const char *mark, const char *parent, const struct opt_list *gone,
                   struct ckpt_err *err);
/* They as a body, which is valid until they are released. */
struct http_body hub_lines_body(const struct hub_lines *l);
void hub_lines_release(struct hub_lines *l);

#endif
