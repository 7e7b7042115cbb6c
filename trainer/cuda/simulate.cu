/*
 * cuda/simulate - see comm/simulate.h: a collective is two marks of time on its stream, with copies
 * between them.
 *
 * The time is the GPU's own (%globaltimer, nanoseconds; it advances every microsecond or faster).
 * Nothing waits for the host.
 */
#include "trainer/cuda/simulate.h"

/* As many blocks as NCCL has channels at most, so that copies leave the operations as many SMs. */
constexpr int BLOCKS = 16, THREADS = 512, AT_ONCE = 4;

/* When the collective in work began.  There is one at a time: they are ordered by their stream. */
static __device__ uint64_t began;

static __device__ uint64_t now(void)
{
    uint64_t t;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

static __global__ void mark(void) { began = now(); }

/* One thread: it takes no SM from anybody. */
static __global__ void wait(uint64_t ns)
{
    uint64_t until = began + ns;

    for (uint64_t t = now(); t < until; t = now())
        __nanosleep(until - t > 2000 ? 500 : 20);
}

/*
 * dst[n] <- src[i % period]; elements of 16 bytes or fewer, as the addresses allow.  A thread walks
 * by the grid's size, AT_ONCE loads before their stores.  Where src is in dst, it is written with
 * its own values.
 */
template <typename T>
static __global__ void repeat(T *dst, const T *src, int64_t period, int64_t n)
{
    int64_t stride = (int64_t)gridDim.x * THREADS, by = stride % period;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, from = i % period;

    while (i < n) {
        T x[AT_ONCE];

#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            x[k] = src[from];           /* within the period, also past the end */
            from += by;
            from -= from >= period ? period : 0;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++, i += stride)
            if (i < n)
                dst[i] = x[k];
    }
}

static void sim_begin(struct device *dev)
{
    if (dev->err.code)
        return;
    mark<<<1, 1, 0, cuda_stream_of(dev, OP_STREAM_COMM)>>>();
    cuda_launched(dev, "simulated collective");
}

template <typename T>
static void launch_repeat(struct device *dev, void *dst, const void *src, size_t bytes,
                          int64_t times)
{
    int64_t period = (int64_t)(bytes / sizeof(T)), n = period * times;
    int64_t blocks = cuda_blocks(n, THREADS);

    repeat<<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0,
             cuda_stream_of(dev, OP_STREAM_COMM)>>>((T *)dst, (const T *)src, period, n);
    cuda_launched(dev, "simulated collective");
}

static void sim_repeat(struct device *dev, void *dst, const void *src, size_t bytes, int64_t times)
{
    if (dev->err.code || bytes == 0 || times <= 0)
        return;
    if (cuda_aligned(dst, 16) && cuda_aligned(src, 16) && bytes % 16 == 0)
        launch_repeat<uint4>(dev, dst, src, bytes, times);
    else if (cuda_aligned(dst, 4) && cuda_aligned(src, 4) && bytes % 4 == 0)
        launch_repeat<uint32_t>(dev, dst, src, bytes, times);
    else if (cuda_aligned(dst, 2) && cuda_aligned(src, 2) && bytes % 2 == 0)
        launch_repeat<uint16_t>(dev, dst, src, bytes, times);
    else
        launch_repeat<uint8_t>(dev, dst, src, bytes, times);
}

static void sim_end(struct device *dev, double seconds)
{
    if (dev->err.code)
        return;
    wait<<<1, 1, 0, cuda_stream_of(dev, OP_STREAM_COMM)>>>((uint64_t)(seconds * 1e9));
    cuda_launched(dev, "simulated collective");
}

const struct simulate_device cuda_simulate = {sim_begin, sim_repeat, sim_end};
