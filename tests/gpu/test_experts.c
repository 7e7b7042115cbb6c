/* Routed feed-forwards on the GPU against the CPU: top_k, order, products, every gradient. */
#include "tests/gpu/gpu.h"

struct experts_case {
    int64_t n, dim, ff, experts, k;
    enum op_act act;
    bool renorm, used, residual, frozen;
    bool separate;                  /* up does not follow gate: two products */
    bool one;                       /* a router of zeros: all choose the first experts */
};

struct experts_pair {
    struct both x, residual, dout, router, w, out, dx, u, probs, used, dused, top_k_index, drouter,
        dw;
};

static struct experts_pair arrays(struct gpu *g, const struct experts_case *c)
{
    int64_t each = 3 * c->dim * c->ff, slots = c->n * c->k;
    int32_t *none = calloc((size_t)slots + 1, sizeof *none);
    struct experts_pair p;

    p.x = gpu_random(g, g->type, c->n * c->dim, 1.0f);
    p.residual = gpu_random(g, g->type, c->n * c->dim, 1.0f);
    p.dout = gpu_random(g, g->type, c->n * c->dim, 1.0f);
    p.router = gpu_random(g, g->type, c->experts * c->dim, c->one ? 0.0f : 0.3f);
    p.w = gpu_random(g, g->type, c->experts * each, 1.0f / sqrtf((float)c->dim));
    p.out = gpu_blank(g, g->type, c->n * c->dim);
    p.dx = gpu_blank(g, g->type, c->n * c->dim);
    p.u = gpu_blank(g, g->type, slots * 2 * c->ff);
    p.probs = gpu_blank(g, CKPT_F32, c->n * c->experts);
    p.used = gpu_random(g, CKPT_F32, 2 * c->experts, 1.0f);
    p.dused = gpu_random(g, CKPT_F32, c->experts, 0.1f);
    p.top_k_index = gpu_ints(g, none, slots);
    p.drouter = gpu_random(g, CKPT_F32, c->experts * c->dim, 1.0f);
    p.dw = gpu_random(g, CKPT_F32, c->experts * each, 1.0f);
    free(none);
    return p;
}

#define SIDE(array) (gpu ? (array).gpu : (array).cpu)

static void *at(struct gpu *g, bool gpu, void *p, int64_t n, bool grad)
{
    return (unsigned char *)p + (size_t)n * (gpu && !grad ? ckpt_dtype_size(g->type) : 4);
}

static void run(struct gpu *g, const struct experts_case *c, const struct experts_pair *p,
                bool gpu)
{
    struct device *dev = gpu ? g->gpu : g->cpu;
    int64_t one = c->dim * c->ff, up = c->separate ? 2 : 1, down = 3 - up;
    void *w = SIDE(p->w), *dw = SIDE(p->dw);
    struct op_experts op = {
        .out = SIDE(p->out), .dx = SIDE(p->dx), .u = SIDE(p->u), .probs = SIDE(p->probs),
        .used = c->used ? SIDE(p->used) : NULL, .dused = c->used ? SIDE(p->dused) : NULL,
        .top_k_index = SIDE(p->top_k_index), .x = SIDE(p->x),
        .residual = c->residual ? SIDE(p->residual) : NULL, .dout = SIDE(p->dout),
        .router = SIDE(p->router), .gate = w, .up = at(g, gpu, w, up * one, false),
        .down = at(g, gpu, w, down * one, false),
        .drouter = c->frozen ? NULL : SIDE(p->drouter), .dgate = c->frozen ? NULL : dw,
        .dup = c->frozen ? NULL : at(g, gpu, dw, up * one, true),
        .ddown = c->frozen ? NULL : at(g, gpu, dw, down * one, true),
        .n = c->n, .dim = c->dim, .ff = c->ff, .n_expert = c->experts, .top_k = c->k,
        .stride = 3 * one, .act = c->act, .renorm = c->renorm,
    };

    dev->ops->experts_fwd(dev, &op);
    dev->ops->experts_bwd(dev, &op);
}

static void experts_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct experts_case *c = of;
    double bound = gpu_bound(g->type);
    struct experts_pair p;
    void *chosen;

    if (gpu_small() == 2 && c->n * c->k > 600)
        return;
    p = arrays(g, c);
    for (int gpu = !cpu; gpu < 2; gpu++)
        run(g, c, &p, gpu);
    chosen = gpu_bytes(g, &p.top_k_index);
    if (cpu)
        assert_memory_equal(chosen, p.top_k_index.cpu, gpu_size(&p.top_k_index));
    free(chosen);
    gpu_result(r, &p.out, bound, "out");
    gpu_result(r, &p.dx, bound, "dx");
    gpu_result(r, &p.u, bound, "u");
    gpu_result(r, &p.probs, gpu_bound(CKPT_F32), "probs");
    gpu_result(r, &p.used, bound, "used");
    gpu_result(r, &p.drouter, bound, "drouter");
    gpu_result(r, &p.dw, bound, "dw");
}

TEST(experts)
{
    static const struct experts_case c[] = {
        {.n = 1, .dim = 16, .ff = 8, .experts = 4, .k = 2, .act = OP_ACT_SILU, .renorm = true},
        {.n = 5, .dim = 17, .ff = 9, .experts = 3, .k = 1, .act = OP_ACT_GELU_TANH,
         .residual = true},
        {.n = 300, .dim = 64, .ff = 48, .experts = 8, .k = 2, .act = OP_ACT_SILU,
         .renorm = true, .used = true, .residual = true},
        {.n = 300, .dim = 64, .ff = 48, .experts = 128, .k = 8, .act = OP_ACT_SILU,
         .renorm = true, .used = true, .residual = true, .separate = true},
        {.n = 257, .dim = 33, .ff = 24, .experts = 40, .k = 4, .act = OP_ACT_SILU,
         .used = true, .separate = true},
        {.n = 64, .dim = 64, .ff = 48, .experts = 8, .k = 2, .act = OP_ACT_SILU, .frozen = true,
         .residual = true},
        {.n = 64, .dim = 64, .ff = 48, .experts = 2, .k = 2, .act = OP_ACT_RELU, .renorm = true},
        /* equal probabilities: the first experts are chosen, the others have no rows */
        {.n = 600, .dim = 32, .ff = 16, .experts = 8, .k = 2, .act = OP_ACT_SILU, .one = true,
         .renorm = true, .used = true},
        {.n = 0, .dim = 32, .ff = 16, .experts = 8, .k = 2, .act = OP_ACT_SILU},
        {.n = 300, .dim = 64, .ff = 64, .experts = 8, .k = 2, .act = OP_ACT_SILU, .renorm = true,
         .residual = true},
        {.n = 600, .dim = 320, .ff = 192, .experts = 5, .k = 2, .act = OP_ACT_SILU,
         .separate = true},
        {.n = 600, .dim = 192, .ff = 320, .experts = 128, .k = 8, .act = OP_ACT_SILU,
         .renorm = true, .frozen = true, .residual = true},
        /* more tiles than blocks, odd numbers of them either way */
        {.n = 4000, .dim = 320, .ff = 704, .experts = 3, .k = 2, .act = OP_ACT_SILU,
         .renorm = true, .frozen = true, .residual = true},
        {.n = 4000, .dim = 128, .ff = 320, .experts = 40, .k = 4, .act = OP_ACT_SILU,
         .renorm = true, .separate = true},
        /* all rows belong to one expert: its tiles go by bands */
        {.n = 4000, .dim = 64, .ff = 448, .experts = 2, .k = 1, .act = OP_ACT_SILU, .one = true},
    };
    struct op_limits l = {.n = 4000, .n_rows = 4000, .dim = 320, .n_head = 4, .n_kv = 4,
                          .head_dim = 16, .ff = 64, .vocab = 100, .n_expert = 128, .top_k = 8,
                          .expert_ff = 704, .train = true};

    GPU_CHECK_ALL(gpu_first_type(), &l, experts_once, c);
}
