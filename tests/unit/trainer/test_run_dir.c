/* run_dir: which checkpoints are pruned, passed over, in the way, and what is done about them. */
#include "tests/unit/files.h"

#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/run/dir.h"

static char dir[300];

static const char *at(int number, const char *file)
{
    return text_of("%s/checkpoint-%d%s%s", dir, number, *file ? "/" : "", file);
}

/* A checkpoint that holds what its manifest says. */
static void make(int number)
{
    json_t *facts = json_pack("{s:i}", "step", number);
    struct ckpt_err err = {0};
    char *text;

    assert_int_equal(mkdir(at(number, ""), 0777), 0);
    put_text(at(number, "model.safetensors"), "weights");
    put_text(at(number, "config.json"), "{}");
    put_text(at(number, "training_args.bin"), "private");
    assert_int_equal(manifest_make(&text, at(number, ""), facts, &err), 0);
    put_text(at(number, MANIFEST_NAME), text);
    ckpt_free(text);
    json_decref(facts);
}

static bool is_there(int number)
{
    return access(at(number, ""), F_OK) == 0;
}

/* transformers' rotate_checkpoints over 1..n: what is left, a bit each. */
static unsigned rotated(int n, int limit, int best)
{
    unsigned left = (1u << n) - 1;
    int keep = limit, remaining = n;

    if (n <= limit)
        return left;
    if (best && best != n && keep < 2)
        keep = 2;
    for (int i = 1; i <= n && remaining > keep; i++)
        if (i != n && i != best) {
            left &= ~(1u << (i - 1));
            remaining--;
        }
    return left;
}

TEST(what_is_pruned_is_what_transformers_removes)
{
    for (int n = 1; n <= 4; n++)
        for (int limit = 1; limit <= 4; limit++)
            for (int best = 0; best <= n; best++) {
                struct run_dir d = {.path = dir};
                char name[600] = "";
                unsigned left = 0;

                snprintf(dir, sizeof dir, "%s", scratch("run-dir"));
                for (int i = 1; i <= n; i++)
                    make(i);
                if (best)
                    snprintf(name, sizeof name, "spelt/otherwise/checkpoint-%d", best);
                run_dir_prune(&d, limit, name, true);
                for (int i = 1; i <= n; i++)
                    left |= is_there(i) ? 1u << (i - 1) : 0;
                assert_int_equal(left, rotated(n, limit, best));
                scratch_remove(dir);
            }
}

TEST(what_is_read_or_not_ours_is_not_pruned)
{
    struct run_dir d = {.path = dir};
    struct ckpt_lock *reader;

    snprintf(dir, sizeof dir, "%s", scratch("run-dir-read"));
    for (int i = 1; i <= 4; i++)
        make(i);
    assert_int_equal(unlink(at(3, MANIFEST_NAME)), 0);
    reader = ckpt_lock_reader(at(1, ""));
    run_dir_prune(&d, 1, "", false);
    assert_true(is_there(1) && !is_there(2) && is_there(3) && is_there(4));
    ckpt_lock_release(reader);
    run_dir_prune(&d, 1, "", false);
    assert_true(!is_there(1) && is_there(3) && is_there(4));
}

TEST(the_newest_whole_one_is_found_and_damage_may_be_replaced)
{
    struct run_dir d = {.path = dir};
    struct ckpt_err err = {0};
    char path[4096];
    int64_t number = 0;

    snprintf(dir, sizeof dir, "%s", scratch("run-dir-newest"));
    assert_int_equal(run_dir_newest(path, &number, &d, dir, RUN_DIR_ANY, &err), CKPT_ENOTFOUND);
    assert_string_equal(err.reason, "none");
    for (int i = 8; i <= 12; i++)
        make(i);
    put_text(at(12, "config.json"), "[]");              /* other bytes, the same size */
    put_text(at(11, "model.safetensors"), "weight");   /* cut short */
    assert_int_equal(unlink(at(10, MANIFEST_NAME)), 0);         /* another program's */
    assert_int_equal(unlink(at(9, "training_args.bin")), 0);    /* not needed */
    err = (struct ckpt_err){0};
    assert_int_equal(run_dir_newest(path, &number, &d, dir, RUN_DIR_ANY, &err), 0);
    assert_int_equal(number, 9);
    assert_true(run_dir_may_replace(&d, 12) && run_dir_may_replace(&d, 11));
    assert_false(run_dir_may_replace(&d, 10) || run_dir_may_replace(&d, 9));
    /* Of another folder nothing is replaced here. */
    assert_int_equal(run_dir_newest(path, &number, &d, dir, 9, &err), 0);
    assert_int_equal(number, 8);
    assert_int_equal(run_dir_check_free(&d, 9, &err), CKPT_ECREATE);
    assert_non_null(strstr(err.text, "checkpoint-10"));
    err = (struct ckpt_err){0};
    assert_int_equal(run_dir_check_free(&d, 10, &err), 0);      /* 11 and 12 are damaged */
    assert_int_equal(run_dir_check_free(&d, -1, &err), CKPT_ECREATE);
    err = (struct ckpt_err){0};
    assert_int_equal(run_dir_clear(&d, 8, &err), 0);
    assert_true(is_there(8) && !is_there(9) && !is_there(10));
    assert_int_equal(run_dir_check_free(&d, 8, &err), 0);
    run_dir_close(&d);
}
