/* commit, outdir: complete under the final name, or nothing there. */
#include "tests/unit/unit.h"

#include "libckpt/commit.h"

static char *in(char *dst, const char *dir, const char *name)
{
    snprintf(dst, 400, "%s/%s", dir, name);
    return dst;
}

static void assert_content(const char *path, const char *want)
{
    char got[64] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    assert_true(fread(got, 1, sizeof got - 1, f) == strlen(want));
    fclose(f);
    assert_string_equal(got, want);
}

static void test_a_file_appears_at_commit(void **state)
{
    const char *d = scratch("commit");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    struct stat st;
    char p[400];

    (void)state;
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
    assert_int_equal(ckpt_put_file(p, "new", 3, &err), 0);
    assert_content(p, "new");
    scratch_remove(d);
}

static void test_nobody_is_replaced_unasked(void **state)
{
    const char *d = scratch("race");
    struct ckpt_err err = {0};
    struct ckpt_out *o;
    char p[400];
    FILE *f;

    (void)state;
    assert_int_equal(ckpt_out_create(&o, in(p, d, "f"), 0, &err), 0);
    f = fopen(p, "w");                  /* somebody else was faster */
    fputs("theirs", f);
    fclose(f);
    assert_int_equal(ckpt_out_commit(o, &err), CKPT_ECREATE);
    assert_content(p, "theirs");
    assert_int_equal(entries(d), 1);
    scratch_remove(d);
}

static void test_a_directory_appears_whole(void **state)
{
    const char *d = scratch("outdir");
    struct ckpt_err err = {0};
    struct ckpt_outdir *o, *peer;
    struct ckpt_out *f;
    struct stat st;
    char p[400], q[400];

    (void)state;
    assert_int_equal(ckpt_outdir_create(&o, in(p, d, "run"), &err), 0);
    assert_int_equal(ckpt_outdir_put(o, "a", "1", 1, &err), 0);
    assert_int_equal(ckpt_outdir_join(&peer, ckpt_outdir_staging(o), &err), 0);
    assert_int_equal(ckpt_outdir_put(peer, "sub/b", "22", 2, &err), 0);
    ckpt_outdir_abort(peer);            /* a peer only lets go */
    assert_int_equal(ckpt_outdir_file(&f, o, "../out", &err), CKPT_EREFUSED);
    assert_int_equal(ckpt_outdir_file(&f, o, "a", &err), CKPT_ECREATE);
    assert_int_not_equal(stat(p, &st), 0);
    assert_int_equal(ckpt_outdir_commit(o, &err), 0);
    assert_content(in(q, d, "run/sub/b"), "22");
    assert_int_equal(entries(d), 1);
    assert_int_equal(ckpt_outdir_create(&o, p, &err), CKPT_ECREATE);
    assert_int_equal(ckpt_remove_tree(p, &err), 0);
    assert_int_equal(entries(d), 0);
    scratch_remove(d);
}

static void test_an_empty_directory_is_not_replaced(void **state)
{
    const char *d = scratch("empty");
    struct ckpt_err err = {0};
    struct ckpt_outdir *o;
    char p[400];

    (void)state;
    assert_int_equal(ckpt_outdir_create(&o, in(p, d, "run"), &err), 0);
    assert_int_equal(mkdir(p, 0777), 0);
    assert_int_equal(ckpt_outdir_commit(o, &err), CKPT_ECREATE);
    assert_int_equal(entries(d), 1);
    scratch_remove(d);
}

static void test_leftovers_of_dead_runs_go(void **state)
{
    const char *d = scratch("left");
    struct ckpt_err err = {0};
    struct ckpt_outdir *mine, *other;
    char p[400], q[400];

    (void)state;
    assert_int_equal(mkdir(in(q, d, ".run.staging-0123456789abcdef"), 0777), 0);
    assert_int_equal(ckpt_outdir_create(&mine, in(p, d, "run"), &err), 0);
    assert_int_equal(entries(d), 1);    /* the dead one's is gone, ours is there */
    assert_int_equal(ckpt_outdir_create(&other, p, &err), 0);
    assert_int_equal(entries(d), 2);    /* a living one's stays */
    ckpt_outdir_abort(other);
    ckpt_outdir_abort(mine);
    assert_int_equal(entries(d), 0);
    scratch_remove(d);
}

static void test_copy_between_files(void **state)
{
    const char *d = scratch("copy");
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_out *o;
    char p[400], q[400], bounce[3];

    (void)state;
    assert_int_equal(ckpt_put_file(in(p, d, "a"), "0123456789", 10, &err), 0);
    assert_int_equal(ckpt_file_open(&f, p, 0, &err), 0);
    assert_int_equal(ckpt_out_create(&o, in(q, d, "b"), 0, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, f, 2, 7, bounce, sizeof bounce, &err), 0);
    assert_int_equal(ckpt_out_copy(o, 0, f, 5, 6, bounce, sizeof bounce, &err), CKPT_EFORMAT);
    assert_false(ckpt_out_would_replace(o, f));
    assert_int_equal(ckpt_out_commit(o, &err), 0);
    assert_content(q, "2345678");
    assert_int_equal(ckpt_out_create(&o, p, CKPT_REPLACE, &err), 0);
    assert_true(ckpt_out_would_replace(o, f));
    ckpt_out_abort(o);
    ckpt_file_close(f);
    scratch_remove(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_appears_at_commit),
        cmocka_unit_test(test_nobody_is_replaced_unasked),
        cmocka_unit_test(test_a_directory_appears_whole),
        cmocka_unit_test(test_an_empty_directory_is_not_replaced),
        cmocka_unit_test(test_leftovers_of_dead_runs_go),
        cmocka_unit_test(test_copy_between_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
