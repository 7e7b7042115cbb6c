/* A tokenizer.json of any bytes.  Seeds: tests/golden/tokenizers, tests/fuzz/seeds. */
#include "tests/fuzz/lib/tokenizer_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tokenizer_of_bytes("tokenizer.json", data, size);
    return 0;
}
