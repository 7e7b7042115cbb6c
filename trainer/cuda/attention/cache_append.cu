/*
 * attention/cache_append - append the new keys and values of generation to the cache.
 */
#include "trainer/cuda/attention/attention.cuh"

/* A block takes a new row, E elements at once. */
template <typename T, int E>
__global__ void append(const __grid_constant__ struct attn a, T *k_cache, T *v_cache)
{
    using pack = cuda_pack<T, E>;
    int row = (int)blockIdx.x, each = a.dim / E;

    cuda_pdl_wait();
    int seg = attn_segment_of(a.doc_start, a.n_docs, row);
    int64_t pos = a.past[seg] + row - a.doc_start[seg];
    int64_t first = (int64_t)a.seq[seg] * a.n_kv * a.capacity;

    for (int c = (int)threadIdx.x; c < a.n_kv * each; c += (int)blockDim.x) {
        int64_t g = c / each, at = c % each * E;
        int64_t from = row * a.row_stride + g * a.kv_head + at;
        int64_t to = (first + g * a.capacity + pos) * a.dim + at;

        *(pack *)(k_cache + to) = *(const pack *)((const T *)a.k + from);
        *(pack *)(v_cache + to) = *(const pack *)((const T *)a.v + from);
    }
}

template <typename T>
static void put(struct device *dev, const struct attn &a, const struct op_cached *o)
{
    const int E = 16 / sizeof(T);
    T *k = (T *)o->k_cache, *v = (T *)o->v_cache;

    cuda_pdl_launch(dev, a.n <= CUDA_FEW_ROWS, a.vec ? append<T, E> : append<T, 1>,
                    (unsigned)a.n, 256, 0, a, k, v);
    cuda_launched(dev, "attention_cached");
}

void attn_cache_append(struct device *dev, const struct attn &a, const struct op_cached *o)
{
    CUDA_ACT(dev, put<T>(dev, a, o));
}
