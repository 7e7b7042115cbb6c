/*
 * attention/padded - attention of documents with padding, by the kernels of documents without.
 *
 * A document becomes two: the leading rows, which come before its first real one and see padding
 * alone, and the rest, whose keys are its real rows.  One pass treats the rest, causal; another
 * the leading rows, which see all rows of the document alike: as products by next to nothing
 * (0 would make NaN of a masked score).  In each pass the documents of the other have no keys,
 * and their rows are left as they are.
 *
 * Both passes have gradients of the same keys: those of the leading rows go to the workspace, and
 * are then added.
 */
#include "trainer/cuda/attention/attention.cuh"

enum { BLOCK = 256 };

static const float NEARLY_NONE = 1e-30f;

/* The two documents of each, in the workspace. */
struct halves {
    int32_t *doc_start;                     /* [2 n_docs + 1] */
    int32_t *rest_start, *rest_end;         /* keys: [2 n_docs] each */
    int32_t *leading_start, *leading_end;
};

/* Take them from a workspace; NULL: only their bytes are wanted. */
static uint64_t halves_of(struct halves *h, unsigned char *work, int64_t n_docs)
{
    int32_t *at = (int32_t *)work;

    if (work) {
        h->doc_start = at;
        h->rest_start = at + 2 * n_docs + 1;
        h->rest_end = h->rest_start + 2 * n_docs;
        h->leading_start = h->rest_end + 2 * n_docs;
        h->leading_end = h->leading_start + 2 * n_docs;
    }
    return cuda_align((uint64_t)(10 * n_docs + 1) * sizeof(int32_t));
}

/* Gradients of keys or of values by the leading rows, laid out as the results: width elements a
 * row. */
static uint64_t added_bytes(const struct device *dev, int64_t n, int64_t width)
{
    return cuda_align((uint64_t)(n * width) * ckpt_dtype_size(dev->act));
}

uint64_t attn_padded_bytes(const struct device *dev, int64_t n, int64_t n_docs, int64_t width,
                           bool back)
{
    return halves_of(NULL, NULL, n_docs) + (back ? 2 * added_bytes(dev, n, width) : 0);
}

__global__ void halve(const __grid_constant__ struct halves h, const int32_t *start,
                      const int32_t *real_start, const int32_t *real_end, int n_docs)
{
    int d = (int)(blockIdx.x * blockDim.x + threadIdx.x), first, real;

    if (d >= n_docs)
        return;
    first = start[d];
    real = real_start[d];
    h.doc_start[2 * d] = first;
    h.doc_start[2 * d + 1] = real;
    if (d == n_docs - 1)
        h.doc_start[2 * n_docs] = start[n_docs];
    h.rest_start[2 * d] = h.rest_end[2 * d] = first;
    h.rest_start[2 * d + 1] = real;
    h.rest_end[2 * d + 1] = real_end[d];
    h.leading_start[2 * d] = first;
    h.leading_end[2 * d] = real > first ? start[d + 1] : first;
    h.leading_start[2 * d + 1] = h.leading_end[2 * d + 1] = first;
}

/* A block for each row of keys: the gradients by the leading rows are added.  Padding has no
 * others. */
template <typename T>
__global__ void add_leading(const __grid_constant__ struct attn a, const T *dk, const T *dv,
                            const int32_t *start, const int32_t *real_start,
                            const int32_t *real_end, int n_docs)
{
    int row = (int)blockIdx.x, doc = attn_segment_of(start, n_docs, row);
    bool real = row >= real_start[doc] && row < real_end[doc];
    bool leading = real_start[doc] > start[doc];

    if (real && !leading)
        return;
    for (int c = (int)threadIdx.x; c < a.n_kv * a.dim; c += BLOCK) {
        int64_t at = row * a.kv_stride + c / a.dim * a.dkv_head + c % a.dim;
        float k = real ? cuda_to_f32(((const T *)a.dk)[at]) : 0.0f;
        float v = real ? cuda_to_f32(((const T *)a.dv)[at]) : 0.0f;

        ((T *)a.dk)[at] = cuda_from_f32<T>(leading ? k + cuda_to_f32(dk[at]) : k);
        ((T *)a.dv)[at] = cuda_from_f32<T>(leading ? v + cuda_to_f32(dv[at]) : v);
    }
}

static bool queue_halves(struct device *dev, const char *op, const struct halves &h,
                         const struct op_attention *o)
{
    halve<<<(unsigned)cuda_blocks(o->n_docs, BLOCK), BLOCK, 0, cuda_of(dev)->stream>>>(
        h, o->doc_start, o->real_start, o->real_end, (int)o->n_docs);
    return cuda_launched(dev, op);
}

/* The pass over the rest. */
static struct attn rest_of(struct attn a, const struct halves &h)
{
    a.doc_start = h.doc_start;
    a.n_docs *= 2;
    a.key_start = h.rest_start;
    a.key_end = h.rest_end;
    return a;
}

/* The pass over the leading rows. */
static struct attn leading_of(struct attn a, const struct halves &h)
{
    a = rest_of(a, h);
    a.key_start = h.leading_start;
    a.key_end = h.leading_end;
    a.whole = true;
    a.slopes = nullptr;
    a.scale2 = NEARLY_NONE;
    return a;
}

void attn_padded_fwd(struct device *dev, const struct op_attention *o)
{
    struct attn a = attn_of(dev, o), leading;
    struct halves h;
    unsigned char *work = (unsigned char *)cuda_work(
        dev, "attention_fwd", attn_padded_bytes(dev, o->n, o->n_docs, a.kv_stride, false));

    if (!work)
        return;
    halves_of(&h, work, o->n_docs);
    if (!queue_halves(dev, "attention_fwd", h, o))
        return;
    leading = leading_of(a, h);
    leading.scale = leading.scale2;         /* in plain kernels the sum's logarithm takes it */
    CUDA_ACT(dev, attn_fwd<T>(dev, "attention_fwd", rest_of(a, h));
             attn_fwd<T>(dev, "attention_fwd", leading));
}

void attn_padded_bwd(struct device *dev, const struct op_attention *o)
{
    struct attn a = attn_back_of(dev, o), leading;
    uint64_t own = attn_padded_bytes(dev, o->n, o->n_docs, a.kv_stride, true);
    uint64_t each = added_bytes(dev, o->n, a.kv_stride), at;
    struct halves h;
    unsigned char *work =
        (unsigned char *)cuda_work(dev, "attention_bwd", own + attn_back_bytes(dev, a));

    if (!work || o->n == 0)
        return;
    at = halves_of(&h, work, o->n_docs);
    if (!queue_halves(dev, "attention_bwd", h, o))
        return;
    attn_back(dev, rest_of(a, h), work + own);
    leading = leading_of(a, h);
    leading.dk = work + at;
    leading.dv = work + at + each;
    attn_back(dev, leading, work + own);
    if (dev->err.code)
        return;
    CUDA_ACT(dev, add_leading<T><<<(unsigned)o->n, BLOCK, 0, cuda_of(dev)->stream>>>(
                      a, (const T *)leading.dk, (const T *)leading.dv, o->doc_start,
                      o->real_start, o->real_end, (int)o->n_docs));
    cuda_launched(dev, "attention_bwd");
}
