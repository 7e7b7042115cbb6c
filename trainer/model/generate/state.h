/*
 * generate/state - a run of generation in work: what sampling and beam search share.
 *
 * Abbreviations: generate.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_STATE_H
#define CKPT_TRAINER_MODEL_GENERATE_STATE_H

#include "libckpt/mem.h"
#include "trainer/model/generate/generate.h"
#include "trainer/model/generate/logits.h"

struct generate_state {
    const struct generate_opts *opts;
    const struct arch          *arch;
    struct generate_seq        *seq;            /* [n] */
    int64_t                     n, each, vocab; /* each: sequences of the session for one of seq */
    struct decode              *decode;
    struct decode_top           top;            /* k 0: all logits are fetched */
    float                      *logits;         /* [n * each][vocab]; of one sequence with top */
    int32_t                    *ids, *n_new;    /* fed next: n_new[n * each] ids of each */
    int32_t                    *history;        /* [longest] of the sequence in work */
    struct generate_choice     *scratch;        /* [vocab] */
    struct ckpt_arena           arena;          /* of these arrays, and of the caller's */
};

/*
 * Fill s, and open its session.  k and temperature as of struct decode_top: how many of the largest
 * logits are enough, 0: none are.  Release it either way.
 */
int generate_open(struct generate_state *s, struct model *m, const struct generate_opts *opts,
                  struct generate_seq *seq, int64_t n, int64_t each, int64_t k, double temperature,
                  struct ckpt_err *err);
/* What the decoder is fed first, with the prompts to the encoder where there is one: ids, n_new. */
int generate_start(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err);
/* Feed ids and n_new: top, or logits. */
int generate_feed(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err);
void generate_release(struct generate_state *s);

#endif
