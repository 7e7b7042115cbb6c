/*
 * Routed feed-forwards on the GPU against the CPU: choice, order, products, every gradient.
 */
#include "tests/gpu/gpu.h"

struct experts_case {
    int64_t n, dim, ff, experts, k;
    enum op_act act;
    bool renorm, used, residual, frozen, apart, one;
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
    int64_t one = c->dim * c->ff, up = c->apart ? 2 : 1, down = c->apart ? 1 : 2;
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

static void check(struct gpu *g, const struct experts_case *c)
{
    uint64_t draws = g->draws;
    struct experts_pair p = arrays(g, c), again;
    struct both *all[] = {&p.out, &p.dx, &p.u, &p.probs, &p.used, &p.drouter, &p.dw};
    struct both *twice[] = {&again.out, &again.dx, &again.u, &again.probs, &again.used,
                            &again.drouter, &again.dw};
    static const char *const names[] = {"out", "dx", "u", "probs", "used", "drouter", "dw"};
    size_t bytes = (size_t)p.top_k_index.n * sizeof(int32_t);
    int32_t *picked = malloc(bytes + 1);

    run(g, c, &p, false);
    run(g, c, &p, true);
    if (!gpu_small()) {
        g->draws = draws;
        again = arrays(g, c);
        run(g, c, &again, true);
    }
    g->gpu->ops->to_host(g->gpu, picked, p.top_k_index.gpu, bytes);
    gpu_fine(g);
    assert_memory_equal(picked, p.top_k_index.cpu, bytes);
    free(picked);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        void *a, *b;

        gpu_close_to(g, names[i], all[i], gpu_bound(all[i]->type == CKPT_F32 && i == 3
                                                        ? CKPT_F32 : g->type));
        if (gpu_small())
            continue;
        a = gpu_bytes(g, all[i]);
        b = gpu_bytes(g, twice[i]);
        if (memcmp(a, b, (size_t)all[i]->n * ckpt_dtype_size(all[i]->type)) != 0)
            fail_msg("%s: two runs differ", names[i]);
        free(a);
        free(b);
    }
    gpu_release(g);
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
         .renorm = true, .used = true, .residual = true, .apart = true},
        {.n = 257, .dim = 33, .ff = 24, .experts = 40, .k = 4, .act = OP_ACT_SILU,
         .used = true, .apart = true},
        {.n = 64, .dim = 64, .ff = 48, .experts = 8, .k = 2, .act = OP_ACT_SILU, .frozen = true,
         .residual = true},
        {.n = 64, .dim = 64, .ff = 48, .experts = 2, .k = 2, .act = OP_ACT_RELU, .renorm = true},
        /* a router of zeros: all are equal, the first are picked, the others have no rows */
        {.n = 600, .dim = 32, .ff = 16, .experts = 8, .k = 2, .act = OP_ACT_SILU, .one = true,
         .renorm = true, .used = true},
        {.n = 0, .dim = 32, .ff = 16, .experts = 8, .k = 2, .act = OP_ACT_SILU},
        {.n = 300, .dim = 64, .ff = 64, .experts = 8, .k = 2, .act = OP_ACT_SILU, .renorm = true,
         .residual = true},
        {.n = 600, .dim = 320, .ff = 192, .experts = 5, .k = 2, .act = OP_ACT_SILU,
         .apart = true},
        {.n = 600, .dim = 192, .ff = 320, .experts = 128, .k = 8, .act = OP_ACT_SILU,
         .renorm = true, .frozen = true, .residual = true},
        /* more tiles than blocks, odd numbers of them either way */
        {.n = 4000, .dim = 320, .ff = 704, .experts = 3, .k = 2, .act = OP_ACT_SILU,
         .renorm = true, .frozen = true, .residual = true},
        {.n = 4000, .dim = 128, .ff = 320, .experts = 40, .k = 4, .act = OP_ACT_SILU,
         .renorm = true, .apart = true},
        /* all rows are one's: its tiles go by bands */
        {.n = 4000, .dim = 64, .ff = 448, .experts = 2, .k = 1, .act = OP_ACT_SILU, .one = true},
    };
    struct op_limits l = {.n = 4000, .n_rows = 4000, .dim = 320, .n_head = 4, .n_kv = 4,
                          .head_dim = 16, .ff = 64, .vocab = 100, .n_expert = 128, .top_k = 8,
                          .expert_ff = 704, .train = true};

    for (int t = gpu_first_type(); t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], &l);
        for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
            if (gpu_small() < 2 || c[i].n * c[i].k <= 600)
                check(&g, &c[i]);
        gpu_close(&g);
    }
}
