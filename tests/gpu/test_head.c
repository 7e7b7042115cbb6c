/*
 * Head and loss on the GPU against the CPU: rows for one block, for a cluster, and longer than
 * a cluster holds; several chunks.
 */
#include "tests/gpu/gpu.h"

struct head_case {
    int64_t n, dim, vocab;
    float mul, scale, smoothing, z_loss;
    bool frozen, no_grad, fresh;
};

struct head_pair { struct both x, w, nll, dx, dw, targets; };

static struct head_pair arrays(struct gpu *g, const struct head_case *c)
{
    int32_t *targets = malloc((size_t)c->n * sizeof *targets + 1);
    struct head_pair p;

    for (int64_t i = 0; i < c->n; i++)
        targets[i] = (int32_t)((i * 7919 + 3) % c->vocab);
    if (c->n > 1)
        targets[c->n - 1] = (int32_t)c->vocab - 1;
    p.x = gpu_random(g, g->type, c->n * c->dim, 1.0f);
    p.w = gpu_random(g, g->type, c->vocab * c->dim, 2.0f / sqrtf((float)c->dim));
    p.nll = gpu_blank(g, CKPT_F32, c->n);
    p.dx = gpu_blank(g, g->type, c->n * c->dim);
    p.dw = c->fresh ? gpu_blank(g, CKPT_F32, c->vocab * c->dim)
                    : gpu_random(g, CKPT_F32, c->vocab * c->dim, 1e-3f);
    p.targets = gpu_ints(g, targets, c->n);
    free(targets);
    return p;
}

#define SIDE(array) (gpu ? (array).gpu : (array).cpu)

static void run(struct gpu *g, const struct head_case *c, const struct head_pair *p, bool gpu)
{
    struct device *dev = gpu ? g->gpu : g->cpu;

    dev->ops->head_loss(dev, &(struct op_head){
        .nll = SIDE(p->nll), .dx = c->no_grad ? NULL : SIDE(p->dx),
        .dw = c->frozen ? NULL : SIDE(p->dw), .x = SIDE(p->x), .w = SIDE(p->w),
        .targets = SIDE(p->targets), .n = c->n, .dim = c->dim, .vocab = c->vocab, .mul = c->mul,
        .scale = c->scale, .smoothing = c->smoothing, .z_loss = c->z_loss, .fresh = c->fresh});
}

/*
 * Errors of losses come from rounding logits to the device's type, which mul then multiplies, those
 * of gradients from that and from rounding softmax - onehot: both relative to the largest.
 */
static void loss_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct head_case *c = of;
    double bound = (g->type == CKPT_F32 ? 4.0 : 1.0) * gpu_bound(g->type) *
                   (c->mul > 1 ? (double)c->mul : 1.0);
    struct head_pair p;

    if (gpu_left_out(c->n * c->vocab / 8))
        return;
    p = arrays(g, c);
    for (int gpu = !cpu; gpu < 2; gpu++)
        run(g, c, &p, gpu);
    gpu_result(r, &p.nll, bound, "nll of vocabulary %lld", (long long)c->vocab);
    gpu_result(r, &p.dx, bound, "dx of vocabulary %lld", (long long)c->vocab);
    gpu_result(r, &p.dw, bound, "dw of vocabulary %lld", (long long)c->vocab);
}

TEST(loss)
{
    static const struct head_case c[] = {
        {.n = 1, .dim = 16, .vocab = 2, .mul = 1, .scale = 1},
        {.n = 5, .dim = 24, .vocab = 37, .mul = 1, .scale = 0.25f},
        {.n = 130, .dim = 64, .vocab = 1000, .mul = 0.5f, .scale = 1.0f / 130},
        {.n = 9, .dim = 33, .vocab = 32771, .mul = 1, .scale = 0.1f},
        {.n = 40, .dim = 64, .vocab = 50257, .mul = 1, .scale = 0.025f},
        {.n = 3, .dim = 16, .vocab = 250880, .mul = 1, .scale = 0.3f},
        {.n = 150, .dim = 16, .vocab = 250883, .mul = 0.5f, .scale = 1.0f / 150},
        {.n = 700, .dim = 16, .vocab = 50257, .mul = 1, .scale = 1.0f / 700},
        {.n = 600, .dim = 16, .vocab = 1003, .mul = 1, .scale = 1.0f / 600},
        {.n = 2, .dim = 16, .vocab = 270001, .mul = 1, .scale = 0.5f},
        {.n = 9, .dim = 32, .vocab = 501, .mul = 1, .scale = 1, .frozen = true},
        {.n = 9, .dim = 32, .vocab = 501, .mul = 2, .scale = 1, .no_grad = true, .frozen = true},
        {.n = 0, .dim = 32, .vocab = 501, .mul = 2, .scale = 1},
        {.n = 130, .dim = 64, .vocab = 1000, .mul = 0.5f, .scale = 1.0f / 130, .fresh = true},
        {.n = 9, .dim = 33, .vocab = 32771, .mul = 1, .scale = 0.1f, .fresh = true},
        {.n = 0, .dim = 32, .vocab = 501, .mul = 2, .scale = 1, .fresh = true},
        {.n = 130, .dim = 64, .vocab = 1000, .mul = 0.5f, .scale = 1.0f / 130, .smoothing = 0.1f},
        {.n = 3, .dim = 16, .vocab = 250880, .mul = 1, .scale = 0.3f, .z_loss = 1e-2f},
        {.n = 9, .dim = 33, .vocab = 32771, .mul = 2, .scale = 0.1f, .smoothing = 0.2f,
         .z_loss = 1e-3f},
        {.n = 9, .dim = 32, .vocab = 501, .mul = 2, .scale = 1, .no_grad = true, .frozen = true,
         .smoothing = 0.5f},
    };
    struct op_limits l = {.n = 700, .n_rows = 700, .dim = 64, .n_head = 4, .n_kv = 4,
                          .head_dim = 16, .ff = 64, .vocab = 270001, .train = true};

    GPU_CHECK_ALL(0, &l, loss_once, c);
}

/* More rows than a chunk has: 2 GiB of logits are 8192 rows of 131072 (16 bits), 4096 (f32). */
TEST(chunks)
{
    struct head_case c = {.n = 8300, .dim = 8, .vocab = 131072, .mul = 1, .scale = 1.0f / 8300};
    struct op_limits l = {.n = 8300, .n_rows = 8300, .dim = 8, .n_head = 1, .n_kv = 1,
                          .head_dim = 8, .ff = 8, .vocab = 131072, .train = true};
    struct gpu g;

    if (gpu_small())
        skip();
    gpu_open(&g, CKPT_BF16, &l);
    gpu_check(&g, loss_once, &c);
    c.fresh = true;                     /* the second chunk adds */
    g.draws = 0;
    gpu_check(&g, loss_once, &c);
    gpu_close(&g);
}

struct logits_case { int64_t n, dim, vocab; };

/* Both round their factors alike and sum in f32: the bound is that of f32 for every type. */
static void logits_once(struct gpu *g, const void *of, bool cpu, struct gpu_results *r)
{
    const struct logits_case *c = of;
    struct both x, w, logits;

    if (gpu_left_out(c->n * c->vocab))
        return;
    x = gpu_random(g, g->type, c->n * c->dim, 1.0f);
    logits = gpu_blank(g, CKPT_F32, c->n * c->vocab);
    w = gpu_random(g, g->type, c->vocab * c->dim, 0.1f);
    if (cpu)
        g->cpu->ops->head_logits(g->cpu, logits.cpu, x.cpu, w.cpu, c->n, c->dim, c->vocab, 0.7f);
    g->gpu->ops->head_logits(g->gpu, logits.gpu, x.gpu, w.gpu, c->n, c->dim, c->vocab, 0.7f);
    gpu_result(r, &logits, gpu_bound(CKPT_F32), "logits");
}

TEST(logits)
{
    static const struct logits_case c[] = {{1, 64, 1000}, {7, 33, 501}, {64, 64, 50257}};
    struct op_limits l = {.n = 64, .n_rows = 64, .dim = 64, .n_head = 4, .n_kv = 4, .head_dim = 16,
                          .ff = 64, .vocab = 50257};

    GPU_CHECK_ALL(0, &l, logits_once, c);
}
