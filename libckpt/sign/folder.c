/* sign/folder - see folder.h. */
#include "libckpt/sign/folder.h"

#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>

#include "libckpt/base/pool.h"
#include "libckpt/err.h"

#define PIECE     ((size_t)1 << 20)
#define MAX_DEPTH 64
#define MAX_PATH  4096u

int sign_folder_digest(unsigned char digest[SIGN_DIGEST_MAX], const struct ckpt_file *file,
                       enum sign_hash hash, uint64_t start, uint64_t end, struct ckpt_err *err)
{
    const EVP_MD *md = hash == SIGN_BLAKE2B ? EVP_blake2b512() : EVP_sha256();
    void *buffer = ckpt_alloc_buffer(PIECE);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int rc = buffer && ctx && EVP_DigestInit_ex(ctx, md, NULL) == 1 ? 0 : ckpt_nomem(err, PIECE);

    for (uint64_t at = start; rc == 0 && at < end; at += PIECE) {
        size_t n = end - at < PIECE ? (size_t)(end - at) : PIECE;

        rc = ckpt_file_read_at(file, buffer, n, at, err);
        if (rc == 0 && EVP_DigestUpdate(ctx, buffer, n) != 1)
            rc = ckpt_nomem(err, PIECE);
    }
    if (rc == 0 && EVP_DigestFinal_ex(ctx, digest, NULL) != 1)
        rc = ckpt_nomem(err, PIECE);
    EVP_MD_CTX_free(ctx);
    ckpt_free(buffer);
    return rc;
}

struct work {
    const struct sign_compare *c;
    unsigned char             *found;   /* of each item: 1 + enum sign_difference, or 0 */
    size_t                     n;       /* differences */
};

/* Whether item i is the last of its file. */
static bool is_last(const struct sign_manifest *m, size_t i)
{
    return i + 1 == m->n || strcmp(m->item[i + 1].name, m->item[i].name) != 0;
}

static int check_item(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct work *w = ctx;
    const struct sign_manifest *m = w->c->m;
    const struct sign_item *item = &m->item[i];
    unsigned char digest[SIGN_DIGEST_MAX];
    struct ckpt_file *file = NULL;
    uint64_t end;
    int rc;

    (void)worker;
    rc = ckpt_file_open_at(&file, w->c->dir, item->name, err);
    if (rc == CKPT_ENOTFOUND || rc == CKPT_EREFUSED) {
        w->found[i] = 1 + (rc == CKPT_ENOTFOUND ? SIGN_MISSING : SIGN_IRREGULAR);
        ckpt_err_clear(err);
        return 0;
    }
    if (rc)
        return rc;
    end = m->shards ? item->end : ckpt_file_size(file);
    if (end > ckpt_file_size(file) || (is_last(m, i) && end < ckpt_file_size(file))) {
        w->found[i] = 1 + SIGN_CHANGED;
    } else {
        ckpt_file_sequential(file);
        rc = sign_folder_digest(digest, file, m->hash, item->start, end, err);
        if (rc == 0 && memcmp(digest, item->digest, sign_hash_bytes(m->hash)) != 0)
            w->found[i] = 1 + SIGN_CHANGED;
    }
    ckpt_file_close(file);
    return rc ? ckpt_err_in(err, "%s", item->name) : 0;
}

static void tell(struct work *w, const char *path, enum sign_difference what)
{
    w->n++;
    w->c->differs(w->c->ctx, path, what);
}

/* A file that the manifest does not have.  Empty ones have no part of shards. */
static int put_unsigned(struct work *w, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                        const char *path, struct ckpt_err *err)
{
    struct ckpt_file *file;
    bool own;
    int rc;

    if (w->c->m->shards && entry->size == 0)
        return 0;
    if ((rc = ckpt_file_open_at(&file, dir, entry->name, err)) != 0) {
        if (rc != CKPT_ENOTFOUND && rc != CKPT_EREFUSED)
            return rc;
        ckpt_err_clear(err);
        tell(w, path, SIGN_UNSIGNED);
        return 0;
    }
    own = w->c->signature && ckpt_file_same(file, w->c->signature);
    ckpt_file_close(file);
    if (!own)
        tell(w, path, SIGN_UNSIGNED);
    return 0;
}

static int walk(struct work *w, struct ckpt_dir *dir, const char *prefix, int depth,
                struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &arena, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *sub = NULL;
        char path[MAX_PATH + 1];

        if ((size_t)snprintf(path, sizeof path, "%s%s", prefix, entry[i].name) >= MAX_PATH ||
            depth == MAX_DEPTH) {
            rc = ckpt_fail(err, CKPT_ELIMIT, "%.200s: a path of more than %u bytes, or more than "
                           "%d folders", path, MAX_PATH, MAX_DEPTH);
        } else if (sign_manifest_ignored(w->c->m, path)) {
            continue;
        } else if (entry[i].is_dir) {
            if ((rc = ckpt_dir_open_at(&sub, dir, entry[i].name, err)) == 0) {
                memcpy(path + strlen(path), "/", 2);
                rc = walk(w, sub, path, depth + 1, err);
            }
        } else if (sign_manifest_find(w->c->m, path)) {
            continue;
        } else if (!entry[i].is_file) {
            tell(w, path, SIGN_IRREGULAR);
        } else {
            rc = put_unsigned(w, dir, &entry[i], path, err);
        }
        ckpt_dir_close(sub);
    }
    ckpt_arena_release(&arena);
    return rc;
}

int sign_folder_compare(const struct sign_compare *c, size_t *n, struct ckpt_err *err)
{
    struct work w = {.c = c, .found = ckpt_alloc(c->m->n + 1, 1)};
    int rc = w.found ? ckpt_pool_run(c->workers, c->m->n, check_item, &w, err)
                     : ckpt_nomem(err, c->m->n);

    for (size_t i = 0; rc == 0 && i < c->m->n; i++)
        if (w.found[i] && (i == 0 || !w.found[i - 1] || is_last(c->m, i - 1)))
            tell(&w, c->m->item[i].name, (enum sign_difference)(w.found[i] - 1));
    if (rc == 0 && !c->ignore_unsigned)
        rc = walk(&w, c->dir, "", 0, err);
    ckpt_free(w.found);
    *n = w.n;
    return rc;
}
