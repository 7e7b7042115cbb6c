/* cli_lines - see cli_lines.h. */
#include "tools/cli_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "tools/cli.h"

/* Wait until standard input has something to read, or ends; false when quit came first. */
static bool wait_for_input(const struct cli_lines *l)
{
    struct pollfd fd[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = l->quit, .events = POLLIN}};

    if (l->quit < 0)
        return true;
    while (poll(fd, 2, -1) < 0)
        if (errno != EINTR)
            return false;
    return fd[1].revents == 0;
}

void cli_lines_peek(struct cli_lines *l)
{
    struct stat st;

    l->peek = fstat(STDIN_FILENO, &st) == 0 && S_ISFIFO(st.st_mode) &&
              pipe2(l->copy, O_CLOEXEC) == 0;
}

void cli_lines_end(struct cli_lines *l)
{
    if (!l->peek)
        return;
    close(l->copy[0]);
    close(l->copy[1]);
    l->peek = false;
}

/* Read standard input, or a copy of what stays in it until the next call. */
static ssize_t take(struct cli_lines *l)
{
    ssize_t got;

    while (l->peeked > 0) {
        got = read(STDIN_FILENO, l->buffer, l->peeked);
        if (got <= 0)
            return got;
        l->peeked -= (size_t)got;
    }
    if (!l->peek || !wait_for_input(l))
        return l->peek ? 0 : read(STDIN_FILENO, l->buffer, sizeof l->buffer);
    got = tee(STDIN_FILENO, l->copy[1], sizeof l->buffer, 0);
    if (got <= 0)
        return got;
    got = read(l->copy[0], l->buffer, (size_t)got);
    l->peeked = got > 0 ? (size_t)got : 0;
    return got;
}

/* Fill the buffer; it stays empty at the end. */
static int fill(struct cli_lines *l, struct ckpt_err *err)
{
    ssize_t got;

    l->head = l->buffer;
    l->n_head = l->at = 0;
    if (!l->peek && !wait_for_input(l))
        return 0;
    while ((got = take(l)) < 0) {
        if (errno != EINTR)
            return ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
        if (cli_stop)
            return cli_stopped(err);
    }
    l->n_head = (size_t)got;
    return 0;
}

/* A byte, or -1 at the end. */
static int next_byte(int *c, struct cli_lines *l, struct ckpt_err *err)
{
    int rc;

    *c = -1;
    if (l->at == l->n_head && (rc = fill(l, err)) != 0)
        return rc;
    if (l->at < l->n_head)
        *c = l->head[l->at++];
    return 0;
}

/* Read one line, which may be empty; *n is SIZE_MAX at the end. */
static int read_line(struct cli_lines *l, size_t *n, struct ckpt_err *err)
{
    int c, rc;

    *n = 0;
    l->n_line++;
    for (;;) {
        if ((rc = next_byte(&c, l, err)) != 0)
            return rc;
        if (c < 0 || c == l->end)
            break;
        if (*n == CLI_MAX_LINE - 1)
            return ckpt_fail(err, CKPT_ELIMIT, "standard input: line %zu is longer than %d bytes",
                             l->n_line, CLI_MAX_LINE - 1);
        if (c == '\0') {
            ckpt_fail(err, CKPT_EFORMAT, "standard input: line %zu has a NUL byte in it",
                      l->n_line);
            return ckpt_err_hint(err, "-0 reads paths that end with NUL");
        }
        l->line[(*n)++] = (char)c;
    }
    if (c < 0 && *n == 0)
        *n = SIZE_MAX;
    else
        l->line[*n] = '\0';
    return 0;
}

/* What --json prints of an artifact stands for its path.  Other text is a path as it is, and so is
 * all that ends with NUL. */
static int take_path(struct cli_lines *l, size_t n, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    const char *path = NULL;
    json_t *object;
    int rc = 0;

    if (l->end != '\n' || n < 2 || l->line[0] != '{' || l->line[n - 1] != '}' ||
        ckpt_json_parse(&object, l->line, n, CKPT_JSON_LINE, &ignored))
        return 0;
    if (ckpt_json_str(&path, object, "path", &ignored) || !*path || strlen(path) >= CLI_MAX_LINE) {
        rc = ckpt_fail(err, CKPT_EFORMAT, "standard input: line %zu is an object without a path",
                       l->n_line);
        ckpt_err_hint(err, "paths come one a line, or as {\"path\": ...}; ckpt-eval passes them "
                      "on with --pass-through");
    } else {
        memcpy(l->line, path, strlen(path) + 1);
    }
    json_decref(object);
    return rc;
}

int cli_lines_next(struct cli_lines *l, bool *more, struct ckpt_err *err)
{
    size_t n = 0;
    int rc;

    while (n == 0)
        if ((rc = read_line(l, &n, err)) != 0)
            return rc;
    *more = n != SIZE_MAX;
    return *more ? take_path(l, n, err) : 0;
}
