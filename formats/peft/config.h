/*
 * peft/config - the settings of adapter_config.json for folding a LoRA adapter into its base.
 *
 * Source: peft 0.21 tuners/lora/config.py, tuners/lora/model.py, utils/other.py get_pattern_key.
 */
#ifndef CKPT_FORMATS_PEFT_CONFIG_H
#define CKPT_FORMATS_PEFT_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct peft_patterns;           /* name pattern -> number; the first match is used */

struct peft_config {
    const json_t         *json;         /* borrowed */
    double                alpha, r;
    bool                  rslora, dora, fan_in_fan_out;
    bool                  keeps_ties;   /* tied modules were trained as one */
    struct peft_patterns *alpha_of, *rank_of;
};

/*
 * Borrows json until release.  CKPT_EUNSUPPORTED names a setting that cannot be merged; warns of
 * an adapter whose initialisation changed its base.
 */
int peft_config_init(struct peft_config *c, const json_t *json, struct ckpt_err *err);
void peft_config_release(struct peft_config *c);

/* The factor of the product of a module's factors of rank r. */
int peft_config_scale(float *scale, const struct peft_config *c, const char *module, int64_t r,
                      struct ckpt_err *err);
/* The rank that the adapter has in a module. */
int peft_config_rank(double *rank, const struct peft_config *c, const char *module,
                     struct ckpt_err *err);
/* The rows of a module that token adapters replace: a list of integers, or NULL. */
const json_t *peft_config_tokens(const struct peft_config *c, const char *module);

#endif
