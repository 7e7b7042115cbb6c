/*
 * sample - ids and labels of one training example, from numbers or from text.
 *
 * Source of the masks: trl's completion-only loss, by character offsets instead of by tokenising
 * twice.
 */
#ifndef CKPT_TRAINER_DATA_SAMPLE_H
#define CKPT_TRAINER_DATA_SAMPLE_H

#include <jansson.h>

#include "formats/jinja/jinja.h"
#include "formats/tokens/tokenizer.h"

#define SAMPLE_NO_LABEL (-100)

/* A zeroed struct is an empty sample; its buffers grow and are reused. */
struct sample {
    int32_t *ids;
    int32_t *labels; /* as HF's: label[i] belongs to ids[i], not shifted; -100 none */
    int64_t  n, cap;
    int64_t  lead;              /* input_ids rows: masked tokens dropped in front */
    int64_t  given;             /* tokens before any were dropped */
    bool     cut;               /* max_seq_length dropped some */
    bool     cut_left;          /* set by the caller: truncate at the beginning */
    int64_t  target_bytes;      /* of text that its targets stand for; 0: none, or unknown */
    int64_t  pad_before, pad_after;     /* of n: padding (sample_pad) */
    int32_t *enc;               /* [n_enc] the encoder's input; ids and labels are then the
                                   decoder's start id, unlabelled, and the target */
    int64_t  n_enc, enc_cap;    /* 0: not a pair */
};

/* Ids for pairs of encoder and decoder. */
struct sample_pair {
    bool    wanted;
    int32_t start, pad;       /* ids: the decoder's first input, and the id for unlabelled tokens */
    int64_t max_target;       /* most tokens that it learns, at most the sample's; 0: those */
};

void sample_release(struct sample *s);
/* Allocate for that many ids and labels; for that many of enc. */
int sample_reserve(struct sample *s, int64_t n, struct ckpt_err *err);
int sample_reserve_enc(struct sample *s, int64_t n, struct ckpt_err *err);
/* Fill up to n tokens with an id, before the text or after it; the padding has its id as label. */
int sample_pad(struct sample *s, int64_t n, int32_t id, bool before, struct ckpt_err *err);
/* Rows of a batch that it needs; for a pair those of the larger part. */
int64_t sample_length(const struct sample *s);
/* Labels that are targets: label[i] != -100 for i >= 1. */
int64_t sample_targets(const struct sample *s);

/*
 * From a record's input_ids, attention_mask (may be absent) and labels (absent: the ids), at most
 * max tokens.  Masked tokens at both ends are dropped; a mask with a hole is CKPT_EUNSUPPORTED.
 */
int sample_from_ids(struct sample *s, const json_t *record, int64_t max, struct ckpt_err *err);
/*
 * From len bytes of text, of which the first `prompt` have no loss; eos (-1: none) is appended
 * unless the text ends with it.  At most max tokens.
 */
int sample_from_text(struct sample *s, const struct tokenizer *tok, const char *text,
                     size_t len, size_t prompt, int32_t eos, int64_t max, struct ckpt_err *err);

/*
 * From a text that contains its special tokens itself: a token has a label when at least one of
 * its bytes lies in one of the spans, which ascend.  At most max tokens.
 */
int sample_from_spans(struct sample *s, const struct tokenizer *tok, const char *text, size_t len,
                      const struct jinja_span *span, size_t n_span, int64_t max,
                      struct ckpt_err *err);

/*
 * Pairs, at most max tokens for the encoder and as many targets.  From a record's input_ids and
 * labels, which are separate lists; or from `prompt` bytes of text and those after them, each
 * ended by eos, even where it was truncated, as transformers' tokenizers do.
 */
int sample_pair_from_ids(struct sample *s, const json_t *record, const struct sample_pair *pair,
                         int64_t max, struct ckpt_err *err);
int sample_pair_from_text(struct sample *s, const struct tokenizer *tok, const char *text,
                          size_t len, size_t prompt, int32_t eos, const struct sample_pair *pair,
                          int64_t max, struct ckpt_err *err);

#endif
