/* send - see send.h. */
#include "tools/push/send.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/commit.h"
#include "libckpt/log.h"
#include "libckpt/remote/git.h"
#include "libckpt/remote/lfs.h"
#include "tools/progress.h"

#define CHUNK ((size_t)4 << 20)

int send_kind(const char **kind, const char **path, const char *dest, struct ckpt_err *err)
{
    static const struct { const char *scheme, *kind; } schemes[] = {
        {"git+file://", "git"}, {"folder://", "folder"}, {"file://", NULL},
    };
    const char *colon = strstr(dest, "://");

    *kind = NULL;
    *path = dest;
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t n = strlen(schemes[i].scheme);

        if (strncmp(dest, schemes[i].scheme, n) == 0) {
            *kind = schemes[i].kind;
            *path = dest + n;
            colon = NULL;
            break;
        }
    }
    if (colon)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: no known kind of destination; git+file://, "
                         "folder:// and plain paths are", dest);
    if (!*kind) {
        size_t n = strlen(*path);

        *kind = ckpt_git_is_repository(*path) || (n > 4 && strcmp(*path + n - 4, ".git") == 0)
                    ? "git" : "folder";
    }
    return 0;
}

/* Progress over all files of a plan. */
struct tally {
    struct progress *progress;
    uint64_t         done, total;
};

static void tick(void *ctx, uint64_t bytes)
{
    struct tally *t = ctx;

    t->done += bytes;
    progress_tick(t->progress, t->done, t->total);
}

/* The object of one file into the store, its pointer into the tree. */
static int put_by_pointer(struct ckpt_git *g, struct push_file *pf, struct ckpt_file *file,
                          struct tally *t, uint64_t *sent, struct ckpt_err *err)
{
    struct ckpt_buf pointer;
    bool had;
    int rc = ckpt_sha256_file(pf->oid, file, err);

    ckpt_buf_init(&pointer, CKPT_LFS_POINTER_MAX);
    if (rc == 0)
        rc = ckpt_lfs_put(&had, ckpt_git_dir(g), pf->oid, file, tick, t, err);
    if (rc == 0) {
        *sent += had ? 0 : pf->size;
        ckpt_lfs_pointer(&pointer, pf->oid, pf->size);
        rc = ckpt_git_put(g, pf->to, pointer.data, pointer.len, err);
    }
    ckpt_buf_release(&pointer);
    return rc;
}

static int put_whole(struct ckpt_git *g, struct push_file *pf, struct ckpt_file *file,
                     struct tally *t, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char *bytes;
    size_t n;
    int rc = ckpt_file_slurp(file, &a, CKPT_LFS_THRESHOLD, &bytes, &n, err);

    if (rc == 0)
        rc = ckpt_git_put(g, pf->to, bytes, n, err);
    tick(t, pf->size);
    ckpt_arena_release(&a);
    return rc;
}

/* Lines that make git-lfs look after what goes by pointer. */
static int put_attributes(struct ckpt_git *g, const struct push_plan *p, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    if (ckpt_git_has(g, ".gitattributes"))
        return 0;
    ckpt_buf_init(&b, (size_t)1 << 20);
    ckpt_lfs_attributes(&b);
    for (size_t i = 0; i < p->n; i++)
        if (p->file[i].lfs && !ckpt_lfs_by_name(p->file[i].to))
            ckpt_buf_printf(&b, "%s filter=lfs diff=lfs merge=lfs -text\n", p->file[i].to);
    rc = ckpt_buf_ok(&b) ? ckpt_git_put(g, ".gitattributes", b.data, b.len, err)
                         : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

static bool in_plan(const struct push_plan *p, const char *path)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].to, path) == 0)
            return true;
    return false;
}

/* Published files that match a --delete glob and are not sent now. */
static int remove_old(struct ckpt_git *g, const struct push_plan *p, const struct opt_list *globs,
                      struct ckpt_err *err)
{
    const char *path;

    for (size_t i = 0; (path = ckpt_git_path(g, i)) != NULL;) {
        bool gone = false;

        for (size_t k = 0; k < globs->n && !gone; k++)
            gone = fnmatch(globs->item[k], path, 0) == 0 && !in_plan(p, path) &&
                   strcmp(path, ".gitattributes") != 0;
        if (!gone)
            i++;
        else if (ckpt_git_remove(g, path, err))
            return err->code;
    }
    return 0;
}

/* Everything of one attempt but opening the repository. */
static int push_once(struct ckpt_git *g, struct push_plan *p, const struct send_want *w,
                     const struct cli *cli, char id[CKPT_GIT_ID], bool *changed,
                     uint64_t *sent, struct ckpt_err *err)
{
    const char *slash = strrchr(p->source, '/'), *name = slash && slash[1] ? slash + 1 : p->source;
    struct tally t = {.progress = progress_new(cli, "push", true), .total = p->bytes};
    char message[512];
    int rc = ckpt_git_begin(g, w->branch, err);

    for (size_t i = 0; rc == 0 && i < p->n && !cli_stop; i++) {
        struct ckpt_file *file = NULL;

        rc = push_plan_open(&file, p, i, w->follow, err);
        if (rc == 0)
            rc = p->file[i].lfs ? put_by_pointer(g, &p->file[i], file, &t, sent, err)
                                : put_whole(g, &p->file[i], file, &t, err);
        ckpt_file_close(file);
    }
    progress_end(t.progress);
    if (rc == 0 && cli_stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "stopped: nothing was published");
    if (rc == 0)
        rc = put_attributes(g, p, err);
    if (rc == 0)
        rc = remove_old(g, p, &w->remove, err);
    snprintf(message, sizeof message, "Upload %s with ckpt-push", name);
    if (rc == 0)
        rc = ckpt_git_commit(g, w->message ? w->message : message, w->author, id, changed, err);
    return rc;
}

int send_git(char *url, size_t url_size, struct push_plan *p, const char *dest, const char *path,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    char id[CKPT_GIT_ID] = "";
    struct ckpt_git *g = NULL;
    uint64_t sent = 0;
    bool changed = false;
    int rc = ckpt_git_open(&g, path, w->create, err);

    /* Somebody else's commit came first: ours is made again on top of it. */
    for (int attempt = 0; rc == 0 && attempt < 5; attempt++) {
        ckpt_err_clear(err);
        rc = push_once(g, p, w, cli, id, &changed, &sent, err);
        if (rc != CKPT_ESTOPPED || cli_stop)
            break;
        ckpt_log(CKPT_LOG_WARNING, "%s; trying again (%d of 5)", err->text, attempt + 1);
        rc = 0;
    }
    if (err->code)
        rc = err->code;
    if (rc == 0) {
        snprintf(url, url_size, "%s@%s", dest, id);
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new LFS objects%s", dest,
                 p->n, (unsigned long long)p->bytes, (unsigned long long)sent,
                 changed ? "" : "; nothing changed");
    }
    ckpt_git_close(g);
    return rc ? ckpt_err_in(err, "%s", dest) : 0;
}

/* Copy one file into out and commit it. */
static int copy_file(struct ckpt_out *out, struct ckpt_file *file, struct tally *t,
                     struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    void *bounce = ckpt_alloc_buffer(CHUNK);
    int rc = bounce ? ckpt_out_reserve(out, size, err) : ckpt_nomem(err, CHUNK);

    for (uint64_t at = 0; rc == 0 && at < size; at += CHUNK) {
        uint64_t n = size - at < CHUNK ? size - at : CHUNK;

        rc = ckpt_out_copy(out, at, file, at, n, bounce, CHUNK, err);
        tick(t, n);
    }
    ckpt_free(bounce);
    if (rc == 0)
        return ckpt_out_commit(out, err);
    ckpt_out_abort(out);
    return rc;
}

/* Folders of path below root, made where missing. */
static int make_parents(const char *root, const char *path, struct ckpt_err *err)
{
    char full[4096];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(full, sizeof full, "%s/%.*s", root, (int)(slash - path), path);
        if (mkdir(full, 0777) && errno != EEXIST)
            return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", full);
    }
    return 0;
}

int send_folder(char *url, size_t url_size, struct push_plan *p, const char *path,
                const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct tally t = {.progress = progress_new(cli, "copy", true), .total = p->bytes};
    struct ckpt_outdir *whole = NULL;
    struct stat st;
    int rc = 0;

    if (stat(path, &st) != 0)
        rc = ckpt_outdir_create(&whole, path, err);
    else if (!S_ISDIR(st.st_mode))
        rc = ckpt_fail(err, CKPT_ECREATE, "%s: exists and is no folder", path);
    for (size_t i = 0; rc == 0 && i < p->n && !cli_stop; i++) {
        struct ckpt_file *file = NULL;
        struct ckpt_out *out = NULL;
        char full[4096];

        rc = push_plan_open(&file, p, i, w->follow, err);
        if (rc == 0 && whole) {
            rc = ckpt_outdir_file(&out, whole, p->file[i].to, err);
        } else if (rc == 0) {
            snprintf(full, sizeof full, "%s/%s", path, p->file[i].to);
            rc = make_parents(path, p->file[i].to, err);
            if (rc == 0)
                rc = ckpt_out_create(&out, full, CKPT_REPLACE, err);
        }
        if (rc == 0 && ckpt_out_would_replace(out, file)) {
            ckpt_out_abort(out);
            rc = ckpt_fail(err, CKPT_ECREATE, "%s: is the source itself", path);
        } else if (rc == 0) {
            rc = copy_file(out, file, &t, err);
        }
        ckpt_file_close(file);
    }
    progress_end(t.progress);
    if (rc == 0 && cli_stop)
        rc = ckpt_fail(err, CKPT_ESTOPPED, "%s: stopped", path);
    if (rc == 0 && whole) {
        rc = ckpt_outdir_commit(whole, err);
        whole = NULL;
    }
    ckpt_outdir_abort(whole);
    if (rc == 0)
        snprintf(url, url_size, "%s", path);
    return rc;
}
