/*
 * poor - a kernel and file systems that lack what we like to use, made by a system call filter:
 * no openat2, no rename without replacing, no copy inside the kernel, no reservation.  For the
 * rest of the process.
 */
#ifndef CKPT_TESTS_UNIT_POOR_H
#define CKPT_TESTS_UNIT_POOR_H

#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define POOR_CALL(nr, answer) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (answer))

/* False when the system does not let us filter. */
static inline bool poor_kernel(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        POOR_CALL(SYS_openat2, ENOSYS),
        POOR_CALL(SYS_copy_file_range, EXDEV),
        POOR_CALL(SYS_fallocate, EOPNOTSUPP),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[4])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),           /* without flags it may pass */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* As poor_kernel, which works from then on, or the test is skipped. */
static inline void poor_kernel_or_skip(void)
{
    if (!poor_kernel())
        skip();
    assert_int_equal(renameat2(AT_FDCWD, "absent", AT_FDCWD, "x", RENAME_NOREPLACE), -1);
    assert_int_equal(errno, EINVAL);
}

/* The same for flock alone: a file system without locks. */
static inline bool poor_locks(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        POOR_CALL(SYS_flock, ENOLCK),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif
