/* rows_out: what may be written is known before the work, and one run writes a file. */
#include "tests/unit/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "tools/eval/rows_out.h"

#define OK(call, err) do { if (call) fail_msg("%s", (err).text); } while (0)

SCRATCH_EACH("rows-out")

static const char *at(const char *name) { return text_of("%s/%s", dir, name); }

static void refused(const char *name, bool overwrite, const char *says)
{
    struct ckpt_err err = {0};
    struct rows_out *out;

    assert_int_equal(rows_out_check(at(name), overwrite, &err), CKPT_ECREATE);
    if (!strstr(err.text, says))
        fail_msg("%s: \"%s\", wanted \"%s\"", name, err.text, says);
    err = (struct ckpt_err){0};
    assert_int_equal(rows_out_open(&out, at(name), true, overwrite, &err), CKPT_ECREATE);
    rows_out_close(out);
}

TEST(what_cannot_be_written_is_refused_before_the_work)
{
    struct ckpt_err err = {0};

    assert_int_equal(mkdir(at("folder"), 0777), 0);
    put_text(at("there"), "x");
    refused("there", false, "exists already");
    refused("folder", true, "is a directory");
    refused("none/rows", true, "its folder");
    refused("there/rows", true, "its folder");
    OK(rows_out_check(at("there"), true, &err), err);
    OK(rows_out_check(at("new"), false, &err), err);
    OK(rows_out_check("-", false, &err), err);
    assert_int_equal(access(at("new"), F_OK), -1);
}

TEST(one_run_writes_a_file)
{
    struct ckpt_err err = {0};
    struct rows_out *first, *second;

    OK(rows_out_open(&first, at("rows"), true, false, &err), err);
    assert_int_equal(rows_out_open(&second, at("rows"), true, false, &err), CKPT_ECREATE);
    assert_non_null(strstr(err.text, "another run is writing it"));
    rows_out_close(second);
    assert_int_equal(access(at("rows.part"), F_OK), 0);     /* still the first one's */
    OK(rows_out_commit(first, &err), err);
    rows_out_close(first);
    assert_int_equal(access(at("rows"), F_OK), 0);
    assert_int_equal(access(at("rows.part"), F_OK), -1);
    err = (struct ckpt_err){0};
    OK(rows_out_open(&second, at("rows"), true, true, &err), err);
    rows_out_close(second);
}

TEST(a_link_in_the_part_s_place_is_not_followed)
{
    struct ckpt_err err = {0};
    struct rows_out *out;
    struct stat st;

    put_text(at("victim"), "kept");
    assert_int_equal(symlink("victim", at("rows.part")), 0);
    assert_int_equal(rows_out_open(&out, at("rows"), true, false, &err), CKPT_ECREATE);
    rows_out_close(out);
    assert_int_equal(stat(at("victim"), &st), 0);
    assert_int_equal(st.st_size, 4);
}

TEST(a_file_that_came_meanwhile_is_kept)
{
    struct ckpt_err err = {0};
    struct rows_out *out;
    struct stat st;

    OK(rows_out_open(&out, at("rows"), true, false, &err), err);
    put_text(at("rows"), "another's");
    assert_int_equal(rows_out_commit(out, &err), CKPT_ECREATE);
    assert_non_null(strstr(err.text, "rows.part"));
    rows_out_close(out);
    assert_int_equal(stat(at("rows"), &st), 0);
    assert_int_equal(st.st_size, 9);
    assert_int_equal(access(at("rows.part"), F_OK), 0);
}
