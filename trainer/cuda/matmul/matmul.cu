/*
 * matmul - see matmul.h.
 *
 * cuBLASLt is column-major: the product of row-major matrices is computed as its transpose,
 * with the factors exchanged.
 *
 * Split sums go through the workspace in f32 (reduction scheme "compute type"); the scheme in
 * place, whose order depends on timing, is never used.
 *
 * Source: NVIDIA cuBLAS 13.0, cuBLASLt API.
 */
#include "trainer/cuda/matmul/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool broken(struct device *dev, const struct matmul_args *a, cublasStatus_t rc)
{
    /* cuBLAS reports the failure of an earlier operation as its own. */
    cudaError_t before = cudaStreamQuery(cuda_of(dev)->stream);

    if (before == cudaErrorNotReady)
        cudaGetLastError();
    else
        cuda_ok(dev, a->op, before);
    return cuda_fail(dev, CKPT_EDEVICE,
                     "GPU %d, %s: product [%lld, %lld] x [%lld, %lld]: cuBLAS says %s",
                     cuda_of(dev)->index, a->op, (long long)a->m, (long long)a->k, (long long)a->k,
                     (long long)a->n, cublasLtGetStatusString(rc));
}

bool matmul_open(struct cuda_device *d)
{
    struct matmul_args none = {};
    struct cudaDeviceProp prop;
    cublasStatus_t rc;
    struct matmul *x;

    if (!cuda_ok(&d->dev, "opening", cudaGetDeviceProperties(&prop, d->index)))
        return false;
    x = d->matmul = (struct matmul *)calloc(1, sizeof *x);
    if (!x || matmul_choices_open(&x->choices, prop.name, cublasLtGetVersion()))
        return cuda_ok(&d->dev, "opening", cudaErrorMemoryAllocation);
    d->dev.untimed = x->choices.path && x->choices.n == 0;
    none.op = "opening";
    rc = cublasLtCreate(&x->handle);
    if (rc != CUBLAS_STATUS_SUCCESS)
        broken(&d->dev, &none, rc);
    cuda_ok(&d->dev, "opening", cudaEventCreate(&x->begin));
    cuda_ok(&d->dev, "opening", cudaEventCreate(&x->end));
    return cuda_ok(&d->dev, "opening",
                   cudaMalloc((void **)&x->checksum, sizeof(struct checksum)));
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
    cudaFree(x->checksum);
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

void matmul_describe(struct device *dev, struct matmul_call *to, const struct matmul_args *a)
{
    int32_t ta = a->b_t ? CUBLAS_OP_T : CUBLAS_OP_N, tb = a->a_t ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(a);
    int32_t type = type_of(a->out);
    int64_t ldc = a->ldc ? a->ldc : a->ldd, aux_ld = a->n;

    cublasLtMatmulDescInit(&to->desc, compute_of(dev, a), CUDA_R_32F);
    SET(TRANSA, ta);
    SET(TRANSB, tb);
    SET(EPILOGUE, epilogue);
    if (a->scale_a) {                   /* the factors are exchanged */
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
    to->args = *a;
    to->tiles = matmul_tiles_supported(dev, a);
}

/* Multiply with that algorithm, unchanged. */
static cublasStatus_t multiply(struct device *dev, const struct matmul_call *x,
                               const cublasLtMatmulAlgo_t *algo)
{
    return cublasLtMatmul(cuda_of(dev)->matmul->handle, (cublasLtMatmulDesc_t)&x->desc, &x->alpha,
                          x->pa, (cublasLtMatrixLayout_t)&x->a, x->pb,
                          (cublasLtMatrixLayout_t)&x->b, &x->beta, x->pc,
                          (cublasLtMatrixLayout_t)&x->c, x->pd, (cublasLtMatrixLayout_t)&x->d,
                          algo, dev->work, x->work, cuda_of(dev)->stream);
}

/*
 * Whether the parts of a split algorithm cover all of k. cuBLASLt 13.0 (its algorithm 66, on
 * Hopper) makes each part k / parts long, rounded down, then up to whole steps of 64: if that is
 * a multiple of 64 already, the remainder of the division is ignored, for example 1 row of 1025
 * in two parts.  An algorithm timed at one k serves others near it, so each launch checks. (Other
 * algorithms have numbers of parts above k, which are a maximum.)
 */
static bool sums_all(const cublasLtMatmulAlgo_t *algo, int64_t k)
{
    const int64_t step = 16;            /* others may have shorter ones */
    int32_t parts = 1;
    size_t written;

    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                         sizeof parts, &written);
    return parts <= 1 || k < parts || k % parts == 0 || k / parts % step != 0;
}

cublasStatus_t matmul_launch(struct device *dev, const struct matmul_call *x,
                             const cublasLtMatmulAlgo_t *algo)
{
    if (algo)
        return sums_all(algo, x->args.k) ? multiply(dev, x, algo) : CUBLAS_STATUS_NOT_SUPPORTED;
    if (!x->tiles)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    matmul_tiles(dev, &x->args);
    return CUBLAS_STATUS_SUCCESS;
}

/* Round up to three significant bits after the first: 8 sizes from one power of two to the next. */
static int64_t rounded(int64_t x)
{
    int64_t step = 1;

    while (x / step >= 16)
        step *= 2;
    return (x + step - 1) / step * step;
}

static struct matmul_key key_of(const struct device *dev, const struct matmul_args *a,
                                const struct matmul_call *x)
{
    struct matmul_key k = {};
    int64_t depth = a->k;
    const struct {
        const void *p;
        int64_t ld;
        enum ckpt_dtype type;
    } all[] = {{a->a, a->lda, a->in}, {a->b, a->ldb, type_of_b(a)}, {x->pc, a->ldc, a->out},
               {a->d, a->ldd, a->out}, {a->bias, 0, a->out},
               {a->aux, a->n, a->out}};

    for (int i = 0; i < a->parts; i++)
        depth += a->part[i].k;
    k.at[KEY_M] = rounded(a->m);
    k.at[KEY_N] = rounded(a->n);
    k.at[KEY_K] = rounded(depth);
    k.at[KEY_BATCH] = a->batch;
    k.at[KEY_IN] = a->in | type_of_b(a) << 8;
    k.at[KEY_OUT] = a->out;
    k.at[KEY_COMPUTE] = compute_of(dev, a) | a->fast << 16;
    k.at[KEY_FLAGS] = a->a_t | a->b_t << 1 | (a->beta != 0) << 2 | (x->pc == x->pd) << 3 |
                      a->alone << 4 | a->quick << 5 | a->parts << 6;
    k.at[KEY_EPILOGUE] = epilogue_of(a);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        k.at[KEY_ALIGN] = k.at[KEY_ALIGN] * 32 + matmul_alignment(all[i].p, all[i].ld, all[i].type);
    k.at[KEY_WORK] = x->work != 0;
    return k;
}

/* The choice for that product from now on; NULL: out of memory. */
static const struct matmul_choice *choose(struct device *dev, const struct matmul_args *a,
                                          const struct matmul_call *x,
                                          const struct matmul_key *key)
{
    struct matmul_choices *known = &cuda_of(dev)->matmul->choices;
    const struct matmul_choice *like = a->quick ? matmul_choices_like(known, key) : NULL;
    struct matmul_choice choice = {};
    bool found = like != NULL;

    if (like)
        choice = *like;
    else
        found = matmul_search(dev, a, x, &choice);
    choice.key = *key;
    choice.kept = false;
    /* A choice that was not timed is stored too: the heuristic depends on exact sizes, and a
     * resumed run may first meet another size with the same key. */
    return matmul_choices_add(known, &choice, found && !cuda_graph_capturing(dev));
}

/* An algorithm may support one of the key's rounded sizes and not another. */
static cublasStatus_t launch_other(struct device *dev, const struct matmul_call *x)
{
    cublasLtMatmulHeuristicResult_t first;

    return matmul_heuristic(dev, x, &first, 1) ? multiply(dev, x, &first.algo)
                                         : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* The choice for the product, searched now if there is none, and its call; NULL: out of memory. */
static const struct matmul_choice *choice_of(struct device *dev, const struct matmul_args *a,
                                             struct matmul_call *x)
{
    const struct matmul_choice *choice;
    struct matmul_key key;

    matmul_describe(dev, x, a);
    key = key_of(dev, a, x);
    choice = matmul_choices_find(&cuda_of(dev)->matmul->choices, &key);
    if (!choice)
        choice = choose(dev, a, x, &key);
    if (!choice)
        cuda_ok(dev, a->op, cudaErrorMemoryAllocation);
    return choice;
}

bool matmul_supported(struct device *dev, const struct matmul_args *a)
{
    const struct matmul_choice *choice;
    struct matmul_call x;

    if (dev->err.code || a->m <= 0 || a->n <= 0)
        return true;
    choice = choice_of(dev, a, &x);
    return choice && choice->state != CHOICE_NONE;
}

bool matmul(struct device *dev, const struct matmul_args *a)
{
    const struct matmul_choice *choice;
    cublasStatus_t rc = CUBLAS_STATUS_NOT_SUPPORTED;
    struct matmul_call x;

    if (dev->err.code || a->m <= 0 || a->n <= 0)
        return true;
    choice = choice_of(dev, a, &x);
    if (!choice)
        return true;
    if (a->parts)
        return choice->state == CHOICE_TILES &&
               matmul_launch(dev, &x, NULL) == CUBLAS_STATUS_SUCCESS;
    if (choice->state != CHOICE_NONE)
        rc = matmul_launch(dev, &x, choice->state == CHOICE_TILES ? NULL : &choice->algo);
    if ((rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE) &&
        (choice->state != CHOICE_NONE || a->epilogue == MATMUL_PLAIN))
        rc = launch_other(dev, &x);
    if (rc == CUBLAS_STATUS_SUCCESS)
        return true;
    if (a->epilogue != MATMUL_PLAIN &&
        (rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE))
        return false;
    return !broken(dev, a, rc);
}
