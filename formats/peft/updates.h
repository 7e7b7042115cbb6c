/*
 * peft/updates - what adapters change of a base, while it is being found out: shared by the rooms
 * that fold (peft_merge, peft_experts, peft_tied).
 */
#ifndef CKPT_FORMATS_PEFT_UPDATES_H
#define CKPT_FORMATS_PEFT_UPDATES_H

#include "formats/peft/config.h"
#include "libckpt/lora/view.h"

#define PEFT_NONE CKPT_LORA_NONE

struct peft_updates {
    struct ckpt_source      *base;
    struct ckpt_lora_update *update;
    size_t                   n, cap;
    struct ckpt_arena        arena;     /* names, rows */
    struct ckpt_err         *err;
    /* Of all adapters: */
    size_t                   embedding; /* of a base without a head of its own, or NONE */
    bool                     untied;    /* the head becomes a tensor of its own */
    int64_t                  vocab;     /* rows that the embedding has now; 0: as before */
    /* Of the adapter at hand: */
    struct ckpt_source      *adapter;
    size_t                   from;      /* which */
    float                    weight;
    struct peft_config       config;
    size_t                  *of_base;   /* [base] its update in place, or NONE */
    bool                    *taken;     /* [adapter] tensors that are accounted for */
    bool                     square, transposed;    /* see orient in peft_merge */
    bool                     tied_copy; /* the head's copy is the embedding's */
};

/* Tensor i of the adapter at hand. */
static inline const struct ckpt_tensor *peft_of_adapter(const struct peft_updates *m, size_t i)
{
    return ckpt_source_tensor(m->adapter, i);
}

/* CKPT_EMISMATCH, naming whose, when the base's tensor has an update already. */
int peft_update_check(const struct peft_updates *m, size_t base, size_t whose);
/* An update that changes nothing yet, valid until the next; NULL without memory. */
struct ckpt_lora_update *peft_update_new(struct peft_updates *m, size_t base, const char *as);
/* <module><suffix> of the adapter, where name is <module><tail>; NONE when absent. */
size_t peft_sibling(const struct peft_updates *m, const char *name, const char *tail,
                    const char *suffix);
bool peft_ends(const char *s, const char *tail);

#endif
