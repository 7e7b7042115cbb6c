/*
 * matmul/search - the fastest of cuBLASLt's algorithms, or our own kernel, for a product.
 *
 * When a shape is first seen, the heuristic's algorithms are timed on the stream itself: into
 * D, which is written again afterwards, or, where D is also read, into the free part of the
 * workspace, for as many rows as fit there.  An algorithm whose result differs from that of the
 * heuristic's first (matmul/probe.cu) is no candidate, however fast.
 */
#include "trainer/cuda/matmul/call.h"

enum {
    NAMED      = 24,            /* algorithms from the heuristic */
    SPLIT_MOST = 4,             /* of those, also tried with split sums */
    CANDIDATES = NAMED + SPLIT_MOST * 5,
    SWEEPS     = 2,             /* over the candidates that may be the fastest */
    FINALISTS  = 4,
    ROUNDS     = 2,             /* over all finalists, forwards and backwards */
    REPEATS    = 6,             /* least launches per measurement */
    LEAST_ROWS = 1024,          /* rows of D that suffice for timing */
    DEEP       = 256            /* a part with a smaller k counts as a pass over D */
};

/* Candidates that take this many times the fastest one's time are timed once. */
#define NEAR 1.5f

/* Sums at least this long, with at most this many elements of D, are also tried split. */
#define SPLIT_LEAST 1024
#define SPLIT_TILES ((int64_t)8 * 132 * 128 * 256)

/*
 * How finalists are timed, in milliseconds: products that take `heavy` and more after `warm` of
 * work, each over `length` after `settle`. What counts is the speed that the chip's power
 * sustains, not that of the first milliseconds: small tiles that are the fastest at first draw
 * more power and are up to a tenth slower later. 8-bit products are timed briefly: one of them
 * ended in a launch failure when timed for long beside other programs (cuBLASLt 13.0).
 */
struct reading { float heavy, warm, settle, length; };

static const struct reading sustained = {0.02f, 100, 16, 32}, brief = {0.04f, 0, 0, 8};

/* Cost of an elementwise pass: least milliseconds, bytes per second. */
#define PASS_MS    0.003
#define PASS_BYTES 3.3e12

int matmul_heuristic(struct device *dev, const struct matmul_call *x,
                     cublasLtMatmulHeuristicResult_t *to, int most)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t aa = matmul_alignment(x->pa, 0, CKPT_F32), ab = matmul_alignment(x->pb, 0, CKPT_F32);
    uint32_t ac = matmul_alignment(x->pc, 0, CKPT_F32), ad = matmul_alignment(x->pd, 0, CKPT_F32);
    cublasLtMatmulPreferenceOpaque_t pref;
    int n = 0, fine = 0;

#define PREFER(what, value)                                                                    \
    cublasLtMatmulPreferenceSetAttribute(&pref, CUBLASLT_MATMUL_PREF_##what, &(value),         \
                                         sizeof(value))
    cublasLtMatmulPreferenceInit(&pref);
    PREFER(MAX_WORKSPACE_BYTES, x->work);
    PREFER(REDUCTION_SCHEME_MASK, scheme);
    PREFER(MIN_ALIGNMENT_A_BYTES, aa);
    PREFER(MIN_ALIGNMENT_B_BYTES, ab);
    PREFER(MIN_ALIGNMENT_C_BYTES, ac);
    PREFER(MIN_ALIGNMENT_D_BYTES, ad);
#undef PREFER
    if (cublasLtMatmulAlgoGetHeuristic(cuda_of(dev)->matmul->handle,
                                       (cublasLtMatmulDesc_t)&x->desc,
                                       (cublasLtMatrixLayout_t)&x->a,
                                       (cublasLtMatrixLayout_t)&x->b,
                                       (cublasLtMatrixLayout_t)&x->c,
                                       (cublasLtMatrixLayout_t)&x->d, &pref, most, to,
                                       &n) != CUBLAS_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < n; i++)
        if (to[i].state == CUBLAS_STATUS_SUCCESS)
            to[fine++] = to[i];
    return fine;
}

/* Whether factors have 8 bits. */
static bool eight(const struct matmul_args *a) { return matmul_size(a->in) == 1; }

/* Append to n algorithms the first of them with k split: where D is small, its tiles alone leave
 * multiprocessors idle.  (For 8 bits only cuBLASLt's own.)  Returns the new number. */
static int splits(struct device *dev, const struct matmul_call *x, const struct matmul_args *a,
                  cublasLtMatmulHeuristicResult_t *all, int n)
{
    static const int32_t parts[] = {2, 3, 4, 6, 8};
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int named = n < SPLIT_MOST ? n : SPLIT_MOST, most = n + (CANDIDATES - NAMED);

    if (a->epilogue != MATMUL_PLAIN || a->k < SPLIT_LEAST || a->m * a->n > SPLIT_TILES || eight(a))
        return n;
    for (int i = 0; i < named; i++)
        for (int j = 0; j < 5 && n < most; j++) {
            cublasLtMatmulHeuristicResult_t *to = &all[n];
            cublasLtMatmulAlgo_t algo = all[i].algo;

            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts[j],
                                                 sizeof parts[j]);
            cublasLtMatmulAlgoConfigSetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                 &scheme, sizeof scheme);
            if (cublasLtMatmulAlgoCheck(cuda_of(dev)->matmul->handle,
                                        (cublasLtMatmulDesc_t)&x->desc,
                                        (cublasLtMatrixLayout_t)&x->a,
                                        (cublasLtMatrixLayout_t)&x->b,
                                        (cublasLtMatrixLayout_t)&x->c,
                                        (cublasLtMatrixLayout_t)&x->d, &algo,
                                        to) != CUBLAS_STATUS_SUCCESS ||
                to->workspaceSize > x->work)
                continue;
            to->algo = algo;
            n++;
        }
    return n;
}

/* Milliseconds of one of that many launches, after `before` others; a large number if it cannot
 * run. */
static float time_of(struct device *dev, const struct matmul_call *x,
                     const cublasLtMatmulAlgo_t *algo, int before, int repeats)
{
    struct cuda_device *d = cuda_of(dev);
    float ms = 1e30f;

    for (int i = 0; i < before + repeats; i++) {
        if (i == before)
            cudaEventRecord(d->matmul->begin, d->stream);
        if (matmul_launch(dev, x, algo) != CUBLAS_STATUS_SUCCESS)
            return 1e30f;
    }
    cudaEventRecord(d->matmul->end, d->stream);
    if (cudaEventSynchronize(d->matmul->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, d->matmul->begin, d->matmul->end) != cudaSuccess)
        return 1e30f;
    return ms / (float)repeats;
}

/* The candidates of a product: cuBLASLt's algorithms, followed by matmul_tiles where it can. */
struct candidates {
    const struct matmul_call                     *x;
    const cublasLtMatmulHeuristicResult_t *all;
    int                                    n;       /* of all */
};

static int n_candidates(const struct candidates *f) { return f->n + f->x->tiles; }

static const cublasLtMatmulAlgo_t *algo_of(const struct candidates *f, int i)
{
    return i < f->n ? &f->all[i].algo : NULL;
}

/* Time of candidate i. */
static float time_at(struct device *dev, const struct candidates *f, int i, int before,
                     int repeats)
{
    return time_of(dev, f->x, algo_of(f, i), before, repeats);
}

static bool probe_at(struct device *dev, const struct candidates *f, int i, struct checksum *to)
{
    return matmul_probe(dev, f->x, algo_of(f, i), to);
}

/* Find the candidates whose launches are the fastest, always including the heuristic's first; ms
 * gets their times.  Returns how many.  A long product's candidates are slow to try: those that are
 * clearly slower are not tried twice. */
static int finalists(struct device *dev, const struct candidates *f, int to[FINALISTS],
                     float ms[CANDIDATES + 1])
{
    int n = n_candidates(f), most = n < FINALISTS ? n : FINALISTS, order[CANDIDATES + 1] = {};
    float least = 1e29f;
    bool first = false;

    for (int i = 0; i < n; i++) {
        ms[i] = time_at(dev, f, i, 1, 1);    /* warm, and loads the code */
        least = ms[i] < least ? ms[i] : least;
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int i = 0; i < n; i++)
            if (ms[i] < NEAR * least) {
                float now = time_at(dev, f, i, 0, 2);

                ms[i] = now < ms[i] ? now : ms[i];
            }
    for (int i = 0; i < n; i++) {
        int at = i;

        for (; at > 0 && ms[order[at - 1]] > ms[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (int i = 0; i < most; i++) {
        to[i] = order[i];
        first |= order[i] == 0;
    }
    if (!first && most > 0 && ms[0] < 1e29f)
        to[most - 1] = 0;
    return most;
}

/* Keep those finalists whose checksum matches candidate 0's, or, if it is not a finalist, that
 * of the first; returns how many. Where D accumulates (fused_wins, which needs only a time) each
 * launch adds to the one before, and all are kept. */
static int keep_correct(struct device *dev, const struct candidates *f, bool fast,
                        int at[FINALISTS], int n)
{
    bool grows = f->x->beta != 0 && f->x->pc == f->x->pd;
    struct checksum right, checksum;
    int first = at[0], left = 0;

    for (int i = 1; i < n; i++)
        first = at[i] == 0 ? 0 : first;
    if (n < 2 || grows || !probe_at(dev, f, first, &right))
        return n;
    for (int i = 0; i < n; i++)
        if (at[i] == first || (probe_at(dev, f, at[i], &checksum) &&
                               matmul_checksum_close(&right, &checksum, fast)))
            at[left++] = at[i];
    return left;
}

/* The fastest of them, and its time.  The heuristic's first must be beaten by one part in 100. */
static int fastest(struct device *dev, const struct candidates *f, const struct matmul_args *a,
                   float *took)
{
    const struct reading &how = eight(a) ? brief : sustained;
    float ms[CANDIDATES + 1], sum[FINALISTS] = {};
    int at[FINALISTS] = {}, won = 0;
    int most = keep_correct(dev, f, a->fast, at, finalists(dev, f, at, ms));
    bool heavy = !a->quick && most > 0 && ms[at[0]] >= how.heavy;

    if (heavy && most > 1 && how.warm > 0)
        time_at(dev, f, at[0], 0, 1 + (int)(how.warm / ms[at[0]]));
    for (int round = 0; round < ROUNDS; round++)
        for (int j = 0; j < most; j++) {
            int i = round % 2 ? most - 1 - j : j, before = 0, repeats = REPEATS;

            if (heavy && most > 1) {
                before = (int)(how.settle / ms[at[i]]);
                repeats = 1 + (int)(how.length / ms[at[i]]);
            }
            sum[i] += time_at(dev, f, at[i], before, repeats);
        }
    for (int i = 0; i < most; i++)
        if (sum[i] * (at[i] == 0 ? 0.99f : 1.0f) < sum[won] * (at[won] == 0 ? 0.99f : 1.0f))
            won = i;
    *took = sum[won] / ROUNDS;
    return at[won];
}

/* Find memory that timing may overwrite: true, with a call that writes D there. */
static bool trial(struct device *dev, struct matmul_call *to, const struct matmul_args *a)
{
    struct matmul_args t = *a;
    uint64_t begin = MATMUL_WORK + cuda_align(a->busy),
             row = (uint64_t)a->ldd * matmul_size(a->out);
    uint64_t tail = cuda_of(dev)->tail, end = dev->work_bytes > tail ? dev->work_bytes - tail : 0;
    uint64_t unused = dev->work && end > begin ? end - begin : 0;

    if (a->beta != 0 && (!a->c || a->c == a->d)) {
        int64_t rows = (int64_t)(unused / row);

        if (rows < a->m && (rows < LEAST_ROWS || a->batch > 1))
            return false;
        if (a->batch > 1 && (uint64_t)(a->batch * a->stride_d) * matmul_size(a->out) > unused)
            return false;
        t.m = rows < a->m ? rows / 256 * 256 : a->m;
        t.c = a->d;
        t.d = (unsigned char *)dev->work + begin;
    }
    matmul_describe(dev, to, &t);
    return true;
}

/* Timing needs to wait, which a stream being captured cannot; a choice that cannot be stored
 * would differ between runs. */
static bool may_time(struct device *dev)
{
    return cuda_of(dev)->matmul->choices.path && !cuda_graph_capturing(dev);
}

/* Bytes that a separate pass would move instead of the epilogue; 0: there is none. */
static double pass_bytes(const struct matmul_args *a)
{
    switch (a->epilogue) {
    case MATMUL_DGELU: return (a->alone ? 3.0 : 2.0) * (double)a->m * (double)a->n *
                              (double)matmul_size(a->out);
    case MATMUL_DRELU:                  /* plus a pass that computes its bits */
    case MATMUL_RELU:
    case MATMUL_GELU: return 2.0 * (double)a->m * (double)a->n * (double)matmul_size(a->out);
    default: return 0;
    }
}

/* Whether the product with at most a bias, and such a pass, take less than `with` ms. */
static bool better_unfused(struct device *dev, const struct matmul_args *a, float with)
{
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    double pass = PASS_MS + 1e3 * pass_bytes(a) / PASS_BYTES;
    struct matmul_args plain = *a;
    struct matmul_call probe;
    struct candidates f;
    float without;
    int n;

    plain.epilogue = a->bias ? MATMUL_BIAS : MATMUL_PLAIN;
    plain.aux = NULL;
    if (!trial(dev, &probe, &plain))
        return false;
    n = splits(dev, &probe, &plain, all, matmul_heuristic(dev, &probe, all, NAMED));
    if (n == 0)
        return false;
    f = (struct candidates){&probe, all, n};
    fastest(dev, &f, &plain, &without);
    return (double)without + pass < (double)with;
}

/* Whether one kernel for all parts is faster than one after another: each accumulating, by the
 * fastest algorithm of the first; short ones count as passes over D. */
static bool fused_wins(struct device *dev, const struct matmul_args *a)
{
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    double depth = (double)a->k, separate, joined = 0, pass;
    struct matmul_args one;
    struct matmul_call probe, alone;
    struct candidates f;
    float settle = a->quick ? 0 : sustained.settle, length = a->quick ? 0 : sustained.length, took;

    if (!trial(dev, &probe, a) || !probe.tiles)
        return false;
    one = probe.args;
    one.parts = 0;
    one.c = NULL;
    one.beta = 1;
    one.epilogue = a->bias ? MATMUL_BIAS : MATMUL_PLAIN;
    one.aux = NULL;
    matmul_describe(dev, &alone, &one);
    f = (struct candidates){&alone, all, 0};
    f.n = splits(dev, &alone, &one, all, matmul_heuristic(dev, &alone, all, NAMED));
    fastest(dev, &f, &one, &took);
    pass = pass_bytes(&probe.args);
    separate = pass > 0 ? PASS_MS + 1e3 * pass / PASS_BYTES : 0;
    for (int i = 0; i < a->parts; i++)
        if (a->part[i].k >= DEEP)
            depth += (double)a->part[i].k;
        else
            separate += PASS_MS + 1e3 * (double)(one.m * one.n) * (double)matmul_size(one.out) /
                                      PASS_BYTES;
    if (a->beta != 0)                   /* added in a pass of its own (lora.cu) */
        separate += PASS_MS + 2e3 * (double)(one.m * one.n) * (double)matmul_size(one.out) /
                                  PASS_BYTES;
    separate += (double)took * depth / (double)a->k;
    for (int round = 0; round < ROUNDS; round++)
        joined += (double)time_of(dev, &probe, NULL, (int)(settle / took),
                                  REPEATS + (int)(length / took)) / ROUNDS;
    return joined < separate;
}

bool matmul_search(struct device *dev, const struct matmul_args *a, const struct matmul_call *x,
                   struct matmul_choice *choice)
{
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    struct matmul_call probe;
    struct candidates f = {&probe, all, 0};
    int best = 0;
    float took;

    choice->state = CHOICE_NONE;
    if (a->parts) {
        if (!x->tiles || !may_time(dev))
            return false;
        choice->state = fused_wins(dev, a) ? CHOICE_TILES : CHOICE_NONE;
        return true;
    }
    f.n = splits(dev, x, a, all, matmul_heuristic(dev, x, all, NAMED));
    if (f.n + x->tiles == 0)
        return false;
    if ((f.n + x->tiles > 1 || pass_bytes(a) > 0) && may_time(dev) && trial(dev, &probe, a)) {
        best = fastest(dev, &f, a, &took);
        if (pass_bytes(a) > 0 && better_unfused(dev, a, took))
            return true;
    }
    choice->state = best < f.n ? CHOICE_FOUND : CHOICE_TILES;
    if (best < f.n)
        choice->algo = all[best].algo;
    return true;
}
