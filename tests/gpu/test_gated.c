/* Projections fused with their gate and their norm, as generation uses them: the same values as
 * one operation after the other, which are tested against the CPU. */
#include "tests/gpu/gpu.h"

/* The two arrays of the GPU are within `by` (1 + |wanted|) of each other. */
static void compare(struct gpu *g, const char *name, const struct both *got,
                    const struct both *want, float by)
{
    float *x = gpu_fetch(g, got), *y = gpu_fetch(g, want);

    for (int64_t i = 0; i < got->n; i++)
        if (!(fabsf(x[i] - y[i]) <= by * (1 + fabsf(y[i]))))
            fail_msg("%s: element %lld is %g, wanted %g", name, (long long)i, (double)x[i],
                     (double)y[i]);
    free(x);
    free(y);
}

static void check(enum ckpt_dtype type, int64_t n, int64_t n_in, int64_t ff, enum op_act act)
{
    struct op_limits lim = {.n = n, .n_rows = 1, .max_doc = 1, .dim = n_in, .n_head = 1, .n_kv = 1,
                            .head_dim = 8, .ff = ff, .vocab = 8};
    struct both x, w, u, out[2];
    char name[80];
    struct gpu g;

    if (gpu_left_out(2 * ff * n_in))
        return;
    gpu_open(&g, type, &lim);
    w = gpu_random(&g, type, 2 * ff * n_in, 1.0f / sqrtf((float)n_in));
    x = gpu_random(&g, type, n * n_in, 1.0f);
    u = gpu_blank(&g, type, 2 * n * ff);
    for (int fused = 0; fused < 2; fused++) {
        struct op_linear a = {.out = u.gpu, .x = x.gpu, .proj.w = w.gpu, .n = n, .n_in = n_in,
                              .n_out = 2 * ff};
        struct op_gate gate = {.u = u.gpu, .act = act, .n = n, .ff = ff};

        out[fused] = gpu_blank(&g, type, n * ff);
        gate.out = out[fused].gpu;
        if (fused) {
            g.gpu->ops->gated_fwd(g.gpu, &a, &gate);
        } else {
            g.gpu->ops->linear_fwd(g.gpu, &a);
            g.gpu->ops->gate_fwd(g.gpu, &gate);
        }
    }
    snprintf(name, sizeof name, "%lld rows, %lld to %lld", (long long)n, (long long)n_in,
             (long long)ff);
    compare(&g, name, &out[1], &out[0], 0);
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

/* A norm, a projection with or without a gate, and one more that reads its output. */
struct normed {
    struct op_rownorm norm;
    struct op_linear  a, b;
    struct op_gate    gate;
    bool              gated;
};

static void go(struct device *dev, const struct normed *n, bool fused)
{
    const struct op_gate *gate = n->gated ? &n->gate : NULL;

    if (fused) {
        dev->ops->normed_fwd(dev, &n->norm, &n->a, gate);
    } else {
        dev->ops->norm_fwd(dev, &n->norm);
        dev->ops->linear_fwd(dev, &n->a);
        if (gate)
            dev->ops->gate_fwd(dev, gate);
    }
    dev->ops->linear_fwd(dev, &n->b);
}

enum { TIMES = 5 };

/* Both orders round x alike but where sums of squares end on different sides of a tie: a last
 * place of x, in a few elements, then of the outputs.  Launches of a graph give the same bits. */
static void check_normed(enum ckpt_dtype type, int64_t n, int64_t n_in, int64_t ff,
                         enum op_norm_kind kind, bool gated)
{
    struct op_limits lim = {.n = n + 3, .n_rows = 1, .max_doc = 1, .dim = n_in, .n_head = 1,
                            .n_kv = 1, .head_dim = 8, .ff = ff, .vocab = 8};
    float eps = type == CKPT_F32 ? 0x1p-20f : type == CKPT_BF16 ? 0x1p-8f : 0x1p-11f;
    static const int32_t rows[] = {1, 2, 4, 5, 7};
    enum { PLAIN, FUSED, GRAPH };
    int64_t wide = gated ? 2 * ff : ff;
    struct both x, w, down, gain, shift, normed, u, mid[3], out[3];
    struct op_graph *graph;
    struct normed op[3];
    struct gpu g;

    if (gpu_left_out(wide * n_in))
        return;
    gpu_open(&g, type, &lim);
    w = gpu_random(&g, type, wide * n_in, 1.0f / sqrtf((float)n_in));
    down = gpu_random(&g, type, ff * n_in, 1.0f / sqrtf((float)ff));
    x = gpu_random(&g, type, 8 * n_in, 3.0f);
    gain = gpu_random(&g, type, n_in, 1.0f);
    shift = gpu_random(&g, type, n_in, 1.0f);
    normed = gpu_blank(&g, type, n * n_in);
    u = gpu_blank(&g, type, n * wide);
    for (int i = 0; i < 3; i++) {
        mid[i] = gpu_blank(&g, type, n * ff);
        out[i] = gpu_blank(&g, type, n * n_in);
        op[i] = (struct normed){
            .gated = gated,
            .norm = {.out = normed.gpu, .x = x.gpu, .n = n, .n_x = n, .dim = n_in,
                     .norm = {.kind = kind, .eps = 1e-6f, .w = gain.gpu,
                              .b = kind == OP_NORM_LAYER ? shift.gpu : NULL}},
            .a = {.out = gated ? u.gpu : mid[i].gpu, .x = normed.gpu, .proj.w = w.gpu, .n = n,
                  .n_in = n_in, .n_out = wide, .act = gated ? OP_ACT_NONE : OP_ACT_GELU_TANH},
            .gate = {.out = mid[i].gpu, .u = u.gpu, .n = n, .ff = ff, .act = OP_ACT_SILU},
            .b = {.out = out[i].gpu, .x = mid[i].gpu, .proj.w = down.gpu, .n = n, .n_in = ff,
                  .n_out = n_in, .residual = n == 3 ? NULL : x.gpu},
        };
        if (n == 3) {                   /* chosen rows */
            op[i].norm.rows = gpu_ints(&g, rows, 5).gpu;
            op[i].norm.n_x = 8;
        }
    }
    go(g.gpu, &op[PLAIN], false);
    go(g.gpu, &op[FUSED], true);
    compare(&g, "fused: the middle", &mid[FUSED], &mid[PLAIN], 2 * eps);
    compare(&g, "fused: the end", &out[FUSED], &out[PLAIN], 2 * eps);
    assert_true(g.gpu->ops->graph_begin(g.gpu));
    for (int i = 0; i < 3; i++)
        go(g.gpu, &op[GRAPH], true);
    graph = g.gpu->ops->graph_end(g.gpu);
    assert_non_null(graph);
    for (int i = 0; i < TIMES; i++) {
        g.gpu->ops->zero(g.gpu, mid[GRAPH].gpu, gpu_size(&mid[GRAPH]));
        g.gpu->ops->zero(g.gpu, out[GRAPH].gpu, gpu_size(&out[GRAPH]));
        g.gpu->ops->graph_launch(g.gpu, graph);
        gpu_same(&g, "graph: the middle", &mid[GRAPH], &mid[FUSED]);
        gpu_same(&g, "graph: the end", &out[GRAPH], &out[FUSED]);
    }
    g.gpu->ops->graph_free(g.gpu, graph);
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
        /* wider than a block holds */
        check_normed(gpu_types[t], 1, 12288, 24, OP_NORM_RMS, false);
        check_normed(gpu_types[t], 2, 72, 8, OP_NORM_LAYER, true);
        check_normed(gpu_types[t], 4, 2056, 40, OP_NORM_RMS, true);
        check_normed(gpu_types[t], 1, 50, 20, OP_NORM_RMS, true);   /* no rows of 16 bytes */
    }
}
