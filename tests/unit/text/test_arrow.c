/* arrow: rows of streams and files, folders that datasets saved, damage. */
#include "tests/unit/records_help.h"
#include "tests/unit/faults.h"

#include "formats/container/flatbuffer.h"
#include "formats/records/rows.h"
#include "libckpt/base/json.h"

#define G "tests/golden/parquet/"
#define S "tests/golden/hf-saved"

TEST(rows_are_those_the_reference_reads)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    json_t *index, *expect;
    const char *name;
    char path[300], rows[300];

    assert_int_equal(ckpt_file_open(&f, G "index_arrow.json", 0, &err), 0);
    assert_int_equal(ckpt_json_read(&index, f, 1 << 20, 0, &err), 0);
    ckpt_file_close(f);
    assert_true(json_object_size(index) > 7);
    json_object_foreach (index, name, expect) {
        snprintf(path, sizeof path, G "%s.arrow", name);
        snprintf(rows, sizeof rows, G "%s.jsonl", json_string_value(expect));
        assert_same_rows(path, rows, 1);
    }
    json_decref(index);
}

TEST(a_folder_that_datasets_saved_is_its_files_in_order)
{
    assert_same_rows(S "/train", "tests/golden/hf-rows.jsonl", 1);
    assert_same_rows(S "-2shards", "tests/golden/hf-rows.jsonl", 3);
}

static void refused(const char *path, int code, const char *text, const char *hint)
{
    struct ckpt_err err = {0};
    struct records *r;

    assert_int_equal(records_open(&r, &path, 1, &err), code);
    if (!strstr(err.text, text) || !strstr(err.hint, hint))
        fail_msg("%s (%s)", err.text, err.hint);
}

TEST(splits_are_not_mixed)
{
    refused(S, CKPT_EUSAGE, "a data set of 2 splits", "hf-saved/train");
    /* The files lie in data/, as in a repository. */
    refused("tests/golden/hf-imdb", CKPT_EUSAGE, "files of several splits", "'tests/golden/hf-imdb/data/train-*'");
    refused("tests/golden/hf-imdb/data/valid*", CKPT_ENOTFOUND, "no file matches", "");
    assert_same_rows("tests/golden/hf-imdb/data/train-*.parquet", "tests/golden/hf-rows.jsonl", 1);
}

TEST(a_state_that_leads_out_of_its_folder_is_refused)
{
    const char *dir = scratch("arrow");
    char path[400];
    FILE *f;

    snprintf(path, sizeof path, "%s/dataset_info.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("{}", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/state.json", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"_data_files\": [{\"filename\": \"../x.arrow\"}]}", f);
    fclose(f);
    refused(dir, CKPT_EREFUSED, "../x.arrow", "");
    scratch_remove(dir);
}

static unsigned char *slurp(const char *name, size_t *n)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    unsigned char *b;
    char path[300];

    snprintf(path, sizeof path, G "%s.arrow", name);
    assert_int_equal(ckpt_file_open(&f, path, 0, &err), 0);
    *n = (size_t)ckpt_file_size(f);
    b = malloc(*n);
    assert_non_null(b);
    assert_int_equal(ckpt_file_read_at(f, b, *n, 0, &err), 0);
    ckpt_file_close(f);
    return b;
}

/* Every tenth row of bytes at most 60; the first failure. */
static int read_rows(const void *bytes, size_t n, struct ckpt_err *err)
{
    struct ckpt_file *f;
    json_t *v = NULL;
    void *self;
    int rc;

    if (ckpt_file_memory(&f, bytes, n, "memory", err))
        return err->code;
    rc = record_arrow.open(&self, f, &(struct records_opts){0}, err);
    if (rc)
        return rc;
    for (int64_t i = 0; rc == 0 && i < record_arrow.count(self) && i < 60; i += 7) {
        rc = record_arrow.get(self, i, &v, err);
        json_decref(v);
    }
    record_arrow.close(self);
    return rc;
}

static void flip(const char *name, size_t step)
{
    size_t n, told = 0;
    unsigned char *b = slurp(name, &n);

    for (size_t at = 0; at < n; at += step)
        for (int k = 0; k < 3; k++) {
            unsigned char was = b[at];
            struct ckpt_err err = {0};

            b[at] = k == 0 ? was ^ 0xff : k == 1 ? (unsigned char)(was + 1) : 0x7f;
            if (read_rows(b, n, &err)) {
                assert_true(err.text[0] != '\0');
                told++;
            }
            b[at] = was;
        }
    assert_true(told > 20);
    free(b);
}

TEST(changed_bytes_are_told_or_harmless)
{
    flip("coded", 1);
    flip("nested", 5);
    flip("types", 3);
}

TEST(a_cut_stream_is_refused)
{
    size_t n, whole = 0;
    unsigned char *b = slurp("flat", &n);

    for (size_t len = 8; len < n; len += 8) {
        struct ckpt_err err = {0};

        if (read_rows(b, len, &err) == 0)
            whole++;                    /* cut between two messages: an end without its mark */
        else
            assert_int_equal(err.code, CKPT_EFORMAT);
    }
    assert_true(whole > 0 && whole <= 6);
    free(b);
}

TEST(compressed_buffers_are_told)
{
    size_t n;
    struct ckpt_err err = {0};
    unsigned char *b = slurp("packed", &n);

    assert_int_equal(read_rows(b, n, &err), CKPT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "compressed"));
    free(b);
}

TEST(offsets_that_lead_out_of_a_buffer_fail)
{
    unsigned char b[64] = {8, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 0, 0, 0, 0};
    struct flatbuffer f = {b, sizeof b, false};
    struct flatbuffer_table t;

    t = flatbuffer_root(&f);                  /* its table at 8: vtable at 4 */
    assert_false(f.failed);
    assert_int_equal(t.at, 8);
    b[8] = 4;
    t = flatbuffer_root(&f);
    assert_int_equal(flatbuffer_int(&f, &t, 0, 4, 9), 0);
    assert_int_equal(flatbuffer_int(&f, &t, 1, 4, 9), 9);
    b[12] = 200;                        /* an offset */
    assert_int_equal(flatbuffer_child(&f, &t, 0).at, 0);
    assert_true(f.failed);
    f.failed = false;
    b[12] = 4;                          /* a vector of 250 elements */
    b[16] = 250;
    assert_int_equal(flatbuffer_list(&f, &t, 0, 1).n, 0);
    assert_true(f.failed);
    f.failed = false;
    b[0] = 62;
    flatbuffer_root(&f);
    assert_true(f.failed);
}

TEST(no_memory_at_any_point_is_told)
{
    struct faults f = {.kinds = FAULT(ALLOC), .later = true};
    size_t n;
    unsigned char *b = slurp("coded", &n);

    while (faults_next(&f)) {
        struct ckpt_err err = {0};
        struct ckpt_file *file;
        json_t *v = NULL;
        void *self;
        int rc;

        assert_int_equal(ckpt_file_memory(&file, b, n, "memory", &err), 0);
        faults_arm(&f);
        rc = record_arrow.open(&self, file, &(struct records_opts){0}, &err);
        if (rc == 0) {
            rc = record_arrow.get(self, 12, &v, &err);
            record_arrow.close(self);
        }
        json_decref(v);
        faults_disarm(&f);
        faults_fail(&f, rc, CKPT_ENOMEM, &err, "coded");
    }
    assert_true(f.rounds > 8);
    free(b);
}
