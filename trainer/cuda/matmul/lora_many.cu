/*
 * lora_many - projections with LoRA that read the same x, at once.
 *
 * The factors A are stacked in the workspace, [R, n_in], R the sum of the ranks: so x is read
 * once for all t = scale * x A^T ([n, R], side by side), and once for all gradients of A; and
 * one product, dt A, computes the gradient of x through all of them, which the matrices' own
 * products join or accumulate onto.  LoRA with a magnitude or dropout, with a residual, ranks
 * that are not multiples of 8 and different scales go one by one.
 */
#include "trainer/cuda/matmul/lora.h"

#include "trainer/cuda/row.h"

enum { MANY = 3, THREADS = 256 };

/* One array of each. */
struct each {
    void   *at[MANY];
    int64_t begin[MANY + 1];            /* rows before its own */
};

struct many {
    struct lora_space all;              /* t, dt: [n, R] */
    unsigned char    *a;                /* [R, n_in] */
    float            *da;               /* [R, n_in] */
    unsigned char    *dx;               /* [n, n_in]: of what is added to dx; NULL: dx itself */
    struct each       rank;             /* begin: columns of t */
};

static bool stacks(const struct op_linear *a, int n)
{
    const struct op_linear *first = a;

    if (n < 2 || n > MANY)
        return false;
    for (int i = 0; i < n; i++, a++) {
        const struct op_lora *l = &a->proj.lora;

        if (!l->rank || l->rank % 8 || l->magnitude || l->drop.p > 0 || a->drop.p > 0 ||
            a->residual || a->x_act != OP_ACT_NONE || l->scale != first->proj.lora.scale ||
            a->x != first->x || a->n != first->n || a->n_in != first->n_in || a->dx != first->dx)
            return false;
    }
    return true;
}

static uint64_t lay_out(struct many *s, const struct device *dev, unsigned char *base, int64_t n,
                        int64_t in, int64_t R, bool adds)
{
    uint64_t at = 0;

    cuda_take(&s->all.t, base, &at, linear_bytes(dev, n * R));
    cuda_take(&s->all.dt, base, &at, linear_bytes(dev, n * R));
    cuda_take(&s->a, base, &at, linear_bytes(dev, R * in));
    cuda_take(&s->da, base, &at, (uint64_t)(R * in) * sizeof(float));
    cuda_take(&s->dx, base, &at, adds ? linear_bytes(dev, n * in) : 0);
    return at;
}

uint64_t lora_many_bytes(const struct device *dev, int64_t n, int64_t in, int64_t rank, bool back)
{
    struct many none;

    return lay_out(&none, dev, NULL, n, in, MANY * ((rank + 7) / 8 * 8), back);
}

static bool open_many(struct many *s, struct device *dev, const struct op_linear *a, int n,
                      const char *op, bool back)
{
    struct many none;
    unsigned char *base;
    bool adds = back && a->dx && (a->flags & OP_LINEAR_DX_ADD);
    uint64_t bytes, sums = 0;
    int64_t R = 0;

    *s = {};
    for (int i = 0; i < n; i++) {
        uint64_t some = back && a[i].proj.db ? linear_sums_bytes(a[i].n_out) : 0;

        s->rank.at[i] = (void *)(uintptr_t)a[i].proj.lora.a;
        s->rank.begin[i] = R;
        R += a[i].proj.lora.rank;
        sums = some > sums ? some : sums;
    }
    for (int i = n; i <= MANY; i++)
        s->rank.begin[i] = R;
    bytes = lay_out(&none, dev, NULL, a->n, a->n_in, R, adds);
    base = (unsigned char *)matmul_work(dev, op, bytes + sums);
    if (!base)
        return false;
    lay_out(s, dev, base, a->n, a->n_in, R, adds);
    if (a->proj.lora.t)
        s->all.t = (unsigned char *)a->proj.lora.t;
    s->all.part = (float *)(void *)(base + bytes);
    s->all.r8 = R;
    s->all.busy = bytes + sums;
    return true;
}

/* -- stacked arrays --------------------------------------------------------------------------- */

/* The array that row r belongs to. */
__device__ __forceinline__ int array_of(const struct each &e, int64_t r)
{
    return r < e.begin[1] ? 0 : r < e.begin[2] ? 1 : 2;
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) stack_kernel(T *to, struct each from, int64_t in)
{
    int64_t r = blockIdx.y, c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    int i = array_of(from, r);

    if (c < in)
        *(cuda_pack<T, N> *)(to + r * in + c) =
            *(const cuda_pack<T, N> *)((const T *)from.at[i] + (r - from.begin[i]) * in + c);
}

template <int N>
static __global__ void __launch_bounds__(THREADS)
add_kernel(struct each to, const float *from, int64_t in)
{
    int64_t r = blockIdx.y, c = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * N;
    int i = array_of(to, r);
    float *sum = (float *)to.at[i] + (r - to.begin[i]) * in + c, x[N], y[N];

    if (c >= in || !to.at[i])
        return;
    row_get<float, N>(x, from + r * in + c);
    row_get<float, N>(y, sum);
#pragma unroll
    for (int j = 0; j < N; j++)
        y[j] += x[j];
    row_put<float, N>(sum, y);
}

static bool wide(const struct each *e, int64_t in)
{
    bool fine = in % 8 == 0;

    for (int i = 0; i < MANY; i++)
        fine &= cuda_aligned(e->at[i], 16);
    return fine;
}

static dim3 grid_of(int64_t in, int64_t R, int N)
{
    return dim3((unsigned)cuda_blocks(in, THREADS * N), (unsigned)R);
}

static void stack(struct device *dev, const struct op_linear *a, const struct many *s)
{
    int64_t in = a->n_in, R = s->all.r8;

    if (dev->err.code)
        return;
    CUDA_ACT(dev, {
        constexpr int N = 16 / (int)sizeof(T);

        if (wide(&s->rank, in))
            cuda_pdl_launch(dev, false, stack_kernel<T, N>, grid_of(in, R, N), THREADS, 0,
                            (T *)(void *)s->a, s->rank, in);
        else
            cuda_pdl_launch(dev, false, stack_kernel<T, 1>, grid_of(in, R, 1), THREADS, 0,
                            (T *)(void *)s->a, s->rank, in);
    });
    cuda_launched(dev, "linear");
}

/* Each A's gradient += its rows of da. */
static void add_rows(struct device *dev, const struct op_linear *a, int n, const struct many *s)
{
    struct each to = s->rank;
    int64_t in = a->n_in;

    for (int i = 0; i < MANY; i++)
        to.at[i] = i < n ? a[i].proj.lora.da : NULL;
    if (dev->err.code)
        return;
    if (wide(&to, in))
        cuda_pdl_launch(dev, false, add_kernel<4>, grid_of(in, s->all.r8, 4), THREADS, 0, to,
                        s->da, in);
    else
        cuda_pdl_launch(dev, false, add_kernel<1>, grid_of(in, s->all.r8, 1), THREADS, 0, to,
                        s->da, in);
    cuda_launched(dev, "linear_bwd");
}

/* -- the operations --------------------------------------------------------------------------- */

/* t of all. */
static void down(struct device *dev, const struct op_linear *a, const struct many *s)
{
    int64_t R = s->all.r8;
    struct matmul_args p = matmul_of(dev, "linear_fwd", a->n, R, a->n_in, s->all.busy);

    p.ldd = R;
    p.lda = p.ldb = a->n_in;
    p.a = a->x;
    p.b = s->a;
    p.b_t = true;
    p.d = s->all.t;
    p.alpha = a->proj.lora.scale;
    matmul(dev, &p);
}

/* The space of projection i alone: its columns of t and dt. */
static struct lora_space own(const struct device *dev, const struct many *s, int i)
{
    struct lora_space o = s->all;

    o.t += linear_bytes(dev, s->rank.begin[i]);
    o.dt += linear_bytes(dev, s->rank.begin[i]);
    return o;
}

void cuda_linears_fwd(struct device *dev, const struct op_linear *a, int n)
{
    bool at_once = stacks(a, n);
    struct many s;

    for (int i = 0; !at_once && i < n; i++)
        cuda_linear_fwd(dev, &a[i]);
    if (!at_once || dev->err.code || a->n == 0 || !open_many(&s, dev, a, n, "linear_fwd", false))
        return;
    stack(dev, a, &s);
    down(dev, a, &s);
    for (int i = 0; i < n; i++) {
        struct lora_space o = own(dev, &s, i);
        void *to = a[i].pre ? a[i].pre : a[i].out;
        struct matmul_part delta = lora_part(&a[i], &o);

        if (linear_fused(dev, &a[i], &delta, o.busy))
            continue;
        lora_up(dev, &a[i], &o, to, linear_out_ld(&a[i]));
        linear_main(dev, &a[i], to, linear_out_ld(&a[i]), o.busy);
    }
}

/* dx: first through all adapters, then through each matrix. */
static void dx_of(struct device *dev, const struct op_linear *a, int n, const struct many *s)
{
    int64_t R = s->all.r8;
    struct matmul_args p = matmul_of(dev, "linear_bwd", a->n, a->n_in, R, s->all.busy);
    struct matmul_part more[MANY] = {{s->all.dt, s->a, R, a->n_in, R}};
    struct linear_mix sum = {};
    bool alike = true;

    for (int i = 1; i < n; i++) {
        more[i] = {a[i].dout, a[i].proj.w, linear_out_ld(&a[i]), a->n_in, a[i].n_out};
        alike &= !op_linear_in_out(&a[i]);
    }
    if (alike && linear_dx_fused(dev, a, a->dout, linear_out_ld(a), more, n,
                                 (a->flags & OP_LINEAR_DX_ADD), s->all.busy))
        return;
    p.ldb = p.ldd = a->n_in;
    p.lda = R;
    p.a = s->all.dt;
    p.b = s->a;
    p.d = s->dx ? s->dx : a->dx;
    matmul(dev, &p);
    for (int i = 0; i < n; i++) {
        struct op_linear own = a[i];

        own.dx = p.d;
        linear_dx(dev, &own, a[i].dout, linear_out_ld(&a[i]), true, s->all.busy);
    }
    if (!s->dx)
        return;
    sum.to = a->dx;
    sum.x = s->dx;
    sum.add = a->dx;
    sum.n = a->n;
    sum.width = a->n_in;
    linear_mix(dev, &sum);
}

/* Gradients of all A: dt^T x. */
static void a_grads(struct device *dev, const struct op_linear *a, int n, const struct many *s)
{
    int64_t R = s->all.r8;
    struct matmul_args p = matmul_of(dev, "linear_bwd", R, a->n_in, a->n, s->all.busy);

    p.lda = R;
    p.ldb = p.ldd = a->n_in;
    p.a = s->all.dt;
    p.a_t = true;
    p.b = a->x;
    p.d = s->da;
    p.out = CKPT_F32;
    matmul(dev, &p);
    add_rows(dev, a, n, s);
}

void cuda_linears_bwd(struct device *dev, const struct op_linear *a, int n)
{
    bool at_once = stacks(a, n), a_trained = false, b_trained = false;
    struct many s;

    for (int i = 0; !at_once && i < n; i++)
        cuda_linear_bwd(dev, &a[i]);
    for (int i = 0; at_once && i < n && a->n == 0; i++)
        cuda_linear_bwd(dev, &a[i]);    /* clears fresh gradients */
    if (!at_once || dev->err.code || a->n == 0 || !open_many(&s, dev, a, n, "linear_bwd", true))
        return;
    for (int i = 0; i < n; i++) {
        struct lora_space o = own(dev, &s, i);

        lora_down_bwd(dev, &a[i], &o, a[i].dout, linear_out_ld(&a[i]));
        a_trained |= a[i].proj.lora.da != NULL;
        b_trained |= a[i].proj.lora.db != NULL;
    }
    stack(dev, a, &s);
    if (a->dx)
        dx_of(dev, a, n, &s);
    if (b_trained && !a->proj.lora.t)
        down(dev, a, &s);
    for (int i = 0; i < n; i++) {
        struct lora_space o = own(dev, &s, i);
        int64_t ld = linear_out_ld(&a[i]);

        if (a[i].proj.lora.db)
            lora_add_outer(dev, &o, a[i].proj.lora.db, a[i].dout, ld, o.t, o.r8, a->n, a[i].n_out,
                           a[i].proj.lora.rank);
        linear_db(dev, &a[i], a[i].dout, ld, o.part);
        linear_dw(dev, &a[i], a[i].dout, ld, o.busy);
    }
    if (a_trained)
        a_grads(dev, a, n, &s);
}
