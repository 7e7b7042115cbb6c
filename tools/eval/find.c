/* find - see find.h. */
#include "tools/eval/find.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/run_dir.h"
#include "libckpt/file.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

#define MOST_DEPTH 4            /* folders below the named one */

/* The newest thing seen so far. */
struct newest {
    /* Whether a folder has the thing; path becomes the name whose time counts. */
    bool          (*has)(char path[4096], const char *dir);
    char            path[4096], dir[4096];
    struct timespec time;
    bool            any;
};

static void look(struct newest *n, const char *dir)
{
    char path[4096];
    struct stat st;
    bool later;

    if (!n->has(path, dir) || stat(path, &st))
        return;
    later = st.st_mtim.tv_sec > n->time.tv_sec || (st.st_mtim.tv_sec == n->time.tv_sec &&
                                                   st.st_mtim.tv_nsec >= n->time.tv_nsec);
    if (n->any && !later)
        return;
    n->any = true;
    n->time = st.st_mtim;
    snprintf(n->path, sizeof n->path, "%s", path);
    snprintf(n->dir, sizeof n->dir, "%s", dir);
}

/* A folder that is walked through, and the one above it. */
struct within {
    const struct within *up;
    struct stat          st;
};

/* Whether it is one of those it is in: a link leads back. */
static bool leads_back(const struct within *in)
{
    for (const struct within *up = in->up; up; up = up->up)
        if (up->st.st_dev == in->st.st_dev && up->st.st_ino == in->st.st_ino)
            return true;
    return false;
}

/* Look at a folder and those in it, in the order of their names.  A run that goes on removes
 * checkpoints meanwhile: a folder that was listed may be gone. */
static int walk(struct newest *n, const char *path, int depth, const struct within *up,
                struct ckpt_err *err)
{
    struct within in = {.up = up};
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    struct ckpt_dir *dir = NULL;
    size_t count = 0;
    int rc;

    if (stat(path, &in.st) == 0 && leads_back(&in))
        return 0;
    rc = ckpt_dir_open(&dir, path, CKPT_FOLLOW, err);
    rc = rc ? rc : ckpt_dir_list(dir, &arena, &entry, &count, err);
    if (rc == 0)
        look(n, path);
    for (size_t i = 0; rc == 0 && depth < MOST_DEPTH && i < count; i++) {
        char inner[4096];

        if (entry[i].is_dir && entry[i].name[0] != '.' &&
            snprintf(inner, sizeof inner, "%s/%s", path, entry[i].name) < (int)sizeof inner)
            rc = walk(n, inner, depth + 1, &in, err);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&arena);
    if (rc == CKPT_ENOTFOUND && depth > 0) {
        ckpt_err_clear(err);
        return 0;
    }
    return rc;
}

static bool has_checkpoint(char path[4096], const char *dir)
{
    return run_dir_last(path, dir);
}

static bool has_test(char path[4096], const char *dir)
{
    return snprintf(path, 4096, "%s/test.jsonl", dir) < 4096;
}

int find_checkpoint(char path[4096], const char *results, bool best, struct ckpt_err *err)
{
    struct newest n = {.has = has_checkpoint};
    int rc = walk(&n, results, 0, NULL, err);

    if (rc == 0 && !n.any)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no run's checkpoint in it, or in a folder in it",
                       results);
    if (rc == 0 && best)
        rc = run_dir_best(n.path, n.dir, err);
    if (rc)
        return rc;
    memcpy(path, n.path, sizeof n.path);
    ckpt_log(CKPT_LOG_NOTE, "%s: the %s checkpoint is %s", results, best ? "best" : "newest", path);
    return 0;
}

int find_test(char path[4096], const char *datasets, struct ckpt_err *err)
{
    struct newest n = {.has = has_test};
    int rc = walk(&n, datasets, 0, NULL, err);

    if (rc == 0 && !n.any)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no test.jsonl in it", datasets);
    if (rc)
        return rc;
    memcpy(path, n.path, sizeof n.path);
    ckpt_log(CKPT_LOG_NOTE, "%s: the newest test data is %s", datasets, path);
    return 0;
}
