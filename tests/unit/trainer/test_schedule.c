/* schedule: the same doubles as transformers' and DeepSpeed's schedules, and their files. */
#include "tests/unit/golden_model.h"

#include <math.h>

#include "libckpt/base/json.h"
#include "trainer/optim/keys.h"
#include "trainer/optim/schedule.h"

#define TMP "build/test-scheduler.pt"

static int64_t whole(const json_t *obj, const char *key)
{
    return json_integer_value(json_object_get(obj, key));
}

/* A row of the goldens: its rates, one for each step, and of some the evaluations between. */
static void check_row(const char *name, const json_t *row, const char *args, double base)
{
    const json_t *lr = json_object_get(row, "lr"), *metric = json_object_get(row, "metric");
    const json_t *beta = json_object_get(row, "beta1");
    char *kwargs = json_dumps(json_object_get(row, args), 0);
    struct ckpt_err err = {0};
    struct schedule s;
    double b1 = 0, b2;

    OK(schedule_init(&s, name, base, NAN, kwargs, &err), err);
    schedule_span(&s, whole(row, "warmup"), whole(row, "total"));
    for (size_t i = 0; i < json_array_size(lr); i++) {
        double want = json_number_value(json_array_get(lr, i));
        double found = schedule_lr(&s, base, (int64_t)i);

        if (!(fabs(found - want) <= 1e-15 * base))
            fail_msg("%s %s step %zu: %.17g, %.17g expected", name, kwargs, i, found, want);
        if (metric)
            schedule_measure(&s, json_number_value(json_array_get(metric, i)));
        assert_int_equal(schedule_betas(&s, (int64_t)i, &b1, &b2), beta != NULL);
        if (beta && !(fabs(b1 - json_number_value(json_array_get(beta, i))) <= 1e-15))
            fail_msg("%s %s step %zu: beta1 %.17g", name, kwargs, i, b1);
    }
    free(kwargs);
}

TEST(rates_equal_the_reference)
{
    static const char ds[] = "deepspeed ";
    json_t *root = golden_json("tests/golden/data", "/lr_schedules.json");
    double base = json_number_value(json_object_get(root, "base_lr"));
    const char *name;
    json_t *row;
    int seen = 0;

    json_object_foreach (json_object_get(root, "schedules"), name, row) {
        const char *kind = json_string_value(json_object_get(row, "kind"));

        if (strncmp(kind, ds, sizeof ds - 1) == 0)
            kind += sizeof ds - 1;
        check_row(kind, row, "args", base);
        seen++;
    }
    assert_true(seen >= 24);
    json_decref(root);
}

TEST(kwargs_are_the_references)
{
    json_t *root = golden_json("tests/golden/data", "/lr_schedules_kwargs.json");
    double base = json_number_value(json_object_get(root, "base_lr"));
    size_t i;
    json_t *row;

    json_array_foreach (json_object_get(root, "rows"), i, row)
        check_row(json_string_value(json_object_get(row, "kind")), row, "kwargs", base);
    assert_int_equal(i, 22);
    json_decref(root);
}

/* get_polynomial_decay_schedule_with_warmup without lr_end, over 4 steps from 3e-4 (transformers
 * 5.23: 3e-4, 2.25025e-4, 1.5005e-4, 7.5075e-5, 1e-7). */
TEST(polynomial_ends_where_transformers_does)
{
    static const double want[] = {3e-4, 2.25025e-4, 1.5005e-4, 7.5075e-5, 1e-7};
    struct ckpt_err err = {0};
    struct schedule s;

    OK(schedule_init(&s, "polynomial", 3e-4, NAN, NULL, &err), err);
    schedule_span(&s, 0, 4);
    for (int i = 0; i < 5; i++)
        assert_true(fabs(schedule_lr(&s, 3e-4, i) - want[i]) < 1e-18);
    OK(schedule_init(&s, "polynomial", 3e-4, 2e-5, NULL, &err), err);
    schedule_span(&s, 0, 4);
    assert_true(fabs(schedule_lr(&s, 3e-4, 4) - 2e-5) < 1e-18);
}

TEST(groups_of_another_peak_follow)
{
    struct ckpt_err err = {0};
    struct schedule s;

    OK(schedule_init(&s, "linear", 1e-3, NAN, NULL, &err), err);
    schedule_span(&s, 0, 10);
    assert_true(schedule_lr(&s, 16e-3, 4) == 16e-3 * 0.6);
    OK(schedule_init(&s, "WarmupLR", 1e-3, NAN, "warmup_num_steps=4,warmup_type=linear", &err), err);
    schedule_span(&s, 0, 10);
    assert_true(fabs(schedule_lr(&s, 2e-3, 3) - 1e-3) < 1e-18);
    OK(schedule_init(&s, "reduce_lr_on_plateau", 1e-3, NAN, "factor=0.5,patience=0", &err), err);
    for (int i = 0; i < 3; i++)
        schedule_measure(&s, 1);
    assert_true(schedule_lr(&s, 4e-3, 9) == 1e-3);
}

static void refused(const char *name, double min_lr, const char *kwargs, const char *text)
{
    struct ckpt_err err = {0};
    struct schedule s;

    assert_int_equal(schedule_init(&s, name, 1e-3, min_lr, kwargs, &err), CKPT_ECONFIG);
    assert_string_equal(err.text, text);
}

TEST(wrong_settings_are_named)
{
    refused("nosuch", NAN, NULL, "`lr_scheduler_type nosuch` is no schedule");
    refused("linear", NAN, "num_cycles=2",
            "`lr_scheduler_kwargs`: num_cycles is no key of linear, whose keys are: none");
    refused("cosine", NAN, "{\"num_cycle\": 2}",
            "`lr_scheduler_kwargs`: num_cycle is no key of cosine, whose keys are: num_cycles");
    refused("cosine", NAN, "num_cycles=1e", "`lr_scheduler_kwargs`: num_cycles=1e: a number from 0 "
            "to 1e+09 is wanted");
    refused("cosine", NAN, "num_cycles", "`lr_scheduler_kwargs`: num_cycles is not KEY=VALUE");
    refused("cosine", NAN, "num_cycles=nan", "`lr_scheduler_kwargs`: num_cycles=nan: a number from "
            "0 to 1e+09 is wanted");
    refused("cosine", NAN, "{\"num_cycles\": [1]}", "`lr_scheduler_kwargs`: num_cycles: a number, "
            "a word, true or false is wanted");
    refused("inverse_sqrt", NAN, "timescale=1.5", "`lr_scheduler_kwargs`: timescale=1.5: an "
            "integer from 1 to 1e+15 is wanted");
    refused("warmup_stable_decay", NAN, "num_decay_steps=3,decay_type=log", "`lr_scheduler_kwargs`:"
            " decay_type=log: one of linear cosine 1-sqrt is wanted");
    refused("warmup_stable_decay", NAN, NULL,
            "warmup_stable_decay needs num_decay_steps in `lr_scheduler_kwargs`");
    refused("OneCycle", NAN, "cycle_max_lr=1", "OneCycle needs cycle_min_lr in "
            "`lr_scheduler_kwargs`");
    refused("OneCycle", NAN, "cycle_min_lr=1,cycle_momentum=2", "`lr_scheduler_kwargs`: "
            "cycle_momentum=2: True or False is wanted");
    refused("cosine_with_min_lr", 1e-4, "min_lr=1e-5",
            "`min_lr` and min_lr in `lr_scheduler_kwargs` exclude each other");
    refused("cosine_with_min_lr", NAN, "min_lr=1e-5,min_lr_rate=0.1",
            "`lr_scheduler_kwargs`: min_lr and min_lr_rate exclude each other");
    refused("linear", 1e-5, NULL, "`min_lr` is not used by linear, only by cosine_with_min_lr, "
            "cosine_warmup_with_min_lr, polynomial and reduce_lr_on_plateau");
}

TEST(names_round_trip)
{
    enum schedule_kind k;

    assert_false(schedule_parse(&k, "nosuch"));
    for (int i = 0; i < SCHEDULE_KINDS; i++) {
        assert_true(schedule_parse(&k, schedule_name((enum schedule_kind)i)));
        assert_int_equal(k, i);
    }
}

/* What a schedule has seen comes back from its file: the same rates from then on. */
TEST(a_plateau_goes_on_from_its_file)
{
    static const char kwargs[] = "factor=0.3,patience=2,cooldown=1,min_lr=1e-5,mode=max";
    struct ckpt_err err = {0};
    struct schedule s, again;
    struct ckpt_file *f;
    struct ckpt_out *out;
    double base[2] = {1e-3, 1e-3};

    OK(schedule_init(&s, "reduce_lr_on_plateau", 1e-3, NAN, kwargs, &err), err);
    for (int i = 0; i < 17; i++)
        schedule_measure(&s, i < 5 ? i : 3);
    assert_true(s.plateau.reductions >= 2);
    OK(ckpt_out_create(&out, TMP, CKPT_REPLACE, &err), err);
    OK(schedule_file_write(out, &s, base, 2, 17, &err), err);
    OK(schedule_init(&again, "reduce_lr_on_plateau", 1e-3, NAN, kwargs, &err), err);
    OK(ckpt_file_open(&f, TMP, 0, &err), err);
    OK(schedule_file_read(&again, f, &err), err);
    for (int i = 0; i < 30; i++) {
        assert_true(schedule_lr(&s, 1e-3, i) == schedule_lr(&again, 1e-3, i));
        assert_int_equal(schedule_measure(&s, 3), schedule_measure(&again, 3));
    }
    OK(ckpt_file_open(&f, "tests/golden/optim/scaler.pt", 0, &err), err);
    assert_int_equal(schedule_file_read(&again, f, &err), CKPT_EFORMAT);
}
