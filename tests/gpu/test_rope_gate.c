/* Rotary positions, norms by heads and gated activations on a GPU against the CPU. */
#include "tests/gpu/gpu.h"

/* Sums in f32 of what starts from the same rounded values. */
#define SUM_BOUND 2e-5

enum { POSITIONS = 97 };

/* How a row's heads lie: q, k, v one after another; [K, 3, d] (H = K); with a gap behind. */
enum layout { BLOCKS, FUSED, GAP };

struct shape {
    int64_t n, n_head, n_kv, dim, turned;
    enum layout layout;
    bool norms, frozen, skew;
};

static int64_t stride_of(const struct shape *c)
{
    return (c->n_head + 2 * c->n_kv) * c->dim + (c->layout == GAP ? 24 : 0);
}

/* In elements of `size` bytes. */
static struct op_heads heads(const struct shape *c, void *base, size_t size)
{
    char *q = base;
    int64_t d = c->dim, stride = stride_of(c);

    if (c->layout == FUSED)
        return (struct op_heads){q, q + (size_t)d * size, q + (size_t)(2 * d) * size, stride, 0,
                                 3 * d, 3 * d};
    return (struct op_heads){q, q + (size_t)(c->n_head * d) * size,
                             q + (size_t)((c->n_head + c->n_kv) * d) * size, stride, 0, d, d};
}

static struct both angles(struct gpu *g, int64_t turned)
{
    float *host = malloc((size_t)(POSITIONS * turned) * sizeof *host + 1);
    struct both b;

    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t j = 0; j < turned / 2; j++) {
            double a = (double)p * pow(100, -2.0 * (double)j / (double)turned);

            host[p * turned + j] = (float)cos(a);
            host[p * turned + turned / 2 + j] = (float)sin(a);
        }
    b = gpu_values(g, CKPT_F32, host, POSITIONS * turned);
    free(host);
    return b;
}

static struct both places(struct gpu *g, int64_t n)
{
    int32_t *host = malloc((size_t)n * sizeof *host + 1);
    struct both b;

    for (int64_t i = 0; i < n; i++)
        host[i] = (int32_t)(i * 31 % POSITIONS);
    b = gpu_ints(g, host, n);
    free(host);
    return b;
}

/* dq, dk: where the sums' bytes go. */
static void rope_once(struct gpu *g, const struct shape *c, void **dq, void **dk)
{
    int64_t all = c->n * stride_of(c), skew = c->skew ? 1 : 0;
    double bound = gpu_bound(g->type);
    struct both in = gpu_random(g, g->type, all, 1), out = gpu_blank(g, g->type, all);
    struct both grad = gpu_random(g, g->type, all, 1), at = places(g, c->n);
    struct both table = angles(g, c->turned ? c->turned : 2);
    struct both w[2], dw[2], stats = gpu_blank(g, CKPT_F32, c->n * (c->n_head + c->n_kv));

    for (int i = 0; i < 2; i++) {
        w[i] = gpu_random(g, g->type, c->dim + 1, 1);
        dw[i] = gpu_random(g, CKPT_F32, c->dim, 1);
    }
    for (int s = 0; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
        size_t size = s ? ckpt_dtype_size(g->type) : sizeof(float);
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_rope op = {
            .in = heads(c, AT(in), size),
            .out = heads(c, c->norms ? AT(out) : AT(in), size),
            .grad = heads(c, AT(grad), size),
            .stats = c->norms ? AT(stats) : NULL,
            .table = c->turned ? AT(table) : NULL,
            .positions = AT(at),
            .n = c->n,
            .n_head = c->n_head,
            .n_kv = c->n_kv,
            .dim = c->dim,
            .rotary_dim = c->turned,
            .eps = 1e-6f,
        };

        if (c->norms) {
            op.q_norm = (char *)AT(w[0]) + (size_t)skew * size;
            op.k_norm = (char *)AT(w[1]) + (size_t)skew * size;
            op.dq_norm = c->frozen ? NULL : AT(dw[0]);
            op.dk_norm = c->frozen ? NULL : AT(dw[1]);
        }
        dev->ops->rope_fwd(dev, &op);
        dev->ops->rope_bwd(dev, &op);
#undef AT
    }
    gpu_close_to(g, "in", &in, bound);
    gpu_close_to(g, "out", &out, bound);
    gpu_close_to(g, "grad", &grad, bound);
    if (c->norms)
        gpu_close_to(g, "stats", &stats, SUM_BOUND);
    gpu_close_to(g, "dq_norm", &dw[0], SUM_BOUND);
    gpu_close_to(g, "dk_norm", &dw[1], SUM_BOUND);
    *dq = gpu_bytes(g, &dw[0]);
    *dk = gpu_bytes(g, &dw[1]);
    gpu_release(g);
}

static void check_rope(struct gpu *g, const struct shape *c)
{
    uint64_t draws = g->draws;
    void *dw[2], *again[2] = {0};

    rope_once(g, c, &dw[0], &dw[1]);
    if (!gpu_small()) {
        g->draws = draws;
        rope_once(g, c, &again[0], &again[1]);
    }
    for (int i = 0; i < 2; i++) {
        if (again[i])
            assert_memory_equal(dw[i], again[i], (size_t)c->dim * sizeof(float));
        free(dw[i]);
        free(again[i]);
    }
}

TEST(rope)
{
    static const struct shape shapes[] = {
        {0, 2, 2, 64, 64, BLOCKS, false, false, false},
        {1, 1, 1, 2, 2, BLOCKS, false, false, false},
        {37, 4, 2, 128, 128, BLOCKS, false, false, false},
        {37, 4, 4, 64, 64, FUSED, false, false, false},
        {19, 5, 1, 64, 16, BLOCKS, false, false, false},
        {19, 8, 8, 80, 32, GAP, false, false, false},
        {11, 3, 3, 10, 6, BLOCKS, false, false, false},
        {300, 40, 8, 128, 128, BLOCKS, false, false, false},
        {3, 2, 2, 256, 256, BLOCKS, false, false, false},
        {0, 2, 2, 64, 64, BLOCKS, true, false, false},
        {1, 1, 1, 8, 8, BLOCKS, true, false, false},
        {700, 32, 8, 128, 128, BLOCKS, true, false, false},
        {37, 4, 4, 64, 64, FUSED, true, false, false},
        {29, 4, 2, 128, 32, GAP, true, false, false},
        {29, 4, 2, 96, 0, BLOCKS, true, false, false},
        {29, 3, 1, 10, 6, BLOCKS, true, false, false},
        {29, 3, 1, 128, 128, BLOCKS, true, true, false},
        {29, 3, 1, 128, 128, BLOCKS, true, false, true},
        {9, 2, 1, 512, 512, BLOCKS, true, false, false},
        {9, 2, 1, 900, 300, BLOCKS, true, false, false},
    };
    struct op_limits limits = {.n = 1024, .dim = 64, .vocab = 64, .head_dim = 1024, .train = true};

    for (int t = 0; t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], &limits);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            if (!gpu_left_out(shapes[i].n * stride_of(&shapes[i])))
                check_rope(&g, &shapes[i]);
        gpu_close(&g);
    }
}

static void check_gate(struct gpu *g, enum op_act act, int64_t n, int64_t ff, float p, float scale)
{
    double bound = gpu_bound(g->type);
    struct both u = gpu_random(g, g->type, n * 2 * ff, scale), out = gpu_blank(g, g->type, n * ff);
    struct both dout = gpu_random(g, g->type, n * ff, 1), du = gpu_blank(g, g->type, n * 2 * ff);
    struct both again = gpu_blank(g, g->type, n * ff);

    for (int s = 0; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_gate op = {.out = AT(out), .du = AT(du), .u = AT(u), .dout = AT(dout), .act = act,
                             .n = n, .ff = ff, .drop = {p, 99, 5}};

        dev->ops->gate_fwd(dev, &op);
        op.out = n % 2 ? AT(again) : NULL;
        op.recompute = n % 2;
        dev->ops->gate_bwd(dev, &op);
#undef AT
    }
    gpu_close_to(g, "out again", &again, bound);
    gpu_close_to(g, "out", &out, bound);
    gpu_close_to(g, "du", &du, bound);
    gpu_release(g);
}

TEST(gate)
{
    static const int64_t shapes[][2] = {{0, 8},    {1, 1},     {5, 7},      {33, 100},
                                        {9, 2048}, {70, 5461}, {11, 11008}, {3, 12}};

    for (int t = 0; t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], NULL);
        for (int act = OP_ACT_GELU_TANH; act <= OP_ACT_SILU; act++)
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
                int64_t n = shapes[i][0], ff = shapes[i][1];

                if (gpu_left_out(n * ff))
                    continue;
                check_gate(&g, (enum op_act)act, n, ff, 0, 1);
                check_gate(&g, (enum op_act)act, n, ff, 0.2f, 2);
                if (ff > 1)             /* far into both tails, and not all of it into one */
                    check_gate(&g, (enum op_act)act, n, ff, 0, 40);
            }
        gpu_close(&g);
    }
}
