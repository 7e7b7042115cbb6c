/* records_help - what tests of record readers share: open, get, and hold rows against rows. */
#ifndef CKPT_TESTS_UNIT_RECORDS_HELP_H
#define CKPT_TESTS_UNIT_RECORDS_HELP_H

#include "tests/unit/unit.h"

#include "formats/records/record.h"

/* The records of one path, which is a printf pattern. */
__attribute__((format(printf, 1, 2))) static inline struct records *
must_open_records(const char *pattern, ...)
{
    struct ckpt_err err = {0};
    struct records *r;
    char path[300];
    const char *list = path;
    va_list args;

    va_start(args, pattern);
    vsnprintf(path, sizeof path, pattern, args);
    va_end(args);
    if (records_open(&r, &list, 1, &err))
        fail_msg("%s", err.text);
    return r;
}

static inline json_t *must_get(struct records *r, int64_t i)
{
    struct ckpt_err err = {0};
    json_t *v;

    if (records_get(r, i, &v, &err))
        fail_msg("%s", err.text);
    return v;
}

/* Rows [0, times * n) of path are those of expect, n of them, over and over. */
static inline void assert_same_rows(const char *path, const char *expect, int64_t times)
{
    struct records *got = must_open_records("%s", path), *want = must_open_records("%s", expect);
    int64_t n = records_count(want);

    assert_int_equal(records_count(got), n * times);
    for (int64_t i = 0; i < n * times; i++) {
        json_t *a = must_get(got, i), *b = must_get(want, i % n);

        if (!json_equal(a, b)) {
            char *x = json_dumps(a, 0), *y = json_dumps(b, 0);

            fail_msg("%s: row %lld is\n%s, not\n%s", path, (long long)i, x, y);
        }
        json_decref(a);
        json_decref(b);
    }
    records_close(got);
    records_close(want);
}

#endif
