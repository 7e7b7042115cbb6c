/*
 * source_walk - the first and last elements of every tensor of a source.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_SOURCE_WALK_H
#define CKPT_TESTS_FUZZ_LIB_SOURCE_WALK_H

#include "libckpt/err.h"
#include "libckpt/source.h"

static void read_tensors(struct ckpt_source *src)
{
    struct ckpt_err err = {0};
    unsigned char bytes[4096];

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        int64_t n = t->numel < 128 ? t->numel : 128;

        if (n > 0 && ckpt_dtype_size(t->dtype) > 0) {
            ckpt_source_read(src, i, 0, n, bytes, &err);
            ckpt_source_read(src, i, t->numel - n, n, bytes, &err);
        }
    }
}

#endif
