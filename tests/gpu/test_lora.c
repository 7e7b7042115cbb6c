/* Projections with LoRA on the GPU against the CPU. */
#include "tests/gpu/choices_file.h"
#include "tests/gpu/linear_pair.h"

TEST(lora)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .bias = true, .residual = true},
        {.n = 40, .in = 64, .out = 48, .rank = 16, .bias = true, .in_place = true},
        {.n = 1, .in = 64, .out = 48, .rank = 8, .no_dx = true},
        {.n = 40, .in = 33, .out = 21, .rank = 5, .bias = true, .odd = true, .dx_add = true},
        {.n = 257, .in = 512, .out = 384, .rank = 24, .dx_add = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .in_out = true, .bias = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .out_ld = 80, .bias = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_GELU_TANH, .bias = true,
         .pre = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_RELU, .bias = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .act = OP_ACT_GELU_TANH},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .x_act = OP_ACT_GELU_TANH, .bias = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .x_act = OP_ACT_RELU, .x_drop = 0.2f},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .drop = 0.1f, .residual = true},
        {.n = 0, .in = 128, .out = 64, .rank = 8},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

TEST(dropout)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .lora_drop = 0.1f, .frozen = true},
        {.n = 40, .in = 61, .out = 48, .rank = 7, .lora_drop = 0.3f, .bias = true,
         .dx_add = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .lora_drop = 0.2f, .drop = 0.1f,
         .x_act = OP_ACT_GELU_TANH, .x_drop = 0.2f, .residual = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .lora_drop = 0.2f, .x_act = OP_ACT_SILU,
         .in_out = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

TEST(magnitude)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .bias = true,
         .residual = true, .dx_add = true, .frozen = true},
        {.n = 40, .in = 33, .out = 21, .rank = 5, .magnitude = true, .bias = true, .odd = true,
         .in_place = true, .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .in_out = true,
         .frozen = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .magnitude = true, .out_ld = 80, .bias = true,
         .frozen = true},
        {.n = 40, .in = 64, .out = 48, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .bias = true, .residual = true, .frozen = true},
        {.n = 40, .in = 64, .out = 40, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .out_ld = 80, .bias = true, .dx_add = true, .frozen = true},
        {.n = 40, .in = 128, .out = 64, .rank = 8, .magnitude = true, .lora_drop = 0.25f,
         .x_act = OP_ACT_GELU_TANH, .drop = 0.2f, .residual = true, .frozen = true},
        {.n = 40, .in = 64, .out = 128, .rank = 8, .magnitude = true, .act = OP_ACT_GELU_TANH,
         .pre = true, .bias = true, .frozen = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

/* -- a small adapter -------------------------------------------------------------------------- */

/* n values of that mean and noise around it, times the sign of their column: of `each` elements,
 * `width` in a row; columns' signs alternate. */
static struct both signs_at(struct gpu *g, int64_t n, int64_t each, int64_t width, float mean,
                            float noise)
{
    float *host = malloc((size_t)n * sizeof *host + 1);
    struct both b;

    gpu_normal(g, host, n, noise);
    for (int64_t i = 0; i < n; i++)
        host[i] = (i / each % width % 2 ? -1.0f : 1.0f) * (mean + host[i]);
    b = gpu_values(g, g->type, host, n);
    free(host);
    return b;
}

/* The mean of (GPU - CPU) * sign of the column. */
static double mean_difference(struct gpu *g, const struct both *b, int64_t width)
{
    float *got = gpu_fetch(g, b), *want = b->cpu;
    double sum = 0;

    for (int64_t i = 0; i < b->n; i++)
        sum += (i % width % 2 ? -1.0 : 1.0) * ((double)got[i] - (double)want[i]);
    free(got);
    return sum / (double)b->n;
}

/* The adapter adds 0.006 * the column's sign to out, which is near 1, and as much to dx; what both
 * are added to is so large that in bf16 half of its last bit is more than that. */
static void small_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct linear_case *c = of;
    struct linear_pair p = linear_arrays(g, c);
    double delta = 0.006, out, dx;

    if (!cpu)
        return;
    p.x = p.back_x = signs_at(g, c->n * c->in, 1, c->in, 1.0f, 0.5f);
    p.dout = signs_at(g, c->n * c->out, 1, c->out, 1.0f, 0.5f);
    p.la = signs_at(g, c->rank * c->in, 1, c->in, 1.0f / (float)c->in, 0.0f);
    p.lb = signs_at(g, c->out * c->rank, c->rank, c->out,
                    (float)(delta / 1.5) / (float)c->rank, 0.0f);
    p.residual = gpu_random(g, g->type, c->n * c->out, 8.0f);
    p.dx = gpu_random(g, g->type, c->n * c->in, 8.0f);
    if (c->in_place)
        p.out = gpu_random(g, g->type, c->n * c->out, 8.0f);
    for (int gpu = 0; gpu < 2; gpu++)
        linear_run(g, c, &p, gpu);
    out = mean_difference(g, &p.out, c->out) / delta;
    dx = mean_difference(g, &p.dx, c->in) / delta * (double)c->in / (double)c->out;
    if (!(fabs(out) < 0.1 && fabs(dx) < 0.1))
        fail_msg("[%lld, %lld -> %lld] (%s): off by %.3f and %.3f of the adapter", (long long)c->n,
                 (long long)c->in, (long long)c->out, ckpt_dtype_name(g->type), out, dx);
    r->n = 0;
}

TEST(small)
{
    static const struct linear_case c[] = {
        {.n = 512, .in = 128, .out = 96, .rank = 8, .residual = true, .dx_add = true},
        {.n = 512, .in = 128, .out = 96, .rank = 8, .in_place = true, .frozen = true},
        {.n = 512, .in = 128, .out = 96, .rank = 8, .residual = true, .bias = true,
         .lora_drop = 0.1f, .dx_add = true},
        {.n = 512, .in = 128, .out = 96, .rank = 8, .residual = true, .magnitude = true},
        {.n = 512, .in = 128, .out = 96, .rank = 8, .residual = true, .drop = 0.1f},
        {.n = 1100, .in = 136, .out = 264, .rank = 8, .residual = true, .dx_add = true},
    };
    struct op_limits l = linear_limits(1100, 136, 1024);

    GPU_CHECK_ALL(gpu_first_type(), &l, small_once, c);
}

/* -- several of one x ------------------------------------------------------------------------- */

enum { MOST = 3 };

struct many_case {
    struct linear_case c;           /* of the first; the others differ in width and rank */
    int64_t out[MOST], rank[MOST];
    int     count;
    bool    kept;                   /* t is kept from forward to backward */
};

static void many_arrays(struct gpu *g, const struct many_case *m, struct linear_case c[MOST],
                        struct linear_pair p[MOST])
{
    for (int i = 0; i < m->count; i++) {
        c[i] = m->c;
        c[i].out = m->out[i];
        c[i].rank = m->rank[i];
        c[i].dx_add = m->c.dx_add || i > 0;
        p[i] = linear_arrays(g, &c[i]);
        if (i > 0) {
            p[i].x = p[i].back_x = p[0].x;
            p[i].dx = p[0].dx;
        }
    }
    if (!m->c.dx_add)
        p[0].dx = p[1].dx = p[2].dx = gpu_blank(g, g->type, m->c.n * m->c.in);
}

/* On the CPU one by one, on the GPU at once. */
static void many_run(struct gpu *g, const struct many_case *m, const struct linear_case c[MOST],
                     const struct linear_pair p[MOST], bool gpu)
{
    struct device *dev = gpu ? g->gpu : g->cpu;
    int64_t columns = 0;
    struct both t;

    for (int i = 0; i < m->count; i++)
        columns += (m->rank[i] + 7) / 8 * 8;
    t = gpu_blank(g, g->type, m->c.n * columns);
    for (int back = 0; back < 2; back++) {
        struct op_linear op[MOST];

        for (int i = 0, at = 0; i < m->count; i++) {
            op[i] = linear_op(&c[i], &p[i], gpu, back);
            if (m->kept && gpu)
                op[i].proj.lora.t = (unsigned char *)t.gpu +
                               (size_t)(m->c.n * at) * ckpt_dtype_size(g->type);
            at += (int)((m->rank[i] + 7) / 8 * 8);
        }
        if (gpu)
            (back ? dev->ops->linears_bwd : dev->ops->linears_fwd)(dev, op, m->count);
        for (int i = 0; !gpu && i < m->count; i++)
            (back ? dev->ops->linear_bwd : dev->ops->linear_fwd)(dev, &op[i]);
    }
}

static void many_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct many_case *m = of;
    struct linear_case c[MOST];
    struct linear_pair p[MOST];
    char name[100];

    if (gpu_left_out(m->c.n * m->c.in))
        return;
    many_arrays(g, m, c, p);
    for (int gpu = !cpu; gpu < 2; gpu++)
        many_run(g, m, c, p, gpu);
    for (int i = 0; i < m->count; i++) {
        snprintf(name, sizeof name, "%d of %d, [%lld, %lld -> %lld] rank %lld", i, m->count,
                 (long long)c[i].n, (long long)c[i].in, (long long)c[i].out, (long long)c[i].rank);
        /* dx is rounded once more for each projection after the first */
        linear_results(r, &p[i], gpu_bound(g->type) * (3 + m->count), name);
    }
}

static void many_check_all(const struct many_case *c, size_t n)
{
    struct op_limits l = linear_limits(2048, 64, 1024);

    gpu_check_all(gpu_first_type(), &l, many_once, c, n, sizeof *c);
}

TEST(many)
{
    static const struct many_case c[] = {
        {{.n = 40, .in = 64, .frozen = true}, {48, 24, 24}, {8, 8, 8}, 3, false},
        {{.n = 40, .in = 64, .frozen = true}, {48, 24, 24}, {8, 8, 8}, 3, true},
        {{.n = 130, .in = 72, .bias = true, .dx_add = true}, {48, 24, 21}, {16, 8, 24}, 3, true},
        {{.n = 40, .in = 64, .bias = true, .fresh = true}, {48, 80}, {8, 16}, 2, true},
        {{.n = 3, .in = 64, .frozen = true}, {48, 80}, {8, 8}, 2, false},
        {{.n = 33, .in = 41, .bias = true, .odd = true}, {19, 30}, {8, 8}, 2, true},
        {{.n = 33, .in = 64, .out_ld = 200, .frozen = true}, {48, 80, 72}, {8, 8, 8}, 3, true},
        {{.n = 40, .in = 64, .no_dx = true, .bias = true}, {48, 80}, {8, 8}, 2, false},
        /* one by one: ranks, dropout, a magnitude */
        {{.n = 40, .in = 64, .bias = true}, {48, 80}, {5, 8}, 2, true},
        {{.n = 40, .in = 64, .lora_drop = 0.2f, .frozen = true}, {48, 80}, {8, 8}, 2, true},
        {{.n = 40, .in = 64, .magnitude = true, .frozen = true}, {48, 80}, {8, 8}, 2, true},
        {{.n = 0, .in = 64, .bias = true, .fresh = true}, {48, 80}, {8, 8}, 2, true},
        {{.n = 2048, .in = 1024, .frozen = true}, {1024, 256, 256}, {16, 16, 16}, 3, true},
    };

    many_check_all(c, sizeof c / sizeof c[0]);
}

/* With LoRA inside the products of the matrices, which takes some rows. */
TEST(joined)
{
    static const struct many_case c[] = {
        {{.n = 1024, .in = 136, .frozen = true}, {136, 128, 128}, {8, 8, 8}, 3, true},
        {{.n = 1100, .in = 264, .frozen = true, .dx_add = true}, {392, 136}, {16, 8}, 2, false},
        {{.n = 1100, .in = 136, .out_ld = 536, .frozen = true}, {264, 136, 136}, {24, 24, 24}, 3,
         true},
        {{.n = 1030, .in = 128, .bias = true, .fresh = true}, {136, 264}, {8, 16}, 2, true},
        {{.n = 2048, .in = 1024, .frozen = true}, {1024, 256, 256}, {16, 16, 16}, 3, true},
    };
    size_t n = gpu_small() ? 2 : sizeof c / sizeof c[0];    /* timing is slow there */
    const char *folder;

    if (gpu_small() == 2)               /* no case is that small */
        skip();
    folder = choices_folder();
    many_check_all(c, n);
    assert_true(choices_put(folder, 0) >= (int)n);
    many_check_all(c, n);
    folder_gone(folder);
}

TEST(large)
{
    static const struct linear_case c[] = {
        {.n = 2048, .in = 2048, .out = 1024, .rank = 24, .residual = true, .frozen = true},
        {.n = 2048, .in = 1024, .out = 1536, .rank = 24, .lora_drop = 0.05f, .frozen = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 2048);
}
