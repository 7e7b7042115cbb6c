/* embed - the part before the first block: lookups, their norm and projection, forward and back. */
#ifndef CKPT_TRAINER_MODEL_EMBED_H
#define CKPT_TRAINER_MODEL_EMBED_H

#include <stdbool.h>

struct layer;
struct pass;

struct embed {
    float *stats;                       /* of the norm [N, 2] */
    void  *e, *de;                      /* [N, w]: embeddings before a projection; NULL: no
                                           projection */
};

/* The embedding of the pass's ids to h, or its backward from the gradient in h. */
void embed_pass(const struct pass *p, const struct layer *l, void *h, bool back);

#endif
