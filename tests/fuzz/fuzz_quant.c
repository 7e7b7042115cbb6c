/*
 * Any safetensors file, beside any config.json, seen as the values of its quantised weights:
 * refused with a sentence, or every tensor can be read or says why not.  The input is the config,
 * a NUL, and the file.
 * Seeds: tests/golden/quant.
 */
#include "formats/hf/safetensors.h"
#include "formats/quant/quant.h"
#include "libckpt/views/extra.h"
#include "tests/fuzz/lib/source_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    struct ckpt_source *src = NULL, *told, *seen = NULL;
    struct ckpt_err err = {0};
    struct quant_told what;

    if (nul)
        src = source_of(&ckpt_format_safetensors, nul + 1, size - (size_t)(nul + 1 - data));
    if (!src ||
        ckpt_view_extra(&told, src, "config.json", data, (size_t)(nul - data), NULL, &err))
        return 0;
    must(quant_tell(&what, told, &err) == 0 || err.text[0]);
    ckpt_err_clear(&err);
    if (quant_view(&seen, told, &err) == 0)
        read_tensors(seen, READ_MAY_FAIL);
    else
        must(err.text[0] && !seen);
    ckpt_source_close(seen);
    return 0;
}
