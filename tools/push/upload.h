/*
 * upload - the files of a plan over parallel streams, for destinations that take files one by one.
 *
 * The bytes go first, those of the largest file foremost.  Then files are made visible, index files
 * last, so that a reader who finds one finds what it names.  A file is sent whole or in parts; what
 * the destination answers to a part is in a journal, and a second process sends only the parts that
 * are missing.  A file that changed since its digest was computed ends the upload: CKPT_EFORMAT
 * "changed".
 */
#ifndef CKPT_TOOLS_PUSH_UPLOAD_H
#define CKPT_TOOLS_PUSH_UPLOAD_H

#include "libckpt/remote/http.h"
#include "tools/cli.h"
#include "tools/push/plan.h"

struct upload_file {
    const struct push_file *of;
    /* Set by look: */
    bool         skip;          /* the destination has it: neither send nor end is called */
    bool         late;          /* sending it makes it visible: send it when bytes of others are
                                   there.  Not with parts */
    uint64_t     chunk;         /* bytes of a part; 0: sent whole */
    const char  *session;       /* the unfinished upload of its parts: kept by upload_keep, in the
                                   journal.  Before look: that of an earlier process, or NULL */
    size_t       n_parts;       /* at least 1 */
    /* What the destination answered to each part; NULL: it is to be sent.  Where look leaves
     * session and chunk as an earlier process had them, parts are as that process left them. */
    const char **tag;
    bool         again;         /* set by send or end beside an error: look at it once more, from
                                   its first byte on */
};

/* A destination's side.  Any thread; look and end of one file in one thread. */
struct upload {
    struct push_plan *p;
    const struct cli *cli;
    bool              follow;
    const char       *target;   /* names the journal */
    /* The unfinished upload of an earlier process that no file goes on with.  Or NULL. */
    void (*drop)(void *ctx, const char *path, const char *session);
    /* Before the first byte of a file. */
    int (*look)(void *ctx, struct upload_file *f, struct ckpt_err *err);
    /* Send a part, or the whole file; tag gets what the destination answered, or "". */
    int (*send)(void *ctx, struct upload_file *f, size_t part, const struct http_body *body,
                char tag[FIELD_BYTES], struct ckpt_err *err);
    /* All its bytes are there: make it visible.  Or NULL. */
    int (*end)(void *ctx, struct upload_file *f, struct ckpt_err *err);
    void             *ctx;
};

/* Fill oid, the SHA-256, of each file of a plan.  A file that is unchanged since an earlier call,
 * in this process or another, is not read again. */
int upload_digests(struct push_plan *p, const struct cli *cli, bool follow, struct ckpt_err *err);
/* Send the files of a plan that has its digests.  *sent gets the bytes of those not skipped. */
int upload_run(const struct upload *u, uint64_t *sent, struct ckpt_err *err);
/* A copy of text that lasts as long as upload_run; NULL when out of memory.  Any thread. */
const char *upload_keep(const struct upload_file *f, const char *text);

#endif
