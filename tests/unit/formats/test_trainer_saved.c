/* trainer_saved: what HF Trainer left is read, and what is no schedule is refused. */
#include "tests/unit/unit.h"

#include <math.h>

#include "formats/hf/trainer_files.h"
#include "formats/hf/trainer_saved.h"
#include "formats/torch/out.h"

static const char *const folders[] = {"tests/golden/hf-trainer/plain_w1/run/checkpoint-2",
                                      "tests/golden/hf-trainer/plain_w1_444/run/checkpoint-2"};

static struct ckpt_file *opened(const char *folder, const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    char path[300];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ckpt_file_open(&f, path, 0, &err))
        fail_msg("%s", err.text);
    return f;
}

TEST(schedules_of_both_versions)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct scheduler_saved s;
        struct ckpt_arena a = {0};
        struct ckpt_err err = {0};

        assert_int_equal(hf_scheduler_read(&s, &a, opened(folders[i], "scheduler.pt"), &err), 0);
        assert_true(s.base_lr == 0.003 && s.one_rate);
        assert_int_equal(s.last_epoch, 2);
        assert_int_equal(s.n_rate, 2);
        assert_true(s.rate[1] == 0.003);
        ckpt_arena_release(&a);
    }
}

TEST(arguments_of_both_versions)
{
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        struct hf_args *args;
        struct ckpt_err err = {0};
        double x;

        assert_int_equal(hf_args_open(&args, opened(folders[i], "training_args.bin"), &err), 0);
        assert_true(hf_args_number(args, "seed", &x) && x == 100);
        assert_true(hf_args_number(args, "max_grad_norm", &x) && x == 0.5);
        assert_string_equal(hf_args_text(args, "lr_scheduler_type"), "cosine");
        assert_string_equal(hf_args_text(args, "output_dir"), "run");
        assert_null(hf_args_text(args, "no_such"));
        assert_false(hf_args_number(args, "no_such", &x));
        hf_args_close(args);
    }
    hf_args_close(NULL);
}

/* Write a schedule and read it back: the code. */
static int again(struct scheduler_saved *s, struct ckpt_arena *a, const double *rate, int64_t last,
                 struct ckpt_err *err)
{
    const char *folder = scratch("saved");
    struct ckpt_out *out;
    char path[310], keep[300];
    int rc;

    snprintf(keep, sizeof keep, "%s", folder);
    snprintf(path, sizeof path, "%s/s.pt", keep);
    assert_int_equal(ckpt_out_create(&out, path, 0, err), 0);
    assert_int_equal(hf_scheduler_write(out, &(struct scheduler_state){
        .base_lr = rate, .last_lr = rate, .n_group = 2, .last_epoch = last}, err), 0);
    rc = hf_scheduler_read(s, a, opened(keep, "s.pt"), err);
    scratch_remove(keep);
    return rc;
}

TEST(what_is_no_schedule)
{
    static const double same[] = {1e-3, 1e-3}, two[] = {1e-3, 2e-3}, bad[] = {1e-3, NAN},
                        less[] = {-1, -1};
    struct scheduler_saved s;
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};

    assert_int_equal(again(&s, &a, same, 7, &err), 0);
    assert_true(s.base_lr == 1e-3 && s.one_rate && s.last_epoch == 7);
    assert_int_equal(again(&s, &a, two, 7, &err), 0);
    assert_false(s.one_rate);
    assert_true(s.n_rate == 2 && s.rate[0] == 1e-3 && s.rate[1] == 2e-3);
    assert_int_equal(again(&s, &a, bad, 7, &err), CKPT_EFORMAT);
    ckpt_err_clear(&err);
    assert_int_equal(again(&s, &a, less, 7, &err), CKPT_EFORMAT);
    ckpt_err_clear(&err);
    assert_int_equal(again(&s, &a, same, -2, &err), CKPT_EFORMAT);
    ckpt_err_clear(&err);
    assert_int_equal(hf_scheduler_read(&s, &a, opened(folders[0], "config.json"), &err),
                     CKPT_EFORMAT);
    ckpt_arena_release(&a);
}

TEST(what_has_no_arguments)
{
    struct hf_args *args;
    struct ckpt_err err = {0};

    assert_int_equal(hf_args_open(&args, opened(folders[0], "scheduler.pt"), &err), CKPT_EFORMAT);
    assert_null(args);
}
