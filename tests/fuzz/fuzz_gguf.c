/*
 * A GGUF file of any bytes: refused with a sentence, or a list whose tensors lie inside the file
 * and can be read to the end; and then a model, or a sentence why it is none.
 * Seeds: tests/golden/gguf.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "formats/gguf/gguf.h"
#include "formats/gguf/as_model.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(struct ckpt_source *s, size_t size)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        uint64_t bytes = t->stored ? t->stored_bytes : ckpt_tensor_bytes(t);
        struct ckpt_err err = {0};
        unsigned char x[256];

        sum += bytes;
        if (bytes > size || ckpt_source_find(s, t->name) != i)
            abort();
        for (int64_t at = 0; at < t->numel; at += t->numel / 3 + 1) {
            int64_t n = t->numel - at < 16 ? t->numel - at : 16;

            if (ckpt_source_read(s, i, at, n, x, &err) && err.code != CKPT_EUNSUPPORTED)
                abort();
        }
    }
    if (sum > size)
        abort();
}

/* As a model: every tensor can be read, or its blocks have no values.  Takes src. */
static void check_model(struct ckpt_source *src)
{
    struct ckpt_source *seen = NULL;
    struct ckpt_err err = {0};
    unsigned char x[256];

    if (gguf_as_model(&seen, src, &err)) {
        if (!err.text[0] || seen)
            abort();
        return;
    }
    for (size_t i = 0; i < ckpt_source_count(seen); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(seen, i);

        for (int64_t at = 0; at < t->numel; at += t->numel / 3 + 1) {
            int64_t n = t->numel - at < 16 ? t->numel - at : 16;

            if (ckpt_source_read(seen, i, at, n, x, &err) && err.code != CKPT_EUNSUPPORTED)
                abort();
        }
    }
    ckpt_source_close(seen);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;
    struct ckpt_file *file;
    struct ckpt_buf facts;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) || place_of_file(&place, file, &err))
        return 0;
    if (ckpt_format_gguf.open(&src, &place, &none, &err) == 0) {
        check(src, size);
        ckpt_buf_init(&facts, SIZE_MAX);
        if (ckpt_json_write(&facts, ckpt_source_info(src), 0, false, &err))
            abort();
        ckpt_buf_release(&facts);
        check_model(src);
        src = NULL;
    } else if (!err.text[0] || src) {
        abort();
    }
    ckpt_source_close(src);
    place_close(&place);
    return 0;
}
