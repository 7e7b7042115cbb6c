/* cli - see cli.h. */
#include "tools/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/ckpt.h"
#include "libckpt/json.h"

volatile int cli_stop;

/* The first signal asks for an orderly end, the second has its own way. */
static void on_signal(int sig)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};

    cli_stop = sig;
    sigaction(sig, &standard, NULL);
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

void cli_begin(struct cli *cli, const char *tool)
{
    static const int orderly[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction act = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};

    cli->tool = tool;
    ckpt_log_hook(tell, cli);
    for (size_t i = 0; i < sizeof orderly / sizeof orderly[0]; i++)
        sigaction(orderly[i], &act, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);          /* EFBIG tells it better */
}

int cli_error(const struct cli *cli, const struct ckpt_err *err)
{
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

struct cli_items {
    char **arg;
    int    n, at;
    bool   from_stdin;
    int    end;                 /* what ends a line of stdin */
    char  *line;                /* getdelim's buffer */
    size_t cap;
};

int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err)
{
    struct cli_items *items = ckpt_alloc(1, sizeof *items);

    *out = NULL;
    if (!items)
        return ckpt_nomem(err, sizeof *items);
    items->arg = arg;
    items->n = n_arg;
    items->from_stdin = n_arg == 0;
    items->end = nul ? '\0' : '\n';
    if (n_arg == 0 && isatty(STDIN_FILENO)) {
        ckpt_free(items);
        return ckpt_fail(err, CKPT_EUSAGE, "nothing to work on: name a path, or pipe paths in");
    }
    *out = items;
    return 0;
}

static int next_line(struct cli_items *items, char **out, struct ckpt_err *err)
{
    ssize_t n;

    do {
        errno = 0;
        n = getdelim(&items->line, &items->cap, items->end, stdin);
        if (n < 0) {
            if (ferror(stdin) && errno != EINTR)
                return ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
            items->from_stdin = false;
            return 0;
        }
        if (n > 0 && items->line[n - 1] == items->end)
            items->line[--n] = '\0';
    } while (n == 0);
    *out = ckpt_strdup(items->line);
    return *out ? 0 : ckpt_nomem(err, (size_t)n);
}

int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err)
{
    *out = NULL;
    while (!*out) {
        if (items->from_stdin) {
            if (next_line(items, out, err))
                return err->code;
            if (*out)
                return 0;
        }
        if (items->at >= items->n)
            return 0;
        if (strcmp(items->arg[items->at], "-") == 0) {
            items->from_stdin = true;
            items->at++;
            continue;
        }
        *out = ckpt_strdup(items->arg[items->at++]);
        if (!*out)
            return ckpt_nomem(err, 64);
    }
    return 0;
}

void cli_items_close(struct cli_items *items)
{
    if (items)
        free(items->line);              /* getdelim's own */
    ckpt_free(items);
}
