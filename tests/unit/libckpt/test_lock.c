/* lock - one writer a directory, and no pruning of what is read. */
#include "tests/unit/unit.h"

#include <sys/wait.h>

#include "libckpt/io/lock.h"
#include "libckpt/io/path.h"

/* flock belongs to an open file description, so a second one in this process is another holder. */
TEST_ERR(a_second_writer_is_refused)
{
    const char *dir = scratch("lock");
    struct ckpt_lock *a = NULL, *b = NULL;
    char own[64];

    assert_int_equal(ckpt_lock_writer(&a, dir, err), 0);
    assert_int_equal(ckpt_lock_writer(&b, dir, err), CKPT_ECREATE);
    assert_string_equal(err->reason, "locked");
    snprintf(own, sizeof own, "process %d on ", (int)getpid());
    assert_non_null(strstr(err->text, own));
    assert_null(b);
    ckpt_lock_release(a);
    assert_int_equal(ckpt_lock_writer(&b, dir, err), 0);
    ckpt_lock_release(b);
}

TEST_ERR(a_dead_writer_holds_nothing)
{
    const char *dir = scratch("lock-dead");
    struct ckpt_lock *a = NULL;
    int status;
    pid_t child = fork();

    if (child == 0)
        _exit(ckpt_lock_writer(&a, dir, err) ? 1 : 0);     /* leaves without a release */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ckpt_lock_writer(&a, dir, err), 0);
    ckpt_lock_release(a);
}

TEST(what_is_leased_is_not_unread)
{
    const char *dir = scratch("lock-lease");
    struct ckpt_lock *a, *b;

    assert_true(ckpt_lock_unread(dir));
    a = ckpt_lock_reader(dir);
    b = ckpt_lock_reader(dir);          /* readers do not exclude each other */
    assert_non_null(a);
    assert_non_null(b);
    assert_false(ckpt_lock_unread(dir));
    assert_null(ckpt_lock_removal(dir));
    ckpt_lock_release(a);
    assert_false(ckpt_lock_unread(dir));
    ckpt_lock_release(b);
    assert_true(ckpt_lock_unread(dir));
    assert_int_equal(entries(dir), 0);  /* a lease leaves no trace */
    assert_null(ckpt_lock_reader("build/there-is-no-such-folder"));
}

TEST_ERR(a_writer_s_lock_is_told_beforehand)
{
    const char *dir = scratch("lock-told");
    struct ckpt_err met = {0};
    struct ckpt_lock *a, *b;

    assert_int_equal(ckpt_lock_writer_ready(dir, err), 0);
    assert_int_equal(entries(dir), 0);
    assert_int_equal(ckpt_lock_writer(&a, dir, err), 0);
    assert_int_equal(ckpt_lock_writer_ready(dir, err), CKPT_ECREATE);
    assert_int_equal(ckpt_lock_writer(&b, dir, &met), CKPT_ECREATE);
    assert_string_equal(err->text, met.text);
    assert_string_equal(err->reason, "locked");
    ckpt_lock_release(a);
    assert_int_equal(ckpt_lock_writer_ready(dir, err), 0);
}

TEST_ERR(a_directory_is_made_with_its_parents)
{
    const char *dir = scratch("lock-dirs");
    char path[600];

    file_put(dir, "file", "");
    assert_int_equal(ckpt_path_make_dirs(file_in(path, dir, "file/below"), err), CKPT_ECREATE);
    assert_int_equal(ckpt_path_make_dirs(file_in(path, dir, "file"), err), CKPT_ECREATE);
    assert_int_equal(ckpt_path_make_dirs(file_in(path, dir, "a/b//c/"), err), 0);
    assert_int_equal(ckpt_path_make_dirs(path, err), 0);
    assert_true(ckpt_path_is_dir(path));
}

TEST_ERR(what_making_a_directory_meets_is_told_beforehand)
{
    const char *dir = scratch("lock-ready");
    char path[600], first[600], want[600];

    file_put(dir, "file", "");
    assert_int_equal(ckpt_path_dirs_ready(first, sizeof first, file_in(path, dir, "file/below"), err),
                     CKPT_ECREATE);
    snprintf(want, sizeof want, "%s/file: exists, and is no directory", dir);
    assert_string_equal(err->text, want);
    assert_int_equal(ckpt_path_dirs_ready(first, sizeof first, file_in(path, dir, "a/b/c"), err), 0);
    assert_string_equal(first, file_in(want, dir, "a"));
    assert_int_equal(entries(dir), 1);
    assert_int_equal(ckpt_path_make_dirs(path, err), 0);
    assert_int_equal(ckpt_path_dirs_ready(first, sizeof first, path, err), 0);
    assert_string_equal(first, "");
    assert_int_equal(ckpt_path_dirs_ready(first, sizeof first, "hf://a/b", err), CKPT_EUSAGE);
}
