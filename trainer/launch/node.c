/* node - see node.h. */
#include "trainer/launch/node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINE 65536                  /* of the environment: LD_LIBRARY_PATH may be long */

static bool is_node;

bool node_started(void) { return getenv(NODE_ENV) != NULL; }

bool node_is(void) { return is_node; }

/* A byte at a time: what follows the ranks' line is the supervisor's to read. */
static int read_line(char *line, size_t size, struct ckpt_err *err)
{
    size_t at = 0;
    ssize_t n;

    while ((n = read(STDIN_FILENO, line + at, 1)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return ckpt_fail_errno(err, CKPT_ECOMM, errno, "the launcher's line");
        if (line[at] == '\n') {
            line[at] = '\0';
            return 0;
        }
        if (++at == size)
            return ckpt_fail(err, CKPT_ECONFIG, "the launcher's line is longer than %zu bytes",
                             size);
    }
    return ckpt_fail(err, CKPT_ECOMM, "the launcher is gone");
}

static bool set_variable(char *text)
{
    char *value = strchr(text, '=');

    if (!value || value == text)
        return false;
    *value = '\0';
    return setenv(text, value + 1, 1) == 0;
}

static bool read_ranks(struct node_ranks *node, const char *text)
{
    long long first, n, world, saved;
    unsigned port;

    if (sscanf(text, "%lld %lld %lld %lld %u %255s %64s", &first, &n, &world, &saved, &port,
               node->master, node->word) != 7 ||
        first < 0 || n < 1 || world < first + n || port < 1 || port > UINT16_MAX)
        return false;
    node->n = n;
    node->place = (struct launch_place){
        .first = first, .world_size = world, .saved = saved, .port = (uint16_t)port,
        .master = node->master, .word = node->word,
    };
    return true;
}

int node_read(struct node_ranks *node, struct ckpt_err *err)
{
    static char line[MAX_LINE];         /* once, before there are threads */
    bool known = true;
    int rc;

    unsetenv(NODE_ENV);
    is_node = true;
    while (known && (rc = read_line(line, sizeof line, err)) == 0) {
        if (strncmp(line, "ranks ", 6) == 0 && read_ranks(node, line + 6))
            return 0;
        known = strncmp(line, "env ", 4) == 0 && set_variable(line + 4);
    }
    return known ? rc : ckpt_fail(err, CKPT_ECONFIG, "%s: standard input is no launcher's",
                                  NODE_ENV);
}

int node_signal(const char *line)
{
    static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    int sig = 0;

    if (sscanf(line, "signal %d", &sig) == 1)
        for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
            if (passed[i] == sig)
                return sig;
    return 0;
}

/* In one piece: ranks write there too. */
static void answer(const char *text, size_t n)
{
    if (write(STDERR_FILENO, text, n) < 0)
        return;                         /* nobody listens */
}

void node_tell(void *unused, const struct ckpt_err *err)
{
    char line[1500];
    int n = snprintf(line, sizeof line, "%cfail %d%c%s%c%s%c%s\n", NODE_MARK, err->code, NODE_SEP,
                     err->reason, NODE_SEP, err->text, NODE_SEP, err->hint);

    (void)unused;
    answer(line, (size_t)n);
}

void node_ended(void *unused, const struct restart_end *end)
{
    char line[160];
    int n = snprintf(line, sizeof line, "%cend %d %d %lld %lld %lld\n", NODE_MARK, end->status,
                     end->again, (long long)end->step, (long long)end->saving,
                     (long long)end->saved);

    (void)unused;
    answer(line, (size_t)n);
}

/* The field that begins at *at, which then is the next one's start. */
static void field(char *dst, size_t size, const char **at)
{
    const char *end = strchrnul(*at, NODE_SEP);

    ckpt_err_escape(dst, size, *at, (size_t)(end - *at));
    *at = *end ? end + 1 : end;
}

static bool answer_failure(struct restart_end *end, const char *line)
{
    struct ckpt_err err = {0};
    char *tail;
    long code = strtol(line, &tail, 10);
    const char *at = tail + 1;

    if (*tail != NODE_SEP || code >= 0 || code < CKPT_ENO)
        return false;
    err.code = (int)code;
    field(err.reason, sizeof err.reason, &at);
    field(err.text, sizeof err.text, &at);
    field(err.hint, sizeof err.hint, &at);
    restart_tell(end, &err);
    return true;
}

bool node_answer(struct restart_end *end, const char *line)
{
    long long step, saving, saved;
    int status, again;

    if (strncmp(line, "fail ", 5) == 0)
        return answer_failure(end, line + 5);
    if (sscanf(line, "end %d %d %lld %lld %lld", &status, &again, &step, &saving, &saved) != 5)
        return false;
    end->status = status;
    end->again = again != 0;
    end->step = step;
    end->saving = saving;
    end->saved = saved;
    return true;
}
