/*
 * generate/config - how a model is continued where nobody says otherwise: generation_config.json.
 *
 * Absent or null keys have transformers' defaults.  A model without the file has the keys of that
 * name in its config.json, as older models did.  Keys that would change the result and are not
 * built here are refused by name, those of sampling only where tokens are drawn; keys of caches,
 * outputs and assistants change nothing.
 * Source: transformers 5.17, generation/configuration_utils.py, generation/utils.py.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_CONFIG_H
#define CKPT_TRAINER_MODEL_GENERATE_CONFIG_H

#include <jansson.h>

#include "libckpt/file.h"
#include "libckpt/mem.h"
#include "trainer/model/generate/generate.h"

struct generate_config {
    struct generate_opts opts;          /* max_new_tokens 0: not said, and max_length neither,
                                           unless that is above 0 */
    json_t              *json;          /* as it was read */
    struct ckpt_arena    arena;         /* of the ids */
};

/* Of the model in dir, whose description is arch.  Release it either way. */
int generate_config_read(struct generate_config *out, struct ckpt_dir *dir,
                         const struct arch *arch, struct ckpt_err *err);
/* The same from an object, of which it takes its own reference. */
int generate_config_of(struct generate_config *out, const json_t *json, struct ckpt_err *err);
/* 0 when all that changes what these options give is built. */
int generate_config_built(const struct generate_config *c, const struct generate_opts *opts,
                          struct ckpt_err *err);
void generate_config_release(struct generate_config *c);

#endif
