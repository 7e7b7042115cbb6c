/* run_log: what TensorBoard and W&B see in their own files, files cut and damaged anywhere. */
#include "tests/unit/faults.h"
#include "tests/unit/golden_files.h"

#include <math.h>

#include "formats/container/protobuf.h"
#include "formats/logs/crc32c.h"
#include "formats/logs/run_log.h"
#include "libckpt/base/crc32.h"

#define G "tests/golden/logs/"

static const char *const goldens[] = {
    G "events.out.tfevents.torch", G "events.out.tfevents.tensors", G "run-gold0001.wandb",
    G "run-gold0002.wandb", G "nvidia-smi.csv",
};

static int read_bytes(struct run_log **log, const void *b, size_t n, struct ckpt_err *err)
{
    struct ckpt_file *f = file_of(b, n, "memory");
    int rc = run_log_read(log, f, err);

    ckpt_file_close(f);
    return rc;
}

static struct run_log *must_read(const char *path)
{
    struct ckpt_err err = {0};
    struct run_log *log;
    size_t n;
    unsigned char *b = golden_bytes(path, &n);

    if (read_bytes(&log, b, n, &err))
        fail_msg("%s: %s", path, err.text);
    free(b);
    return log;
}

/* What the maker of a golden file says of it. */
static json_t *must_json(const char *path)
{
    char name[300];

    snprintf(name, sizeof name, "%s.json", path);
    return golden_json(name);
}

static void assert_series(const struct run_log *log, const json_t *want)
{
    const char *tag;
    size_t scalars = 0, i;
    json_t *rows, *row;

    json_object_foreach ((json_t *)want, tag, rows) {
        const struct log_series *s = run_log_find(log, tag, strlen(tag), "scalar");

        if (!s)
            fail_msg("no series %s", tag);
        assert_int_equal(s->count, json_array_size(rows));
        json_array_foreach (rows, i, row) {
            const json_t *v = json_array_get(row, 2);

            assert_int_equal(s->point[i].step, json_integer_value(json_array_get(row, 0)));
            assert_true(s->point[i].time == json_number_value(json_array_get(row, 1)));
            if (json_is_null(v))
                assert_true(!isfinite(s->point[i].value));
            else if (s->point[i].value != json_number_value(v))
                fail_msg("%s: %g is not %g", tag, s->point[i].value, json_number_value(v));
        }
    }
    for (i = 0; i < log->n; i++)
        scalars += strcmp(log->series[i].kind, "scalar") == 0;
    assert_int_equal(scalars, json_object_size(want));
}

TEST(scalars_are_those_tensorboard_loads)
{
    for (size_t i = 0; i < 2; i++) {
        struct run_log *log = must_read(goldens[i]);
        json_t *want = must_json(goldens[i]);

        assert_series(log, want);
        assert_string_equal(log->format, "tensorboard");
        assert_int_equal(log->torn_bytes, 0);
        assert_string_equal(json_string_value(json_object_get(log->info, "file_version")),
                            "brain.Event:2");
        json_decref(want);
        run_log_free(log);
    }
}

TEST(other_values_of_tensorboard_have_their_kinds)
{
    static const char *const want[][2] = {
        {"args/text_summary/text_summary", "text"}, {"weights", "histogram"},
        {"picture", "image"},
    };
    struct run_log *log = must_read(goldens[0]);

    for (size_t i = 0; i < 3; i++) {
        const struct log_series *s = run_log_find(log, want[i][0], strlen(want[i][0]),
                                                  want[i][1]);

        assert_non_null(s);
        assert_int_equal(s->count, 1);
        assert_null(s->point);
        if (i == 0)
            assert_string_equal(s->text, "| key | value |\n|---|---|\n| lr | 5e-05 |");
    }
    run_log_free(log);
}

/* nested "a.b" of the golden's JSON, looked up in nested objects. */
static const json_t *dotted(const json_t *v, const char *key)
{
    const json_t *whole = json_object_get(v, key);
    const char *dot = strchr(key, '.');
    char part[100];

    if (whole || !dot)
        return whole;
    snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
    return dotted(json_object_get(v, part), dot + 1);
}

TEST(a_wandb_run_is_what_its_records_say)
{
    for (size_t i = 2; i < 4; i++) {
        struct run_log *log = must_read(goldens[i]);
        json_t *want = must_json(goldens[i]), *v;
        const char *key;

        assert_series(log, json_object_get(want, "series"));
        assert_int_equal(log->records, json_integer_value(json_object_get(want, "records")));
        json_object_foreach (json_object_get(want, "config"), key, v)
            assert_true(json_equal(v, dotted(json_object_get(log->info, "config"), key)));
        json_object_foreach (json_object_get(want, "summary"), key, v)
            assert_true(json_equal(v, dotted(json_object_get(log->info, "summary"), key)));
        assert_int_equal(json_integer_value(json_object_get(log->info, "exit_code")), 0);
        assert_string_equal(json_string_value(json_object_get(log->info, "project")), "golden");
        assert_int_equal(json_array_size(json_object_get(log->info, "run_tags")), 2);
        json_decref(want);
        run_log_free(log);
    }
}

TEST(a_long_text_is_cut_between_characters)
{
    unsigned char event[2 * LOG_MAX_TEXT];
    struct run_log *log = must_read(goldens[3]);
    const struct log_series *s = run_log_find(log, "text", 4, "text");
    struct ckpt_err err = {0};

    assert_non_null(s);
    assert_string_equal(s->text, "ééé");
    memset(event, 'a', sizeof event);
    memcpy(event + LOG_MAX_TEXT - 1, "é", 2);
    assert_int_equal(run_log_other(log, "long", 4, "text", 1, event, sizeof event, &err), 0);
    s = run_log_find(log, "long", 4, "text");
    assert_int_equal(strlen(s->text), LOG_MAX_TEXT - 1);
    run_log_free(log);
}

/* Any byte changed: told, or at the very end taken for a torn record; never as good. */
TEST(a_changed_byte_is_found)
{
    for (size_t i = 0; i < 3; i++) {
        size_t n, step = i == 1 ? 1 : 13;
        unsigned char *b = golden_bytes(goldens[i], &n);

        for (size_t at = 0; at < n; at += step) {
            struct run_log *log = NULL;
            struct ckpt_err err = {0};

            b[at] ^= 0x20;
            if (read_bytes(&log, b, n, &err))
                assert_true(!log && err.text[0]);
            else if (log->torn_bytes == 0)
                fail_msg("%s: byte %zu changed unseen", goldens[i], at);
            run_log_free(log);
            b[at] ^= 0x20;
        }
        free(b);
    }
}

TEST(a_torn_end_is_left_out_and_counted)
{
    for (size_t i = 0; i < 3; i++) {
        size_t n, least = i < 2 ? 36 : 7, step = i == 1 ? 1 : 7;
        unsigned char *b = golden_bytes(goldens[i], &n);
        uint64_t before = 0, torn;

        for (size_t len = least; len <= n; len += step) {
            struct ckpt_err err = {0};
            struct run_log *log;

            if (read_bytes(&log, b, len, &err))
                fail_msg("%s cut to %zu: %s", goldens[i], len, err.text);
            assert_true(log->records >= before);
            assert_true(log->torn_bytes <= len);
            before = log->records;
            torn = log->torn_bytes;
            run_log_free(log);
            if (len < n && torn == 0) {     /* whole so far: zeros behind it are no records */
                unsigned char *more = malloc(len + 50);

                assert_non_null(more);
                memcpy(more, b, len);
                memset(more + len, 0, 50);
                assert_int_equal(read_bytes(&log, more, len + 50, &err), 0);
                assert_int_equal(log->records, before);
                assert_int_equal(log->torn_bytes, 50);
                run_log_free(log);
                free(more);
            }
        }
        assert_true(before > 2);
        free(b);
    }
}

/* --- files made by hand */

static void put_event(struct ckpt_buf *b, const void *payload, size_t n)
{
    unsigned char len[8] = {(unsigned char)n, (unsigned char)(n >> 8)};

    ckpt_buf_put(b, len, 8);
    ckpt_buf_put_u32le(b, crc32c_masked(len, 8));
    ckpt_buf_put(b, payload, n);
    ckpt_buf_put_u32le(b, crc32c_masked(payload, n));
}

static const char version[] = "\x1a\x0d" "brain.Event:2";

/* A file of events that has its first. */
static void begin_events(struct ckpt_buf *b)
{
    ckpt_buf_init(b, SIZE_MAX);
    put_event(b, version, sizeof version - 1);
}

/* The log of the bytes, which are released. */
static struct run_log *log_of(struct ckpt_buf *b)
{
    struct ckpt_err err = {0};
    struct run_log *log;

    if (read_bytes(&log, b->data, b->len, &err))
        fail_msg("%s", err.text);
    ckpt_buf_release(b);
    return log;
}

/* The bytes are refused with these words. */
static void refused(int rc, const struct run_log *log, const struct ckpt_err *err, const char *why,
                    const char *where)
{
    assert_int_equal(rc, CKPT_EFORMAT);
    assert_null(log);
    if (!strstr(err->text, why) || !strstr(err->text, where))
        fail_msg("%s", err->text);
}

struct bad { const char *bytes; size_t n; const char *why; };

TEST(checksums_have_their_known_values)
{
    static const unsigned char known[] = {
        0x1a, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x9b, 0xd8, 0x2d, 0x09, 0, 0, 0x40, 0x40, 0xfc, 0x54, 0xd9,
        0x41, 0x10, 0x0a, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04, 'l', 'o', 's', 's', 0x15, 0, 0,
        0x20, 0x40, 0x5c, 0x6a, 0x91, 0x8a,
    };
    struct run_log *log;
    struct ckpt_buf b;

    assert_int_equal(crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(crc32c_masked("123456789", 9), 0xc78ab0e5);
    begin_events(&b);
    ckpt_buf_put(&b, known, sizeof known);
    log = log_of(&b);
    assert_int_equal(log->n, 1);
    assert_int_equal(log->series[0].point[0].step, 10);
    assert_true(log->series[0].point[0].value == 2.5);
    assert_true(log->series[0].point[0].time == 1700000001.0);
    run_log_free(log);
}

static void put_loss(struct ckpt_buf *b, int step)
{
    unsigned char e[] = {0x10, (unsigned char)step, 0x2a, 0x0a, 0x0a, 0x08, 0x0a, 0x01, 'l',
                         0x15, 0, 0, 0x20, 0x40};

    put_event(b, e, sizeof e);
}

TEST(a_session_that_starts_again_takes_back_what_was_not_saved)
{
    static const unsigned char start[] = {0x10, 3, 0x3a, 0x02, 0x08, 0x01},
                               stop[] = {0x10, 0, 0x3a, 0x02, 0x08, 0x02};
    struct run_log *log;
    struct ckpt_buf b;

    begin_events(&b);
    for (int i = 1; i <= 5; i++)
        put_loss(&b, i);
    put_event(&b, stop, sizeof stop);
    put_event(&b, start, sizeof start);
    put_loss(&b, 3);
    log = log_of(&b);
    assert_int_equal(log->series[0].count, 3);
    assert_int_equal(log->series[0].point[1].step, 2);
    assert_int_equal(log->series[0].point[2].step, 3);
    assert_int_equal(log->series[0].last_step, 3);
    run_log_free(log);
}

TEST(event_files_of_one_run_are_one_log)
{
    static const unsigned char start[] = {0x10, 3, 0x3a, 0x02, 0x08, 0x01};
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct run_log *log;
    struct ckpt_buf b;
    size_t n;
    unsigned char *wandb = golden_bytes(goldens[2], &n);

    begin_events(&b);
    for (int i = 1; i <= 5; i++)
        put_loss(&b, i);
    log = log_of(&b);
    begin_events(&b);
    put_event(&b, start, sizeof start);
    put_loss(&b, 9);
    ckpt_buf_put(&b, "torn", 4);
    f = file_of(b.data, b.len, "second");
    assert_int_equal(run_log_add(log, f, &err), 0);
    ckpt_file_close(f);
    assert_int_equal(log->n, 1);
    assert_int_equal(log->series[0].count, 3);          /* 1, 2 and 9 */
    assert_int_equal(log->series[0].last_step, 9);
    assert_int_equal(log->records, 9);
    assert_int_equal(log->torn_bytes, 4);
    f = file_of(wandb, n, "third");
    assert_int_equal(run_log_add(log, f, &err), CKPT_EMISMATCH);
    ckpt_file_close(f);
    run_log_free(log);
    ckpt_buf_release(&b);
    free(wandb);
}

TEST(events_that_are_none_are_refused)
{
    static const struct bad bad[] = {
        {"\x0b", 1, "not an Event"}, {"\x2a\x05\x0a", 3, "not an Event"},
        {"\x2a\x02\x0a\x05", 4, "no protocol buffer"},
        {"\x2a\x04\x0a\x02\x0a\x09", 6, "no protocol buffer"},
        {"\x2a\x05\x0a\x03\x0a\x01\xff", 7, "not UTF-8"},
        {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "not an Event"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ckpt_err err = {0};
        struct run_log *log;
        struct ckpt_buf b;
        int rc;

        begin_events(&b);
        put_event(&b, bad[i].bytes, bad[i].n);
        rc = read_bytes(&log, b.data, b.len, &err);
        refused(rc, log, &err, bad[i].why, "event 2, at byte 31");
        ckpt_buf_release(&b);
    }
}

/* A W&B file of one record that is one chunk. */
static int read_record(struct run_log **log, const void *record, size_t n, struct ckpt_err *err)
{
    unsigned char b[512] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    uint32_t crc;

    assert_true(n < 400);
    b[11] = (unsigned char)n;
    b[12] = (unsigned char)(n >> 8);
    b[13] = 1;
    memcpy(b + 14, record, n);
    crc = ckpt_crc32(0, b + 13, 1 + n);
    for (int k = 0; k < 4; k++)
        b[7 + k] = (unsigned char)(crc >> 8 * k);
    return read_bytes(log, b, 14 + n, err);
}

static struct run_log *must_read_record(const void *record, size_t n)
{
    struct ckpt_err err = {0};
    struct run_log *log;

    if (read_record(&log, record, n, &err))
        fail_msg("%s", err.text);
    return log;
}

TEST(typed_values_of_a_history_are_read)
{
    /* step {num: 7}, i: sint64 -3, d: 1.5, t: "hi", b: true */
    static const char record[] =
        "\x12\x29" "\x0a\x05" "\x0a\x01" "i" "\x28\x05" "\x0a\x0c" "\x0a\x01" "d"
        "\x31\0\0\0\0\0\0\xf8\x3f" "\x0a\x07" "\x0a\x01" "t" "\x3a\x02" "hi" "\x0a\x05" "\x0a\x01" "b"
        "\x20\x01" "\x12\x02\x08\x07";
    struct run_log *log = must_read_record(record, sizeof record - 1);
    const struct log_series *s;

    s = run_log_find(log, "i", 1, "scalar");
    assert_non_null(s);
    assert_true(s->point[0].value == -3 && s->point[0].step == 7);
    s = run_log_find(log, "d", 1, "scalar");
    assert_true(s && s->point[0].value == 1.5);
    s = run_log_find(log, "t", 1, "text");
    assert_true(s && strcmp(s->text, "hi") == 0);
    assert_non_null(run_log_find(log, "b", 1, "boolean"));
    run_log_free(log);
}

TEST(measurements_of_the_machine_are_counted)
{
    /* stats { timestamp { seconds: 100 } item { key: "cpu" value_json: "12.5" } item ... } */
    static const char record[] = "\x3a\x20\x12\x02\x08\x64" "\x1a\x0c\x0a\x03" "cpu"
                                 "\x82\x01\x04" "12.5" "\x1a\x0c\x0a\x03" "cpu"
                                 "\x82\x01\x04" "13.5";
    struct run_log *log = must_read_record(record, sizeof record - 1);
    const struct log_series *s;

    s = run_log_find(log, "system/cpu", 10, "scalar");
    assert_non_null(s);
    assert_int_equal(s->count, 2);
    assert_true(s->point[1].step == 1 && s->point[1].value == 13.5 && s->point[1].time == 100);
    run_log_free(log);
}

TEST(records_that_are_none_are_refused)
{
    static const struct bad bad[] = {
        {"\x0b", 1, "not a Record"},
        {"\x12\x03\x0a\x05\x0a", 5, "cut"},
        {"\x12\x08\x0a\x06\x0a\x01k\x42\x01{", 10, "json"},
        {"\x12\x0a\x0a\x08\x0a\x01k\x42\x03" "1,2", 12, "2 values"},
        {"\x12\x05\x0a\x03\x0a\x01\xff", 7, "not UTF-8"},
        {"\x12\x0b\x0a\x09\x0a\x01k\x42\x04" "][1]", 13, "json"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ckpt_err err = {0};
        struct run_log *log;
        int rc = read_record(&log, bad[i].bytes, bad[i].n, &err);

        refused(rc, log, &err, bad[i].why, "record 1, at byte 7");
    }
}

TEST(columns_of_nvidia_smi_are_series_of_each_gpu)
{
    static const char used[] = "0/memory.used [MiB]", power[] = "1/power.draw [W]";
    struct run_log *log = must_read(G "nvidia-smi.csv");
    const struct log_series *s = run_log_find(log, used, sizeof used - 1, "scalar");

    assert_string_equal(log->format, "nvidia-smi");
    assert_string_equal(json_string_value(json_object_get(log->info, "gpu 1")), "NVIDIA H200");
    assert_int_equal(log->records, 5);
    assert_non_null(s);
    assert_int_equal(s->count, 3);
    assert_true(s->point[1].value == 31244 && s->point[1].step == 1);
    assert_true(fabs(s->point[2].time - 1795282202.125) < 1e-3);
    assert_null(run_log_find(log, power, sizeof power - 1, "scalar"));      /* [N/A] */
    run_log_free(log);
}

TEST(lines_of_nvidia_smi_that_are_none_are_refused)
{
    static const struct {
        const char *text, *why;
        int         torn;
    } of[] = {
        {"index, memory.used [MiB]\n0, 1 MiB\n0, 1 MiB, 2\n", "line 3 has 3 fields", 0},
        {"index, memory.used [MiB]\n-1, 1 MiB\n", "line 2: index -1", 0},
        {"index, memory.used [MiB]\n0.5, 1 MiB\n", "line 2: index 0.5", 0},
        {"memory.used [MiB], x\r\n1 MiB, 2\r\n3 MiB, 4", NULL, 8},
        {"index, memory.total [MiB]\n0, 1 MiB\n", "neither", 0},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct ckpt_err err = {0};
        struct run_log *log = NULL;
        int rc = read_bytes(&log, of[i].text, strlen(of[i].text), &err);

        assert_int_equal(rc == 0, of[i].why == NULL);
        if (of[i].why && !strstr(err.text, of[i].why))
            fail_msg("%zu: %s", i, err.text);
        if (rc == 0)
            assert_int_equal(log->torn_bytes, of[i].torn);
        run_log_free(log);
    }
}

TEST(no_memory_at_any_point_is_told)
{
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        unsigned char *b = golden_bytes(goldens[i], &n);

        for (struct faults f = {.kinds = FAULT(ALLOC), .later = true}; faults_next(&f);) {
            struct ckpt_file *file = file_of(b, n, "memory");
            struct run_log *log = NULL;
            struct ckpt_err err = {0};
            int rc;

            faults_arm(&f);
            rc = run_log_read(&log, file, &err);
            faults_disarm(&f);
            ckpt_file_close(file);
            run_log_free(log);
            faults_fail(&f, rc, CKPT_ENOMEM, &err, goldens[i]);
        }
        free(b);
    }
}
