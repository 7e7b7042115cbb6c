/*
 * plan_file - a plan as lines of JSON, to be looked at and carried out later (--plan, --apply).
 *
 *   {"type": "header", "version": 1, "source": ..., "destination": ..., "head": ...,
 *    "options": {...}}
 *   {"type": "operation", "action": "upload", "path": ..., "size": ..., "reason": "new",
 *    "how": "lfs", "digest": "sha256-..."}
 *
 * A header and its operations for each source.  action is upload, skip or delete; reason is new,
 * changed, same, ignored, deleted, left out, or "sent" where the destination does not compare.
 */
#ifndef CKPT_TOOLS_PUSH_PLAN_FILE_H
#define CKPT_TOOLS_PUSH_PLAN_FILE_H

#include "tools/push/send.h"

/* Why a file is sent or not, in a word: "new". */
const char *plan_file_reason(enum push_state state);

/* A file being written: it appears complete, or not at all. */
struct plan_writer;
int plan_writer_open(struct plan_writer **out, const char *path, struct ckpt_err *err);
int plan_writer_add(struct plan_writer *f, const struct push_plan *p, const char *destination,
                    const struct push_filter *filter, const struct send_want *w,
                    struct ckpt_err *err);
/* Takes f; NULL is accepted by abort. */
int plan_writer_commit(struct plan_writer *f, struct ckpt_err *err);
void plan_writer_abort(struct plan_writer *f);

/* One source of a file that was read. */
struct plan_part {
    const char        *source, *destination;
    const char        *head;            /* or NULL */
    struct push_filter filter;
    struct send_want   want;
    const json_t      *files;           /* path: operation, of what is sent or there already */
    const json_t      *gone;            /* path: operation */
};

struct plan_file {
    struct plan_part *part;
    size_t            n;
    json_t           *lines;            /* what the parts point into */
    struct ckpt_arena arena;
};

/* CKPT_EFORMAT names the line that is not as described above.  Close f after a failure too. */
int plan_file_read(struct plan_file *f, const char *path, struct ckpt_err *err);
int plan_file_parse(struct plan_file *f, const char *text, size_t n, struct ckpt_err *err);
void plan_file_close(struct plan_file *f);
/*
 * Whether p, filled by its destination, is what the plan says: CKPT_EFORMAT "changed" when the
 * source is another, CKPT_ESTOPPED "conflict" when the destination is.  plan NULL: always.
 */
int plan_file_agrees(const struct plan_part *plan, const struct push_plan *p, struct ckpt_err *err);

#endif
