/*
 * send_git - one commit on a branch of a git repository with LFS, on this host or another; see
 * send.h.
 *
 * On another host all objects are sent before the branch: a branch must not name what cannot be
 * fetched.
 */
#include "libckpt/err.h"
#include "tools/push/dest.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libckpt/base/map.h"
#include "libckpt/base/pool.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/git/git.h"
#include "libckpt/remote/git/instead.h"
#include "libckpt/remote/git/lfs.h"
#include "libckpt/remote/git/lfs_place.h"
#include "libckpt/remote/git/mirror.h"
#include "tools/progress.h"
#include "tools/push/events.h"
#include "tools/push/objects.h"
#include "tools/push/plan_file.h"
#include "tools/push/rules.h"

#define AUTHOR     "ckpt-push <ckpt-push@localhost>"
#define TRIES      5
#define WORKERS    16           /* files at once, at most, where --jobs is not given */
#define RULE_BYTES ((size_t)4 << 20)

/* One push of one plan. */
struct job {
    struct push_plan       *p;
    const struct send_want *want;
    const struct cli       *cli;
    struct ckpt_git        *g;
    struct git_mirror      *far;                /* the repository is on another host; or NULL */
    char                  (*digest)[CKPT_SHA256_HEX];   /* of each file, while they are compared */
    bool                   *again;              /* [n] of the plan: an earlier file has the same
                                                   object; while objects are put */
    pthread_mutex_t         lock;               /* of the four below, while several are sent */
    struct progress        *progress;
    uint64_t                done, total;        /* bytes, for progress */
    uint64_t                sent;               /* of new LFS objects */
    char                    id[CKPT_GIT_ID];
    bool                    changed;
};

static void tick(void *ctx, uint64_t bytes)
{
    struct job *j = ctx;

    pthread_mutex_lock(&j->lock);
    j->done += bytes;
    progress_tick(j->progress, j->done, j->total);
    pthread_mutex_unlock(&j->lock);
}

/* Do something with each file of the plan, several at once; a digest is one stream. */
static int each_file(struct job *j, ckpt_pool_fn *fn, struct ckpt_err *err)
{
    size_t workers = j->cli->jobs > 0 ? (size_t)j->cli->jobs : ckpt_pool_default(WORKERS);

    return ckpt_pool_run(workers, j->p->n, fn, j, err);
}

static bool in_plan(const struct push_plan *p, const char *path)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].to, path) == 0)
            return true;
    return false;
}

/* Remove published files that match a --delete glob and are not sent now.  .gitattributes stays,
 * since remaining files need its rules. */
static int remove_old(struct ckpt_git *g, struct push_plan *p, const struct opt_list *globs,
                      struct ckpt_err *err)
{
    const char *path;
    int rc;

    for (size_t i = 0; (path = ckpt_git_path(g, i)) != NULL;) {
        const char *slash = strrchr(path, '/');
        bool gone = false;

        for (size_t k = 0; k < globs->n && !gone; k++)
            gone = fnmatch(globs->item[k], path, 0) == 0 && !in_plan(p, path) &&
                   strcmp(slash ? slash + 1 : path, ".gitattributes") != 0;
        if (!gone)
            i++;
        else if ((rc = push_plan_remove(p, path, err)) != 0 ||
                 (rc = ckpt_git_remove(g, path, err)) != 0)
            return rc;
    }
    return 0;
}

static int stopped(struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ESTOPPED, "stopped: nothing was published");
}

/* -- before the first byte -------------------------------------------------------------------- */

/* Compute an object's name.  The file is read once more while it is sent. */
static int name_object(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    struct push_file *f = &j->p->file[i];

    (void)worker;
    if (cli_stop)
        return stopped(err);
    return f->lfs && !f->oid[0]
               ? push_plan_digest(f->oid, j->p, i, j->want->follow, false, err) : 0;
}

static int digest_file(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;

    (void)worker;
    return cli_stop ? stopped(err)
                    : push_plan_digest(j->digest[i], j->p, i, j->want->follow,
                                       !j->p->file[i].lfs, err);
}

/* What the tree has at the path of the i-th file, g NULL: nothing. */
static int find_state(struct job *j, size_t i, struct ckpt_err *err)
{
    struct push_file *f = &j->p->file[i];
    char there[CKPT_GIT_ID] = "", id[CKPT_GIT_ID] = "";
    const char *digest = j->digest[i];
    struct ckpt_buf pointer;
    int rc = 0;

    if (f->lfs) {
        memcpy(f->oid, digest, sizeof f->oid);
        ckpt_buf_init(&pointer, CKPT_LFS_POINTER_MAX);
        ckpt_lfs_pointer(&pointer, digest, f->size);
        rc = ckpt_git_hash(id, pointer.data, pointer.len, err);
        ckpt_buf_release(&pointer);
    } else {
        snprintf(id, sizeof id, "%.*s", CKPT_GIT_ID - 1, digest);
    }
    if (rc == 0 && j->g)
        ckpt_git_blob(j->g, f->to, there);
    return rc ? rc : push_plan_found(j->p, i, !*there ? PUSH_NEW : strcmp(there, id) == 0
                                                  ? PUSH_SAME : PUSH_CHANGED,
                                     f->lfs ? "sha256" : "sha1", digest, err);
}

/* Compare with the tree, for a plan that is made or carried out. */
static int settle(struct job *j, struct ckpt_err *err)
{
    char head[CKPT_GIT_ID] = "";
    int rc = 0;

    if (!j->want->dry_run && !j->want->plan)
        return 0;
    j->digest = ckpt_alloc(j->p->n, sizeof *j->digest);
    rc = j->digest ? each_file(j, digest_file, err)
                   : ckpt_nomem(err, j->p->n * sizeof *j->digest);
    for (size_t i = 0; rc == 0 && i < j->p->n; i++)
        rc = find_state(j, i, err);
    ckpt_free(j->digest);
    j->digest = NULL;
    if (j->g)
        ckpt_git_parent(j->g, head);
    j->p->head = ckpt_arena_strndup(&j->p->arena, head, strlen(head));
    if (rc == 0 && !j->p->head)
        rc = ckpt_nomem(err, sizeof head);
    return rc ? rc : cli_stop ? stopped(err) : plan_file_agrees(j->want->plan, j->p, err);
}

static int check_space(struct job *j, struct ckpt_err *err)
{
    uint64_t need = 0, there;
    struct statvfs v;

    for (size_t i = 0; i < j->p->n; i++) {
        const struct push_file *f = &j->p->file[i];

        if (!f->lfs || !ckpt_lfs_listed(ckpt_git_dir(j->g), f->oid, f->size))
            need += f->size;
    }
    if (statvfs(ckpt_git_dir(j->g), &v) != 0 || v.f_blocks == 0)
        return 0;
    there = (uint64_t)v.f_bavail * v.f_frsize;
    return need <= there
               ? 0 : ckpt_fail_as(err, CKPT_EIO, "no-space", "%s: %.1f MB are to be written, %.1f "
                                  "MB are free", ckpt_git_dir(j->g), (double)need / 1e6,
                                  (double)there / 1e6);
}

/* -- sending ---------------------------------------------------------------------------------- */

/* Find files whose content, and so their object, an earlier file has. */
static int find_again(struct job *j, struct ckpt_err *err)
{
    const struct push_plan *p = j->p;
    struct ckpt_map *seen = NULL;
    int rc;

    j->again = ckpt_alloc(p->n, sizeof *j->again);
    rc = j->again ? ckpt_map_new(&seen, p->n, err) : ckpt_nomem(err, p->n);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        size_t len = strlen(p->file[i].oid);

        if (!p->file[i].lfs)
            continue;
        j->again[i] = ckpt_map_get(seen, p->file[i].oid, len) != CKPT_MAP_NONE;
        if (!j->again[i])
            rc = ckpt_map_add(seen, p->file[i].oid, len, i, err);
    }
    ckpt_map_free(seen);
    return rc;
}

/* Put the object of a file into the store.  A file of another size than planned is another one. */
static int put_object(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];
    struct ckpt_file *file = NULL;
    bool had = true;
    int rc;

    (void)worker;
    if (!f->lfs)
        return 0;
    if (cli_stop)
        return stopped(err);
    if (j->again[i]) {
        tick(j, f->size);
        return 0;
    }
    rc = push_plan_open(&file, j->p, i, j->want->follow, err);
    if (rc == 0 && ckpt_file_size(file) != f->size)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was read",
                          ckpt_file_name(file));
    if (rc == 0)
        rc = ckpt_lfs_put(&had, ckpt_git_dir(j->g), f->oid, file, tick, j, err);
    pthread_mutex_lock(&j->lock);
    j->sent += had ? 0 : f->size;
    pthread_mutex_unlock(&j->lock);
    ckpt_file_close(file);
    return rc;
}

static int put_objects(struct job *j, struct ckpt_err *err)
{
    int rc = find_again(j, err);

    if (rc == 0)
        rc = each_file(j, put_object, err);
    ckpt_free(j->again);
    j->again = NULL;
    return rc;
}

/* Put the pointer to a file's object, which is in the store or sent by send_objects, into the
 * tree. */
static int put_pointer(struct job *j, struct push_file *f, struct ckpt_err *err)
{
    struct ckpt_buf pointer;
    int rc;

    ckpt_buf_init(&pointer, CKPT_LFS_POINTER_MAX);
    ckpt_lfs_pointer(&pointer, f->oid, f->size);
    rc = ckpt_git_put(j->g, f->to, pointer.data, pointer.len, err);
    ckpt_buf_release(&pointer);
    return rc;
}

static int put_blob(struct job *j, size_t i, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc = push_plan_open(&file, j->p, i, j->want->follow, err);

    if (rc == 0)
        rc = ckpt_git_put_file(j->g, j->p->file[i].to, file, tick, j, err);
    ckpt_file_close(file);
    return rc;
}

/* The store takes several objects at once, the tree one entry after another. */
static int put_all(struct job *j, struct ckpt_err *err)
{
    int rc;

    j->progress = progress_new(j->cli, "push", true);
    j->done = 0;
    j->total = j->p->bytes;
    rc = j->far ? 0 : put_objects(j, err);
    for (size_t i = 0; rc == 0 && i < j->p->n && !cli_stop; i++) {
        struct push_file *f = &j->p->file[i];

        rc = f->lfs ? put_pointer(j, f, err) : put_blob(j, i, err);
        if (rc == 0 && !(f->lfs && j->far))
            push_event_file(j->cli, f, true);
        progress_files(j->progress, i + 1, j->p->n);
    }
    progress_end(j->progress);
    j->progress = NULL;
    return rc == 0 && cli_stop ? stopped(err) : rc;
}

/* All objects to another host. */
static int send_objects(struct job *j, struct ckpt_err *err)
{
    struct push_objects to = {.name = j->far->place.host, .cli = j->cli,
                              .follow = j->want->follow};
    struct lfs_place place;
    char ref[512];
    uint64_t sent = 0;
    bool any = false;
    int rc;

    for (size_t i = 0; i < j->p->n; i++)
        any = any || j->p->file[i].lfs;
    if (!any || (rc = lfs_place_find(&place, j->far, "upload", err)) != 0)
        return any ? rc : 0;
    snprintf(ref, sizeof ref, "refs/heads/%s", j->far->branch);
    to.url = to.target = place.url;
    to.ref = ref;
    to.auth = &place.auth;
    rc = push_objects_send(&to, j->p, &sent, err);
    lfs_place_forget(&place);
    j->sent += sent;
    return rc;
}

/* -- the commit ------------------------------------------------------------------------------- */

/* One attempt, after opening the repository. */
static int push_once(struct job *j, struct ckpt_err *err)
{
    const char *source = j->p->source, *slash = strrchr(source, '/');
    const char *name = slash && slash[1] ? slash + 1 : source;
    struct ckpt_buf rules;
    char message[512];
    bool new_rules;
    int rc = j->far ? git_mirror_begin(j->far, err) : ckpt_git_begin(j->g, j->want->branch, err);

    ckpt_buf_init(&rules, RULE_BYTES);
    push_plan_forget(j->p);
    if (rc == 0)
        rc = remove_old(j->g, j->p, &j->want->remove, err);
    if (rc == 0)
        rc = rules_decide(&rules, &new_rules, j->g, j->p, err);
    if (rc == 0)
        rc = settle(j, err);
    if (rc == 0)
        rc = each_file(j, name_object, err);
    if (rc == 0 && !j->far)
        rc = check_space(j, err);
    if (rc || j->want->dry_run)
        goto out;
    rc = put_all(j, err);
    if (rc == 0 && j->far)
        rc = send_objects(j, err);
    if (rc == 0 && new_rules)
        rc = ckpt_git_put(j->g, ".gitattributes", rules.data, rules.len, err);
    snprintf(message, sizeof message, "Upload %s with ckpt-push", name);
    if (rc == 0)
        rc = ckpt_git_commit(j->g, j->want->message ? j->want->message : message,
                             j->want->author ? j->want->author : AUTHOR, j->id, &j->changed, err);
    if (rc == 0 && j->far && j->changed)
        rc = git_mirror_send(j->far, err);
out:
    ckpt_buf_release(&rules);
    return rc;
}

/* Another commit came first: make ours again, on top of that. */
static int push_over_others(struct job *j, struct ckpt_err *err)
{
    int rc = 0;

    for (int i = 1; i <= TRIES; i++) {
        ckpt_err_clear(err);
        rc = push_once(j, err);
        if (rc != CKPT_ESTOPPED || strcmp(err->reason, "moved") != 0 || cli_stop || i == TRIES ||
            j->want->plan)
            break;
        ckpt_log(CKPT_LOG_WARNING, "%s; trying again (%d of %d)", err->text, i + 1, TRIES);
    }
    return rc;
}

int send_git_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    const char *path = d->place;
    struct ckpt_git *g = NULL;
    char first[4096];
    struct stat st;
    int rc = ckpt_git_check(w->branch, w->message, w->author ? w->author : AUTHOR, err);

    if (rc == 0 && w->create && stat(path, &st) != 0)
        return ckpt_path_dirs_ready(first, sizeof first, path, err);
    if (rc)
        return rc;
    rc = ckpt_git_open(&g, path, w->create && !w->dry_run, err);
    if (rc == 0)
        rc = ckpt_git_begin(g, w->branch, err);
    if (rc == 0 && access(ckpt_git_dir(g), W_OK | X_OK))
        rc = ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
    ckpt_git_close(g);
    return rc;
}

/* Publish from an open repository, and say what came of it. */
static int publish(struct job *j, char *url, size_t url_size, const char *dest,
                   struct ckpt_err *err)
{
    int rc = push_over_others(j, err);

    if (rc)
        return ckpt_err_in(err, "%s", dest);
    if (j->want->dry_run)
        return 0;
    snprintf(url, url_size, "%s@%s", dest, j->id);
    ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new LFS objects%s", dest,
             j->p->n, (unsigned long long)j->p->bytes, (unsigned long long)j->sent,
             j->changed ? "" : "; nothing changed");
    return 0;
}

static int check_paths(const struct push_plan *p, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = ckpt_git_check_path(p->file[i].to, err);
    return rc;
}

int send_git(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job j = {.p = p, .want = w, .cli = cli, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = check_paths(p, err);

    if (rc == 0 && w->dry_run && w->create && !ckpt_git_is_repository(d->place)) {
        for (size_t i = 0; i < p->n; i++)
            p->file[i].lfs = p->file[i].large;
        return settle(&j, err);
    }
    if (rc == 0 && (rc = ckpt_git_open(&j.g, d->place, w->create && !w->dry_run, err)) != 0)
        rc = ckpt_err_in(err, "%s", d->address);
    else if (rc == 0)
        rc = publish(&j, url, url_size, d->address, err);
    if (rc)
        ckpt_git_discard(j.g);
    else
        ckpt_git_close(j.g);
    return rc;
}

/* -- another host ----------------------------------------------------------------------------- */

/* Open the mirror, and fetch. */
static int open_far(struct git_mirror *m, const struct dest *d, const struct send_want *w,
                    struct ckpt_err *err)
{
    struct git_place place;
    int rc;

    if (http_offline())
        return ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: nothing is published offline",
                            d->address);
    if ((rc = git_instead_parse(&place, d->place, true, err)) != 0)
        return rc;
    return git_mirror_open(m, &place, w->branch, err);
}

int send_far_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    struct git_mirror m;
    int rc = ckpt_git_check(w->branch, w->message, w->author ? w->author : AUTHOR, err);

    if (rc || (rc = open_far(&m, d, w, err)) != 0)
        return rc;
    rc = git_mirror_begin(&m, err);
    git_mirror_close(&m);
    return rc;
}

int send_far(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job j = {.p = p, .want = w, .cli = cli, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct git_mirror m;
    int rc = check_paths(p, err);

    if (rc || (rc = open_far(&m, d, w, err)) != 0)
        return rc;
    j.far = &m;
    j.g = m.git;
    rc = publish(&j, url, url_size, d->address, err);
    git_mirror_close(&m);
    return rc;
}
