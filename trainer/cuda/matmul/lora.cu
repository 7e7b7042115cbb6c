/*
 * lora - projections with LoRA beside the matrix.
 *
 * The product t B^T joins the matrix' own where one kernel computes both; else it is computed
 * first, and the matrix' product accumulates onto it. t = scale * xd A^T [n, r] and
 * dt = scale * dz B [n, r] have the device's type, rows padded to eight elements, and are
 * recomputed in backward.
 *
 * A sum of an adapter's product and a value of 16 bits alone is that value, while the product is
 * below half its last bit: in the first steps all of the adapter would be lost in the residual.
 * So the residual, and what dx is added to, come last, where they meet the whole projection.
 *
 * The norms of the rows of W' = W + scale B A, for a magnitude (DoRA), are computed by
 *   |W'_o|^2 = |W_o|^2 + B_o . (2 scale (W A^T)_o + scale^2 (A A^T) B_o),
 * without W' itself.
 *
 * With dropout of LoRA's input, its gradient is dropped out likewise:
 *   dx = dy W + drop((dz - dy) W + dt A), dz = gain dy with a magnitude, else dy.
 */
#include "trainer/cuda/matmul/lora.h"

#include "trainer/cuda/matmul/fp8.h"

enum { THREADS = 256, COLS = 32, GROUPS = 8 };

struct sizes {
    int64_t n, in, out, r;
    int64_t z, xr;                      /* columns of these */
    bool    x_drop, magnitude, drop, sums;
};

/* Bytes of the parts; s gets their places from base on. */
static uint64_t lay_out(struct lora_space *s, const struct device *dev, unsigned char *base,
                        const struct sizes *z)
{
    uint64_t at = 0, y = linear_bytes(dev, z->n * z->out);

    s->r8 = (z->r + 7) / 8 * 8;
    cuda_take(&s->t, base, &at, linear_bytes(dev, z->n * s->r8));
    cuda_take(&s->dt, base, &at, linear_bytes(dev, z->n * s->r8));
    cuda_take(&s->xd, base, &at, z->x_drop ? linear_bytes(dev, z->n * z->in) : 0);
    cuda_take(&s->xr, base, &at, linear_bytes(dev, z->n * z->xr));
    cuda_take(&s->z, base, &at, linear_bytes(dev, z->n * z->z));
    cuda_take(&s->dz, base, &at, z->magnitude ? y : 0);
    cuda_take(&s->gain, base, &at, z->magnitude ? (uint64_t)z->out * sizeof(float) : 0);
    cuda_take(&s->inv, base, &at, z->magnitude ? (uint64_t)z->out * sizeof(float) : 0);
    cuda_take(&s->wa, base, &at, z->magnitude ? (uint64_t)(z->out * z->r) * sizeof(float) : 0);
    cuda_take(&s->aa, base, &at, z->magnitude ? (uint64_t)(z->r * z->r) * sizeof(float) : 0);
    cuda_take(&s->dy, base, &at, z->drop ? y : 0);
    cuda_take(&s->part, base, &at, z->sums ? linear_sums_bytes(z->out) : 0);
    s->busy = at;
    return at;
}

/* Whether the residual is added after all else: with dropout of the result it always is. */
static bool residual_last(const struct op_linear *a) { return a->residual && a->drop.p <= 0; }

static bool dx_adds(const struct op_linear *a)
{
    return a->dx && (a->flags & OP_LINEAR_DX_ADD) && a->x_act == OP_ACT_NONE;
}

static bool open_space(struct lora_space *s, struct device *dev, const struct op_linear *a,
                       bool back, const char *op)
{
    bool x_drop = a->proj.lora.drop.p > 0, magnitude = a->proj.lora.magnitude != NULL;
    struct sizes z = {a->n,
                      a->n_in,
                      a->n_out,
                      a->proj.lora.rank,
                      magnitude || (!back && residual_last(a)) ? a->n_out : 0,
                      x_drop || (back && dx_adds(a)) ? a->n_in : 0,
                      x_drop,
                      magnitude,
                      back && a->drop.p > 0,
                      back && a->proj.db != NULL};
    unsigned char *base = (unsigned char *)matmul_work(dev, op, lay_out(s, dev, NULL, &z));

    if (!base)
        return false;
    lay_out(s, dev, base, &z);
    if (a->proj.lora.t)
        s->t = (unsigned char *)a->proj.lora.t;
    return true;
}

uint64_t lora_linear_bytes(const struct device *dev, const struct op_limits *l, int64_t in,
                           int64_t out)
{
    int64_t D = l->dim > l->embed ? l->dim : l->embed;      /* of residuals, and of an x that
                                                               several projections read */
    struct sizes z = {l->n,
                      in,
                      out,
                      l->lora_rank,
                      l->lora_magnitude ? out : D,
                      l->lora_drop ? in : l->train ? D : 0,
                      l->lora_drop,
                      l->lora_magnitude,
                      false,
                      false};
    uint64_t many = lora_many_bytes(dev, l->n, D, l->lora_rank, l->train), one;
    struct lora_space none;

    one = lay_out(&none, dev, NULL, &z);
    return one > many ? one : many;
}

/* -- products --------------------------------------------------------------------------------- */

/* to[n, n_in] = drop(x) + add + more, with LoRA's dropout; rest as in linear_mix. */
static void drop_in(struct device *dev, const struct op_linear *a, void *to, void *rest,
                    const void *x, const void *add, const void *more)
{
    struct linear_mix m = {};

    m.to = to;
    m.rest = rest;
    m.x = x;
    m.add = add;
    m.more = more;
    m.n = a->n;
    m.width = a->n_in;
    m.drop = a->proj.lora.drop;
    linear_mix(dev, &m);
}

/* t = scale * xd A^T; where there is dropout, xd = drop(x) first, and with rest x - xd. */
static void down(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                 bool rest, bool back)
{
    int64_t r = a->proj.lora.rank;
    struct matmul_args p = matmul_of(dev, "linear_fwd", a->n, r, a->n_in, s->busy);

    if (s->xd)
        drop_in(dev, a, s->xd, rest ? s->xr : NULL, a->x, NULL, NULL);
    if (back && a->proj.lora.t)
        return;
    p.lda = p.ldb = a->n_in;
    p.a = s->xd ? s->xd : a->x;
    p.b = a->proj.lora.a;
    p.b_t = true;
    p.d = s->t;
    p.ldd = s->r8;
    p.alpha = a->proj.lora.scale;
    matmul(dev, &p);
}

void lora_up(struct device *dev, const struct op_linear *a, const struct lora_space *s,
             void *to, int64_t ld)
{
    int64_t r = a->proj.lora.rank;
    struct matmul_args p = matmul_of(dev, "linear_fwd", a->n, a->n_out, r, s->busy);

    p.ldb = r;
    p.a = s->t;
    p.lda = s->r8;
    p.b = a->proj.lora.b;
    p.b_t = true;
    p.d = to;
    p.ldd = ld;
    matmul(dev, &p);
}

struct matmul_part lora_part(const struct op_linear *a, const struct lora_space *s)
{
    return {s->t, a->proj.lora.b, s->r8, a->proj.lora.rank, a->proj.lora.rank};
}

struct matmul_part lora_part_back(const struct op_linear *a, const struct lora_space *s)
{
    return {s->dt, a->proj.lora.a, s->r8, a->n_in, a->proj.lora.rank};
}

void lora_down_bwd(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                        const void *dz, int64_t ld)
{
    int64_t r = a->proj.lora.rank;
    struct matmul_args p = matmul_of(dev, "linear_bwd", a->n, r, a->n_out, s->busy);

    p.ldb = r;
    p.a = dz;
    p.lda = ld;
    p.b = a->proj.lora.b;
    p.d = s->dt;
    p.ldd = s->r8;
    p.alpha = a->proj.lora.scale;
    matmul(dev, &p);
}

/* to[n, n_in] = dt A */
static void up_bwd(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                   void *to)
{
    int64_t r = a->proj.lora.rank;
    struct matmul_args p = matmul_of(dev, "linear_bwd", a->n, a->n_in, r, s->busy);

    p.ldb = p.ldd = a->n_in;
    p.a = s->dt;
    p.lda = s->r8;
    p.b = a->proj.lora.a;
    p.d = to;
    matmul(dev, &p);
}

void lora_add_outer(struct device *dev, const struct lora_space *s, void *to, const void *x,
                      int64_t x_ld, const void *y, int64_t y_ld, int64_t rows, int64_t m,
                      int64_t n)
{
    struct matmul_args p = matmul_of(dev, "linear_bwd", m, n, rows, s->busy);

    p.ldd = n;
    p.a = x;
    p.lda = x_ld;
    p.a_t = true;
    p.b = y;
    p.ldb = y_ld;
    p.d = to;
    p.out = CKPT_F32;
    p.beta = 1.0f;
    matmul(dev, &p);
}

/* -- a magnitude ------------------------------------------------------------------------------ */

/* 32 rows of W' a block: 8 groups of threads share the columns of each.  step is from row to row
 * of W, each from column to column. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
gain_kernel(float *gain, float *inv, const T *w, int64_t step, int64_t each, const T *b,
            const T *magnitude, const float *wa, const float *aa, int64_t in, int64_t out, int r,
            float scale)
{
    __shared__ float part[GROUPS][COLS];
    int lane = (int)threadIdx.x % COLS, group = (int)threadIdx.x / COLS;
    int64_t o = (int64_t)blockIdx.x * COLS + lane;
    float sum = 0;

    if (o < out) {
        for (int64_t c = group; c < in; c += GROUPS) {
            float v = cuda_to_f32(w[o * step + c * each]);

            sum += v * v;
        }
        for (int j = group; j < r; j += GROUPS) {
            float inner = 2.0f * wa[o * r + j];

            for (int k = 0; k < r; k++)
                inner += scale * aa[j * r + k] * cuda_to_f32(b[o * r + k]);
            sum += scale * cuda_to_f32(b[o * r + j]) * inner;
        }
    }
    part[group][lane] = sum;
    __syncthreads();
    if (group != 0 || o >= out)
        return;
    for (int g = 1; g < GROUPS; g++)
        sum += part[g][lane];
    inv[o] = 1.0f / sqrtf(sum);
    gain[o] = cuda_to_f32(magnitude[o]) * inv[o];
}

/* gain and inv, by way of wa and aa. */
static void gains(struct device *dev, const struct op_linear *a, const struct lora_space *s)
{
    const struct op_lora *l = &a->proj.lora;
    struct matmul_args p = matmul_of(dev, "linear_fwd", a->n_out, l->rank, a->n_in, s->busy);
    int64_t step = op_linear_in_out(a) ? 1 : a->n_in, each = op_linear_in_out(a) ? a->n_out : 1;
    cudaStream_t stream = cuda_of(dev)->stream;

    p.ldd = l->rank;
    p.ldb = a->n_in;
    p.a = a->proj.w;
    p.a_t = op_linear_in_out(a);
    p.lda = op_linear_cols(a);
    p.b = l->a;
    p.b_t = true;
    p.d = s->wa;
    p.out = CKPT_F32;
    matmul(dev, &p);
    p.m = l->rank;
    p.a = l->a;
    p.a_t = false;
    p.lda = a->n_in;
    p.d = s->aa;
    matmul(dev, &p);
    if (dev->err.code)
        return;
    CUDA_ACT(dev, cuda_launch(stream, gain_kernel<T>, cuda_blocks(a->n_out, COLS), THREADS,
                              s->gain, s->inv, (const T *)a->proj.w, step, each, (const T *)l->b,
                              (const T *)l->magnitude, s->wa, s->aa, a->n_in, a->n_out,
                              (int)l->rank, l->scale));
    cuda_launched(dev, "linear_fwd");
}

/* to = x * (gain - less) + add, by columns of the output. */
static void times(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                  void *to, const void *x, int64_t ld, float less, const void *add)
{
    struct linear_mix m = {};

    m.to = to;
    m.x = x;
    m.add = add;
    m.gain = s->gain;
    m.less = less;
    m.n = a->n;
    m.width = a->n_out;
    m.ld = ld;
    linear_mix(dev, &m);
}

/* dm[o] += inv[o] * sum over rows of dy[i, o] z[i, o] */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
magnitude_kernel(float *dm, const float *inv, const T *dy, int64_t ld, const T *z, int64_t n,
                 int64_t out)
{
    __shared__ float part[GROUPS][COLS];
    int lane = (int)threadIdx.x % COLS, group = (int)threadIdx.x / COLS;
    int64_t o = (int64_t)blockIdx.x * COLS + lane;
    float sum = 0;

    for (int64_t i = group; o < out && i < n; i += GROUPS)
        sum += cuda_to_f32(dy[i * ld + o]) * cuda_to_f32(z[i * out + o]);
    part[group][lane] = sum;
    __syncthreads();
    if (group != 0 || o >= out)
        return;
    for (int g = 1; g < GROUPS; g++)
        sum += part[g][lane];
    dm[o] += sum * inv[o];
}

/* z = x W^T + t B^T; with a magnitude x is xd. */
static void adapted(struct device *dev, const struct op_linear *a, const struct lora_space *s)
{
    bool drops = a->proj.lora.magnitude && s->xd;
    struct matmul_args p = linear_product(dev, a, drops ? s->xd : a->x, s->z, a->n_out);

    lora_up(dev, a, s, s->z, a->n_out);
    p.beta = 1.0f;
    p.busy = s->busy;
    if (!a->proj.lora.magnitude)
        fp8_fwd(dev, a, &p);
    matmul(dev, &p);
}

/* -- the operations --------------------------------------------------------------------------- */

/* From z to the result. */
static void finish(struct device *dev, const struct op_linear *a, const struct lora_space *s)
{
    struct linear_finish f = {};

    f.out = a->out;
    f.pre = a->pre;
    f.p = s->z;
    f.p_ld = a->n_out;
    f.bias = a->proj.b;
    f.residual = a->residual;
    f.n = a->n;
    f.width = a->n_out;
    f.ld = linear_out_ld(a);
    f.act = a->act;
    f.drop = a->drop;
    linear_finish(dev, &f);
}

static void magnitude_fwd(struct device *dev, const struct op_linear *a, const struct lora_space *s)
{
    const void *add = a->drop.p > 0 ? NULL : a->residual;
    struct op_linear rest = *a;

    gains(dev, a, s);
    adapted(dev, a, s);
    times(dev, a, s, s->z, s->z, a->n_out, 0.0f, s->xd ? add : NULL);
    if (s->xd) {
        rest.x = s->xr;
        rest.flags &= ~(unsigned)OP_LINEAR_SAME_X;
        linear_main(dev, &rest, s->z, a->n_out, s->busy);
        return;
    }
    finish(dev, a, s);
}

void lora_linear_fwd(struct device *dev, const struct op_linear *a)
{
    void *to = a->pre ? a->pre : a->out;
    struct matmul_part delta;
    struct lora_space s;

    if (!open_space(&s, dev, a, false, "linear_fwd"))
        return;
    down(dev, a, &s, a->proj.lora.magnitude != NULL, false);
    delta = lora_part(a, &s);
    if (a->proj.lora.magnitude) {
        magnitude_fwd(dev, a, &s);
        return;
    }
    if (linear_fused(dev, a, &delta, s.busy))
        return;
    if (residual_last(a)) {
        adapted(dev, a, &s);
        finish(dev, a, &s);
        return;
    }
    lora_up(dev, a, &s, to, linear_out_ld(a));
    linear_main(dev, a, to, linear_out_ld(a), s.busy);
}

/* dx from dy and dt, and x where it is recomputed. */
static void dx_of(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                  const void *dy, int64_t ld)
{
    struct matmul_part delta = lora_part_back(a, s);
    const void *dz = s->dz ? s->dz : dy;
    int64_t dz_ld = s->dz ? a->n_out : ld;
    struct op_linear through = *a;      /* gradients that go to the workspace */
    bool add = dx_adds(a);

    if (!s->xd && linear_dx_fused(dev, a, dz, dz_ld, &delta, 1, add, s->busy))
        return;
    through.dx = add ? s->xr : a->dx;
    if (!s->xd) {
        up_bwd(dev, a, s, through.dx);
        linear_dx(dev, &through, dz, dz_ld, true, s->busy);
        if (add)
            drop_in(dev, a, a->dx, NULL, s->xr, a->dx, NULL);
        return;
    }
    up_bwd(dev, a, s, s->xr);
    if (s->gain) {                      /* z: dz - dy */
        times(dev, a, s, s->z, dy, ld, 1.0f, NULL);
        through.dx = s->xr;
        through.x_act = OP_ACT_NONE;
        linear_dx(dev, &through, s->z, a->n_out, true, s->busy);
    }
    if (add) {                          /* xd is computed anew for the adapter's gradients */
        through.dx = s->xd;
        linear_dx(dev, &through, dy, ld, false, s->busy);
        drop_in(dev, a, a->dx, NULL, s->xr, s->xd, a->dx);
        return;
    }
    drop_in(dev, a, a->dx, NULL, s->xr, NULL, NULL);
    linear_dx(dev, a, dy, ld, true, s->busy);
}

static void adapter_grads(struct device *dev, const struct op_linear *a,
                          const struct lora_space *s, const void *dy, int64_t ld)
{
    const struct op_lora *l = &a->proj.lora;
    const void *dz = s->dz ? s->dz : dy;

    down(dev, a, s, false, true);
    if (l->db)
        lora_add_outer(dev, s, l->db, dz, s->dz ? a->n_out : ld, s->t, s->r8, a->n, a->n_out,
                       l->rank);
    if (l->da)
        lora_add_outer(dev, s, l->da, s->dt, s->r8, s->xd ? s->xd : a->x, a->n_in, a->n, l->rank,
                  a->n_in);
    if (!s->z || !l->dmagnitude)
        return;
    adapted(dev, a, s);
    if (dev->err.code)
        return;
    CUDA_ACT(dev, cuda_launch(cuda_of(dev)->stream, magnitude_kernel<T>,
                              cuda_blocks(a->n_out, COLS), THREADS, (float *)l->dmagnitude,
                              s->inv, (const T *)dy, ld, (const T *)s->z, a->n, a->n_out));
    cuda_launched(dev, "linear_bwd");
}

void lora_linear_bwd(struct device *dev, const struct op_linear *a)
{
    const struct op_lora *l = &a->proj.lora;
    int64_t ld = linear_out_ld(a);
    const void *dy = a->dout;
    struct lora_space s;

    if (!open_space(&s, dev, a, true, "linear_bwd"))
        return;
    if (s.dy) {
        dy = linear_dropped(dev, a, s.dy);
        ld = a->n_out;
    }
    linear_db(dev, a, dy, ld, s.part);
    if (s.gain) {
        gains(dev, a, &s);
        times(dev, a, &s, s.dz, dy, ld, 0.0f, NULL);
    }
    lora_down_bwd(dev, a, &s, s.dz ? s.dz : dy, s.dz ? a->n_out : ld);
    if (a->dx)
        dx_of(dev, a, &s, dy, ld);
    if (l->da || l->db || l->dmagnitude)
        adapter_grads(dev, a, &s, dy, ld);
    linear_dw(dev, a, dy, ld, s.busy);
}
