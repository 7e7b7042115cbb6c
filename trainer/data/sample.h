/*
 * sample - ids and labels of one training example, from numbers or from text.
 *
 * Source of the masks: trl's completion-only loss, by offsets instead of by tokenising twice.
 */
#ifndef CKPT_SAMPLE_H
#define CKPT_SAMPLE_H

#include <jansson.h>

#include "formats/tokens/tokenizer.h"

#define SAMPLE_NO_LABEL (-100)

/* A zeroed struct is an empty sample; buffers grow and are used again. */
struct sample {
    int32_t *ids;
    int32_t *labels; /* as HF's: label[i] belongs to ids[i], not shifted; -100 none */
    int64_t  n, cap;
    int64_t  lead;              /* input_ids rows: masked tokens left out in front */
    int64_t  given;             /* tokens before anything was left out */
    bool     cut;               /* max_seq_length left some out */
    bool     cut_left;          /* set before: what is too long loses its beginning */
};

void sample_release(struct sample *s);
/* Labels that are targets: label[i] != -100 for i >= 1. */
int64_t sample_targets(const struct sample *s);

/*
 * From a record's input_ids, attention_mask (may be absent) and labels (absent: the ids), at
 * most max tokens.  Masked tokens at the two ends are left out; a mask with a hole is
 * CKPT_EUNSUPPORTED.
 */
int sample_from_ids(struct sample *s, const json_t *record, int64_t max, struct ckpt_err *err);
/*
 * From len bytes of text, of which the first prompt carry no loss; eos (-1: none) is appended
 * unless it is there.  At most max tokens.
 */
int sample_from_text(struct sample *s, const struct tokenizer *tok, const char *text,
                     size_t len, size_t prompt, int32_t eos, int64_t max, struct ckpt_err *err);

#endif
