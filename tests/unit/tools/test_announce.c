/* announce: a checkpoint is leased until the reader of standard output has its line. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <unistd.h>

#include "libckpt/io/lock.h"
#include "libckpt/io/path.h"
#include "tools/train/announce.h"

struct reader {
    int fd, was;
};

static void begin(struct reader *r)
{
    int ends[2];

    fflush(stdout);
    r->was = dup(STDOUT_FILENO);
    if (r->was < 0 || pipe(ends) || dup2(ends[1], STDOUT_FILENO) < 0)
        fail_msg("no pipe");
    close(ends[1]);
    r->fd = ends[0];
}

static void end(struct reader *r)
{
    fflush(stdout);
    clearerr(stdout);
    dup2(r->was, STDOUT_FILENO);
    close(r->was);
    if (r->fd >= 0)
        close(r->fd);
}

static void leave(struct reader *r)
{
    close(r->fd);
    r->fd = -1;
}

static void make(char path[600], const char *dir, int n)
{
    struct ckpt_err err = {0};

    snprintf(path, 600, "%s/checkpoint-%d", dir, n);
    assert_int_equal(ckpt_path_make_dirs(path, &err), 0);
}

TEST_ERR(a_checkpoint_is_leased_until_its_line_is_read)
{
    const char *dir = scratch("announce");
    struct cli cli = {0};
    char one[600], two[600], text[1300] = "";
    struct announce *a;
    struct reader r;
    bool before, unread, read_one, after, last;

    make(one, dir, 1);
    make(two, dir, 2);
    assert_int_equal(announce_open(&a, &cli, 0, err), 0);
    announce_look(a);
    begin(&r);
    announce_end(a, err);
    assert_int_equal(announce_open(&a, &cli, 0, err), 0);
    announce_put(a, one);
    announce_put(a, two);
    announce_look(a);
    announce_look(a);
    before = ckpt_lock_unread(one);
    unread = ckpt_lock_unread(two);
    if (read(r.fd, text, strlen(one) + 1) < 0)
        fail_msg("read");
    announce_look(a);
    read_one = ckpt_lock_unread(one);           /* who read it needs a moment */
    announce_look(a);
    after = ckpt_lock_unread(one);
    last = ckpt_lock_unread(two);
    if (read(r.fd, text + strlen(text), strlen(two) + 1) < 0)
        fail_msg("read");
    assert_int_equal(announce_end(a, err), 0);
    end(&r);
    assert_false(before);
    assert_false(unread);
    assert_false(read_one);
    assert_true(after);
    assert_false(last);
    assert_true(ckpt_lock_unread(two));
    assert_true(strstr(text, "checkpoint-1\n") && strstr(text, "checkpoint-2\n"));
}

TEST_ERR(a_reader_that_leaves_without_the_last_line_is_an_error)
{
    const char *dir = scratch("announce");
    struct cli cli = {0};
    char one[600];
    struct announce *a;
    struct reader r;
    int rc;

    make(one, dir, 1);
    begin(&r);
    assert_int_equal(announce_open(&a, &cli, 0, err), 0);
    announce_put(a, one);
    leave(&r);
    announce_look(a);
    rc = announce_end(a, err);
    end(&r);
    assert_int_equal(rc, CKPT_EIO);
    assert_non_null(strstr(err->text, "its reader left, and did not take "));
    assert_non_null(strstr(err->text, "checkpoint-1"));
    assert_true(ckpt_lock_unread(one));
}

TEST_ERR(one_that_left_with_all_lines_is_none)
{
    const char *dir = scratch("announce");
    struct cli cli = {0};
    char one[600], text[700];
    struct announce *a;
    struct reader r;
    int rc;

    make(one, dir, 1);
    begin(&r);
    assert_int_equal(announce_open(&a, &cli, 0, err), 0);
    announce_put(a, one);
    if (read(r.fd, text, sizeof text) < 0)
        fail_msg("read");
    leave(&r);
    rc = announce_end(a, err);
    end(&r);
    assert_int_equal(rc, 0);
}

/* More lines than a pipe takes wait, and none is lost. */
TEST_ERR(a_full_pipe_holds_nobody)
{
    const char *dir = scratch("announce");
    struct cli cli = {0};
    char path[600], text[4096];
    struct announce *a;
    struct reader r;
    ssize_t got;
    size_t bytes = 0, all = 0;

    begin(&r);
    assert_int_equal(announce_open(&a, &cli, 0, err), 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(path, sizeof path, "%s/%0*d/checkpoint-%d", dir, 60, 0, i);
        announce_put(a, path);
        all += strlen(path) + 1;
    }
    while (bytes < all && (got = read(r.fd, text, sizeof text)) > 0) {
        bytes += (size_t)got;
        announce_look(a);
    }
    announce_end(a, err);
    end(&r);
    assert_true(bytes == all && all > 65536);
}
