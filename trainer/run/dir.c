/*
 * run/dir - see run/dir.h.
 *
 * Source of the rule that prunes: transformers 5.17 trainer_utils.py, rotate_checkpoints; unlike
 * there, only checkpoints that hold what their manifests say are counted and removed.
 */
#include "trainer/run/dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/io/path.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/naming.h"
#include "trainer/checkpoint/proof.h"

static int by_number_down(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The step of every checkpoint in folder, newest first, in the arena. */
static int numbers(struct ckpt_arena *a, int64_t **out, size_t *n, const char *folder,
                   struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    struct ckpt_entry *entry;
    size_t n_entry;
    int64_t *found;
    int rc = ckpt_dir_open(&dir, folder, 0, err);

    *n = 0;
    *out = NULL;
    if (rc == 0)
        rc = ckpt_dir_list(dir, a, &entry, &n_entry, err);
    ckpt_dir_close(dir);
    if (rc)
        return rc;
    if (!(found = ckpt_arena_alloc(a, n_entry + 1, sizeof *found)))
        return ckpt_nomem(err, n_entry * sizeof *found);
    for (size_t i = 0; i < n_entry; i++)
        if (entry[i].is_dir && (found[*n] = naming_step(folder, entry[i].name)) >= 0)
            (*n)++;
    qsort(found, *n, sizeof *found, by_number_down);
    *out = found;
    return 0;
}

char *run_dir_path(char path[4096], const char *folder, int64_t number)
{
    return naming_path(path, folder, number);
}

bool run_dir_is_run(const char *path)
{
    struct ckpt_arena a = {0};
    struct ckpt_err ignored = {0};
    int64_t *number;
    size_t n = 0;

    if (ckpt_path_is_dir(path))
        numbers(&a, &number, &n, path, &ignored);
    ckpt_arena_release(&a);
    return n > 0;
}

int run_dir_pass_over(struct run_dir *d, const char *folder, int64_t number,
                      const struct ckpt_err *why, struct ckpt_err *err)
{
    char path[4096];
    void *grown;

    ckpt_log(CKPT_LOG_WARNING, "%s is passed over: %s", run_dir_path(path, folder, number),
             why->text);
    /* Only damage is proof that nobody wants it any more. */
    if (why->code != CKPT_EFORMAT || strcmp(folder, d->path) != 0)
        return 0;
    grown = ckpt_grow(d->damaged, d->n_damaged + 1, sizeof *d->damaged);
    if (!grown)
        return ckpt_nomem(err, (d->n_damaged + 1) * sizeof *d->damaged);
    d->damaged = grown;
    d->damaged[d->n_damaged++] = number;
    return 0;
}

/* Whether the Trainer ended the save of a checkpoint: its state is what it writes last. */
static bool is_ended(const char *path)
{
    char file[4200];

    snprintf(file, sizeof file, "%s/trainer_state.json", path);
    return ckpt_path_is_file(file);
}

/* Where all checkpoints of a folder are another program's, the newest one that was ended. */
static bool newest_foreign(char path[4096], int64_t *number, const char *folder,
                           const int64_t *found, size_t n, int64_t below)
{
    for (size_t i = 0; i < n; i++) {
        char manifest[4200];

        snprintf(manifest, sizeof manifest, "%s/%s", run_dir_path(path, folder, found[i]),
                 MANIFEST_NAME);
        if (ckpt_path_is_file(manifest))
            return false;
    }
    for (size_t i = 0; i < n; i++)
        if (found[i] < below && is_ended(run_dir_path(path, folder, found[i]))) {
            *number = found[i];
            return true;
        }
    return false;
}

int run_dir_newest(char path[4096], int64_t *number, struct run_dir *d, const char *folder,
                   int64_t below, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int64_t *found = NULL;
    size_t n = 0;
    int rc = ckpt_path_is_dir(folder) ? numbers(&a, &found, &n, folder, err) : 0;

    if (rc == 0 && n > 0 && newest_foreign(path, number, folder, found, n, below)) {
        ckpt_arena_release(&a);
        return 0;
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_err why = {0};

        if (found[i] >= below)
            continue;
        if (proof_first(run_dir_path(path, folder, found[i]), true, &why) == 0) {
            *number = found[i];
            ckpt_arena_release(&a);
            return 0;
        }
        rc = run_dir_pass_over(d, folder, found[i], &why, err);
    }
    if (rc == 0 && n == 0)
        rc = ckpt_fail_as(err, CKPT_ENOTFOUND, "none", "%s: no checkpoint-<step> to resume from",
                          folder);
    else if (rc == 0) {
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: none of its %zu checkpoints is complete", folder, n);
        ckpt_err_hint(err, "to go on from one of another program, name it; to start afresh, "
                      "`resume_from_checkpoint none` `overwrite_output_dir`");
    }
    ckpt_arena_release(&a);
    return rc;
}

int run_dir_lock(struct run_dir *d, struct ckpt_err *err)
{
    return d->lock || !ckpt_path_is_dir(d->path) ? 0 : ckpt_lock_writer(&d->lock, d->path, err);
}

int run_dir_lock_ready(const struct run_dir *d, struct ckpt_err *err)
{
    return ckpt_path_is_dir(d->path) ? ckpt_lock_writer_ready(d->path, err) : 0;
}

int run_dir_make(struct run_dir *d, struct ckpt_err *err)
{
    int rc = ckpt_path_make_dirs(d->path, err);

    return rc ? rc : run_dir_lock(d, err);
}

int run_dir_make_above(const char *path, struct ckpt_err *err)
{
    char above[4096];
    size_t n = (size_t)snprintf(above, sizeof above, "%s", path);

    while (n > 0 && n < sizeof above && above[n - 1] == '/')
        n--;
    while (n > 0 && n < sizeof above && above[n - 1] != '/')
        n--;
    if (n == 0 || n >= sizeof above)
        return 0;
    above[n] = '\0';
    return ckpt_path_make_dirs(above, err);
}

bool run_dir_holds(const char *folder, const char *path)
{
    struct stat above, there;
    char up[4200];

    snprintf(up, sizeof up, "%s/..", path);
    return *path && stat(up, &above) == 0 && stat(folder, &there) == 0 &&
           above.st_dev == there.st_dev && above.st_ino == there.st_ino;
}

bool run_dir_may_replace(const struct run_dir *d, int64_t number)
{
    for (size_t i = 0; i < d->n_damaged; i++)
        if (d->damaged[i] == number)
            return true;
    return false;
}

/* The checkpoints in the way of a run from step on, newest first. */
static int in_the_way(struct ckpt_arena *a, int64_t **out, size_t *n, const struct run_dir *d,
                      int64_t step, struct ckpt_err *err)
{
    size_t kept = 0;
    int rc = ckpt_path_is_dir(d->path) ? numbers(a, out, n, d->path, err) : (*n = 0, 0);

    for (size_t i = 0; rc == 0 && i < *n; i++)
        if ((*out)[i] > step && !run_dir_may_replace(d, (*out)[i]))
            (*out)[kept++] = (*out)[i];
    *n = kept;
    return rc;
}

int run_dir_check_free(const struct run_dir *d, int64_t step, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char path[4096];
    int64_t *number;
    size_t n;
    int rc = in_the_way(&a, &number, &n, d, step, err);

    if (rc == 0 && n > 0) {
        run_dir_path(path, d->path, number[0]);
        rc = step < 0 ? ckpt_fail(err, CKPT_ECREATE, "%s exists already, of an earlier run", path)
                      : ckpt_fail(err, CKPT_ECREATE, "%s exists already, and this run goes on from "
                                  "step %lld", path, (long long)step);
        ckpt_err_hint(err, step < 0
                      ? "`resume_from_checkpoint latest` goes on from the newest; or name another "
                        "`output_dir`, or `overwrite_output_dir`"
                      : "`resume_from_checkpoint latest` goes on from the newest complete one; or "
                        "remove what is newer, name another `output_dir`, or "
                        "`overwrite_output_dir`");
    }
    ckpt_arena_release(&a);
    return rc;
}

int run_dir_pass_newer(struct run_dir *d, int64_t step, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_err why = {0};
    int64_t *number;
    size_t n;
    int rc = in_the_way(&a, &number, &n, d, step, err);

    ckpt_fail(&why, CKPT_EFORMAT, "it is not in the folders of all ranks: its save did not end");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = run_dir_pass_over(d, d->path, number[i], &why, err);
    ckpt_arena_release(&a);
    return rc;
}

/* Remove one unless somebody reads it: *leased. */
static int remove_unread(const char *path, bool *leased, struct ckpt_err *err)
{
    struct ckpt_lock *lock = ckpt_lock_removal(path);
    int rc = 0;

    *leased = !lock;
    if (lock)
        rc = ckpt_outdir_remove(path, err);   /* renamed first: it is there whole, or not at all */
    ckpt_lock_release(lock);
    return rc;
}

int run_dir_clear(struct run_dir *d, int64_t step, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int64_t *number;
    size_t n;
    int rc = in_the_way(&a, &number, &n, d, step, err);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char path[4096];
        bool leased;

        rc = remove_unread(run_dir_path(path, d->path, number[i]), &leased, err);
        if (leased)
            rc = ckpt_fail(err, CKPT_ECREATE, "%s: is to be overwritten, but another process reads "
                           "it", path);
        else if (rc == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: removed (`overwrite_output_dir`)", path);
    }
    ckpt_arena_release(&a);
    return rc;
}

/* The checkpoints that count, newest first: complete, by the sizes of their files. */
static size_t only_whole(int64_t *number, size_t n, const char *folder)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct ckpt_err why = {0};
        char path[4096];

        if (manifest_check(NULL, run_dir_path(path, folder, number[i]), MANIFEST_SIZES, &why) == 0)
            number[kept++] = number[i];
    }
    return kept;
}

void run_dir_prune(struct run_dir *d, int64_t keep, const char *best, bool last)
{
    const char *slash = strrchr(best, '/');
    int64_t *number, the_best = naming_step(d->path, slash ? slash + 1 : best), left;
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};
    size_t n;

    if (numbers(&a, &number, &n, d->path, &err)) {
        ckpt_log(CKPT_LOG_WARNING, "nothing is removed: %s", err.text);
        n = 0;
    }
    n = only_whole(number, n, d->path);
    left = (int64_t)n;
    if (n > 0 && the_best >= 0 && the_best != number[0] && keep < 2)
        keep = 2;                           /* the newest and the best */
    for (size_t i = n; i-- > 1 && left > keep;) {
        struct ckpt_err why = {0};
        char path[4096];
        bool leased;

        if (number[i] == the_best)
            continue;
        left--;                             /* one that is read goes at a later save */
        if (remove_unread(run_dir_path(path, d->path, number[i]), &leased, &why))
            ckpt_log(CKPT_LOG_WARNING, "not removed: %s", why.text);
        else if (leased && last)
            ckpt_log(CKPT_LOG_NOTE, "%s stays beyond `save_total_limit`: another process reads it",
                     path);
    }
    ckpt_arena_release(&a);
}

void run_dir_close(struct run_dir *d)
{
    ckpt_lock_release(d->lock);
    ckpt_free(d->damaged);
    d->lock = NULL;
    d->damaged = NULL;
    d->n_damaged = 0;
}
