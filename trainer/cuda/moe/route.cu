/*
 * moe/route - the router's softmax and top k, the sort of slots, and the gather and combine of
 * rows.
 *
 * The sort needs no host: chunks of ROUTE_ROWS rows set bit masks of the rows of each expert
 * and count them; one block turns counts into offsets; each slot then finds its place by the
 * bits before it.  Nothing depends on timing.
 */
#include "trainer/cuda/moe/experts.h"

#include "trainer/cuda/act.h"
#include "trainer/cuda/row.h"

enum { THREADS = 256, WARPS = THREADS / 32, WORDS = ROUTE_ROWS / 32, HELD = ROUTE_MOST / 32 };

static int64_t chunks_of(int64_t n) { return cuda_blocks(n, ROUTE_ROWS); }

uint64_t moe_route_layout(struct moe_route *r, unsigned char *base, int64_t n, int64_t k,
                          int64_t E)
{
    uint64_t at = 0, slots = (uint64_t)(n * k), ends = (uint64_t)E + 1;

    cuda_take(&r->first, base, &at, ends * sizeof *r->first);
    cuda_take(&r->start, base, &at, ends * sizeof *r->start);
    cuda_take(&r->counts, base, &at, (uint64_t)(E * chunks_of(n)) * sizeof *r->counts);
    cuda_take(&r->row, base, &at, slots * sizeof *r->row);
    cuda_take(&r->place, base, &at, slots * sizeof *r->place);
    cuda_take(&r->weight, base, &at, slots * sizeof *r->weight);
    cuda_take(&r->dweight, base, &at, slots * sizeof *r->dweight);
    return at;
}

/* -- the choice ------------------------------------------------------------------------------- */

/* A warp takes a row: lane l holds probabilities l, l + 32, ... */
static __global__ void __launch_bounds__(THREADS)
pick_kernel(float *probs, int32_t *chosen, int64_t n, int E, int k)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = (int)threadIdx.x % 32, held = (E + 31) / 32, at = 0;
    float *p = probs + row * E, max = -INFINITY, sum = 0;
    uint32_t taken = 0;                 /* bit i: expert 32 i + lane is taken */

    if (row >= n)
        return;
    for (int e = lane; e < E; e += 32)
        max = fmaxf(max, p[e]);
    max = cuda_warp_max(max);
    for (int e = lane; e < E; e += 32) {
        float x = expf(p[e] - max);

        p[e] = x;
        sum += x;
    }
    sum = cuda_warp_sum(sum);
    for (int e = lane; e < E; e += 32)
        p[e] /= sum;
    for (int j = 0; j < k; j++) {       /* the largest one left; the first among equals */
        float most = -1.0f;
        int best = E;

        for (int i = 0, e = lane; e < E; i++, e += 32)
            if (!(taken >> i & 1) && (best == E || p[e] > most)) {
                most = p[e];
                best = e;
            }
        for (int i = 16; i > 0; i /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, most, i);
            int who = __shfl_xor_sync(0xffffffffu, best, i);

            if (who < E && (best == E || other > most || (other == most && who < best))) {
                most = other;
                best = who;
            }
        }
        if (best % 32 == lane && best < E)
            taken |= 1u << best / 32;
    }
    for (int i = 0; i < held; i++) {    /* in order of experts */
        uint32_t all = __ballot_sync(0xffffffffu, taken >> i & 1);

        if (taken >> i & 1)
            chosen[row * k + at + __popc(all & ((1u << lane) - 1))] = 32 * i + lane;
        at += __popc(all);
    }
}

void moe_route_topk(struct device *dev, const struct op_experts *a)
{
    if (dev->err.code)
        return;
    pick_kernel<<<(unsigned)cuda_blocks(a->n, WARPS), THREADS, 0, cuda_of(dev)->stream>>>(
        a->probs, a->top_k_index, a->n, (int)a->n_expert, (int)a->top_k);
    cuda_launched(dev, "experts_fwd");
}

/* -- the order -------------------------------------------------------------------------------- */

/* mask[e]: the rows of this block's chunk that chose e.  All threads call it. */
static __device__ void mark(uint32_t (*mask)[WORDS], const int32_t *chosen, int64_t n, int E,
                            int k)
{
    int64_t row = (int64_t)blockIdx.x * ROUTE_ROWS + threadIdx.x;

    for (int i = (int)threadIdx.x; i < E * WORDS; i += THREADS)
        (&mask[0][0])[i] = 0;
    __syncthreads();
    for (int j = 0; row < n && j < k; j++)
        atomicOr(&mask[chosen[row * k + j]][threadIdx.x / 32], 1u << threadIdx.x % 32);
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS)
count_kernel(int32_t *counts, const int32_t *chosen, int64_t n, int E, int k)
{
    extern __shared__ uint32_t shared[];
    uint32_t (*mask)[WORDS] = (uint32_t (*)[WORDS])shared;

    mark(mask, chosen, n, E, k);
    for (int e = (int)threadIdx.x; e < E; e += THREADS) {
        int sum = 0;

        for (int w = 0; w < WORDS; w++)
            sum += __popc(mask[e][w]);
        counts[(int64_t)e * gridDim.x + blockIdx.x] = sum;
    }
}

/* Prefix sums of counts[E * chunks]; first[e] is the expert's. */
static __global__ void __launch_bounds__(1024)
begin_kernel(int32_t *counts, int32_t *first, int E, int chunks)
{
    __shared__ int32_t warps[32];
    int64_t all = (int64_t)E * chunks;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, before = 0;

    for (int64_t at = 0; at < all; at += 1024) {
        int64_t i = at + threadIdx.x;
        int own = i < all ? counts[i] : 0, sum = own, total = 0, less = 0;

        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffffu, sum, d);

            sum += lane >= d ? other : 0;
        }
        if (lane == 31)
            warps[warp] = sum;
        __syncthreads();
        for (int w = 0; w < 32; w++) {
            less += w < warp ? warps[w] : 0;
            total += warps[w];
        }
        __syncthreads();
        if (i < all) {
            counts[i] = before + less + sum - own;
            if (i % chunks == 0)
                first[i / chunks] = counts[i];
        }
        before += total;
    }
    if (threadIdx.x == 0)
        first[E] = before;
}

static __global__ void __launch_bounds__(THREADS)
    place_kernel(struct moe_route r, const int32_t *chosen, const float *probs, int64_t n,
                 int E, int k, bool renorm)
{
    extern __shared__ uint32_t shared[];
    uint32_t (*mask)[WORDS] = (uint32_t (*)[WORDS])shared;
    int64_t row = (int64_t)blockIdx.x * ROUTE_ROWS + threadIdx.x;
    int word = (int)threadIdx.x / 32, bit = (int)threadIdx.x % 32;
    float sum = 0;

    mark(mask, chosen, n, E, k);
    if (row >= n)
        return;
    for (int j = 0; j < k; j++)
        sum += probs[row * E + chosen[row * k + j]];
    for (int j = 0; j < k; j++) {
        int e = chosen[row * k + j], slot = r.counts[(int64_t)e * gridDim.x + blockIdx.x];

        for (int w = 0; w < word; w++)
            slot += __popc(mask[e][w]);
        slot += __popc(mask[e][word] & ((1u << bit) - 1));
        r.row[slot] = (int32_t)row;
        r.place[row * k + j] = slot;
        r.weight[slot] = probs[row * E + e] / (renorm ? sum : 1.0f);
    }
}

void moe_route_sort(struct device *dev, const struct op_experts *a, const struct moe_route *r)
{
    unsigned chunks = (unsigned)chunks_of(a->n);
    size_t bytes = (size_t)a->n_expert * WORDS * sizeof(uint32_t);
    cudaStream_t stream = cuda_of(dev)->stream;
    int E = (int)a->n_expert, k = (int)a->top_k;

    if (dev->err.code)
        return;
    count_kernel<<<chunks, THREADS, bytes, stream>>>(r->counts, a->top_k_index, a->n, E, k);
    begin_kernel<<<1, 1024, 0, stream>>>(r->counts, r->first, E, (int)chunks);
    place_kernel<<<chunks, THREADS, bytes, stream>>>(*r, a->top_k_index, a->probs, a->n, E, k,
                                                     a->renorm);
    cuda_launched(dev, "experts");
}

/* 32 experts per block; 8 groups of threads share the rows. */
static __global__ void __launch_bounds__(THREADS)
used_kernel(float *used, const float *probs, const int32_t *first, int64_t n, int E)
{
    __shared__ double part[WARPS][32];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int e = (int)blockIdx.x * 32 + lane;
    double sum = 0;

    for (int64_t i = group; e < E && i < n; i += WARPS)
        sum += (double)probs[i * E + e];
    part[group][lane] = sum;
    __syncthreads();
    if (group != 0 || e >= E)
        return;
    for (int g = 1; g < WARPS; g++)
        sum += part[g][lane];
    used[e] += (float)(first[e + 1] - first[e]);
    used[E + e] += (float)sum;
}

void moe_route_count_used(struct device *dev, const struct op_experts *a,
                          const struct moe_route *r)
{
    if (dev->err.code)
        return;
    used_kernel<<<(unsigned)cuda_blocks(a->n_expert, 32), THREADS, 0, cuda_of(dev)->stream>>>(
        a->used, a->probs, r->first, a->n, (int)a->n_expert);
    cuda_launched(dev, "experts_fwd");
}

/* A warp takes a row. With renorm the weights sum to one, so scaling all of them has no effect. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
router_back_kernel(T *dlogits, const float *probs, const int32_t *chosen, struct moe_route r,
                   const float *dused, int64_t n, int E, int k, bool renorm)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int lane = (int)threadIdx.x % 32;
    const float *p = probs + row * E;
    const int32_t *who = chosen + row * k, *place = r.place + row * k;
    float sum = 0, mean = 0, inner = 0;

    if (row >= n)
        return;
    for (int j = 0; j < k; j++) {
        sum += p[who[j]];
        mean += r.dweight[place[j]] * r.weight[place[j]];
    }
    if (!renorm) {
        sum = 1.0f;
        mean = 0;
    }
    for (int e = lane; dused && e < E; e += 32)
        inner += dused[e] * p[e];
    inner = cuda_warp_sum(inner);
    for (int j = 0; j < k; j++)
        inner += (r.dweight[place[j]] - mean) / sum * p[who[j]];
    for (int e = lane; e < E; e += 32) {
        float d = dused ? dused[e] : 0.0f;

        for (int j = 0; j < k; j++)
            d += who[j] == e ? (r.dweight[place[j]] - mean) / sum : 0.0f;
        dlogits[row * E + e] = cuda_from_f32<T>(p[e] * (d - inner));
    }
}

void moe_route_bwd(struct device *dev, const struct op_experts *a, const struct moe_route *r,
                   void *dlogits)
{
    if (dev->err.code)
        return;
    CUDA_ACT(dev, router_back_kernel<T>
             <<<(unsigned)cuda_blocks(a->n, WARPS), THREADS, 0, cuda_of(dev)->stream>>>(
                 (T *)dlogits, a->probs, a->top_k_index, *r, a->dused, a->n, (int)a->n_expert,
                 (int)a->top_k, a->renorm));
    cuda_launched(dev, "experts_bwd");
}

/* -- rows ------------------------------------------------------------------------------------- */

/* A warp takes a row of `bytes`, a multiple of the word. */
template <typename W>
static __global__ void __launch_bounds__(THREADS)
gather_kernel(W *to, const W *from, const int32_t *row, int64_t slots, int64_t words)
{
    int64_t slot = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;

    if (slot >= slots)
        return;
    from += row[slot] * words;
    to += slot * words;
#pragma unroll 4
    for (int64_t i = threadIdx.x % 32; i < words; i += 32)
        to[i] = from[i];
}

void moe_route_gather(struct device *dev, const struct moe_route *r, void *to, const void *from,
                      int64_t slots, int64_t D)
{
    uint64_t bytes = (uint64_t)D * cuda_size(dev);
    unsigned blocks = (unsigned)cuda_blocks(slots, WARPS);
    cudaStream_t stream = cuda_of(dev)->stream;

    if (dev->err.code)
        return;
    if (bytes % 16 == 0 && cuda_aligned(to, 16) && cuda_aligned(from, 16))
        gather_kernel<<<blocks, THREADS, 0, stream>>>((uint4 *)to, (const uint4 *)from, r->row,
                                                      slots, (int64_t)(bytes / 16));
    else
        gather_kernel<<<blocks, THREADS, 0, stream>>>((uint16_t *)to, (const uint16_t *)from,
                                                      r->row, slots, (int64_t)(bytes / 2));
    cuda_launched(dev, "experts");
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
combine_kernel(T *out, const T *base, const T *y, const int32_t *place, const float *weight,
               int64_t D, int k)
{
    int64_t row = blockIdx.x, col = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * N;
    float sum[N] = {}, v[N];

    if (col >= D)
        return;
    if (base)
        row_get<T, N>(sum, base + row * D + col);
    for (int j = 0; j < k; j++) {
        int slot = place[row * k + j];
        float w = weight ? weight[slot] : 1.0f;

        row_get<T, N>(v, y + slot * D + col);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] += w * v[i];
    }
    row_put<T, N>(out + row * D + col, sum);
}

void moe_route_combine(struct device *dev, const struct op_experts *a,
                       const struct moe_route *r, void *out, const void *base, const void *y,
                       bool weighted)
{
    const float *weight = weighted ? r->weight : NULL;
    cudaStream_t stream = cuda_of(dev)->stream;
    int k = (int)a->top_k;

    if (dev->err.code)
        return;
    CUDA_ACT(dev, {
        constexpr int N = CUDA_PACK<T>;
        bool wide = row_packable<T>(out, a->dim) && row_packable<T>(base, a->dim) &&
                    row_packable<T>(y, a->dim);
        dim3 grid((unsigned)a->n, (unsigned)cuda_blocks(a->dim, THREADS * (wide ? N : 1)));

        if (wide)
            combine_kernel<T, N><<<grid, THREADS, 0, stream>>>(
                (T *)out, (const T *)base, (const T *)y, r->place, weight, a->dim, k);
        else
            combine_kernel<T, 1><<<grid, THREADS, 0, stream>>>(
                (T *)out, (const T *)base, (const T *)y, r->place, weight, a->dim, k);
    });
    cuda_launched(dev, "experts");
}

/* A block takes a slot. */
template <typename T, enum op_act A, int N>
static __global__ void __launch_bounds__(THREADS)
gate_back_kernel(T *g, T *du, const T *u, const T *dg, struct moe_route r, int64_t F)
{
    int64_t slot = blockIdx.x;
    float w = r.weight[slot], dot = 0;

    g = g ? g + slot * F : NULL;
    dg += slot * F;
    u += slot * 2 * F;
    du += slot * 2 * F;
    for (int64_t col = threadIdx.x * N; col < F; col += THREADS * N) {
        float a[N], b[N], d[N], both[N];

        row_get<T, N>(a, u + col);
        row_get<T, N>(b, u + F + col);
        row_get<T, N>(d, dg + col);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float value, slope = act_slope<A>(a[i], &value);

            dot += value * b[i] * d[i];
            both[i] = w * value * b[i];
            a[i] = w * d[i] * b[i] * slope;
            b[i] = w * d[i] * value;
        }
        if (g)
            row_put<T, N>(g + col, both);
        row_put<T, N>(du + col, a);
        row_put<T, N>(du + F + col, b);
    }
    dot = cuda_block_sum(dot);
    if (threadIdx.x == 0)
        r.dweight[slot] = dot;
}

void moe_route_gate_bwd(struct device *dev, const struct op_experts *a,
                        const struct moe_route *r, void *g, void *du, const void *dg)
{
    unsigned slots = (unsigned)(a->n * a->top_k);
    cudaStream_t stream = cuda_of(dev)->stream;

    if (dev->err.code)
        return;
    CUDA_ACT(dev, CUDA_OP_ACT(a->act, {
        constexpr int N = CUDA_PACK<T>;

        if (row_packable<T>(g, a->ff) && row_packable<T>(du, a->ff) &&
            row_packable<T>(dg, a->ff) && row_packable<T>(a->u, a->ff))
            gate_back_kernel<T, A, N><<<slots, THREADS, 0, stream>>>(
                (T *)g, (T *)du, (const T *)a->u, (const T *)dg, *r, a->ff);
        else
            gate_back_kernel<T, A, 1><<<slots, THREADS, 0, stream>>>(
                (T *)g, (T *)du, (const T *)a->u, (const T *)dg, *r, a->ff);
    }));
    cuda_launched(dev, "experts_bwd");
}
