/*
 * lora - which modules of a model an adapter changes, and how: adapter_config.json as PEFT reads
 * it when it prepares a model for training.
 *
 * An adapter is defined by that one JSON object alone, whether it was made from a run's options
 * or came with a saved adapter.  Options of PEFT that are not implemented are refused by name.
 * Source: peft 0.21 tuners/lora/{config,model,layer}.py, tuners/tuners_utils.py, utils/other.py.
 */
#ifndef CKPT_TRAINER_MODEL_LORA_H
#define CKPT_TRAINER_MODEL_LORA_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct lora;

enum lora_bias { LORA_BIAS_NONE, LORA_BIAS_ALL, LORA_BIAS_TARGETS };
/* PEFT's kind of a module. */
enum lora_module { LORA_OTHER, LORA_LINEAR, LORA_HEAD, LORA_EMBEDDING };
/* How the factors are initialised. */
enum lora_init { LORA_INIT_DEFAULT, LORA_INIT_GAUSSIAN, LORA_INIT_BOTH };

/* The LoRA of one module. */
struct lora_delta {
    int64_t rank;                   /* 0: none */
    float   scale;
    bool    magnitude;              /* DoRA */
};

/* CKPT_EUNSUPPORTED names an option that is not implemented; CKPT_ECONFIG a contradictory one. */
int lora_new(struct lora **out, const json_t *config, struct ckpt_err *err);
void lora_free(struct lora *l);
/* The module's path is the published one: "model.layers.0.self_attn.q_proj". */
int lora_delta(struct lora_delta *out, const struct lora *l, const char *module,
                enum lora_module kind, struct ckpt_err *err);
/* The parameter (with its module's path) is trained in full: modules_to_save. */
bool lora_saves(const struct lora *l, const char *param);
/* PEFT saves a changed embedding's own matrix too, when it is called embed_tokens. */
bool lora_stores_base(const struct lora *l, const char *module);
/* Rows of that embedding that are trained separately: a list of integers, or NULL. */
const json_t *lora_tokens(const struct lora *l, const char *module);
enum lora_bias lora_bias(const struct lora *l);
enum lora_init lora_init(const struct lora *l);
double lora_dropout(const struct lora *l);
/* target_modules is "all-linear": replaced by the list of modules when the adapter is saved. */
bool lora_is_all_linear(const struct lora *l);
/* The largest rank that any module can have. */
int64_t lora_max_rank(const struct lora *l);
bool lora_has_magnitude(const struct lora *l);
const json_t *lora_config(const struct lora *l);

#endif
