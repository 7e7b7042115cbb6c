/* hub_cache - see hub_cache.h. */
#include "libckpt/remote/hub_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/proof.h"

#define BOUNCE ((size_t)1 << 20)

/* The client's cache folder of a repository. */
static bool place(char *path, size_t size, const char *kind, const char *id, const char *tail)
{
    const char *named = getenv("HF_HUB_CACHE"), *slash = strchr(id, '/');
    char root[3072];

    if (!named || !*named)
        named = getenv("HUGGINGFACE_HUB_CACHE");
    if (named && *named)
        snprintf(root, sizeof root, "%s", named);
    else if (!hub_home(root, sizeof root, "/hub"))
        return false;
    return (size_t)snprintf(path, size, "%s/%s--%.*s%s%s/%s", root, kind,
                            slash ? (int)(slash - id) : 200, id, slash ? "--" : "",
                            slash ? slash + 1 : "", tail) < size;
}

/* A blob is named by its digest: it is verified like our own objects, and never modified. */
int hub_cache_blob(struct ckpt_file **out, const char *kind, const char *id,
                   const struct tree_file *f, struct ckpt_err *err)
{
    const char *hex = strchr(f->digest, '-');
    struct ckpt_err ignored = {0};
    char tail[100], path[4096];
    enum cache_proof proof;
    uint64_t base;
    int rc = 0;

    *out = NULL;
    if (!hex)
        return 0;
    snprintf(tail, sizeof tail, "blobs/%.70s", hex + 1);
    if (!place(path, sizeof path, kind, id, tail) ||
        ckpt_file_open(out, path, 0, &ignored))
        return 0;
    proof = CACHE_UNKNOWN;
    snprintf(tail, sizeof tail, "hub-%.70s", hex + 1);
    if (ckpt_file_size(*out) == f->size)
        rc = cache_prove(&proof, ckpt_file_fd(*out, &base), f->digest, tail, err);
    if (rc == 0 && proof == CACHE_WRONG)
        ckpt_log(CKPT_LOG_WARNING, "%s: is damaged, and not used", path);
    if (rc || proof != CACHE_PROVED) {
        ckpt_file_close(*out);
        *out = NULL;
    }
    return rc;
}

/* The snapshot of a revision, when it is there. */
bool hub_cache_snapshot(char local[1024], const struct hub_place *p)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena a = {0};
    char tail[400], path[4096], commit[300];
    struct ckpt_file *file = NULL;
    struct stat st;
    char *text;
    size_t n;

    snprintf(commit, sizeof commit, "%s", p->revision);
    snprintf(tail, sizeof tail, "refs/%s", p->revision);
    if (place(path, sizeof path, p->kind, p->id, tail) &&
        ckpt_file_open(&file, path, 0, &ignored) == 0 &&
        ckpt_file_slurp(file, &a, 100, &text, &n, &ignored) == 0)
        snprintf(commit, sizeof commit, "%.*s", (int)strcspn(text, " \r\n"), text);
    ckpt_file_close(file);
    ckpt_arena_release(&a);
    snprintf(tail, sizeof tail, "snapshots/%s", commit);
    return ckpt_file_name_is_clean(commit) && place(path, sizeof path, p->kind, p->id, tail) &&
           stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           (size_t)snprintf(local, 1024, "%s", path) < 1024;
}

/* -- what is added ---------------------------------------------------------------------------- */

/* Create the folders above path. */
static bool make_parents(const char *path)
{
    struct ckpt_err ignored = {0};
    const char *slash = strrchr(path, '/');
    char dir[4096];

    return slash && (size_t)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path) <
                        sizeof dir && ckpt_path_make_dirs(dir, &ignored) == 0;
}

static bool copy(const char *path, const struct ckpt_file *whole)
{
    struct ckpt_err ignored = {0};
    struct ckpt_out *out = NULL;
    void *bounce = ckpt_alloc_buffer(BOUNCE);
    int rc = bounce ? ckpt_out_create(&out, path, 0, &ignored) : CKPT_ENOMEM;

    if (rc == 0)
        rc = ckpt_out_copy(out, 0, whole, 0, ckpt_file_size(whole), bounce, BOUNCE, &ignored);
    if (rc == 0)
        rc = ckpt_out_commit(out, &ignored);
    else
        ckpt_out_abort(out);
    ckpt_free(bounce);
    return rc == 0;
}

/* Whether what is at path has the digest of its name. */
static bool is_whole(const char *path, const char *digest)
{
    struct ckpt_err ignored = {0};
    enum cache_proof proof = CACHE_UNKNOWN;
    struct ckpt_file *file = NULL;
    char name[100];
    uint64_t base;

    snprintf(name, sizeof name, "hub-%.70s", strchr(digest, '-') + 1);
    if (ckpt_file_open(&file, path, 0, &ignored) == 0 &&
        cache_prove(&proof, ckpt_file_fd(file, &base), digest, name, &ignored))
        proof = CACHE_UNKNOWN;
    ckpt_file_close(file);
    return proof == CACHE_PROVED;
}

/* The blob at path: a link to the object where that is possible.  A damaged one is replaced. */
static bool add_blob(const char *path, const char *digest, const struct ckpt_file *whole)
{
    uint64_t base = 0;
    int fd = ckpt_file_fd(whole, &base);
    struct stat st, object_st;
    char object[64];

    if (fd < 0 || base != 0 || fstat(fd, &object_st) || !make_parents(path))
        return false;
    if (lstat(path, &st) == 0) {
        if ((st.st_dev == object_st.st_dev && st.st_ino == object_st.st_ino) ||
            is_whole(path, digest))
            return true;
        if (!S_ISREG(st.st_mode) || unlink(path))
            return false;
    }
    snprintf(object, sizeof object, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, object, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 || errno == EEXIST ||
           (errno == EXDEV && copy(path, whole));
}

/* snapshots/<commit>/<path> -> ../../[../]blobs/<etag> */
static bool add_link(const char *path, const char *rel, const char *etag)
{
    char target[4096] = "../../";
    size_t n = strlen(target);

    for (const char *p = rel; *p; p++)
        if (*p == '/')
            n += (size_t)snprintf(target + n, n < 3900 ? sizeof target - n : 0, "../");
    if (n >= 3900)
        return false;
    snprintf(target + n, sizeof target - n, "blobs/%s", etag);
    return make_parents(path) && (symlink(target, path) == 0 || errno == EEXIST);
}

static void add_ref(const char *path, const char *commit)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *file = NULL;
    struct ckpt_out *out = NULL;
    char now[41] = "";
    bool same = ckpt_file_open(&file, path, 0, &ignored) == 0 && ckpt_file_size(file) == 40 &&
                ckpt_file_read_at(file, now, 40, 0, &ignored) == 0 && strcmp(now, commit) == 0;

    ckpt_file_close(file);
    if (same || !make_parents(path) || ckpt_out_create(&out, path, CKPT_REPLACE, &ignored))
        return;
    if (ckpt_out_write(out, commit, strlen(commit), &ignored) == 0)
        ckpt_out_commit(out, &ignored);
    else
        ckpt_out_abort(out);
}

void hub_cache_add(const struct hub_cache_file *f, const struct ckpt_file *whole)
{
    const char *hex = strchr(f->digest, '-');
    char path[4096], tail[4096];

    if (!hex || !cache_keeps() || !ckpt_file_path_is_clean(f->path) ||
        !ckpt_file_name_is_clean(f->commit))
        return;
    snprintf(tail, sizeof tail, "blobs/%s", hex + 1);
    if (!place(path, sizeof path, f->kind, f->id, tail) ||
        !add_blob(path, f->digest, whole))
        return;
    if ((size_t)snprintf(tail, sizeof tail, "snapshots/%s/%s", f->commit, f->path) >= sizeof tail ||
        !place(path, sizeof path, f->kind, f->id, tail) || !add_link(path, f->path, hex + 1))
        return;
    snprintf(tail, sizeof tail, "refs/%s", f->revision);
    if (strcmp(f->revision, f->commit) != 0 && ckpt_file_path_is_clean(f->revision) &&
        place(path, sizeof path, f->kind, f->id, tail))
        add_ref(path, f->commit);
    ckpt_log(CKPT_LOG_DEBUG, "%s: in the cache of the Hub's client too", f->path);
}
