/* arrow: rows of streams and files, folders that datasets saved, damage. */
#include "tests/unit/records_help.h"
#include "tests/unit/faults.h"

#include "formats/container/flatbuffer.h"
#include "formats/records/rows.h"

#define G "tests/golden/parquet"
#define S "tests/golden/hf-saved"

TEST(rows_are_those_the_reference_reads)
{
    assert_index(G, "index_arrow.json", ".arrow", 7);
}

TEST(a_folder_that_datasets_saved_is_its_files_in_order)
{
    assert_same_rows(S "/train", NULL, "tests/golden/hf-rows.jsonl", 1);
    assert_same_rows(S "-2shards", NULL, "tests/golden/hf-rows.jsonl", 3);
}

TEST(splits_are_not_mixed)
{
    refuse_records(S, NULL, CKPT_EUSAGE, "a data set of 2 splits", "hf-saved/train");
    /* The files lie in data/, as in a repository. */
    refuse_records("tests/golden/hf-imdb", NULL, CKPT_EUSAGE, "files of several splits",
                   "'tests/golden/hf-imdb/data/train-*'");
    refuse_records("tests/golden/hf-imdb/data/valid*", NULL, CKPT_ENOTFOUND, "no file matches", "");
    assert_same_rows("tests/golden/hf-imdb/data/train-*.parquet", NULL, "tests/golden/hf-rows.jsonl",
                     1);
}

TEST(a_state_that_leads_out_of_its_folder_is_refused)
{
    const char *dir = scratch("arrow");

    put_in(dir, "dataset_info.json", "{}");
    put_in(dir, "state.json", "{\"_data_files\": [{\"filename\": \"../x.arrow\"}]}");
    refuse_records(dir, NULL, CKPT_EREFUSED, "../x.arrow", "");
    scratch_remove(dir);
}

/* Every tenth row of bytes at most 60; the first failure. */
static int read_rows(const void *bytes, size_t n, struct ckpt_err *err)
{
    json_t *v = NULL;
    void *self;
    int rc = record_open(&self, &record_arrow, file_of(bytes, n, "memory"),
                         &(struct records_opts){0}, err);

    if (rc)
        return rc;
    for (int64_t i = 0; rc == 0 && i < record_arrow.count(self) && i < 60; i += 7) {
        rc = record_arrow.get(self, i, &v, err);
        json_decref(v);
    }
    record_close(self, &record_arrow);
    return rc;
}

TEST(changed_bytes_are_told_or_harmless)
{
    assert_damage_is_told(G "/coded.arrow", 1, read_rows);
    assert_damage_is_told(G "/nested.arrow", 5, read_rows);
    assert_damage_is_told(G "/types.arrow", 3, read_rows);
}

TEST(a_cut_stream_is_refused)
{
    size_t n, whole = 0;
    unsigned char *b = golden_bytes(G "/flat.arrow", &n);

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

TEST_ERR(metadata_of_the_schema)
{
    static const char *const path[] = {"tests/golden/hf-saved/test", G "/flat.arrow"};
    struct records *r;

    assert_int_equal(records_open(&r, &path[0], 1, err), 0);
    assert_non_null(strstr(json_string_value(json_object_get(records_metadata(r), "huggingface")),
                           "\"ClassLabel\""));
    records_close(r);
    assert_int_equal(records_open(&r, &path[1], 1, err), 0);
    assert_int_equal(json_object_size(records_metadata(r)), 0);
    records_close(r);
}

TEST(compressed_buffers_are_told)
{
    size_t n;
    struct ckpt_err err = {0};
    unsigned char *b = golden_bytes(G "/packed.arrow", &n);

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
    unsigned char *b = golden_bytes(G "/coded.arrow", &n);

    while (faults_next(&f)) {
        struct ckpt_file *file = file_of(b, n, "memory");
        struct ckpt_err err = {0};
        json_t *v = NULL;
        void *self;
        int rc;

        faults_arm(&f);
        rc = record_open(&self, &record_arrow, file, &(struct records_opts){0}, &err);
        if (rc == 0) {
            rc = record_arrow.get(self, 12, &v, &err);
            record_close(self, &record_arrow);
        }
        json_decref(v);
        faults_disarm(&f);
        faults_fail(&f, rc, CKPT_ENOMEM, &err, "coded");
    }
    assert_true(f.rounds > 8);
    free(b);
}
