/*
 * fuzz_model_card: a README.md of any bytes is read, or told to be no card; with a key and a result
 * put into it, it is a card again that has them, and the same put in once more changes nothing.
 */
#include "formats/hf/model_card.h"
#include "libckpt/err.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct model_card_result r = {"text-generation", "acme/rows", NULL, "test", "loss", NULL, 2};
    char *text = (char *)copy_of(data, size);
    struct ckpt_buf once, twice;
    struct ckpt_err err = {0};
    json_t *keys = NULL, *add = json_pack("{s:s}", "x-added-here", "yes");

    ckpt_buf_init(&once, MODEL_CARD_MAX);
    ckpt_buf_init(&twice, MODEL_CARD_MAX);
    must(model_card_read(&keys, text, size, &err) == 0 || err.text[0]);
    json_decref(keys);
    if (model_card_edit(&once, text, size, add, "toy", &r, 1, &err) == 0) {
        must(model_card_read(&keys, (char *)once.data, once.len, &err) == 0);
        must(json_object_get(keys, "x-added-here") != NULL);
        json_decref(keys);
        must(model_card_edit(&twice, (char *)once.data, once.len, add, "toy", &r, 1, &err) == 0);
        must(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
    } else {
        must(err.text[0]);
    }
    ckpt_buf_release(&once);
    ckpt_buf_release(&twice);
    json_decref(add);
    free(text);
    return 0;
}
