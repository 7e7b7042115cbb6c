/* hub_plan - see hub_plan.h. */
#include "tools/push/hub_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/base64.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "tools/cli.h"

#define SAMPLE_BYTES  512u

int hub_plan_new(struct hub_plan *h, struct push_plan *p, bool follow, struct ckpt_err *err)
{
    *h = (struct hub_plan){.p = p, .follow = follow};
    h->item = ckpt_arena_alloc(&h->arena, p->n, sizeof *h->item);
    return h->item ? 0 : ckpt_nomem(err, p->n * sizeof *h->item);
}

void hub_plan_free(struct hub_plan *h) { ckpt_arena_release(&h->arena); }

/* -- how each file is sent -------------------------------------------------------------------- */

static int read_sample(const char **out, struct hub_plan *h, size_t i, struct ckpt_arena *arena,
                       struct ckpt_err *err)
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
    if (rc == 0 && !(*out = ckpt_arena_strndup(arena, text, strlen(text))))
        rc = ckpt_nomem(err, 2 * n);
    ckpt_free(text);
    ckpt_file_close(file);
    return rc;
}

static int ask_some(struct hub_plan *h, const struct hub_repo *r, const char *revision, size_t from,
                    size_t n, struct ckpt_err *err)
{
    struct hub_file file[HUB_PREUPLOAD_FILES];
    struct ckpt_arena samples = {0};
    int rc = 0;

    memset(file, 0, sizeof file);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        file[i].path = h->p->file[from + i].to;
        file[i].size = h->p->file[from + i].size;
        rc = read_sample(&file[i].sample, h, from + i, &samples, err);
    }
    rc = rc ? rc : hub_preupload(r, revision, file, n, err);
    ckpt_arena_release(&samples);
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

int hub_plan_settle(const struct hub_plan *h, const struct tree *t, bool digests,
                    struct ckpt_err *err)
{
    static const enum push_state states[] = {[HUB_SAME] = PUSH_SAME, [HUB_IGNORED] = PUSH_IGNORED};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < h->p->n; i++) {
        const struct push_file *f = &h->p->file[i];
        bool there = t && tree_kind(t, f->to) == 1;

        rc = push_plan_found(h->p, i, h->item[i].how == HUB_SEND ? there ? PUSH_CHANGED : PUSH_NEW
                                                                 : states[h->item[i].how],
                             f->lfs ? "sha256" : "sha1", digests ? h->item[i].oid : "", err);
    }
    return rc;
}

/* -- the mark --------------------------------------------------------------------------------- */

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
