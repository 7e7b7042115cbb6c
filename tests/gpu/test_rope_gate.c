/* Rotary positions, norms by heads and gated activations on a GPU against the CPU. */
#include "tests/gpu/gpu.h"

enum { POSITIONS = 97 };

/* How a row's heads lie: q, k, v one after another; [K, 3, d] (H = K); with a gap after
 * them. */
enum layout { BLOCKS, FUSED, GAP };

struct rope_case {
    int64_t n, n_head, n_kv, dim, rotary_dim;
    enum layout layout;
    bool norms, frozen, skew;
};

static int64_t stride_of(const struct rope_case *c)
{
    return (c->n_head + 2 * c->n_kv) * c->dim + (c->layout == GAP ? 24 : 0);
}

/* In elements of `size` bytes. */
static struct op_heads heads(const struct rope_case *c, void *base, size_t size)
{
    char *q = base;
    int64_t d = c->dim, stride = stride_of(c);

    if (c->layout == FUSED)
        return (struct op_heads){q, q + (size_t)d * size, q + (size_t)(2 * d) * size, stride, 0,
                                 3 * d, 3 * d};
    return (struct op_heads){q, q + (size_t)(c->n_head * d) * size,
                             q + (size_t)((c->n_head + c->n_kv) * d) * size, stride, 0, d, d};
}

static struct both angles(struct gpu *g, int64_t rotary_dim)
{
    float *host = malloc((size_t)(POSITIONS * rotary_dim) * sizeof *host + 1);
    struct both b;

    for (int64_t p = 0; p < POSITIONS; p++)
        for (int64_t j = 0; j < rotary_dim / 2; j++) {
            double a = (double)p * pow(100, -2.0 * (double)j / (double)rotary_dim);

            host[p * rotary_dim + j] = (float)cos(a);
            host[p * rotary_dim + rotary_dim / 2 + j] = (float)sin(a);
        }
    b = gpu_values(g, CKPT_F32, host, POSITIONS * rotary_dim);
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

static void rope_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct rope_case *c = of;
    int64_t all = c->n * stride_of(c), skew = c->skew ? 1 : 0;
    double bound = gpu_bound(g->type);
    struct both in, out, grad, at, table, w[2], dw[2], stats;

    if (gpu_left_out(all))
        return;
    in = gpu_random(g, g->type, all, 1);
    out = gpu_blank(g, g->type, all);
    grad = gpu_random(g, g->type, all, 1);
    at = places(g, c->n);
    table = angles(g, c->rotary_dim ? c->rotary_dim : 2);
    stats = gpu_blank(g, CKPT_F32, c->n * (c->n_head + c->n_kv));
    for (int i = 0; i < 2; i++) {
        w[i] = gpu_random(g, g->type, c->dim + 1, 1);
        dw[i] = gpu_random(g, CKPT_F32, c->dim, 1);
    }
    for (int s = !cpu; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
        size_t size = s ? ckpt_dtype_size(g->type) : sizeof(float);
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_rope op = {
            .in = heads(c, AT(in), size), .out = heads(c, c->norms ? AT(out) : AT(in), size),
            .grad = heads(c, AT(grad), size), .stats = c->norms ? AT(stats) : NULL,
            .table = c->rotary_dim ? AT(table) : NULL, .positions = AT(at), .n = c->n,
            .n_head = c->n_head, .n_kv = c->n_kv, .dim = c->dim, .rotary_dim = c->rotary_dim,
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
    gpu_result(r, &in, bound, "in");
    gpu_result(r, &out, bound, "out");
    gpu_result(r, &grad, bound, "grad");
    if (c->norms)
        gpu_result(r, &stats, GPU_SUM_BOUND, "stats");
    gpu_result(r, &dw[0], GPU_SUM_BOUND, "dq_norm");
    gpu_result(r, &dw[1], GPU_SUM_BOUND, "dk_norm");
}

TEST(rope)
{
    static const struct rope_case c[] = {
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

    GPU_CHECK_ALL(0, &limits, rope_once, c);
}

struct gate_case {
    enum op_act act;
    int64_t n, ff;
    float p, scale;
};

static void gate_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct gate_case *c = of;
    double bound = gpu_bound(g->type);
    struct both u = gpu_random(g, g->type, c->n * 2 * c->ff, c->scale);
    struct both out = gpu_blank(g, g->type, c->n * c->ff);
    struct both dout = gpu_random(g, g->type, c->n * c->ff, 1);
    struct both du = gpu_blank(g, g->type, c->n * 2 * c->ff);
    struct both recomputed = gpu_blank(g, g->type, c->n * c->ff);
    struct both rows = gpu_drop_rows(g, c->n);

    for (int s = !cpu; s < 2; s++) {
        struct device *dev = s ? g->gpu : g->cpu;
#define AT(v) (s ? (v).gpu : (v).cpu)
        struct op_gate op = {.out = AT(out), .du = AT(du), .u = AT(u), .dout = AT(dout),
                             .act = c->act, .n = c->n, .ff = c->ff, .drop = {c->p, 99, 5, AT(rows)}};

        dev->ops->gate_fwd(dev, &op);
        op.recompute = c->n % 2;
        op.out = op.recompute ? AT(recomputed) : NULL;
        dev->ops->gate_bwd(dev, &op);
#undef AT
    }
    gpu_result(r, &recomputed, bound, "recomputed out");
    gpu_result(r, &out, bound, "out");
    gpu_result(r, &du, bound, "du");
}

static void gates(struct gpu *g)
{
    static const int64_t shapes[][2] = {{0, 8},    {1, 1},     {5, 7},      {33, 100},
                                        {9, 2048}, {70, 5461}, {11, 11008}, {3, 12}};

    for (int act = OP_ACT_GELU_TANH; act <= OP_ACT_SILU; act++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            struct gate_case c = {(enum op_act)act, shapes[i][0], shapes[i][1], 0, 1};

            if (gpu_left_out(c.n * c.ff))
                continue;
            gpu_check(g, gate_once, &c);
            c.p = 0.2f;
            c.scale = 2;
            gpu_check(g, gate_once, &c);
            c.p = 0;
            c.scale = 40;               /* far into both tails, and not all of it into one */
            if (c.ff > 1)
                gpu_check(g, gate_once, &c);
        }
}

TEST(gate) { gpu_over_types(0, NULL, gates); }
