/*
 * outdir, tree: a directory is complete under its final name, or nothing is there; what dead
 * runs left goes, what lives or is finished stays; nothing is removed through a link.
 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "libckpt/commit.h"
#include "tests/unit/poor.h"

TEST_ERR(a_directory_is_replaced_only_when_that_is_meant)
{
    const char *d = scratch("outdir-over");
    struct ckpt_outdir *o;
    char p[600], q[600];

    assert_int_equal(ckpt_outdir_create_over(&o, file_in(p, d, "run"), err), 0);
    assert_int_equal(ckpt_outdir_put(o, "a", "1", 1, err), 0);
    assert_int_equal(ckpt_outdir_put(o, "old/b", "1", 1, err), 0);
    assert_int_equal(ckpt_outdir_commit(o, err), 0);   /* over nothing */
    assert_int_equal(ckpt_outdir_create(&o, p, err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_create_over(&o, p, err), 0);
    assert_int_equal(ckpt_outdir_put(o, "a", "2", 1, err), 0);
    file_holds(file_in(q, d, "run/a"), "1");             /* until the commit */
    assert_int_equal(ckpt_outdir_commit(o, err), 0);
    file_holds(q, "2");
    assert_int_not_equal(access(file_in(q, d, "run/old"), F_OK), 0);
    assert_int_equal(ckpt_outdir_create_over(&o, p, err), 0);
    ckpt_outdir_abort(o);
    file_holds(file_in(q, d, "run/a"), "2");
    assert_int_equal(entries(d), 1);
    file_put(d, "file", "x");
    assert_int_equal(ckpt_outdir_create_over(&o, file_in(p, d, "file"), err), CKPT_ECREATE);
}

TEST_ERR(files_go_beside_what_is_there)
{
    const char *d = scratch("outdir-beside");
    struct ckpt_outdir *o;
    char p[600], q[600];

    file_put(d, "a", "old");
    file_put(d, "c", "kept");
    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "made"), err), 0);
    assert_int_equal(ckpt_outdir_put(o, "a", "new", 3, err), 0);
    assert_int_equal(ckpt_outdir_put(o, "b", "new", 3, err), 0);
    file_holds(file_in(q, d, "a"), "old");
    assert_int_equal(ckpt_outdir_commit_beside(o, err), 0);
    file_holds(q, "new");
    file_holds(file_in(q, d, "b"), "new");
    file_holds(file_in(q, d, "c"), "kept");
    assert_int_equal(entries(d), 3);        /* the folder that was built is gone */
    assert_int_equal(ckpt_outdir_create(&o, p, err), 0);
    assert_int_equal(ckpt_outdir_put(o, "sub/a", "new", 3, err), 0);
    assert_int_equal(ckpt_outdir_commit_beside(o, err), CKPT_ESTATE);
    assert_int_equal(entries(d), 3);
}

TEST_ERR(a_directory_appears_whole)
{
    const char *d = scratch("outdir");
    struct ckpt_outdir *o, *peer;
    struct ckpt_out *f;
    struct stat st;
    char p[600], q[600];

    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "run/"), err), 0);
    assert_int_equal(ckpt_outdir_staging(o)[0], '/');
    assert_int_equal(ckpt_outdir_put(o, "a", "1", 1, err), 0);
    assert_int_equal(ckpt_outdir_join(&peer, ckpt_outdir_staging(o), err), 0);
    assert_string_equal(ckpt_outdir_staging(peer), ckpt_outdir_staging(o));
    assert_int_equal(ckpt_outdir_put(peer, "sub/deep/b", "22", 2, err), 0);
    ckpt_outdir_abort(peer);            /* a peer only lets go */
    assert_int_equal(ckpt_outdir_file(&f, o, "a", err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_file(&f, o, "a/b", err), CKPT_ECREATE);       /* a is a file */
    assert_int_not_equal(stat(file_in(p, d, "run"), &st), 0);
    assert_int_equal(ckpt_outdir_commit(o, err), 0);
    file_holds(file_in(q, d, "run/sub/deep/b"), "22");
    assert_int_equal(entries(d), 1);
    assert_int_equal(entries(p), 2);
    assert_int_equal(ckpt_outdir_create(&o, p, err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_remove(p, err), 0);
    assert_int_equal(entries(d), 0);
}

TEST_ERR(only_clean_names_inside)
{
    static const char *const bad[] = {"", "/a", "a/", ".a", "..", "../x", "a/../b", "a//b", "a/.b"};
    const char *d = scratch("clean");
    struct ckpt_outdir *o;
    struct ckpt_out *f;
    char p[600], deep[100];

    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "run"), err), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ckpt_outdir_file(&f, o, bad[i], err), CKPT_EREFUSED);
        assert_string_equal(err->reason, "refused-path");
        assert_null(f);
    }
    for (size_t i = 0; i < 33; i++)
        memcpy(deep + 2 * i, "d/", 2);
    deep[65] = '\0';                    /* 33 parts */
    assert_int_equal(ckpt_outdir_file(&f, o, deep, err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_put(o, deep + 2, "x", 1, err), 0);
    /* A link that somebody put there is not written through. */
    snprintf(p, sizeof p, "%s/link", ckpt_outdir_staging(o));
    assert_int_equal(symlink("/tmp", p), 0);
    assert_int_equal(ckpt_outdir_file(&f, o, "link/x", err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_commit(o, err), 0);
}

TEST_ERR(nothing_is_replaced)
{
    const char *d = scratch("empty");
    struct ckpt_outdir *o;
    char p[600];

    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "run"), err), 0);
    assert_int_equal(mkdir(p, 0777), 0);        /* plain rename would replace it */
    assert_int_equal(ckpt_outdir_commit(o, err), CKPT_ECREATE);
    assert_int_equal(entries(d), 1);
    assert_int_equal(entries(p), 0);
    assert_int_equal(rmdir(p), 0);
    assert_int_equal(ckpt_outdir_create(&o, p, err), 0);
    file_put(d, "run", "theirs");
    assert_int_equal(ckpt_outdir_commit(o, err), CKPT_ECREATE);
    file_holds(p, "theirs");
    assert_int_equal(entries(d), 1);
}

TEST_ERR(unfinished_files_stop_the_commit)
{
    const char *d = scratch("unfinished");
    struct ckpt_outdir *o;
    struct ckpt_out *f;
    char p[600];

    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "run"), err), 0);
    assert_int_equal(ckpt_outdir_file(&f, o, "sub/f", err), 0);
    assert_int_equal(ckpt_outdir_commit(o, err), CKPT_ESTATE);
    assert_int_equal(entries(d), 0);
    ckpt_out_abort(f);
}

TEST_ERR(a_joined_directory_is_not_committed)
{
    const char *d = scratch("join");
    struct ckpt_outdir *o, *peer;
    char p[600];

    assert_int_equal(ckpt_outdir_join(&peer, file_in(p, d, "absent"), err), CKPT_ECREATE);
    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, "run"), err), 0);
    assert_int_equal(ckpt_outdir_join(&peer, ckpt_outdir_staging(o), err), 0);
    assert_int_equal(ckpt_outdir_commit(peer, err), CKPT_ESTATE);
    assert_int_equal(entries(d), 1);
    ckpt_outdir_abort(o);
    assert_int_equal(entries(d), 0);
}

/* A maker that is killed with two files written. */
static void die_while_building(const char *path)
{
    struct ckpt_err err = {0};
    struct ckpt_outdir *o;
    struct ckpt_out *f;
    pid_t child = fork();
    int status;

    if (child == 0) {
        if (ckpt_outdir_create(&o, path, &err) || ckpt_outdir_put(o, "sub/a", "x", 1, &err) ||
            ckpt_outdir_file(&f, o, "b", &err))
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

TEST_ERR(leftovers_of_dead_runs_go)
{
    const char *d = scratch("left");
    struct ckpt_outdir *mine, *other;
    char p[600], q[600];

    die_while_building(file_in(p, d, "run"));
    die_while_building(file_in(q, d, "run2"));       /* of another name */
    assert_int_equal(entries(d), 2);
    assert_int_equal(mkdir(file_in(q, d, ".run.staging-0123456789abcde"), 0777), 0); /* a digit short */
    assert_int_equal(ckpt_outdir_create(&mine, p, err), 0);
    assert_int_equal(entries(d), 3);    /* the dead one's is gone, ours is there */
    assert_int_equal(ckpt_outdir_create(&other, p, err), 0);
    assert_int_equal(entries(d), 4);    /* a living one's stays */
    ckpt_outdir_abort(other);
    ckpt_outdir_abort(mine);
    assert_int_equal(entries(d), 2);
}

/* The maker dies, a peer lives: the peer's lock keeps it. */
TEST_ERR(a_peer_keeps_the_staging)
{
    const char *d = scratch("peer");
    struct ckpt_outdir *peer, *next;
    char p[600], q[600], name[300];
    FILE *ls;

    die_while_building(file_in(p, d, "run"));
    snprintf(q, sizeof q, "ls -A %s", d);
    ls = popen(q, "r");
    assert_int_equal(fscanf(ls, "%299s", name), 1);
    pclose(ls);
    assert_int_equal(ckpt_outdir_join(&peer, file_in(q, d, name), err), 0);
    assert_int_equal(ckpt_outdir_create(&next, p, err), 0);
    assert_int_equal(entries(d), 2);
    ckpt_outdir_abort(next);
    ckpt_outdir_abort(peer);
    assert_int_equal(ckpt_outdir_create(&next, p, err), 0);
    assert_int_equal(entries(d), 1);
    ckpt_outdir_abort(next);
}

/* One process publishes again and again while another looks for leftovers all the time. */
TEST_ERR(a_cleaner_never_takes_what_is_finished)
{
    const char *d = scratch("cleaner");
    struct ckpt_outdir *o;
    char p[600];
    int status;
    pid_t parent = getpid(), child;

    file_in(p, d, "run");
    child = fork();
    if (child == 0) {
        while (getppid() == parent)
            if (ckpt_outdir_create(&o, p, err) == 0)
                ckpt_outdir_abort(o);
        _exit(0);
    }
    for (int i = 0; i < 25; i++) {
        if (ckpt_outdir_create(&o, p, err))
            fail_msg("%d: %s", i, err->text);
        assert_int_equal(ckpt_outdir_put(o, "a", "1", 1, err), 0);
        assert_int_equal(ckpt_outdir_put(o, "sub/b", "2", 1, err), 0);
        if (ckpt_outdir_commit(o, err))
            fail_msg("%d: %s", i, err->text);
        assert_int_equal(entries(p), 2);
        assert_int_equal(ckpt_outdir_remove(p, err), 0);
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
}

TEST_ERR(deep_trees_go_and_links_stay)
{
    const char *d = scratch("deep");
    char p[600], q[600], name[201];
    int at;

    memset(name, 'd', 200);
    name[200] = '\0';
    assert_int_equal(mkdir(file_in(q, d, "outside"), 0777), 0);
    file_put(d, "outside/keep", "kept");
    assert_int_equal(mkdir(file_in(p, d, "tree"), 0777), 0);
    at = open(p, O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 60; i++) {              /* as a path: longer than the system takes */
        int next;

        assert_int_equal(mkdirat(at, name, 0777), 0);
        if (i % 10 == 0) {
            assert_int_equal(symlinkat("/nowhere", at, "dangling"), 0);
            assert_int_equal(mkdirat(at, "empty", 0555), 0);
            assert_int_equal(close(openat(at, "file", O_CREAT | O_WRONLY, 0400)), 0);
        }
        next = openat(at, name, O_RDONLY | O_DIRECTORY);
        close(at);
        at = next;
    }
    close(at);
    assert_int_equal(symlink("../outside", file_in(q, d, "tree/link")), 0);
    assert_int_equal(mkfifo(file_in(q, d, "tree/fifo"), 0600), 0);
    if (ckpt_outdir_remove(p, err))
        fail_msg("%s", err->text);
    assert_int_equal(entries(d), 1);
    file_holds(file_in(q, d, "outside/keep"), "kept");
}

TEST_ERR(remove_tree_takes_directories_only)
{
    const char *d = scratch("remove");
    char p[600], q[600];

    file_put(d, "file", "kept");
    assert_int_equal(ckpt_outdir_remove(file_in(p, d, "file"), err), CKPT_ENOTFOUND);
    file_holds(p, "kept");
    assert_int_equal(mkdir(file_in(q, d, "dir"), 0777), 0);
    assert_int_equal(symlink("dir", file_in(q, d, "link")), 0);
    assert_int_equal(ckpt_outdir_remove(q, err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_outdir_remove(file_in(q, d, "absent"), err), CKPT_ENOTFOUND);
    assert_int_equal(ckpt_outdir_remove(file_in(q, d, "absent/absent"), err), CKPT_ENOTFOUND);
    assert_int_equal(entries(d), 3);
    /* What an interrupted removal left goes with the next one, whatever it was called. */
    assert_int_equal(mkdir(file_in(q, d, ".trash-other-0123456789abcdef"), 0777), 0);
    assert_int_equal(mkdir(file_in(q, d, ".trash-other-0123456789abcdef/sub"), 0777), 0);
    assert_int_equal(ckpt_outdir_remove(file_in(q, d, "dir"), err), 0);
    assert_int_equal(entries(d), 2);
}

TEST_ERR(long_names)
{
    const char *d = scratch("longdir");
    struct ckpt_outdir *o;
    char name[256], p[600];

    memset(name, 'n', 255);
    name[255] = '\0';
    assert_int_equal(ckpt_outdir_create(&o, file_in(p, d, name), err), 0);
    assert_int_equal(ckpt_outdir_put(o, name, "x", 1, err), 0);
    assert_int_equal(ckpt_outdir_commit(o, err), 0);
    assert_int_equal(entries(p), 1);
    assert_int_equal(ckpt_outdir_remove(p, err), 0);
    assert_int_equal(entries(d), 0);
}

AGAIN(the_kernel_is_poor_now) { poor_kernel_or_skip(); }
