/* schedule: the same doubles as transformers' schedules over 200 steps. */
#include "tests/unit/unit.h"

#include <math.h>

#include "libckpt/base/json.h"
#include "trainer/optim/schedule.h"

static json_t *golden(const char *path)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *root = NULL;

    if (ckpt_file_open(&f, path, 0, &err))
        fail_msg("%s", err.text);
    if (ckpt_json_read(&root, f, CKPT_JSON_MAX_BYTES, 0, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(f);
    return root;
}

static double number(const json_t *obj, const char *key, double fallback)
{
    const json_t *v = json_object_get(obj, key);

    return v ? json_number_value(v) : fallback;
}

TEST(rates_equal_the_reference)
{
    json_t *root = golden("tests/golden/data/lr_schedules.json");
    double base = json_number_value(json_object_get(root, "base_lr"));
    const char *name;
    json_t *row;
    int seen = 0;

    json_object_foreach (json_object_get(root, "schedules"), name, row) {
        const json_t *args = json_object_get(row, "args"), *lr = json_object_get(row, "lr");
        struct schedule s = {.lr = base};

        if (!schedule_parse(&s.kind, json_string_value(json_object_get(row, "kind"))))
            continue;                   /* DeepSpeed's own and warmup_stable_decay */
        s.warmup_steps = (int64_t)number(row, "warmup", 0);
        s.total_steps = (int64_t)number(row, "total", 0);
        s.power = number(args, "power", 1);
        s.num_cycles =
            number(args, "num_cycles", s.kind == SCHEDULE_COSINE_WITH_RESTARTS ? 1 : 0.5);
        s.min_lr = number(args, "min_lr", number(args, "lr_end", 0));
        if (json_object_get(args, "min_lr_rate"))
            s.min_lr = base * number(args, "min_lr_rate", 0);
        for (size_t i = 0; i < json_array_size(lr); i++) {
            double want = json_number_value(json_array_get(lr, i));
            double found = schedule_lr(&s, (int64_t)i);

            if (fabs(found - want) > 1e-12)
                fail_msg("%s step %zu: %.17g, %.17g expected", name, i, found, want);
        }
        seen++;
    }
    assert_true(seen >= 16);
    json_decref(root);
}

/* get_polynomial_decay_schedule_with_warmup without lr_end, over 4 steps from 3e-4 (transformers
 * 5.23: 3e-4, 2.25025e-4, 1.5005e-4, 7.5075e-5, 1e-7). */
TEST(polynomial_ends_where_transformers_does)
{
    static const double want[] = {3e-4, 2.25025e-4, 1.5005e-4, 7.5075e-5, 1e-7};
    struct schedule s = {.kind = SCHEDULE_POLYNOMIAL, .lr = 3e-4, .power = 1, .total_steps = 4};

    s.min_lr = schedule_end(s.kind, NAN);
    for (int i = 0; i < 5; i++)
        assert_true(fabs(schedule_lr(&s, i) - want[i]) < 1e-18);
    assert_true(schedule_end(SCHEDULE_POLYNOMIAL, 0) == 0);
    assert_true(schedule_end(SCHEDULE_POLYNOMIAL, 2e-5) == 2e-5);
    assert_true(schedule_end(SCHEDULE_COSINE_WITH_MIN_LR, NAN) == 0);
}

TEST(names_round_trip)
{
    enum schedule_kind k;

    assert_false(schedule_parse(&k, "nosuch"));
    for (int i = SCHEDULE_CONSTANT; i <= SCHEDULE_INVERSE_SQRT; i++) {
        assert_true(schedule_parse(&k, schedule_name((enum schedule_kind)i)));
        assert_int_equal(k, i);
        assert_non_null(strstr(schedule_names(), schedule_name(k)));
    }
}
