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
#include "libckpt/base/json.h"
#include "libckpt/remote/remote.h"
#include "tools/progress.h"

volatile int cli_stop;

/* Meaning of SIGINT while items come through a pipe; see cli_drain. */
static volatile sig_atomic_t drains, drained, at_once;
static char drain_note[200];
static size_t drain_note_len;
static const bool *drain_quiet;

/*
 * The first signal asks for an orderly end; another one a second later has its default action.
 * Within that second it counts as the same request: timeout(1) signals the process and then its
 * whole group.
 */
static void on_signal(int sig)
{
    static struct timespec first;
    struct sigaction standard = {.sa_handler = SIG_DFL};
    bool drain = sig == SIGINT && drains && !cli_stop;
    int saved = errno;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (drain && !drained) {
        drained = 1;
        first = now;
        if (!*drain_quiet && write(STDERR_FILENO, drain_note, drain_note_len) < 0)
            errno = saved;              /* a failed write is ignored, as for other notes */
    } else if (!cli_stop && !drain && !at_once) {
        cli_stop = sig;
        first = now;
    } else if ((!drain && at_once) || (now.tv_sec - first.tv_sec) * 1000 +
                                          (now.tv_nsec - first.tv_nsec) / 1000000 >= 1000) {
        sigaction(sig, &standard, NULL);
        raise(sig);
    }
    errno = saved;
}

void cli_drain(bool on) { drains = on; }
void cli_end_at_once(void) { at_once = 1; }

/* Length of the name in a setting in backquotes at s, up to the value or the end; 0 when the
 * tool has no such option. */
static size_t setting_at(const struct cli *cli, const char *s)
{
    size_t n = *s == '`' ? strspn(s + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;

    return n && (s[n + 1] == '`' || s[n + 1] == ' ') && strchr(s + n + 1, '`') && cli->has_option &&
           cli->has_option(cli->options, s + 1, n) ? n : 0;
}

char *cli_flags(char *dst, size_t size, const struct cli *cli, const char *text)
{
    size_t at = 0;

    while (*text && at + 1 < size) {
        size_t n = setting_at(cli, text), value;

        if (n == 0) {
            dst[at++] = *text++;
            continue;
        }
        value = strcspn(text + n + 1, "`");
        at += (size_t)snprintf(dst + at, size - at, "--%.*s", (int)(n + value), text + 1);
        at = at < size ? at : size - 1;
        for (size_t i = at - n - value; at < size - 1 && i < at - value; i++)
            dst[i] = dst[i] == '_' ? '-' : dst[i];
        text += n + value + 2;
    }
    dst[at] = '\0';
    return dst;
}

void cli_event(const struct cli *cli, const char *event, json_t *facts)
{
    json_t *o = cli->events ? json_pack("{s:s, s:s}", "tool", cli->tool, "event", event) : NULL;
    struct ckpt_err ignored = {0};
    struct ckpt_buf b;

    ckpt_buf_init(&b, (size_t)1 << 16);
    if (o && facts && json_object_update(o, facts) == 0 &&
        ckpt_json_write(&b, o, 0, false, &ignored) == 0 && ckpt_buf_str(&b))
        fprintf(stderr, "%s\n", ckpt_buf_str(&b));
    ckpt_buf_release(&b);
    json_decref(facts);
    json_decref(o);
}

static void tell(void *ctx, enum ckpt_log_level level, const char *line)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    static const char *const events[] = {"error", "warning", "note", "debug"};
    struct cli *cli = ctx;
    char text[4096], rank[32] = "";

    if (level == CKPT_LOG_WARNING)
        cli->warnings++;
    if ((level == CKPT_LOG_WARNING || level == CKPT_LOG_NOTE) && cli->quiet)
        return;
    if ((level == CKPT_LOG_DEBUG && cli->verbose < 2) ||
        (level == CKPT_LOG_NOTE && cli->only_warnings))
        return;
    if (cli->rank > 0 && strncmp(line, "rank ", 5) != 0)
        snprintf(rank, sizeof rank, "rank %ld: ", cli->rank);
    if (cli->events) {
        cli_event(cli, events[level], json_pack("{s:s}", "text",
                                                cli_flags(text, sizeof text, cli, line)));
        return;
    }
    progress_hide();
    fprintf(stderr, "%s: %s%s%s\n", cli->tool, words[level], rank,
            cli_flags(text, sizeof text, cli, line));
    progress_back();
}

/*
 * The next file opened would get the number of a closed standard descriptor, and lines meant for
 * people would be written into a checkpoint.  Fill the gap with a descriptor on which every use
 * fails.
 */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
            _exit(ckpt_err_status(CKPT_ENOMEM));
}

/* Raise the limit of open files: a sharded checkpoint has one or two for every rank. */
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
    sigaction(SIGPIPE, &standard, NULL);      /* end silently, even if the parent ignores SIGPIPE */
    cli->tool = tool;
    snprintf(drain_note, sizeof drain_note, "%s: interrupted: working through what the pipe still "
             "brings; once more ends it now\n", tool);
    drain_note_len = strlen(drain_note);
    drain_quiet = &cli->quiet;
    ckpt_log_hook(tell, cli);
    progress_start(cli);
    ckpt_remote_stop_on(&cli_stop);
    for (size_t i = 0; i < sizeof orderly / sizeof orderly[0]; i++)
        sigaction(orderly[i], &act, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);          /* EFBIG gives a better message */
}

void cli_ignore_pipe(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigaction(SIGPIPE, &ignore, NULL);
}

/* An error as one JSON object, for programs; false when memory does not suffice. */
static bool error_json(const struct cli *cli, const struct ckpt_err *err, const char *text,
                       const char *hint)
{
    json_t *o = json_pack("{s:s, s:i, s:s, s:s}", "tool", cli->tool, "status",
                          ckpt_err_status(err->code), "reason", err->reason, "error", text);
    struct ckpt_err ignored = {0};
    struct ckpt_buf b;
    bool done = false;

    ckpt_buf_init(&b, (size_t)1 << 16);
    if (o && *hint)
        json_object_set_new(o, "hint", json_string(hint));
    if (o && ckpt_json_write(&b, o, 0, false, &ignored) == 0 && ckpt_buf_str(&b))
        done = fprintf(stderr, "%s\n", ckpt_buf_str(&b)) > 0;
    ckpt_buf_release(&b);
    json_decref(o);
    return done;
}

int cli_error(const struct cli *cli, const struct ckpt_err *err)
{
    char text[sizeof err->text], hint[sizeof err->hint];

    cli_flags(text, sizeof text, cli, err->text);
    cli_flags(hint, sizeof hint, cli, err->hint);
    progress_hide();
    if (cli->json && error_json(cli, err, text, hint))
        return ckpt_err_status(err->code);
    fprintf(stderr, "%s: %s\n", cli->tool, text);
    if (*hint)
        fprintf(stderr, "hint: %s\n", hint);
    return ckpt_err_status(err->code);
}

/* Flush stdout: whether everything printed so far was written. */
static int check_stdout(struct ckpt_err *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return ckpt_fail_errno(err, CKPT_EIO, errno, "standard output");
}

int cli_artifact(struct cli *cli, const char *path, json_t *object, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0, n = 0;

    progress_hide();
    if (!cli->json) {
        json_decref(object);
        n = printf("%s%c", path, cli->nul ? '\0' : '\n');
        cli->printed += n > 0 ? (uint64_t)n : 0;
        return check_stdout(err);
    }
    if (!object)
        object = json_pack("{s:o}", "path", ckpt_json_text(path, strlen(path)));
    ckpt_buf_init(&b, (size_t)1 << 24);
    rc = ckpt_json_write(&b, object, 0, false, err);
    json_decref(object);
    if (rc == 0)
        n = printf("%.*s%c", (int)b.len, (const char *)b.data, cli->nul ? '\0' : '\n');
    cli->printed += n > 0 ? (uint64_t)n : 0;
    ckpt_buf_release(&b);
    return rc ? rc : check_stdout(err);
}

int cli_stopped(struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ESTOPPED, "stopped by SIG%s before all was done",
                     sigabbrev_np(cli_stop));
}

int cli_told_stop(int rc, struct ckpt_err *err)
{
    return rc == CKPT_ESTOPPED && cli_stop && !err->hint[0] ? cli_stopped(err) : rc;
}

const char *cli_spool(void)
{
    const char *where = getenv("TMPDIR");

    return where && *where ? where : NULL;
}

int cli_end(struct cli *cli, int status)
{
    struct ckpt_err err = {0};

    progress_stop();
    if (cli->warnings && !cli->quiet && cli->rank == 0)
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
    ckpt_arena_release(&cli->arena);
    return status;
}
