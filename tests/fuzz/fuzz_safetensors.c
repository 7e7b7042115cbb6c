/* fuzz_safetensors: any bytes as a file of this format: an answer or a refusal, nothing else. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "formats/place.h"
#include "formats/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err) || place_of_file(&place, file, &err))
        return 0;
    if (ckpt_format_safetensors.open(&src, &place, &none, &err) == 0) {
        for (size_t i = 0; i < ckpt_source_count(src); i++) {
            const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
            unsigned char bytes[4096];

            if (t->numel > 0 && ckpt_dtype_size(t->dtype) > 0)
                ckpt_source_read(src, i, 0, t->numel < 128 ? t->numel : 128, bytes, &err);
        }
        ckpt_source_close(src);
    }
    place_close(&place);
    return 0;
}
