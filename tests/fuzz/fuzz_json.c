/* fuzz_json: what is read is written, and what was written reads back equal. */
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    json_t *a, *b;
    struct ckpt_buf text;

    for (unsigned flags = 0; flags < 2; flags++) {
        if (ckpt_json_parse(&a, (const char *)data, size, flags, &err))
            continue;
        ckpt_buf_init(&text, (size_t)1 << 24);
        if (ckpt_json_write(&text, a, flags ? 2 : 0, false, &err) == 0) {
            must(ckpt_json_parse(&b, (const char *)text.data, text.len, 0, &err) == 0);
            must(json_equal(a, b));
            json_decref(b);
        }
        ckpt_buf_release(&text);
        json_decref(a);
    }
    return 0;
}
