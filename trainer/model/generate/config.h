/*
 * generate/config - defaults of generation: generation_config.json.
 *
 * Absent or null keys have transformers' defaults.  A model without the file uses the keys of
 * that name in its config.json, as older models do.  Keys that would change the result and are
 * not implemented are refused by name, those of sampling only where tokens are drawn; keys of
 * caches, outputs and assistants change nothing. Source: transformers 5.17,
 * generation/configuration_utils.py, generation/utils.py.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_CONFIG_H
#define CKPT_TRAINER_MODEL_GENERATE_CONFIG_H

#include <jansson.h>

#include "libckpt/file.h"
#include "libckpt/mem.h"
#include "trainer/model/generate/generate.h"

struct generate_config {
    struct generate_opts opts;          /* max_new_tokens 0: neither it nor max_length was given,
                                           unless the latter is above 0 */
    const char         **stop;          /* [n_stop] texts that end a continuation: stop_strings */
    size_t               n_stop;
    json_t              *json;          /* the file's JSON */
    struct ckpt_arena    arena;         /* of the ids */
};

/* Read that of the model in dir, whose description is arch.  Release it either way. */
int generate_config_read(struct generate_config *out, struct ckpt_dir *dir,
                         const struct arch *arch, struct ckpt_err *err);
/* The same from an object, of which it takes its own reference. */
int generate_config_of(struct generate_config *out, const json_t *json, struct ckpt_err *err);
/* 0 when everything that these options would change is implemented.  CKPT_EFORMAT for a token that
 * is forced and suppressed, as transformers 5.24 refuses it. */
int generate_config_built(const struct generate_config *c, const struct generate_opts *opts,
                          struct ckpt_err *err);
void generate_config_release(struct generate_config *c);

#endif
