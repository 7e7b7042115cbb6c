/*
 * A copy of states is that of the moment it was asked for, though the device copies as late as it
 * may and the next step's optimizer follows at once; wherever states lie, as they are stored.
 */
#include "trainer/shard/zero_copy.h"

#include "tests/unit/lazy_streams.h"
#include "tests/unit/zero_side.h"
#include "trainer/rng.h"

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const uint64_t *seed = ctx;

    (void)err;
    rng_normal(dst, start, count, 0.5f, *seed, i);
    return 0;
}

static void open_side(struct side *s, struct golden *g, enum ckpt_dtype weight, bool discrete,
                      const struct zero_opts *opts)
{
    struct device *dev = cpu_device(2);
    struct ckpt_err err = {0};
    uint64_t seed = 3;

    dev->weight = weight;
    dev->discrete = discrete;
    lazy_streams(dev);
    side_open(s, g, dev, &train, opts);
    OK(zero_fill(s->zero, ZERO_MASTER, fill, &seed, &err), err);
}

/* The gradients of a step, all on the device: nothing waits between them and the optimizer. */
static void gradients(struct side *s, int k)
{
    uint64_t seed = 100 + (uint64_t)k;
    struct ckpt_err err = {0};

    zero_begin(s->zero);
    OK(zero_fill(s->zero, ZERO_GRAD, fill, &seed, &err), err);
}

static void step(struct side *s, int k)
{
    const struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                            .grad_scale = 0.5, .step = k, .seed = 5};

    zero_step(s->zero, &a, 0.1);
}

/* Weights and moments as f32, and moments and scales as they are stored. */
static struct saved all_of(struct golden *g, struct zero *z)
{
    const struct params *p = zero_flat(z)->params;
    struct ckpt_err err = {0};
    struct saved out = {0};
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++) {
        n += 3 * (size_t)p->item[i].numel * sizeof(float);
        for (int of = OPTIM_STATE_AVG; of < OPTIM_STATE_ARRAYS; of++)
            n += optim_state_bytes((enum optim_state_array)of, zero_moments(z, i),
                                   p->item[i].numel);
    }
    out.at = ckpt_arena_alloc(&g->arena, n, 1);
    for (size_t i = 0; i < p->n; i++) {
        int64_t numel = p->item[i].numel;

        for (int of = 0; of < 3; of++) {
            static const enum zero_array arrays[] = {ZERO_MASTER, ZERO_EXP_AVG, ZERO_EXP_AVG_SQ};

            OK(zero_read(z, arrays[of], i, 0, numel, (float *)(void *)(out.at + out.bytes), &err),
               err);
            out.bytes += (size_t)numel * sizeof(float);
        }
        for (int of = OPTIM_STATE_AVG; of < OPTIM_STATE_ARRAYS; of++) {
            size_t size = optim_state_bytes((enum optim_state_array)of, zero_moments(z, i), numel);
            unsigned char *at = ckpt_arena_alloc(&g->arena, size + 1, 1);

            if (size)
                OK(zero_read_stored(z, (enum optim_state_array)of, i, 0, numel, at, &err), err);
            memcpy(out.at + out.bytes, at, size);
            out.bytes += size;
        }
    }
    return out;
}

static void check(enum ckpt_dtype weight, bool discrete, const struct zero_opts *opts,
                  const char *what)
{
    struct saved want[3], got;
    struct ckpt_err err = {0};
    struct zero_copy *copy;
    struct golden g;
    struct side s;

    golden_open(&g, "bloom-a", &train, 1);
    open_side(&s, &g, weight, discrete, opts);
    for (int k = 1; k <= 3; k++) {
        gradients(&s, k);
        want[k - 1] = all_of(&g, s.zero);
        step(&s, k);
    }
    side_close(&s);
    open_side(&s, &g, weight, discrete, opts);
    OK(zero_copy_new(&copy, s.zero, s.comm, true, &err), err);
    for (int k = 1; k <= 3; k++) {
        gradients(&s, k);
        zero_copy_take(copy);
        step(&s, k);
        OK(zero_copy_wait(copy, &err), err);
        got = all_of(&g, zero_copy_zero(copy));
        assert_same_saved(got, want[k - 1], what);
    }
    zero_copy_free(copy);
    side_close(&s);
    golden_close(&g);
}

TEST(the_optimizer_does_not_overtake_a_copy)
{
    static const enum op_moments kinds[] = {OP_MOMENTS_F32, OP_MOMENTS_BF16, OP_MOMENTS_8BIT};

    for (int k = 0; k < 3; k++)
        for (int d = 0; d < 2; d++) {
            struct zero_opts opts = {.train = true, .moments = kinds[k], .chunk = 512};

            check(CKPT_F32, d, &opts, "f32");
            check(CKPT_BF16, d, &opts, "bf16");
            if (!d)
                continue;               /* what follows is of GPUs */
            opts.paged = true;
            opts.optim_on_device = 70000;
            check(CKPT_BF16, d, &opts, "some on the host");
            opts.offload = true;
            check(CKPT_BF16, d, &opts, "states on the host");
            opts.offload_param = true;
            check(CKPT_BF16, d, &opts, "all on the host");
        }
}

TEST(a_copy_takes_what_is_said)
{
    struct zero_opts opts = {.train = true, .moments = OP_MOMENTS_8BIT};
    uint64_t bytes = 0;
    struct golden g;
    struct side s;

    golden_open(&g, "bloom-a", &train, 1);
    open_side(&s, &g, CKPT_BF16, true, &opts);
    for (size_t i = 0; i < model_params(s.model)->n; i++)
        for (int of = 0; of < OPTIM_STATE_ARRAYS; of++)
            bytes += optim_state_bytes((enum optim_state_array)of, zero_moments(s.zero, i),
                                       model_params(s.model)->item[i].numel);
    assert_true(zero_copy_bytes(s.zero) == bytes);
    side_close(&s);
    golden_close(&g);
}
