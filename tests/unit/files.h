/*
 * files - a directory for each test, paths in it, and files that tests make, damage and compare.
 */
#ifndef CKPT_TESTS_UNIT_FILES_H
#define CKPT_TESTS_UNIT_FILES_H

#include "libckpt/ckpt.h"
#include "tests/unit/golden_files.h"
#include "tests/unit/unit.h"

/* Each test of the suite has a fresh directory `dir`. */
#define SCRATCH_EACH(name)                     \
    static const char *dir;                    \
    BEFORE_EACH() { dir = scratch(name); }

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

/* All bytes, and a NUL after them; the caller frees them. */
static inline void *slurp(const char *path, size_t *n)
{
    unsigned char *p = golden_bytes(path, n);

    p[*n] = '\0';
    return p;
}

static inline void put_bytes(const char *path, const void *bytes, size_t n)
{
    struct ckpt_err err = {0};

    mkdir("build", 0777);
    if (ckpt_out_put(path, bytes, n, &err))
        fail_msg("%s", err.text);
}

static inline void put_text(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static inline void put_copy(const char *path, const char *from)
{
    size_t n;
    char *p = slurp(from, &n);

    put_bytes(path, p, n);
    free(p);
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

            bytes[i] = (unsigned char)(was ^ (masks ? masks[k] : 1u << i % 8));
            put_bytes(name, bytes, n);
            opened += opens();
            bytes[i] = was;
        }
    put_bytes(name, bytes, n);
    free(bytes);
    return opened;
}

/* Replace n bytes, which begin so many before the end. */
static inline void patch_end(const char *path, size_t before, const void *bytes, size_t n)
{
    size_t all;
    char *p = slurp(path, &all);

    memcpy(p + all - before, bytes, n);
    put_bytes(path, p, all);
    free(p);
}

static inline void assert_same_file(const char *a, const char *b)
{
    size_t n, m;
    char *p = slurp(a, &n), *q = slurp(b, &m);

    if (n != m || memcmp(p, q, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(p);
    free(q);
}

/* A safetensors file of that header in `to`, but for its n bytes of data; returns where they
 * begin. */
static inline size_t put_header(void *to, size_t size, const char *header, size_t n)
{
    uint64_t len = strlen(header);

    assert_true(8 + len + n <= size);
    memcpy(to, &len, 8);
    memcpy((char *)to + 8, header, len);
    return 8 + len;
}

/* The same as a file. */
static inline void put_safetensors(const char *path, const char *header, const void *data,
                                   size_t n)
{
    size_t size = strlen(header) + 8 + n, at;
    char *bytes = malloc(size);

    at = put_header(bytes, size, header, n);
    memcpy(bytes + at, data, n);
    put_bytes(path, bytes, size);
    free(bytes);
}

/* The tensors of src as a new checkpoint, in pieces of so many bytes (0: as large as they come),
 * or the code of the failure. */
static inline int write_to(const char *format, const char *path, struct ckpt_source *src,
                           const struct ckpt_create_opts *opts, size_t piece, struct ckpt_err *err)
{
    struct ckpt_copy_opts copy = {.workers = 2, .chunk_bytes = piece};
    struct ckpt_sink *sink;
    int rc;

    memset(err, 0, sizeof *err);
    mkdir("build", 0777);
    rc = ckpt_create(&sink, format, path, ckpt_source_tensors(src), opts, err);
    if (rc)
        return rc;
    rc = ckpt_copy(sink, src, &copy, err);
    if (rc == 0)
        return ckpt_sink_commit(sink, err);
    ckpt_sink_abort(sink);
    return rc;
}

#endif
