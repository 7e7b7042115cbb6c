/*
 * generate - sampling: a batch of prompts to a batch of continuations.
 *
 * Order of the steps is transformers' (generation/logits_process.py, 5.17): repetition penalty,
 * temperature, top-k, top-p, softmax, one draw.  A sequence's draws depend on the seed, on its
 * own `stream` and on the token's number only: the same continuation comes out in any batch.
 */
#ifndef CKPT_GENERATE_H
#define CKPT_GENERATE_H

#include "trainer/model/model.h"

/* When a beam search ends: once no better end is likely at the lengths so far; as soon as there
 * are num_beams ends; once none is possible at any length. */
enum generate_early { GENERATE_LIKELY, GENERATE_FULL, GENERATE_NEVER };

#define GENERATE_MAX_BEAMS 64

struct generate_opts {
    int64_t        max_new_tokens;
    bool           do_sample;           /* false: greedy, the next three have no effect */
    double         temperature;         /* > 0 */
    int64_t        top_k;               /* 0: off */
    double         top_p;               /* in (0, 1]; 1: off */
    double         repetition_penalty;  /* > 0; 1: off */
    int64_t        num_beams;           /* 0 or 1: none; not with do_sample */
    double         length_penalty;      /* of beams: scores are divided by length to its power */
    enum generate_early early_stopping; /* of beams */
    const int32_t *eos;                 /* ids that end a sequence */
    size_t         n_eos;
    uint64_t       seed;
};

struct generate_seq {
    const int32_t *prompt;              /* [n_prompt], n_prompt >= 1; an encoder reads it, where
                                           there is one, and the continuation is the decoder's */
    int64_t        n_prompt;
    uint64_t       stream;              /* any number of its own */
    int32_t       *out;                 /* [max_new_tokens], filled with n_out; an eos counts */
    int64_t        n_out;
    bool           stopped;             /* by an eos */
};

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

/* A token to choose from. */
struct generate_choice {
    float   logit;
    int32_t id;
    double  p;
};

/* Tokens of the history become less likely; scratch is [vocab]. */
void generate_penalise(float *logits, const int32_t *history, int64_t n, float penalty,
                       struct generate_choice *scratch);
bool generate_is_eos(const struct generate_opts *opts, int32_t id);
/*
 * One choice from logits [vocab], which are changed; history[n] are the tokens so far, draw is
 * uniform in [0, 1), scratch is [vocab].  -1 when a logit is NaN or all are -infinity.
 */
int32_t generate_pick(float *logits, int64_t vocab, const int32_t *history, int64_t n,
                      const struct generate_opts *opts, double draw,
                      struct generate_choice *scratch);

#endif
