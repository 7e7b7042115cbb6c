/* parquet: every row of the reference writer's files, whatever the encoding; damage; limits. */
#include "tests/unit/records_help.h"
#include "tests/unit/faults.h"

#include <pthread.h>

#include "formats/records/parquet/bits.h"
#include "formats/records/parquet/codec.h"
#include "formats/records/parquet/rows.h"
#include "formats/records/rows.h"
#include "formats/records/spill_file.h"

#define G "tests/golden/parquet"

TEST(rows_are_those_the_reference_reads)
{
    assert_index(G, "index.json", ".parquet", 25);
}

TEST(a_whole_number_and_a_fraction_stay_what_they_are)
{
    struct records *r = must_open_records(G "/flat.parquet", NULL);
    json_t *v = must_get(r, 3), *text = must_get(r, 2);

    assert_true(json_is_integer(json_object_get(v, "id")));
    assert_true(json_is_real(json_object_get(v, "f64")));      /* -0.0 */
    assert_string_equal(json_string_value(json_object_get(text, "f64")), "-Infinity");
    json_decref(v);
    json_decref(text);
    records_close(r);
}

TEST(rows_come_in_any_order)
{
    struct records *r = must_open_records(G "/flat-groups.parquet", NULL);

    for (int64_t k = 0, i = 7; k < 200; k++, i = (i * 37 + 11) % 60) {
        json_t *v = must_get(r, i);

        assert_int_equal(json_integer_value(json_object_get(v, "id")), i);
        json_decref(v);
    }
    records_close(r);
}

/* Rows of a file's only group after n of them are left out are those after n that are read. */
static void assert_skips(const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    struct pq_file f;
    struct ckpt_buf want, got;

    assert_int_equal(ckpt_file_open(&file, path_in(G, name), 0, &err), 0);
    assert_int_equal(pq_file_open(&f, file, &err), 0);
    for (size_t g = 0; g < f.n_group; g++)
        for (int64_t n = 1; n < f.group[g].rows; n += 1 + n / 8) {
            struct pq_rows *read, *skip;

            ckpt_buf_init(&want, PQ_MAX_ROW);
            ckpt_buf_init(&got, PQ_MAX_ROW);
            assert_int_equal(pq_rows_open(&read, &f, g, NULL, &err), 0);
            assert_int_equal(pq_rows_open(&skip, &f, g, NULL, &err), 0);
            for (int64_t i = 0; i <= n; i++) {
                want.len = 0;
                assert_int_equal(pq_rows_next(read, &want, &err), 0);
            }
            assert_int_equal(pq_rows_skip(skip, n / 2, &err), 0);
            assert_int_equal(pq_rows_skip(skip, n - n / 2, &err), 0);
            assert_int_equal(pq_rows_next(skip, &got, &err), 0);
            assert_string_equal(ckpt_buf_str(&want), ckpt_buf_str(&got));
            pq_rows_close(read);
            pq_rows_close(skip);
            ckpt_buf_release(&want);
            ckpt_buf_release(&got);
        }
    pq_file_release(&f);
    ckpt_file_close(file);
}

TEST(rows_after_those_left_out_are_the_same)
{
    static const char *const names[] = {"flat-smallpages", "flat-v2", "flat-groups", "flat-delta",
                                        "flat-fallback", "nested", "nested-v2", "old-nested"};
    char name[80];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, "%s.parquet", names[i]);
        assert_skips(name);
    }
}

/* --- several threads */

struct reader {
    struct records *r;
    int64_t         start;
    int             wrong;
};

static void *read_all(void *arg)
{
    struct reader *me = arg;

    for (int64_t k = 0; k < 40; k++) {
        struct ckpt_err err = {0};
        json_t *v = NULL;

        if (records_get(me->r, (me->start + k) % 40, &v, &err) ||
            json_integer_value(json_object_get(v, "last")) != (me->start + k) % 40)
            me->wrong++;
        json_decref(v);
    }
    return NULL;
}

TEST(threads_read_row_groups_side_by_side)
{
    struct records *r = must_open_records(G "/nested-groups.parquet", NULL);
    struct reader me[6];
    pthread_t t[6];

    for (int i = 0; i < 6; i++) {
        me[i] = (struct reader){r, 9 * i % 40, 0};
        assert_int_equal(pthread_create(&t[i], NULL, read_all, &me[i]), 0);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(me[i].wrong, 0);
    }
    records_close(r);
}

/* --- rows without records */

/* All rows of bytes, at most 2000, into out; the first failure. */
static int read_rows(const void *bytes, size_t n, const bool *want, struct ckpt_buf *out,
                     struct ckpt_err *err)
{
    struct ckpt_file *f = file_of(bytes, n, "memory");
    struct pq_file file;
    int64_t left = 2000;
    int rc = pq_file_open(&file, f, err);

    for (size_t g = 0; rc == 0 && g < file.n_group; g++) {
        struct pq_rows *rows = NULL;

        rc = pq_rows_open(&rows, &file, g, want, err);
        for (int64_t i = 0; rc == 0 && i < file.group[g].rows && left-- > 0; i++) {
            rc = pq_rows_next(rows, out, err);
            ckpt_buf_put_u8(out, '\n');
        }
        if (rc == 0 && left > 0)
            rc = pq_rows_end(rows, err);
        pq_rows_close(rows);
    }
    pq_file_release(&file);
    ckpt_file_close(f);
    return rc;
}

/* The same where nobody looks at the rows. */
static int try_rows(const void *bytes, size_t n, struct ckpt_err *err)
{
    struct ckpt_buf out;
    int rc;

    ckpt_buf_init(&out, (size_t)1 << 20);
    rc = read_rows(bytes, n, NULL, &out, err);
    ckpt_buf_release(&out);
    return rc;
}

TEST(columns_that_are_not_wanted_are_not_read)
{
    size_t n;
    unsigned char *b = golden_bytes(G "/nested.parquet", &n);
    /* tags, ll, m.key, m.value, fixed, st.a, st.b.c, st.b.d, ... last */
    bool want[17] = {[3] = true, [7] = true, [16] = true};
    struct ckpt_err err = {0};
    struct ckpt_buf out;

    ckpt_buf_init(&out, SIZE_MAX);
    /* The first column's page is damaged: nobody looks. */
    memset(b + 8, 0xff, 40);
    if (read_rows(b, n, want, &out, &err))
        fail_msg("%s", err.text);
    assert_non_null(strstr(ckpt_buf_str(&out),
                           "\"st\":{\"b\":{\"d\":[1,null]}},\"last\":1}"));
    assert_null(strstr(ckpt_buf_str(&out), "tags"));
    assert_non_null(strstr(ckpt_buf_str(&out), "\"m\":[[null,"));
    out.len = 0;
    want[0] = true;
    assert_int_equal(read_rows(b, n, want, &out, &err), CKPT_EFORMAT);
    assert_non_null(strstr(err.text, "column \"element\""));
    ckpt_buf_release(&out);
    free(b);
}

TEST(changed_bytes_are_told_or_harmless)
{
    assert_damage_is_told(G "/old-lists.parquet", 1, try_rows);
    assert_damage_is_told(G "/hadoop-lz4.parquet", 3, try_rows);
    assert_damage_is_told(G "/int96.parquet", 2, try_rows);
    assert_damage_is_told(G "/flat-delta.parquet", 11, try_rows);
    assert_damage_is_told(G "/flat-split.parquet", 23, try_rows);
    assert_damage_is_told(G "/nested-v2.parquet", 13, try_rows);
    assert_damage_is_told(G "/runs.parquet", 5, try_rows);
}

TEST(checksums_are_held)
{
    size_t n, told = 0, tried = 0;
    unsigned char *b = golden_bytes(G "/flat-crc.parquet", &n);

    for (size_t at = 60; at < 400; at += 7, tried++) {
        struct ckpt_err err = {0};

        b[at] ^= 1;
        if (try_rows(b, n, &err))
            told += strstr(err.text, "checksum") != NULL;
        b[at] ^= 1;
    }
    assert_true(told > tried / 2);
    free(b);
}

TEST(a_cut_file_is_refused)
{
    size_t n;
    unsigned char *b = golden_bytes(G "/flat-gzip.parquet", &n);

    for (size_t len = 0; len < n; len += len < 20 || n - len < 20 ? 1 : 97) {
        struct ckpt_err err = {0};

        assert_int_equal(try_rows(b, len, &err), CKPT_EFORMAT);
    }
    free(b);
}

TEST(what_asks_for_much_is_refused)
{
    static const struct { const char *path; int code; const char *why; } rows[] = {
        {G "/bomb.parquet", CKPT_ELIMIT, "unpacks to 134217728"},
        {G "/too-deep.parquet", CKPT_ELIMIT, "nested deeper than 32"},
        {G "/twice.parquet", CKPT_EFORMAT, "two fields are named \"n\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n;
        unsigned char *b = golden_bytes(rows[i].path, &n);
        struct ckpt_err err = {0};

        assert_int_equal(try_rows(b, n, &err), rows[i].code);
        if (!strstr(err.text, rows[i].why))
            fail_msg("%s", err.text);
        free(b);
    }
}

TEST(encrypted_files_are_told)
{
    static const char file[] = "PARE....\4\0\0\0PARE";
    struct ckpt_err err = {0};

    assert_int_equal(try_rows(file, sizeof file - 1, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "encrypted"));
}

/* Rows that can be had one by one; what is said then, twice the same. */
static int64_t rows_until_damage(const unsigned char *b, size_t n, struct ckpt_err *err)
{
    struct ckpt_err again = {0};
    json_t *v = NULL;
    void *self;
    int64_t got = 0;

    assert_int_equal(record_open(&self, &record_parquet, file_of(b, n, "memory"),
                                 &(struct records_opts){0}, err), 0);
    assert_int_equal(record_parquet.count(self), 60);
    while (got < 60 && record_parquet.get(self, got, &v, err) == 0) {
        assert_int_equal(json_integer_value(json_object_get(v, "id")), got);
        json_decref(v);
        got++;
    }
    if (strstr(err->text, "row group 1: column")) {     /* or a text is no UTF-8 any more */
        assert_int_equal(record_parquet.get(self, 59, &v, &again), err->code);
        assert_string_equal(err->text, again.text);
    }
    record_close(self, &record_parquet);
    return got;
}

TEST(rows_in_front_of_damage_can_be_had)
{
    size_t n, found = 0;
    unsigned char *b = golden_bytes(G "/flat-smallpages.parquet", &n);

    /* Pages of the text columns and others, far behind their first. */
    for (size_t at = 2000; at < 8000; at += 29) {
        struct ckpt_err err = {0};
        int64_t got;

        b[at] ^= 0xff;
        got = rows_until_damage(b, n, &err);
        found += got > 0 && got < 60 && strstr(err.text, "row group 1: column");
        b[at] ^= 0xff;
    }
    assert_true(found > 3);
    free(b);
}

/* --- integers */

TEST(hybrid_runs)
{
    /* 5 times 3; one group 0..7 of width 3; an empty run; one group cut to 6 bits' worth */
    static const unsigned char bytes[] = {0x0a, 3, 0x03, 0x88, 0xc6, 0xfa, 0x00, 0x03, 0xd1};
    struct pq_hybrid h;
    uint32_t v;

    pq_hybrid_init(&h, bytes, sizeof bytes, 3);
    for (int i = 0; i < 5; i++)
        assert_true(pq_hybrid_next(&h, &v) && v == 3);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(pq_hybrid_next(&h, &v) && v == i);
    assert_true(pq_hybrid_next(&h, &v) && v == 1);
    assert_true(pq_hybrid_next(&h, &v) && v == 2);
    assert_false(pq_hybrid_next(&h, &v));
    pq_hybrid_init(&h, bytes, 1, 3);
    assert_false(pq_hybrid_next(&h, &v));
    pq_hybrid_init(&h, (const unsigned char *)"\x02\x09", 2, 3);     /* 9 in three bits */
    assert_false(pq_hybrid_next(&h, &v));
    pq_hybrid_init(&h, (const unsigned char *)"\x06", 1, 0);
    for (int i = 0; i < 3; i++)
        assert_true(pq_hybrid_next(&h, &v) && v == 0);
    assert_false(pq_hybrid_next(&h, &v));
    pq_hybrid_init(&h, NULL, 0, 1);
    assert_false(pq_hybrid_next(&h, &v));
}

TEST(delta_headers_that_lie)
{
    static const struct { const char *bytes; size_t n; } bad[] = {
        {"", 0}, {"\x80\x01\x00\x05\x00", 5}, {"\x80\x01\x04\x7f\x00", 5},
        {"\x81\x01\x04\x05\x00", 5}, {"\xff\xff\xff\x7f\x01\x05\x00", 7},
        {"\x00\x04\x05\x00", 4}, {"\x80\x01\x04\x05", 4},
    };
    struct pq_delta d;
    int64_t v;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(pq_delta_init(&d, (const unsigned char *)bad[i].bytes, bad[i].n, 100));
    /* 5 values, width 65 */
    assert_true(pq_delta_init(&d, (const unsigned char *)"\x80\x01\x04\x05\x02\x00\x41\0\0\0", 10,
                              5));
    assert_false(pq_delta_next(&d, &v));
    /* the same with width 0 and least difference -1 */
    assert_true(pq_delta_init(&d, (const unsigned char *)"\x80\x01\x04\x05\x02\x01\0\0\0\0", 10, 5));
    for (int64_t i = 1; i > -4; i--)
        assert_true(pq_delta_next(&d, &v) && v == i);
    assert_false(pq_delta_next(&d, &v));
}

TEST(pages_that_unpack_to_another_size_are_refused)
{
    struct ckpt_err err = {0};
    unsigned char dst[64];

    for (int codec = 0; codec < 10; codec++) {
        int want = codec == PQ_LZO || codec > PQ_LZ4_RAW ? CKPT_EUNSUPPORTED : CKPT_EFORMAT;

        assert_int_equal(pq_unpack(codec, dst, 40, (const unsigned char *)"\x28 no such page", 14,
                                   &err), want);
    }
    assert_int_equal(pq_unpack(PQ_SNAPPY, dst, 3, (const unsigned char *)"\x03\x08" "abc", 5, &err),
                     0);
    assert_memory_equal(dst, "abc", 3);
    assert_int_equal(pq_unpack(PQ_SNAPPY, dst, 4, (const unsigned char *)"\x03\x08" "abc", 5, &err),
                     CKPT_EFORMAT);
}

/* --- spill files */

TEST(a_spill_file_gives_back_its_lines)
{
    struct spill_part p = {0}, q = {0};
    struct ckpt_err err = {0};
    char line[40000];
    struct ckpt_buf buf;
    struct spill_file *s;

    assert_int_equal(spill_file_open(&s, &err), 0);
    for (int i = 0; i < 3000; i++) {
        size_t n = i % 1000 == 999 ? sizeof line : (size_t)(i % 50);

        memset(line, 'a' + i % 26, n);
        assert_int_equal(spill_file_put(s, i % 3 ? &p : &q, line, n, &err), 0);
    }
    assert_int_equal(spill_file_flush(s, &p, &err), 0);
    assert_int_equal(spill_file_flush(s, &q, &err), 0);
    assert_int_equal(p.lines, 2000);
    ckpt_buf_init(&buf, SIZE_MAX);
    for (int i = 2999; i >= 0; i--) {
        size_t n = i % 1000 == 999 ? sizeof line : (size_t)(i % 50);

        assert_int_equal(spill_file_get(s, i % 3 ? &p : &q,
                                        i % 3 ? i / 3 * 2 + i % 3 - 1 : i / 3, &buf, &err), 0);
        assert_int_equal(buf.len, n);
        assert_true(n == 0 || (buf.data[0] == 'a' + i % 26 && buf.data[n - 1] == buf.data[0]));
    }
    ckpt_buf_release(&buf);
    spill_file_part_release(&p);
    spill_file_part_release(&q);
    spill_file_close(s);
}

TEST(a_spill_file_without_a_place_is_told)
{
    struct ckpt_err err = {0};
    struct spill_file *s;

    assert_int_equal(setenv("TMPDIR", "/nowhere/at/all", 1), 0);
    assert_int_equal(spill_file_open(&s, &err), CKPT_ECREATE);
    assert_non_null(strstr(err.hint, "TMPDIR"));
    unsetenv("TMPDIR");
}

TEST(failures_at_any_point_are_told)
{
    static const struct { unsigned kind; int code, or; } rows[] = {
        {FAULT(ALLOC), CKPT_ENOMEM, 0}, {FAULT(READ), CKPT_EIO, 0},
        {FAULT(WRITE), CKPT_EIO, 0}, {FAULT(OPEN), CKPT_ECREATE, CKPT_EIO},
    };

    for (size_t i = 0; i < 4; i++) {
        struct faults f = {.kinds = rows[i].kind};

        while (faults_next(&f)) {
            struct ckpt_err err = {0};
            struct records *r = NULL;
            const char *list = G "/flat-delta.parquet";
            int rc = records_open(&r, &list, 1, &err);
            json_t *v;

            for (int64_t k = 0; rc == 0 && k < records_count(r); k++) {
                rc = records_get(r, k, &v, &err);
                json_decref(v);
            }
            faults_disarm(&f);
            records_close(r);
            faults_told(&f, rc, &err, list);
            if (rc && rc != rows[i].code && rc != rows[i].or)
                fail_msg("kind %zu, number %lu: %d", i, f.n, rc);
        }
        assert_true(f.rounds > 1);
    }
}
