/*
 * config - config.json -> a filled description, and back.
 *
 * The JSON is kept as it was read and is what is written beside new weights, unknown keys
 * included.  A key that would change the mathematics and is not built here is refused by name;
 * a key nobody knows is told once as a note.  Source: model-families.md parts 1.2, 3 and 5.
 */
#ifndef CKPT_TRAINER_MODEL_CONFIG_H
#define CKPT_TRAINER_MODEL_CONFIG_H

#include "libckpt/file.h"
#include "trainer/model/arch.h"

/* Read a directory's config.json, or what stands for it.
 * CKPT_ENOTFOUND, CKPT_EFORMAT, CKPT_EUNSUPPORTED (lists the known). */
int arch_read(struct arch **out, struct ckpt_dir *dir, const char *name, struct ckpt_err *err);
/* The same from a parsed object, of which it takes its own reference. */
int arch_read_json(struct arch **out, const json_t *config, struct ckpt_err *err);
void arch_free(struct arch *arch);

/* The JSON to write back; borrowed. */
json_t *arch_config(const struct arch *arch);
/* The activation of that name; false when there is none here. */
bool arch_act_of(enum arch_act *act, const char *name);
/* Name under which a tied head may lie in a checkpoint; NULL when the head is not tied. */
const char *arch_tied_name(const struct arch *arch);
/* Name of the embedding behind the family's prefix; borrowed. */
const char *arch_tokens_name(const struct arch *arch);
/* Tokens that its positions reach to; 0: to any number. */
int64_t arch_places(const struct arch *arch);
/* Give the head a matrix of its own; config.json says so from then on. */
int arch_untie(struct arch *arch, struct ckpt_err *err);
/* "bloom: 4 blocks, hidden 256, 8 heads of 32, ..."; cut to fit.  Returns dst. */
const char *arch_describe(char *dst, size_t size, const struct arch *arch);
int64_t arch_numel(const struct arch *arch);

#endif
