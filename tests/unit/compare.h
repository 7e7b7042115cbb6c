/*
 * compare - what tests of formats share: open, and hold tensors against expected ones.
 */
#ifndef CKPT_TESTS_UNIT_COMPARE_H
#define CKPT_TESTS_UNIT_COMPARE_H

#include "tests/unit/unit.h"

#include <math.h>

#include "formats/formats.h"
#include "libckpt/ckpt.h"

static inline struct ckpt_source *must_open(const char *path, const struct ckpt_open_opts *opts)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};

    if (ckpt_open(&s, path, opts, &err))
        fail_msg("%s: %s", path, err.text);
    return s;
}

static inline void *read_whole(struct ckpt_source *s, size_t i)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
    void *p = malloc((size_t)ckpt_tensor_bytes(t) + 1);
    struct ckpt_err err = {0};

    if (ckpt_source_read(s, i, 0, t->numel, p, &err))
        fail_msg("%s: %s", t->name, err.text);
    return p;
}

/* Tensor `name` of found against tensor i of wanted: dtype, shape and every bit. */
static inline void assert_same_tensor(struct ckpt_source *found, const char *name,
                               struct ckpt_source *wanted, size_t i, const char *where)
{
    const struct ckpt_tensor *w = ckpt_source_tensor(wanted, i), *f;
    size_t k = ckpt_source_find(found, name);
    void *a, *b;

    if (k == SIZE_MAX)
        fail_msg("%s: %s is absent", where, name);
    f = ckpt_source_tensor(found, k);
    if (f->dtype != w->dtype || !ckpt_shape_equal(&f->shape, &w->shape))
        fail_msg("%s: %s is %s of rank %d, %s of rank %d expected", where, name,
                 ckpt_dtype_name(f->dtype), f->shape.rank, ckpt_dtype_name(w->dtype),
                 w->shape.rank);
    a = read_whole(found, k);
    b = read_whole(wanted, i);
    if (memcmp(a, b, (size_t)ckpt_tensor_bytes(w)) != 0)
        fail_msg("%s: %s differs", where, name);
    free(a);
    free(b);
}

/* Every tensor of the expected file is in found, bit for bit.  Returns how many. */
static inline size_t assert_holds(struct ckpt_source *found, const char *expected)
{
    struct ckpt_source *wanted = must_open(expected, NULL);
    size_t n = ckpt_source_count(wanted);

    for (size_t i = 0; i < n; i++)
        assert_same_tensor(found, ckpt_source_tensor(wanted, i)->name, wanted, i, expected);
    ckpt_source_close(wanted);
    return n;
}

#endif
