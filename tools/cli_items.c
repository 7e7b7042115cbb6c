/* cli_items - see cli_items.h. */
#include "tools/cli_items.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/run_dir.h"
#include "libckpt/err.h"
#include "libckpt/io/lock.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "tools/cli_ahead.h"
#include "tools/cli_bytes.h"
#include "tools/opt/rows.h"

struct cli_items {
    char **arg;
    int    n, at;
    bool   from_stdin, bytes;   /* bytes: stdin is a checkpoint: one item, "-" */
    bool   pipe;                /* stdin is one */
    bool   hold;                /* take leases */
    bool   best;                /* runs mean their best checkpoint */
    bool   has_none;            /* the current item is a run without one, others may follow */
    char **all;                 /* [n_all] of cli_items_all */
    size_t n_all, cap_all;
    unsigned char     head[CLI_HEAD];   /* bytes of stdin read to classify it */
    size_t            head_len;
    struct cli_ahead *ahead;    /* reads the pipe; NULL: lines are read on demand */
    struct cli_lines  lines;
    bool               piped;           /* the current item came through the pipe */
    struct ckpt_lock **lease;   /* [n_lease] of the current items */
    size_t             n_lease, cap;
};

static bool is_pipe(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

int cli_items_check(char *const *arg, int n_arg, struct ckpt_err *err)
{
    const char *option = opt_stream_taken();
    bool named = n_arg > 0;

    for (int i = 0; i < n_arg; i++)
        named &= strcmp(arg[i], "-") != 0;
    return named || !option ? 0 : ckpt_fail(err, CKPT_EUSAGE, "--%s - takes standard input: name "
                                            "the paths", option);
}

int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err)
{
    struct cli_items *items;
    int rc = cli_items_check(arg, n_arg, err);

    *out = NULL;
    if (rc)
        return rc;
    if (n_arg == 0 && isatty(STDIN_FILENO))
        return ckpt_fail(err, CKPT_EUSAGE, "nothing to work on: name a path, or pipe paths in");
    items = ckpt_alloc(1, sizeof *items);
    if (!items)
        return ckpt_nomem(err, sizeof *items);
    items->arg = arg;
    items->n = n_arg;
    items->from_stdin = n_arg == 0;
    items->pipe = is_pipe(STDIN_FILENO);
    items->lines.end = nul ? '\0' : '\n';
    items->lines.quit = -1;
    cli_drain(items->pipe && items->from_stdin);
    *out = items;
    return 0;
}

int cli_items_bytes(struct cli_items *items, bool *bytes, struct ckpt_err *err)
{
    bool named = items->n > 0 && strcmp(items->arg[0], "-") == 0;
    int rc;

    *bytes = false;
    if (!items->from_stdin && !named)
        return 0;
    cli_drain(items->pipe);
    if ((rc = cli_look(items->head, &items->head_len, items->lines.end, bytes, err)) != 0)
        return rc;
    items->lines.head = items->head;
    items->lines.n_head = items->head_len;
    if (!*bytes)
        return 0;
    cli_drain(false);
    items->from_stdin = false;
    items->bytes = true;
    items->at = named;
    return cli_settle(items->head, items->head_len, err);
}

/* -- leases ---------------------------------------------------------------------------------- */

static void release_leases(struct cli_items *items)
{
    while (items->n_lease > 0)
        ckpt_lock_release(items->lease[--items->n_lease]);
}

/* Takes lease; out of memory, the lease is dropped and the item is worked on without it. */
static void keep_lease(struct cli_items *items, struct ckpt_lock *lease)
{
    struct ckpt_err ignored = {0};

    if (!lease)
        return;
    if (ckpt_reserve(&items->lease, items->n_lease, &items->cap, sizeof *items->lease, &ignored))
        ckpt_lock_release(lease);
    else
        items->lease[items->n_lease++] = lease;
}

void cli_items_best(struct cli_items *items) { items->best = true; }

/* -- the next one ---------------------------------------------------------------------------- */

/* Give a copy of a path, and keep its lease. */
static int give(struct cli_items *items, char **out, const char *path, struct ckpt_err *err)
{
    char best[4096];
    int rc = items->best && !ckpt_path_is_remote(path) ? run_dir_best(best, path, err) : 1;

    items->has_none = rc < 0;
    if (rc < 0)
        return rc;
    path = rc ? path : best;
    *out = ckpt_strdup(path);
    if (!*out)
        return ckpt_nomem(err, strlen(path) + 1);
    keep_lease(items, ckpt_lock_reader(path));
    return 0;
}

/* A path of the command line; <(command) becomes a file with its bytes.  A FIFO by name is none:
 * without a writer it would be waited for. */
static int give_named(struct cli_items *items, char **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int rc = ckpt_path_is_descriptor(path) ? opt_stream(&path, NULL, &a, err) : 0;

    if (rc == 0)
        rc = give(items, out, path, err);
    ckpt_arena_release(&a);
    return rc;
}

/* The next path of the pipe, which the thread has leased. */
static int next_ahead(struct cli_items *items, char **out, struct ckpt_err *err)
{
    struct ckpt_lock *lease;
    char *path;
    int rc;

    cli_drain(true);
    rc = items->ahead ? 0 : cli_ahead_start(&items->ahead, items->lines.end, items->lines.head,
                                            items->lines.n_head, err);
    rc = rc ? rc : cli_ahead_next(items->ahead, &path, &lease, err);
    if (rc)
        return rc;
    keep_lease(items, lease);
    items->from_stdin = items->piped = path != NULL;
    if (!path || !items->best) {
        *out = path;
        return 0;
    }
    rc = give(items, out, path, err);
    ckpt_free(path);
    return rc;
}

/* *out stays NULL at the end of stdin. */
static int next_line(struct cli_items *items, char **out, struct ckpt_err *err)
{
    bool more;
    int rc;

    if (items->pipe)
        return next_ahead(items, out, err);
    if ((rc = cli_lines_next(&items->lines, &more, err)) != 0)
        return rc;
    items->from_stdin = more;
    return more ? give(items, out, items->lines.line, err) : 0;
}

int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    items->piped = items->has_none = false;
    if (!items->hold)
        release_leases(items);
    for (;;) {
        if (cli_stop && ((items->from_stdin && !items->ahead) || items->at < items->n))
            return cli_stopped(err);
        if (items->bytes) {
            items->bytes = false;
            *out = ckpt_strdup("-");
            return *out ? 0 : ckpt_nomem(err, 2);
        }
        rc = items->from_stdin ? next_line(items, out, err) : 0;
        if (rc || *out)
            return rc;
        if (items->at >= items->n)
            return 0;
        if (!*items->arg[items->at])
            return ckpt_fail(err, CKPT_EUSAGE, "path %d is empty", items->at + 1);
        if (strcmp(items->arg[items->at], "-") != 0)
            return give_named(items, out, items->arg[items->at++], err);
        items->from_stdin = !items->ahead;
        items->at++;
    }
}

int cli_items_all(struct cli_items *items, const char *const **all, size_t *n,
                  struct ckpt_err *err)
{
    char *item = NULL;
    int rc;

    items->hold = true;
    while ((rc = cli_items_next(items, &item, err)) == 0 && item) {
        rc = ckpt_reserve(&items->all, items->n_all, &items->cap_all, sizeof *items->all, err);
        if (rc) {
            ckpt_free(item);
            return rc;
        }
        items->all[items->n_all++] = item;
    }
    *all = (const char *const *)items->all;
    *n = items->n_all;
    return rc;
}

bool cli_items_waiting(const struct cli_items *items)
{
    return items->at < items->n || (items->ahead && cli_ahead_waits(items->ahead));
}

void cli_items_close(struct cli_items *items)
{
    if (!items)
        return;
    cli_drain(false);
    cli_ahead_end(items->ahead);
    release_leases(items);
    ckpt_free(items->lease);
    while (items->n_all > 0)
        ckpt_free(items->all[--items->n_all]);
    ckpt_free(items->all);
    ckpt_free(items);
}

/* Whether item, checkpoint-<n> or Ray's checkpoint_<n>, is absent from a folder that has a later
 * one: it was pruned before this process came to read its path. */
static bool is_pruned(const char *item)
{
    const char *slash = strrchr(item, '/'), *name = slash ? slash + 1 : item;
    const char *stem = strncmp(name, "checkpoint_", 11) == 0 ? "checkpoint_" : "checkpoint-";
    int64_t number = ckpt_path_number(name, stem);
    struct ckpt_arena a = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_entry *entry;
    struct ckpt_dir *dir = NULL;
    size_t n = 0;
    bool later = false;
    char *folder;

    if (number < 0 || access(item, F_OK) == 0)
        return false;
    folder = slash ? ckpt_arena_strndup(&a, item, (size_t)(name - item)) : NULL;
    if (ckpt_dir_open(&dir, folder ? folder : ".", 0, &ignored) == 0 &&
        ckpt_dir_list(dir, &a, &entry, &n, &ignored))
        n = 0;
    for (size_t i = 0; i < n && !later; i++)
        later = entry[i].is_dir && ckpt_path_number(entry[i].name, stem) > number;
    ckpt_dir_close(dir);
    ckpt_arena_release(&a);
    return later;
}

int cli_items_each(struct cli_items *items, struct cli *cli, cli_item_fn *fn, void *ctx,
                   int *status, struct ckpt_err *err)
{
    char *item = NULL;
    int rc;

    while (((rc = cli_items_next(items, &item, err)) == 0 && item) || items->has_none) {
        rc = rc ? rc : fn(ctx, item, err);
        if (rc == CKPT_ENOTFOUND && items->piped && item && is_pruned(item)) {
            ckpt_log(CKPT_LOG_WARNING, "%s: was removed before its path was read, and a later "
                     "checkpoint is there: skipped", item);
            rc = 0;
            ckpt_err_clear(err);
        }
        ckpt_free(item);
        if (rc == CKPT_ESTOPPED || (rc && ferror(stdout)))
            return rc;
        if (rc) {
            int got = cli_error(cli, err);

            *status = *status ? *status : got;
            ckpt_err_clear(err);
        }
    }
    return rc;
}
