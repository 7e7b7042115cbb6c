/*
 * bench_convert - bytes a second of conversions, and of gathering pieces of several kinds.
 *
 * Bytes are those read and written.  The best of several rounds; one thread.  Numbers, never a
 * verdict.  memcpy stands first as the measure of the machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/convert.h"
#include "libckpt/err.h"
#include "libckpt/fragment.h"

#define ELEMENTS ((size_t)4 << 20)
#define ROUNDS   7

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void tell(const char *what, const char *how, double bytes, double seconds)
{
    printf("%-12s %-24s %7.2f GB/s\n", what, how, bytes / seconds * 1e-9);
}

static void bench_pair(enum ckpt_dtype to, enum ckpt_dtype from, void *dst, const void *src)
{
    size_t bytes = ELEMENTS * (ckpt_dtype_size(to) + ckpt_dtype_size(from));
    double best = 1e9;
    char how[32];

    for (int i = 0; i < ROUNDS; i++) {
        double t = now();

        ckpt_convert(dst, to, src, from, ELEMENTS);
        t = now() - t;
        best = t < best ? t : best;
    }
    snprintf(how, sizeof how, "%s to %s", ckpt_dtype_name(from), ckpt_dtype_name(to));
    tell("convert", how, (double)bytes, best);
}

/* All of a [2048, 2048] F32 tensor out of n pieces in memory, a megabyte of it at a time. */
static void bench_gather(const char *how, const struct ckpt_fragment *f, size_t n, void *dst)
{
    struct ckpt_shape shape = ckpt_shape_2d(2048, 2048);
    struct ckpt_err err = {0};
    double best = 1e9;

    if (ckpt_fragment_check(&shape, CKPT_F32, f, n, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return;
    }
    for (int i = 0; i < ROUNDS; i++) {
        double t = now();

        for (int64_t at = 0; at < (int64_t)ELEMENTS; at += 1 << 18)
            if (ckpt_fragment_gather((float *)dst + at, &shape, CKPT_F32, f, n, at, 1 << 18, &err))
                fprintf(stderr, "%s\n", err.text);
        t = now() - t;
        best = t < best ? t : best;
    }
    tell("gather", how, (double)ELEMENTS * 8, best);
}

static void bench_gathers(struct ckpt_file *file, void *dst)
{
    static const int64_t transposed[2] = {1, 2048}, wide[2] = {4096, 2};
    struct ckpt_fragment one = {.file = file};
    struct ckpt_fragment *many = calloc(4096, sizeof *many);
    struct ckpt_box *box = calloc(4096, sizeof *box);

    bench_gather("one dense piece", &one, 1, dst);
    one.swapped = true;
    bench_gather("one, big-endian", &one, 1, dst);
    one.swapped = false;
    one.stride = transposed;
    bench_gather("one, transposed", &one, 1, dst);
    one.stride = wide;
    bench_gather("every other element", &one, 1, dst);
    for (int64_t cols = 2048; cols >= 32; cols /= 8) {
        size_t n = 0;
        char how[32];

        for (int64_t r = 0; r < 2048; r += 32)
            for (int64_t c = 0; c < 2048; c += cols, n++) {
                box[n] = (struct ckpt_box){{r, c}, {32, cols}};
                many[n] = (struct ckpt_fragment){.box = &box[n], .file = file,
                                                 .offset = n * 32 * (uint64_t)cols * 4};
            }
        snprintf(how, sizeof how, "%zu pieces of [32, %d]", n, (int)cols);
        bench_gather(how, many, n, dst);
    }
    free(box);
    free(many);
}

int main(void)
{
    static const enum ckpt_dtype pairs[][2] = {
        {CKPT_BF16, CKPT_F32},    {CKPT_F32, CKPT_BF16}, {CKPT_F16, CKPT_F32},
        {CKPT_F32, CKPT_F16},     {CKPT_BF16, CKPT_F16}, {CKPT_F64, CKPT_F32},
        {CKPT_F32, CKPT_F64},     {CKPT_BF16, CKPT_F64}, {CKPT_F8_E4M3, CKPT_F32},
        {CKPT_F32, CKPT_F8_E4M3}, {CKPT_F32, CKPT_I64},  {CKPT_I32, CKPT_I64},
    };
    size_t bytes = ELEMENTS * 8;
    unsigned char *src = malloc(2 * bytes), *dst = malloc(bytes);
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    double best = 1e9;

    if (!src || !dst)
        return 71;
    for (size_t i = 0; i < 2 * bytes; i++)      /* floats of middling size, all finite */
        src[i] = (unsigned char)(i % 4 == 3 ? 0x3c + i % 7 : i * 37);
    memset(dst, 0, bytes);
    if (ckpt_file_memory(&file, src, 2 * bytes, "memory", &err))
        return 71;
    for (int i = 0; i < ROUNDS; i++) {
        double t = now();

        memcpy(dst, src, bytes);
        t = now() - t;
        best = t < best ? t : best;
    }
    tell("memcpy", "", 2.0 * (double)bytes, best);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        bench_pair(pairs[i][0], pairs[i][1], dst, src);
    bench_gathers(file, dst);
    ckpt_file_close(file);
    free(src);
    free(dst);
    return 0;
}
