/* ssh - see ssh.h. */
#include "trainer/launch/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/mem.h"

/* -- text for a shell ------------------------------------------------------------------------- */

static void put(struct ssh_text *c, const char *text, size_t n)
{
    if (c->n + n + 1 > c->cap) {
        size_t cap = 2 * (c->n + n + 1);
        char *grown = ckpt_alloc(cap, 1);

        if (!grown) {
            c->failed = true;
            return;
        }
        if (c->n)
            memcpy(grown, c->text, c->n);
        ckpt_free(c->text);
        c->text = grown;
        c->cap = cap;
    }
    memcpy(c->text + c->n, text, n);
    c->n += n;
    c->text[c->n] = '\0';
}

void ssh_put(struct ssh_text *c, const char *text) { put(c, text, strlen(text)); }

/* Between quotes, out of which a shell takes nothing. */
static void put_quoted(struct ssh_text *c, const char *text)
{
    ssh_put(c, "'");
    for (; *text; text++)
        put(c, *text == '\'' ? "'\\''" : text, *text == '\'' ? 4 : 1);
    ssh_put(c, "'");
}

int ssh_command(struct ssh_text *c, const char *mark, char *const *argv, struct ckpt_err *err)
{
    static const char *const paths[] = {"PATH", "LD_LIBRARY_PATH"};
    char here[4096], self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n <= 0 || !getcwd(here, sizeof here))
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "the working directory");
    self[n] = '\0';
    ssh_put(c, "cd ");
    put_quoted(c, here);
    ssh_put(c, " && exec env ");
    ssh_put(c, mark);
    ssh_put(c, "=1");
    for (size_t i = 0; i < 2; i++) {
        const char *value = getenv(paths[i]);

        if (!value)
            continue;
        ssh_put(c, " ");
        ssh_put(c, paths[i]);
        ssh_put(c, "=");
        put_quoted(c, value);
    }
    ssh_put(c, " ");
    put_quoted(c, self);
    for (char *const *arg = argv + 1; *arg; arg++) {
        ssh_put(c, " ");
        put_quoted(c, *arg);
    }
    return c->failed ? ckpt_nomem(err, c->cap) : 0;
}

/* -- the program itself ----------------------------------------------------------------------- */

static void become(const struct ssh_opts *o, const int pipes[3])
{
    const char *ssh = getenv(SSH_ENV), *args[16];
    char port[32];
    size_t n = 0;

    ssh = ssh && *ssh ? ssh : "ssh";
    snprintf(port, sizeof port, "%lld", (long long)o->port);
    args[n++] = ssh;
    args[n++] = "-o";
    args[n++] = "BatchMode=yes";        /* there is nobody to ask for a password */
    args[n++] = "-o";
    args[n++] = "ConnectTimeout=15";
    args[n++] = "-o";
    args[n++] = "ServerAliveInterval=5";
    args[n++] = "-o";
    args[n++] = "ServerAliveCountMax=3";
    if (o->port) {
        args[n++] = "-p";
        args[n++] = port;
    }
    args[n++] = o->host;
    args[n++] = o->command;
    args[n] = NULL;
    setsid();                           /* a terminal's signals are the launcher's */
    if (dup2(pipes[0], 0) == 0 && dup2(pipes[1], 1) == 1 && dup2(pipes[2], 2) == 2 &&
        sigprocmask(SIG_SETMASK, o->mask, NULL) == 0)
        execvp(ssh, (char *const *)(uintptr_t)args);
    dprintf(2, "%s: %s\n", ssh, strerror(errno));
    _exit(127);
}

static void close_pipe(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int ssh_start(struct ssh *s, const struct ssh_opts *o, struct ckpt_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, log[2] = {-1, -1}, rc = 0;

    *s = (struct ssh){.in = -1, .out = -1, .err = -1};
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(log, O_CLOEXEC) ||
        (s->pid = fork()) < 0) {
        rc = ckpt_fail_errno(err, CKPT_ENOMEM, errno, "%s: pipes and a process", o->host);
        s->pid = 0;
    }
    if (rc == 0 && s->pid == 0)
        become(o, (int[]){in[0], out[1], log[1]});
    s->in = in[1];
    s->out = out[0];
    s->err = log[0];
    close_pipe(&in[0]);
    close_pipe(&out[1]);
    close_pipe(&log[1]);
    return rc;
}

void ssh_hang_up(struct ssh *s) { close_pipe(&s->in); }

void ssh_say(struct ssh *s, const char *text)
{
    size_t n = strlen(text);

    if (s->in >= 0 && write(s->in, text, n) != (ssize_t)n)
        ssh_hang_up(s);
}

bool ssh_ended(struct ssh *s, int *status)
{
    if (s->pid == 0 || waitpid(s->pid, status, WNOHANG) != s->pid)
        return false;
    s->pid = 0;
    return true;
}

void ssh_kill(const struct ssh *s)
{
    if (s->pid)
        kill(-s->pid, SIGKILL);
}

void ssh_close(struct ssh *s)
{
    ssh_kill(s);
    ssh_hang_up(s);
    close_pipe(&s->out);
    close_pipe(&s->err);
    while (s->pid && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
}
