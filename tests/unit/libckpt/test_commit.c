/*
 * commit: a file is complete under its final name, or nothing is there.  The whole group runs
 * twice, the second time on a kernel that lacks renameat2, copy_file_range and fallocate.
 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "libckpt/commit.h"
#include "libckpt/io/commit_sys.h"
#include "tests/unit/poor.h"

TEST_ERR(a_file_appears_at_commit)
{
    const char *d = scratch("commit");
    struct ckpt_out *o;
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, file_in(p, d, "f"), 0, err), 0);
    assert_int_equal(ckpt_out_reserve(o, 6, err), 0);
    assert_int_equal(ckpt_out_write_at(o, "def", 3, 3, err), 0);
    assert_int_equal(ckpt_out_write(o, "abc", 3, err), 0);
    assert_int_not_equal(stat(p, &st), 0);
    assert_int_equal(ckpt_out_commit(o, err), 0);
    file_holds(p, "abcdef");
    assert_int_equal(entries(d), 1);
    assert_int_equal(ckpt_out_create(&o, p, 0, err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, err), 0);
    assert_int_equal(ckpt_out_write(o, "new", 3, err), 0);
    ckpt_out_abort(o);
    file_holds(p, "abcdef");
    assert_int_equal(entries(d), 1);
    assert_int_equal(ckpt_out_put(p, "new", 3, err), 0);
    file_holds(p, "new");
    assert_int_equal(entries(d), 1);
}

/* Both say the same, before and after. */
TEST_ERR(what_a_creation_meets_is_told_beforehand)
{
    static const struct { const char *name; unsigned flags; } rows[] = {
        {"new", 0}, {"file", 0}, {"file", CKPT_REPLACE}, {"dir", CKPT_REPLACE}, {"fifo", 0},
        {"fifo", CKPT_REPLACE}, {"no/new", 0}, {"file/new", 0}, {"..", 0},
    };
    const char *d = scratch("ready");
    struct ckpt_outdir *dir;
    struct ckpt_out *o;
    char p[600];

    file_put(d, "file", "x");
    assert_int_equal(mkdir(file_in(p, d, "dir"), 0777), 0);
    assert_int_equal(mkfifo(file_in(p, d, "fifo"), 0666), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ckpt_err ready = {0}, met = {0};
        int rc = ckpt_out_ready(file_in(p, d, rows[i].name), rows[i].flags, &ready);

        assert_int_equal(entries(d), 3);
        assert_int_equal(ckpt_out_create(&o, p, rows[i].flags, &met), rc);
        assert_string_equal(ready.text, met.text);
        ckpt_out_abort(o);
        ready = met = (struct ckpt_err){0};
        rc = ckpt_outdir_ready(p, &ready);
        assert_int_equal(entries(d), 3);
        assert_int_equal(ckpt_outdir_create(&dir, p, &met), rc);
        assert_string_equal(ready.text, met.text);
        ckpt_outdir_abort(dir);
    }
    assert_int_equal(ckpt_out_ready("hf://a/b", 0, err), CKPT_EUSAGE);
}

/* From 64 MiB on whole pages may go past the cache: bytes are where they belong all the same. */
TEST_ERR(large_files_take_any_range)
{
    static const struct { uint64_t at; size_t skip, n; } rows[] = {
        {0, 0, 1 << 20},             {(1 << 20) + 4096, 0, 300000}, {1500001, 1, 200000},
        {1800000, 1824, 700001},     {2600000, 5, 600},             {2700000, 3360, 1 << 20},
        {((uint64_t)64 << 20) - 5, 0, 400000},
    };
    const char *d = scratch("large");
    unsigned char *p = aligned_alloc(4096, 2 << 20), *found = malloc(2 << 20);
    struct ckpt_file *f;
    struct ckpt_out *o;
    char path[600];

    for (size_t i = 0; i < 2 << 20; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(ckpt_out_create(&o, file_in(path, d, "f"), 0, err), 0);
    assert_int_equal(ckpt_out_reserve(o, (uint64_t)64 << 20, err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ckpt_out_write_at(o, p + rows[i].skip, rows[i].n, rows[i].at, err), 0);
    assert_int_equal(ckpt_out_commit(o, err), 0);
    assert_int_equal(ckpt_file_open(&f, path, 0, err), 0);
    assert_int_equal(ckpt_file_size(f), rows[6].at + rows[6].n);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ckpt_file_read_at(f, found, rows[i].n, rows[i].at, err), 0);
        assert_int_equal(memcmp(found, p + rows[i].skip, rows[i].n), 0);
    }
    ckpt_file_close(f);
    unlink(path);
    free(found);
    free(p);
}

TEST_ERR(reserved_bytes_are_there)
{
    const char *d = scratch("reserve");
    struct ckpt_out *o;
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, file_in(p, d, "f"), 0, err), 0);
    assert_int_equal(ckpt_out_reserve(o, 0, err), 0);
    assert_int_equal(ckpt_out_reserve(o, 100000, err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, err), 0);
    assert_int_equal(ckpt_out_commit(o, err), 0);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_size, 100000);
}

TEST_ERR(no_room_is_told_as_such)
{
    const char *d = scratch("room");
    struct rlimit was, low;
    struct ckpt_out *o;
    char p[600];

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    low = was;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(ckpt_out_create(&o, file_in(p, d, "f"), 0, err), 0);
    assert_int_equal(ckpt_out_reserve(o, 8192, err), CKPT_EIO);
    assert_string_equal(err->reason, "no-space");
    assert_int_equal(ckpt_out_reserve(o, UINT64_MAX, err), CKPT_EIO);
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, 4095, err), CKPT_EIO);
    assert_string_equal(err->reason, "no-space");
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, UINT64_MAX, err), CKPT_EIO);
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, INT64_MAX, err), CKPT_EIO);
    ckpt_out_abort(o);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(entries(d), 0);
}

TEST_ERR(nobody_is_replaced_unasked)
{
    const char *d = scratch("race");
    struct ckpt_out *o;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, file_in(p, d, "f"), 0, err), 0);
    file_put(d, "f", "theirs");         /* somebody else was faster */
    assert_int_equal(ckpt_out_commit(o, err), CKPT_ECREATE);
    file_holds(p, "theirs");
    assert_int_equal(entries(d), 1);
}

TEST_ERR(only_files_are_replaced)
{
    const char *d = scratch("kinds");
    struct ckpt_out *o;
    struct stat st;
    char p[600], q[600];

    assert_int_equal(mkfifo(file_in(p, d, "fifo"), 0600), 0);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, "/dev/null", CKPT_REPLACE, err), CKPT_ECREATE);
    assert_int_equal(symlink("/dev/null", file_in(p, d, "null")), 0);        /* as /dev/stdout is */
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, err), CKPT_ECREATE);
    assert_int_equal(mkdir(file_in(p, d, "dir"), 0777), 0);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, p, 0, err), CKPT_ECREATE);
    file_put(d, "target", "old");
    assert_int_equal(symlink("target", file_in(p, d, "link")), 0);
    assert_int_equal(ckpt_out_create(&o, p, 0, err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_put(p, "new", 3, err), 0);      /* the link itself goes */
    assert_int_equal(lstat(p, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    file_holds(file_in(q, d, "target"), "old");
}

TEST_ERR(names_that_cannot_be)
{
    static const char *const bad[] = {"", "/", ".", "..", "build/..", "build/.", "absent/f", "//"};
    struct ckpt_out *o;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ckpt_err_clear(err);
        assert_int_equal(ckpt_out_create(&o, bad[i], 0, err), CKPT_ECREATE);
        assert_null(o);
        assert_int_not_equal(err->text[0], 0);
    }
}

TEST_ERR(long_names)
{
    const char *d = scratch("long");
    char name[300], p[600];
    struct ckpt_out *o;

    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_int_equal(ckpt_out_put(file_in(p, d, name), "long", 4, err), 0);
    file_holds(p, "long");
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(ckpt_out_create(&o, file_in(p, d, name), 0, err), CKPT_ECREATE);
    assert_int_equal(entries(d), 1);
}

TEST_ERR(mode_is_the_umasks)
{
    const char *d = scratch("mode");
    mode_t was = umask(027);
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_put(file_in(p, d, "f"), "x", 1, err), 0);
    umask(was);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
}

/* What a process leaves that dies between create and commit: how many entries stay? */
static void die_while_writing(const char *path)
{
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (ckpt_out_create(&o, path, CKPT_REPLACE, &err) || ckpt_out_write(o, "x", 1, &err))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

TEST_ERR(leftovers_of_dead_runs_go)
{
    const char *d = scratch("left");
    struct ckpt_out *a, *b;
    char p[600], q[600];

    die_while_writing(file_in(p, d, "f"));
    assert_int_equal(entries(d), 1);
    die_while_writing(file_in(q, d, "f2"));                  /* of another name: stays */
    assert_int_equal(entries(d), 2);
    file_put(d, ".f.0123456789abcde.tmp", "");         /* not ours: a digit short */
    file_put(d, ".f.0123456789abcdeF.tmp", "");
    assert_int_equal(ckpt_out_create(&a, p, 0, err), 0);
    assert_int_equal(entries(d), 4);                    /* f's is gone, a's is there */
    assert_int_equal(ckpt_out_create(&b, p, 0, err), 0);
    assert_int_equal(entries(d), 5);                    /* a lives */
    assert_int_equal(ckpt_out_write(a, "a", 1, err), 0);
    assert_int_equal(ckpt_out_commit(a, err), 0);
    assert_int_equal(ckpt_out_commit(b, err), CKPT_ECREATE);
    file_holds(p, "a");
}

TEST(without_locks_nothing_is_cleaned)
{
    const char *d = scratch("nolock");
    char p[600];
    pid_t child;
    int status;

    die_while_writing(file_in(p, d, "f"));
    child = fork();
    if (child == 0) {
        struct ckpt_err err = {0};

        if (!poor_locks())
            _exit(77);
        _exit(ckpt_out_put(p, "x", 1, &err) != 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
    file_holds(p, "x");
    assert_int_equal(entries(d), 2);
}

#define BIG 300000u

TEST_ERR(copy_between_files)
{
    const char *d = scratch("copy");
    static unsigned char bytes[BIG], bounce[4096];
    struct ckpt_file *f, *w, *m, *back;
    struct ckpt_out *o;
    char p[600], q[600];

    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    assert_int_equal(ckpt_out_put(file_in(p, d, "a"), bytes, BIG, err), 0);
    assert_int_equal(ckpt_file_open(&f, p, 0, err), 0);
    assert_int_equal(ckpt_file_window(&w, f, 1000, 2000, "w", err), 0);
    assert_int_equal(ckpt_file_memory(&m, "0123456789", 10, "m", err), 0);
    assert_int_equal(ckpt_out_create(&o, file_in(q, d, "b"), 0, err), 0);
    assert_int_equal(ckpt_out_copy(o, 10, f, 0, BIG, bounce, sizeof bounce, err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, m, 0, 10, bounce, 3, err), 0);
    assert_int_equal(ckpt_out_copy(o, 20, w, 7, 1993, bounce, 1, err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, f, 5, 0, NULL, 0, err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, w, 5, 1996, bounce, 9, err), CKPT_EFORMAT);
    assert_int_equal(ckpt_out_copy(o, 0, w, UINT64_MAX, 2, bounce, 9, err), CKPT_EFORMAT);
    assert_int_equal(ckpt_out_copy(o, INT64_MAX, m, 0, 9, bounce, 9, err), CKPT_EIO);
    assert_int_equal(ckpt_out_copy(o, 0, m, 0, 9, NULL, 0, err), CKPT_ESTATE);
    assert_false(ckpt_out_would_replace(o, f));
    assert_int_equal(ckpt_out_commit(o, err), 0);
    assert_int_equal(ckpt_file_open(&back, q, 0, err), 0);
    assert_int_equal(ckpt_file_size(back), BIG + 10);
    assert_int_equal(ckpt_file_read_at(back, bounce, 4096, 0, err), 0);
    assert_memory_equal(bounce, "0123456789", 10);
    assert_memory_equal(bounce + 10, bytes, 10);
    assert_memory_equal(bounce + 20, bytes + 1007, 1993);
    assert_memory_equal(bounce + 2013, bytes + 2003, 4096 - 2013);
    for (uint64_t at = 4096; at + 4096 <= BIG; at += 4096) {
        assert_int_equal(ckpt_file_read_at(back, bounce, 4096, at + 10, err), 0);
        assert_memory_equal(bounce, bytes + at, 4096);
    }
    ckpt_file_close(back);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, err), 0);
    assert_true(ckpt_out_would_replace(o, f));
    assert_true(ckpt_out_would_replace(o, w));
    assert_false(ckpt_out_would_replace(o, m));
    ckpt_out_abort(o);
    ckpt_file_close(m);
    ckpt_file_close(w);
    ckpt_file_close(f);
}

struct reader {
    int    fd;
    size_t got;
};

static void *read_slowly(void *arg)
{
    struct reader *r = arg;
    char bytes[1000];
    ssize_t n;

    usleep(20000);                      /* the pipe is full by now */
    while ((n = read(r->fd, bytes, sizeof bytes)) > 0)
        r->got += (size_t)n;
    return NULL;
}

TEST_ERR(streams)
{
    static const char bytes[BIG];
    struct ckpt_out *o;
    struct reader r = {0};
    pthread_t thread;
    int fd[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(fcntl(fd[1], F_SETFL, O_NONBLOCK), 0);
    r.fd = fd[0];
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &r), 0);
    assert_int_equal(ckpt_out_stream(&o, fd[1], "stdout", err), 0);
    assert_true(ckpt_out_is_stream(o));
    assert_int_equal(ckpt_out_reserve(o, 1, err), 0);
    assert_int_equal(ckpt_out_write_at(o, "x", 1, 0, err), CKPT_ESTATE);
    assert_int_equal(ckpt_out_write(o, bytes, BIG, err), 0);
    assert_int_equal(ckpt_out_commit(o, err), 0);
    assert_int_equal(close(fd[1]), 0);          /* it was borrowed */
    pthread_join(thread, NULL);
    assert_int_equal(r.got, BIG);
    close(fd[0]);

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    close(fd[0]);
    assert_int_equal(ckpt_out_stream(&o, fd[1], "stdout", err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, err), CKPT_EIO);
    ckpt_out_abort(o);
    close(fd[1]);
}

TEST_ERR(a_full_device_is_no_space)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct ckpt_out *o;

    if (fd < 0)
        skip();
    assert_int_equal(ckpt_out_stream(&o, fd, "stdout", err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, err), CKPT_EIO);
    assert_string_equal(err->reason, "no-space");
    ckpt_out_abort(o);
    close(fd);
}

/* Offer the file at path, open as fd, for an output beside it. */
static bool adopts(const char *d, const char *path, int fd, struct ckpt_err *err)
{
    struct ckpt_out *o;
    char p[600];
    bool adopted;

    assert_int_equal(ckpt_out_create(&o, file_in(p, d, "f"), CKPT_REPLACE, err), 0);
    adopted = commit_adopt(o, path, fd);
    if (adopted)
        assert_int_equal(ckpt_out_commit(o, err), 0);
    else
        ckpt_out_abort(o);
    return adopted;
}

TEST_ERR(a_file_that_nobody_else_uses_becomes_the_output)
{
    const char *d = scratch("adopt");
    char p[600], q[600], other[600];
    int fd, also;
    struct stat st;

    file_in(p, d, "f");
    file_in(other, d, "other");
    assert_int_equal(ckpt_out_put(file_in(q, d, "q"), "whole", 5, err), 0);
    assert_int_equal(chmod(q, 0600), 0);
    fd = open(q, O_RDONLY | O_CLOEXEC);
    assert_int_equal(link(q, other), 0);
    assert_false(adopts(d, q, fd, err));        /* it has another name */
    assert_int_equal(unlink(other), 0);
    also = open(q, O_RDONLY | O_CLOEXEC);
    assert_false(adopts(d, q, fd, err));        /* somebody may still read it */
    close(also);
    assert_int_equal(ckpt_out_put(other, "other", 5, err), 0);
    assert_false(adopts(d, other, fd, err));    /* it is not at that path */
    file_holds(q, "whole");
    assert_int_equal(entries(d), 2);
    if (fcntl(fd, F_SETLEASE, F_WRLCK))
        skip();                                 /* no leases here: nothing is adopted */
    assert_int_equal(fcntl(fd, F_SETLEASE, F_UNLCK), 0);
    assert_true(adopts(d, q, fd, err));
    file_holds(p, "whole");
    assert_int_equal(entries(d), 2);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 0777 & ~0666u, 0);
    assert_true(st.st_mode & 0440);             /* as new files are, not as it was */
    close(fd);
}

AGAIN(the_kernel_is_poor_now) { poor_kernel_or_skip(); }
