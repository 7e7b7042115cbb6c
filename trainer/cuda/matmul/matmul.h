/*
 * matmul - every dense product of the backend, by cuBLASLt:
 *   D = epilogue(alpha op(A) op(B) + beta C)
 *
 * Matrices are row-major.  Sums are f32; f32 factors are exact unless the device says tf32.  The
 * algorithm for a shape is found by timing when the shape is first seen, and stored in a file
 * (matmul/choice.h), so that later products of that shape, in this run and the next, give the
 * same bits; algorithms without a fixed order of sums are never used.
 *
 * The workspace of every operation that multiplies begins with this room's part; the operation's
 * own follows at MATMUL_WORK bytes.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_MATMUL_H
#define CKPT_TRAINER_CUDA_MATMUL_MATMUL_H

#include "trainer/cuda/cuda.h"

#define MATMUL_WORK ((uint64_t)64 << 20)

/* Applied to a sum before it is stored; p is the sum with the bias.
 *   BIAS    p                               RELU   max(0, p)
 *   GELU    its tanh form of p; aux, where given, <- p
 *   DGELU   the sum times the slope of GELU at aux
 *   DRELU   the sum where aux has a bit, else 0: bit j % 8 of byte j / 8 of a row, n a multiple
 *           of 128
 * Each of RELU and GELU also without bias. */
enum matmul_epilogue {
    MATMUL_PLAIN, MATMUL_BIAS, MATMUL_RELU, MATMUL_GELU, MATMUL_DGELU, MATMUL_DRELU
};

/* A further product of the same m and n, laid out likewise, whose sums join the first's. */
struct matmul_part {
    const void *a, *b;
    int64_t     lda, ldb, k;
};

struct matmul_args {
    const char     *op;             /* for errors */
    int64_t         m, n, k;        /* D [m, n] */
    const void     *a, *b;          /* A [m, k], or [k, m] with a_t; B [k, n], or [n, k] with b_t */
    const void     *c;              /* read with beta only; NULL: d */
    void           *d;
    int64_t         lda, ldb, ldc, ldd;     /* elements from row to row; ldc 0: ldd */
    bool            a_t, b_t;
    enum ckpt_dtype in, out;        /* of A and B; of C and D */
    enum ckpt_dtype in_b;           /* of B when there are scales */
    const float    *scale_a, *scale_b;      /* inverse scales of 8-bit factors, both on the
                                               device, 16-byte aligned; NULL: factors are wider.
                                               With scales, k is innermost in both, a multiple of
                                               16 */
    bool            fast;           /* sums may keep 14 bits between promotions to f32 */
    float           alpha, beta;
    int64_t         batch, stride_a, stride_b, stride_d;    /* batch 0: one */
    enum matmul_epilogue epilogue;
    const void     *bias;           /* [n] of out's type, or NULL */
    void           *aux;            /* [m, n] of out's type, or bits; rows dense */
    bool            quick;          /* the shape varies from step to step: time briefly, and reuse
                                       the choice made for a similar size */
    bool            alone;          /* DGELU: no pass over aux follows the product */
    const struct matmul_part *part; /* [parts], at most 3: all in one kernel; if that is
                                       impossible, matmul gives false */
    int             parts;
    uint64_t        busy;           /* bytes of the workspace after MATMUL_WORK that are in use */
};

/* A product of those sizes, of the device's type; the caller adds the matrices. */
static inline struct matmul_args matmul_of(const struct device *dev, const char *op, int64_t m,
                                           int64_t n, int64_t k, uint64_t busy)
{
    struct matmul_args p = {};

    p.op = op;
    p.m = m;
    p.n = n;
    p.k = k;
    p.in = p.out = dev->act;
    p.alpha = 1.0f;
    p.busy = busy;
    p.quick = dev->varies;
    return p;
}

/* The state of a device.  False: the device is marked. */
bool matmul_open(struct cuda_device *d);
void matmul_close(struct cuda_device *d);

/*
 * Queue the product.  False: cuBLASLt cannot compute it with this epilogue, or a separate pass
 * is faster, and nothing was queued; failure of a plain product marks the device. m or n 0:
 * nothing to do; k is at least 1.
 */
bool matmul(struct device *dev, const struct matmul_args *a);
/* What matmul would return; queues nothing but the timing of a new shape. */
bool matmul_supported(struct device *dev, const struct matmul_args *a);

/* The `bytes` of workspace after matmul's part; NULL as cuda_work. */
static inline void *matmul_work(struct device *dev, const char *op, uint64_t bytes)
{
    unsigned char *work = (unsigned char *)cuda_work(dev, op, MATMUL_WORK + bytes);

    return work ? work + MATMUL_WORK : NULL;
}

#endif
