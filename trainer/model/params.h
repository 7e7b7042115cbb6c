/*
 * params - the parameter list of a model: published name, shape, unit, offset.
 *
 * A unit is what is gathered and reduced at once: unit 0 is everything before the first block
 * (embeddings and their norms), units 1..L the blocks, unit L + 1 what follows them (final
 * norm, an untied head).  Weights of a unit lie one after another without gaps, f32 on the CPU.
 */
#ifndef CKPT_PARAMS_H
#define CKPT_PARAMS_H

#include "libckpt/mem.h"
#include "libckpt/shape.h"

struct param {
    const char       *name;         /* torch's state_dict name: "transformer.h.0.mlp..." */
    struct ckpt_shape shape;
    int64_t           numel;
    int               unit;
    int64_t           offset;       /* from the unit's start, elements */
    bool              decay;        /* weight decay applies (HF Trainer's rule) */
    bool              trainable;
    int               role;         /* enum role (names.h) */
    int64_t           expert;       /* which, for a role that each expert has */
};

struct params {
    struct ckpt_arena arena;
    struct param     *item;         /* in torch's named_parameters() order */
    size_t            n;
    int               n_unit;
    int64_t          *unit_numel;   /* [n_unit] */
    int64_t           numel;
    struct ckpt_map  *by_name;
    const char       *prefix;       /* of the family: "transformer.", or "" */
    const char *const *spare;       /* the family's; see families.h */
};

struct arch;

/* Every parameter of a description, in order; offsets and units filled.  All are trainable. */
int params_build(struct params *p, const struct arch *arch, struct ckpt_err *err);
/* Index by name, with or without the family's prefix ("transformer."); SIZE_MAX when absent. */
size_t params_find(const struct params *p, const char *name);
/* A tensor of a file that belongs to no parameter and is known to be of no use. */
bool params_spare(const struct params *p, const char *name);
void params_release(struct params *p);

#endif
