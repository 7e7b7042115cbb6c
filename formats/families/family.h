/*
 * family - one row per model family: what its description never changes, and how to read the
 * rest from config.json.
 */
#ifndef CKPT_FORMATS_FAMILIES_FAMILY_H
#define CKPT_FORMATS_FAMILIES_FAMILY_H

#include <stddef.h>

#include "formats/families/arch.h"
#include "formats/families/role.h"

enum key_kind { KEY_INT, KEY_NUM, KEY_BOOL, KEY_ACT };

/* A config.json key that fills a field of struct arch. */
struct family_key {
    const char   *name, *alias;     /* alias: an older spelling, or NULL */
    enum key_kind kind;
    size_t        at;               /* offset in struct arch: int64_t, double, bool
                                       or enum arch_act */
    double        fallback;         /* when absent: the library's default */
    double        min, max;         /* legal values, for INT and NUM */
};

/* What older files call something: names that end in tail, and how they end now. */
struct older_name {
    const char *tail, *now;
};

struct family {
    const char              *model_type;
    const char              *architecture;      /* the causal LM's class name */
    const char              *prefix;            /* of published names */
    struct arch              fixed;             /* choices; sizes come from keys */
    bool                     ends_first;        /* torch's modules: what follows the blocks, but
                                                   the head, is made before them; */
    bool                     experts_first;     /* experts before their router */
    int64_t                  ff_factor;         /* intermediate_size = factor * hidden_size */
    const struct family_key *keys;              /* ended by a NULL name */
    const char *const       *ignored;           /* keys that change no mathematics; NULL ends */
    const char *const       *read;              /* keys that finish reads, or NULL */
    /* What keys cannot say by themselves; after them, before sizes are derived. */
    int (*finish)(struct arch *arch, const json_t *config, struct ckpt_err *err);
    const struct name       *before, *block, *after;
    const struct name       *encoder;           /* an encoder's blocks; NULL: as block */
    const char *const       *spare;             /* globs of tensors that files have and no model
                                                   needs (masks, frequencies), or NULL */
    const struct older_name *older;             /* ended by a NULL tail, or NULL */
};

/* The row of a model_type, or of an architecture's class name; NULL when unknown. */
const struct family *family_find(const char *model_type, const char *architecture);
/* The names of a block. */
const struct name *family_block(const struct arch *arch, int64_t layer);
/* "bloom, ..." for messages. */
const char *family_known(char *dst, size_t size);

#endif
