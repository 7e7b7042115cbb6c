/*
 * pass - a model with its planned memory, and one pass over it; for the files that make up a
 * pass, each of which uses its part of both.
 */
#ifndef CKPT_TRAINER_MODEL_PASS_H
#define CKPT_TRAINER_MODEL_PASS_H

#include "formats/families/arch.h"
#include "trainer/model/attention.h"
#include "trainer/model/batch.h"
#include "trainer/model/block.h"
#include "trainer/model/embed.h"
#include "trainer/model/encoder.h"
#include "trainer/model/head.h"
#include "trainer/model/layer.h"
#include "trainer/model/mlp.h"
#include "trainer/model/model.h"
#include "trainer/ops/plan.h"

struct model {
    const struct arch     *arch;
    struct device         *dev;
    struct model_opts      opts;
    struct params          params;
    struct role_place     *place;       /* [n_layers][ROLE_COUNT] */
    struct trained_rows    trained_rows;
    bool                   fuses;       /* the device fuses operations: OP_CAN_FUSE */
    uint64_t               drop_key;    /* seed of the next pass's masks */
    uint64_t               noise_key;   /* of its noise */

    struct plan            plan;
    struct ckpt_arena      host_arena;  /* holds the host's arrays */
    void                  *arena, *work;
    uint64_t               work_bytes;
    struct block_bufs     *fwd, *bwd;   /* [L] each: addresses, forward and backward */
    void                  *h_last;      /* output of the last block [N, D] */
    void                  *dh;          /* gradient of the residual stream [N, D] */
    void                  *ones;        /* weight [D]: ones, the gain of norms that have none; or
                                           NULL */
    int64_t                low_rows;    /* of BUF_LOW; 0: there is none */

    struct batch_arrays    batch;
    struct embed           embed;
    struct position_tables positions;
    struct routing         routing;
    struct encoder         encoder;
    struct head            head;
};

/* Places with dropout in a block or before it: each has its own masks. */
enum pass_drop_place {
    DROP_EMBED, DROP_ATTENTION, DROP_OUT, DROP_MLP, DROP_ACT, DROP_FINAL, DROP_ROUTER,
    DROP_EMBED_ENCODER, DROP_CROSS, DROP_CROSS_ATTENTION,
    DROP_LORA                           /* plus the role */
};

struct pass {
    struct model               *m;
    const struct model_weights *w;
    struct device              *dev;
    const struct cache_view    *cache;  /* NULL: whole documents */
    int64_t                     n, n_docs, max_doc, n_rows;
    bool                        keep;   /* a backward pass follows */
    const uint64_t             *drop_rows;  /* of these rows (ops.h, op_drop); NULL: dropout is
                                               off */
    const int32_t              *ids, *doc_start;    /* of these rows, on the device */
    const int32_t              *real_start, *real_end;      /* likewise; NULL: no padding */
    const int32_t              *token_type_ids;
    const struct op_noise_row  *noise;  /* of these rows; NULL: none */
    int64_t                     n_enc, max_enc;     /* the encoder's rows; longest document */
    struct layer                shared; /* the stack's first block, while all blocks use its
                                           relative attention bias */
};

/* Copy a batch to the device; the pass is that of the decoder, or of the only stack. */
int pass_begin(struct pass *p, struct model *m, const struct model_weights *w,
               const struct batch *b, bool keep, struct ckpt_err *err);
void pass_upload(const struct pass *p, int32_t *dst, const int32_t *src, int64_t n);
/* Draw the noise of the batch's embedded rows, where the model wants any. */
void pass_noise(struct pass *p, const struct batch *b);
/* Compute rope's table for sequences of that length, unless the table is already right. */
void pass_rope_table(struct model *m, int64_t length);
/* Turn dropout on, with the masks of the batch's samples. */
void pass_drop_begin(struct pass *p, const struct batch *b);
/* Dropout with that probability at that place of the layer, of an activation of the pass's rows. */
struct op_drop pass_drop(const struct pass *p, const struct layer *l, int place,
                         double probability);
/* Evaluations have batches of all sizes, few of each: what is fast for those that are not full is
 * timed briefly.  begins false: from here on no longer. */
static inline void pass_varies(const struct pass *p, bool begins)
{
    p->dev->varies = begins && p->n < p->m->opts.max_tokens;
}
/* Whether the backward pass recomputes outputs of norms. */
static inline bool pass_recomputes_norms(const struct pass *p)
{
    return p->m->opts.recompute == RECOMPUTE_NORMS;
}

#endif
