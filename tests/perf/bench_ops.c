/*
 * bench_ops [NAME] - how fast the operations that move memory are on a GPU, at the shapes of
 * real models: bytes that must move, over the time between two syncs around many calls, and
 * that as a share of PEAK.  NAME: only rows whose name contains it.
 *
 * Each call takes the next of several sets of arrays, together larger than the caches.
 */
#include "tests/perf/gpu_bench.h"

/* The speed of a plain copy on an H200, bytes per second. */
#define PEAK 4.1e12

enum { CALLS = 40, BEYOND = 256 << 20 };

static void *acts(struct bench *b, int64_t n) { return bench_array(b, (size_t)n * 2, NULL); }

static void *floats(struct bench *b, int64_t n) { return bench_array(b, (size_t)n * 4, NULL); }

/* Ids below a limit with the frequencies of a text's words: a few are frequent. */
static void *ids(struct bench *b, int64_t n, int64_t limit)
{
    int32_t *host = malloc((size_t)n * sizeof *host);
    uint64_t x = 88172645463325252u;
    void *p;

    for (int64_t i = 0; i < n; i++) {
        double u;

        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        u = (double)(x >> 11) * 0x1p-53;
        host[i] = (int32_t)((double)limit * u * u * u * u);
    }
    p = bench_array(b, (size_t)n * sizeof *host, host);
    free(host);
    return p;
}

/* How many sets of arrays of so many bytes exceed the caches: four at most. */
static int sets(double bytes)
{
    int n = 1 + (int)(BEYOND / bytes);

    return n < 4 ? n : 4;
}

/* ops: [n] of that size, taken round robin. */
static void row(struct bench *b, const char *name, const char *shape, double bytes, bench_call *f,
                const void *ops, size_t size, int n)
{
    double best = 1e30;

    for (int t = 0; t < 4; t++) {       /* the first one warms up */
        double took = bench_seconds(b, f, ops, size, n, CALLS);

        best = t && took < best ? took : best;
    }
    printf("%-24s %-22s %9.1f us %7.0f GB/s %5.1f %%\n", name, shape, 1e6 * best,
           1e-9 * bytes / best, 100 * bytes / best / PEAK);
    fflush(stdout);
}

BENCH_CALL(norm_fwd, op_rownorm, norm_fwd)
BENCH_CALL(norm_bwd, op_rownorm, norm_bwd)
BENCH_CALL(gate_fwd, op_gate, gate_fwd)
BENCH_CALL(gate_bwd, op_gate, gate_bwd)
BENCH_CALL(rope_fwd, op_rope, rope_fwd)
BENCH_CALL(rope_bwd, op_rope, rope_bwd)
BENCH_CALL(embed_fwd, op_embed, embed_fwd)
BENCH_CALL(embed_bwd, op_embed, embed_bwd)

static void norms(struct bench *b, const char *shape, enum op_norm_kind kind, int64_t n,
                  int64_t dim, bool frozen)
{
    struct op_rownorm op[4];
    double one = 2.0 * (double)(n * dim);
    int many = sets(2 * one);

    for (int i = 0; i < many; i++) {
        op[i] = (struct op_rownorm){
            .x = acts(b, n * dim), .out = acts(b, n * dim), .stats = floats(b, 2 * n),
            .dout = acts(b, n * dim), .dx_add = acts(b, n * dim), .n = n, .n_x = n, .dim = dim,
            .norm = {kind, 1e-5f, acts(b, dim), kind == OP_NORM_LAYER ? acts(b, dim) : NULL,
                     frozen ? NULL : floats(b, dim), NULL}};
        op[i].dx = (void *)op[i].dx_add;
        if (kind == OP_NORM_LAYER && !frozen)
            op[i].norm.db = floats(b, dim);
    }
    row(b, "norm_fwd", shape, 2 * one, norm_fwd, op, sizeof *op, many);
    row(b, frozen ? "norm_bwd frozen, +dx" : "norm_bwd +dx", shape, 4 * one, norm_bwd, op,
        sizeof *op, many);
    bench_done(b);
}

static void gates(struct bench *b, const char *shape, enum op_act act, int64_t n, int64_t ff)
{
    struct op_gate op[4];
    double one = 2.0 * (double)(n * ff);
    int many = sets(3 * one);

    for (int i = 0; i < many; i++)
        op[i] = (struct op_gate){.out = acts(b, n * ff), .u = acts(b, 2 * n * ff),
                                 .du = acts(b, 2 * n * ff), .dout = acts(b, n * ff), .act = act,
                                 .n = n, .ff = ff};
    row(b, "gate_fwd", shape, 3 * one, gate_fwd, op, sizeof *op, many);
    row(b, "gate_bwd", shape, 5 * one, gate_bwd, op, sizeof *op, many);
    bench_done(b);
}

static struct op_heads heads(void *base, int64_t n_head, int64_t n_kv, int64_t d)
{
    char *q = base;

    return (struct op_heads){q, q + 2 * n_head * d, q + 2 * (n_head + n_kv) * d,
                             (n_head + 2 * n_kv) * d, 0, d, d};
}

static void ropes(struct bench *b, const char *shape, int64_t n, int64_t H, int64_t K, bool norms_on)
{
    const int64_t d = 128, all = n * (H + 2 * K) * d;
    struct op_rope op[4];
    double rotated = 2.0 * (double)(n * (H + K) * d), copied = 2.0 * (double)(n * K * d);
    int many = sets(2 * rotated);

    for (int i = 0; i < many; i++) {
        op[i] = (struct op_rope){.in = heads(acts(b, all), H, K, d), .table = floats(b, 4096 * d),
                                 .grad = heads(acts(b, all), H, K, d), .positions = ids(b, n, 4096),
                                 .n = n, .n_head = H, .n_kv = K, .dim = d, .rotary_dim = d};
        op[i].out = norms_on ? heads(acts(b, all), H, K, d) : op[i].in;
        if (norms_on) {
            op[i].q_norm = acts(b, d);
            op[i].k_norm = acts(b, d);
            op[i].dq_norm = floats(b, d);
            op[i].dk_norm = floats(b, d);
            op[i].stats = floats(b, n * (H + K));
            op[i].eps = 1e-6f;
        }
    }
    row(b, norms_on ? "rope_fwd norms" : "rope_fwd", shape, 2 * rotated + (norms_on ? 2 * copied : 0),
        rope_fwd, op, sizeof *op, many);
    row(b, norms_on ? "rope_bwd norms" : "rope_bwd", shape, (norms_on ? 3 : 2) * rotated, rope_bwd,
        op, sizeof *op, many);
    bench_done(b);
}

static void embeds(struct bench *b, const char *shape, int64_t n, int64_t dim, int64_t vocab,
                   bool normed)
{
    double one = 2.0 * (double)(n * dim);
    struct op_norm norm = {OP_NORM_LAYER, 1e-5f, acts(b, dim), acts(b, dim), floats(b, dim),
                           floats(b, dim)};
    struct op_embed op = {.out = acts(b, n * dim), .stats = floats(b, 2 * n),
                          .dout = acts(b, n * dim), .dtable = floats(b, vocab * dim),
                          .table = acts(b, vocab * dim), .ids = ids(b, n, vocab),
                          .norm = normed ? &norm : NULL, .n = n, .dim = dim, .vocab = vocab,
                          .no_grad = -1};

    row(b, normed ? "embed_fwd norm" : "embed_fwd", shape, 2 * one, embed_fwd, &op, sizeof op, 1);
    /* dout once, or thrice with its norm, and each id's row at most once there and back */
    row(b, normed ? "embed_bwd norm" : "embed_bwd", shape, (normed ? 8 : 5) * one, embed_bwd, &op,
        sizeof op, 1);
    bench_done(b);
}

struct flat {
    float *p, *m, *v, *g;
    void  *narrow;
    int64_t n;
    const uint64_t *rows;               /* of dropout */
};

static void adamw(struct device *dev, const void *op)
{
    const struct flat *f = op;
    struct adamw a = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1,
                      .step = 1};
    struct adamw_run run = {.param = f->p, .exp_avg = f->m, .exp_avg_sq = f->v, .grad = f->g,
                            .n = f->n, .weight_decay = 0.01};

    dev->ops->adamw(dev, &run, 1, &a);
}

static void squares(struct device *dev, const void *op)
{
    const struct flat *f = op;

    dev->ops->sum_squares(dev, (double *)(void *)f->m, f->g, f->n);
}

static void to_narrow(struct device *dev, const void *op)
{
    const struct flat *f = op;

    dev->ops->cast(dev, OP_STREAM_MAIN, f->narrow, CKPT_BF16, f->p, CKPT_F32, f->n);
}

static void drop(struct device *dev, const void *op)
{
    const struct flat *f = op;
    struct op_drop d = {0.1f, 1, 2, f->rows};

    dev->ops->drop(dev, f->narrow, f->n / 4096, 4096, &d);
}

static void flats(struct bench *b, const char *shape, int64_t n)
{
    struct flat f = {floats(b, n), floats(b, n), floats(b, n), floats(b, n), acts(b, n), n,
                     (const uint64_t *)(const void *)floats(b, 2 * n / 4096)};

    row(b, "adamw", shape, 28.0 * (double)n, adamw, &f, sizeof f, 1);
    row(b, "sum_squares", shape, 4.0 * (double)n, squares, &f, sizeof f, 1);
    row(b, "cast f32 to bf16", shape, 6.0 * (double)n, to_narrow, &f, sizeof f, 1);
    row(b, "drop", shape, 4.0 * (double)n, drop, &f, sizeof f, 1);
    bench_done(b);
}

/* The runs of bloomz-1b1: neighbours of one decay, as its parameters lie. */
enum { LAYERS = 24, RUNS = 4 + 8 * LAYERS };

struct step {
    struct adamw_run run[RUNS];
    int64_t          n_run, n;
};

static void run_sizes(int64_t size[RUNS])
{
    static const int64_t d = 1536, v = 250880;
    const int64_t layer[8] = {2 * d, 3 * d * d, 3 * d, d * d, 3 * d, 4 * d * d, 4 * d, 4 * d * d};
    int n = 0;

    size[n++] = v * d;
    size[n++] = 2 * d;
    for (int i = 0; i < LAYERS; i++)
        for (int k = 0; k < 8; k++)
            size[n++] = layer[k];
    size[n++] = d;
    size[n++] = 2 * d;
}

/* n floats of many magnitudes, as 8-bit codes meet them in a real step. */
static float *spread(struct bench *b, int64_t n)
{
    enum { SOME = 1 << 20 };
    float *p = floats(b, n), *host = malloc(SOME * sizeof *host);
    uint32_t x = 12345;

    for (int i = 0; i < SOME; i++) {
        double sum = 0;

        for (int k = 0; k < 4; k++) {
            x = x * 1664525u + 1013904223u;
            sum += (double)(x >> 8) * 0x1p-24 - 0.5;
        }
        host[i] = (float)sum * 1e-3f;
    }
    for (int64_t i = 0; i < n; i += SOME)
        b->dev->ops->to_device(b->dev, p + i, host,
                               (size_t)(n - i < SOME ? n - i : SOME) * sizeof *host);
    free(host);
    return p;
}

static void step_runs(struct device *dev, const void *op)
{
    const struct step *s = op;
    struct adamw a = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1,
                      .step = 100, .seed = 1};

    dev->ops->adamw(dev, s->run, s->n_run, &a);
}

static void steps(struct bench *b)
{
    static const char *const names[] = {"adamw f32", "adamw bf16", "adamw 8bit"};
    static const size_t width[] = {4, 2, 1};

    for (int k = 0; k < 3; k++) {
        static struct step s;
        int64_t size[RUNS], n = 0, at = 0, block = 0;
        unsigned char *m, *v;
        float *p, *g, *absmax;
        char *w;

        run_sizes(size);
        for (int i = 0; i < RUNS; i++)
            n += size[i];
        p = floats(b, n);
        g = spread(b, n);
        w = acts(b, n);
        m = bench_array(b, (size_t)n * width[k], NULL);
        v = bench_array(b, (size_t)n * width[k], NULL);
        absmax = floats(b, 2 * (n / 256 + RUNS));
        s.n_run = RUNS;
        for (int i = 0; i < RUNS; at += size[i], block += (size[i] + 255) / 256, i++)
            s.run[i] = (struct adamw_run){
                .param = p + at, .exp_avg = m + (size_t)at * width[k],
                .exp_avg_sq = v + (size_t)at * width[k], .absmax = absmax + block,
                .absmax_sq = absmax + n / 256 + RUNS + block, .grad = g + at, .rounded = w + 2 * at,
                .n = size[i], .index = (uint64_t)at, .weight_decay = 0.01,
                .moments = (enum op_moments)k};
        row(b, names[k], "bloomz-1b1, 196 runs",
            (double)n * (14 + 4 * (double)width[k]), step_runs, &s, sizeof s, 1);
        bench_done(b);
    }
}

int main(int argc, char **argv)
{
    struct device_opts opts = {.name = "cuda", .weights = CKPT_BF16};
    struct op_limits l = {.n = 16384, .dim = 4096, .n_head = 32, .n_kv = 8, .head_dim = 128,
                          .ff = 12288, .embed = 4096, .vocab = 250880,
                          .train = true};
    struct bench b;

    bench_open(&b, &opts, argc > 1 ? argv[1] : NULL);
    bench_workspace(&b, &l);
    if (bench_wanted(&b, "norm")) {
        norms(&b, "layer 8192 x 1536", OP_NORM_LAYER, 8192, 1536, false);
        norms(&b, "layer 16384 x 2048", OP_NORM_LAYER, 16384, 2048, false);
        norms(&b, "rms 2048 x 4096", OP_NORM_RMS, 2048, 4096, false);
        norms(&b, "rms 8192 x 4096", OP_NORM_RMS, 8192, 4096, true);
        norms(&b, "rms 16384 x 1024", OP_NORM_RMS, 16384, 1024, false);
    }
    if (bench_wanted(&b, "gate")) {
        gates(&b, "silu 4096 x 12288", OP_ACT_SILU, 4096, 12288);
        gates(&b, "gelu 8192 x 5120", OP_ACT_GELU_TANH, 8192, 5120);
    }
    if (bench_wanted(&b, "rope")) {
        ropes(&b, "8192 x (32 + 8) x 128", 8192, 32, 8, false);
        ropes(&b, "8192 x (32 + 8) x 128", 8192, 32, 8, true);
    }
    if (bench_wanted(&b, "embed")) {
        embeds(&b, "8192 x 1536 of 250880", 8192, 1536, 250880, true);
        embeds(&b, "16384 x 2048 of 50272", 16384, 2048, 50272, false);
    }
    if (bench_wanted(&b, "flat")) {
        flats(&b, "1e8", 100000000 / 4096 * 4096);
        flats(&b, "1e9", 1000000000 / 4096 * 4096);
    }
    if (bench_wanted(&b, "adamw"))
        steps(&b);
    device_close(b.dev);
    return 0;
}
