/* A sentencepiece model, or a file of tiktoken ranks, of any bytes. */
#include "tests/fuzz/lib/tokenizer_file.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    tokenizer_of_bytes("tokenizer.model", data, size);
    return 0;
}
