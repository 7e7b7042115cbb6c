/* lfs - see lfs.h. */
#include "libckpt/remote/git/lfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/remote/git/wildmatch.h"

#define CHUNK ((size_t)1 << 20)

/* From the .gitattributes that huggingface.co gives a new model repository. */
static const char *const patterns[] = {
    "*.7z", "*.arrow", "*.bin", "*.bz2", "*.ckpt", "*.ftz", "*.gz", "*.h5", "*.joblib",
    "*.lfs.*", "*.mlmodel", "*.model", "*.msgpack", "*.npy", "*.npz", "*.onnx", "*.ot",
    "*.parquet", "*.pb", "*.pickle", "*.pkl", "*.pt", "*.pth", "*.rar", "*.safetensors",
    "*.tar.*", "*.tar", "*.tflite", "*.tgz", "*.wasm", "*.xz", "*.zip", "*.zst",
    "*tfevents*", "*.gguf",
};

static const char version_line[] = "version https://git-lfs.github.com/spec/v1\n";

void ckpt_lfs_pointer(struct ckpt_buf *out, const char *oid, uint64_t size)
{
    ckpt_buf_printf(out, "%soid sha256:%s\nsize %llu\n", version_line, oid,
                    (unsigned long long)size);
}

bool ckpt_lfs_parse(const char *text, size_t len, char oid[CKPT_SHA256_HEX], uint64_t *size)
{
    static const char oid_key[] = "oid sha256:", size_key[] = "\nsize ";
    const size_t v = sizeof version_line - 1, k = sizeof oid_key - 1, s = sizeof size_key - 1;
    const char *at = text + v + k;
    char digits[24];
    size_t n;

    if (len >= CKPT_LFS_POINTER_MAX || len < v + k + 64 + s + 2 ||
        memcmp(text, version_line, v) != 0 || memcmp(text + v, oid_key, k) != 0 ||
        memcmp(at + 64, size_key, s) != 0 || text[len - 1] != '\n')
        return false;
    for (size_t i = 0; i < 64; i++)
        if (!strchr("0123456789abcdef", at[i]) || !at[i])
            return false;
    n = len - (v + k + 64 + s) - 1;
    if (n >= sizeof digits)
        return false;
    memcpy(digits, at + 64 + s, n);
    digits[n] = '\0';
    if (strspn(digits, "0123456789") != n || n > 19)
        return false;
    memcpy(oid, at, 64);
    oid[64] = '\0';
    *size = strtoull(digits, NULL, 10);
    return true;
}

bool ckpt_lfs_by_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (wildmatch(patterns[i], name, false) == 1)
            return true;
    return false;
}

void ckpt_lfs_attributes(struct ckpt_buf *out)
{
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        ckpt_buf_printf(out, "%s filter=lfs diff=lfs merge=lfs -text\n", patterns[i]);
}

/* Create lfs/objects/ab/cd below git_dir where missing; path becomes the object's path. */
static int make_folders(char *path, size_t size, const char *git_dir, const char *oid,
                        struct ckpt_err *err)
{
    static const char *const part[] = {"/lfs", "/objects"};
    int n = snprintf(path, size, "%s", git_dir);

    for (size_t i = 0; i < 4; i++) {
        size_t left = size - (size_t)n;
        int k = i < 2 ? snprintf(path + n, left, "%s", part[i])
                      : snprintf(path + n, left, "/%.2s", oid + 2 * (i - 2));

        if (k < 0 || (size_t)k >= left)
            return ckpt_fail(err, CKPT_ELIMIT, "%s: path too long", git_dir);
        n += k;
        if (mkdir(path, 0777) && errno != EEXIST)
            return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    }
    if ((size_t)snprintf(path + n, size - (size_t)n, "/%s", oid) >= size - (size_t)n)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: path too long", git_dir);
    return 0;
}

/* Copy file into out, computing the digest on the way. */
static int copy_digested(struct ckpt_out *out, struct ckpt_file *file, const char *oid,
                         ckpt_lfs_progress *progress, void *ctx, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    char hex[CKPT_SHA256_HEX];
    void *chunk = ckpt_alloc_buffer(CHUNK);
    struct ckpt_sha256 *sha = NULL;
    int rc = chunk ? ckpt_sha256_new(&sha, err) : ckpt_nomem(err, CHUNK);

    for (uint64_t at = 0; rc == 0 && at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        rc = ckpt_file_read_at(file, chunk, n, at, err);
        if (rc == 0)
            rc = ckpt_sha256_add(sha, chunk, n, err);
        if (rc == 0)
            rc = ckpt_out_write(out, chunk, n, err);
        at += n;
        if (progress)
            progress(ctx, n);
    }
    rc = ckpt_sha256_finish(hex, sha, rc, err);
    if (rc == 0 && strcmp(hex, oid) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was read",
                          ckpt_file_name(file));
    ckpt_free(chunk);
    return rc;
}

/* Whether the object at path exists and has the digest that its name says. */
static bool is_whole(const char *path, const char *oid, uint64_t size)
{
    struct ckpt_err ignored = {0};
    char hex[CKPT_SHA256_HEX];
    struct ckpt_file *file;
    bool whole;

    if (ckpt_file_open(&file, path, 0, &ignored))
        return false;
    whole = ckpt_file_size(file) == size && ckpt_sha256_file(hex, file, &ignored) == 0 &&
            strcmp(hex, oid) == 0;
    ckpt_file_close(file);
    if (!whole)
        ckpt_log(CKPT_LOG_WARNING, "%s: is damaged in the store and is written anew", path);
    return whole;
}

bool ckpt_lfs_listed(const char *git_dir, const char *oid, uint64_t size)
{
    char path[4096];
    struct stat st;

    return (size_t)snprintf(path, sizeof path, "%s/lfs/objects/%.2s/%.2s/%s", git_dir, oid, oid + 2,
                            oid) < sizeof path && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode) && (uint64_t)st.st_size == size;
}

int ckpt_lfs_put(bool *had, const char *git_dir, const char *oid, struct ckpt_file *file,
                 ckpt_lfs_progress *progress, void *ctx, struct ckpt_err *err)
{
    char path[4096];
    struct ckpt_out *out;
    int rc = make_folders(path, sizeof path, git_dir, oid, err);

    *had = false;
    if (rc)
        return rc;
    if (is_whole(path, oid, ckpt_file_size(file))) {
        *had = true;
        if (progress)
            progress(ctx, ckpt_file_size(file));
        return 0;
    }
    rc = ckpt_out_create(&out, path, CKPT_REPLACE, err);
    if (rc)
        return rc;
    rc = copy_digested(out, file, oid, progress, ctx, err);
    if (rc == 0)
        return ckpt_out_commit(out, err);
    ckpt_out_abort(out);
    return rc;
}
