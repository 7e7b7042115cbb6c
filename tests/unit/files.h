/*
 * files - a directory for each test, paths in it, and files of bytes: read, written, damaged.
 */
#ifndef CKPT_TESTS_UNIT_FILES_H
#define CKPT_TESTS_UNIT_FILES_H

#include <stdbool.h>

#include "tests/unit/unit.h"

/* Each test of the suite has a fresh directory `dir`, which is removed after it. */
#define SCRATCH_EACH(name)                     \
    static const char *dir;                    \
    BEFORE_EACH() { dir = scratch(name); }     \
    AFTER_EACH() { scratch_remove(dir); }

/* A text, mostly a path, in one of 64 static buffers that are used in turn. */
__attribute__((format(printf, 1, 2)))
static inline const char *text_of(const char *fmt, ...)
{
    static char text[64][1024];
    static unsigned next;
    char *to = text[next++ % 64];
    va_list args;

    va_start(args, fmt);
    vsnprintf(to, sizeof text[0], fmt, args);
    va_end(args);
    return to;
}

static inline void shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s", command);
}

/* All bytes of a file; *n of them.  To be freed. */
static inline unsigned char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    unsigned char *bytes;

    if (!f)
        fail_msg("%s cannot be opened", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*n + 1);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static inline void spill(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f)
        fail_msg("%s cannot be made", path);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/*
 * The file with one byte changed, for every step-th byte: tried as it is then, and put right again.
 * Bits of the byte that change: each of masks[n_mask]; without masks one, another from byte to byte.
 * Returns for how many of *tried `opens` said so.
 */
static inline size_t flip_each(const char *path, size_t step, const unsigned char *masks,
                               size_t n_mask, bool (*opens)(void), size_t *tried)
{
    size_t n, opened = 0;
    unsigned char *bytes = slurp(path, &n);
    char name[1024];

    snprintf(name, sizeof name, "%s", path);        /* opens may make texts of its own */
    *tried = 0;
    for (size_t i = 0; i < n; i += step)
        for (size_t k = 0; k < (masks ? n_mask : 1); k++, ++*tried) {
            unsigned char was = bytes[i];

            bytes[i] ^= masks ? masks[k] : (unsigned char)(1u << i % 8);
            spill(name, bytes, n);
            opened += opens();
            bytes[i] = was;
        }
    spill(name, bytes, n);
    free(bytes);
    return opened;
}

#endif
