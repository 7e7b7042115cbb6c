/*
 * The memory plan: nothing alive at the same time overlaps, nested life-times meet the lower
 * bound, and a model's plan is what it allocates.
 */
#include "tests/unit/model_help.h"

#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/plan.h"

/* No two buffers that are alive in one phase share a byte; all lie inside, aligned. */
static void check_plan(const struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct plan_item *a = &p->item[i];

        assert_int_equal(a->offset % PLAN_ALIGN, 0);
        assert_true(a->offset + a->bytes <= p->bytes);
        for (size_t j = 0; j < i; j++) {
            const struct plan_item *b = &p->item[j];

            if (a->first <= b->last && b->first <= a->last)
                assert_true(a->offset + a->bytes <= b->offset ||
                            b->offset + b->bytes <= a->offset);
        }
    }
}

/* The most bytes alive in one phase: no placement can need less. */
static uint64_t plan_peak(const struct plan *p)
{
    uint64_t peak = 0;

    /* The peak is reached in a phase in which some buffer is born. */
    for (size_t i = 0; i < p->n; i++) {
        uint64_t alive = 0;

        for (size_t j = 0; j < p->n; j++)
            if (p->item[j].first <= p->item[i].first && p->item[i].first <= p->item[j].last)
                alive += p->item[j].bytes;
        peak = alive > peak ? alive : peak;
    }
    return peak;
}

TEST(plan_shares_what_is_never_alive_together)
{
    struct ckpt_err err = {0};
    struct plan p = {0};
    void *at = NULL, *also = NULL;
    size_t a = plan_add(&p, NULL, "a", 1000, 0, 1), b = plan_add(&p, &at, "b", 500, 1, 2);
    size_t c = plan_add(&p, NULL, "c", 900, 2, 3), d = plan_add(&p, NULL, "d", 0, 0, 3);

    assert_int_equal(plan_pack(&p, &err), 0);
    check_plan(&p);
    assert_int_equal(p.bytes, 1024 + 512);
    assert_int_equal(p.item[a].offset, p.item[c].offset);
    assert_int_equal(p.item[b].offset, 1024);
    assert_int_equal(p.item[d].bytes, 0);
    plan_share(&p, b, &also);
    plan_hand_out(&p, (void *)4096);
    assert_ptr_equal(at, (void *)(4096 + 1024));
    assert_ptr_equal(also, at);
    plan_release(&p);
    assert_int_equal(plan_pack(&p, &err), 0);       /* empty */
    assert_int_equal(p.bytes, 0);
    plan_release(&p);
}

TEST(plan_meets_the_bound_when_lives_nest)
{
    struct ckpt_err err = {0};
    struct plan p = {0};

    for (int l = 0; l < 12; l++) {
        plan_add(&p, NULL, "kept", 4096 * 3, l, 24 - l);
        plan_add(&p, NULL, "kept too", 4096, l, 24 - l);
        plan_add(&p, NULL, "forward", 4096 * 2, l, l);
        plan_add(&p, NULL, "backward", 4096 * 5, 24 - l, 24 - l);
    }
    assert_int_equal(plan_pack(&p, &err), 0);
    check_plan(&p);
    assert_int_equal(plan_peak(&p), 12 * 4096 * 4 + 4096 * 5);
    assert_int_equal(p.bytes, plan_peak(&p));
    plan_release(&p);
}

TEST(plan_never_overlaps_at_random)
{
    uint32_t x = 5;

    for (int round = 0; round < 50; round++) {
        struct ckpt_err err = {0};
        struct plan p = {0};

        for (int i = 0; i < 60; i++) {
            int first, last;

            x = x * 1664525u + 1013904223u;
            first = (int)(x >> 8) % 20;
            last = first + (int)(x >> 16) % 7;
            plan_add(&p, NULL, "x", (x >> 4) % 5000, first, last);
        }
        assert_int_equal(plan_pack(&p, &err), 0);
        check_plan(&p);
        assert_true(p.bytes >= plan_peak(&p));
        assert_true(p.bytes <= plan_peak(&p) * 3 / 2);
        plan_release(&p);
    }
}

TEST(plan_refuses_what_no_machine_has)
{
    struct ckpt_err err = {0};
    struct plan p = {0};

    plan_add(&p, NULL, "a", UINT64_MAX, 0, 1);
    assert_int_equal(plan_pack(&p, &err), CKPT_ELIMIT);
    plan_release(&p);
    plan_add(&p, NULL, "a", (uint64_t)1 << 47, 0, 1);
    plan_add(&p, NULL, "b", ((uint64_t)1 << 47) + 1, 0, 1);
    assert_int_equal(plan_pack(&p, &err), CKPT_ELIMIT);
    plan_release(&p);
}

static uint64_t planned(const struct arch *arch, struct device *dev, bool train,
                        enum recompute recompute)
{
    struct model_opts o = {.max_tokens = 256, .max_docs = 4, .max_rows = 256, .train = train,
                           .recompute = recompute};
    struct ckpt_err err = {0};
    struct model *m;
    uint64_t bytes;

    if (model_new(&m, arch, &o, dev, &err))
        fail_msg("%s", err.text);
    bytes = model_planned_bytes(m);
    model_free(m);
    return bytes;
}

/* Kept activations grow with depth; recomputed and forward-only ones hardly do. */
TEST(plan_of_a_model_reuses_buffers_over_layers)
{
    static const char *const text[] = {
        "{\"model_type\":\"bloom\",\"vocab_size\":300,\"hidden_size\":64,\"n_layer\":2}",
        "{\"model_type\":\"bloom\",\"vocab_size\":300,\"hidden_size\":64,\"n_layer\":12}"};
    const uint64_t row = 256 * 64 * sizeof(float);      /* one [N, D] */
    struct device *dev = cpu_device(2);
    uint64_t keep[2], again[2], eval[2];

    for (int i = 0; i < 2; i++) {
        struct arch *arch = arch_of(text[i]);

        keep[i] = planned(arch, dev, true, RECOMPUTE_NONE);
        again[i] = planned(arch, dev, true, RECOMPUTE_FULL);
        eval[i] = planned(arch, dev, false, RECOMPUTE_NONE);
        arch_free(arch);
    }
    assert_int_equal(eval[0], eval[1]);
    assert_in_range(again[1] - again[0], 10 * row, 10 * row + 4096);
    /* h, y1, qkv, ctx, h1, y2, u, g: 16 rows, statistics and log-sum-exp */
    assert_in_range(keep[1] - keep[0], 160 * row, 165 * row);
    device_close(dev);
}
