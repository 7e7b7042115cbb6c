/*
 * peft/layers - a base whose layers an adapter uses more than once (layer_replication).
 *
 * The map [[0, 4], [2, 5]] turns layers 0 to 4 into the seven layers 0 1 2 3 2 3 4, which the
 * adapter's names count.  In PEFT the copies share their weights, so it cannot merge; here each
 * becomes a separate layer.  Source: peft 0.21 tuners/tuners_utils.py replicate_layers.
 */
#ifndef CKPT_FORMATS_PEFT_LAYERS_H
#define CKPT_FORMATS_PEFT_LAYERS_H

#include "libckpt/source.h"

struct peft_layers {
    size_t *from;               /* [n] index of each one in the base, in the arena given */
    size_t  n;                  /* 0: nothing is replicated */
    size_t  n_base;             /* layers of the base */
};

/*
 * Replicate layers of base by map (adapter_config.json's value, or NULL).  Takes base, on failure
 * too.  CKPT_EMISMATCH when the base has no such layers.
 */
int peft_replicate(struct ckpt_source **out, struct peft_layers *layers, struct ckpt_source *base,
                   const json_t *map, struct ckpt_arena *a, struct ckpt_err *err);

#endif
