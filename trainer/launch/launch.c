/* launch - see launch.h. */
#include "trainer/launch/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/control.h"
#include "trainer/comm/meet.h"
#include "trainer/comm/shared.h"
#include "trainer/ops/device.h"

extern char **environ;

#define WORD 32                         /* hexadecimal digits */

/* What every rank is told in its environment, after what this process has in its own. */
enum { ENV_RANK, ENV_LOCAL_RANK, ENV_CONTROL, ENV_WORLD_SIZE, ENV_LOCAL_WORLD_SIZE, ENV_MASTER_ADDR,
       ENV_MASTER_PORT, ENV_HELD, ENV_WORD, ENV_SHARED, ENV_SAVED, ENV_BLAS, ENV_N };

struct environment {
    char   text[ENV_N][320];
    char **all;                         /* [n]: those kept, then text, then NULL */
};

/* What would place a rank otherwise (ranks.c), and what text replaces. */
static bool is_kept(const char *variable)
{
    static const char *const dropped[] = {
        "OMPI_", "PMI_", "PMIX_", "RANK=", "LOCAL_RANK=", "WORLD_SIZE=", "LOCAL_WORLD_SIZE=",
        "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_", CONTROL_ENV "=", RANKS_HELD_ENV "=",
        MEET_WORD_ENV "=", CONTROL_SAVED_ENV "=", SHARED_ENV "=", "OPENBLAS_NUM_THREADS=",
    };

    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        if (strncmp(variable, dropped[i], strlen(dropped[i])) == 0)
            return false;
    return true;
}

static void say(struct environment *e, int which, const char *name, const char *value)
{
    snprintf(e->text[which], sizeof e->text[0], "%s=%s", name, value);
}

static void say_number(struct environment *e, int which, const char *name, int64_t n)
{
    snprintf(e->text[which], sizeof e->text[0], "%s=%lld", name, (long long)n);
}

/* Where the store is that ranks meet in, and who holds it. */
static void environment_meet(struct environment *e, const struct launch_place *place,
                             uint16_t port, const char *word)
{
    say(e, ENV_MASTER_ADDR, "MASTER_ADDR", place ? place->master : "127.0.0.1");
    say_number(e, ENV_MASTER_PORT, "MASTER_PORT", place ? place->port : port);
    say(e, ENV_WORD, MEET_WORD_ENV, place ? place->word : word);
    if (!place)
        say(e, ENV_HELD, RANKS_HELD_ENV, "1");
}

static int environment_make(struct environment *e, const struct launch_opts *o,
                            struct ckpt_err *err)
{
    size_t count = 0, kept = 0;

    while (environ[count])
        count++;
    e->all = ckpt_alloc(count + ENV_N + 1, sizeof *e->all);
    if (!e->all)
        return ckpt_nomem(err, (count + ENV_N + 1) * sizeof *e->all);
    for (size_t i = 0; i < count; i++)
        if (is_kept(environ[i]))
            e->all[kept++] = environ[i];
    say_number(e, ENV_WORLD_SIZE, "WORLD_SIZE", o->place ? o->place->world_size : o->n);
    say_number(e, ENV_LOCAL_WORLD_SIZE, "LOCAL_WORLD_SIZE", o->n);
    if (o->saved >= 0)
        say_number(e, ENV_SAVED, CONTROL_SAVED_ENV, o->saved);
    say_number(e, ENV_BLAS, "OPENBLAS_NUM_THREADS", 1);     /* ranks use none of its own threads */
    for (size_t i = 0; i < ENV_N; i++)
        if (e->text[i][0] || i == ENV_RANK || i == ENV_LOCAL_RANK || i == ENV_CONTROL)
            e->all[kept++] = e->text[i];
    return 0;
}

static void environment_place(struct environment *e, int64_t first, int64_t local, int control)
{
    say_number(e, ENV_RANK, "RANK", first + local);
    say_number(e, ENV_LOCAL_RANK, "LOCAL_RANK", local);
    say_number(e, ENV_CONTROL, CONTROL_ENV, control);
}

/* The CPUs of one of n ranks: its share of those that this process may use, or all of them where a
 * rank would have one, which it computes and communicates on. */
static cpu_set_t cpus_of(int64_t rank, int64_t n)
{
    cpu_set_t all, own;
    int64_t count, at = 0;

    CPU_ZERO(&all);
    CPU_ZERO(&own);
    sched_getaffinity(0, sizeof all, &all);
    count = CPU_COUNT(&all);
    if (count < 2 * n)
        return all;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            if (at * n / count == rank)
                CPU_SET(cpu, &own);
            at++;
        }
    return own;
}

struct start {
    const char       *program;
    char            **argv;
    const sigset_t   *mask;
    struct environment env;
    int64_t           first;            /* rank of the first one here */
    int64_t           rank, n;          /* which of them this is */
    bool              all_here, reads;  /* standard input is its own */
    int               control;          /* the rank's end of its socket */
    int               shared;           /* memory of all ranks; -1: none */
    pid_t             parent;
    cpu_set_t         cpus;
};

/* In the child, whose memory may be another thread's midst: system calls alone. */
static void become(const struct start *s, int failed)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), why;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->parent)         /* it died before that */
        _exit(0);
    sched_setaffinity(0, sizeof s->cpus, &s->cpus);
    if ((s->reads || (null >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO)) &&
        fcntl(s->control, F_SETFD, 0) == 0 &&
        (s->shared < 0 || fcntl(s->shared, F_SETFD, 0) == 0) &&
        sigprocmask(SIG_SETMASK, s->mask, NULL) == 0)
        execve(s->program, s->argv, s->env.all);
    why = errno;
    if (write(failed, &why, sizeof why) < 0)
        _exit(1);
    _exit(127);
}

/* Returns the errno of a program that cannot be started, else 0. */
static int start_rank(struct launch_rank *r, struct start *s)
{
    int pair[2], failed[2], why = 0;

    if (pipe2(failed, O_CLOEXEC))
        return errno;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) {
        why = errno;
        close(failed[0]);
        close(failed[1]);
        return why;
    }
    r->control = pair[0];
    s->control = pair[1];
    s->reads = s->rank == 0 && s->all_here;
    environment_place(&s->env, s->first, s->rank, pair[1]);
    s->cpus = cpus_of(s->rank, s->n);
    r->pid = fork();
    if (r->pid == 0)
        become(s, failed[1]);
    if (r->pid < 0) {
        why = errno;
        r->pid = 0;
    }
    close(pair[1]);
    close(failed[1]);
    while (why == 0 && read(failed[0], &why, sizeof why) < 0 && errno == EINTR)
        ;
    close(failed[0]);
    return why;
}

static int draw_word(char word[WORD + 1], struct ckpt_err *err)
{
    unsigned char bits[WORD / 2];

    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "random bytes");
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(word + 2 * i, 3, "%02x", bits[i]);
    return 0;
}

/* Memory that ranks share, when all are here, unless Gloo is asked for; where the system gives none
 * they talk over Gloo, too. */
static int hold_memory(struct launch *l, struct start *s, const struct launch_opts *o,
                       struct ckpt_err *err)
{
    const char *wanted = getenv(LAUNCH_COMM_ENV);
    struct ckpt_err none = {0};

    if (wanted && *wanted && strcmp(wanted, "gloo") != 0 && strcmp(wanted, "shared") != 0)
        return ckpt_fail(err, CKPT_ECONFIG, "%s: \"%.40s\" is neither shared nor gloo",
                         LAUNCH_COMM_ENV, wanted);
    if (o->place || o->n < 2 || (wanted && strcmp(wanted, "gloo") == 0))
        return 0;
    if (shared_create(&l->shared, o->n, &none) != 0)
        ckpt_log(CKPT_LOG_WARNING, "%s: ranks talk over Gloo", none.text);
    else
        say_number(&s->env, ENV_SHARED, SHARED_ENV, l->shared);
    s->shared = l->shared;
    return 0;
}

/* The store that all ranks meet in, when all are here. */
static int hold_store(struct launch *l, struct start *s, const struct launch_opts *o,
                      struct ckpt_err *err)
{
    char word[WORD + 1] = "";
    uint16_t port = 0;
    int rc = 0;

    if (!o->place && (rc = draw_word(word, err)) == 0 &&
        (rc = store_server_open(&l->store, "127.0.0.1", 0, word, err)) == 0)
        port = store_server_port(l->store);
    environment_meet(&s->env, o->place, port, word);
    return rc ? rc : environment_make(&s->env, o, err);
}

int launch_start(struct launch *l, const struct launch_opts *o, struct ckpt_err *err)
{
    char self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    struct start s = {.program = self, .argv = o->argv, .mask = o->mask, .n = o->n,
                      .first = o->place ? o->place->first : 0, .all_here = !o->place,
                      .shared = -1, .parent = getpid()};
    int rc, why = 0;

    *l = (struct launch){.n = o->n, .shared = -1};
    if (len <= 0)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "/proc/self/exe");
    self[len] = '\0';
    l->rank = ckpt_alloc((size_t)o->n, sizeof *l->rank);
    if (!l->rank)
        return ckpt_nomem(err, (size_t)o->n * sizeof *l->rank);
    for (int64_t i = 0; i < o->n; i++)
        l->rank[i].control = -1;
    if ((rc = hold_memory(l, &s, o, err)) != 0 || (rc = hold_store(l, &s, o, err)) != 0)
        return rc;
    prctl(PR_SET_CHILD_SUBREAPER, 1);   /* what a rank leaves becomes ours, to be ended */
    for (; s.rank < o->n && why == 0; s.rank++)
        why = start_rank(&l->rank[s.rank], &s);
    ckpt_free(s.env.all);
    return why ? ckpt_fail_errno(err, CKPT_EDEVICE, why, "rank %lld of %lld: %s",
                                 (long long)(s.first + s.rank) - 1, (long long)o->n, self) : 0;
}

void launch_look(struct launch *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        struct launch_rank *r = &l->rank[i];

        if (r->pid && !r->ended && waitpid(r->pid, &r->status, WNOHANG) == r->pid)
            r->ended = true;
    }
}

/* Whether a process is of a rank's session: one that left it, such as a hook, ends by itself. */
static bool is_ours(const struct launch *l, pid_t pid)
{
    pid_t session = getsid(pid);

    for (int64_t i = 0; i < l->n; i++)
        if (l->rank[i].pid && (l->rank[i].pid == session || l->rank[i].pid == pid))
            return true;
    return false;
}

/* Send a signal to every child of this process that is a rank or is left by one; how many there
 * are. */
static int signal_children(const struct launch *l, int sig)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int count = 0;

    while (d && (e = readdir(d))) {
        char path[300], text[512] = "", *tail;
        long pid = strtol(e->d_name, &tail, 10), parent = 0;
        FILE *f = NULL;

        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        if (*tail == '\0' && pid > 1)
            f = fopen(path, "re");
        if (!f)
            continue;
        if (fgets(text, sizeof text, f) && (tail = strrchr(text, ')')) && strlen(tail) > 4)
            parent = strtol(tail + 4, NULL, 10);
        fclose(f);
        if (parent == getpid() && is_ours(l, (pid_t)pid)) {
            kill((pid_t)pid, sig);
            count++;
        }
    }
    if (d)
        closedir(d);
    return count;
}

void launch_end(struct launch *l)
{
    const struct timespec a_while = {.tv_nsec = 10000000};

    /* Whoever lost its parent became a child of this process, and whose parent goes now does. */
    for (int i = 0; i < 200 && l->rank && signal_children(l, SIGKILL) > 0; i++) {
        launch_look(l);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        nanosleep(&a_while, NULL);
    }
    for (int64_t i = 0; l->rank && i < l->n; i++)
        if (l->rank[i].control >= 0)
            close(l->rank[i].control);
    if (l->shared > 0)
        close(l->shared);
    store_server_close(l->store);
    ckpt_free(l->rank);
    *l = (struct launch){0};
}

int launch_gpus(int64_t *n, struct ckpt_err *err)
{
    int result[2], count = -1;
    pid_t pid;

    *n = 0;
    if (pipe2(result, O_CLOEXEC))
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a pipe");
    pid = fork();
    if (pid == 0) {
        count = device_gpu_count();
        _exit(write(result[1], &count, sizeof count) == (ssize_t)sizeof count ? 0 : 1);
    }
    close(result[1]);
    if (pid < 0) {
        close(result[0]);
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a process");
    }
    while (read(result[0], &count, sizeof count) < 0 && errno == EINTR)
        ;
    close(result[0]);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (count < 0)
        return ckpt_fail(err, CKPT_EDEVICE, "the GPUs of this host cannot be counted: the driver "
                         "ended the process");
    *n = count;
    return 0;
}

int launch_count(int64_t *n, bool all, const char *device, bool *on_gpus, struct ckpt_err *err)
{
    bool cuda = device && strcmp(device, "cuda") == 0;
    int64_t gpus;
    int rc;

    if (all && device && strncmp(device, "auto", 4) != 0 && !cuda)
        return ckpt_fail(err, CKPT_ECONFIG, "`nproc gpu` gives each rank a GPU, but there is "
                         "`device %s`", device);
    if (!all && (*n < 2 || !cuda))
        return 0;
    if ((rc = launch_gpus(&gpus, err)) != 0)
        return rc;
    if (gpus == 0) {
        ckpt_fail(err, CKPT_EDEVICE, "`%s`: no GPU can be used here",
                  all ? "nproc gpu" : "device cuda");
        return ckpt_err_hint(err, "`device cuda` with one rank says why; `device cpu` needs none");
    }
    if (!all && *n > gpus) {
        ckpt_fail(err, CKPT_ECONFIG, "`nproc %lld` with `device cuda`: this host has %lld GPU%s",
                  (long long)*n, (long long)gpus, gpus == 1 ? "" : "s");
        return ckpt_err_hint(err, "a rank needs a GPU of its own: `nproc gpu`, or `device cpu`");
    }
    *n = all ? gpus : *n;
    *on_gpus = true;
    return 0;
}
