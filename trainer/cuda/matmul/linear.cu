/*
 * linear - projections with bias, activation, residual and dropout, and their backward.
 *
 * Bias, residual (as C), ReLU and 16-bit GELU by tanh go into the product's epilogue, and their
 * slopes into that of the backward (ReLU's as bits, computed by a separate pass); the rest is
 * one elementwise pass after the product.  A few rows have a kernel of their own.  Backward
 * computes a bias' gradient first, while dout may still be in the cache.
 */
#include "trainer/cuda/matmul/linear.h"

#include "trainer/cuda/matmul/fp8.h"
#include "trainer/cuda/matmul/gemv.h"
#include "trainer/cuda/matmul/lora.h"

enum { TRIAL_BYTES = 64 << 20 };        /* for timing products that accumulate */

struct matmul_args linear_product(const struct device *dev, const struct op_linear *a,
                                  const void *x, void *to, int64_t ld)
{
    struct matmul_args p = matmul_of(dev, "linear_fwd", a->n, a->n_out, a->n_in, 0);

    p.a = x;
    p.lda = a->n_in;
    p.b = a->proj.w;
    p.b_t = !op_linear_in_out(a);
    p.ldb = op_linear_cols(a);
    p.d = to;
    p.ldd = ld;
    return p;
}

/* The product with everything that an epilogue can do: true when nothing is left to do. */
static bool fused(struct device *dev, const struct op_linear *a, const struct matmul_args *product,
                  const void *add, int64_t add_ld, uint64_t busy)
{
    struct matmul_args p = *product;
    bool narrow = dev->act != CKPT_F32;

    p.d = a->out;
    if (a->drop.p > 0 || (a->pre && (add || a->act != OP_ACT_GELU_TANH)))
        return false;
    switch (a->act) {
    case OP_ACT_NONE:
        p.epilogue = a->proj.b ? MATMUL_BIAS : MATMUL_PLAIN;
        break;
    case OP_ACT_RELU:
        p.epilogue = MATMUL_RELU;
        break;
    case OP_ACT_GELU_TANH:
        p.epilogue = MATMUL_GELU;
        p.aux = a->pre;
        if (narrow && (!a->pre || a->n_out % 8 == 0))
            break;
        return false;
    default:
        return false;
    }
    p.bias = a->proj.b;
    p.c = add;
    p.ldc = add_ld;
    p.beta = add ? 1.0f : 0.0f;
    p.busy = busy;
    return matmul(dev, &p);
}

void linear_main(struct device *dev, const struct op_linear *a, const void *add, int64_t add_ld,
                 uint64_t busy)
{
    struct matmul_args p = linear_product(dev, a, a->x, a->pre ? a->pre : a->out,
                                          linear_out_ld(a));
    struct linear_finish f = {};

    p.busy = busy;
    fp8_fwd(dev, a, &p);
    if (fused(dev, a, &p, add, add_ld, busy))
        return;
    p.epilogue = a->proj.b ? MATMUL_BIAS : MATMUL_PLAIN;
    p.bias = a->proj.b;
    p.c = add;
    p.ldc = add_ld;
    p.beta = add ? 1.0f : 0.0f;
    if (!matmul(dev, &p)) {             /* the pass after it adds the bias */
        p.epilogue = MATMUL_PLAIN;
        p.bias = NULL;
        matmul(dev, &p);
        f.bias = a->proj.b;
        f.pre = a->pre;
    }
    f.out = a->out;
    f.p = p.d;
    f.residual = a->drop.p > 0 ? a->residual : NULL;
    f.n = a->n;
    f.width = a->n_out;
    f.ld = linear_out_ld(a);
    f.act = a->act;
    f.drop = a->drop;
    if (f.out != f.p || f.bias || f.act != OP_ACT_NONE || f.drop.p > 0)
        linear_finish(dev, &f);
}

bool linear_fused(struct device *dev, const struct op_linear *a, const struct matmul_part *more,
                  uint64_t busy)
{
    struct matmul_args p = linear_product(dev, a, a->x, a->out, linear_out_ld(a));

    p.part = more;
    p.parts = 1;
    return !dev->fp8 && !op_linear_in_out(a) &&
           fused(dev, a, &p, a->residual, linear_out_ld(a), busy);
}

/* Compute a few rows, with the norm before and the gate after (NULL: none). */
static bool by_gemv(struct device *dev, const struct op_rownorm *norm,
                    const struct op_linear *a, const struct op_gate *gate)
{
    struct gemv g = {};

    if (op_linear_in_out(a) || a->proj.lora.rank || a->drop.p > 0 || (a->pre && a->residual) ||
        (gate && a->proj.b))
        return false;
    g.op = gate ? "gated_fwd" : "linear_fwd";
    g.norm = norm;
    g.out = gate ? gate->out : a->out;
    g.x = a->x;
    g.w = a->proj.w;
    g.n = a->n;
    g.n_in = a->n_in;
    g.n_out = a->n_out;
    g.out_ld = gate ? gate->ff : linear_out_ld(a);
    g.alpha = 1.0f;
    g.act = gate ? gate->act : a->act;
    g.gated = gate != NULL;
    if (!gate) {
        g.pre = a->pre;
        g.b = a->proj.b;
        g.residual = a->residual;
    }
    return gemv(dev, &g);
}

void cuda_linear_fwd(struct device *dev, const struct op_linear *a)
{
    if (dev->err.code || a->n == 0)
        return;
    if (a->proj.lora.rank)
        lora_linear_fwd(dev, a);
    else if (!by_gemv(dev, NULL, a, NULL))
        linear_main(dev, a, a->drop.p > 0 ? NULL : a->residual, linear_out_ld(a), 0);
}

void cuda_gated_fwd(struct device *dev, const struct op_linear *a, const struct op_gate *gate)
{
    if (by_gemv(dev, NULL, a, gate))
        return;
    cuda_linear_fwd(dev, a);
    cuda_gate_fwd(dev, gate);
}

void cuda_normed_fwd(struct device *dev, const struct op_rownorm *norm, const struct op_linear *a,
                     const struct op_gate *gate)
{
    if (norm->n == a->n && by_gemv(dev, norm, a, gate))
        return;
    cuda_norm_fwd(dev, norm);
    if (gate)
        cuda_gated_fwd(dev, a, gate);
    else
        cuda_linear_fwd(dev, a);
}

/* The product with ReLU's slope at x_pre in its epilogue, as bits. */
static bool fused_drelu(struct device *dev, const struct op_linear *a,
                        const struct matmul_args *product, uint64_t busy)
{
    uint64_t bytes = cuda_align((uint64_t)(a->n * a->n_in) / 8);
    struct matmul_args p = *product;
    unsigned char *work;

    if (a->x_act != OP_ACT_RELU || (a->x != a->x_pre && !(a->flags & OP_LINEAR_X_KEPT)) ||
        a->x_drop.p > 0 || dev->act == CKPT_F32 || a->n_in % 128 || p.scale_a)
        return false;
    work = (unsigned char *)matmul_work(dev, "linear_bwd", cuda_align(busy) + bytes);
    if (!work)
        return false;
    p.epilogue = MATMUL_DRELU;
    p.aux = work + cuda_align(busy);
    p.busy = cuda_align(busy) + bytes;
    if (!matmul_supported(dev, &p))
        return false;
    linear_positive(dev, p.aux, a->x_pre, a->n, a->n_in);
    return matmul(dev, &p);
}

/* The product for dx, without preparation or epilogue. */
static struct matmul_args dx_product(const struct device *dev, const struct op_linear *a,
                                     const void *dy, int64_t ld, bool add, uint64_t busy)
{
    struct matmul_args p = matmul_of(dev, "linear_bwd", a->n, a->n_in, a->n_out, busy);

    p.a = dy;
    p.lda = ld;
    p.b = a->proj.w;
    p.b_t = op_linear_in_out(a);
    p.ldb = op_linear_cols(a);
    p.d = a->dx;
    p.ldd = a->n_in;
    p.beta = add ? 1.0f : 0.0f;
    return p;
}

bool linear_dx_fused(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
                     const struct matmul_part *more, int n, bool add, uint64_t busy)
{
    struct matmul_args p = dx_product(dev, a, dy, ld, add, busy);

    p.part = more;
    p.parts = n;
    return !dev->fp8 && !op_linear_in_out(a) && a->x_act == OP_ACT_NONE && matmul(dev, &p);
}

void linear_dx(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld, bool add,
               uint64_t busy)
{
    struct matmul_args p = dx_product(dev, a, dy, ld, add, busy);
    struct op_drop none = {};
    void *x = a->x == a->x_pre || (a->flags & OP_LINEAR_X_KEPT) ? NULL : a->x;
    bool act = a->x_act != OP_ACT_NONE, sloped = false;

    fp8_dx(dev, a, dy, ld, &p);
    if (fused_drelu(dev, a, &p, busy))
        return;
    if (a->x_act == OP_ACT_GELU_TANH && dev->act != CKPT_F32 && a->x_drop.p <= 0 &&
        a->n_in % 8 == 0 && !p.scale_a) {       /* with 8 bits a separate pass is faster */
        p.epilogue = MATMUL_DGELU;
        p.aux = (void *)(uintptr_t)a->x_pre;
        p.alone = !x;
        sloped = matmul(dev, &p);
        p.epilogue = MATMUL_PLAIN;
        p.aux = NULL;
    }
    if (!sloped)
        matmul(dev, &p);
    if (act && !(sloped && !x))
        linear_act_back(dev, a->x_act, x, sloped ? NULL : a->dx, a->x_pre, a->n, a->n_in,
                        sloped ? &none : &a->x_drop);
}

void linear_dw(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
               uint64_t busy)
{
    struct matmul_args p = matmul_of(dev, "linear_bwd", op_linear_rows(a), op_linear_cols(a), a->n,
                                     busy);

    p.a = op_linear_in_out(a) ? a->x : dy;
    p.lda = op_linear_in_out(a) ? a->n_in : ld;
    p.b = op_linear_in_out(a) ? dy : a->x;
    p.ldb = op_linear_in_out(a) ? ld : a->n_in;
    p.a_t = true;
    p.d = a->proj.dw;
    p.ldd = p.n;
    p.out = CKPT_F32;
    p.beta = (a->flags & OP_LINEAR_OVERWRITE) ? 0.0f : 1.0f;
    fp8_dw(dev, a, dy, ld, &p);         /* also for a frozen weight: it remembers x */
    if (a->proj.dw)
        matmul(dev, &p);
}

void linear_db(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
               float *part)
{
    if (a->proj.db)
        linear_sums(dev, (float *)a->proj.db, dy, ld, a->n, a->n_out, part,
                    !(a->flags & OP_LINEAR_OVERWRITE));
}

const void *linear_dropped(struct device *dev, const struct op_linear *a, void *to)
{
    struct linear_mix m = {};

    m.to = to;
    m.x = a->dout;
    m.n = a->n;
    m.width = a->n_out;
    m.ld = linear_out_ld(a);
    m.drop = a->drop;
    linear_mix(dev, &m);
    return to;
}

void cuda_linear_bwd(struct device *dev, const struct op_linear *a)
{
    uint64_t dropped = a->drop.p > 0 ? cuda_align(linear_bytes(dev, a->n * a->n_out)) : 0;
    uint64_t busy = dropped + (a->proj.db ? linear_sums_bytes(a->n_out) : 0);
    int64_t ld = linear_out_ld(a);
    const void *dy = a->dout;
    unsigned char *work;

    if (dev->err.code)
        return;
    if (a->n == 0) {
        if ((a->flags & OP_LINEAR_OVERWRITE) && a->proj.dw)
            dev->ops->zero(dev, a->proj.dw, (size_t)(a->n_in * a->n_out) * sizeof(float));
        if ((a->flags & OP_LINEAR_OVERWRITE) && a->proj.db)
            dev->ops->zero(dev, a->proj.db, (size_t)a->n_out * sizeof(float));
        return;
    }
    if (a->proj.lora.rank) {
        lora_linear_bwd(dev, a);
        return;
    }
    work = (unsigned char *)matmul_work(dev, "linear_bwd", busy);
    if (!work)
        return;
    if (dropped) {
        dy = linear_dropped(dev, a, work);
        ld = a->n_out;
    }
    linear_db(dev, a, dy, ld, (float *)(void *)(work + dropped));
    if (a->dx)
        linear_dx(dev, a, dy, ld, (a->flags & OP_LINEAR_DX_ADD) && a->x_act == OP_ACT_NONE, busy);
    linear_dw(dev, a, dy, ld, busy);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

uint64_t cuda_linear_work(const struct device *dev, const struct op_limits *l)
{
    int64_t q = l->n_head * l->head_dim, D = larger(l->dim, l->embed);
    int64_t in = larger(larger(D, q), l->ff);
    int64_t out = larger(larger(D, 2 * l->ff), (l->n_head + 2 * l->n_kv) * l->head_dim);
    uint64_t bytes = fp8_work(dev, l, in, out);

    if (l->train) {
        bytes += linear_sums_bytes(out) + TRIAL_BYTES;
        bytes += l->drop ? cuda_align(linear_bytes(dev, l->n * D)) : 0;
        bytes += cuda_align((uint64_t)(l->n * l->ff) / 8) + 256;
    }
    return MATMUL_WORK + bytes + (l->lora_rank ? lora_linear_bytes(dev, l, in, out) : 0);
}
