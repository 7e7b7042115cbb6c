/* train/child - see train/child.h. */
#include "tools/train/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/mem.h"
#include "trainer/comm/control.h"
#include "trainer/comm/report.h"

#define PAUSE_MS 50

extern char **environ;

/* Whether a variable makes a process a rank of this run. */
static bool is_rank_var(const char *var)
{
    static const char *const names[] = {
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
        "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK", "PMI_FD",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", CONTROL_ENV, CONTROL_SAVED_ENV,
    };
    size_t n = strcspn(var, "=");

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], var, n) == 0)
            return true;
    return strncmp(var, "TORCHELASTIC_", 13) == 0;
}

/* The environment of the child; the caller frees the array. */
static const char **environment(const struct child_opts *o)
{
    size_t n = 0, k = 0;
    const char **env;

    while (environ[n])
        n++;
    env = ckpt_alloc(n + o->n_vars + 1, sizeof *env);
    for (size_t i = 0; env && i < n; i++)
        if (!is_rank_var(environ[i]))
            env[k++] = environ[i];
    for (size_t i = 0; env && i < o->n_vars; i++)
        env[k++] = o->vars[i];
    return env;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Descriptors and signals of the child; nonzero: errno of what failed. */
static int spawn(struct child *c, const struct child_opts *o, const char *const *env, int in)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, standard;
    int rc;

    sigemptyset(&none);
    sigemptyset(&standard);
    sigaddset(&standard, SIGPIPE);
    sigaddset(&standard, SIGXFSZ);
    if ((rc = posix_spawn_file_actions_init(&files)) != 0)
        return rc;
    if ((rc = posix_spawnattr_init(&attr)) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return rc;
    }
    rc = in >= 0 ? posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO)
                 : posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&files, o->out > 0 ? o->out : STDERR_FILENO,
                                              STDOUT_FILENO);
    if (rc == 0 && o->errors > 0)
        rc = posix_spawn_file_actions_adddup2(&files, o->errors, STDERR_FILENO);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(&attr, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(&attr, &standard);
    if (rc == 0)
        rc = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                 POSIX_SPAWN_SETSID);
    if (rc == 0)
        rc = posix_spawnp(&c->pid, o->argv[0], &files, &attr, (char *const *)(uintptr_t)o->argv,
                          (char *const *)(uintptr_t)env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

int child_start(struct child *c, const struct child_opts *o, struct ckpt_err *err)
{
    int in[2] = {-1, -1}, rc = 0, why;
    const char **env = environment(o);

    *c = (struct child){.in = -1};
    if (!env)
        return ckpt_nomem(err, CHILD_MAX_VARS * sizeof *env);
    if (o->pipe && pipe2(in, O_CLOEXEC))
        rc = ckpt_fail_errno(err, CKPT_ENOMEM, errno, "%s: pipe", o->argv[0]);
    /* A child that reads slowly must not hold a step. */
    if (rc == 0 && o->pipe && fcntl(in[1], F_SETFL, O_NONBLOCK))
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "%s: pipe", o->argv[0]);
    if (rc == 0 && (why = spawn(c, o, env, in[0])) != 0) {
        rc = ckpt_fail_errno(err, why == ENOENT || why == EACCES ? CKPT_ENOTFOUND : CKPT_ENOMEM,
                             why, "%s", o->argv[0]);
        c->pid = 0;
    }
    close_fd(&in[0]);
    if (rc == 0)
        c->in = in[1];
    else
        close_fd(&in[1]);
    ckpt_free(env);
    return rc;
}

bool child_ended(struct child *c, int *status)
{
    int s;

    if (c->pid == 0 || waitpid(c->pid, &s, WNOHANG) != c->pid)
        return false;
    c->pid = 0;
    *status = WIFSIGNALED(s) ? 128 + WTERMSIG(s) : WEXITSTATUS(s);
    return true;
}

void child_pause(void)
{
    report_part();
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
}

void child_hang_up(struct child *c) { close_fd(&c->in); }
