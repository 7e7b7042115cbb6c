/*
 * head - the output projection and cross-entropy, a chunk of rows at a time.
 *
 * A chunk's logits are in the workspace, in the device's type (f32 where no gradient is
 * wanted), with rows padded to 16 bytes; head_rows.cu replaces them by their gradient, softmax
 * - onehot, in f16 times 2^14 so that small probabilities stay normal numbers. scale and mul
 * are factors of the two products that follow.
 */
#include "trainer/cuda/matmul/matmul.h"

#include "trainer/cuda/matmul/gemv.h"
#include "trainer/cuda/head.h"

enum {
    CHUNK_STEP  = 128,          /* rows of a chunk are a multiple */
    TRIAL_BYTES = 64 << 20
};

#define TRAIN_BYTES ((uint64_t)2 << 30)
#define OTHER_BYTES ((uint64_t)512 << 20)
static int64_t padded(int64_t V) { return (V + 7) / 8 * 8; }

/* Rows of a chunk at most; a multiple of CHUNK_STEP. */
static int64_t most_rows(int64_t V, uint64_t size, bool train)
{
    int64_t rows = (int64_t)((train ? TRAIN_BYTES : OTHER_BYTES) / ((uint64_t)padded(V) * size));

    return rows < CHUNK_STEP ? (int64_t)CHUNK_STEP : rows / CHUNK_STEP * CHUNK_STEP;
}

static int64_t stepped(int64_t n) { return (n + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP; }

/* n rows in chunks of one size. */
static int64_t chunk_rows(int64_t n, int64_t V, uint64_t size, bool train)
{
    return stepped(cuda_blocks(n, cuda_blocks(n, most_rows(V, size, train))));
}

static uint64_t chunk_bytes(int64_t rows, int64_t V, uint64_t size)
{
    return cuda_align((uint64_t)rows * (uint64_t)padded(V) * size);
}

static uint64_t most_bytes(int64_t n, int64_t V, uint64_t size, bool train)
{
    int64_t rows = most_rows(V, size, train);

    return chunk_bytes(stepped(n) < rows ? stepped(n) : rows, V, size);
}

uint64_t cuda_head_work(const struct device *dev, const struct op_limits *l)
{
    uint64_t other = most_bytes(l->n_rows, l->vocab, 4, false), train = 0;

    if (l->train)
        train = TRIAL_BYTES + most_bytes(l->n_rows, l->vocab, cuda_size(dev), true);
    return MATMUL_WORK + (train > other ? train : other);
}

static void logits_of(struct device *dev, const struct op_head *a, void *z, enum ckpt_dtype type,
                      const void *x, int64_t n, uint64_t busy)
{
    struct matmul_args p = matmul_of(dev, "head_loss", n, a->vocab, a->dim, busy);

    p.lda = p.ldb = a->dim;
    p.a = x;
    p.b = a->w;
    p.b_t = true;
    p.d = z;
    p.ldd = padded(a->vocab);
    p.out = type;
    matmul(dev, &p);
}

/* dx and dW from the gradient in z. */
static void back(struct device *dev, const struct op_head *a, const void *z, const void *x,
                 void *dx, int64_t n, float by, bool add, uint64_t busy)
{
    struct matmul_args p = matmul_of(dev, "head_loss", a->vocab, a->dim, n, busy);

    p.a = z;
    p.lda = padded(a->vocab);
    p.alpha = by;
    p.ldb = p.ldd = a->dim;
    if (a->dw) {
        p.a_t = true;
        p.b = x;
        p.d = a->dw;
        p.out = CKPT_F32;
        p.beta = add ? 1.0f : 0.0f;
        matmul(dev, &p);
    }
    p.m = n;
    p.k = a->vocab;
    p.a_t = false;
    p.b = a->w;
    p.d = dx;
    p.out = dev->act;
    p.beta = 0;
    matmul(dev, &p);
}

void cuda_head_loss(struct device *dev, const struct op_head *a)
{
    enum ckpt_dtype type = a->dx ? dev->act : CKPT_F32;
    uint64_t size = type == CKPT_F32 ? 4 : 2, item = cuda_size(dev), bytes;
    float factor = !a->dx ? 0.0f : type == CKPT_F16 ? 16384.0f : 1.0f;
    int64_t rows;
    void *z;

    if (a->n == 0 && a->fresh && a->dw)
        dev->ops->zero(dev, a->dw, (size_t)(a->vocab * a->dim) * sizeof(float));
    if (dev->err.code || a->n == 0)
        return;
    rows = chunk_rows(a->n, a->vocab, size, a->dx != NULL);
    bytes = chunk_bytes(rows, a->vocab, size);
    z = matmul_work(dev, "head_loss", bytes);
    if (!z)
        return;
    for (int64_t first = 0; first < a->n; first += rows) {
        int64_t n = a->n - first < rows ? a->n - first : rows;
        uint64_t at = (uint64_t)(first * a->dim) * item;
        const void *x = (const unsigned char *)a->x + at;
        struct head_rows rows_of = {a->nll + first, a->targets + first, padded(a->vocab),
                                    (int)a->vocab, a->mul, factor,
                                    a->smoothing, a->z_loss};

        logits_of(dev, a, z, type, x, n, bytes);
        head_softmax(dev, z, type, n, &rows_of);
        if (a->dx)
            back(dev, a, z, x, (unsigned char *)a->dx + at, n, a->scale * a->mul / factor,
                 first > 0 || !a->fresh, bytes);
    }
}

void cuda_head_logits(struct device *dev, float *logits, const void *x, const void *w, int64_t n,
                      int64_t dim, int64_t vocab, float mul)
{
    struct matmul_args p = matmul_of(dev, "head_logits", n, vocab, dim, 0);
    struct gemv g = {};

    if (dev->err.code || n == 0)
        return;
    g.op = "head_logits";
    g.out = logits;
    g.x = x;
    g.w = w;
    g.n = n;
    g.n_in = dim;
    g.n_out = g.out_ld = vocab;
    g.alpha = mul;
    g.wide = true;
    if (gemv(dev, &g))
        return;
    p.ldd = vocab;
    p.lda = p.ldb = dim;
    p.a = x;
    p.b = w;
    p.b_t = true;
    p.d = logits;
    p.out = CKPT_F32;
    p.alpha = mul;
    matmul(dev, &p);
}
