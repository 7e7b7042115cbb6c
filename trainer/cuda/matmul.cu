/*
 * matmul - see matmul.h.
 *
 * cuBLASLt counts by columns: the product of row-major matrices is asked for transposed, with
 * the factors' places exchanged.  Of a shape seen first, the algorithms its heuristic names are
 * timed on the stream itself: into D, which is written again afterwards, or, where D is also
 * read, into what is free of the workspace, for as many rows as fit there.
 *
 * Split sums go through the workspace in f32 (reduction scheme "compute type"); the scheme in
 * place, whose order depends on time, is never asked for.
 *
 * Source: NVIDIA cuBLAS 13.0, cuBLASLt API.
 */
#include "trainer/cuda/matmul.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/matmul_choice.h"

enum {
    NAMED      = 24,            /* by the heuristic */
    SPLIT_MOST = 4,             /* of those also with split sums */
    CANDIDATES = NAMED + SPLIT_MOST * 5,
    SWEEPS     = 2,             /* of all, two launches each */
    FINALISTS  = 4,
    ROUNDS     = 2,             /* of all finalists, to and fro */
    REPEATS    = 6,             /* launches of one reading, at least */
    LEAST_ROWS = 1024           /* a part of D that still tells */
};

/* Sums at least so long, and D of at most so many elements, are tried in parts. */
#define SPLIT_LEAST 1024
#define SPLIT_TILES ((int64_t)8 * 132 * 128 * 256)

/*
 * How finalists are read, in milliseconds: those of products that take `heavy` and more after
 * `warm` of work, each over `length` behind `settle`.  What counts is the speed that the chip's
 * power sustains, not that of the first milliseconds: small tiles that are the fastest in these
 * draw more and are up to a tenth slower then.  Those of 8 bits are read for a short time: one of
 * them ended in a launch failure when read for long beside other programs (cuBLASLt 13.0).
 */
struct reading { float heavy, warm, settle, length; };

static const struct reading sustained = {0.02f, 100, 16, 32}, brief = {0.04f, 0, 0, 8};

/* What an elementwise pass costs: milliseconds at least, bytes per second. */
#define PASS_MS    0.003
#define PASS_BYTES 3.3e12

struct matmul {
    cublasLtHandle_t      handle;
    struct matmul_choices choices;
    cudaEvent_t           begin, end;
};

/* One product, as cuBLASLt is told it. */
struct call {
    cublasLtMatmulDescOpaque_t   desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    const void                  *pa, *pb, *pc;
    void                        *pd;
    float                        alpha, beta;
    uint64_t                     work;
};

static bool broken(struct device *dev, const struct matmul_args *a, cublasStatus_t rc)
{
    /* What an operation before did, cuBLAS tells as a failure of its own. */
    cudaError_t before = cudaStreamQuery(cuda_of(dev)->stream);

    if (before == cudaErrorNotReady)
        cudaGetLastError();
    else
        cuda_ok(dev, a->op, before);
    if (dev->err.code == 0) {
        dev->err.code = CKPT_EDEVICE;
        dev->err.reason[0] = dev->err.hint[0] = '\0';
        snprintf(dev->err.text, sizeof dev->err.text,
                 "GPU %d, %s: product [%lld, %lld] x [%lld, %lld]: cuBLAS says %s",
                 cuda_of(dev)->index, a->op, (long long)a->m, (long long)a->k, (long long)a->k,
                 (long long)a->n, cublasLtGetStatusString(rc));
    }
    return false;
}

int matmul_open(struct cuda_device *d)
{
    struct matmul_args none = {};
    struct cudaDeviceProp prop;
    cublasStatus_t rc;
    struct matmul *x;

    if (!cuda_ok(&d->dev, "opening", cudaGetDeviceProperties(&prop, d->index)))
        return d->dev.err.code;
    x = d->matmul = (struct matmul *)calloc(1, sizeof *x);
    if (!x || matmul_choices_open(&x->choices, prop.name, cublasLtGetVersion())) {
        cuda_ok(&d->dev, "opening", cudaErrorMemoryAllocation);
        return d->dev.err.code;
    }
    d->dev.untimed = x->choices.path && x->choices.n == 0;
    none.op = "opening";
    rc = cublasLtCreate(&x->handle);
    if (rc != CUBLAS_STATUS_SUCCESS)
        broken(&d->dev, &none, rc);
    cuda_ok(&d->dev, "opening", cudaEventCreate(&x->begin));
    cuda_ok(&d->dev, "opening", cudaEventCreate(&x->end));
    return d->dev.err.code;
}

void matmul_close(struct cuda_device *d)
{
    struct matmul *x = d->matmul;

    if (!x)
        return;
    if (x->handle)
        cublasLtDestroy(x->handle);
    if (x->begin)
        cudaEventDestroy(x->begin);
    if (x->end)
        cudaEventDestroy(x->end);
    matmul_choices_close(&x->choices);
    free(x);
    d->matmul = NULL;
}

static cudaDataType_t type_of(enum ckpt_dtype t)
{
    switch (t) {
    case CKPT_BF16: return CUDA_R_16BF;
    case CKPT_F16: return CUDA_R_16F;
    case CKPT_F8_E4M3: return CUDA_R_8F_E4M3;
    case CKPT_F8_E5M2: return CUDA_R_8F_E5M2;
    default: return CUDA_R_32F;
    }
}

static size_t size_of(enum ckpt_dtype t)
{
    return t == CKPT_F32 ? 4 : t == CKPT_BF16 || t == CKPT_F16 ? 2 : 1;
}

static enum ckpt_dtype type_of_b(const struct matmul_args *a)
{
    return a->scale_b ? a->in_b : a->in;
}

static cublasComputeType_t compute_of(const struct device *dev, const struct matmul_args *a)
{
    bool tf32 = a->in == CKPT_F32 && ((const struct cuda_device *)dev)->tf32;

    return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

static uint32_t epilogue_of(const struct matmul_args *a)
{
    uint32_t bias = a->bias ? CUBLASLT_EPILOGUE_BIAS : 0;

    switch (a->epilogue) {
    case MATMUL_RELU: return CUBLASLT_EPILOGUE_RELU | bias;
    case MATMUL_GELU: return (a->aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU) | bias;
    case MATMUL_DGELU: return CUBLASLT_EPILOGUE_DGELU;
    case MATMUL_DRELU: return CUBLASLT_EPILOGUE_DRELU;
    case MATMUL_BIAS: return CUBLASLT_EPILOGUE_BIAS;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
    }
}

static void layout(cublasLtMatrixLayoutOpaque_t *l, enum ckpt_dtype type, int64_t rows,
                   int64_t cols, int64_t ld, int64_t batch, int64_t stride)
{
    int32_t n = (int32_t)batch;

    cublasLtMatrixLayoutInit(l, type_of(type), (uint64_t)cols, (uint64_t)rows, ld);
    if (batch <= 1)
        return;
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                     sizeof stride);
}

#define SET(what, value)                                                                       \
    cublasLtMatmulDescSetAttribute(&to->desc, CUBLASLT_MATMUL_DESC_##what, &(value), sizeof(value))

static void describe(struct device *dev, struct call *to, const struct matmul_args *a)
{
    int32_t ta = a->b_t ? CUBLAS_OP_T : CUBLAS_OP_N, tb = a->a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(a);
    int32_t type = type_of(a->out);
    int64_t ldc = a->ldc ? a->ldc : a->ldd, aux_ld = a->n;

    cublasLtMatmulDescInit(&to->desc, compute_of(dev, a), CUDA_R_32F);
    SET(TRANSA, ta);
    SET(TRANSB, tb);
    SET(EPILOGUE, epilogue);
    if (a->scale_a) {                   /* its factors are exchanged */
        int8_t fast = a->fast;

        SET(A_SCALE_POINTER, a->scale_b);
        SET(B_SCALE_POINTER, a->scale_a);
        SET(FAST_ACCUM, fast);
    }
    if (a->bias) {
        SET(BIAS_POINTER, a->bias);
        SET(BIAS_DATA_TYPE, type);
    }
    if (a->aux) {
        SET(EPILOGUE_AUX_POINTER, a->aux);
        SET(EPILOGUE_AUX_LD, aux_ld);
        if (a->epilogue != MATMUL_DRELU)
            SET(EPILOGUE_AUX_DATA_TYPE, type);
    }
    layout(&to->a, type_of_b(a), a->b_t ? a->n : a->k, a->b_t ? a->k : a->n, a->ldb, a->batch,
           a->stride_b);
    layout(&to->b, a->in, a->a_t ? a->k : a->m, a->a_t ? a->m : a->k, a->lda, a->batch,
           a->stride_a);
    layout(&to->c, a->out, a->m, a->n, ldc, a->batch, a->stride_d);
    layout(&to->d, a->out, a->m, a->n, a->ldd, a->batch, a->stride_d);
    to->pa = a->b;
    to->pb = a->a;
    to->pc = a->c ? a->c : a->d;
    to->pd = a->d;
    to->alpha = a->alpha;
    to->beta = a->beta;
    to->work = dev->work && dev->work_bytes >= MATMUL_WORK ? MATMUL_WORK : 0;
}

static cublasStatus_t launch(struct device *dev, const struct call *x,
                             const cublasLtMatmulAlgo_t *algo)
{
    return cublasLtMatmul(cuda_of(dev)->matmul->handle, (cublasLtMatmulDesc_t)&x->desc, &x->alpha,
                          x->pa, (cublasLtMatrixLayout_t)&x->a, x->pb,
                          (cublasLtMatrixLayout_t)&x->b, &x->beta, x->pc,
                          (cublasLtMatrixLayout_t)&x->c, x->pd, (cublasLtMatrixLayout_t)&x->d,
                          algo, dev->work, x->work, cuda_of(dev)->stream);
}

/* The largest power of two, 16 at most, that divides both. */
static uint32_t alignment(const void *p, int64_t ld, enum ckpt_dtype type)
{
    uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)ld * size_of(type) | 16;

    return (uint32_t)(bits & (~bits + 1));
}

static uint32_t pointer_alignment(const void *p) { return alignment(p, 0, CKPT_F32); }

/* The first `most` algorithms the heuristic names, the likely best first. */
static int ask(struct device *dev, const struct call *x, cublasLtMatmulHeuristicResult_t *to,
               int most)
{
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t aa = pointer_alignment(x->pa), ab = pointer_alignment(x->pb);
    uint32_t ac = pointer_alignment(x->pc), ad = pointer_alignment(x->pd);
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
static bool eight(const struct matmul_args *a) { return size_of(a->in) == 1; }

/* Adds to n algorithms the first of them with the sum over k in parts: where D is small its tiles
 * alone leave multiprocessors idle.  (Of 8 bits only what cuBLASLt names.)  Gives how many there
 * are now. */
static int splits(struct device *dev, const struct call *x, const struct matmul_args *a,
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

/* Milliseconds of one of so many launches, behind others; a large number where it cannot run. */
static float time_of(struct device *dev, const struct call *x, const cublasLtMatmulAlgo_t *algo,
                     int before, int repeats)
{
    struct cuda_device *d = cuda_of(dev);
    float ms = 1e30f;

    for (int i = 0; i < before + repeats; i++) {
        if (i == before)
            cudaEventRecord(d->matmul->begin, d->stream);
        if (launch(dev, x, algo) != CUBLAS_STATUS_SUCCESS)
            return 1e30f;
    }
    cudaEventRecord(d->matmul->end, d->stream);
    if (cudaEventSynchronize(d->matmul->end) != cudaSuccess ||
        cudaEventElapsedTime(&ms, d->matmul->begin, d->matmul->end) != cudaSuccess)
        return 1e30f;
    return ms / (float)repeats;
}

/* The numbers of those that are the fastest in two launches, the heuristic's first always among
 * them; ms their times.  Gives how many. */
static int finalists(struct device *dev, const struct call *x,
                     const cublasLtMatmulHeuristicResult_t *all, int n, int to[FINALISTS],
                     float ms[CANDIDATES])
{
    int most = n < FINALISTS ? n : FINALISTS, order[CANDIDATES] = {};
    bool first = false;

    for (int i = 0; i < n; i++)
        ms[i] = time_of(dev, x, &all[i].algo, 1, 2);    /* warm, and loads the code */
    for (int sweep = 1; sweep < SWEEPS; sweep++)
        for (int i = 0; i < n; i++)
            if (ms[i] < 1e29f) {
                float now = time_of(dev, x, &all[i].algo, 0, 2);

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

/* The fastest of them, and its time.  What the heuristic names first must be beaten by one part
 * in 100. */
static int fastest(struct device *dev, const struct call *x,
                   const cublasLtMatmulHeuristicResult_t *all, int n,
                   const struct matmul_args *a, float *took)
{
    const struct reading &how = eight(a) ? brief : sustained;
    float ms[CANDIDATES], sum[FINALISTS] = {};
    int at[FINALISTS] = {}, most = finalists(dev, x, all, n, at, ms), won = 0;
    bool heavy = !a->quick && n > 0 && ms[at[0]] >= how.heavy;

    if (heavy && most > 1 && how.warm > 0)
        time_of(dev, x, &all[at[0]].algo, 0, 1 + (int)(how.warm / ms[at[0]]));
    for (int round = 0; round < ROUNDS; round++)
        for (int j = 0; j < most; j++) {
            int i = round % 2 ? most - 1 - j : j, before = 0, repeats = REPEATS;

            if (heavy && most > 1) {
                before = (int)(how.settle / ms[at[i]]);
                repeats = 1 + (int)(how.length / ms[at[i]]);
            }
            sum[i] += time_of(dev, x, &all[at[i]].algo, before, repeats);
        }
    for (int i = 0; i < most; i++)
        if (sum[i] * (at[i] == 0 ? 0.99f : 1.0f) < sum[won] * (at[won] == 0 ? 0.99f : 1.0f))
            won = i;
    *took = sum[won] / ROUNDS;
    return at[won];
}

/* What may be written while timing: true, and a call whose D is that. */
static bool trial(struct device *dev, struct call *to, const struct matmul_args *a)
{
    struct matmul_args t = *a;
    uint64_t begin = MATMUL_WORK + cuda_part(a->busy), row = (uint64_t)a->ldd * size_of(a->out);
    uint64_t tail = cuda_of(dev)->tail, end = dev->work_bytes > tail ? dev->work_bytes - tail : 0;
    uint64_t unused = dev->work && end > begin ? end - begin : 0;

    if (a->beta != 0 && (!a->c || a->c == a->d)) {
        int64_t rows = (int64_t)(unused / row);

        if (rows < a->m && (rows < LEAST_ROWS || a->batch > 1))
            return false;
        if (a->batch > 1 && (uint64_t)(a->batch * a->stride_d) * size_of(a->out) > unused)
            return false;
        t.m = rows < a->m ? rows / 256 * 256 : a->m;
        t.c = a->d;
        t.d = (unsigned char *)dev->work + begin;
    }
    describe(dev, to, &t);
    return true;
}

/* Up to three significant bits more than the first: 8 sizes from one power of two to the next. */
static int64_t rounded(int64_t x)
{
    int64_t step = 1;

    while (x / step >= 16)
        step *= 2;
    return (x + step - 1) / step * step;
}

static struct matmul_key key_of(const struct device *dev, const struct matmul_args *a,
                                const struct call *x)
{
    struct matmul_key k = {};
    const struct {
        const void *p;
        int64_t ld;
        enum ckpt_dtype type;
    } all[] = {{a->a, a->lda, a->in}, {a->b, a->ldb, type_of_b(a)}, {x->pc, a->ldc, a->out},
               {a->d, a->ldd, a->out}, {a->bias, 0, a->out},
               {a->aux, a->n, a->out}};

    k.at[KEY_M] = rounded(a->m);
    k.at[KEY_N] = rounded(a->n);
    k.at[KEY_K] = rounded(a->k);
    k.at[KEY_BATCH] = a->batch;
    k.at[KEY_IN] = a->in | type_of_b(a) << 8;
    k.at[KEY_OUT] = a->out;
    k.at[KEY_COMPUTE] = compute_of(dev, a) | a->fast << 16;
    k.at[KEY_FLAGS] = a->a_t | a->b_t << 1 | (a->beta != 0) << 2 | (x->pc == x->pd) << 3 |
                      a->alone << 4 | a->quick << 5;
    k.at[KEY_EPILOGUE] = epilogue_of(a);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        k.at[KEY_ALIGN] = k.at[KEY_ALIGN] * 32 + alignment(all[i].p, all[i].ld, all[i].type);
    k.at[KEY_WORK] = x->work != 0;
    return k;
}

/* Timing waits, which a stream being recorded cannot; a choice that cannot be kept would differ
 * between runs. */
static bool may_time(struct device *dev)
{
    return cuda_of(dev)->matmul->choices.path && !cuda_recording(dev);
}

/* Bytes that a pass of its own moves for what the epilogue does at once; 0: there is none. */
static double pass_bytes(const struct matmul_args *a)
{
    switch (a->epilogue) {
    case MATMUL_DGELU: return (a->alone ? 3.0 : 2.0) * (double)a->m * (double)a->n *
                              (double)size_of(a->out);
    case MATMUL_DRELU:                  /* and a pass that makes its bits */
    case MATMUL_RELU:
    case MATMUL_GELU: return 2.0 * (double)a->m * (double)a->n * (double)size_of(a->out);
    default: return 0;
    }
}

/* Whether the product with at most a bias, and such a pass, take less than `with` ms. */
static bool better_apart(struct device *dev, const struct matmul_args *a, float with)
{
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    double pass = PASS_MS + 1e3 * pass_bytes(a) / PASS_BYTES;
    struct matmul_args plain = *a;
    struct call probe;
    float without;
    int n;

    plain.epilogue = a->bias ? MATMUL_BIAS : MATMUL_PLAIN;
    plain.aux = NULL;
    if (!trial(dev, &probe, &plain))
        return false;
    n = splits(dev, &probe, &plain, all, ask(dev, &probe, all, NAMED));
    if (n == 0)
        return false;
    fastest(dev, &probe, all, n, &plain, &without);
    return (double)without + pass < (double)with;
}

static const struct matmul_choice *choose(struct device *dev, const struct matmul_args *a,
                                          const struct call *x, const struct matmul_key *key)
{
    struct matmul *mm = cuda_of(dev)->matmul;
    const struct matmul_choice *like = a->quick ? matmul_choices_like(&mm->choices, key) : NULL;
    cublasLtMatmulHeuristicResult_t all[CANDIDATES];
    struct matmul_choice choice = {};
    struct call probe;
    int n, best = 0;
    float took;

    choice.key = *key;
    if (like) {
        choice.state = like->state;
        choice.algo = like->algo;
        return matmul_choices_add(&mm->choices, &choice, !cuda_recording(dev));
    }
    n = splits(dev, x, a, all, ask(dev, x, all, NAMED));
    choice.state = n ? CHOICE_FOUND : CHOICE_NONE;
    if ((n > 1 || (n && pass_bytes(a) > 0)) && may_time(dev) && trial(dev, &probe, a)) {
        best = fastest(dev, &probe, all, n, a, &took);
        if (pass_bytes(a) > 0 && better_apart(dev, a, took))
            choice.state = CHOICE_NONE;
    }
    if (n)
        choice.algo = all[best].algo;
    /* What was not timed is kept too: the heuristic goes by exact sizes, and a run that is resumed
     * may meet another of the key's first. */
    return matmul_choices_add(&mm->choices, &choice, n > 0 && !cuda_recording(dev));
}

/* One of the key's rounded sizes may suit an algorithm where another does not. */
static cublasStatus_t launch_other(struct device *dev, const struct call *x)
{
    cublasLtMatmulHeuristicResult_t first;

    return ask(dev, x, &first, 1) ? launch(dev, x, &first.algo) : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The choice for the product, made now where there is none, and its call; NULL: no memory. */
static const struct matmul_choice *choice_of(struct device *dev, const struct matmul_args *a,
                                             struct call *x)
{
    const struct matmul_choice *choice;
    struct matmul_key key;

    describe(dev, x, a);
    key = key_of(dev, a, x);
    choice = matmul_choices_find(&cuda_of(dev)->matmul->choices, &key);
    if (!choice)
        choice = choose(dev, a, x, &key);
    if (!choice)
        cuda_ok(dev, a->op, cudaErrorMemoryAllocation);
    return choice;
}

bool matmul_able(struct device *dev, const struct matmul_args *a)
{
    const struct matmul_choice *choice;
    struct call x;

    if (dev->err.code || a->m <= 0 || a->n <= 0)
        return true;
    choice = choice_of(dev, a, &x);
    return choice && choice->state == CHOICE_FOUND;
}

bool matmul(struct device *dev, const struct matmul_args *a)
{
    const struct matmul_choice *choice;
    cublasStatus_t rc = CUBLAS_STATUS_NOT_SUPPORTED;
    struct call x;

    if (dev->err.code || a->m <= 0 || a->n <= 0)
        return true;
    choice = choice_of(dev, a, &x);
    if (!choice)
        return true;
    if (choice->state == CHOICE_FOUND)
        rc = launch(dev, &x, &choice->algo);
    if ((rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE) &&
        (choice->state == CHOICE_FOUND || a->epilogue == MATMUL_PLAIN))
        rc = launch_other(dev, &x);
    if (rc == CUBLAS_STATUS_SUCCESS)
        return true;
    if (a->epilogue != MATMUL_PLAIN &&
        (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE))
        return false;
    return !broken(dev, a, rc);
}
