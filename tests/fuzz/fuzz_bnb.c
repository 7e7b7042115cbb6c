/*
 * Any safetensors file seen through what bitsandbytes packs: refused with a sentence, or every
 * tensor can be read to its end.
 * Seeds: tests/golden/bnb.
 */
#include "formats/bnb/bnb.h"
#include "formats/hf/safetensors.h"
#include "tests/fuzz/lib/source_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_source *src = source_of(&ckpt_format_safetensors, data, size), *seen = NULL;
    struct ckpt_err err = {0};

    if (src && bnb_view(&seen, src, &err) == 0)
        read_tensors(seen, READ_FAILS_NEVER);
    else if (src)
        must(err.text[0] && !seen);
    ckpt_source_close(seen);
    return 0;
}
