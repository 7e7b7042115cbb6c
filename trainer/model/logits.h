/*
 * logits - what is done to the logits of a next token before it is chosen, and the choice.
 *
 * The order is transformers': repetition penalty, n-grams that would come again, eos that would
 * come too early, forced tokens, suppressed tokens; then, where tokens are drawn, temperature,
 * top-k, top-p, min-p, softmax, one draw.
 * Source: transformers 5.17, generation/utils.py (_get_logits_processor), logits_process.py.
 */
#ifndef CKPT_MODEL_LOGITS_H
#define CKPT_MODEL_LOGITS_H

#include "trainer/model/generate.h"

/* A token to choose from. */
struct generate_choice {
    float   logit;
    int32_t id;
    double  p;
};

/* Where a sequence stands. */
struct generate_place {
    const int32_t *history;             /* [n] what was fed, then what was chosen */
    int64_t        n, n_fed;
    int64_t        most;                /* tokens that may be chosen in all */
};

bool generate_is_eos(const struct generate_opts *opts, int32_t id);
/* All that does not hang on whether tokens are drawn, to logits or log-probabilities [vocab];
 * scratch is [vocab]. */
void generate_process(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *opts, struct generate_choice *scratch);
/*
 * Tokens that may be drawn, to choice [vocab], with p in proportion; gives how many, and the sum
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

#endif
