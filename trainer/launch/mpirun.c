/* mpirun - see mpirun.h. */
#include "trainer/launch/mpirun.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/launch/ssh.h"

extern char **environ;

#define AT_ONCE 1.0                     /* seconds between two signals that are two requests */
#define CLOSE   5.0                     /* for mpirun to end after it was asked to */

/* Arguments that grow; what they point to lives as long. */
struct arguments {
    struct ckpt_arena texts;
    const char **arg;                   /* [n], then NULL */
    size_t n, cap;
    bool failed;
};

static void add(struct arguments *a, const char *text)
{
    const char **grown;

    if (a->n + 2 > a->cap) {
        grown = ckpt_alloc(2 * (a->n + 2), sizeof *grown);
        if (!grown) {
            a->failed = true;
            return;
        }
        if (a->n)
            memcpy(grown, a->arg, a->n * sizeof *grown);
        ckpt_free(a->arg);
        a->arg = grown;
        a->cap = 2 * (a->n + 2);
    }
    a->arg[a->n] = ckpt_arena_strndup(&a->texts, text, strlen(text));
    a->failed |= !a->arg[a->n];
    a->arg[++a->n] = NULL;
}

static void add_all(struct arguments *a, const char *const *text)
{
    for (; *text; text++)
        add(a, *text);
}

/* How mpirun reaches hosts: as ssh_start does. */
static void add_agent(struct arguments *a, const struct hosts_opts *o)
{
    const char *ssh = getenv(SSH_ENV);
    char agent[4200];

    snprintf(agent, sizeof agent, "%s -o BatchMode=yes -o ConnectTimeout=15",
             ssh && *ssh ? ssh : "ssh");
    if (o->ssh_port)
        snprintf(agent + strlen(agent), sizeof agent - strlen(agent), " -p %lld",
                 (long long)o->ssh_port);
    add_all(a, (const char *const[]){"--mca", "plm_rsh_agent", agent, NULL});
}

/* A host, its ranks and its slots' GPUs: one of mpirun's application contexts. */
static void add_host(struct arguments *a, const struct hostfile_host *h, char *const *argv)
{
    char self[4096] = "", text[6 * HOSTFILE_MAX_SLOTS + 64], slots[6 * HOSTFILE_MAX_SLOTS];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    a->failed |= len <= 0;
    snprintf(text, sizeof text, "%lld", (long long)h->n);
    add_all(a, (const char *const[]){"-np", text, NULL});
    snprintf(text, sizeof text, "%s:%lld", h->name, (long long)h->n);
    add_all(a, (const char *const[]){"--host", text, NULL});
    hostfile_slot_list(slots, sizeof slots, h);
    snprintf(text, sizeof text, "CUDA_VISIBLE_DEVICES=%s", slots);
    add_all(a, (const char *const[]){"-x", text, "-x", HOSTS_CHOSEN_ENV "=1", NULL});
    for (char **v = environ; *v; v++) {
        const char *end = strchr(*v, '=');
        char name[256];

        if (!end || !hosts_passes(*v) || end - *v >= (ptrdiff_t)sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(end - *v), *v);
        add_all(a, (const char *const[]){"-x", name, NULL});
    }
    if (getenv("LD_LIBRARY_PATH"))
        add_all(a, (const char *const[]){"-x", "LD_LIBRARY_PATH", NULL});
    add_all(a, (const char *const[]){"-x", "PATH", self, NULL});
    for (char *const *arg = argv + 1; *arg; arg++)
        add(a, *arg);
}

static int arguments_make(struct arguments *a, const struct hosts_opts *o, struct ckpt_err *err)
{
    /* Slots are counted already, and names are as the host file has them. */
    add_all(a, (const char *const[]){"mpirun", "--bind-to", "none", "--oversubscribe", "--mca",
                                     "orte_keep_fqdn_hostnames", "1", NULL});
    add_agent(a, o);
    for (size_t i = 0; i < o->hosts->n; i++) {
        if (i)
            add(a, ":");
        add_host(a, &o->hosts->host[i], o->argv);
    }
    return a->failed ? ckpt_nomem(err, a->n * sizeof *a->arg) : 0;
}

/* -- the program ------------------------------------------------------------------------------ */

static void become(const struct arguments *a, const struct restart_try *t, int failed)
{
    int why;

    setsid();                           /* a terminal's signals are the launcher's */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (sigprocmask(SIG_SETMASK, t->mask, NULL) == 0)
        execvp(a->arg[0], (char *const *)(uintptr_t)a->arg);
    why = errno;
    if (write(failed, &why, sizeof why) < 0)
        _exit(1);
    _exit(127);
}

static int start(pid_t *pid, const struct arguments *a, const struct restart_try *t,
                 struct ckpt_err *err)
{
    int failed[2], why = 0;

    if (pipe2(failed, O_CLOEXEC))
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a pipe");
    *pid = fork();
    if (*pid == 0)
        become(a, t, failed[1]);
    close(failed[1]);
    if (*pid < 0)
        why = errno;
    while (*pid > 0 && read(failed[0], &why, sizeof why) < 0 && errno == EINTR)
        ;
    close(failed[0]);
    if (why == 0)
        return 0;
    while (*pid > 0 && waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    ckpt_fail_errno(err, CKPT_EDEVICE, why, "`launcher mpirun`: mpirun does not start");
    return ckpt_err_hint(err, "package openmpi-bin; `launcher ssh` needs ssh alone");
}

/* The first signal is for the ranks; INT or TERM again ends mpirun. */
struct asked { double at, again_at; };

static void take_signals(struct asked *asked, pid_t pid, const struct restart_try *t)
{
    struct signalfd_siginfo s;
    double now = clock_now();

    while (read(t->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        int sig = (int)s.ssi_signo;

        if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else if (sig != SIGCHLD && asked->at == 0) {
            asked->at = now;
            kill(pid, SIGUSR1);
        } else if ((sig == SIGINT || sig == SIGTERM) && now - asked->at >= AT_ONCE) {
            asked->again_at = asked->again_at > 0 ? asked->again_at : now;
            kill(pid, SIGTERM);
        }
    }
}

static int run(void *ctx, struct restart_end *end, const struct restart_try *t,
               struct ckpt_err *err)
{
    const struct hosts_opts *o = ctx;
    struct arguments a = {0};
    struct asked asked = {0};
    int how = 0, rc = arguments_make(&a, o, err);
    pid_t pid = 0;

    if (rc == 0)
        rc = start(&pid, &a, t, err);
    while (rc == 0 && waitpid(pid, &how, WNOHANG) != pid) {
        poll(&(struct pollfd){.fd = t->signals, .events = POLLIN}, 1, 100);
        take_signals(&asked, pid, t);
        if (asked.again_at > 0 && clock_now() - asked.again_at > CLOSE)
            kill(-pid, SIGKILL);
    }
    end->status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    ckpt_free(a.arg);
    ckpt_arena_release(&a.texts);
    return rc;
}

int mpirun_run(int *status, const struct hosts_opts *o, struct ckpt_err *err)
{
    struct hosts_opts own = *o;
    const struct restart_opts once = {.n = hostfile_slots(o->hosts), .ctx = &own, .run = run,
                                      .tell_ctx = o->ctx, .tell = o->tell};

    if (getenv("CKPT_STREAMS"))
        return ckpt_fail(err, CKPT_ECONFIG, "`hostfile`: other hosts cannot read a pipe of this "
                         "one: a file is wanted");
    return restart_run(status, &once, err);
}
