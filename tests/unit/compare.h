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

/* Opening is refused with that code, and the words are in the sentence. */
static inline void must_not_open(const char *path, const struct ckpt_open_opts *opts, int code,
                                 const char *words)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_open(&s, path, opts, &err);

    if (rc == 0)
        fail_msg("%s was opened, \"%s\" expected", path, words);
    if (rc != code || !strstr(err.text, words))
        fail_msg("%s: %d \"%s\", %d with \"%s\" expected", path, rc, err.text, code, words);
    assert_null(s);
}

/* Write all of src in a format; side files are opts' own. */
static inline int write_source(const char *path, const char *format, struct ckpt_source *src,
                               const struct ckpt_create_opts *opts,
                               const struct ckpt_copy_opts *copy, struct ckpt_err *err)
{
    struct ckpt_sink *sink = NULL;
    int rc;

    memset(err, 0, sizeof *err);
    if ((rc = ckpt_create(&sink, format, path, ckpt_source_tensors(src), opts, err)) != 0)
        return rc;
    if ((rc = ckpt_copy(sink, src, copy, err)) == 0)
        return ckpt_sink_commit(sink, err);
    ckpt_sink_abort(sink);
    return rc;
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

/* Ranges of tensor i, at each step and of lengths that grow up to `most`, are those of it all. */
static inline void assert_any_range(struct ckpt_source *s, size_t i, int64_t step, int64_t grow,
                                    int64_t most)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
    size_t width = ckpt_dtype_size(t->dtype);
    unsigned char *all = read_whole(s, i), *part = malloc((size_t)most * width);
    struct ckpt_err err = {0};

    for (int64_t at = 0; at < t->numel; at += step)
        for (int64_t n = 1; n <= t->numel - at && n < most; n += grow) {
            assert_int_equal(ckpt_source_read(s, i, at, n, part, &err), 0);
            assert_memory_equal(part, all + (size_t)at * width, (size_t)n * width);
        }
    free(all);
    free(part);
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

/* Both have the same tensors. */
static inline void assert_same_tensors(struct ckpt_source *found, struct ckpt_source *wanted,
                                       const char *where)
{
    assert_int_equal(ckpt_source_count(found), ckpt_source_count(wanted));
    for (size_t i = 0; i < ckpt_source_count(wanted); i++)
        assert_same_tensor(found, ckpt_source_tensor(wanted, i)->name, wanted, i, where);
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

/* s without the tensors that match glob, or with a part of its names renamed. */
static inline struct ckpt_source *without(struct ckpt_source *s, const char *glob)
{
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (ckpt_view_filter(&out, s, NULL, 0, &glob, 1, &err))
        fail_msg("%s: %s", glob, err.text);
    return out;
}

static inline struct ckpt_source *renamed(struct ckpt_source *s, const char *from, const char *to)
{
    struct ckpt_rename_rule rule = {from, to};
    struct ckpt_source *out;
    struct ckpt_err err = {0};

    if (ckpt_view_rename(&out, s, &rule, 1, &err))
        fail_msg("%s: %s", from, err.text);
    return out;
}

#endif
