/*
 * A GGUF file of any bytes: refused with a sentence, or a list whose tensors lie inside the file
 * and can be read to the end; and then a model, or a sentence why it is none.
 * Seeds: tests/golden/gguf.
 */
#include "formats/gguf/as_model.h"
#include "formats/gguf/gguf.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/source_walk.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(struct ckpt_source *s, size_t size)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        uint64_t bytes = t->stored ? t->stored_bytes : ckpt_tensor_bytes(t);

        sum += bytes;
        must(bytes <= size && ckpt_source_find(s, t->name) == i);
    }
    must(sum <= size);
    read_tensors(s, CKPT_EUNSUPPORTED);
}

/* As a model: every tensor can be read, or its blocks have no values.  Takes src. */
static void check_model(struct ckpt_source *src)
{
    struct ckpt_source *seen = NULL;
    struct ckpt_err err = {0};

    if (gguf_as_model(&seen, src, &err) == 0)
        read_tensors(seen, CKPT_EUNSUPPORTED);
    else
        must(err.text[0] && !seen);
    ckpt_source_close(seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_source *src = source_of(&ckpt_format_gguf, data, size);
    struct ckpt_err err = {0};
    struct ckpt_buf facts;

    if (!src)
        return 0;
    check(src, size);
    ckpt_buf_init(&facts, SIZE_MAX);
    must(ckpt_json_write(&facts, ckpt_source_info(src), 0, false, &err) == 0);
    ckpt_buf_release(&facts);
    check_model(src);
    return 0;
}
