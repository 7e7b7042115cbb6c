/* fuzz_fsdp: an answer or a refusal, nothing else; see torch_file.h. */
#include "tests/fuzz/lib/torch_file.h"

#include "formats/dcp/fsdp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_torch_file(&ckpt_format_fsdp, data, size);
}
