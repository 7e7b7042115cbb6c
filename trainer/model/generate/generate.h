/*
 * generate - sampling: a batch of prompts to a batch of continuations.
 *
 * What is done to logits, and in which order, is transformers': logits.h.  A sequence's draws
 * depend on the seed, on its own `stream` and on the token's number only: the same continuation
 * comes out in any batch.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_GENERATE_H
#define CKPT_TRAINER_MODEL_GENERATE_GENERATE_H

#include "trainer/model/model.h"

/* When a beam search ends: once no better end is likely at the lengths so far; as soon as there
 * are num_beams ends; once none is possible at any length. */
enum generate_early { GENERATE_LIKELY, GENERATE_FULL, GENERATE_NEVER };

#define GENERATE_MAX_BEAMS 64

struct generate_ids {
    const int32_t *id;
    size_t         n;                   /* 0: no such thing */
};

struct generate_opts {
    int64_t        max_new_tokens;
    int64_t        max_length;          /* what was fed counted too; 0: no further limit */
    int64_t        min_new_tokens, min_length;      /* no eos before; 0: off */
    bool           do_sample;           /* false: greedy, the next four have no effect */
    double         temperature;         /* > 0 */
    int64_t        top_k;               /* 0: off */
    double         top_p;               /* in (0, 1]; 1: off */
    double         min_p;               /* in [0, 1]; 0: off */
    double         repetition_penalty;  /* > 0; 1: off */
    int64_t        no_repeat_ngram_size;        /* 0: off */
    int64_t        num_beams;           /* 0 or 1: none; not with do_sample */
    double         length_penalty;      /* of beams: scores are divided by length to its power */
    enum generate_early early_stopping; /* of beams */
    const int32_t *eos;                 /* ids that end a sequence */
    size_t         n_eos;
    struct generate_ids suppress, begin_suppress;   /* never, and not first */
    struct generate_ids forced_bos;     /* after a single token */
    struct generate_ids forced_eos;     /* as the last */
    struct generate_ids start;          /* a decoder's beside an encoder; n 0: the description's */
    uint64_t       seed;
};

struct generate_seq {
    const int32_t *prompt;              /* [n_prompt], n_prompt >= 1; an encoder reads it, where
                                           there is one, and the continuation is the decoder's */
    int64_t        n_prompt;
    uint64_t       stream;              /* any number of its own */
    int32_t       *out;                 /* [generate_most], filled with n_out; an eos counts */
    int64_t        n_out;
    bool           stopped;             /* by an eos */
};

/* What the decoder is fed before anything of its own: the prompt, or where an encoder reads that
 * the start id.  Gives how many tokens; ids (or NULL) has space for them. */
int64_t generate_fed(int32_t *ids, const struct arch *arch, const struct generate_opts *opts,
                     const struct generate_seq *seq);
/* How many tokens may come at most; below 1: none. */
int64_t generate_most(const struct arch *arch, const struct generate_opts *opts,
                      const struct generate_seq *seq);

/*
 * Continue all sequences.  Memory: a cache of n sequences of the longest prompt plus
 * max_new_tokens, and n rows of logits.  CKPT_ECONFIG names an option out of range; CKPT_ENO
 * when logits are not finite.
 */
int generate_run(struct model *m, const struct model_weights *w,
                 const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err);

/* The same with opts->num_beams > 1, from options that have been checked: beam.c. */
int generate_beams(struct model *m, const struct model_weights *w,
                   const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                   struct ckpt_err *err);

#endif
