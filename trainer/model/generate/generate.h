/*
 * generate - sampling: from a queue of prompts to their continuations, which end one by one.
 *
 * Logits are processed as in transformers, in the same order: see logits.h.  A sequence's draws
 * depend on the seed, on its own `stream` and on the token's number only: its continuation is the
 * same in any batch.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_GENERATE_H
#define CKPT_TRAINER_MODEL_GENERATE_GENERATE_H

#include "trainer/model/model.h"

/* When a beam search ends: when no better hypothesis is likely at the lengths so far; as soon as
 * there are num_beams finished ones; when none is possible at any length. */
enum generate_early { GENERATE_LIKELY, GENERATE_FULL, GENERATE_NEVER };

#define GENERATE_MAX_BEAMS 64

struct generate_ids {
    const int32_t *id;
    size_t         n;                   /* 0: option not in use */
};

/* Ids whose last is made likelier or less after the others. */
struct generate_words {
    const int32_t *id;
    size_t         n;                   /* >= 1 */
    double         bias;
};

struct generate_opts {
    int64_t        max_new_tokens;
    int64_t        max_length;          /* counts prompt tokens too; 0: no limit */
    int64_t        min_new_tokens, min_length;      /* no eos before that many; 0: off */
    bool           do_sample;           /* false: greedy, the next four options have no effect */
    double         temperature;         /* > 0 */
    int64_t        top_k;               /* 0: off */
    double         top_p;               /* in (0, 1]; 1: off */
    double         min_p;               /* in [0, 1]; 0: off */
    double         repetition_penalty;  /* > 0; 1: off */
    double         frequency_penalty, presence_penalty;     /* of generated tokens: subtracted for
                                           each time, and once; 0: off */
    double         typical_p;           /* in (0, 1); 0 or 1: off; these three with do_sample */
    double         epsilon_cutoff, eta_cutoff;  /* in (0, 1); 0: off */
    int64_t        no_repeat_ngram_size;        /* 0: off */
    int64_t        encoder_no_repeat_ngram_size;        /* of the prompt; 0: off */
    double         encoder_repetition_penalty;  /* above 1: tokens of the prompt rise; 0, 1: off */
    int64_t        decay_start;         /* from so many new tokens on eos rises */
    double         decay_factor;        /* by this to the power of those over it; 0: off */
    const struct generate_words *bias;  /* sequence_bias */
    size_t         n_bias;
    const struct generate_words *bad;   /* bad_words_ids: bias -infinity */
    size_t         n_bad;
    int64_t        num_beams;           /* 0 or 1: none; not with do_sample */
    double         length_penalty;      /* beams: scores are divided by length to this power */
    enum generate_early early_stopping; /* of beams */
    const int32_t *eos;                 /* ids that end a sequence */
    size_t         n_eos;
    struct generate_ids suppress, begin_suppress;   /* never chosen, and not as first token */
    struct generate_ids forced_bos;     /* forced first token */
    struct generate_ids forced_eos;     /* as the last */
    struct generate_ids start;          /* start ids of a decoder beside an encoder; n 0: from
                                           the model's description */
    uint64_t       seed;
    int64_t        max_batch;           /* sequences at once, at most; 0: GENERATE_BATCH */
    uint64_t       cache_bytes;         /* of their keys and values, at most, but for the largest
                                           by itself; 0: half of a GPU's free memory, on the CPU
                                           GENERATE_CACHE_BYTES */
    const struct generate_hooks *hooks; /* or NULL */
    int64_t        n_logprobs;          /* likeliest tokens told of each position, where a
                                           sequence has space for them */
};

#define GENERATE_BATCH       64
#define GENERATE_CACHE_BYTES ((uint64_t)2 << 30)

struct generate_seq {
    const int32_t *prompt;              /* [n_prompt], n_prompt >= 1; read by the encoder if
                                           there is one, while the decoder continues from its
                                           start ids */
    int64_t        n_prompt;
    int64_t        max_new;             /* tokens at most, beside the options' limits; 0: these
                                           alone */
    uint64_t       stream;              /* any number, unique to the sequence */
    int32_t       *out;                 /* [generate_most], the first n_out are set, including an
                                           eos */
    int64_t        n_out;
    bool           stopped;             /* by an eos */
    bool           by_text;             /* by hooks->stops */
    float         *logprob;             /* [generate_most] of each token of out, by the model
                                           alone: before any rule and temperature; NULL: not
                                           wanted */
    int32_t       *top_id;              /* [generate_most][n_logprobs], likeliest first */
    float         *top_logprob;
};

/* What a caller does meanwhile; each may be NULL. */
struct generate_hooks {
    void *ctx;
    /* Before each step; 0, or a code that ends the run. */
    int  (*goes_on)(void *ctx, struct ckpt_err *err);
    /* Whether the sequence's text, after the token just added, holds a reason to stop. */
    bool (*stops)(void *ctx, const struct generate_seq *seq);
    /* The sequence has ended; 0, or a code that ends the run. */
    int  (*done)(void *ctx, const struct generate_seq *seq, struct ckpt_err *err);
};

/* The tokens fed to the decoder first: the prompt, or with an encoder the start ids.  Returns
 * how many; ids (or NULL) has space for them. */
int64_t generate_fed(int32_t *ids, const struct arch *arch, const struct generate_opts *opts,
                     const struct generate_seq *seq);
/* How many tokens can be generated at most, by the limits and by the positions that the model has;
 * below 1: none. */
int64_t generate_most(const struct arch *arch, const struct generate_opts *opts,
                      const struct generate_seq *seq);

/*
 * Continue all sequences, max_batch at once (slots.h).  A sequence's continuation is the same
 * whatever the others are, bit by bit with f32 weights on the CPU.  Memory: as generate_plan
 * finds, never n times the longest.  CKPT_ECONFIG names an option out of range; CKPT_ENO when
 * logits are not finite; hooks->done has been called for the sequences that ended before.
 */
int generate_run(struct model *m, const struct model_weights *w,
                 const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err);

/* The same with opts->num_beams > 1, for checked options: beam.c. */
int generate_beams(struct model *m, const struct model_weights *w,
                   const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                   struct ckpt_err *err);
/* What hooks->goes_on says, for both. */
int generate_goes_on(const struct generate_opts *opts, struct ckpt_err *err);

#endif
