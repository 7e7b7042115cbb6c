/* ask - see ask.h. */
#include "libckpt/base/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Nonzero: errno of what failed. */
static int start(pid_t *pid, const char *const *argv, int in, int out, bool quiet)
{
    posix_spawn_file_actions_t files;
    int rc;

    if ((rc = posix_spawn_file_actions_init(&files)) != 0)
        return rc;
    rc = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (rc == 0 && quiet)
        rc = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(pid, argv[0], &files, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* Feed the input and read all output.  The program may leave its input unread. */
static int talk(struct ckpt_buf *out, const char *name, const char *input, int *to, int from,
                int64_t until, struct ckpt_err *err)
{
    size_t left = strlen(input);
    char bytes[4096];

    for (;;) {
        struct pollfd p[2] = {{.fd = from, .events = POLLIN}, {.fd = *to, .events = POLLOUT}};
        int64_t ms = until - now_ms();
        ssize_t n;

        if (left == 0)
            close_fd(to);
        p[1].fd = *to;
        if (ms <= 0)
            return ckpt_fail(err, CKPT_ESTOPPED, "%s: does not answer", name);
        if (poll(p, 2, (int)(ms < 1000 ? ms : 1000)) < 0 && errno != EINTR)
            return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", name);
        if (*to >= 0 && (p[1].revents & (POLLOUT | POLLERR))) {
            n = write(*to, input, left);
            if (n < 0 && errno != EAGAIN && errno != EINTR)
                left = 0;
            else if (n > 0) {
                input += n;
                left -= (size_t)n;
            }
        }
        if (!(p[0].revents & (POLLIN | POLLHUP)))
            continue;
        n = read(from, bytes, sizeof bytes);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", name);
        if (n > 0)
            ckpt_buf_put(out, bytes, (size_t)n);
        explicit_bzero(bytes, sizeof bytes);
        if (!ckpt_buf_ok(out))
            return ckpt_fail(err, CKPT_ELIMIT, "%s: prints more than %zu bytes", name, out->limit);
    }
}

int ckpt_ask(struct ckpt_buf *out, const char *const *argv, const char *input, int seconds,
             bool quiet, struct ckpt_err *err)
{
    int in[2] = {-1, -1}, from[2] = {-1, -1}, why, status = 0, rc = 0;
    int64_t until = now_ms() + 1000 * (int64_t)seconds;
    pid_t pid = 0;

    if (pipe2(in, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        rc = ckpt_fail_errno(err, CKPT_ENOMEM, errno, "%s: pipes", argv[0]);
    else if ((why = start(&pid, argv, in[0], from[1], quiet)) != 0)
        rc = ckpt_fail_errno(err, why == ENOENT || why == EACCES ? CKPT_ENOTFOUND : CKPT_ENOMEM,
                             why, "%s", argv[0]);
    close_fd(&in[0]);
    close_fd(&from[1]);
    if (rc == 0 && fcntl(in[1], F_SETFL, O_NONBLOCK))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: pipes", argv[0]);
    if (rc == 0)
        rc = talk(out, argv[0], input, &in[1], from[0], until, err);
    close_fd(&in[1]);
    close_fd(&from[0]);
    if (rc && pid > 0)
        kill(pid, SIGKILL);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return rc || status == 0 ? rc : ckpt_fail(err, CKPT_EREFUSED, "%s: ended with status %d",
                                              argv[0], WIFEXITED(status) ? WEXITSTATUS(status)
                                                                         : 128 + WTERMSIG(status));
}
