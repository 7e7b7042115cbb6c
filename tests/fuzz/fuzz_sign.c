/*
 * fuzz_sign: a model.sig of any bytes is a bundle or an error; one is written the same again.  What
 * it signs, and any bytes as a statement, list each file once, by a path that stays in the model.
 */
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/sign/bundle.h"
#include "libckpt/sign/manifest.h"
#include "tests/fuzz/lib/target.h"

static void try_statement(const char *text, size_t size)
{
    struct sign_manifest m;
    struct ckpt_err err = {0};

    if (sign_manifest_parse(&m, text, size, &err) == 0) {
        must(m.n > 0);
        for (size_t i = 0; i < m.n; i++) {
            must(m.item[i].name[0] && m.item[i].name[0] != '/' && !strstr(m.item[i].name, "/../"));
            must(i == 0 || m.shards || strcmp(m.item[i - 1].name, m.item[i].name) < 0);
            must(!m.shards || m.item[i].start < m.item[i].end);
            must(sign_manifest_find(&m, m.item[i].name) != NULL);
        }
    } else {
        must(err.text[0]);
    }
    sign_manifest_release(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct sign_bundle b, again;

    if (sign_bundle_parse(&b, (const char *)data, size, &err) == 0) {
        json_t *json = b.hint || b.n_certificates ? sign_bundle_json(&b) : NULL;
        char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

        must(b.payload.n > 0 && b.signature.n > 0);
        if (text) {
            must(sign_bundle_parse(&again, text, strlen(text), &err) == 0);
            must(again.payload.n == b.payload.n && again.n_certificates == b.n_certificates);
            sign_bundle_release(&again);
        }
        free(text);
        json_decref(json);
        try_statement((const char *)b.payload.data, b.payload.n);
    } else {
        must(err.text[0]);
    }
    sign_bundle_release(&b);
    try_statement((const char *)data, size);
    return 0;
}
