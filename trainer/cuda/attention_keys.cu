/*
 * attention_keys - the new keys and values of generation go to the cache.
 *
 * The attention behind it leaves most of the memory's time unused where sequences are few: blocks
 * beside those that copy have the weights that come next brought into the L2 cache.
 */
#include "trainer/cuda/attention.cuh"

enum {
    CHUNK = 8192, MOST_AHEAD = 4096,    /* bytes fetched at once; how many times: half the cache */
    AHEAD_BLOCKS = 64
};

/* What follows reads these: chunks of them are brought into the L2 cache meanwhile. */
struct ahead {
    const unsigned char *at;
    int                  chunks, blocks;
};

/* New rows into the cache: a block is a row; E elements at once.  Blocks behind them fetch. */
template <typename T, int E>
__global__ void append(const __grid_constant__ struct attend a, T *k_cache, T *v_cache,
                       struct ahead ahead)
{
    using pack = cuda_pack<T, E>;
    int row = (int)blockIdx.x, each = a.dim / E;

    if (row >= a.n)
        for (int64_t i = row - a.n + (int64_t)threadIdx.x * ahead.blocks; i < ahead.chunks;
             i += (int64_t)blockDim.x * ahead.blocks)
            cuda_fetch(ahead.at + i * CHUNK, CHUNK);
    cuda_begin();
    if (row >= a.n)
        return;
    int seg = segment_of(a.doc_start, a.n_docs, row);
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
static void put(struct device *dev, const struct attend &a, const struct op_cached *o)
{
    const int E = 16 / sizeof(T);
    T *k = (T *)o->k_cache, *v = (T *)o->v_cache;
    bool few = a.n <= CUDA_FEW_ROWS;
    uint64_t chunks = o->next && few ? o->next_bytes / CHUNK : 0;
    struct ahead next = {(const unsigned char *)o->next, 0, AHEAD_BLOCKS};

    if (cuda_of(dev)->early && cuda_aligned(o->next, 16))
        next.chunks = chunks < (uint64_t)MOST_AHEAD ? (int)chunks : (int)MOST_AHEAD;
    cuda_early(dev, few, a.vec ? append<T, E> : append<T, 1>,
               (unsigned)(a.n + (next.chunks ? (int)AHEAD_BLOCKS : 0)), 256, 0, a, k, v, next);
    cuda_launched(dev, "attention_cached");
}

void put_keys(struct device *dev, const struct attend &a, const struct op_cached *o)
{
    CUDA_ACT(dev, put<T>(dev, a, o));
}
