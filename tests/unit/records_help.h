/*
 * records_help - what tests of record readers share: files of a test's folder, records opened and
 * held against others.
 */
#ifndef CKPT_TESTS_UNIT_RECORDS_HELP_H
#define CKPT_TESTS_UNIT_RECORDS_HELP_H

#include "tests/unit/golden_files.h"

#include "formats/records/record.h"

/* The path of a file in dir; one of the last eight. */
static inline const char *path_in(const char *dir, const char *name)
{
    static char path[8][400];
    static int i;

    i = (i + 1) % 8;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

/* Write a file in dir, and the folders that its name has before it; its path. */
static inline const char *put_bytes_in(const char *dir, const char *name, const void *bytes,
                                       size_t n)
{
    const char *path = path_in(dir, name);
    FILE *f;

    for (const char *slash = name; (slash = strchr(slash, '/')); slash++) {
        char *at = (char *)path + strlen(dir) + 1 + (slash - name);

        *at = '\0';
        mkdir(path, 0777);
        *at = '/';
    }
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *put_in(const char *dir, const char *name, const char *text)
{
    return put_bytes_in(dir, name, text, strlen(text));
}

static inline struct records *must_open_records(const char *path, const struct records_opts *opts)
{
    struct ckpt_err err = {0};
    struct records *r;

    if (records_open_with(&r, &path, 1, opts, &err))
        fail_msg("%s: %s", path, err.text);
    return r;
}

/* Opening fails, with that code and these words. */
static inline void refuse_records(const char *path, const struct records_opts *opts, int code,
                                  const char *text, const char *hint)
{
    struct ckpt_err err = {0};
    struct records *r;

    assert_int_equal(records_open_with(&r, &path, 1, opts, &err), code);
    if (!strstr(err.text, text) || !strstr(err.hint, hint))
        fail_msg("\"%s\" (%s) does not say \"%s\"", err.text, err.hint, text);
}

static inline json_t *must_get(struct records *r, int64_t i)
{
    struct ckpt_err err = {0};
    json_t *v;

    if (records_get(r, i, &v, &err))
        fail_msg("%s", err.text);
    return v;
}

/* Member key of record i is this text. */
static inline void assert_member(struct records *r, int64_t i, const char *key, const char *want)
{
    json_t *v = must_get(r, i);

    assert_string_equal(json_string_value(json_object_get(v, key)), want);
    json_decref(v);
}

/* Rows [0, times * n) of path are those of expect, n of them, over and over, forwards and backwards. */
static inline void assert_same_rows(const char *path, const struct records_opts *opts,
                                    const char *expect, int64_t times)
{
    struct records *got = must_open_records(path, opts), *want = must_open_records(expect, NULL);
    int64_t n = records_count(want), all = n * times;

    assert_int_equal(records_count(got), all);
    for (int64_t k = 0; k < 2 * all; k++) {
        int64_t i = k < all ? k : 2 * all - 1 - k;
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

/* Files of a folder's index hold the rows of FILE.jsonl, where FILE is a member's value or that of
 * its "expect"; more than `least` of them. */
static inline void assert_index(const char *folder, const char *index, const char *ending,
                                size_t least)
{
    json_t *files = golden_json(path_in(folder, index)), *expect;
    const char *name;
    char path[300], rows[300];

    assert_true(json_object_size(files) > least);
    json_object_foreach (files, name, expect) {
        const json_t *v = json_is_object(expect) ? json_object_get(expect, "expect") : expect;

        snprintf(path, sizeof path, "%s/%s%s", folder, name, ending);
        snprintf(rows, sizeof rows, "%s/%s.jsonl", folder, json_string_value(v));
        assert_same_rows(path, NULL, rows, 1);
    }
    json_decref(files);
}

#endif
