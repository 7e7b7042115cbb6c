/*
 * kill_at - run a program, and kill it at its n-th system call that touches a folder:
 *
 *     kill_at [-1] [-l LOG] N FOLDER COMMAND [ARGUMENT ...]
 *
 * Counted are calls of all its processes and threads that open, create, write, sync, lock, rename
 * or remove something in FOLDER, and writes to standard output, from 1 on.  The process dies before
 * the call is run, and with it all others that it started or that started it; with -1 it alone.  A
 * line of LOG is the call; with N 0 nothing is killed, and each call is a line.
 *
 * The exit status is the command's, or 137 when the call was reached.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_PROCESSES 4096

enum at { FD, PATH, PATH_AT };  /* what the argument of a call is */

struct call {
    const char *name;
    int         nr;
    enum at     at;
    int         arg;            /* of the descriptor or the folder's; a path follows the latter */
};

#define CALL(name, at, arg) {#name, SYS_##name, at, arg}
static const struct call calls[] = {
    CALL(open, PATH, 0), CALL(openat, PATH_AT, 0), CALL(openat2, PATH_AT, 0),
    CALL(creat, PATH, 0), CALL(mkdir, PATH, 0), CALL(mkdirat, PATH_AT, 0),
    CALL(rmdir, PATH, 0), CALL(unlink, PATH, 0), CALL(unlinkat, PATH_AT, 0),
    CALL(rename, PATH, 0), CALL(renameat, PATH_AT, 0), CALL(renameat2, PATH_AT, 0),
    CALL(link, PATH, 1), CALL(linkat, PATH_AT, 2), CALL(symlink, PATH, 1),
    CALL(symlinkat, PATH_AT, 1), CALL(truncate, PATH, 0), CALL(ftruncate, FD, 0),
    CALL(fallocate, FD, 0), CALL(write, FD, 0), CALL(writev, FD, 0), CALL(pwrite64, FD, 0),
    CALL(pwritev, FD, 0), CALL(pwritev2, FD, 0), CALL(sendfile, FD, 0),
    CALL(copy_file_range, FD, 2), CALL(fsync, FD, 0), CALL(fdatasync, FD, 0),
    CALL(sync_file_range, FD, 0), CALL(flock, FD, 0), CALL(chmod, PATH, 0),
    CALL(fchmod, FD, 0), CALL(fchmodat, PATH_AT, 0), CALL(utimensat, PATH_AT, 0),
    CALL(setxattr, PATH, 0), CALL(fsetxattr, FD, 0),
};
#define N_CALLS (sizeof calls / sizeof calls[0])

static char folder[4096];
static FILE *logfile;
static pid_t process[MAX_PROCESSES];    /* [n_process] seen */
static size_t n_process;

static void die(const char *what)
{
    perror(what);
    exit(70);
}

/* -- the child --------------------------------------------------------------------------------- */

/* The kernel stops the child at these calls alone. */
static void filter(void)
{
    struct sock_filter code[N_CALLS + 6];
    struct sock_fprog prog = {.filter = code};
    unsigned short n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                             offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < N_CALLS; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].nr,
                                                 (unsigned char)(N_CALLS - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    prog.len = n;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
        die("seccomp");
}

static void run(char **argv)
{
    if (ptrace(PTRACE_TRACEME, 0, 0, 0))
        die("ptrace");
    raise(SIGSTOP);
    filter();
    execvp(argv[0], argv);
    die(argv[0]);
}

/* -- what a call touches ----------------------------------------------------------------------- */

/* Where /proc/pid/what leads. */
static void follow(char path[4096], pid_t pid, const char *what)
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/%d/%s", (int)pid, what);
    n = readlink(link, path, 4095);
    path[n > 0 ? n : 0] = '\0';
}

static void follow_fd(char path[4096], pid_t pid, int fd)
{
    char what[32];

    snprintf(what, sizeof what, "fd/%d", fd);
    follow(path, pid, fd == AT_FDCWD ? "cwd" : what);
}

static void read_text(char text[4096], pid_t pid, uint64_t at)
{
    size_t n = 0;

    while (n < 4095) {                  /* up to the end of a page, which the next may not follow */
        size_t most = 4096 - (at + n) % 4096, k = most < 4095 - n ? most : 4095 - n;
        struct iovec to = {text + n, k}, from = {(void *)(uintptr_t)(at + n), k};
        ssize_t got = process_vm_readv(pid, &to, 1, &from, 1, 0);

        if (got <= 0)
            break;
        if (memchr(text + n, '\0', (size_t)got))
            return;
        n += (size_t)got;
    }
    text[n] = '\0';
}

static bool is_in_folder(const char *path)
{
    size_t n = strlen(folder);

    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Whether the call that pid is about to make counts; its path. */
static bool touches(char path[8300], pid_t pid, const struct call *c, const uint64_t arg[6])
{
    char dir[4096] = "", text[4096];

    if (c->at == FD) {
        follow_fd(path, pid, (int)arg[c->arg]);
        return is_in_folder(path) || (c->nr == SYS_write && arg[0] == STDOUT_FILENO);
    }
    read_text(text, pid, arg[c->arg + (c->at == PATH_AT)]);
    if (text[0] != '/')
        follow_fd(dir, pid, c->at == PATH ? AT_FDCWD : (int)arg[c->arg]);
    snprintf(path, 8300, "%s%s%s", dir, *dir ? "/" : "", text);
    return is_in_folder(path);
}

/* -- tracing ----------------------------------------------------------------------------------- */

static pid_t process_of(pid_t thread)
{
    char name[64], line[128];
    long tgid = thread;
    FILE *f;

    snprintf(name, sizeof name, "/proc/%d/status", (int)thread);
    if (!(f = fopen(name, "r")))
        return thread;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "Tgid: %ld", &tgid) == 1)
            break;
    fclose(f);
    return (pid_t)tgid;
}

static void know(pid_t pid)
{
    for (size_t i = 0; i < n_process; i++)
        if (process[i] == pid)
            return;
    if (n_process < MAX_PROCESSES)
        process[n_process++] = pid;
}

/* Whether the call is the one: then it has killed. */
static bool strike(pid_t tid, unsigned long n, bool alone)
{
    static unsigned long count;
    struct user_regs_struct r;
    char path[8300];

    if (ptrace(PTRACE_GETREGS, tid, 0, &r))
        return false;
    for (size_t i = 0; i < N_CALLS; i++) {
        const uint64_t arg[6] = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};

        if ((int)r.orig_rax != calls[i].nr || !touches(path, tid, &calls[i], arg))
            continue;
        count++;
        if (logfile && (n == 0 || count == n))
            fprintf(logfile, "%lu %s %s\n", count, calls[i].name, path);
        if (n == 0 || count != n)
            return false;
        for (size_t k = 0; k < n_process && !alone; k++)
            kill(process[k], SIGKILL);
        kill(process_of(tid), SIGKILL);
        return true;
    }
    return false;
}

/* The signal that a stopped thread is to get. */
static long signal_of(int status)
{
    int sig = WSTOPSIG(status);

    return status >> 16 || sig == SIGTRAP || sig == SIGSTOP ? 0 : sig;
}

static int trace(pid_t first, unsigned long n, bool alone)
{
    int status, end = 0;
    bool struck = false;
    pid_t tid;

    while ((tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (tid <= 0)
            continue;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (tid == first)
                end = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            continue;
        }
        know(process_of(tid));
        if (!struck && status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8))
            struck = strike(tid, n, alone);
        ptrace(PTRACE_CONT, tid, 0, signal_of(status));
    }
    return struck ? 137 : end;
}

int main(int argc, char **argv)
{
    static char *const usage = "usage: kill_at [-1] [-l LOG] N FOLDER COMMAND [ARGUMENT ...]\n";
    bool alone = false;
    unsigned long n;
    int c, status;
    pid_t pid;

    while ((c = getopt(argc, argv, "+1l:")) != -1) {
        if (c == '1')
            alone = true;
        else if (c != 'l' || !(logfile = fopen(optarg, "we")))
            return fputs(usage, stderr), 64;
    }
    if (argc - optind < 3)
        return fputs(usage, stderr), 64;
    n = strtoul(argv[optind], NULL, 10);
    if (!realpath(argv[optind + 1], folder))
        die(argv[optind + 1]);
    if ((pid = fork()) == 0)
        run(argv + optind + 2);
    if (pid < 0 || waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE |
               PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL) ||
        ptrace(PTRACE_CONT, pid, 0, 0))
        die("ptrace");
    status = trace(pid, n, alone);
    if (logfile)
        fclose(logfile);
    return status;
}
