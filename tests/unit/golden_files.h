/*
 * golden_files - files of tests/golden as bytes and as JSON, and readers over their damaged bytes.
 */
#ifndef CKPT_TESTS_UNIT_GOLDEN_FILES_H
#define CKPT_TESTS_UNIT_GOLDEN_FILES_H

#include "tests/unit/unit.h"

#include "libckpt/base/json.h"

/* All bytes; the caller frees them. */
static inline unsigned char *golden_bytes(const char *path, size_t *n)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    unsigned char *b;

    if (ckpt_file_open(&f, path, 0, &err))
        fail_msg("%s", err.text);
    *n = (size_t)ckpt_file_size(f);
    b = malloc(*n + 1);
    assert_non_null(b);
    assert_int_equal(ckpt_file_read_at(f, b, *n, 0, &err), 0);
    ckpt_file_close(f);
    return b;
}

static inline json_t *golden_json(const char *path)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *v;

    if (ckpt_file_open(&f, path, 0, &err) ||
        ckpt_json_read(&v, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, &err))
        fail_msg("%s", err.text);
    ckpt_file_close(f);
    return v;
}

/* Bytes as an open file; borrowed until it is closed. */
static inline struct ckpt_file *file_of(const void *bytes, size_t n, const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;

    assert_int_equal(ckpt_file_memory(&f, bytes, n, name, &err), 0);
    return f;
}

/* Change single bytes of a file, every step-th, each in three ways: what is read of it, or a sentence;
 * never more than that, and a sentence more than 20 times. */
static inline void assert_damage_is_told(const char *path, size_t step,
                                         int (*read)(const void *bytes, size_t n,
                                                     struct ckpt_err *err))
{
    size_t n, told = 0;
    unsigned char *b = golden_bytes(path, &n);

    for (size_t at = 0; at < n; at += step)
        for (int k = 0; k < 3; k++) {
            unsigned char was = b[at];
            struct ckpt_err err = {0};

            b[at] = k == 0 ? was ^ 0xff : k == 1 ? (unsigned char)(was + 1) : 0x7f;
            if (read(b, n, &err)) {
                assert_true(err.text[0] != '\0');
                told++;
            }
            b[at] = was;
        }
    assert_true(told > 20);
    free(b);
}

#endif
