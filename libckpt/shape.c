/* shape - see shape.h. */
#include "libckpt/shape.h"

#include <stdio.h>
#include <string.h>

bool ckpt_shape_numel(int64_t *out, const struct ckpt_shape *s)
{
    int64_t n = 1;
    bool empty = false;

    if (s->rank < 0 || s->rank > CKPT_MAX_RANK)
        return false;
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return false;
        if (s->dim[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, s->dim[i], &n))
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

bool ckpt_shape_bytes(uint64_t *out, const struct ckpt_shape *s, enum ckpt_dtype t)
{
    int64_t numel;
    uint64_t bits;

    if (!ckpt_shape_numel(&numel, s) ||
        __builtin_mul_overflow((uint64_t)numel, (uint64_t)ckpt_dtype_bits(t), &bits))
        return false;
    *out = bits / 8 + (bits % 8 != 0);
    return true;
}

bool ckpt_shape_equal(const struct ckpt_shape *a, const struct ckpt_shape *b)
{
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

struct ckpt_shape ckpt_shape_of(int rank, const int64_t *dim)
{
    struct ckpt_shape s = {.rank = rank};

    for (int i = 0; i < rank && i < CKPT_MAX_RANK; i++)
        s.dim[i] = dim[i];
    return s;
}

struct ckpt_shape ckpt_shape_1d(int64_t n) { return ckpt_shape_of(1, &n); }

struct ckpt_shape ckpt_shape_2d(int64_t rows, int64_t cols)
{
    int64_t dim[2] = {rows, cols};

    return ckpt_shape_of(2, dim);
}

char *ckpt_shape_text(char *dst, size_t size, const struct ckpt_shape *s)
{
    size_t at = 0;

    if (size == 0)
        return dst;
    dst[0] = '\0';
    for (int i = -1; i <= s->rank && at < size; i++) {
        int n = i < 0 ? snprintf(dst + at, size - at, "[")
                : i == s->rank ? snprintf(dst + at, size - at, "]")
                : snprintf(dst + at, size - at, i ? ", %lld" : "%lld", (long long)s->dim[i]);
        at += n < 0 ? 0 : (size_t)n;
    }
    return dst;
}
