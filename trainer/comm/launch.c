/* launch - see launch.h. */
#include "trainer/comm/launch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/mem.h"

static void pause_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
}

static int draw(char *digits, size_t n, struct ckpt_err *err)
{
    unsigned char bits[CONTROL_WORD / 2];

    if (getrandom(bits, n / 2, 0) != (ssize_t)(n / 2))
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "random bytes");
    for (size_t i = 0; i < n / 2; i++)
        snprintf(digits + 2 * i, 3, "%02x", bits[i]);
    return 0;
}

/* In memory where that is possible: MPI maps files of its own there. */
static int make_dir(struct launch *l, struct ckpt_err *err)
{
    const char *tmp = getenv("TMPDIR");
    const char *const in[] = {"/dev/shm", tmp && strlen(tmp) < 32 ? tmp : "/tmp", "/tmp"};
    char name[17];
    int rc;

    if ((rc = draw(name, sizeof name - 1, err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        snprintf(l->dir, sizeof l->dir, "%s/ckpt-%s", in[i], name);
        if (mkdir(l->dir, 0700) == 0)
            return 0;
    }
    l->dir[0] = '\0';
    return ckpt_fail_errno(err, CKPT_ECREATE, errno, "a directory in /dev/shm or /tmp");
}

static int listen_there(struct launch *l, struct ckpt_err *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int rc;

    if ((rc = draw(l->word, CONTROL_WORD, err)) != 0)
        return rc;
    snprintf(at.sun_path, sizeof at.sun_path, "%s/control", l->dir);
    l->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->listener < 0 || bind(l->listener, (struct sockaddr *)&at, sizeof at) ||
        listen(l->listener, 4096))
        return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", at.sun_path);
    return 0;
}

/* What mpirun and the ranks read. */
static int set_environment(const struct launch *l)
{
    char control[128];
    int rc;

    snprintf(control, sizeof control, "%s:%s/control", l->word, l->dir);
    rc = setenv(CONTROL_ENV, control, 1);
    if (geteuid() == 0) {               /* Open MPI refuses root without both */
        rc |= setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        rc |= setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    rc |= setenv("OPENBLAS_NUM_THREADS", "1", 1);   /* ranks use none of its own threads */
    /* CMA fails in containers */
    rc |= setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    rc |= setenv("OMPI_MCA_orte_tmpdir_base", l->dir, 1);
    rc |= setenv("OMPI_MCA_btl_vader_backing_directory", l->dir, 1);
    return rc;
}

/* In the child: a session of its own, which dies with the supervisor. */
static void become(const struct launch *l, const char *const *args, const sigset_t *mask, int out,
                   int failed, pid_t parent)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), why;

    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)            /* it died before that */
        _exit(0);
    if (set_environment(l) == 0 && null >= 0 && dup2(null, 0) == 0 && dup2(out, 1) == 1 &&
        dup2(out, 2) == 2 && sigprocmask(SIG_SETMASK, mask, NULL) == 0)
        execvp(args[0], (char *const *)args);
    why = errno;
    if (write(failed, &why, sizeof why) < 0)
        _exit(1);
    _exit(127);
}

/* Returns the errno of a program that cannot be started, else 0. */
static int start(struct launch *l, const char *const *args, const sigset_t *mask)
{
    pid_t parent = getpid();
    int out[2], failed[2], why = 0;

    if (pipe2(out, O_CLOEXEC))
        return errno;
    if (pipe2(failed, O_CLOEXEC)) {
        why = errno;
        close(out[0]);
        close(out[1]);
        return why;
    }
    l->output = out[0];
    l->pid = fork();
    if (l->pid == 0)
        become(l, args, mask, out[1], failed[1], parent);
    why = l->pid < 0 ? errno : 0;
    close(out[1]);
    close(failed[1]);
    while (why == 0 && read(failed[0], &why, sizeof why) < 0 && errno == EINTR)
        ;
    close(failed[0]);
    fcntl(l->output, F_SETFL, O_NONBLOCK);
    return why;
}

/* MPI's segments in shared memory are files: under a smaller limit ranks die or hang in its start,
 * which says nothing that helps. */
static int check_file_size(struct ckpt_err *err)
{
    const rlim_t least = (rlim_t)4 << 20;
    struct rlimit most;

    if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur == RLIM_INFINITY || most.rlim_cur >= least)
        return 0;
    ckpt_fail(err, CKPT_ECREATE, "ulimit -f allows files of %llu bytes, Open MPI needs %llu for "
              "ranks of one host", (unsigned long long)most.rlim_cur, (unsigned long long)least);
    return ckpt_err_hint(err, "raise ulimit -f, or use one rank (`nproc 1`)");
}

int launch_start(struct launch *l, int64_t n, char **argv, const sigset_t *mask,
                 struct ckpt_err *err)
{
    static const char *const before[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "-np"};
    const size_t k = sizeof before / sizeof before[0];
    const char **args;
    char count[32], self[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    size_t argc = 0;
    int why, rc;

    *l = (struct launch){.listener = -1, .output = -1, .pid = -1, .ended = true};
    if (len <= 0)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "/proc/self/exe");
    self[len] = '\0';
    if ((rc = check_file_size(err)) != 0 || (rc = make_dir(l, err)) != 0 ||
        (rc = listen_there(l, err)) != 0)
        return rc;
    while (argv[argc])
        argc++;
    args = ckpt_alloc(argc + k + 2, sizeof *args);
    if (!args)
        return ckpt_nomem(err, (argc + k + 2) * sizeof *args);
    snprintf(count, sizeof count, "%lld", (long long)n);
    memcpy(args, before, sizeof before);
    args[k] = count;
    args[k + 1] = self;
    memcpy(args + k + 2, argv + 1, argc * sizeof *argv);        /* the NULL too */
    prctl(PR_SET_CHILD_SUBREAPER, 1);   /* what mpirun leaves becomes ours, to be ended */
    why = start(l, args, mask);
    ckpt_free(args);
    l->ended = l->pid < 0;
    if (why == 0)
        return 0;
    ckpt_fail_errno(err, CKPT_EDEVICE, why, "mpirun");
    return ckpt_err_hint(err, "`nproc` needs Open MPI's mpirun (package openmpi-bin)");
}

void launch_look(struct launch *l)
{
    char more[1024];
    ssize_t n;

    while (l->output >= 0 && (n = read(l->output, more, sizeof more)) != 0) {
        size_t most = sizeof l->said - 1 - l->n_said;

        if (n < 0)
            break;
        memcpy(l->said + l->n_said, more, (size_t)n < most ? (size_t)n : most);
        l->n_said += (size_t)n < most ? (size_t)n : most;
    }
    if (!l->ended && waitpid(l->pid, &l->status, WNOHANG) == l->pid)
        l->ended = true;
}

void launch_quote(const struct launch *l, char *out, size_t size)
{
    const char *at = l->said;

    *out = '\0';
    while (*at && !*out) {
        size_t n = strcspn(at, "\n");

        for (size_t i = 0; i < n && !*out; i++)
            if (isalnum((unsigned char)at[i]))
                snprintf(out, size, "%.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* Send a signal to every child of this process; how many there are. */
static int signal_children(int sig)
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
        if (parent == getpid()) {
            kill((pid_t)pid, sig);
            count++;
        }
    }
    if (d)
        closedir(d);
    return count;
}

/* Whether mpirun ended within so long. */
static bool wait_ended(struct launch *l, int ms)
{
    for (; ms > 0 && !l->ended; ms -= 20) {
        launch_look(l);
        if (!l->ended)
            pause_ms(20);
    }
    return l->ended;
}

void launch_end(struct launch *l)
{
    struct ckpt_err unused = {0};

    if (!l->ended) {                    /* mpirun removes what it made when it is asked to end */
        kill(l->pid, SIGTERM);
        kill(l->pid, SIGCONT);
        if (!wait_ended(l, 1000)) {
            kill(-l->pid, SIGKILL);
            kill(l->pid, SIGKILL);
            wait_ended(l, 1000);
        }
    }
    /* Whoever lost its parent became a child of this process, and whose parent goes now does. */
    for (int i = 0; i < 50 && signal_children(SIGKILL) > 0; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        pause_ms(10);
    }
    if (l->listener >= 0)
        close(l->listener);
    if (l->output >= 0)
        close(l->output);
    if (l->dir[0])
        ckpt_outdir_remove(l->dir, &unused);
    *l = (struct launch){.listener = -1, .output = -1, .pid = -1, .ended = true};
}
