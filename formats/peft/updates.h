/*
 * peft/updates - the collected changes that adapters make to a base: shared by the files that
 * fold (peft_merge, peft_experts, peft_tied).
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
    size_t                   embedding; /* of a base whose head is tied, or NONE */
    bool                     untied;    /* the head becomes a tensor of its own */
    bool                     both[CKPT_LORA_MAX_ADAPTERS];  /* which change a tied head with the
                                                               embedding */
    int64_t                  vocab;     /* new number of rows of the embedding; 0: unchanged */
    /* Of the current adapter: */
    struct ckpt_source      *adapter;
    size_t                   from;      /* which */
    float                    weight;
    struct peft_config       config;
    size_t                  *of_base;   /* [base] the update of each tensor, or NONE */
    bool                    *taken;     /* [adapter] tensors that were used */
    bool                     square, transposed;    /* see orient in peft_merge */
    bool                     tied_copy; /* its copy of the head is the embedding's */
};

/* Tensor i of the current adapter. */
static inline const struct ckpt_tensor *peft_of_adapter(const struct peft_updates *m, size_t i)
{
    return ckpt_source_tensor(m->adapter, i);
}

/* CKPT_EMISMATCH, with its owner, when the base's tensor has an update already. */
int peft_update_check(const struct peft_updates *m, size_t base, size_t whose);
/* A new update without any change yet, valid until the next; NULL when out of memory. */
struct ckpt_lora_update *peft_update_new(struct peft_updates *m, size_t base, const char *as);
/* Index of <module><suffix> in the adapter, given name <module><tail>; NONE when absent. */
size_t peft_sibling(const struct peft_updates *m, const char *name, const char *tail,
                    const char *suffix);
bool peft_ends(const char *s, const char *tail);

#endif
