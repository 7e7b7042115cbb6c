/*
 * model - embedding, blocks, head, loss: the order of a pass.
 *
 * Abbreviations: decode (a generation session).
 *
 * A model owns its description and its planned activations, never weights: it acquires a layer's
 * weights before use and releases them after, so that the same pass runs over resident weights
 * (ZeRO-0) and over gathered ones (ZeRO-3).
 */
#ifndef CKPT_TRAINER_MODEL_MODEL_H
#define CKPT_TRAINER_MODEL_MODEL_H

#include "libckpt/fail.h"
#include "trainer/model/params.h"

struct arch;
struct device;
struct lora;
struct model;

/*
 * Where weights come from and gradients go.  acquire/release bracket each use of a layer in
 * program order (forward 0..L+1, backward L+1..0; a tied head uses layer 0 as well); pairs may
 * nest.  grad gives the layer's gradient buffer [layer_grad] to add to; it is called before the
 * first gradient of that layer in a backward pass, grad_done after the last.  While fresh is true
 * the buffer has no sums yet, and for parameters that a pass overwrites (params.h) not even
 * zeros; NULL: never.
 */
struct model_weights {
    void        *ctx;
    const void *(*acquire)(void *ctx, int layer);
    void        (*release)(void *ctx, int layer);
    void       *(*grad)(void *ctx, int layer);
    void        (*grad_done)(void *ctx, int layer);
    bool        (*fresh)(void *ctx, int layer);
    bool          fixed;          /* acquire always gives the same address and does nothing else */
};

/*
 * A batch: documents one after another, without padding unless it is wanted.  N = n_tokens rows.
 * Attention is causal inside a document and never crosses documents; an encoder sees all of a
 * document.
 *
 * With an encoder beside the decoder each document has two parts: what the encoder reads, enc_ids
 * in rows enc_start[d] to enc_start[d + 1], one at least; and what the decoder is fed, ids: the
 * start id, then the targets without their last.
 */
struct batch {
    int64_t        n_tokens;        /* N */
    int64_t        n_docs;
    int64_t        n_rows;          /* supervised rows */
    const int32_t *ids;             /* [N] */
    const int32_t *positions;       /* [N] position inside the document */
    const int32_t *doc_start;       /* [n_docs + 1], first row of each document, then N */
    const int32_t *real_start, *real_end;   /* [n_docs] each: the rows of a document that are no
                                       padding (op_attention); NULL: there is none.  With
                                       model_opts.padding only */
    const int32_t *rows;            /* [n_rows] rows that have a loss, increasing */
    const int32_t *targets;         /* [n_rows] the id each must predict */
    const int32_t *token_type_ids;  /* [N] where a model has token types; NULL: all 0 */
    int64_t        n_enc;           /* rows of the encoder; 0: there is none */
    const int32_t *enc_ids;         /* [n_enc] */
    const int32_t *enc_start;       /* [n_docs + 1] */
    const int64_t *samples;         /* [n_docs] the sample that each is, for masks of dropout;
                                       NULL: sample d is document d */
};

/*
 * What the backward pass recomputes instead of storing it: nothing; the outputs of norms and
 * activations; or everything in a block but its input.
 */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_NORMS, RECOMPUTE_FULL,
                 RECOMPUTE_AUTO };      /* one of the first two, depending on memory: chosen by
                                           the session */

struct model_opts {
    int64_t max_tokens;             /* N at most */
    int64_t max_docs;
    int64_t max_rows;               /* supervised rows at most */
    int64_t max_enc;                /* rows of the encoder at most; with an encoder only */
    bool    train;                  /* keep activations for backward */
    bool    padding;                /* batches may have padding */
    enum recompute recompute;
    bool    dry;                    /* plan only: nothing is allocated, no pass may run */
    const struct lora *lora;        /* the adapter beside the weights; NULL: none.  Outlives it */
    int     ranks;                  /* that share each parameter (params_divide); 0, 1: none */
    double  label_smoothing;        /* of the loss, in [0, 1) */
    double  z_loss;                 /* its factor, in model_loss_grad alone */
    double  neftune_alpha;          /* noise of embedded tokens, likewise; 0: none */
};

int model_new(struct model **out, const struct arch *arch, const struct model_opts *opts,
              struct device *dev, struct ckpt_err *err);
void model_free(struct model *m);
const struct params *model_params(const struct model *m);
/* The same, for whoever puts them into the optimizer's groups. */
struct params *model_params_to_group(struct model *m);
/* Bytes planned for activations and scratch. */
uint64_t model_planned_bytes(const struct model *m);
/* Parts of that: bytes on the device, and of those the workspace of operations. */
uint64_t model_arena_bytes(const struct model *m);
uint64_t model_work_bytes(const struct model *m);

/*
 * Forward: the cross-entropy summed over the supervised rows (not divided).  Routers with a
 * load-balancing loss add their term of the mean, once per row.  nll, when not NULL, receives
 * each row's own cross-entropy [n_rows].
 */
int model_loss(struct model *m, const struct model_weights *w, const struct batch *b,
               double *loss_sum, float *nll, struct ckpt_err *err);
/*
 * Select the dropout masks of the next passes with gradients: those of a step.  A row's masks
 * depend on these two numbers, on its document's sample and on its position in the document, not
 * on what else is in the batch; so a step has the same masks on any number of ranks and with any
 * micro-batches.
 */
void model_drop_key(struct model *m, uint64_t seed, uint64_t step);
/*
 * Select the noise of embedded tokens of the next passes with gradients: a function of these two
 * numbers and of a document's tokens, whatever rank and micro-batch the document is in.
 */
void model_noise_key(struct model *m, uint64_t seed, uint64_t step);
/*
 * Forward and backward: gradients of loss_sum * scale are added to the layers' gradient buffers.
 * Dropout is active only in this pass.
 */
int model_loss_grad(struct model *m, const struct model_weights *w, const struct batch *b,
                    float scale, double *loss_sum, struct ckpt_err *err);
/* Forward, logits f32 of given rows: logits[n][V]. */
int model_logits(struct model *m, const struct model_weights *w, const struct batch *b,
                 const int32_t *rows, int64_t n, float *logits, struct ckpt_err *err);

/*
 * Forward through the first n_blocks blocks of an encoder (0: the embedding only; L: all): hidden
 * [N, D] f32, as transformers' hidden_states[n_blocks].
 */
int model_hidden(struct model *m, const struct model_weights *w, const struct batch *b,
                 int64_t n_blocks, float *hidden, struct ckpt_err *err);

/*
 * Generation with a KV cache.  A session made by decode_new holds up to max_docs sequences of up
 * to max_len tokens, each at its place from the start; one of decode_open holds sequences that
 * come and go and share the rows of the cache.
 */
struct decode;

struct decode_size {
    int64_t docs;                   /* sequences at once, at most */
    int64_t len;                    /* tokens of the longest, prompts of an encoder too */
    int64_t rows;                   /* of the cache: tokens of all sequences at once */
    int64_t enc_rows;               /* with an encoder: rows of all its documents at once */
};

int decode_open(struct decode **out, struct model *m, const struct decode_size *size,
                struct ckpt_err *err);
/*
 * Give sequence seq, which has no place, `rows` consecutive rows of the cache, and with an encoder
 * enc_rows of its keys; false: there are not that many together now.
 */
bool decode_place(struct decode *d, int64_t seq, int64_t rows, int64_t enc_rows);
/* Forget a sequence, whose rows are free again. */
void decode_drop(struct decode *d, int64_t seq);
/* Two sequences exchange their numbers: nothing is copied.  Not where a prefix may be fed again
 * (longrope). */
void decode_swap(struct decode *d, int64_t a, int64_t b);
/* Sequence seq, which is empty, begins with the first n tokens of sequence from, whose keys and
 * values are copied. */
int decode_share(struct decode *d, int64_t seq, int64_t from, int64_t n, struct ckpt_err *err);
/* Run the encoder for sequences seq[n], which have their rows, on n_ids[i] ids each. */
int decode_encode_at(struct decode *d, const struct model_weights *w, const int64_t *seq,
                     const int32_t *ids, const int32_t *n_ids, int64_t n, struct ckpt_err *err);

int decode_new(struct decode **out, struct model *m, int64_t max_docs, int64_t max_len,
               struct ckpt_err *err);
void decode_free(struct decode *d);
/* Forget all sequences; memory stays allocated. */
void decode_reset(struct decode *d);
/*
 * With an encoder beside the decoder, call this first: the encoder's input for each of n_docs
 * documents (n_ids[i] ids, at most max_len of each and the model's max_enc; concatenated), of
 * which document i serves sequences i * each to (i + 1) * each - 1.  Forgets all tokens fed.
 */
int decode_encode(struct decode *d, const struct model_weights *w, const int32_t *ids,
                  const int32_t *n_ids, int64_t n_docs, int64_t each, struct ckpt_err *err);
/* Sequence i becomes a copy of sequence from[i], all at once: from[max_docs]. */
int decode_reorder(struct decode *d, const int32_t *from, struct ckpt_err *err);
/*
 * Feed n_new[i] tokens to sequence i (ids concatenated; prompts first, then one each) and give
 * the logits after the last token of every sequence that was fed: logits[n_docs][V].
 */
int decode_step(struct decode *d, const struct model_weights *w, const int32_t *ids,
                const int32_t *n_new, int64_t n_docs, float *logits, struct ckpt_err *err);

/* The same, but only the k largest logits of each sequence; the others stay on the device. */
struct decode_top {
    int64_t        k;               /* 1 to OP_TOP_MOST, at most V */
    double         temperature;     /* of the sums; 0: no sums are computed */
    struct op_forbid *forbid;       /* ids and rows, sequences, that are forbidden first, the rest
                                       of it is set here; NULL: none */
    /* What comes back, until the next call (ops.h, op_top): */
    const float   *value;           /* [n_docs][k] falling; unset for a sequence that was not fed */
    const int32_t *id;              /* [n_docs][k] */
    const double  *sum;             /* [n_docs] */
};

/* How many sequences it can serve at most. */
int64_t decode_top_docs(const struct decode *d);
int decode_top(struct decode *d, const struct model_weights *w, const int32_t *ids,
               const int32_t *n_new, int64_t n_docs, struct decode_top *top, struct ckpt_err *err);
/* All logits [V] of a sequence that the last decode_top fed. */
int decode_row(struct decode *d, int64_t seq, float *logits, struct ckpt_err *err);

#endif
