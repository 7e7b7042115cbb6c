/*
 * tma - tensor maps, encoded by the driver.
 *
 * The function is looked up in the driver by name, so that the plug-in can be loaded on a machine
 * without a GPU.
 */
#include "trainer/cuda/hopper/tma.cuh"

#include <cudaTypedefs.h>

static PFN_cuTensorMapEncodeTiled_v12000 encoder(void)
{
    static const PFN_cuTensorMapEncodeTiled_v12000 f = [] {
        enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        void *p = NULL;
        cudaError_t rc = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                                          cudaEnableDefault, &found);

        if (rc != cudaSuccess || found != cudaDriverEntryPointSuccess) {
            (void)cudaGetLastError();   /* no launch's */
            p = NULL;
        }
        return (PFN_cuTensorMapEncodeTiled_v12000)p;
    }();

    return f;
}

/* For elements of 16 bits of any type, since no arithmetic is done on them.  The first size is
 * that of a row. */
static bool map_of(CUtensorMap *map, const void *base, const cuuint64_t dims[3],
                   const cuuint64_t strides[2], const cuuint32_t box[3])
{
    const cuuint32_t steps[3] = {1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();

    return encode && cuda_aligned(base, 16) && strides[0] % 16 == 0 && strides[1] % 16 == 0 &&
           encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, (void *)base, dims, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE,
                  box[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                  : box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                 : CU_TENSOR_MAP_SWIZZLE_32B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tma_map(CUtensorMap *map, const void *base, int64_t rows, int64_t row_stride,
             int64_t heads, int64_t head_stride, int64_t dim, int tall, int panel)
{
    const cuuint64_t dims[3] = {(cuuint64_t)dim, (cuuint64_t)heads, (cuuint64_t)rows};
    const cuuint64_t strides[2] = {2 * (cuuint64_t)head_stride, 2 * (cuuint64_t)row_stride};
    const cuuint32_t box[3] = {(cuuint32_t)panel, 1, (cuuint32_t)tall};

    return rows >= 1 && head_stride >= 1 && row_stride >= 1 && tall <= 256 &&
           map_of(map, base, dims, strides, box);
}

bool tma_map_rows(CUtensorMap *map, const void *base, int64_t rows, int64_t row_stride,
                  int64_t matrices, int64_t stride, int64_t dim, int tall)
{
    const cuuint64_t dims[3] = {(cuuint64_t)dim, (cuuint64_t)rows, (cuuint64_t)matrices};
    const cuuint64_t strides[2] = {2 * (cuuint64_t)row_stride, 2 * (cuuint64_t)stride};
    const cuuint32_t box[3] = {64, (cuuint32_t)tall, 1};

    return rows >= 1 && row_stride >= 1 && stride >= 1 && tall <= 256 &&
           map_of(map, base, dims, strides, box);
}
