/*
 * cast - arrays from one type to another; dropout and jitter of an activation in place.
 *
 * A thread converts eight elements, 16 bytes of the narrower type at once where both arrays are
 * aligned; between the two 16-bit types through f32, which holds either exactly.
 */
#include "trainer/cuda/cuda.h"

namespace {

const int block = 256;

/* N elements moved as 16 bytes, or in one access if they are fewer. */
template <typename T, int N> struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) piece {
    T at[N];
};

template <typename To, typename From>
__global__ void __launch_bounds__(block) convert(To *to, const From *from, int64_t n, bool whole)
{
    int64_t i = ((int64_t)blockIdx.x * block + threadIdx.x) * 8;

    if (whole && i + 8 <= n) {
        piece<From, 8> in = *reinterpret_cast<const piece<From, 8> *>(from + i);
        piece<To, 8> out;

#pragma unroll
        for (int k = 0; k < 8; k++)
            out.at[k] = cuda_from_f32<To>(cuda_to_f32(in.at[k]));
        *reinterpret_cast<piece<To, 8> *>(to + i) = out;
        return;
    }
    for (int64_t k = i; k < n && k < i + 8; k++)
        to[k] = cuda_from_f32<To>(cuda_to_f32(from[k]));
}

template <typename To, typename From>
void run_convert(cudaStream_t on, void *to, const void *from, int64_t n)
{
    bool whole = cuda_aligned(to, 16) && cuda_aligned(from, 16);

    convert<To, From><<<(unsigned)cuda_blocks(n, 8 * block), block, 0, on>>>(
        (To *)to, (const From *)from, n, whole);
}

template <typename To>
void convert_from(cudaStream_t on, void *to, const void *from, enum ckpt_dtype type, int64_t n)
{
    if (type == CKPT_BF16)
        run_convert<To, __nv_bfloat16>(on, to, from, n);
    else if (type == CKPT_F16)
        run_convert<To, __half>(on, to, from, n);
    else
        run_convert<To, float>(on, to, from, n);
}

/* Dropout factors of four elements from their random words. */
struct masked {
    __device__ __forceinline__ float operator()(float x, uint32_t w,
                                                const struct cuda_drop &d) const
    {
        return !d.all && w >= d.least ? x * d.scale : 0.0f;
    }
};

struct jittered {
    float p;

    __device__ __forceinline__ float operator()(float x, uint32_t w, const struct cuda_drop &) const
    {
        return x * (1.0f + p * ((float)(w >> 8) * 0x1p-23f - 1.0f));
    }
};

/*
 * A thread takes groups of four columns of one row, each the words of one Philox counter; a block
 * takes as many rows as fit side by side.  WHOLE: rows are whole groups.
 */
template <typename T, bool WHOLE, typename F>
__global__ void __launch_bounds__(block)
mask(T *x, int64_t n, int64_t width, F f, struct cuda_drop d)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    uint64_t at;

    if (row >= n)
        return;
    at = d.rows[row];
    x += row * width;
    for (int64_t c = 4 * (int64_t)threadIdx.x; c < width; c += 4 * (int64_t)blockDim.x) {
        uint32_t w[4];

        cuda_drop_words(w, d, at, (uint32_t)(c / 4));
        if constexpr (WHOLE) {
            piece<T, 4> *to = reinterpret_cast<piece<T, 4> *>(x + c), v = *to;

#pragma unroll
            for (int k = 0; k < 4; k++)
                v.at[k] = cuda_from_f32<T>(f(cuda_to_f32(v.at[k]), w[k], d));
            *to = v;
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (c + k < width)
                    x[c + k] = cuda_from_f32<T>(f(cuda_to_f32(x[c + k]), w[k], d));
        }
    }
}

template <typename T, typename F>
void run_mask(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *op, F f)
{
    struct cuda_drop d = cuda_drop_of(op);
    unsigned across = 32;

    while (across < block && across < (width + 3) / 4)
        across *= 2;
    dim3 threads(across, block / across);
    unsigned blocks = (unsigned)cuda_blocks(n, threads.y);
    cudaStream_t on = cuda_of(dev)->stream;

    if (width % 4 == 0 && cuda_aligned(x, 4 * sizeof(T)))
        mask<T, true><<<blocks, threads, 0, on>>>((T *)x, n, width, f, d);
    else
        mask<T, false><<<blocks, threads, 0, on>>>((T *)x, n, width, f, d);
}

} /* namespace */

void cuda_cast(struct device *dev, enum op_stream stream, void *dst, enum ckpt_dtype to,
               const void *src, enum ckpt_dtype from, int64_t n)
{
    cudaStream_t on = cuda_stream_of(dev, stream);

    if (dev->err.code || n <= 0)
        return;
    if (to == from)
        cuda_ok(dev, "cast", cudaMemcpyAsync(dst, src, (size_t)n * (to == CKPT_F32 ? 4 : 2),
                                             cudaMemcpyDeviceToDevice, on));
    else if (to == CKPT_BF16)
        convert_from<__nv_bfloat16>(on, dst, src, from, n);
    else if (to == CKPT_F16)
        convert_from<__half>(on, dst, src, from, n);
    else
        convert_from<float>(on, dst, src, from, n);
    cuda_launched(dev, "cast");
}

void cuda_drop_op(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d)
{
    if (dev->err.code || n * width == 0 || !(d->p > 0))
        return;
    CUDA_ACT(dev, run_mask<T>(dev, x, n, width, d, masked{}));
    cuda_launched(dev, "drop");
}

void cuda_jitter(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d)
{
    if (dev->err.code || n * width == 0 || !(d->p > 0))
        return;
    CUDA_ACT(dev, run_mask<T>(dev, x, n, width, d, jittered{(float)d->p}));
    cuda_launched(dev, "jitter");
}
