/* artifacts - see artifacts.h. */
#include "trainer/tell/artifacts.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/base64.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"

#define PIECE ((size_t)1 << 20)

/* The files of one artifact. */
struct listing {
    struct ckpt_arena      arena;
    const char            *root;        /* absolute */
    struct wandb_out_file *file;        /* [n] */
    size_t                 n, cap;
};

/* The MD5 of a file in base64. */
static int md5_of(char text[25], struct ckpt_file *file, struct ckpt_err *err)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    void *piece = ckpt_alloc_buffer(PIECE);
    uint64_t size = ckpt_file_size(file);
    unsigned char digest[16];
    bool good = md && piece && EVP_DigestInit_ex(md, EVP_md5(), NULL) == 1;
    char *base64 = NULL;
    int rc = 0;

    ckpt_file_sequential(file);
    for (uint64_t at = 0; good && rc == 0 && at < size; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;

        rc = ckpt_file_read_at(file, piece, n, at, err);
        good = rc || EVP_DigestUpdate(md, piece, n) == 1;
    }
    good = good && EVP_DigestFinal_ex(md, digest, NULL) == 1 &&
           (base64 = base64_encode(digest, sizeof digest)) != NULL;
    if (good)
        snprintf(text, 25, "%s", base64);
    ckpt_free(base64);
    ckpt_free(piece);
    EVP_MD_CTX_free(md);
    return rc ? rc : good ? 0 : ckpt_nomem(err, PIECE);
}

static int add(struct listing *l, struct ckpt_dir *dir, const char *prefix, const char *name,
               struct ckpt_err *err)
{
    struct wandb_out_file *f;
    struct ckpt_file *file = NULL;
    char md5[25] = "";
    int rc = ckpt_reserve(&l->file, l->n, &l->cap, sizeof *l->file, err);

    rc = rc ? rc : ckpt_file_open_at(&file, dir, name, err);
    if (rc)
        return rc;
    rc = md5_of(md5, file, err);
    f = &l->file[l->n];
    *f = (struct wandb_out_file){
        .path = ckpt_arena_printf(&l->arena, "%s%s", prefix, name),
        .local = ckpt_arena_printf(&l->arena, "%s/%s%s", l->root, prefix, name),
        .digest = ckpt_arena_strndup(&l->arena, md5, strlen(md5)), .size = ckpt_file_size(file)};
    ckpt_file_close(file);
    l->n++;
    return rc ? rc : f->path && f->local && f->digest ? 0 : ckpt_nomem(err, 256);
}

/* The regular files of a folder, and with deep those of its folders (global_step<N>). */
static int list(struct listing *l, struct ckpt_dir *dir, const char *prefix, bool deep,
                struct ckpt_err *err)
{
    struct ckpt_entry *entry = NULL;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &l->arena, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *sub = NULL;
        char *below;

        if (entry[i].name[0] == '.')
            continue;
        if (entry[i].is_file) {
            rc = add(l, dir, prefix, entry[i].name, err);
        } else if (entry[i].is_dir && deep) {
            below = ckpt_arena_printf(&l->arena, "%s%s/", prefix, entry[i].name);
            rc = below ? ckpt_dir_open_at(&sub, dir, entry[i].name, err) : ckpt_nomem(err, 64);
            rc = rc ? rc : list(l, sub, below, false, err);
            ckpt_dir_close(sub);
        }
    }
    return rc;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct wandb_out_file *)a)->path,
                  ((const struct wandb_out_file *)b)->path);
}

/* One folder as a version of artifact kind-name. */
static int put(struct wandb_out *o, const char *path, const char *kind, const char *name,
               const char *alias, bool deep, struct ckpt_err *err)
{
    struct listing l = {0};
    struct ckpt_dir *dir = NULL;
    char title[200], full[4096];
    int rc;

    if (!realpath(path, full))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such folder", path);
    l.root = full;
    snprintf(title, sizeof title, "%s-%.128s", kind, name);
    rc = ckpt_dir_open(&dir, path, 0, err);
    rc = rc ? rc : list(&l, dir, "", deep, err);
    if (rc == 0 && l.n > 0) {
        qsort(l.file, l.n, sizeof *l.file, by_path);
        rc = wandb_out_artifact(o, &(struct wandb_out_artifact){
            .name = title, .type = "model", .alias = alias, .file = l.file, .n = l.n}, err);
    }
    ckpt_dir_close(dir);
    ckpt_free(l.file);
    ckpt_arena_release(&l.arena);
    return rc;
}

/* checkpoint-<N> of the run, as they come in its folder. */
static int put_checkpoints(struct wandb_out *o, const char *output_dir, const char *name,
                           struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry = NULL;
    struct ckpt_dir *dir = NULL;
    size_t n = 0;
    int rc = ckpt_dir_open(&dir, output_dir, 0, err);

    rc = rc ? rc : ckpt_dir_list(dir, &arena, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t step = ckpt_path_number(entry[i].name, "checkpoint-");
        char path[4096], alias[64];

        if (!entry[i].is_dir || step < 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", output_dir, entry[i].name);
        snprintf(alias, sizeof alias, "checkpoint_global_step_%lld", (long long)step);
        rc = put(o, path, "checkpoint", name, alias, true, err);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    return rc;
}

int artifacts_put(struct wandb_out *o, const char *output_dir, const char *name,
                  struct ckpt_err *err)
{
    const char *which = getenv("WANDB_LOG_MODEL");
    bool all = which && strcmp(which, "checkpoint") == 0;
    int rc;

    if (!which || !*which || strcmp(which, "false") == 0)
        return 0;
    if (!all && strcmp(which, "end") != 0) {
        ckpt_log(CKPT_LOG_WARNING, "WANDB_LOG_MODEL=%s: end, checkpoint or false wanted", which);
        return 0;
    }
    ckpt_log(CKPT_LOG_NOTE, "W&B: reading what becomes an artifact");
    rc = all ? put_checkpoints(o, output_dir, name, err) : 0;
    return rc ? rc : put(o, output_dir, "model", name, "final_model", false, err);
}
