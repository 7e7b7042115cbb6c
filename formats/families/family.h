/*
 * family - one row per model family: names in its files, fixed properties of its description, and
 * how to read the others from config.json.
 *
 * The trainer, the adapters (peft) and GGUF use these rows, so that a family is added by adding a
 * row.  A row may be partial: without keys a family's names are known but none of its models can
 * be trained. Names and defaults are transformers' (5.17, models/<family>), LoRA targets peft's
 * (0.21, utils/constants.py), GGUF's names llama.cpp's.
 *
 * Abbreviations: family, arch (a description), role (of a parameter).
 */
#ifndef CKPT_FORMATS_FAMILIES_FAMILY_H
#define CKPT_FORMATS_FAMILIES_FAMILY_H

#include <stddef.h>

#include "formats/families/arch.h"
#include "formats/families/role.h"

/* -- names ------------------------------------------------------------------------------------ */

/*
 * One published name, or two.  In a pattern "#" is the number of the block in its stack, "@" that
 * of an expert; "$" is "weight" for the role and "bias" for the one after it.  In front, "^"
 * marks a name without the family's prefix, "+" a name only of models with a gated feed-forward,
 * "-" of those with a plain one.
 */
struct family_name {
    enum role   role;
    const char *pattern;
};

/* Values of a pattern's placeholders. */
struct family_place {
    enum role role;
    int64_t   layer, expert;            /* -1: none */
};

/* Names in older files: those that end in tail, and the ending they have now. */
struct family_older_name {
    const char *tail, *now;
};

/* Where config.json has the value of a GGUF key, if not in the key's own field. */
struct family_gguf_key {
    const char *key, *names;            /* "a|b": the first one present */
};

/* -- config.json ------------------------------------------------------------------------------ */

enum key_kind { KEY_INT, KEY_NUM, KEY_BOOL, KEY_ACT };

/* A config.json key that fills a field of struct arch. */
struct family_key {
    const char   *name, *alias;     /* alias: an older spelling, or NULL */
    enum key_kind kind;
    size_t        at;               /* offset in struct arch: int64_t, double, bool
                                       or enum arch_act */
    double        fallback;         /* value when absent: transformers' default */
    double        min, max;         /* legal values, for INT and NUM */
};

/* -- the row ---------------------------------------------------------------------------------- */

/* Lists of strings end with NULL, those of rows with a NULL name; a list that is NULL is empty. */
struct family {
    const char                     *model_type;
    const char                     *architecture;   /* the language model's class name */
    const char                     *prefix;         /* prefix of published names */
    const struct family_name       *before, *block, *after;     /* in torch's order */
    const struct family_name       *encoder;        /* an encoder's blocks; NULL: as block */
    const char *const              *spare;          /* globs of tensors that are in files but
                                                       unneeded (masks, frequencies) */
    const struct family_older_name *older;
    const char                     *lora_targets;   /* PEFT's default: "a,b"; NULL: it has none */
    const char                     *tokenizer_class;    /* transformers', used where config.json
                                                           names none; NULL: only the files count */

    const char                     *gguf;           /* general.architecture; NULL: not in
                                                       llama.cpp, or not written here */
    bool                            gguf_llama;     /* as llama.cpp's LlamaModel: rows of q and k
                                                       interleaved, frequencies as a tensor */
    const struct family_gguf_key   *gguf_keys;

    struct arch                     fixed;          /* choices; sizes come from keys */
    bool                            untrained;      /* the passes lack one of its mechanisms */
    bool                            longrope;       /* part of a head is rotated, and "su" and
                                                       "yarn" mean longrope */
    bool                            ends_first;     /* torch creates the modules after the
                                                       blocks, except the head, before the blocks */
    bool                            experts_first;  /* experts are created before their router */
    int64_t                         ff_factor;      /* intermediate_size = factor * hidden_size */
    const struct family_key        *keys;
    const char *const              *ignored;        /* keys without influence on the mathematics */
    const char *const              *read;           /* keys that finish reads */
    unsigned                        says;           /* flags of its own for finish */
    /* For properties that single keys cannot express; runs after keys and derived sizes. */
    int (*finish)(struct arch *arch, const json_t *config, struct ckpt_err *err);
};

/* Lists of rows, each ended by a row without a model_type; NULL ends.  All families are here. */
extern const struct family *const family_table[];

/* The i-th row of all lists, NULL after the last. */
const struct family *family_at(size_t i);
/* The row of a model_type, or of an architecture's class name; NULL when unknown. */
const struct family *family_find(const char *model_type, const char *architecture);
/* "bloom, ...": families that can be trained, for messages. */
const char *family_known(char *dst, size_t size);

/* The parameters of a description in a block (-1: before the blocks, num_hidden_layers: after
 * them), in torch's order, one name each.  Returns how many. */
size_t family_parts(struct family_name part[ROLE_COUNT], const struct arch *arch, int64_t layer);
/* The family's pattern for a role, or NULL. */
const char *family_pattern(const struct family *f, enum role role);
/* The last two parts of that name, "wte.weight", or NULL. */
const char *family_tail(const struct family *f, enum role role);
/* Whether the last part of a module's path has that role in some family. */
bool family_has_module(const char *last, enum role role);
/* The family's entry for a tensor's name, with or without the prefix, or NULL. */
const struct family_name *family_name_find(const struct family *f, const char *name,
                                           struct family_place *at);
/* The position of the block number in a name, for a name of any family whose blocks are one
 * stack; NULL when the name is not a block's. */
const char *family_block_number(const char *name);
/* Whether no model of the family needs this tensor. */
bool family_is_spare(const struct family *f, const char *name);
/* The key that fills the field at an offset of struct arch, or NULL. */
const struct family_key *family_key_of(const struct family *f, size_t at);

/* Whether name, without the prefix, matches the row's pattern.  Sets role and placeholders. */
bool family_match(struct family_place *at, const struct family_name *row, const char *name);
/* Expand a pattern: prefix is added unless it begins with "^".  False when dst is too small. */
bool family_spell(char *dst, size_t size, const char *pattern, const char *prefix,
                  const struct family_place *at);

#endif
