/*
 * pass - what the rooms of the model share: buffers of a block, a pass, weights by role.
 *
 * Only the rooms of the passes include this: attention, cross, mlp, block, encoder, head, model,
 * model_plan, decode.
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
 * With rotary positions qkv is turned in place; with norms of q and k the projections go to raw
 * and rope writes qkv.  Gated: u = [y2 Wgate^T, y2 Wup^T], g = act(u's first half) * the second.
 * Routed: the operation makes h' from y2 and keeps u by slots, probabilities and what was picked.
 */
#ifndef CKPT_TRAINER_MODEL_PASS_H
#define CKPT_TRAINER_MODEL_PASS_H

#include "formats/families/arch.h"
#include "trainer/model/model.h"
#include "formats/families/role.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/plan.h"

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
    BUF_PROBS, BUF_PICKED,      /* E (f32); k (i32) */
    BUF_U,                      /* F, gated 2F, of experts k 2F' */
    BUF_G,                      /* F */
    BUF_LOW,                    /* of changes: the sum of their ranks, each rounded up to 8 */
    BUF_DG, BUF_DU, BUF_DY2, BUF_DCTX, BUF_DQKV, BUF_DY1,
    BUF_DYX, BUF_DQX, BUF_DKVX, BUF_DCTXX,
    BUF_COUNT
};

struct block_bufs {
    void *at[BUF_COUNT];
};

/* Where a module's low-rank change lies: elements from its layer's weights and gradients. */
struct change_at {
    int64_t a, b, magnitude;            /* -1: none */
    int64_t da, db, dmagnitude;         /* -1: frozen */
    int64_t rank;                       /* 0: no change */
    int64_t low;                        /* columns before its own in the block's BUF_LOW */
    float   scale;
};

/* What is dropped out in a block or before it: each has its own masks. */
enum drop_place {
    DROP_EMBED, DROP_ATTENTION, DROP_OUT, DROP_MLP, DROP_ACT, DROP_FINAL, DROP_ROUTER,
    DROP_EMBED_ENCODER, DROP_CROSS, DROP_CROSS_ATTENTION,
    DROP_LORA                           /* plus the role */
};

struct model {
    const struct arch *arch;
    struct device     *dev;
    struct model_opts  opts;
    struct params      params;
    int64_t           *offset;          /* [n_layers][ROLE_COUNT], -1: no such parameter */
    int64_t           *grad_offset;     /* likewise, -1: none or frozen */
    struct change_at  *change;          /* [n_layers][ROLE_COUNT]; NULL: no adapter */
    int64_t tokens, dtokens; /* rows of the embedding trained by themselves, in layer 0 */
    int64_t            n_tokens;        /* 0: none */
    int32_t           *token_ids;       /* [n_tokens] */
    int32_t           *token_ids_host;
    void              *head_w;          /* weight [V, w]: a tied head's matrix with these rows;
                                           NULL: the table itself, or untied */
    bool               head_made;       /* it is made, of weights that stay as they are */
    void              *head_dw;         /* gradient [V, w] of it */
    uint64_t           drop_key;        /* of the masks of the next pass */
    struct plan        plan;
    void              *arena;
    struct block_bufs *fwd, *bwd;       /* [L] each: addresses in the two directions */
    void              *h_last;          /* output of the last block [N, D] */
    void              *dh;              /* gradient of the residual stream [N, D] */
    float             *emb_stats, *final_stats;
    void              *y_rows, *dy_rows;/* final norm's output at chosen rows [rows, D] */
    float             *nll, *logits;    /* [rows], [logit_rows, V] */
    float             *nll_host;        /* [rows] */
    int32_t           *positions_host;  /* [N] rows of the table of positions */
    int32_t           *ids, *positions, *doc_start, *rows, *targets, *token_type_ids;
    int32_t           *enc_ids, *enc_start;
    int32_t           *bucket[2];       /* of distances: a decoder's, an encoder's; or NULL */
    int64_t            reach[2];        /* how far they differ */
    void              *enc_last;        /* output of the encoder's last block [n_enc, D] */
    void              *enc_out;         /* the same behind its norm */
    void              *denc;            /* gradient of enc_out, then of the residual stream */
    float             *enc_stats;
    float             *used_host;       /* [2, E] */
    float             *used, *dused;    /* of all experts together; NULL where nobody asks */
    double             balance;         /* what the routers add to the mean loss of this pass */
    void              *ones;            /* weight [D]: the gain of norms that have none; or NULL */
    float             *slopes;          /* [H], or NULL */
    float             *turns;           /* [turn_rows][R]: rope_table; NULL without rope */
    float             *turns_host;
    int64_t            turn_rows, turn_regime;
    int64_t            low_rows;        /* of BUF_LOW; 0: there is none */
    void              *emb, *demb;      /* [N, w]: embeddings before their projection */
    void              *z_rows, *dz_rows;/* [rows, w]: what the head multiplies after its */
    void              *work;
    uint64_t           work_bytes;
    int64_t            logit_rows;
};

/* The cache of a generation session as one layer's attention sees it. */
struct cache_view {
    struct op_cached op;                /* all but out and in */
    void            *cross;             /* keys and values of the encoder's rows, as BUF_KVX */
    const int32_t   *key_start, *key_end;   /* [n_seg] which of them a segment sees */
};

/* A layer's weights and gradients during its brackets. */
struct layer {
    const struct model *m;
    int                 index;
    const void         *weights;
    void               *grads;          /* NULL in a forward pass */
    bool                fresh;          /* of those what can be written is */
};

/* One pass in work. */
struct pass {
    const struct model         *m;
    const struct model_weights *w;
    struct device              *dev;
    const struct cache_view    *cache;  /* NULL: whole documents */
    int64_t                     n, n_docs, max_doc, n_rows;
    bool                        keep;   /* a backward pass follows */
    bool                        drop;   /* dropout is on */
    const int32_t *ids, *doc_start, *token_type_ids; /* of these rows, on the device */
    int64_t                     n_enc, max_enc;     /* the encoder's rows; longest document */
    struct layer                 shared; /* the stack's first block, while its table of distances
                                           is everybody's */
};

struct layer layer_acquire(const struct pass *p, int index);
void layer_release(const struct pass *p, const struct layer *u);
/* Its gradients too. */
void layer_back(const struct pass *p, struct layer *u);
/* Width of the fused matrix of queries, keys and values. */
int64_t qkv_width(const struct arch *a);
/* Addresses by role; NULL when there is no such parameter (or it is frozen, for gradients). */
const void *layer_weight(const struct layer *u, enum role role);
void *layer_grad(const struct layer *u, enum role role);
/* The low-rank change of that matrix; rank 0 when it has none. */
struct op_lora layer_lora(const struct pass *p, const struct layer *u, enum role role);
/* Whether the way back makes outputs of norms anew. */
static inline bool norms_again(const struct pass *p)
{
    return p->m->opts.recompute == RECOMPUTE_NORMS;
}

void layer_tokens(struct op_embed *op, const struct layer *u);
/*
 * Projections of one x whose matrices lie one behind the other, and their outputs side by side, are
 * one of all these outputs.  Gives how many are left.
 */
int join_linears(struct op_linear *op, int n, const struct device *dev);
/* Projections of one x, forward or back. */
void run_linears(const struct pass *p, const struct op_linear *op, int n, bool back);
/*
 * Projections behind the norm that makes their x; op[0] with gate may be what gated_fwd does.  A
 * device that does all at once leaves x out, where nobody else reads it.
 */
void normed_linears(const struct pass *p, const struct op_rownorm *norm,
                    const struct op_linear *op, int n, const struct op_gate *gate);
/* Dropout with probability p of what stands at that place of the layer. */
struct op_drop pass_drop(const struct pass *p, const struct layer *u, int place,
                         double probability);
/* A norm's weights, gradients and constants. */
struct op_norm layer_norm(const struct layer *u, enum role w, enum role b);

/* attention.c: y1 ... h1, and back: dh becomes the gradient of h. */
void attention_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b);
void attention_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
                   void *dh);
/* cross.c: yx ... h1 of a decoder's block beside an encoder, and back. */
void cross_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b);
void cross_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b, void *dh);
/* Keys and values of the encoder's rows, n of them, to kv. */
void cross_keys(const struct pass *p, const struct layer *u, void *kv, int64_t n);
/* mlp.c: y2 ... h' (written to next), and back: dh becomes the gradient of h1. */
void mlp_fwd(const struct pass *p, const struct layer *u, const struct block_bufs *b,
             void *next);
/* Only what mlp_bwd needs again: y2 and u; post-norm also s and its statistics. */
void mlp_again(const struct pass *p, const struct layer *u, const struct block_bufs *b);
void mlp_bwd(const struct pass *p, const struct layer *u, const struct block_bufs *b, void *dh);

/* Whether the norm between the halves sums the gradients of out's and down's biases: its backward
 * has what reached both in hand. */
bool biases_by_norm(const struct pass *p, const struct layer *u);

/* block.c */
void block_fwd(const struct pass *p, int layer, void *next);
void block_bwd(const struct pass *p, int layer, void *dh);
/* One block with given buffers, for generation. */
void block_step(const struct pass *p, int layer, const struct block_bufs *b, void *next);
/* Bytes of a block's buffer for n rows, and n_enc of the encoder. */
uint64_t block_bytes(const struct arch *arch, const struct device *dev, enum block_buf buf,
                     int64_t n, int64_t n_enc);
/* The stack that begins at that block is about to be passed through, or has been: hold what its
 * blocks share, with gradients to go back. */
void stack_begin(struct pass *p, int layer, bool back);
void stack_end(struct pass *p);

/* encoder.c: the encoder beside a decoder, from its ids to enc_out, and from denc back to the
 * embedding's gradients. */
void encoder_fwd(const struct pass *p);
void encoder_bwd(const struct pass *p);
/* Fill the tables of buckets. */
int upload_buckets(struct model *m, struct ckpt_err *err);
/* batch.c: everything an operation indexes with; gives the rows of the longest documents. */
int batch_check(const struct model *m, const struct batch *b, int64_t *max_doc, int64_t *max_enc,
                struct ckpt_err *err);
int batch_bad(struct ckpt_err *err, const char *what, int64_t found, int64_t limit);
/* mlp.c: how evenly experts were used, after the forward pass: m->balance, and for gradients of
 * scale * the sum over the rows dused. */
void route_balance(const struct pass *p, float scale);
/* model.c: take a batch to the device; the pass is that of the decoder, or of the only stack. */
int pass_begin(struct pass *p, struct model *m, const struct model_weights *w,
               const struct batch *b, bool keep, struct ckpt_err *err);
/* model.c: embedding of the pass's ids into h, or its backward from the gradient in h. */
void embed_pass(const struct pass *p, const struct layer *u, void *h, bool back);
/* head.c: final norm and loss of the supervised rows; with back also dh. */
void head_loss(const struct pass *p, float scale, bool back);
/* The layer the head's matrix lies in: the embedding's when tied. */
int head_layer(const struct model *m);
/* What the head multiplies with, from that layer. */
const void *head_matrix(const struct pass *p, const struct layer *head);
/* logits (on the device) [n, V] of the rows of h that m->rows names. */
void head_rows(const struct pass *p, const struct layer *after, const void *matrix, const void *h,
               int64_t n, float *logits);

/* The largest sizes of operations over n rows. */
struct op_limits model_limits(const struct model *m, int64_t n);

/* Make the table of turns for sequences of that length, where it is another one. */
void turn_table(struct model *m, int64_t length);
/* One of the part of a block that attends to the encoder's rows. */
bool block_crosses(enum block_buf buf);
/* True when a pass of this description never touches the buffer. */
bool block_unused(const struct arch *a, enum block_buf buf);

/* slopes[H] of ALiBi, as transformers' build_alibi_tensor computes them. */
void alibi_slopes(float *slopes, int64_t n_head);

#endif
