/*
 * config.json of any bytes: a description whose parameter list adds up, or an error.  Seeds:
 * tests/golden/models/<name>/config.json.
 */
#include "formats/families/arch.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"
#include "trainer/model/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct arch *arch = NULL;
    json_t *json = NULL;
    char text[64];

    if (ckpt_json_parse(&json, (const char *)data, size, CKPT_JSON_PYTHON, &err))
        return 0;
    if (arch_read_json(&arch, json, &err) == 0) {
        struct params p;

        arch_describe(text, sizeof text, arch);
        must(arch_numel(arch) > 0 && arch->head_dim * arch->num_attention_heads > 0);
        if (arch->num_hidden_layers <= 64 && params_build(&p, arch, NULL, &err) == 0) {
            must(p.numel == arch_numel(arch));
            params_release(&p);
        }
        arch_free(arch);
    } else {
        must(err.code != 0 && err.text[0]);
    }
    json_decref(json);
    return 0;
}
