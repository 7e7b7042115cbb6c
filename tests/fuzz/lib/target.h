/*
 * target - what targets begin with: the function that libFuzzer calls, what must hold, and the
 * input as a file or a text.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_TARGET_H
#define CKPT_TESTS_FUZZ_LIB_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input is a finding where a condition does not hold. */
static inline void must(bool holds)
{
    if (!holds)
        abort();
}

/* The input as an open file; borrows data. */
static inline struct ckpt_file *file_of(const void *data, size_t size, const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;

    must(ckpt_file_memory(&file, data, size, name, &err) == 0);
    return file;
}

/* A copy of the input that may be changed, with a NUL after it; free it. */
static inline unsigned char *copy_of(const void *data, size_t size)
{
    unsigned char *copy = malloc(size + 1);

    must(copy);
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

#endif
