/*
 * opt/stream - files that options name by "-" or by a pipe, read once; opt/rows.h.
 *
 * What comes through a pipe goes into a file without a name (libckpt/io/spool.h), which takes the
 * pipe's descriptor: "-" becomes /dev/stdin, <(command)'s /dev/fd/63 stays what it is, and both can
 * be opened as often as a file.  The ranks that --nproc starts are other processes: they find the
 * descriptors of the first one by CKPT_STREAMS, lines "given<TAB>path".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/spool.h"
#include "tools/opt/rows.h"

#define STREAMS "CKPT_STREAMS"

/* The path that another process left for one, or NULL; in the arena. */
static int left_for(const char **out, const char *path, struct ckpt_arena *a, struct ckpt_err *err)
{
    const char *at = getenv(STREAMS), *end;
    size_t n = strlen(path);

    *out = NULL;
    for (; at && *at && !*out; at = *end ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        if ((size_t)(end - at) > n + 1 && memcmp(at, path, n) == 0 && at[n] == '\t' &&
            !(*out = ckpt_arena_strndup(a, at + n + 1, (size_t)(end - at) - n - 1)))
            return ckpt_nomem(err, n);
    }
    return 0;
}

static int leave(const char *path, int fd, struct ckpt_arena *a, struct ckpt_err *err)
{
    const char *was = getenv(STREAMS);
    char *all = ckpt_arena_printf(a, "%s%s\t/proc/%ld/fd/%d\n", was ? was : "", path,
                                  (long)getpid(), fd);

    if (!all || setenv(STREAMS, all, 1))
        return ckpt_nomem(err, strlen(path));
    return 0;
}

/* Ranks that something else has started would each read a part. */
static int check_alone(const char *path, struct ckpt_err *err)
{
    static const char *const says[] = {"OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE",
                                       "SLURM_STEP_NUM_TASKS"};

    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        const char *n = getenv(says[i]);

        if (n && strtol(n, NULL, 10) > 1)
            return ckpt_fail(err, CKPT_EUSAGE, "%s: %s ranks (%s) cannot read one pipe: a file is "
                             "wanted", path, n, says[i]);
    }
    return 0;
}

/* The pipe's bytes in a file that has its descriptor; a new one where fd is -1 to begin with. */
static int spool(int *fd, int from, const char *name, struct ckpt_err *err)
{
    const char *dir = getenv("TMPDIR");
    struct ckpt_spool how = {.name = name, .where = dir && *dir ? dir : NULL, .stop = &cli_stop};
    struct ckpt_file *file = NULL;
    uint64_t base;

    if (ckpt_spool_fd(&file, from, &how, err))
        return err->code;
    *fd = *fd < 0 ? dup(ckpt_file_fd(file, &base)) : dup2(ckpt_file_fd(file, &base), *fd);
    if (*fd < 0)
        ckpt_fail_errno(err, CKPT_EIO, errno, "%s", name);
    ckpt_file_close(file);
    return err->code;
}

int opt_stream(const char **path, struct ckpt_arena *arena, struct ckpt_err *err)
{
    const char *given = *path, *found;
    bool in = strcmp(given, "-") == 0;
    int fd = -1, from = 0, tail = 0, rc;
    struct stat st;

    if (left_for(&found, given, arena, err))
        return err->code;
    if (found) {                        /* a rank has no /dev/fd/63 of its own */
        *path = found;
        return 0;
    }
    if (in ? fstat(STDIN_FILENO, &st) : stat(given, &st))
        return in ? ckpt_fail_errno(err, CKPT_EIO, errno, "standard input") : 0;
    if (!in && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
        return 0;
    if (check_alone(given, err))
        return err->code;
    if (in)
        fd = STDIN_FILENO;
    else if (sscanf(given, "/dev/fd/%d%n", &fd, &tail) != 1 || given[tail])
        fd = -1;
    from = fd;
    if (from < 0 && (from = open(given, O_RDONLY | O_CLOEXEC)) < 0)
        return ckpt_fail_errno(err, CKPT_ENOTFOUND, errno, "%s", given);
    rc = S_ISREG(st.st_mode) ? 0 : spool(&fd, from, in ? "standard input" : given, err);
    if (from != fd)
        close(from);
    if (rc == 0)
        rc = leave(given, fd, arena, err);
    if (rc == 0 && in)
        *path = "/dev/stdin";
    else if (rc == 0 && !(*path = ckpt_arena_printf(arena, "/dev/fd/%d", fd)))
        rc = ckpt_nomem(err, 16);
    return rc;
}

int opt_streams(const struct opt_table *t, const char *names, struct ckpt_err *err)
{
    for (size_t n; names && *names; names += n + (names[n] == ' ')) {
        const struct opt *o = opt_at(t, opt_find(t, names, n = strcspn(names, " ")));
        const char **one = o->dest;
        struct opt_list *list = o->dest;

        if (o->kind != OPT_LIST && *one && opt_stream(one, t->arena, err))
            return ckpt_err_in(err, "--%s", o->name);
        for (size_t k = 0; o->kind == OPT_LIST && k < list->n; k++)
            if (opt_stream(&list->item[k], t->arena, err))
                return ckpt_err_in(err, "--%s", o->name);
    }
    return 0;
}
