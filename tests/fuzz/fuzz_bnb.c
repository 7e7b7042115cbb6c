/*
 * Any safetensors file seen through what bitsandbytes packs: refused with a sentence, or every
 * tensor can be read to its end.
 * Seeds: tests/golden/bnb.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "formats/bnb/bnb.h"
#include "formats/hf/safetensors.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void read_all(struct ckpt_source *s)
{
    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        struct ckpt_err err = {0};
        unsigned char x[1024];

        for (int64_t at = 0; ckpt_dtype_size(t->dtype) && at < t->numel;
             at += t->numel / 3 + 1) {
            int64_t n = t->numel - at < 60 ? t->numel - at : 60;

            if (ckpt_source_read(s, i, at, n, x, &err))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL, *seen = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) || place_of_file(&place, file, &err))
        return 0;
    if (ckpt_format_safetensors.open(&src, &place, &none, &err) == 0) {
        if (bnb_view(&seen, src, &err) == 0)
            read_all(seen);
        else if (!err.text[0] || seen)
            abort();
        ckpt_source_close(seen);
    }
    place_close(&place);
    return 0;
}
