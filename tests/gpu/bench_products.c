/*
 * bench_products [NAME [TYPE]] - how fast projections, the head and routed feed-forwards are on a
 * GPU at the shapes of real models: multiply-adds counted twice, over the time between two syncs
 * around many calls.  NAME: only rows whose name contains it; TYPE: bf16 (default), f16, f32, tf32
 * or fp8, whose weights are kept.
 *
 * Data are normal numbers: a chip that multiplies zeros draws less power and runs faster.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/convert.h"
#include "libckpt/dtype.h"
#include "trainer/ops/ops.h"
#include "trainer/rng.h"

enum { SAMPLE = 1 << 20 };

struct bench {
    struct device *dev;
    const char    *only;
    void          *sample, *small;  /* SAMPLE values of the device's type, f32 */
    void          *arrays[64];
    int            n_arrays;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fine(const struct bench *b)
{
    struct ckpt_err err = {0};

    if (device_sync(b->dev, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static void *array(struct bench *b, int64_t n, size_t item, const void *sample)
{
    unsigned char *p = b->dev->ops->alloc(b->dev, (size_t)n * item);

    for (int64_t i = 0; sample && i < n; i += SAMPLE)
        b->dev->ops->copy(b->dev, p + (size_t)i * item, sample,
                          (size_t)(n - i < SAMPLE ? n - i : SAMPLE) * item);
    if (b->n_arrays < (int)(sizeof b->arrays / sizeof b->arrays[0]))
        b->arrays[b->n_arrays++] = p;
    return p;
}

static void *values(struct bench *b, int64_t n)
{
    return array(b, n, ckpt_dtype_size(b->dev->act), b->sample);
}

static void *floats(struct bench *b, int64_t n) { return array(b, n, 4, b->small); }

static void done(struct bench *b)
{
    fine(b);
    while (b->n_arrays)
        b->dev->ops->free(b->dev, b->arrays[--b->n_arrays]);
}

typedef void (*call)(struct device *dev, const void *op);

/* At least a fifth of a second of them, after as much to warm up. */
static void row(struct bench *b, const char *name, const char *what, double flops, call f,
                const void *op)
{
    int calls = 1;
    double took = 0;

    f(b->dev, op);                      /* chooses algorithms */
    for (int t = 0; t < 3; t++) {
        double began;

        fine(b);
        began = now();
        for (int i = 0; i < calls; i++)
            f(b->dev, op);
        fine(b);
        took = (now() - began) / calls;
        if (t == 0)
            calls = (int)(0.2 / took) + 1;
    }
    printf("%-28s %-8s %10.1f us %7.0f TFLOP/s\n", name, what, 1e6 * took, 1e-12 * flops / took);
    fflush(stdout);
}

#define CALL(name, type, entry)                                                                \
    static void name(struct device *dev, const void *op)                                       \
    {                                                                                          \
        dev->ops->entry(dev, (const struct type *)op);                                         \
    }
CALL(linear_fwd, op_linear, linear_fwd)
CALL(linear_bwd, op_linear, linear_bwd)
CALL(head_loss, op_head, head_loss)
CALL(experts_fwd, op_experts, experts_fwd)
CALL(experts_bwd, op_experts, experts_bwd)

/* bias; act of what leaves, or with back_act of what comes in; a change of that rank. */
static void linear(struct bench *b, const char *name, int64_t n, int64_t in, int64_t out,
                   bool bias, enum op_act act, enum op_act back_act, bool residual, int64_t rank)
{
    double flops = 2.0 * (double)n * (double)in * (double)out;
    struct op_linear op = {.n = n, .n_in = in, .n_out = out, .act = act}, back;

    if (b->only && !strstr(name, b->only))
        return;
    b->dev->loaded++;
    op.x = values(b, n * in);
    op.proj.w = values(b, in * out);
    op.proj.b = bias ? values(b, out) : NULL;
    op.out = values(b, n * out);
    op.pre = act != OP_ACT_NONE ? values(b, n * out) : NULL;
    op.residual = residual ? values(b, n * out) : NULL;
    if (rank)
        op.proj.lora = (struct op_lora){.a = values(b, rank * in), .b = values(b, out * rank),
                                   .rank = rank, .scale = 1};
    row(b, name, "fwd", flops, linear_fwd, &op);
    back = op;
    back.dout = values(b, n * out);
    back.dx = values(b, n * in);
    back.x_act = back_act;
    back.x_pre = values(b, n * in);
    back.flags = OP_LINEAR_X_KEPT | OP_LINEAR_OVERWRITE;
    row(b, name, "dgrad", flops, linear_bwd, &back);
    back.dx = NULL;
    back.x_act = OP_ACT_NONE;
    if (rank) {
        back.dx = values(b, n * in);
        back.x_act = back_act;
        back.proj.lora.da = floats(b, rank * in);
        back.proj.lora.db = floats(b, out * rank);
        row(b, name, "all back", flops, linear_bwd, &back);
    } else {
        back.proj.dw = floats(b, in * out);
        row(b, name, "wgrad", flops, linear_bwd, &back);
        back.proj.db = bias ? floats(b, out) : NULL;
        if (bias)
            row(b, name, "+ bias", flops, linear_bwd, &back);
    }
    done(b);
}

static void head(struct bench *b, const char *name, int64_t n, int64_t dim, int64_t vocab,
                 bool frozen)
{
    double flops = 2.0 * (double)n * (double)dim * (double)vocab;
    int32_t *targets = calloc((size_t)n, sizeof *targets);
    struct op_head op = {.n = n, .dim = dim, .vocab = vocab, .mul = 1, .scale = 1.0f / (float)n};
    void *at;

    if (b->only && !strstr(name, b->only)) {
        free(targets);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        targets[i] = (int32_t)(i * 7919 % vocab);
    op.x = values(b, n * dim);
    op.w = values(b, vocab * dim);
    op.nll = floats(b, n);
    op.targets = at = array(b, n, sizeof *targets, NULL);
    b->dev->ops->to_device(b->dev, at, targets, (size_t)n * sizeof *targets);
    row(b, name, "nll", flops, head_loss, &op);
    op.dx = values(b, n * dim);
    op.dw = frozen ? NULL : floats(b, vocab * dim);
    row(b, name, "all", (frozen ? 2 : 3) * flops, head_loss, &op);
    done(b);
    free(targets);
}

static void experts(struct bench *b, const char *name, int64_t n, int64_t dim, int64_t ff,
                    int64_t E, int64_t k, bool frozen)
{
    double flops = 6.0 * (double)n * (double)k * (double)dim * (double)ff;
    int64_t each = 3 * dim * ff, one = dim * ff;
    size_t item = ckpt_dtype_size(b->dev->act);
    struct op_experts op = {.n = n, .dim = dim, .ff = ff, .n_expert = E, .top_k = k,
                            .stride = each, .act = OP_ACT_SILU, .renorm = true};
    unsigned char *w;
    float *dw;

    if (b->only && !strstr(name, b->only))
        return;
    op.x = values(b, n * dim);
    op.residual = values(b, n * dim);
    op.out = values(b, n * dim);
    op.router = values(b, E * dim);
    op.u = values(b, n * k * 2 * ff);
    op.probs = floats(b, n * E);
    op.top_k_index = array(b, n * k, sizeof(int32_t), NULL);
    op.gate = w = values(b, E * each);
    op.up = w + (size_t)one * item;
    op.down = w + 2 * (size_t)one * item;
    row(b, name, "fwd", flops, experts_fwd, &op);
    op.dout = values(b, n * dim);
    op.dx = values(b, n * dim);
    row(b, name, "dgrad", flops, experts_bwd, &op);
    if (!frozen) {
        op.dgate = dw = floats(b, E * each);
        op.dup = dw + one;
        op.ddown = dw + 2 * one;
        op.drouter = floats(b, E * dim);
        row(b, name, "all back", 2 * flops, experts_bwd, &op);
    }
    done(b);
}

enum { MOST = 3 };

/* Projections of one x with changes, at once. */
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

static void many(struct bench *b, const char *name, int64_t n, int64_t in,
                 const int64_t *out, int count, int64_t rank)
{
    struct many m = {.n = count};
    double flops = 0;
    int64_t wide = 0, at = 0;
    size_t item = ckpt_dtype_size(b->dev->act);
    void *x, *dx, *to, *dout, *t;

    if (b->only && !strstr(name, b->only))
        return;
    for (int i = 0; i < count; i++)
        wide += out[i];
    x = values(b, n * in);
    dx = values(b, n * in);
    to = values(b, n * wide);
    dout = values(b, n * wide);
    t = values(b, n * rank * count);
    for (int i = 0; i < count; at += out[i++]) {
        struct op_lora lora = {.a = values(b, rank * in), .b = values(b, out[i] * rank),
                               .da = floats(b, rank * in), .db = floats(b, out[i] * rank),
                               .rank = rank, .scale = 1, .t = t};

        m.op[i] = (struct op_linear){.x = x, .dx = dx, .n = n, .n_in = in, .n_out = out[i],
                                     .out = (unsigned char *)to + (size_t)at * item,
                                     .dout = (unsigned char *)dout + (size_t)at * item,
                                     .proj.w = values(b, in * out[i]), .out_ld = wide,
                                     .flags = i > 0 ? OP_LINEAR_DX_ADD : 0, .proj.lora = lora};
        flops += 2.0 * (double)n * (double)in * (double)out[i];
    }
    row(b, name, "fwd", flops, many_fwd, &m);
    row(b, name, "all back", flops, many_bwd, &m);
    done(b);
}

static void samples(struct bench *b)
{
    float *host = malloc(SAMPLE * sizeof *host);
    void *narrow = malloc(SAMPLE * sizeof *host);
    size_t wide = SAMPLE * ckpt_dtype_size(b->dev->act);

    rng_normal(host, 0, SAMPLE, 0.05f, 17, 1);
    ckpt_convert(narrow, b->dev->act, host, CKPT_F32, SAMPLE);
    b->sample = b->dev->ops->alloc(b->dev, wide);
    b->dev->ops->to_device(b->dev, b->sample, narrow, wide);
    b->small = b->dev->ops->alloc(b->dev, SAMPLE * sizeof *host);
    b->dev->ops->to_device(b->dev, b->small, host, SAMPLE * sizeof *host);
    fine(b);
    free(narrow);
    free(host);
}

static void all(struct bench *b)
{
    enum op_act none = OP_ACT_NONE, gelu = OP_ACT_GELU_TANH, relu = OP_ACT_RELU;

    linear(b, "bloomz-1b1 qkv", 8192, 1536, 4608, true, none, none, false, 0);
    linear(b, "bloomz-1b1 out", 8192, 1536, 1536, true, none, none, true, 0);
    linear(b, "bloomz-1b1 up", 8192, 1536, 6144, true, gelu, none, false, 0);
    linear(b, "bloomz-1b1 down", 8192, 6144, 1536, true, none, gelu, true, 0);
    head(b, "bloomz-1b1 head", 8192, 1536, 250880, false);
    linear(b, "opt-1.3b q", 16384, 2048, 2048, true, none, none, false, 0);
    linear(b, "opt-1.3b up", 16384, 2048, 8192, true, relu, none, false, 0);
    linear(b, "opt-1.3b down", 16384, 8192, 2048, true, none, relu, true, 0);
    head(b, "opt-1.3b head", 16384, 2048, 50272, false);
    linear(b, "qwen3-8b q", 8192, 4096, 4096, false, none, none, false, 0);
    linear(b, "qwen3-8b k", 8192, 4096, 1024, false, none, none, false, 0);
    linear(b, "qwen3-8b gate", 8192, 4096, 12288, false, none, none, false, 0);
    linear(b, "qwen3-8b down", 8192, 12288, 4096, false, none, none, true, 0);
    head(b, "qwen3-8b head", 8192, 4096, 151936, false);
    head(b, "qwen3-8b head frozen", 8192, 4096, 151936, true);
    linear(b, "qwen3-8b lora q", 8192, 4096, 4096, false, none, none, false, 32);
    linear(b, "qwen3-8b lora k", 8192, 4096, 1024, false, none, none, false, 32);
    linear(b, "qwen3-8b lora gate", 8192, 4096, 12288, false, none, none, false, 32);
    linear(b, "qwen3-8b lora down", 8192, 12288, 4096, false, none, none, true, 32);
    many(b, "qwen3-8b lora q, k, v", 8192, 4096, (const int64_t[]){4096, 1024, 1024}, 3, 32);
    many(b, "qwen3-8b lora gate, up", 8192, 4096, (const int64_t[]){12288, 12288}, 2, 32);
    linear(b, "qwen3-8b decode 1 q", 1, 4096, 4096, false, none, none, false, 0);
    linear(b, "qwen3-8b decode 1 gate", 1, 4096, 12288, false, none, none, false, 0);
    linear(b, "qwen3-8b decode 64 gate", 64, 4096, 12288, false, none, none, false, 0);
    experts(b, "experts 8 of 4096 x 3584", 8192, 4096, 3584, 8, 2, true);
    experts(b, "experts 8 of 2048 x 5632", 8192, 2048, 5632, 8, 2, true);
    experts(b, "experts 128 of 2048 x 768", 8192, 2048, 768, 128, 8, false);
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
    struct bench b = {.only = argc > 1 ? argv[1] : NULL};
    struct ckpt_err err = {0};

    if (device_open(&b.dev, &opts, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    b.dev->work_bytes = b.dev->ops->workspace(b.dev, &l);
    b.dev->work = b.dev->ops->alloc(b.dev, b.dev->work_bytes);
    if (opts.fp8) {
        b.dev->fp8_cache_bytes = (uint64_t)4 << 30;
        b.dev->fp8_cache = b.dev->ops->alloc(b.dev, b.dev->fp8_cache_bytes);
    }
    samples(&b);
    all(&b);
    device_close(b.dev);
    return 0;
}
