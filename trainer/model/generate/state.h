/*
 * generate/state - state of a running generation, shared by sampling and beam search.
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
    int64_t                     n, each, vocab; /* each: sequences of the session per entry of
                                                   seq */
    struct decode              *decode;
    struct decode_top           top;            /* k 0: fetch all logits */
    float                      *logits;         /* [n * each][vocab]; with top: of one sequence */
    int32_t                    *ids, *n_new;    /* fed next: n_new[n * each] ids of each */
    int32_t                    *history;        /* [longest] of the current sequence */
    struct generate_choice     *scratch;        /* [vocab] */
    struct ckpt_arena           arena;          /* holds these arrays, and the caller's */
};

/*
 * Fill s, and open its session.  k and temperature as in struct decode_top: how many of the
 * largest logits suffice; 0: all are needed.  Release it either way.
 */
int generate_open(struct generate_state *s, struct model *m, const struct generate_opts *opts,
                  struct generate_seq *seq, int64_t n, int64_t each, int64_t k, double temperature,
                  struct ckpt_err *err);
/* Set the decoder's first tokens in ids and n_new, after feeding the prompts to the encoder if
 * there is one. */
int generate_start(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err);
/* Feed ids and n_new; gives top, or logits. */
int generate_feed(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err);
void generate_release(struct generate_state *s);

#endif
