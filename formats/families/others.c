/*
 * others - families that cannot be trained here, but whose names, embeddings and heads the
 * adapters need.
 */
#include "formats/families/keys.h"

static const struct family_name neox_before[] = {{ROLE_TOKENS, "embed_in.weight"}, NAMES_END};
static const struct family_name neox_after[] = {{ROLE_HEAD_W, "^embed_out.weight"}, NAMES_END};
static const struct family_name internlm_before[] = {
    {ROLE_TOKENS, "tok_embeddings.weight"}, NAMES_END,
};

#define CONV1D .fixed = {.weight_order = ARCH_IN_OUT}

const struct family families_others[] = {
    {.model_type = "falcon", .prefix = "transformer."},
    {.model_type = "gptj", .prefix = "transformer."},
    {.model_type = "gpt_neo", .prefix = "transformer."},
    {.model_type = "gpt_bigcode", .prefix = "transformer."},
    {.model_type = "codegen", .prefix = "transformer."},
    {.model_type = "mpt", .prefix = "transformer."},
    {.model_type = "openai-gpt", .prefix = "transformer.", CONV1D},
    {.model_type = "imagegpt", .prefix = "transformer.", CONV1D},
    {.model_type = "decision_transformer", .prefix = "", CONV1D},
    {.model_type = "gpt_neox", .prefix = "gpt_neox.", .before = neox_before, .after = neox_after},
    {.model_type = "internlm2", .prefix = "model.", .before = internlm_before},
    {.model_type = NULL},
};
