/*
 * block - one block of a model: its buffers, its halves in order, forward and back.
 *
 * A block, pre-norm (h the residual stream, [N, D]):
 *   y1 = norm1(h);  qkv = y1 Wqkv^T + b;  ctx = attention(qkv);  h1 = r1 + ctx Wo^T + b
 *   y2 = norm2(h1);  u = y2 Wup^T + b;  g = act(u);  h' = r2 + g Wdown^T + b
 * where r1 = h, r2 = h1, or with resid_from_norm r1 = y1, r2 = y2.
 *
 * Post-norm:
 *   qkv = h Wqkv^T + b;  h1 = h + ctx Wo^T + b;  y2 = norm1(h1)
 *   u, g as above;  s = y2 + g Wdown^T + b (in y1's buffer);  h' = norm2(s)
 *
 * A decoder's block beside an encoder, between its halves (e the encoder's output):
 *   hx = h + ctx Wo^T;  yx = norm(hx);  qx = yx Wq^T;  kvx = [e Wk^T, e Wv^T]
 *   ctxx = attention(qx, kvx);  h1 = hx + ctxx Wo^T
 *
 * Rotary positions are applied to qkv in place; with norms of q and k the projections go to raw
 * and rope writes qkv.  Gated: u = [y2 Wgate^T, y2 Wup^T], g = act(u's first half) * the second.
 * Routed experts: one operation computes h' from y2 and stores u by slot, probabilities and top-k
 * indices.
 */
#ifndef CKPT_TRAINER_MODEL_BLOCK_H
#define CKPT_TRAINER_MODEL_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct arch;
struct device;
struct pass;

/* Buffers of one block in one direction of a pass.  Widths: D unless said. */
enum block_buf {
    BUF_H,                      /* the block's input */
    BUF_Y1, BUF_STATS1,
    BUF_RAW, BUF_QKV,           /* (H + 2K) d */
    BUF_QK_STATS,               /* H + K */
    BUF_CTX,                    /* H d */
    BUF_LSE,
    BUF_HX, BUF_YX, BUF_STATSX, BUF_QX, BUF_KVX, BUF_CTXX, BUF_LSEX,    /* KVX: encoder's rows */
    BUF_H1, BUF_Y2, BUF_STATS2,
    BUF_PROBS, BUF_TOP_K,       /* E (f32); k (i32) */
    BUF_U,                      /* F; gated 2F; experts k 2F' */
    BUF_G,                      /* F */
    BUF_LOW,                    /* LoRA: the sum of the ranks, each rounded up to 8 */
    BUF_DG, BUF_DU, BUF_DY2, BUF_DCTX, BUF_DQKV, BUF_DY1,
    BUF_DYX, BUF_DQX, BUF_DKVX, BUF_DCTXX,
    BUF_COUNT
};

struct block_bufs {
    void *at[BUF_COUNT];
};

/* Bytes of a block's buffer for n rows, and n_enc of the encoder; 0: no pass touches it. */
uint64_t block_bytes(const struct arch *arch, const struct device *dev, enum block_buf buf,
                     int64_t n, int64_t n_enc);
/* Whether the buffer belongs to the part that attends to the encoder's rows. */
bool block_crosses(enum block_buf buf);

void block_fwd(const struct pass *p, int block, void *next);
void block_bwd(const struct pass *p, int block, void *dh);
/* Forward with the given buffers, for generation. */
void block_step(const struct pass *p, int block, const struct block_bufs *b, void *next);
/* Acquire, or release, the parameters that the blocks of a stack share; `block` is the stack's
 * first; back: with gradients. */
void block_stack_begin(struct pass *p, int block, bool back);
void block_stack_end(struct pass *p);

#endif
