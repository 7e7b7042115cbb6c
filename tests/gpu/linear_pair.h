/*
 * linear_pair - one projection on both devices, forward and backward, every field of op_linear.
 */
#ifndef CKPT_TESTS_GPU_LINEAR_PAIR_H
#define CKPT_TESTS_GPU_LINEAR_PAIR_H

#include "tests/gpu/gpu.h"

struct linear_case {
    int64_t n, in, out, out_ld;
    enum op_act act, x_act;
    bool bias, pre, residual, in_place, in_out, dx_add, frozen, no_dx, odd;
    bool kept;                      /* RELU: x is x_pre */
    bool made;                      /* x is valid before the backward */
    bool fresh;                     /* gradients are overwritten: they are NaN before */
    float drop, x_drop;
    int64_t rank;
    bool magnitude;
    float lora_drop;
};

/* Every array of the operation. */
struct linear_pair {
    struct both x, w, b, out, pre, residual, dout, x_pre, dx, dw, db;
    struct both la, lb, lm, dla, dlb, dlm;
    struct both drop_rows;
    struct both back_x;
};

/* odd: weights that begin one element after an aligned address. */
static inline struct both weights_at(struct gpu *g, int64_t n, float scale, bool odd)
{
    struct both b = gpu_random(g, g->type, n + 1, scale);

    if (odd) {
        b.cpu = (float *)b.cpu + 1;
        b.gpu = (unsigned char *)b.gpu + ckpt_dtype_size(g->type);
    }
    b.n = n;
    return b;
}

/* Half of the values are 0. */
static inline struct both relu_values(struct gpu *g, int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host + 1);
    struct both b;

    gpu_normal(g, host, n, 1.0f);
    for (int64_t i = 0; i < n; i++)
        host[i] = host[i] > 0 ? host[i] : 0;
    b = gpu_values(g, g->type, host, n);
    free(host);
    return b;
}

/* An activation at x, and its slope. */
static inline double linear_act(enum op_act act, double x, double *slope)
{
    double s, t;

    switch (act) {
    case OP_ACT_GELU_TANH:
        t = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        s = 1 / (1 + exp(-2 * t));
        *slope = s + x * s * (1 - s) * 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
        return x * s;
    case OP_ACT_GELU_ERF:
        s = 0.5 * (1 + erf(x / sqrt(2)));
        *slope = s + x * exp(-x * x / 2) / sqrt(2 * M_PI);
        return x * s;
    case OP_ACT_RELU:
        *slope = x > 0;
        return x > 0 ? x : 0;
    case OP_ACT_SILU:
        s = 1 / (1 + exp(-x));
        *slope = s + x * s * (1 - s);
        return x * s;
    default:
        *slope = 1;
        return x;
    }
}

/* The activation of an array. */
static inline struct both acted(struct gpu *g, enum op_act act, const struct both *of)
{
    float *host = malloc((size_t)of->n * sizeof *host + 1);
    const float *x = of->cpu;
    struct both b;
    double slope;

    for (int64_t i = 0; i < of->n; i++)
        host[i] = (float)linear_act(act, (double)x[i], &slope);
    b = gpu_values(g, g->type, host, of->n);
    free(host);
    return b;
}

/* A parameter's gradient before the operation. */
static inline struct both grads_at(struct gpu *g, int64_t n, bool fresh)
{
    return fresh ? gpu_blank(g, CKPT_F32, n) : gpu_random(g, CKPT_F32, n, 1.0f);
}

static inline struct linear_pair linear_arrays(struct gpu *g, const struct linear_case *c)
{
    int64_t ld = c->out_ld ? c->out_ld : c->out, r = c->rank ? c->rank : 1;
    struct linear_pair p;

    p.x = gpu_random(g, g->type, c->n * c->in, 1.0f);
    p.w = weights_at(g, c->out * c->in, 1.0f / sqrtf((float)c->in), c->odd);
    p.b = weights_at(g, c->out, 0.5f, c->odd);
    p.residual = gpu_random(g, g->type, c->n * ld, 1.0f);
    p.out = c->in_place || c->out_ld ? gpu_random(g, g->type, c->n * ld, 1.0f)
                                     : gpu_blank(g, g->type, c->n * ld);
    p.pre = gpu_blank(g, g->type, c->n * c->out);
    p.dout = gpu_random(g, g->type, c->n * ld, 1.0f);
    p.x_pre = gpu_random(g, g->type, c->n * c->in, 1.0f);
    p.back_x = c->x_act == OP_ACT_NONE ? p.x : gpu_blank(g, g->type, c->n * c->in);
    if (c->kept)
        p.back_x = p.x_pre = relu_values(g, c->n * c->in);
    p.dx = c->dx_add ? gpu_random(g, g->type, c->n * c->in, 1.0f)
                     : gpu_blank(g, g->type, c->n * c->in);
    if (c->made)
        p.back_x = acted(g, c->x_act, &p.x_pre);
    p.dw = grads_at(g, c->out * c->in, c->fresh && !c->frozen);
    p.db = grads_at(g, c->out, c->fresh && c->bias && !c->frozen);
    p.la = weights_at(g, r * c->in, 1.0f / sqrtf((float)c->in), c->odd);
    p.lb = weights_at(g, c->out * r, 0.3f, c->odd);
    p.lm = gpu_random(g, g->type, c->out, 1.0f);
    p.dla = gpu_random(g, CKPT_F32, r * c->in, 1.0f);
    p.dlb = gpu_random(g, CKPT_F32, c->out * r, 1.0f);
    p.dlm = gpu_random(g, CKPT_F32, c->out, 1.0f);
    p.drop_rows = gpu_drop_rows(g, c->n);
    return p;
}

#define SIDE(array) (gpu ? (array).gpu : (array).cpu)

static inline struct op_linear linear_op(const struct linear_case *c, const struct linear_pair *p,
                                         bool gpu, bool back)
{
    bool trains = c->rank && !c->no_dx;

    return (struct op_linear){
        .out = SIDE(p->out),
        .pre = c->pre ? SIDE(p->pre) : NULL,
        .x = back ? SIDE(p->back_x) : SIDE(p->x),
        .dx = c->no_dx ? NULL : SIDE(p->dx),
        .proj.dw = c->frozen ? NULL : SIDE(p->dw),
        .proj.db = c->bias && !c->frozen ? SIDE(p->db) : NULL,
        .proj.w = SIDE(p->w),
        .proj.b = c->bias ? SIDE(p->b) : NULL,
        .residual = c->in_place   ? SIDE(p->out)
                    : c->residual ? SIDE(p->residual)
                                  : NULL,
        .dout = SIDE(p->dout),
        .x_pre = SIDE(p->x_pre),
        .act = c->act,
        .x_act = c->x_act,
        .n = c->n,
        .n_in = c->in,
        .n_out = c->out,
        .out_ld = c->out_ld,
        .flags = (c->in_out ? OP_LINEAR_IN_OUT : 0u) | (c->dx_add ? OP_LINEAR_DX_ADD : 0u) |
                 (c->made ? OP_LINEAR_X_KEPT : 0u) | (c->fresh ? OP_LINEAR_OVERWRITE : 0u),
        .drop = {c->drop, 11, 5, SIDE(p->drop_rows)},
        .x_drop = {c->x_drop, 12, 6, SIDE(p->drop_rows)},
        .proj.lora = {.a = SIDE(p->la),
                      .b = SIDE(p->lb),
                      .rank = c->rank,
                      .scale = 1.5f,
                      .da = trains ? SIDE(p->dla) : NULL,
                      .db = trains ? SIDE(p->dlb) : NULL,
                      .magnitude = c->magnitude ? SIDE(p->lm) : NULL,
                      .dmagnitude = c->magnitude ? SIDE(p->dlm) : NULL,
                      .drop = {c->lora_drop, 13, 7, SIDE(p->drop_rows)}},
    };
}

static inline void linear_run(struct gpu *g, const struct linear_case *c,
                              const struct linear_pair *p, bool gpu)
{
    struct device *dev = gpu ? g->gpu : g->cpu;
    struct op_linear op = linear_op(c, p, gpu, false);

    dev->ops->linear_fwd(dev, &op);
    op = linear_op(c, p, gpu, true);
    dev->ops->linear_bwd(dev, &op);
}

/* All outputs of a projection, whose name is `of`; those that it does not write are as
 * before. */
static inline void linear_results(struct gpu_results *r, const struct linear_pair *p, double bound,
                                  const char *of)
{
    gpu_result(r, &p->out, bound, "out of %s", of);
    gpu_result(r, &p->pre, bound, "pre of %s", of);
    gpu_result(r, &p->dx, bound, "dx of %s", of);
    gpu_result(r, &p->back_x, bound, "x of %s", of);
    gpu_result(r, &p->dw, bound, "dw of %s", of);
    gpu_result(r, &p->db, bound, "db of %s", of);
    gpu_result(r, &p->dla, bound, "lora da of %s", of);
    gpu_result(r, &p->dlb, bound, "lora db of %s", of);
    gpu_result(r, &p->dlm, bound, "dmagnitude of %s", of);
}

/* The product with LoRA, and with a magnitude the product before it too, are rounded on their
 * way: up to three roundings of values as large as the result. */
static inline void linear_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct linear_case *c = of;
    struct linear_pair p = linear_arrays(g, c);
    char name[120];

    for (int gpu = !cpu; gpu < 2; gpu++)
        linear_run(g, c, &p, gpu);
    snprintf(name, sizeof name, "[%lld, %lld -> %lld] act %d x_act %d rank %lld", (long long)c->n,
             (long long)c->in, (long long)c->out, (int)c->act, (int)c->x_act, (long long)c->rank);
    linear_results(r, &p, gpu_bound(g->type) * (c->rank ? 3 : 1), name);
}

/* Limits of a device for such projections. */
static inline struct op_limits linear_limits(int64_t n, int64_t n_rows, int64_t dim)
{
    return (struct op_limits){.n = n, .n_rows = n_rows, .dim = dim, .n_head = 8, .n_kv = 8,
                              .head_dim = 65, .ff = 520, .vocab = 100, .lora_rank = 24,
                              .lora_drop = true, .lora_magnitude = true, .drop = true,
                              .train = true};
}

/* Check n cases of at most so many rows. */
static inline void linear_check_all(const struct linear_case *c, size_t n, int64_t rows)
{
    struct op_limits l = linear_limits(rows, rows, 4104);

    for (int t = gpu_first_type(); t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], &l);
        for (size_t i = 0; i < n; i++)
            if (!gpu_left_out(c[i].in * c[i].out))
                gpu_check(&g, linear_once, &c[i]);
        gpu_close(&g);
    }
}

#endif
