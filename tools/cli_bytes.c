/* cli_bytes - see cli_bytes.h. */
#include "tools/cli_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/io/archive.h"
#include "libckpt/io/spool.h"
#include "tools/cli.h"

/* Whether the first bytes are those of a single-file checkpoint; all of these contain a NUL. */
static bool is_format(const unsigned char *h, size_t n)
{
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a};

    if (n >= 9 && h[8] == '{' && h[6] == 0 && h[7] == 0 && h[0] + h[1] + h[2] > 0)
        return true;                            /* safetensors */
    return (n >= 8 && memcmp(h, "GGUF", 4) == 0 && h[7] == 0) ||
           (n >= 4 && memcmp(h, legacy, 4) == 0);
}

static bool is_bytes(const unsigned char *h, size_t n)
{
    return ckpt_spool_is_compressed(h, n) || ckpt_archive_is_tar(h, n) || is_format(h, n) ||
           (n >= 4 && memcmp(h, "PK\3\4", 4) == 0);
}

/*
 * Whether more bytes cannot change the answer: text without a NUL, or with -0 a path that ends in
 * one.  Two NULs in a row end no path, and a program that writes an archive writes its first
 * block at once.
 */
static bool is_enough(const unsigned char *h, size_t n, int end)
{
    const unsigned char *nul = memchr(h, 0, n);

    if (n == CLI_HEAD)
        return true;
    if (!nul)
        return (n > 10 && h[0] >= ' ') || memchr(h, '\n', n);
    return end == 0 && !memmem(h, n, "\0", 2);
}

int cli_look(unsigned char head[CLI_HEAD], size_t *n, int end, bool *bytes, struct ckpt_err *err)
{
    struct stat st;
    bool again = fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode) &&
                 lseek(STDIN_FILENO, 0, SEEK_CUR) == 0;
    ssize_t got = 1;

    *n = 0;
    while (got > 0 && !is_enough(head, *n, end) && !is_bytes(head, *n)) {
        got = again ? pread(STDIN_FILENO, head + *n, CLI_HEAD - *n, (off_t)*n)
                    : read(STDIN_FILENO, head + *n, CLI_HEAD - *n);
        if (got < 0 && errno == EINTR && cli_stop)
            return ckpt_fail(err, CKPT_ESTOPPED, "stopped by SIG%s before all was done",
                             sigabbrev_np(cli_stop));
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            return ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
        else
            *n += (size_t)got;
    }
    *bytes = is_bytes(head, *n);
    if (again)
        *n = 0;
    return 0;
}

int cli_settle(const unsigned char *head, size_t n, struct ckpt_err *err)
{
    struct ckpt_spool how = {.name = "standard input", .where = cli_spool(), .before = head,
                             .n_before = n, .stop = &cli_stop};
    struct ckpt_file *file;
    uint64_t base;
    int fd, rc;

    if ((rc = ckpt_spool_fd(&file, STDIN_FILENO, &how, err)) != 0)
        return rc;
    fd = ckpt_file_fd(file, &base);
    if (lseek(fd, 0, SEEK_SET) || dup2(fd, STDIN_FILENO) < 0)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "standard input");
    ckpt_file_close(file);
    return rc;
}
