/* cli - see cli.h. */
#include "tools/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/ckpt.h"
#include "libckpt/json.h"
#include "libckpt/remote/remote.h"
#include "tools/cli_bytes.h"

volatile int cli_stop;

/*
 * The first signal asks for an orderly end, one that comes a second later has its own way.  Within
 * that second it is the same request: timeout(1) signals the process and then its whole group.
 */
static void on_signal(int sig)
{
    static struct timespec first;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    int saved = errno;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!cli_stop) {
        cli_stop = sig;
        first = now;
    } else if ((now.tv_sec - first.tv_sec) * 1000 + (now.tv_nsec - first.tv_nsec) / 1000000 >=
               1000) {
        sigaction(sig, &standard, NULL);
        raise(sig);
    }
    errno = saved;
}

static void tell(void *ctx, enum ckpt_log_level level, const char *line)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    struct cli *cli = ctx;

    if (level == CKPT_LOG_WARNING)
        cli->warnings++;
    if ((level == CKPT_LOG_WARNING || level == CKPT_LOG_NOTE) && cli->quiet)
        return;
    if (level == CKPT_LOG_DEBUG && cli->verbose < 2)
        return;
    fprintf(stderr, "%s: %s%s\n", cli->tool, words[level], line);
}

/*
 * A closed standard descriptor would be given to the next file that is opened, and lines meant
 * for people would land in a checkpoint.  Fill the gap with one on which every use fails.
 */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(ckpt_exit_status(CKPT_ENOMEM));
}

/* As many files as the system allows: a sharded checkpoint has one or two for every rank. */
static void allow_files(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

void cli_begin(struct cli *cli, const char *tool)
{
    static const int orderly[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction act = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    struct sigaction standard = {.sa_handler = SIG_DFL};

    fill_descriptors();
    allow_files();
    sigaction(SIGPIPE, &standard, NULL);        /* quiet, though the parent ignored it */
    cli->tool = tool;
    ckpt_log_hook(tell, cli);
    ckpt_remote_stop_on(&cli_stop);
    for (size_t i = 0; i < sizeof orderly / sizeof orderly[0]; i++)
        sigaction(orderly[i], &act, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);          /* EFBIG tells it better */
}

/* An error as one JSON object, for programs; false when even that takes too much memory. */
static bool error_json(const struct cli *cli, const struct ckpt_err *err)
{
    json_t *o = json_pack("{s:s, s:i, s:s, s:s}", "tool", cli->tool, "status",
                          ckpt_exit_status(err->code), "reason", err->reason, "error", err->text);
    struct ckpt_err ignored = {0};
    struct ckpt_buf b;
    bool done = false;

    ckpt_buf_init(&b, (size_t)1 << 16);
    if (o && err->hint[0])
        json_object_set_new(o, "hint", json_string(err->hint));
    if (o && ckpt_json_write(&b, o, 0, false, &ignored) == 0 && ckpt_buf_str(&b))
        done = fprintf(stderr, "%s\n", ckpt_buf_str(&b)) > 0;
    ckpt_buf_release(&b);
    json_decref(o);
    return done;
}

int cli_error(const struct cli *cli, const struct ckpt_err *err)
{
    if (cli->json && error_json(cli, err))
        return ckpt_exit_status(err->code);
    fprintf(stderr, "%s: %s\n", cli->tool, err->text);
    if (err->hint[0])
        fprintf(stderr, "hint: %s\n", err->hint);
    return ckpt_exit_status(err->code);
}

/* Everything printed so far has reached whoever reads it. */
static int check_stdout(struct ckpt_err *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return ckpt_fail_errno(err, CKPT_EIO, errno, "standard output");
}

int cli_artifact(struct cli *cli, const char *path, json_t *object, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    if (!cli->json) {
        json_decref(object);
        printf("%s%c", path, cli->nul ? '\0' : '\n');
        return check_stdout(err);
    }
    if (!object)
        object = json_pack("{s:s}", "path", path);
    ckpt_buf_init(&b, (size_t)1 << 24);
    rc = ckpt_json_write(&b, object, 0, false, err);
    json_decref(object);
    if (rc == 0)
        printf("%.*s%c", (int)b.len, (const char *)b.data, cli->nul ? '\0' : '\n');
    ckpt_buf_release(&b);
    return rc ? rc : check_stdout(err);
}

int cli_end(struct cli *cli, int status)
{
    struct ckpt_err err = {0};

    if (cli->warnings && !cli->quiet)
        fprintf(stderr, "%s: %lu warning%s\n", cli->tool, cli->warnings,
                cli->warnings == 1 ? "" : "s");
    if (cli->warnings && cli->strict && status == 0)
        status = 1;
    if (check_stdout(&err) && status == 0)
        status = cli_error(cli, &err);
    if (fclose(stdout) != 0 && status == 0) {
        ckpt_fail_errno(&err, CKPT_EIO, errno, "standard output");
        status = cli_error(cli, &err);
    }
    ckpt_log_hook(NULL, NULL);
    ckpt_arena_release(&cli->options);
    return status;
}

/* No path or address is longer; a stream without line ends must not fill memory. */
#define MAX_LINE 65536

struct cli_items {
    char **arg;
    int    n, at;
    bool   from_stdin;
    int    end;                 /* what ends a line of stdin */
    size_t n_line;              /* lines read so far */
    char   line[MAX_LINE];
    bool   bytes;               /* stdin is a checkpoint: one item, "-" */
    unsigned char head[CLI_HEAD];       /* what was read of stdin to see what it is */
    size_t head_len, head_at;
};

int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err)
{
    struct cli_items *items;

    *out = NULL;
    if (n_arg == 0 && isatty(STDIN_FILENO))
        return ckpt_fail(err, CKPT_EUSAGE, "nothing to work on: name a path, or pipe paths in");
    items = ckpt_alloc(1, sizeof *items);
    if (!items)
        return ckpt_nomem(err, sizeof *items);
    items->arg = arg;
    items->n = n_arg;
    items->from_stdin = n_arg == 0;
    items->end = nul ? '\0' : '\n';
    *out = items;
    return 0;
}

static int stopped(struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ESTOPPED, "stopped by SIG%s before all was done",
                     sigabbrev_np(cli_stop));
}

static int read_stdin_failed(struct ckpt_err *err)
{
    if (errno == EINTR && cli_stop)
        return stopped(err);
    return ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
}

static int next_byte(struct cli_items *items)
{
    return items->head_at < items->head_len ? items->head[items->head_at++]
                                            : getc_unlocked(stdin);
}

/* The next line without its end; *n is SIZE_MAX at the end of stdin. */
static int read_line(struct cli_items *items, size_t *n, struct ckpt_err *err)
{
    int c;

    *n = 0;
    items->n_line++;
    while ((c = next_byte(items)) != EOF && c != items->end) {
        if (*n == MAX_LINE - 1)
            return ckpt_fail(err, CKPT_ELIMIT, "standard input: line %zu is longer than %d bytes",
                             items->n_line, MAX_LINE - 1);
        if (c == '\0') {
            ckpt_fail(err, CKPT_EFORMAT, "standard input: line %zu has a NUL byte in it",
                      items->n_line);
            return ckpt_err_hint(err, "-0 reads paths that end with NUL");
        }
        items->line[(*n)++] = (char)c;
    }
    if (c == EOF && ferror(stdin))
        return read_stdin_failed(err);
    if (c == EOF && *n == 0)
        *n = SIZE_MAX;
    else
        items->line[*n] = '\0';
    return 0;
}

/* *out stays NULL at the end of stdin.  Empty lines are nothing. */
static int next_line(struct cli_items *items, char **out, struct ckpt_err *err)
{
    size_t n = 0;

    while (n == 0)
        if (read_line(items, &n, err))
            return err->code;
    if (n == SIZE_MAX) {
        items->from_stdin = false;
        return 0;
    }
    *out = ckpt_strdup(items->line);
    return *out ? 0 : ckpt_nomem(err, n + 1);
}

const char *cli_spool(void)
{
    const char *where = getenv("TMPDIR");

    return where && *where ? where : NULL;
}

int cli_items_bytes(struct cli_items *items, bool *bytes, struct ckpt_err *err)
{
    bool named = items->n > 0 && strcmp(items->arg[0], "-") == 0;

    *bytes = false;
    if (!items->from_stdin && !named)
        return 0;
    if (cli_look(items->head, &items->head_len, items->end, bytes, err))
        return err->code;
    if (!*bytes)
        return 0;
    items->from_stdin = false;
    items->bytes = true;
    items->at = named;
    return cli_settle(items->head, items->head_len, err);
}

int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err)
{
    *out = NULL;
    for (;;) {
        if (cli_stop && (items->from_stdin || items->at < items->n))
            return stopped(err);
        if (items->bytes) {
            items->bytes = false;
            *out = ckpt_strdup("-");
            return *out ? 0 : ckpt_nomem(err, 2);
        }
        if (items->from_stdin && (next_line(items, out, err) || *out))
            return *out ? 0 : err->code;
        if (items->at >= items->n)
            return 0;
        if (strcmp(items->arg[items->at], "-") != 0)
            break;
        items->from_stdin = true;
        items->at++;
    }
    *out = ckpt_strdup(items->arg[items->at]);
    if (!*out)
        return ckpt_nomem(err, strlen(items->arg[items->at]) + 1);
    items->at++;
    return 0;
}

void cli_items_close(struct cli_items *items) { ckpt_free(items); }
