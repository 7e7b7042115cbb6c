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
#include "tests/unit/poor.h"

static char *in(char *dst, const char *dir, const char *name)
{
    snprintf(dst, 600, "%s/%s", dir, name);
    return dst;
}

static void assert_content(const char *path, const char *want)
{
    char got[64] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got - 1, f), strlen(want));
    fclose(f);
    assert_string_equal(got, want);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

TEST(a_file_appears_at_commit)
{
    const char *d = scratch("commit");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, in(p, d, "f"), 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(o, 6, &err), 0);
    assert_int_equal(ckpt_out_write_at(o, "def", 3, 3, &err), 0);
    assert_int_equal(ckpt_out_write(o, "abc", 3, &err), 0);
    assert_int_not_equal(stat(p, &st), 0);
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_content(p, "abcdef");
    assert_int_equal(entries(d), 1);
    assert_int_equal(ckpt_out_create(&o, p, 0, &err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), 0);
    assert_int_equal(ckpt_out_write(o, "new", 3, &err), 0);
    ckpt_out_abort(o);
    assert_content(p, "abcdef");
    assert_int_equal(entries(d), 1);
    assert_int_equal(ckpt_out_put(p, "new", 3, &err), 0);
    assert_content(p, "new");
    assert_int_equal(entries(d), 1);
    scratch_remove(d);
}

/* From 64 MiB on whole pages may go past the cache: bytes are where they belong all the same. */
TEST(large_files_take_any_range)
{
    static const struct { uint64_t at; size_t skip, n; } rows[] = {
        {0, 0, 1 << 20},             {(1 << 20) + 4096, 0, 300000}, {1500001, 1, 200000},
        {1800000, 1824, 700001},     {2600000, 5, 600},             {2700000, 3360, 1 << 20},
        {((uint64_t)64 << 20) - 5, 0, 400000},
    };
    const char *d = scratch("large");
    unsigned char *p = aligned_alloc(4096, 2 << 20), *found = malloc(2 << 20);
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_out *o;
    char path[600];

    for (size_t i = 0; i < 2 << 20; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(ckpt_out_create(&o, in(path, d, "f"), 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(o, (uint64_t)64 << 20, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(ckpt_out_write_at(o, p + rows[i].skip, rows[i].n, rows[i].at, &err), 0);
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    assert_int_equal(ckpt_file_size(f), rows[6].at + rows[6].n);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ckpt_file_read_at(f, found, rows[i].n, rows[i].at, &err), 0);
        assert_int_equal(memcmp(found, p + rows[i].skip, rows[i].n), 0);
    }
    ckpt_file_close(f);
    unlink(path);
    free(found);
    free(p);
}

TEST(reserved_bytes_are_there)
{
    const char *d = scratch("reserve");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, in(p, d, "f"), 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(o, 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(o, 100000, &err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, &err), 0);
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_size, 100000);
    scratch_remove(d);
}

TEST(no_room_is_told_as_such)
{
    const char *d = scratch("room");
    struct rlimit was, low;
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    char p[600];

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    low = was;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(ckpt_out_create(&o, in(p, d, "f"), 0, &err), 0);
    assert_int_equal(ckpt_out_reserve(o, 8192, &err), CKPT_EIO);
    assert_string_equal(err.reason, "no-space");
    assert_int_equal(ckpt_out_reserve(o, UINT64_MAX, &err), CKPT_EIO);
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, 4095, &err), CKPT_EIO);
    assert_string_equal(err.reason, "no-space");
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, UINT64_MAX, &err), CKPT_EIO);
    assert_int_equal(ckpt_out_write_at(o, "xy", 2, INT64_MAX, &err), CKPT_EIO);
    ckpt_out_abort(o);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(entries(d), 0);
    scratch_remove(d);
}

TEST(nobody_is_replaced_unasked)
{
    const char *d = scratch("race");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    char p[600];

    assert_int_equal(ckpt_out_create(&o, in(p, d, "f"), 0, &err), 0);
    write_file(p, "theirs");            /* somebody else was faster */
    assert_int_equal(ckpt_out_commit(o, &err), CKPT_ECREATE);
    assert_content(p, "theirs");
    assert_int_equal(entries(d), 1);
    scratch_remove(d);
}

TEST(only_files_are_replaced)
{
    const char *d = scratch("kinds");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    struct stat st;
    char p[600], q[600];

    assert_int_equal(mkfifo(in(p, d, "fifo"), 0600), 0);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, "/dev/null", CKPT_REPLACE, &err), CKPT_ECREATE);
    assert_int_equal(symlink("/dev/null", in(p, d, "null")), 0);        /* as /dev/stdout is */
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), CKPT_ECREATE);
    assert_int_equal(mkdir(in(p, d, "dir"), 0777), 0);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_create(&o, p, 0, &err), CKPT_ECREATE);
    write_file(in(q, d, "target"), "old");
    assert_int_equal(symlink("target", in(p, d, "link")), 0);
    assert_int_equal(ckpt_out_create(&o, p, 0, &err), CKPT_ECREATE);
    assert_int_equal(ckpt_out_put(p, "new", 3, &err), 0);      /* the link itself goes */
    assert_int_equal(lstat(p, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_content(q, "old");
    scratch_remove(d);
}

TEST(names_that_cannot_be)
{
    static const char *const bad[] = {"", "/", ".", "..", "build/..", "build/.", "absent/f", "//"};
    struct ckpt_err err = {0};
    struct ckpt_out *o;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ckpt_err_clear(&err);
        assert_int_equal(ckpt_out_create(&o, bad[i], 0, &err), CKPT_ECREATE);
        assert_null(o);
        assert_int_not_equal(err.text[0], 0);
    }
}

TEST(long_names)
{
    const char *d = scratch("long");
    char name[300], p[600];
    struct ckpt_err err = {0};
    struct ckpt_out *o;

    memset(name, 'n', sizeof name);
    name[255] = '\0';
    assert_int_equal(ckpt_out_put(in(p, d, name), "long", 4, &err), 0);
    assert_content(p, "long");
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal(ckpt_out_create(&o, in(p, d, name), 0, &err), CKPT_ECREATE);
    assert_int_equal(entries(d), 1);
    scratch_remove(d);
}

TEST(mode_is_the_umasks)
{
    const char *d = scratch("mode");
    mode_t was = umask(027);
    struct ckpt_err err = {0};
    struct stat st;
    char p[600];

    assert_int_equal(ckpt_out_put(in(p, d, "f"), "x", 1, &err), 0);
    umask(was);
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    scratch_remove(d);
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

TEST(leftovers_of_dead_runs_go)
{
    const char *d = scratch("left");
    struct ckpt_err err = {0};
    struct ckpt_out *a, *b;
    char p[600], q[600];

    die_while_writing(in(p, d, "f"));
    assert_int_equal(entries(d), 1);
    die_while_writing(in(q, d, "f2"));                  /* of another name: stays */
    assert_int_equal(entries(d), 2);
    write_file(in(q, d, ".f.0123456789abcde.tmp"), "");         /* not ours: a digit short */
    write_file(in(q, d, ".f.0123456789abcdeF.tmp"), "");
    assert_int_equal(ckpt_out_create(&a, p, 0, &err), 0);
    assert_int_equal(entries(d), 4);                    /* f's is gone, a's is there */
    assert_int_equal(ckpt_out_create(&b, p, 0, &err), 0);
    assert_int_equal(entries(d), 5);                    /* a lives */
    assert_int_equal(ckpt_out_write(a, "a", 1, &err), 0);
    assert_int_equal(ckpt_out_commit(a, &err), 0);
    assert_int_equal(ckpt_out_commit(b, &err), CKPT_ECREATE);
    assert_content(p, "a");
    scratch_remove(d);
}

TEST(without_locks_nothing_is_cleaned)
{
    const char *d = scratch("nolock");
    char p[600];
    pid_t child;
    int status;

    die_while_writing(in(p, d, "f"));
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
    assert_content(p, "x");
    assert_int_equal(entries(d), 2);
    scratch_remove(d);
}

#define BIG 300000u

TEST(copy_between_files)
{
    const char *d = scratch("copy");
    static unsigned char bytes[BIG], bounce[4096];
    struct ckpt_err err = {0};
    struct ckpt_file *f, *w, *m, *back;
    struct ckpt_out *o;
    char p[600], q[600];

    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    assert_int_equal(ckpt_out_put(in(p, d, "a"), bytes, BIG, &err), 0);
    assert_int_equal(ckpt_file_open(&f, p, 0, &err), 0);
    assert_int_equal(ckpt_file_window(&w, f, 1000, 2000, "w", &err), 0);
    assert_int_equal(ckpt_file_memory(&m, "0123456789", 10, "m", &err), 0);
    assert_int_equal(ckpt_out_create(&o, in(q, d, "b"), 0, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 10, f, 0, BIG, bounce, sizeof bounce, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, m, 0, 10, bounce, 3, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 20, w, 7, 1993, bounce, 1, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, f, 5, 0, NULL, 0, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, w, 5, 1996, bounce, 9, &err), CKPT_EFORMAT);
    assert_int_equal(ckpt_out_copy(o, 0, w, UINT64_MAX, 2, bounce, 9, &err), CKPT_EFORMAT);
    assert_int_equal(ckpt_out_copy(o, INT64_MAX, m, 0, 9, bounce, 9, &err), CKPT_EIO);
    assert_int_equal(ckpt_out_copy(o, 0, m, 0, 9, NULL, 0, &err), CKPT_ESTATE);
    assert_false(ckpt_out_would_replace(o, f));
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_int_equal(ckpt_file_open(&back, q, 0, &err), 0);
    assert_int_equal(ckpt_file_size(back), BIG + 10);
    assert_int_equal(ckpt_file_read_at(back, bounce, 4096, 0, &err), 0);
    assert_memory_equal(bounce, "0123456789", 10);
    assert_memory_equal(bounce + 10, bytes, 10);
    assert_memory_equal(bounce + 20, bytes + 1007, 1993);
    assert_memory_equal(bounce + 2013, bytes + 2003, 4096 - 2013);
    for (uint64_t at = 4096; at + 4096 <= BIG; at += 4096) {
        assert_int_equal(ckpt_file_read_at(back, bounce, 4096, at + 10, &err), 0);
        assert_memory_equal(bounce, bytes + at, 4096);
    }
    ckpt_file_close(back);
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), 0);
    assert_true(ckpt_out_would_replace(o, f));
    assert_true(ckpt_out_would_replace(o, w));
    assert_false(ckpt_out_would_replace(o, m));
    ckpt_out_abort(o);
    ckpt_file_close(m);
    ckpt_file_close(w);
    ckpt_file_close(f);
    scratch_remove(d);
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

TEST(streams)
{
    static const char bytes[BIG];
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    struct reader r = {0};
    pthread_t thread;
    int fd[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    assert_int_equal(fcntl(fd[1], F_SETFL, O_NONBLOCK), 0);
    r.fd = fd[0];
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &r), 0);
    assert_int_equal(ckpt_out_stream(&o, fd[1], "stdout", &err), 0);
    assert_true(ckpt_out_is_stream(o));
    assert_int_equal(ckpt_out_reserve(o, 1, &err), 0);
    assert_int_equal(ckpt_out_write_at(o, "x", 1, 0, &err), CKPT_ESTATE);
    assert_int_equal(ckpt_out_write(o, bytes, BIG, &err), 0);
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_int_equal(close(fd[1]), 0);          /* it was borrowed */
    pthread_join(thread, NULL);
    assert_int_equal(r.got, BIG);
    close(fd[0]);

    assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
    close(fd[0]);
    assert_int_equal(ckpt_out_stream(&o, fd[1], "stdout", &err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, &err), CKPT_EIO);
    ckpt_out_abort(o);
    close(fd[1]);
}

TEST(a_full_device_is_no_space)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct ckpt_err err = {0};
    struct ckpt_out *o;

    if (fd < 0)
        skip();
    assert_int_equal(ckpt_out_stream(&o, fd, "stdout", &err), 0);
    assert_int_equal(ckpt_out_write(o, "x", 1, &err), CKPT_EIO);
    assert_string_equal(err.reason, "no-space");
    ckpt_out_abort(o);
    close(fd);
}

AGAIN(the_kernel_is_poor_now)
{
    if (!poor_kernel())
        skip();
    assert_int_equal(renameat2(AT_FDCWD, "absent", AT_FDCWD, "x", RENAME_NOREPLACE), -1);
    assert_int_equal(errno, EINVAL);
}
