/*
 * attention - shared by the attention rooms: arguments, tiles of documents, terms of the
 * scores, and products of 16-bit tiles in shared memory on the tensor cores.
 *
 * Abbreviations: attn (attention), bwd, fwd (its two passes).
 *
 * Scores are kept in base 2: s * log2(e), so that a probability is one exp2.  A tile has 8
 * elements of padding between its rows in shared memory: the 16-byte rows of an 8 x 8 matrix
 * then fall on different banks for every width here.
 *
 * A fragment of a 16 x 8 product holds, in lane l, rows l / 4 and l / 4 + 8 at columns 2 (l %
 * 4) and the next (PTX ISA 8.5, section 9.7.14, mma.m16n8k16).
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_ATTENTION_H
#define CKPT_TRAINER_CUDA_ATTENTION_ATTENTION_H

#include "trainer/cuda/cp_async.cuh"
#include "trainer/cuda/hopper/wgmma.cuh"

#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f

/* An operation's arguments as kernels use them; T of the kernel says whether pointers are to
 * 16-bit or f32 elements. */
struct attn {
    const void    *q, *k, *v, *dout;
    void          *out, *dq, *dk, *dv;
    float         *lse, *delta;         /* [H, N] */
    float         *dline;               /* partial sums of dS: [groups, H, 2 far + 1] */
    int            groups;              /* blocks of a head; each loops over tiles and writes one
                                           row of sums */
    float         *lse2, *sums;         /* lse in base 2; bwd_one_pass.cu: partial sums of dq */
    int           *tickets;             /* [H, N]: how many blocks have added to a tile's dq */
    const int32_t *doc_start, *key_start, *key_end;
    const int32_t *first, *past;        /* op_cached: keys are read from the cache */
    const void    *new_k, *new_v;       /* new rows, to be appended to the cache; NULL: none */
    const float   *slopes;
    const void    *table;
    const int32_t *bucket;              /* from distance -far on */
    int64_t        n, capacity;
    int64_t        row_stride, kv_stride, q_head, kv_head, dq_head, dkv_head;
    int            n_docs, n_head, n_kv, share, dim, window, slots, max_doc;
    int            far, span;           /* largest distance with its own term; largest distance
                                           within a part of a tile */
    float          scale, scale2;       /* the second in base 2 */
    bool           whole;
    bool           vec, pairs;          /* rows allow accesses of 16 bytes; of two elements */
    bool           wide;                /* the chip has wgmma */
    bool           mapped;              /* tiles are loaded through tensor maps */
    bool           by_head;             /* fwd_producer.cu: a head's tiles follow each other */
    struct cuda_drop drop;
};

/* How the operation differs from the plain causal case; kernels are built for each of: slopes,
 * or a table of distances without dropout, or any combination. */
enum { ATTN_PLAIN, ATTN_SLOPES, ATTN_TABLE, ATTN_ANY };

static __host__ __device__ constexpr bool attn_has_slopes(int mode)
{
    return mode == ATTN_SLOPES || mode == ATTN_ANY;
}

static __host__ __device__ constexpr bool attn_has_table(int mode)
{
    return mode >= ATTN_TABLE;
}

/* Whether a table is the only difference. */
static inline bool attn_table_only(const struct attn &a)
{
    return a.table && !a.drop.on && !a.slopes && a.dim <= 128;
}

/* A tile of a document. */
struct place {
    int64_t first, key_at;              /* the document's first row; first element of its keys */
    int64_t key_first;                  /* and their first row */
    int     doc, begin;                 /* the tile's first row, inside the document */
    int     len, keys, shift;           /* row i has position shift + i among the keys */
};

/*
 * Slots number tiles of packed documents without a list: those of document d begin at start[d]
 * / tile + d, which leaves each document at least as many as it needs.  The warp finds the last
 * document that begins at or before the slot, 32 at a time.
 */
__device__ __forceinline__ int attn_doc_of_slot(const int32_t *start, int n_docs, int tile,
                                                int slot)
{
    int lane = (int)threadIdx.x % 32, lo = 0, n = n_docs;

    while (n > 1) {
        int step = (n + 31) / 32, at = lane * step;
        bool fits = at < n && start[lo + at] / tile + lo + at <= slot;
        int last = 31 - __clz((int)__ballot_sync(0xffffffffu, fits));

        lo += last * step;
        n = n - last * step < step ? n - last * step : step;
    }
    return lo;
}

static inline int64_t attn_slots(int64_t n, int64_t n_docs, int tile)
{
    return n / tile + n_docs;
}

__device__ __forceinline__ void attn_document(const struct attn &a, struct place *p, int doc,
                                              int g)
{
    p->doc = doc;
    p->first = a.doc_start[doc];
    p->len = a.doc_start[doc + 1] - (int)p->first;
    p->shift = 0;
    p->key_first = p->first;
    p->keys = p->len;
    if (a.key_start) {
        p->key_first = a.key_start[doc];
        p->keys = a.key_end[doc] - (int)p->key_first;
    }
    p->key_at = p->key_first * a.kv_stride + g * a.kv_head;
    if (a.past) {
        p->shift = a.past[doc];
        p->keys = p->shift + p->len;
        p->key_first = g * a.capacity + a.first[doc];
        p->key_at = p->key_first * a.dim;
    }
}

/* The slot's tile of queries; false: there is none, or it has no keys (padded.cu). */
__device__ __forceinline__ bool attn_query_tile(const struct attn &a, struct place *p, int tile,
                                                int slot, int g)
{
    int doc = attn_doc_of_slot(a.doc_start, a.n_docs, tile, slot);

    attn_document(a, p, doc, g);
    p->begin = (slot - (int)(p->first / tile) - doc) * tile;
    return p->begin < p->len && p->keys > 0;
}

/* The slot's tile of keys. */
__device__ __forceinline__ bool attn_key_tile(const struct attn &a, struct place *p, int tile,
                                              int slot, int g)
{
    int each = (a.max_doc + tile - 1) / tile;

    if (!a.key_start)
        return attn_query_tile(a, p, tile, slot, g);
    attn_document(a, p, slot / each, g);
    p->begin = slot % each * tile;
    return p->begin < p->keys;
}

static inline int64_t attn_key_slots(const struct attn &a, int tile)
{
    return a.key_start ? cuda_blocks(a.max_doc, tile) * a.n_docs
                       : attn_slots(a.n, a.n_docs, tile);
}

/* Keys [from, to) that a query at that position sees. */
__device__ __forceinline__ int attn_sees_from(const struct attn &a, int pos)
{
    return !a.whole && a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0;
}

__device__ __forceinline__ int attn_sees_to(const struct attn &a, int pos, int keys)
{
    return a.whole || pos + 1 > keys ? keys : pos + 1;
}

/* Whether any query of [q0, q1] sees a key of [k0, k1], by position. */
__device__ __forceinline__ bool attn_meet(const struct attn &a, int q0, int q1, int k0, int k1)
{
    return a.whole || (k0 <= q1 && (a.window <= 0 || k1 > q0 - a.window));
}

/* -- position terms of the scores ------------------------------------------------------------- */

/* Where the terms inside a warp's part of a tile differ, the part reaches at most this far past
 * the table's last distance: 16 rows and 128 keys. */
enum { TERMS_BEYOND = 160 };

/*
 * The head's terms by distance, in base 2, for distances [-span, span], by `threads` threads of
 * which this is number t.  Each thread has EACH loads in flight.
 */
template <typename T, int EACH>
__device__ __forceinline__ void attn_bias_part(const struct attn &a, float *line, int h, int t,
                                               int threads)
{
    const T *table = (const T *)a.table + h;
    int all = 2 * a.span + 1, at[EACH];

#pragma unroll 1
    for (; t < all; t += EACH * threads) {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            at[i] = a.bucket[a.far + min(max(t + i * threads - a.span, -a.far), a.far)];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float term = LOG2E * cuda_to_f32(table[(int64_t)at[i] * a.n_head]);

            if (t + i * threads < all)
                line[t + i * threads] = term;
        }
    }
}

template <typename T>
__device__ __forceinline__ void attn_bias_line(const struct attn &a, float *line, int h)
{
    if (a.table)
        attn_bias_part<T, 4>(a, line, h, (int)threadIdx.x, (int)blockDim.x);
}

static inline __host__ __device__ int attn_line_floats(const struct attn &a)
{
    return a.table ? 2 * a.span + 1 : 0;
}

/* Floats of a row of sums by distance, whose two ends also take all distances beyond. */
static inline __host__ __device__ int attn_sums_floats(const struct attn &a)
{
    return 2 * a.far + 1;
}

__device__ __forceinline__ float attn_bias_term(const struct attn &a, const float *line,
                                                int rel)
{
    return line[a.span + min(max(rel, -a.span), a.span)];
}

/* Whether terms differ inside a tile whose distances are [least, most]. */
__device__ __forceinline__ bool attn_terms_differ(const struct attn &a, int least, int most)
{
    return least < a.far && most > -a.far;
}

__device__ __forceinline__ float attn_head_slope(const struct attn &a, int h)
{
    return a.slopes ? a.slopes[h] * LOG2E : 0.0f;
}

/* -- f32 or 16 bits --------------------------------------------------------------------------- */

__device__ __forceinline__ float attn_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* -- tiles of 16-bit elements ----------------------------------------------------------------- */

/*
 * Two kinds of tensor core code share the kernels: mma.sync, by warps, and wgmma, by groups of four
 * (WG).  They differ in how a tile of width D lies in shared memory and in the products.
 */
template <int D, bool WG> static __host__ __device__ constexpr int attn_tile_size(int rows)
{
    return rows * (WG ? D : D + 8);
}

/* Offset of row r and column 8 c in a tile. */
template <int D, int ROWS, bool WG> __device__ __forceinline__ int attn_tile_at(int r, int c)
{
    return WG ? wgmma_panel_at<D, ROWS>(r, c) : r * (D + 8) + 8 * c;
}

/* A chip runs only the code built for it: kernels of the other kind are empty there. */
template <int D, bool WG> __device__ constexpr bool attn_runs_here()
{
    return WG ? WGMMA_HERE : D > 128 || !WGMMA_HERE;
}

/* First and last of the rows that the warp multiplies together with others. */
template <bool WG, int MR> __device__ __forceinline__ int attn_together(int row, int *last)
{
    int first = WG ? row / 64 * 64 : row;

    *last = first + (WG ? 63 : 16 * MR - 1);
    return first;
}

/* The same element by element, for rows that do not allow 16-byte accesses. */
template <bool WG, int D, int ROWS, int THREADS, typename T>
__device__ __noinline__ void attn_load_scalar(T *tile, const T *from, int64_t stride, int rows,
                                              int dim)
{
#pragma unroll 1
    for (int c = (int)threadIdx.x; c < ROWS * D; c += THREADS) {
        int r = c / D, col = c % D;

        tile[attn_tile_at<D, ROWS, WG>(r, col / 8) + col % 8] =
            r < rows && col < dim ? from[r * stride + col] : cuda_from_f32<T>(0.0f);
    }
}

/* Load ROWS rows of a matrix [rows, dim] into a tile of width D; zeros beyond both. LANES
 * threads take a row, so that one addition leads from row to row. */
template <bool WG, int D, int ROWS, int THREADS, typename T>
__device__ __forceinline__ void attn_load_tile(T *tile, const T *from, int64_t stride, int rows,
                                               int dim, bool vec)
{
    const int EACH = D / 8, LANES = EACH % 8 == 0 ? 8 : EACH % 4 == 0 ? 4 : 2;
    const int STEP = THREADS / LANES;
    int row = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const T *at = from + row * stride + lane * 8;

    if (!vec) {
        attn_load_scalar<WG, D, ROWS, THREADS>(tile, from, stride, rows, dim);
        return;
    }
#pragma unroll
    for (int i = 0; i < ROWS; i += STEP, at += STEP * stride)
        if (ROWS % STEP == 0 || row + i < ROWS) {
#pragma unroll
            for (int c = 0; c < EACH; c += LANES)
                cp_async_16(tile + attn_tile_at<D, ROWS, WG>(row + i, lane + c), at + 8 * c,
                            row + i < rows && 8 * (lane + c) < dim);
        }
}

/* This thread's copies have arrived. */
template <bool WG> __device__ __forceinline__ void attn_tiles_here()
{
    cp_async_wait<0>();
    if (WG)
        wgmma_proxy_fence();
}

/* All copies have arrived, for every thread of the block. */
template <bool WG> __device__ __forceinline__ void attn_tiles_ready()
{
    attn_tiles_here<WG>();
    __syncthreads();
}

__device__ __forceinline__ void attn_ldmatrix_t(uint32_t to[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(cuda_shared_addr(p)));
}

template <typename T>
__device__ __forceinline__ void attn_mma(float c[4], const uint32_t a[4], uint32_t b0,
                                         uint32_t b1);

template <>
__device__ __forceinline__ void attn_mma<__nv_bfloat16>(float c[4], const uint32_t a[4],
                                                        uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void attn_mma<__half>(float c[4], const uint32_t a[4], uint32_t b0,
                                                 uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int MR, int NT> __device__ __forceinline__ void attn_clear(float (&x)[MR][NT][4])
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[m][n][e] = 0.0f;
}

/* acc = a b^T: rows of the warp (from `row` on) of a, a tile of ROWS_A; all 8 NT of b. */
template <bool WG, int D, int ROWS_A, typename T, int MR, int NT>
__device__ __forceinline__ void attn_rows_by_rows(float (&acc)[MR][NT][4], const T *a, int row,
                                                  const T *b)
{
    const int ld = D + 8, lane = (int)threadIdx.x % 32;

    if constexpr (WG) {
        wgmma_rows_by_rows<T, D, ROWS_A>(acc, a, row, b);
        return;
    }
    attn_clear(acc);
    a += (row + lane % 16) * ld + lane / 16 * 8;
    b += (lane / 16 * 8 + lane % 8) * ld + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t fa[MR][4], fb[4];

#pragma unroll
        for (int m = 0; m < MR; m++)
            wgmma_ldmatrix(fa[m], a + m * 16 * ld + k);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            wgmma_ldmatrix(fb, b + n * 8 * ld + k);
#pragma unroll
            for (int m = 0; m < MR; m++) {
                attn_mma<T>(acc[m][n], fa[m], fb[0], fb[1]);
                attn_mma<T>(acc[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* Convert the fragments of a product to the first factor of the next, rounded. */
template <typename T, int MR, int KT>
__device__ __forceinline__ void attn_as_factor(uint32_t (&f)[MR][KT / 2][4],
                                               const float (&p)[MR][KT][4])
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int k = 0; k < KT / 2; k++) {
            f[m][k][0] = cuda_pack2<T>(p[m][2 * k][0], p[m][2 * k][1]);
            f[m][k][1] = cuda_pack2<T>(p[m][2 * k][2], p[m][2 * k][3]);
            f[m][k][2] = cuda_pack2<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
            f[m][k][3] = cuda_pack2<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
        }
}

/* acc[.., 8 NT] += f b: columns from col on of b, a tile of 16 KS rows. */
template <bool WG, int D, typename T, int MR, int KS, int NT>
__device__ __forceinline__ void attn_times_rows(float (&acc)[MR][NT][4],
                                                const uint32_t (&f)[MR][KS][4], const T *b,
                                                int col)
{
    const int ld = D + 8, lane = (int)threadIdx.x % 32;

    if constexpr (WG) {
        wgmma_times_rows<T, D, 2 * KS>(acc, f[0], b);
        return;
    }
    b += (lane / 8 % 2 * 8 + lane % 8) * ld + lane / 16 * 8 + col;
#pragma unroll
    for (int k = 0; k < KS; k++) {
        uint32_t fb[4];

#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            attn_ldmatrix_t(fb, b + k * 16 * ld + n * 8);
#pragma unroll
            for (int m = 0; m < MR; m++) {
                attn_mma<T>(acc[m][n], f[m][k], fb[0], fb[1]);
                attn_mma<T>(acc[m][n + 1], f[m][k], fb[2], fb[3]);
            }
        }
    }
}

/* Store fragments to rows [0, rows) of a matrix whose row 0 is at `to`, columns [0, dim). */
template <typename T, int NT>
__device__ __forceinline__ void attn_store_rows(T *to, int64_t stride, int row, int rows,
                                                int dim, bool pairs, const float (&x)[NT][4],
                                                float lo, float hi)
{
    int lane = (int)threadIdx.x % 32, r = row + lane / 4, col = lane % 4 * 2;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float by = half ? hi : lo;
        T *at = to + (r + 8 * half) * stride + col;

        if (r + 8 * half >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float x0 = x[n][2 * half] * by, x1 = x[n][2 * half + 1] * by;

            if (pairs) {
                if (8 * n + col < dim)
                    *(uint32_t *)(at + 8 * n) = cuda_pack2<T>(x0, x1);
            } else {
                if (8 * n + col < dim)
                    at[8 * n] = cuda_from_f32<T>(x0);
                if (8 * n + col + 1 < dim)
                    at[8 * n + 1] = cuda_from_f32<T>(x1);
            }
        }
    }
}

/* -- entries ---------------------------------------------------------------------------------- */

/* fwd.cu: whether queries, keys and values of that element size allow 16-byte accesses. */
bool attn_vec(const struct op_heads *at, int64_t dim, size_t size);

/* The arguments that attention over documents and against a cache share, with the rows of document
 * i from doc_start[i] on, and at most max_doc keys of a row. */
template <typename O>
static inline struct attn attn_common(const struct device *dev, const O *o,
                                      const int32_t *doc_start, int64_t n_docs, int64_t max_doc)
{
    struct attn a = {};
    int64_t far = o->rel_bias.reach < max_doc ? o->rel_bias.reach : max_doc;
    const struct op_drop none = {};

    a.q = o->in.q;
    a.k = o->in.k;
    a.v = o->in.v;
    a.out = o->out;
    a.doc_start = doc_start;
    a.slopes = o->slopes;
    a.n = o->n;
    a.row_stride = o->in.row_stride;
    a.kv_stride = o->in.kv_stride ? o->in.kv_stride : o->in.row_stride;
    a.q_head = o->in.q_head;
    a.kv_head = o->in.kv_head;
    a.n_docs = (int)n_docs;
    a.max_doc = (int)max_doc;
    a.n_head = (int)o->n_head;
    a.n_kv = (int)o->n_kv;
    a.share = (int)(o->n_head / o->n_kv);
    a.dim = (int)o->dim;
    a.window = (int)o->window;
    a.scale = o->scale;
    a.scale2 = o->scale * LOG2E;
    a.wide = ((const struct cuda_device *)dev)->hopper;
    a.vec = attn_vec(&o->in, o->dim, ckpt_dtype_size(dev->act));
    a.pairs = o->dim % 2 == 0 && a.row_stride % 2 == 0 && a.kv_stride % 2 == 0 &&
              a.q_head % 2 == 0 && a.kv_head % 2 == 0;
    a.drop = cuda_drop_of(&none);
    if (o->rel_bias.table) {
        a.table = o->rel_bias.table;
        a.far = (int)far;
        a.span = a.far + TERMS_BEYOND;
        a.bucket = o->rel_bias.bucket + (o->rel_bias.reach - far);
    }
    return a;
}

/* fwd.cu: the arguments that both passes share. */
struct attn attn_of(const struct device *dev, const struct op_attention *a);
/* padded.cu: attention of documents with padding, and its bytes of workspace beside those of
 * attention without. */
void attn_padded_fwd(struct device *dev, const struct op_attention *o);
void attn_padded_bwd(struct device *dev, const struct op_attention *o);
uint64_t attn_padded_bytes(const struct device *dev, int64_t n, int64_t n_docs, int64_t width,
                           bool back);
/* bwd_choice.cu: the arguments of the backward pass, without workspace; the bytes of it; and the
 * kernels, once it is there. */
struct attn attn_back_of(const struct device *dev, const struct op_attention *o);
uint64_t attn_back_bytes(const struct device *dev, const struct attn &a);
void attn_back(struct device *dev, struct attn a, unsigned char *work);
/* Forward of that type, T: out, and lse where it is not NULL. */
template <typename T> void attn_fwd(struct device *dev, const char *op, const struct attn &a);
/* fwd_producer.cu: the same on Hopper; false: strides do not allow it, and nothing was queued. */
bool attn_fwd_producer_supported(const struct attn &a);
template <typename T>
bool attn_fwd_producer(struct device *dev, const char *op, const struct attn &a);
/* bwd.cu: dq, dk, dv, and dline unless it is NULL. delta: [H, N]. */
template <typename T> void attn_bwd(struct device *dev, const struct attn &a);

/* bwd_two_pass.cu: the same on Hopper, up to 128 columns. */
template <typename T> void attn_bwd_two_pass(struct device *dev, const struct attn &a);

/* bwd_one_pass.cu: the same in one pass, where one_pass_supported (bwd_choice.cu). sums: [H, N,
 * 64 or 128]. */
template <typename T> void attn_bwd_one_pass(struct device *dev, struct attn a);

/* f32.cu */
template <> void attn_fwd<float>(struct device *dev, const char *op, const struct attn &a);
template <> void attn_bwd<float>(struct device *dev, const struct attn &a);

/* The segment of a row: the last that begins at or before the row. */
__device__ __forceinline__ int attn_segment_of(const int32_t *start, int n, int row)
{
    int lo = 0, hi = n - 1;

    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;

        if (start[mid] <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

#endif
