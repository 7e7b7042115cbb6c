/*
 * commit and outdir under failure: every allocation, write, sync, rename and open failing once.
 * The rule of commit.h: a failed commit leaves the name as it was (a replaced file may stay new,
 * and then the hint says so), nothing unfinished stays, and what a name holds is whole.
 */
#include "tests/unit/faults.h"

#include "libckpt/commit.h"

static const char *dir;

/* What the file name holds: 0 nothing, else its first byte; it must be whole. */
static char held(const char *name)
{
    char path[600], got[64] = "";
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "r");
    if (!f)
        return 0;
    assert_int_equal(fread(got, 1, sizeof got, f), 3);
    fclose(f);
    assert_true(got[1] == got[0] && got[2] == got[0]);
    return got[0];
}

static int write_new(struct ckpt_err *err)
{
    struct ckpt_out *o;
    char path[600];

    snprintf(path, sizeof path, "%s/f", dir);
    if (ckpt_out_create(&o, path, 0, err))
        return err->code;
    if (ckpt_out_reserve(o, 3, err) || ckpt_out_write(o, "nn", 2, err) ||
        ckpt_out_write_at(o, "n", 1, 2, err)) {
        ckpt_out_abort(o);
        return err->code;
    }
    return ckpt_out_commit(o, err);
}

static int replace(struct ckpt_err *err)
{
    char path[600];

    snprintf(path, sizeof path, "%s/f", dir);
    return ckpt_out_put(path, "nnn", 3, err);
}

static int build(struct ckpt_err *err)
{
    struct ckpt_outdir *o, *peer = NULL;
    char path[600];

    snprintf(path, sizeof path, "%s/f", dir);
    if (ckpt_outdir_create(&o, path, err))
        return err->code;
    if (ckpt_outdir_put(o, "a", "nnn", 3, err) ||
        ckpt_outdir_join(&peer, ckpt_outdir_staging(o), err) ||
        ckpt_outdir_put(peer, "sub/b", "nnn", 3, err)) {
        ckpt_outdir_abort(peer);
        ckpt_outdir_abort(o);
        return err->code;
    }
    ckpt_outdir_abort(peer);
    return ckpt_outdir_commit(o, err);
}

static int beside(struct ckpt_err *err)
{
    struct ckpt_outdir *o;
    char path[600];

    snprintf(path, sizeof path, "%s/made", dir);
    if (ckpt_outdir_create(&o, path, err))
        return err->code;
    if (ckpt_outdir_put(o, "f", "nnn", 3, err)) {
        ckpt_outdir_abort(o);
        return err->code;
    }
    return ckpt_outdir_commit_beside(o, err);
}

/* Files that are moved into a folder: each is the old one or the new one. */
TEST(files_beside_others)
{
    for (struct faults f = {.later = true}; faults_next(&f);) {
        struct ckpt_err err = {0};
        char path[600];
        int rc;

        dir = scratch("faults");
        snprintf(path, sizeof path, "%s/f", dir);
        assert_int_equal(ckpt_out_put(path, "ooo", 3, &err), 0);
        faults_arm(&f);
        rc = beside(&err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "commit");
        assert_true(held("f") == (rc ? 'o' : 'n') || (rc && held("f") == 'n'));
        assert_int_equal(entries(dir), 1);
        scratch_remove(dir);
        assert_true(f.n < 200);
    }
}

/* Make one kind of operation fail at each place in turn; before is what the name holds. */
static void walk(int (*make)(struct ckpt_err *err), bool whole_dir, char before)
{
    for (struct faults f = {.later = true}; faults_next(&f);) {
        struct ckpt_err err = {0};
        int rc;

        dir = scratch("faults");
        if (before) {
            char path[600];

            snprintf(path, sizeof path, "%s/f", dir);
            assert_int_equal(ckpt_out_put(path, "ooo", 3, &err), 0);
        }
        faults_arm(&f);
        rc = make(&err);
        faults_disarm(&f);
        faults_told(&f, rc, &err, "commit");
        if (rc == 0) {
            assert_int_equal(held(whole_dir ? "f/a" : "f"), 'n');
            assert_int_equal(whole_dir ? held("f/sub/b") : 'n', 'n');
            assert_int_equal(entries(dir), 1);
        } else {
            assert_true(held("f") == before ||
                        (before && held("f") == 'n' && strstr(err.hint, "may not last")));
            assert_int_equal(entries(dir), before ? 1 : 0);
        }
        scratch_remove(dir);
        assert_true(f.n < 200);
    }
}

TEST(a_new_file) { walk(write_new, false, 0); }
TEST(a_replaced_file) { walk(replace, false, 'o'); }
TEST(a_directory) { walk(build, true, 0); }

/* The sync of the directory is the last of a commit: what it fails on is taken back. */
TEST(a_name_that_may_not_last_is_taken_back)
{
#ifdef CKPT_FAULTS
    struct ckpt_err err = {0};

    dir = scratch("faults");
    ckpt_fault_arm(CKPT_FAULT_SYNC, 2);
    assert_int_equal(write_new(&err), CKPT_EIO);
    assert_string_equal(err.reason, "sync-failed");
    assert_int_equal(entries(dir), 0);
    ckpt_fault_arm(CKPT_FAULT_SYNC, 6);         /* parent, a, b, sub, staging, parent */
    assert_int_equal(build(&err), CKPT_EIO);
    assert_true(ckpt_fault_struck());
    assert_int_equal(entries(dir), 0);
    ckpt_fault_arm(CKPT_FAULT_SYNC, 7);
    assert_int_equal(build(&err), 0);
    assert_false(ckpt_fault_struck());
    ckpt_fault_arm(CKPT_FAULT_SYNC, 0);
    scratch_remove(dir);
#else
    skip();
#endif
}
