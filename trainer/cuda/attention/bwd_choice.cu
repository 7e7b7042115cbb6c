/*
 * attention/bwd_choice - backward of attention: the choice of kernels, their workspace, and the
 * last step of the bias gradient.
 *
 * Two passes (bwd_two_pass.cu on Hopper; wide heads and other chips: bwd.cu; f32: f32.cu), except
 * with dropout on Hopper, which takes one (bwd_one_pass.cu): it computes the dropout words and the
 * scores once, but needs a whole multiprocessor for a block and adds dq in a fixed order.  It does
 * not compute the bias gradient.
 */
#include "trainer/cuda/attention/attention.cuh"

enum { FOLD = 1024 };

/* dtable[bucket, h] += the head's rows of sums, all groups in order: a block is a head, each of
 * its `parts` threads takes every parts-th group, a warp takes a bucket. */
__global__ void __launch_bounds__(FOLD) fold_lines(const __grid_constant__ struct attn a,
                                                   float *dtable, int n_bucket, int groups,
                                                   int parts)
{
    extern __shared__ float sums[];     /* [parts][all] */
    int h = (int)blockIdx.x, all = attn_sums_floats(a), wide = FOLD / parts;
    int part = (int)threadIdx.x / wide, lane = (int)threadIdx.x % 32;

    cuda_pdl_wait();
    for (int k = (int)threadIdx.x % wide; k < all; k += wide) {
        const float *at = a.dline + (int64_t)h * all + k;
        float sum = 0;

#pragma unroll 8
        for (int i = part; i < groups; i += parts)
            sum += at[(int64_t)i * a.n_head * all];
        sums[part * all + k] = sum;
    }
    __syncthreads();
    for (int k = (int)threadIdx.x; k < all; k += FOLD)
        for (int i = 1; i < parts; i++)
            sums[k] += sums[i * all + k];
    __syncthreads();
    for (int b = (int)threadIdx.x / 32; b < n_bucket; b += FOLD / 32) {
        float sum = 0;

        for (int k = lane; k < all; k += 32)
            sum += a.bucket[k] == b ? sums[k] : 0.0f;
        sum = cuda_warp_sum(sum);
        if (lane == 0)
            dtable[(int64_t)b * a.n_head + h] += sum;
    }
}

static uint64_t delta_bytes(int64_t n, int64_t n_head)
{
    return cuda_align((uint64_t)(n * n_head) * sizeof(float));
}

/* Least number of blocks of a head that each write a part of the bias gradient.  More blocks, of
 * one tile each, are more even; they are used where the workspace can hold their sums. */
enum { GROUPS = 16, TILE = 64 };

static uint64_t dline_bytes(int64_t far, int64_t n_head)
{
    return (uint64_t)(GROUPS * n_head * (2 * far + 1)) * sizeof(float);
}

static int groups_of(const struct attn &a, uint64_t bytes)
{
    int64_t slots = attn_slots(a.n, a.n_docs, TILE);
    int64_t most = (int64_t)(bytes / sizeof(float)) / ((int64_t)a.n_head * attn_sums_floats(a));

    return (int)cuda_blocks(slots, cuda_blocks(slots, most));
}

/* -- in one pass ------------------------------------------------------------------------------- */

/* delta, lse2 and tickets [H, N], and sums [H, N, the kernel's width]. */
static uint64_t one_pass_bytes(int64_t n, int64_t n_head, int64_t dim)
{
    uint64_t sums = (uint64_t)(n * n_head * (dim <= 64 ? 64 : 128)) * sizeof(float);

    return 3 * delta_bytes(n, n_head) + (dim <= 128 ? cuda_align(sums) : 0);
}

static bool one_pass_supported(const struct device *dev, const struct attn &a)
{
    return dev->act != CKPT_F32 && a.wide && a.vec && a.pairs && a.dim <= 128 && a.n > 0 &&
           !a.table && a.dq_head % 8 == 0 && cuda_aligned(a.dq, 16) && a.drop.on;
}

uint64_t cuda_attention_work(const struct device *dev, const struct op_limits *l)
{
    uint64_t two = 2 * delta_bytes(l->n, l->n_head) + dline_bytes(l->max_doc, l->n_head);
    uint64_t one_pass = one_pass_bytes(l->n, l->n_head, l->head_dim), padded = 0;

    if (l->padding)
        padded = attn_padded_bytes(dev, l->n, l->n, (l->n_head + 2 * l->n_kv) * l->head_dim,
                                   l->train);
    if (!l->train)
        return padded;
    return padded + (dev->act != CKPT_F32 && one_pass > two ? one_pass : two);
}

struct attn attn_back_of(const struct device *dev, const struct op_attention *o)
{
    struct attn a = attn_of(dev, o);

    a.vec = a.vec && cuda_aligned(o->dout, 16) && cuda_aligned(o->out, 16);
    a.dq_head = o->grad.q_head;
    a.dkv_head = o->grad.kv_head;
    a.dq = o->grad.q;
    a.dk = o->grad.k;
    a.dv = o->grad.v;
    a.dout = o->dout;
    a.pairs = a.pairs && a.dq_head % 2 == 0 && a.dkv_head % 2 == 0 && cuda_aligned(a.dq, 4) &&
              cuda_aligned(a.dk, 4) && cuda_aligned(a.dv, 4);
    return a;
}

/* Without the sums of a bias gradient. */
uint64_t attn_back_bytes(const struct device *dev, const struct attn &a)
{
    return one_pass_supported(dev, a) ? one_pass_bytes(a.n, a.n_head, a.dim)
                                      : 2 * delta_bytes(a.n, a.n_head);
}

void attn_back(struct device *dev, struct attn a, unsigned char *work)
{
    uint64_t each = delta_bytes(a.n, a.n_head);

    a.delta = (float *)work;
    a.lse2 = (float *)(work + each);
    if (!one_pass_supported(dev, a)) {
        CUDA_ACT(dev, attn_bwd<T>(dev, a));
        return;
    }
    a.tickets = (int *)(work + 2 * each);
    a.sums = (float *)(work + 3 * each);
    if (dev->act == CKPT_BF16)
        attn_bwd_one_pass<__nv_bfloat16>(dev, a);
    else
        attn_bwd_one_pass<__half>(dev, a);
}

void cuda_attention_bwd(struct device *dev, const struct op_attention *o)
{
    struct attn a;
    uint64_t each = 2 * delta_bytes(o->n, o->n_head), bytes;
    unsigned char *work;
    size_t line;
    int parts;

    if (dev->err.code || o->n_docs == 0)
        return;
    if (o->real_start) {
        attn_padded_bwd(dev, o);
        return;
    }
    a = attn_back_of(dev, o);
    bytes = attn_back_bytes(dev, a);
    if (o->rel_bias.dtable)
        bytes += dline_bytes(a.far, o->n_head);
    work = (unsigned char *)cuda_work(dev, "attention_bwd", bytes);
    if (!work)
        return;
    if (o->rel_bias.dtable) {
        a.dline = (float *)(work + each);
        a.groups = groups_of(a, dev->work_bytes - each);
    }
    attn_back(dev, a, work);
    parts = attn_sums_floats(a) <= FOLD ? 4 : 1;
    line = sizeof(float) * (size_t)(parts * attn_sums_floats(a));
    if (!a.dline || o->n == 0 || dev->err.code ||
        !cuda_ok(dev, "attention_bwd", cuda_allow_shared(fold_lines, line)))
        return;
    cuda_pdl_launch(dev, true, fold_lines, (unsigned)o->n_head, (unsigned)FOLD, line, a,
                    (float *)o->rel_bias.dtable, (int)o->rel_bias.n_bucket, a.groups, parts);
    cuda_launched(dev, "attention_bwd");
}
