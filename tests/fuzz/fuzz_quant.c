/*
 * Any safetensors file, beside any config.json, seen as the values of its quantised weights:
 * refused with a sentence, or every tensor can be read or says why not.  The input is the config,
 * a NUL, and the file.
 * Seeds: tests/golden/quant.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "formats/quant/quant.h"
#include "formats/hf/safetensors.h"
#include "libckpt/err.h"
#include "libckpt/views/extra.h"

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

            if (ckpt_source_read(s, i, at, n, x, &err) && !err.text[0])
                abort();
        }
    }
}

static struct ckpt_source *open_file(const unsigned char *data, size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) || place_of_file(&place, file, &err))
        return NULL;
    if (ckpt_format_safetensors.open(&src, &place, &none, &err))
        src = NULL;
    place_close(&place);
    return src;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    const unsigned char *nul = size ? memchr(data, 0, size) : NULL;
    struct ckpt_source *src, *told, *seen = NULL;
    struct ckpt_err err = {0};
    struct quant_told what;

    if (!nul || !(src = open_file(nul + 1, size - (size_t)(nul + 1 - data))))
        return 0;
    if (ckpt_view_extra(&told, src, "config.json", data, (size_t)(nul - data), NULL, &err))
        return 0;
    if (quant_tell(&what, told, &err) && !err.text[0])
        abort();
    ckpt_err_clear(&err);
    if (quant_view(&seen, told, &err) == 0)
        read_all(seen);
    else if (!err.text[0] || seen)
        abort();
    ckpt_source_close(seen);
    return 0;
}
