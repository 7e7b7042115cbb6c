/*
 * bench_products [NAME [TYPE]] - how fast projections, the head and routed feed-forwards are on
 * a GPU at the shapes of real models: multiply-adds counted twice, over the time between two
 * syncs around many calls.  NAME: only rows whose name contains it; TYPE: bf16 (default), f16,
 * f32, tf32 or fp8, whose weights are kept.
 *
 * Data are normal numbers: a chip that multiplies zeros draws less power and runs faster.
 */
#include "tests/perf/gpu_bench.h"

/* At least a fifth of a second of calls, after as much to warm up. */
static void row(struct bench *b, const char *name, const char *what, double flops, bench_call *f,
                const void *op)
{
    int calls = 1;
    double took = 0;

    f(b->dev, op);                      /* chooses algorithms */
    for (int t = 0; t < 3; t++) {
        took = bench_seconds(b, f, op, 0, 1, calls);
        if (t == 0)
            calls = (int)(0.2 / took) + 1;
    }
    printf("%-28s %-8s %10.1f us %7.0f TFLOP/s\n", name, what, 1e6 * took, 1e-12 * flops / took);
    fflush(stdout);
}

BENCH_CALL(linear_fwd, op_linear, linear_fwd)
BENCH_CALL(linear_bwd, op_linear, linear_bwd)
BENCH_CALL(head_loss, op_head, head_loss)
BENCH_CALL(experts_fwd, op_experts, experts_fwd)
BENCH_CALL(experts_bwd, op_experts, experts_bwd)

struct projection {
    const char *name;
    int64_t     n, in, out;
    bool        bias, residual;
    enum op_act act, x_act;         /* of the output; of the input, in the backward */
    int64_t     rank;               /* LoRA */
};

static const struct projection projections[] = {
    {"bloomz-1b1 qkv", 8192, 1536, 4608, .bias = true},
    {"bloomz-1b1 out", 8192, 1536, 1536, .bias = true, .residual = true},
    {"bloomz-1b1 up", 8192, 1536, 6144, .bias = true, .act = OP_ACT_GELU_TANH},
    {"bloomz-1b1 down", 8192, 6144, 1536, .bias = true, .x_act = OP_ACT_GELU_TANH,
     .residual = true},
    {"opt-1.3b q", 16384, 2048, 2048, .bias = true},
    {"opt-1.3b up", 16384, 2048, 8192, .bias = true, .act = OP_ACT_RELU},
    {"opt-1.3b down", 16384, 8192, 2048, .bias = true, .x_act = OP_ACT_RELU, .residual = true},
    {"qwen3-8b q", 8192, 4096, 4096, .rank = 0},
    {"qwen3-8b k", 8192, 4096, 1024, .rank = 0},
    {"qwen3-8b gate", 8192, 4096, 12288, .rank = 0},
    {"qwen3-8b down", 8192, 12288, 4096, .residual = true},
    {"qwen3-8b lora q", 8192, 4096, 4096, .rank = 32},
    {"qwen3-8b lora k", 8192, 4096, 1024, .rank = 32},
    {"qwen3-8b lora gate", 8192, 4096, 12288, .rank = 32},
    {"qwen3-8b lora down", 8192, 12288, 4096, .residual = true, .rank = 32},
    {"qwen3-8b decode 1 q", 1, 4096, 4096, .rank = 0},
    {"qwen3-8b decode 1 gate", 1, 4096, 12288, .rank = 0},
    {"qwen3-8b decode 64 gate", 64, 4096, 12288, .rank = 0},
};

static void linear(struct bench *b, const void *of)
{
    const struct projection *p = of;
    double flops = 2.0 * (double)p->n * (double)p->in * (double)p->out;
    struct op_linear op = {.n = p->n, .n_in = p->in, .n_out = p->out, .act = p->act}, back;

    if (!bench_wanted(b, p->name))
        return;
    b->dev->loaded++;
    op.x = bench_values(b, p->n * p->in);
    op.proj.w = bench_values(b, p->in * p->out);
    op.proj.b = p->bias ? bench_values(b, p->out) : NULL;
    op.out = bench_values(b, p->n * p->out);
    op.pre = p->act != OP_ACT_NONE ? bench_values(b, p->n * p->out) : NULL;
    op.residual = p->residual ? bench_values(b, p->n * p->out) : NULL;
    if (p->rank)
        op.proj.lora = (struct op_lora){.a = bench_values(b, p->rank * p->in),
                                        .b = bench_values(b, p->out * p->rank),
                                        .rank = p->rank, .scale = 1};
    row(b, p->name, "fwd", flops, linear_fwd, &op);
    back = op;
    back.dout = bench_values(b, p->n * p->out);
    back.dx = bench_values(b, p->n * p->in);
    back.x_act = p->x_act;
    back.x_pre = bench_values(b, p->n * p->in);
    back.flags = OP_LINEAR_X_KEPT | OP_LINEAR_OVERWRITE;
    row(b, p->name, "dgrad", flops, linear_bwd, &back);
    if (p->rank) {
        back.proj.lora.da = bench_floats(b, p->rank * p->in);
        back.proj.lora.db = bench_floats(b, p->out * p->rank);
        row(b, p->name, "all back", flops, linear_bwd, &back);
    } else {
        back.dx = NULL;
        back.x_act = OP_ACT_NONE;
        back.proj.dw = bench_floats(b, p->in * p->out);
        row(b, p->name, "wgrad", flops, linear_bwd, &back);
        back.proj.db = p->bias ? bench_floats(b, p->out) : NULL;
        if (p->bias)
            row(b, p->name, "+ bias", flops, linear_bwd, &back);
    }
}

struct head {
    const char *name;
    int64_t     n, dim, vocab;
    bool        frozen;
};

static const struct head heads[] = {
    {"bloomz-1b1 head", 8192, 1536, 250880, .frozen = false},
    {"opt-1.3b head", 16384, 2048, 50272, .frozen = false},
    {"qwen3-8b head", 8192, 4096, 151936, .frozen = false},
    {"qwen3-8b head frozen", 8192, 4096, 151936, .frozen = true},
};

static void head(struct bench *b, const void *of)
{
    const struct head *h = of;
    double flops = 2.0 * (double)h->n * (double)h->dim * (double)h->vocab;
    int32_t *targets;
    struct op_head op = {.n = h->n, .dim = h->dim, .vocab = h->vocab, .mul = 1,
                         .scale = 1.0f / (float)h->n};

    if (!bench_wanted(b, h->name))
        return;
    targets = calloc((size_t)h->n, sizeof *targets);
    for (int64_t i = 0; i < h->n; i++)
        targets[i] = (int32_t)(i * 7919 % h->vocab);
    op.x = bench_values(b, h->n * h->dim);
    op.w = bench_values(b, h->vocab * h->dim);
    op.nll = bench_floats(b, h->n);
    op.targets = bench_array(b, (size_t)h->n * sizeof *targets, targets);
    row(b, h->name, "nll", flops, head_loss, &op);
    op.dx = bench_values(b, h->n * h->dim);
    op.dw = h->frozen ? NULL : bench_floats(b, h->vocab * h->dim);
    row(b, h->name, "all", (h->frozen ? 2 : 3) * flops, head_loss, &op);
    free(targets);
}

struct routed {
    const char *name;
    int64_t     n, dim, ff, experts, k;
    bool        frozen;
};

static const struct routed routed[] = {
    {"experts 8 of 4096 x 3584", 8192, 4096, 3584, 8, 2, .frozen = true},
    {"experts 8 of 2048 x 5632", 8192, 2048, 5632, 8, 2, .frozen = true},
    {"experts 128 of 2048 x 768", 8192, 2048, 768, 128, 8, .frozen = false},
};

static void experts(struct bench *b, const void *of)
{
    const struct routed *r = of;
    double flops = 6.0 * (double)r->n * (double)r->k * (double)r->dim * (double)r->ff;
    int64_t one = r->dim * r->ff;
    size_t item = ckpt_dtype_size(b->dev->act);
    struct op_experts op = {.n = r->n, .dim = r->dim, .ff = r->ff, .n_expert = r->experts,
                            .top_k = r->k, .stride = 3 * one, .act = OP_ACT_SILU,
                            .renorm = true};
    unsigned char *w;
    float *dw;

    if (!bench_wanted(b, r->name))
        return;
    op.x = bench_values(b, r->n * r->dim);
    op.residual = bench_values(b, r->n * r->dim);
    op.out = bench_values(b, r->n * r->dim);
    op.router = bench_values(b, r->experts * r->dim);
    op.u = bench_values(b, r->n * r->k * 2 * r->ff);
    op.probs = bench_floats(b, r->n * r->experts);
    op.top_k_index = bench_array(b, (size_t)(r->n * r->k) * sizeof(int32_t), NULL);
    op.gate = w = bench_values(b, r->experts * 3 * one);
    op.up = w + (size_t)one * item;
    op.down = w + 2 * (size_t)one * item;
    row(b, r->name, "fwd", flops, experts_fwd, &op);
    op.dout = bench_values(b, r->n * r->dim);
    op.dx = bench_values(b, r->n * r->dim);
    row(b, r->name, "dgrad", flops, experts_bwd, &op);
    if (r->frozen)
        return;
    op.dgate = dw = bench_floats(b, r->experts * 3 * one);
    op.dup = dw + one;
    op.ddown = dw + 2 * one;
    op.drouter = bench_floats(b, r->experts * r->dim);
    row(b, r->name, "all back", 2 * flops, experts_bwd, &op);
}

enum { MOST = 3 };

/* Projections of one x with LoRA, at once. */
struct joined {
    const char *name;
    int64_t     n, in, out[MOST];
    int         count;
    int64_t     rank;
};

static const struct joined joined[] = {
    {"qwen3-8b lora q, k, v", 8192, 4096, {4096, 1024, 1024}, 3, 32},
    {"qwen3-8b lora gate, up", 8192, 4096, {12288, 12288}, 2, 32},
};

struct many {
    struct op_linear op[MOST];
    int              n;
};

static void many_fwd(struct device *dev, const void *op)
{
    dev->ops->linears_fwd(dev, ((const struct many *)op)->op, ((const struct many *)op)->n);
}

static void many_bwd(struct device *dev, const void *op)
{
    dev->ops->linears_bwd(dev, ((const struct many *)op)->op, ((const struct many *)op)->n);
}

static void many(struct bench *b, const void *of)
{
    const struct joined *j = of;
    struct many m = {.n = j->count};
    double flops = 0;
    int64_t wide = 0, at = 0;
    size_t item = ckpt_dtype_size(b->dev->act);
    unsigned char *out, *dout;
    void *x, *dx, *t;

    if (!bench_wanted(b, j->name))
        return;
    for (int i = 0; i < j->count; i++)
        wide += j->out[i];
    x = bench_values(b, j->n * j->in);
    dx = bench_values(b, j->n * j->in);
    out = bench_values(b, j->n * wide);
    dout = bench_values(b, j->n * wide);
    t = bench_values(b, j->n * j->rank * j->count);
    for (int i = 0; i < j->count; at += j->out[i++]) {
        struct op_lora lora = {.a = bench_values(b, j->rank * j->in),
                               .b = bench_values(b, j->out[i] * j->rank),
                               .da = bench_floats(b, j->rank * j->in),
                               .db = bench_floats(b, j->out[i] * j->rank),
                               .rank = j->rank, .scale = 1, .t = t};

        m.op[i] = (struct op_linear){
            .x = x, .dx = dx, .n = j->n, .n_in = j->in, .n_out = j->out[i], .out_ld = wide,
            .out = out + (size_t)at * item, .dout = dout + (size_t)at * item,
            .proj.w = bench_values(b, j->in * j->out[i]), .proj.lora = lora,
            .flags = i > 0 ? OP_LINEAR_DX_ADD : 0};
        flops += 2.0 * (double)j->n * (double)j->in * (double)j->out[i];
    }
    row(b, j->name, "fwd", flops, many_fwd, &m);
    row(b, j->name, "all back", flops, many_bwd, &m);
}

int main(int argc, char **argv)
{
    enum ckpt_dtype type = argc > 2 && strstr(argv[2], "f32")    ? CKPT_F32
                           : argc > 2 && !strcmp(argv[2], "f16") ? CKPT_F16
                                                                 : CKPT_BF16;
    struct device_opts opts = {.name = "cuda", .weights = type,
                               .tf32 = argc > 2 && !strcmp(argv[2], "tf32"),
                               .fp8 = argc > 2 && !strcmp(argv[2], "fp8") ? DEVICE_FP8_HYBRID
                                                                          : DEVICE_FP8_OFF};
    struct op_limits l = {.n = 16384, .n_rows = 16384, .dim = 4096, .n_head = 32, .n_kv = 8,
                          .head_dim = 128, .ff = 12288, .vocab = 250880, .n_expert = 128,
                          .top_k = 8, .expert_ff = 3584, .lora_rank = 32, .train = true};
    struct bench b;

    bench_open(&b, &opts, argc > 1 ? argv[1] : NULL);
    bench_workspace(&b, &l);
    if (opts.fp8) {
        b.dev->fp8_cache_bytes = (uint64_t)4 << 30;
        b.dev->fp8_cache = b.dev->ops->alloc(b.dev, b.dev->fp8_cache_bytes);
    }
    bench_samples(&b, 0.05f);
    BENCH_ROWS(&b, linear, projections);
    BENCH_ROWS(&b, head, heads);
    BENCH_ROWS(&b, many, joined);
    BENCH_ROWS(&b, experts, routed);
    device_close(b.dev);
    return 0;
}
