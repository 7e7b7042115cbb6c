/* A sentencepiece model, or a file of tiktoken ranks, of any bytes. */
#include "tests/fuzz/lib/tokenizer_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tokenizer_of_bytes("tokenizer.model", data, size);
    return 0;
}
