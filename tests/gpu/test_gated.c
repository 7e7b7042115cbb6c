/* Projections with their gate and their norm at once, as generation makes them: the same values as
 * one after the other, which are tested against the CPU. */
#include "tests/gpu/gpu.h"

static void check(enum ckpt_dtype type, int64_t n, int64_t n_in, int64_t ff, enum op_act act)
{
    struct op_limits lim = {.n = n, .n_rows = 1, .max_doc = 1, .dim = n_in, .n_head = 1, .n_kv = 1,
                            .head_dim = 8, .ff = ff, .vocab = 8};
    size_t size = ckpt_dtype_size(type);
    float *x, *one, *two;
    const struct ops *ops;
    struct both bx, bw;
    struct gpu g;
    void *u, *out, *wide;

    if (gpu_left_out(2 * ff * n_in))
        return;
    x = malloc((size_t)(2 * ff * n_in) * sizeof *x);
    one = malloc((size_t)(n * ff) * sizeof *one);
    two = malloc((size_t)(n * ff) * sizeof *two);
    gpu_open(&g, type, &lim);
    ops = g.gpu->ops;
    rng_normal(x, 0, 2 * ff * n_in, 1.0f / sqrtf((float)n_in), 3, 1);
    bw = gpu_values(&g, type, x, 2 * ff * n_in);
    rng_normal(x, 0, n * n_in, 1.0f, 3, 2);
    bx = gpu_values(&g, type, x, n * n_in);
    u = ops->alloc(g.gpu, (size_t)(2 * n * ff) * size);
    out = ops->alloc(g.gpu, (size_t)(n * ff) * size);
    wide = ops->alloc(g.gpu, (size_t)(n * ff) * sizeof(float));
    for (int i = 0; i < 2; i++) {
        struct op_linear a = {.out = u, .x = bx.gpu, .proj.w = bw.gpu, .n = n, .n_in = n_in,
                              .n_out = 2 * ff};
        struct op_gate gate = {.out = out, .u = u, .act = act, .n = n, .ff = ff};

        if (i == 0) {
            ops->linear_fwd(g.gpu, &a);
            ops->gate_fwd(g.gpu, &gate);
        } else {
            ops->gated_fwd(g.gpu, &a, &gate);
        }
        ops->cast(g.gpu, wide, CKPT_F32, out, type, n * ff);
        ops->to_host(g.gpu, i ? two : one, wide, (size_t)(n * ff) * sizeof *one);
        ops->zero(g.gpu, out, (size_t)(n * ff) * size);
    }
    gpu_fine(&g);
    for (int64_t i = 0; i < n * ff; i++)
        if (!(one[i] == two[i]))
            fail_msg("%lld rows, %lld to %lld: element %lld is %g, wanted %g", (long long)n,
                     (long long)n_in, (long long)ff, (long long)i, two[i], one[i]);
    free(x);
    free(one);
    free(two);
    gpu_close(&g);
}

TEST(gated_is_a_projection_and_a_gate)
{
    for (int t = gpu_first_type(); t < gpu_n_types(); t++) {
        for (int64_t n = 1; n <= 5; n++)
            check(gpu_types[t], n, 512, 96, n % 2 ? OP_ACT_SILU : OP_ACT_GELU_TANH);
        if (gpu_small() < 2)
            check(gpu_types[t], 1, 4096, 300, OP_ACT_SILU);
        check(gpu_types[t], 2, 72, 7, OP_ACT_GELU_ERF);
        check(gpu_types[t], 1, 2056, 33, OP_ACT_RELU);
        check(gpu_types[t], 3, 50, 20, OP_ACT_SILU); /* rows that cannot be read by 16 bytes */
    }
}

/* A norm, a projection with or without a gate, and one more that reads what it made. */
struct normed {
    struct op_rownorm norm;
    struct op_linear  a, b;
    struct op_gate    gate;
    bool              gated;
};

static void go(struct device *dev, const struct normed *n, bool at_once)
{
    const struct op_gate *gate = n->gated ? &n->gate : NULL;

    if (at_once) {
        dev->ops->normed_fwd(dev, &n->norm, &n->a, gate);
    } else {
        dev->ops->norm_fwd(dev, &n->norm);
        dev->ops->linear_fwd(dev, &n->a);
        if (gate)
            dev->ops->gate_fwd(dev, gate);
    }
    dev->ops->linear_fwd(dev, &n->b);
}

/* What has come out of both: [n, ff], then [n, n_in]. */
static void take(struct gpu *g, float *to, const struct normed *n, enum ckpt_dtype type,
                 float *wide)
{
    int64_t first = n->b.n * n->b.n_in, second = n->b.n * n->b.n_out;
    const struct ops *ops = g->gpu->ops;

    ops->cast(g->gpu, wide, CKPT_F32, n->b.x, type, first);
    ops->to_host(g->gpu, to, wide, (size_t)first * sizeof *to);
    ops->cast(g->gpu, wide, CKPT_F32, n->b.out, type, second);
    ops->to_host(g->gpu, to + first, wide, (size_t)second * sizeof *to);
    ops->zero(g->gpu, n->b.x, (size_t)first * ckpt_dtype_size(type));
    ops->zero(g->gpu, n->b.out, (size_t)second * ckpt_dtype_size(type));
}

/* Both orders round x alike but where sums of squares end on different sides of a tie: a last
 * place of x, in a few elements, then of what comes out. */
static void compare(const float *got, const float *want, int64_t n, float eps, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 2 * eps * (1 + fabsf(want[i]))))
            fail_msg("%s: element %lld is %g, wanted %g", what, (long long)i, got[i], want[i]);
}

static void check_normed(enum ckpt_dtype type, int64_t n, int64_t n_in, int64_t ff,
                         enum op_norm_kind kind, bool gated)
{
    struct op_limits lim = {.n = n + 3, .n_rows = 1, .max_doc = 1, .dim = n_in, .n_head = 1,
                            .n_kv = 1, .head_dim = 8, .ff = ff, .vocab = 8};
    size_t size = ckpt_dtype_size(type), all = (size_t)(n * (ff + n_in));
    float eps = type == CKPT_F32 ? 0x1p-20f : type == CKPT_BF16 ? 0x1p-8f : 0x1p-11f;
    static const int32_t rows[] = {1, 2, 4, 5, 7};
    int64_t wide = gated ? 2 * ff : ff;
    struct normed op = {.gated = gated};
    struct both bx, bw, bd, bg, bb;
    struct op_graph *kept;
    const struct ops *ops;
    float *f32, *out[3];
    struct gpu g;

    if (gpu_left_out(wide * n_in))
        return;
    gpu_open(&g, type, &lim);
    ops = g.gpu->ops;
    bw = gpu_random(&g, type, wide * n_in, 1.0f / sqrtf((float)n_in));
    bd = gpu_random(&g, type, ff * n_in, 1.0f / sqrtf((float)ff));
    bx = gpu_random(&g, type, 8 * n_in, 3.0f);
    bg = gpu_random(&g, type, n_in, 1.0f);
    bb = gpu_random(&g, type, n_in, 1.0f);
    f32 = ops->alloc(g.gpu, all * sizeof *f32);
    op.norm = (struct op_rownorm){.out = ops->alloc(g.gpu, (size_t)(n * n_in) * size),
        .x = bx.gpu, .norm = {.kind = kind, .eps = 1e-6f, .w = bg.gpu,
                              .b = kind == OP_NORM_LAYER ? bb.gpu : NULL},
        .n = n, .n_x = n, .dim = n_in};
    if (n == 3) {                       /* chosen rows */
        op.norm.rows = gpu_ints(&g, rows, 5).gpu;
        op.norm.n_x = 8;
    }
    op.gate = (struct op_gate){.out = ops->alloc(g.gpu, (size_t)(n * ff) * size), .n = n, .ff = ff,
                               .u = ops->alloc(g.gpu, (size_t)(n * wide) * size),
                               .act = OP_ACT_SILU};
    op.a = (struct op_linear){.out = (void *)(uintptr_t)(gated ? op.gate.u : op.gate.out),
                              .x = op.norm.out,
                              .proj.w = bw.gpu,
                              .n = n,
                              .n_in = n_in,
                              .n_out = wide,
                              .act = gated ? OP_ACT_NONE : OP_ACT_GELU_TANH};
    op.b = (struct op_linear){.out = ops->alloc(g.gpu, (size_t)(n * n_in) * size), .proj.w = bd.gpu,
                              .x = op.gate.out, .n = n, .n_in = ff, .n_out = n_in,
                              .residual = n == 3 ? NULL : bx.gpu};
    for (int i = 0; i < 3; i++)
        out[i] = malloc(all * sizeof **out);
    for (int i = 0; i < 2; i++) {
        go(g.gpu, &op, i);
        take(&g, out[i], &op, type, f32);
    }
    gpu_fine(&g);
    compare(out[1], out[0], n * (ff + n_in), eps, "at once");
    assert_true(ops->graph_begin(g.gpu));
    for (int i = 0; i < 3; i++)
        go(g.gpu, &op, true);
    kept = ops->graph_end(g.gpu);
    assert_non_null(kept);
    for (int i = 0; i < 5; i++) {
        ops->graph_launch(g.gpu, kept);
        take(&g, out[2], &op, type, f32);
        assert_memory_equal(out[2], out[1], all * sizeof **out);
    }
    ops->graph_free(g.gpu, kept);
    gpu_fine(&g);
    for (int i = 0; i < 3; i++)
        free(out[i]);
    gpu_close(&g);
}

TEST(normed_is_a_norm_and_a_projection)
{
    for (int t = gpu_first_type(); t < gpu_n_types(); t++) {
        for (int64_t n = 1; n <= 5; n++)
            check_normed(gpu_types[t], n, 512, 96, n % 2 ? OP_NORM_RMS : OP_NORM_LAYER, n != 2);
        if (gpu_small() == 2)
            continue;
        check_normed(gpu_types[t], 1, 4096, 300, OP_NORM_RMS, true);
        check_normed(gpu_types[t], 1, 4096, 1304, OP_NORM_LAYER, false);
        check_normed(gpu_types[t], 1, 12288, 24, OP_NORM_RMS,
                     false); /* wider than a block holds */
        check_normed(gpu_types[t], 2, 72, 8, OP_NORM_LAYER, true);
        check_normed(gpu_types[t], 4, 2056, 40, OP_NORM_RMS, true);
        check_normed(gpu_types[t], 1, 50, 20, OP_NORM_RMS, true);   /* no rows of 16 bytes */
    }
}
