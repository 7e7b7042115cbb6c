/* block - see block.h. */
#include "trainer/model/block.h"

#include "trainer/model/cross.h"
#include "trainer/model/pass.h"

bool block_crosses(enum block_buf buf)
{
    return (buf >= BUF_HX && buf <= BUF_LSEX) || (buf >= BUF_DYX && buf <= BUF_DCTXX);
}

/* True when a pass of this description never touches the buffer. */
static bool unused(const struct arch *a, enum block_buf buf)
{
    if (block_crosses(buf))
        return a->stack != ARCH_ENCODER_DECODER;
    if (buf == BUF_RAW || buf == BUF_QK_STATS)
        return a->qk_norm == ARCH_QK_NORM_NONE;
    if (buf == BUF_PROBS || buf == BUF_TOP_K)
        return a->num_experts == 0;
    if (buf == BUF_DG)
        return a->mlp != ARCH_MLP_GATED;
    return buf == BUF_DY1 && a->place == ARCH_POST_NORM;
}

uint64_t block_bytes(const struct arch *a, const struct device *dev, enum block_buf buf,
                     int64_t n, int64_t n_enc)
{
    int64_t act = (int64_t)ckpt_dtype_size(dev->act), f4 = sizeof(float), i4 = sizeof(int32_t);
    int64_t H = a->num_attention_heads, D = a->hidden_size * act, heads = H * a->head_dim * act;
    int64_t qkv = attention_qkv_width(a) * act, F = a->intermediate_size * act;
    int64_t u = a->mlp == ARCH_MLP_GATED ? 2 * F : F;
    int64_t slots = a->num_experts_per_tok * 2 * a->moe_intermediate_size * act;
    const int64_t row[BUF_COUNT] = {    /* bytes; BUF_LOW depends on the model's LoRA */
        [BUF_H] = D, [BUF_Y1] = D, [BUF_HX] = D, [BUF_YX] = D, [BUF_H1] = D, [BUF_Y2] = D,
        [BUF_DY1] = D, [BUF_DY2] = D, [BUF_DYX] = D,
        [BUF_STATS1] = 2 * f4, [BUF_STATS2] = 2 * f4, [BUF_STATSX] = 2 * f4,
        [BUF_LSE] = H * f4, [BUF_LSEX] = H * f4, [BUF_QK_STATS] = (H + a->num_key_value_heads) * f4,
        [BUF_RAW] = qkv, [BUF_QKV] = qkv, [BUF_DQKV] = qkv,
        [BUF_CTX] = heads, [BUF_QX] = heads, [BUF_CTXX] = heads,
        [BUF_DCTX] = heads, [BUF_DQX] = heads, [BUF_DCTXX] = heads,
        [BUF_KVX] = 2 * heads, [BUF_DKVX] = 2 * heads,
        [BUF_PROBS] = a->num_experts * f4, [BUF_TOP_K] = a->num_experts_per_tok * i4,
        [BUF_U] = u > slots ? u : slots, [BUF_DU] = u, [BUF_G] = F, [BUF_DG] = F,
    };

    return unused(a, buf) ? 0
                          : (uint64_t)((buf == BUF_KVX || buf == BUF_DKVX ? n_enc : n) * row[buf]);
}

void block_stack_begin(struct pass *p, int block, bool back)
{
    if (p->m->arch->pos != ARCH_POS_BUCKETS)
        return;
    p->shared = layer_acquire(p, block + 1);
    if (back)
        layer_acquire_grads(p, &p->shared);
}

void block_stack_end(struct pass *p)
{
    if (p->m->arch->pos == ARCH_POS_BUCKETS)
        layer_release(p, &p->shared);
}

void block_step(const struct pass *p, int block, const struct block_bufs *b, void *next)
{
    struct layer l;

    if (device_stopped(p->dev))
        return;
    l = layer_acquire(p, block + 1);
    attention_fwd(p, &l, b);
    if (arch_has_cross(p->m->arch, block))
        cross_fwd(p, &l, b);
    mlp_fwd(p, &l, b, next);
    layer_release(p, &l);
}

void block_fwd(const struct pass *p, int block, void *next)
{
    block_step(p, block, &p->m->fwd[block], next);
}

void block_bwd(const struct pass *p, int block, void *dh)
{
    const struct block_bufs *b = &p->m->bwd[block];
    bool crosses = arch_has_cross(p->m->arch, block);
    struct layer l = layer_acquire(p, block + 1);

    layer_acquire_grads(p, &l);
    if (p->m->opts.recompute == RECOMPUTE_FULL) {
        attention_fwd(p, &l, b);
        if (crosses)
            cross_fwd(p, &l, b);
        mlp_recompute(p, &l, b);
    }
    mlp_bwd(p, &l, b, dh);
    if (crosses)
        cross_bwd(p, &l, b, dh);
    attention_bwd(p, &l, b, dh);
    layer_release(p, &l);
    p->w->grad_done(p->w->ctx, block + 1);
}
