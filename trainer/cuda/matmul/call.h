/*
 * matmul/call - shared by the rooms of matmul: a product as cuBLASLt describes it, and the
 * search for the fastest algorithm.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_CALL_H
#define CKPT_TRAINER_CUDA_MATMUL_CALL_H

#include "trainer/cuda/matmul/matmul.h"
#include "trainer/cuda/matmul/choice.h"

struct matmul {
    cublasLtHandle_t      handle;
    struct matmul_choices choices;
    cudaEvent_t           begin, end;
    double               *checksum;     /* on the device, for matmul_probe */
};

/* One product. */
struct matmul_call {
    cublasLtMatmulDescOpaque_t   desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, d;
    const void                  *pa, *pb, *pc;
    void                        *pd;
    float                        alpha, beta;
    uint64_t                     work;
    struct matmul_args           args;
    bool                         tiles;     /* matmul_tiles can do it */
};

/* Bytes of an element. */
static inline size_t matmul_size(enum ckpt_dtype t)
{
    return t == CKPT_F32 ? 4 : t == CKPT_BF16 || t == CKPT_F16 ? 2 : 1;
}

/* The largest power of two, 16 at most, that divides both. */
static inline uint32_t matmul_alignment(const void *p, int64_t ld, enum ckpt_dtype type)
{
    uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)ld * matmul_size(type) | 16;

    return (uint32_t)(bits & (~bits + 1));
}

/* matmul.cu */
void matmul_describe(struct device *dev, struct matmul_call *to, const struct matmul_args *a);
/* algo NULL: use matmul_tiles.  CUBLAS_STATUS_NOT_SUPPORTED also where an algorithm would ignore
 * part of k. */
cublasStatus_t matmul_launch(struct device *dev, const struct matmul_call *x,
                             const cublasLtMatmulAlgo_t *algo);

/* matmul/search.cu */
/* The first `most` algorithms that the heuristic names, the likely best first; returns their
 * number. */
int matmul_heuristic(struct device *dev, const struct matmul_call *x,
                     cublasLtMatmulHeuristicResult_t *to, int most);
/* The choice's state and algorithm for the product.  False: nothing can compute it. */
bool matmul_search(struct device *dev, const struct matmul_args *a, const struct matmul_call *x,
                   struct matmul_choice *choice);

/* matmul/probe.cu: checksums of D that distinguish a right result from a wrong one. */
enum { CHECKSUM_SIGNS = 8 };

struct checksum { double sum[CHECKSUM_SIGNS + 1]; };

/* Checksum of that algorithm's result, computed with garbage in the workspace.  False: it did
 * not run. */
bool matmul_probe(struct device *dev, const struct matmul_call *x,
                  const cublasLtMatmulAlgo_t *algo, struct checksum *to);
/* Whether y equals x up to rounding; fast: sums keep 14 bits. */
bool matmul_checksum_close(const struct checksum *x, const struct checksum *y, bool fast);

/*
 * matmul/tiles.cu: products of 16 bits on Hopper by a kernel of our own (tiles.cuh), with all
 * epilogues but that of RELU with aux.
 */
bool matmul_tiles_supported(const struct device *dev, const struct matmul_args *a);
void matmul_tiles(struct device *dev, const struct matmul_args *a);

#endif
