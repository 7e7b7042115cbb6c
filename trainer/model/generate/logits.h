/*
 * logits - process the logits of a next token, and choose the token.
 *
 * The order is transformers': biases, penalties, repeated n-grams, bad words, eos that would come
 * too early, forced tokens, eos that comes too late, suppressed tokens; then, where tokens are
 * drawn, temperature, top-k, top-p, min-p, typical-p, epsilon, eta, softmax, one draw.  Penalties
 * of frequency and presence are vLLM's, after that of repetition.
 *
 * Source: transformers 5.24, generation/utils.py (_get_logits_processor), logits_process.py.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_LOGITS_H
#define CKPT_TRAINER_MODEL_GENERATE_LOGITS_H

#include "trainer/model/generate/generate.h"

/* A candidate token. */
struct generate_choice {
    float   logit;
    int32_t id;
    double  p;
};

/* The position of a sequence's next token. */
struct generate_place {
    const int32_t *history;             /* [n] tokens fed, then tokens chosen */
    int64_t        n, n_fed;
    int64_t        most;                /* tokens that may be chosen in all */
    const int32_t *prompt;              /* [n_prompt] also where an encoder reads it */
    int64_t        n_prompt;
    bool           no_eos;              /* the logits of eos are -infinity already */
};

/* Whether a sequence of n tokens, n_fed of them fed, is too short for an eos. */
bool generate_too_short(const struct generate_opts *opts, int64_t n, int64_t n_fed);
bool generate_has_id(const struct generate_ids *ids, int32_t id);
bool generate_is_eos(const struct generate_opts *opts, int32_t id);
/* All processing that applies with and without sampling, to logits or log-probabilities [vocab];
 * scratch is [vocab]. */
void generate_process(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *opts, struct generate_choice *scratch);
/*
 * Candidates to draw from, to choice [vocab], with p in proportion; gives how many, and the sum
 * of p.  -1 when a logit is NaN or all are -infinity.
 */
int64_t generate_candidates(struct generate_choice *choice, double *total, const float *logits,
                            int64_t vocab, const struct generate_opts *opts);
/*
 * One choice from logits [vocab], which are changed; draw is uniform in [0, 1), scratch is
 * [vocab].  -1 as above.
 */
int32_t generate_pick(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *opts, double draw,
                      struct generate_choice *scratch);

/* -- from the largest logits alone, as decode_top gives them ---------------------------------- */

struct generate_top {
    const float   *value;               /* [k] falling */
    const int32_t *id;
    int64_t        k;
    double         sum;                 /* if generate_top_temperature requests it */
};

/* How many of the largest logits these options need; 0: all.  And the temperature for the sum;
 * 0: no sum is needed. */
int64_t generate_top_wanted(const struct generate_opts *opts, int64_t vocab);
double generate_top_temperature(const struct generate_opts *opts, int64_t vocab);
/* As generate_pick from these, with the same choice; false: they do not suffice, all logits are
 * needed. */
bool generate_pick_top(int32_t *id, const struct generate_top *top, int64_t vocab,
                       const struct generate_place *at, const struct generate_opts *opts,
                       double draw);
/* Sort them by id; gives how many. */
int64_t generate_some(struct generate_choice *some, const struct generate_top *top);
/* generate_process on some logits, by rising id, if all other logits can only decrease.  False:
 * a rule needs all.  *changed: a rule changed one of them, or one of the others. */
bool generate_process_some(struct generate_choice *some, int64_t n,
                           const struct generate_place *at, const struct generate_opts *opts,
                           bool *changed);

#endif
