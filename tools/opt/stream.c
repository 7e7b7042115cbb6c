/*
 * opt/stream - files that options name by "-" or by a pipe, read once; see opt/rows.h.
 *
 * The bytes of a pipe are copied to an unnamed file (libckpt/io/spool.h), which replaces the
 * pipe's descriptor: "-" becomes /dev/stdin, <(command)'s /dev/fd/63 keeps its name, and both can
 * be opened repeatedly like a file.  The ranks that --nproc starts are other processes:
 * CKPT_STREAMS gives them the first process' descriptors, in lines "given<TAB>path".
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

static const char *taken_by;            /* the option that has read standard input */

/* The path that the parent process passed on for a stream, or NULL; in the arena. */
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

/* Whether this process passes it on, which has named the stream before. */
static bool is_own(const char *left)
{
    char own[32];
    int n = snprintf(own, sizeof own, "/proc/%ld/", (long)getpid());

    return strncmp(left, own, (size_t)n) == 0;
}

const char *opt_stream_taken(void)
{
    for (const char *at = getenv(STREAMS); at && *at; at += *at == '\n') {
        if (strncmp(at, "-\t", 2) == 0 && is_own(at + 2))
            return taken_by;
        at += strcspn(at, "\n");
    }
    return NULL;
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

/* Ranks started by another program would each read a part of the stream. */
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

/* Replace the pipe's descriptor by a file with its bytes; a new descriptor where fd is -1. */
static int spool(int *fd, int from, const char *name, struct ckpt_err *err)
{
    struct ckpt_spool how = {.name = name, .where = cli_spool(), .stop = &cli_stop};
    struct ckpt_file *file = NULL;
    uint64_t base;

    int rc = ckpt_spool_fd(&file, from, &how, err);

    if (rc)
        return rc;
    *fd = *fd < 0 ? dup(ckpt_file_fd(file, &base)) : dup2(ckpt_file_fd(file, &base), *fd);
    if (*fd < 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s", name);
    ckpt_file_close(file);
    return rc;
}

/* A rank has the parent's standard input as its own: errors then name it as that process would. */
static int take_stdin(const char *left, struct ckpt_err *err)
{
    int fd = open(left, O_RDONLY | O_CLOEXEC), rc = 0;

    if (fd != STDIN_FILENO && (fd < 0 || dup2(fd, STDIN_FILENO) < 0))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
    if (fd > STDIN_FILENO)
        close(fd);
    return rc;
}

int opt_stream(const char **path, const char *option, struct ckpt_arena *arena,
               struct ckpt_err *err)
{
    const char *given = *path, *found;
    bool in = strcmp(given, "-") == 0;
    int fd = -1, from = 0, tail = 0, rc;
    struct stat st;

    if ((rc = left_for(&found, given, arena, err)))
        return rc;
    if (found) {                        /* a rank does not have /dev/fd/63 */
        *path = in ? "/dev/stdin" : found;
        return in && !is_own(found) ? take_stdin(found, err) : 0;
    }
    if (in ? fstat(STDIN_FILENO, &st) : stat(given, &st))
        return in ? ckpt_fail_errno(err, CKPT_EIO, errno, "standard input") : 0;
    if (!in && !S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode))
        return 0;
    if ((rc = check_alone(given, err)))
        return rc;
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
    if (rc == 0 && in) {
        taken_by = option;
        *path = "/dev/stdin";
    }
    if (rc == 0 && !in && !(*path = ckpt_arena_printf(arena, "/dev/fd/%d", fd)))
        rc = ckpt_nomem(err, 16);
    return rc;
}

int opt_streams(const struct opt_table *t, const char *names, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t n; names && *names && rc == 0; names += n + (names[n] == ' ')) {
        const struct opt_slot *s = opt_find(t, names, n = strcspn(names, " "));
        bool list = s->row->kind == OPT_KIND_LIST;
        size_t count = list ? opt_value_of(s).n : opt_value_of(s).text != NULL;
        void *at = s->values + s->row->at;
        const char *const *from = list ? *(const char *const **)at : at;
        const char **all = ckpt_arena_alloc(t->arena, count + 1, sizeof *all);

        if (!all)
            return ckpt_nomem(err, count * sizeof *all);
        for (size_t k = 0; k < count && rc == 0; k++) {
            all[k] = from[k];
            rc = opt_stream(&all[k], s->row->name, t->arena, err);
        }
        if (rc)
            ckpt_err_in(err, "--%s", s->row->name);
        else if (list)
            *(const char *const **)at = all;
        else
            *(const char **)at = all[0];
    }
    return rc;
}
