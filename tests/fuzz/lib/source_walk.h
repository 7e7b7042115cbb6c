/*
 * source_walk - a source of an input that is a file, and elements of every tensor of a source.
 */
#ifndef CKPT_TESTS_FUZZ_LIB_SOURCE_WALK_H
#define CKPT_TESTS_FUZZ_LIB_SOURCE_WALK_H

#include "formats/place.h"
#include "tests/fuzz/lib/target.h"

/* NULL, with a sentence, where the format refuses the bytes. */
static inline struct ckpt_source *source_of(const struct ckpt_format *format, const void *data,
                                            size_t size)
{
    static const struct ckpt_open_opts none;
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};
    struct ckpt_place place;

    must(place_of_file(&place, file_of(data, size, "fuzz"), &err) == 0);
    must(format->open(&src, &place, &none, &err) == 0 || (err.text[0] && !src));
    place_close(&place);
    return src;
}

/* Takes list. */
static inline struct ckpt_source *source_of_list(struct ckpt_tensors *list)
{
    static const struct ckpt_source_ops ops = {.format = "fuzz"};
    struct ckpt_source *src = NULL;
    struct ckpt_err err = {0};

    must(ckpt_source_new(&src, &ops, NULL, list, NULL, 0, NULL, &err) == 0);
    return src;
}

/* The codes that reading may fail with: none, any, or just the one given. */
enum { READ_FAILS_NEVER = 0, READ_MAY_FAIL = 1 };

/* A few elements of each tensor: at its begin, its thirds and its end. */
static inline void read_tensors(struct ckpt_source *src, int allowed)
{
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        int64_t n = t->numel < 60 ? t->numel : 60;

        if (t->unread || ckpt_dtype_size(t->dtype) == 0)
            continue;
        for (int k = 0; n > 0 && k < 4; k++) {
            int64_t third = t->numel / 3 * k, last = t->numel - n;
            struct ckpt_err err = {0};
            unsigned char x[1024];
            int rc = ckpt_source_read(src, i, third < last ? third : last, n, x, &err);

            must(rc == 0 || rc == allowed || (allowed == READ_MAY_FAIL && err.text[0]));
        }
    }
}

#endif
