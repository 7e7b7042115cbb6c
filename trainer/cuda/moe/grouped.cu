/*
 * grouped - products by expert: one product of cuBLASLt for each that has rows, or a kernel of our
 * own for all of them.
 */
#include "trainer/cuda/moe/experts.h"

static const void *at(const void *p, enum ckpt_dtype type, int64_t elements)
{
    return (const unsigned char *)p + elements * (type == CKPT_F32 ? 4 : 2);
}

void moe_grouped(struct device *dev, const struct moe_grouped *g)
{
    struct matmul_args p = {};

    if (g->here && !g->outer) {
        moe_grouped_rows(dev, g);
        return;
    }
    p.op = g->op;
    p.in = dev->act;
    p.out = g->outer ? CKPT_F32 : dev->act;
    p.lda = g->lda;
    p.ldb = g->ldb;
    p.ldd = g->ldd;
    p.n = g->n;
    p.a_t = g->outer;
    p.b_t = g->b_t;
    p.alpha = 1.0f;
    p.beta = g->outer ? 1.0f : g->beta;
    p.busy = g->busy;
    p.quick = true;
    for (int64_t e = 0; e < g->E; e++) {
        int64_t first = g->first[e], rows = g->first[e + 1] - first;

        p.m = g->outer ? g->m : rows;
        p.k = g->outer ? rows : g->k;
        p.a = at(g->a, dev->act, first * g->lda);
        p.b = at(g->b, dev->act, g->outer ? first * g->ldb : e * g->stride);
        p.d = (void *)(uintptr_t)at(g->d, p.out, g->outer ? e * g->stride : first * g->ldd);
        if (rows > 0)
            matmul(dev, &p);
    }
}
