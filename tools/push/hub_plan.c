/* hub_plan - see hub_plan.h. */
#include "tools/push/hub_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#include "libckpt/base/base64.h"
#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/remote/cache/proof.h"
#include "tools/cli.h"

#define SAMPLE_BYTES  512u
#define REGULAR_BYTES ((size_t)100 << 20)       /* of regular files in one commit, in all */
#define FILE_BYTES    ((uint64_t)32 << 20)      /* of one regular file */

int hub_plan_new(struct hub_plan *h, struct push_plan *p, bool follow, struct ckpt_err *err)
{
    *h = (struct hub_plan){.p = p, .follow = follow};
    h->item = ckpt_arena_alloc(&h->arena, p->n, sizeof *h->item);
    return h->item ? 0 : ckpt_nomem(err, p->n * sizeof *h->item);
}

void hub_plan_free(struct hub_plan *h) { ckpt_arena_release(&h->arena); }

/* -- how each file is sent -------------------------------------------------------------------- */

static int read_sample(const char **out, struct hub_plan *h, size_t i, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    unsigned char bytes[SAMPLE_BYTES];
    char *text = NULL;
    size_t n = 0;
    int rc = push_plan_open(&file, h->p, i, h->follow, err);

    if (rc == 0) {
        n = ckpt_file_size(file) < sizeof bytes ? (size_t)ckpt_file_size(file) : sizeof bytes;
        rc = ckpt_file_read_at(file, bytes, n, 0, err);
    }
    if (rc == 0 && !(text = base64_encode(bytes, n)))
        rc = ckpt_nomem(err, 2 * n);
    if (rc == 0 && !(*out = ckpt_arena_strndup(&h->arena, text, strlen(text))))
        rc = ckpt_nomem(err, 2 * n);
    ckpt_free(text);
    ckpt_file_close(file);
    return rc;
}

static int ask_some(struct hub_plan *h, const struct hub_repo *r, const char *revision, size_t from,
                    size_t n, struct ckpt_err *err)
{
    struct hub_file file[HUB_PREUPLOAD_FILES];
    int rc = 0;

    memset(file, 0, sizeof file);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        file[i].path = h->p->file[from + i].to;
        file[i].size = h->p->file[from + i].size;
        rc = read_sample(&file[i].sample, h, from + i, err);
    }
    rc = rc ? rc : hub_preupload(r, revision, file, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        h->p->file[from + i].lfs = file[i].lfs;
        h->item[from + i].how = file[i].ignored ? HUB_IGNORED : HUB_SEND;
        snprintf(h->item[from + i].oid, sizeof h->item[0].oid, "%s", file[i].oid);
    }
    return rc;
}

/* The digest of file i, compared with what the repository has. */
static int compare(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct hub_plan *h = ctx;
    char oid[65] = "";
    int rc;

    (void)worker;
    if (h->item[i].how == HUB_IGNORED)
        return 0;
    if (cli_stop)
        return cli_stopped(err);
    if ((rc = push_plan_digest(oid, h->p, i, h->follow, !h->p->file[i].lfs, err)) != 0)
        return rc;
    if (*oid && strcmp(oid, h->item[i].oid) == 0)
        h->item[i].how = HUB_SAME;
    snprintf(h->item[i].oid, sizeof h->item[i].oid, "%s", oid);
    return 0;
}

int hub_plan_ask(struct hub_plan *h, const struct hub_repo *r, const char *revision,
                 struct ckpt_err *err)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < h->p->n; at += HUB_PREUPLOAD_FILES)
        rc = ask_some(h, r, revision, at, h->p->n - at < HUB_PREUPLOAD_FILES
                                              ? h->p->n - at : HUB_PREUPLOAD_FILES, err);
    return rc ? rc : ckpt_pool_run(ckpt_pool_default(8), h->p->n, compare, h, err);
}

int hub_plan_settle(const struct hub_plan *h, const struct tree *t, struct ckpt_err *err)
{
    static const enum push_state states[] = {[HUB_SAME] = PUSH_SAME, [HUB_IGNORED] = PUSH_IGNORED};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < h->p->n; i++) {
        const struct push_file *f = &h->p->file[i];
        bool there = t && tree_kind(t, f->to) == 1;

        rc = push_plan_found(h->p, i, h->item[i].how == HUB_SEND ? there ? PUSH_CHANGED : PUSH_NEW
                                                                 : states[h->item[i].how],
                             f->lfs ? "sha256" : "sha1", h->item[i].oid, err);
    }
    return rc;
}

/* -- the commit ------------------------------------------------------------------------------- */

int hub_plan_mark(char mark[33], const struct hub_plan *h, const char *target, struct ckpt_err *err)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *s = NULL;
    int rc = ckpt_sha256_new(&s, err);

    if (rc == 0)
        rc = ckpt_sha256_add(s, target, strlen(target) + 1, err);
    for (size_t i = 0; rc == 0 && i < h->p->n; i++) {
        rc = ckpt_sha256_add(s, h->p->file[i].to, strlen(h->p->file[i].to) + 1, err);
        rc = rc ? rc : ckpt_sha256_add(s, h->item[i].oid, sizeof h->item[i].oid, err);
    }
    rc = rc ? rc : ckpt_sha256_end(s, digest, err);
    if (rc == 0)
        ckpt_digest_hex(mark, digest, 16);
    ckpt_sha256_free(s);
    return rc;
}

/* {"key": key, "value": value}: value is taken. */
static int put_line(struct ckpt_buf *out, const char *key, json_t *value, struct ckpt_err *err)
{
    json_t *line = value ? json_pack("{s:s, s:o}", "key", key, "value", value) : NULL;
    int rc = line ? ckpt_json_write(out, line, 0, false, err) : ckpt_nomem(err, 256);

    json_decref(line);
    ckpt_buf_put(out, "\n", 1);
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_fail(err, CKPT_ELIMIT, "more than %zu MB of files that are not in LFS: for one "
                       "commit that is too much", REGULAR_BYTES >> 20);
    return rc;
}

/* The line of a regular file, with its content.  It must still be the one that was digested. */
static int put_regular(struct ckpt_buf *out, const struct hub_plan *h, size_t i,
                       struct ckpt_err *err)
{
    struct push_file *f = &h->p->file[i];
    struct ckpt_arena arena = {0};
    struct ckpt_file *file = NULL;
    char *bytes, *text = NULL, oid[65] = "";
    uint64_t base;
    size_t n;
    int rc = push_plan_open(&file, h->p, i, h->follow, err);

    if (rc == 0)
        rc = ckpt_file_slurp(file, &arena, FILE_BYTES, &bytes, &n, err);
    if (rc == 0 && h->item[i].oid[0] && ckpt_file_fd(file, &base) >= 0)
        rc = cache_digest(oid, ckpt_file_fd(file, &base), true, err);
    if (rc == 0 && (n != f->size || (*oid && strcmp(oid, h->item[i].oid) != 0)))
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was published",
                          f->from);
    if (rc == 0 && !(text = base64_encode((unsigned char *)bytes, n)))
        rc = ckpt_nomem(err, 2 * n);
    if (rc == 0)
        rc = put_line(out, "file", json_pack("{s:s, s:s, s:s}", "path", f->to, "content", text,
                                             "encoding", "base64"), err);
    ckpt_free(text);
    ckpt_arena_release(&arena);
    ckpt_file_close(file);
    return rc;
}

int hub_plan_lines(struct ckpt_buf *out, const struct hub_plan *h, const char *summary,
                   const char *mark, const char *parent, const struct opt_list *gone,
                   struct ckpt_err *err)
{
    char description[64];
    int rc;

    snprintf(description, sizeof description, "ckpt-push-id: %s", mark);
    rc = put_line(out, "header", json_pack("{s:s, s:s, s:s}", "summary", summary, "description",
                                           description, "parentCommit", parent), err);
    for (size_t i = 0; rc == 0 && i < h->p->n; i++) {
        const struct push_file *f = &h->p->file[i];

        if (h->item[i].how != HUB_SEND)
            continue;
        rc = !f->lfs ? put_regular(out, h, i, err)
                     : put_line(out, "lfsFile", json_pack("{s:s, s:s, s:s, s:I}", "path", f->to,
                                                          "algo", "sha256", "oid", h->item[i].oid,
                                                          "size", (json_int_t)f->size), err);
    }
    for (size_t k = 0; rc == 0 && k < gone->n; k++)
        rc = put_line(out, "deletedFile", json_pack("{s:s}", "path", gone->item[k]), err);
    return rc;
}

/* -- what is there ---------------------------------------------------------------------------- */

static int by_path(const void *key, const void *file)
{
    return strcmp(key, ((const struct tree_file *)file)->path);
}

const char *hub_plan_differs(const struct hub_plan *h, const struct tree *t)
{
    for (size_t i = 0; i < h->p->n; i++) {
        const struct push_file *f = &h->p->file[i];
        const struct tree_file *there = bsearch(f->to, t->file, t->n, sizeof *t->file, by_path);
        const char *hex = there ? strchr(there->digest, '-') : NULL;

        if (h->item[i].how == HUB_IGNORED)
            continue;
        if (!there || there->size != f->size ||
            (h->item[i].oid[0] && (!hex || strcmp(hex + 1, h->item[i].oid) != 0)))
            return f->to;
    }
    return NULL;
}
