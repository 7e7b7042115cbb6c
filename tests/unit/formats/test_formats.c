/* formats: what a path is, and the words for what it is instead. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"
#include "formats/run_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#define TMP "build/test-formats"

TEST(each_fixture_is_what_it_is)
{
    static const char *const row[][2] = {
        {"tests/golden/safetensors/names.safetensors", "safetensors"},
        {"tests/golden/hf/sharded", "hf"},
        {"tests/golden/hf/bin", "hf"},
        {"tests/golden/lora/bloom-qkv/base", "hf"},
        {"tests/golden/lora/bloom-qkv/adapter", "peft"},
        {"tests/golden/torch/zero_d.pt", "torch"},
        {"tests/golden/deepspeed/0.19-s3_w2_bf16/ckpt", "deepspeed"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const struct ckpt_format *f = NULL;
        struct ckpt_err err = {0};

        if (ckpt_recognise(&f, row[i][0], false, &err))
            fail_msg("%s: %s", row[i][0], err.text);
        assert_string_equal(f->name, row[i][1]);
        assert_ptr_equal(f, ckpt_format_named(row[i][1]));
    }
}

/* The path is refused with this code and these words; hint may be NULL. */
static void assert_told(const char *path, int code, const char *says, const char *hint)
{
    const struct ckpt_format *f;
    struct ckpt_source *s;
    struct ckpt_err err = {0};
    int rc = ckpt_open(&s, path, NULL, &err);

    if (rc != code || !strstr(err.text, says) || (hint && !strstr(err.hint, hint)) || s)
        fail_msg("%s: code %d: %s (%s)", path, rc, err.text, err.hint);
    assert_int_equal(ckpt_recognise(&f, path, false, &err), code);
    assert_null(f);
}

TEST(accidents_have_their_own_words)
{
    static const struct { const char *bytes; size_t n; int code; const char *says; } row[] = {
        {"", 0, CKPT_EFORMAT, "is empty"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", 64,
         CKPT_EUNSUPPORTED, "Git LFS pointer"},
        {"<!DOCTYPE html><html>", 21, CKPT_EUNSUPPORTED, "HTML page"},
        {"\n\n  <!doctype HTML>", 19, CKPT_EUNSUPPORTED, "HTML page"},
        {"<HTML><body>", 12, CKPT_EUNSUPPORTED, "HTML page"},
        {"\x1f\x8b\x08\0\0\0\0\0", 8, CKPT_EFORMAT, "begins as compressed"},
        {"7z\xbc\xaf\x27\x1c\0\0", 8, CKPT_EUNSUPPORTED, "7z archive"},
        {"\x28\xb5\x2f\xfd\0\0\0", 7, CKPT_EFORMAT, "damaged"},
        {"PAR1....", 8, CKPT_EUNSUPPORTED, "parquet"},
        {"\x80\x04}.", 4, CKPT_EREFUSED, "bare pickle"},
        {"hello", 5, CKPT_EUNSUPPORTED, "no known checkpoint format"},
    };

    scratch_at(TMP);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        put_bytes(TMP "/file.safetensors", row[i].bytes, row[i].n);
        assert_told(TMP "/file.safetensors", row[i].code, row[i].says, NULL);
    }
    put_text(TMP "/file.safetensors.incomplete", "");
    assert_told(TMP "/file.safetensors", CKPT_EUNSUPPORTED, "partial download", NULL);
    assert_told(TMP "/absent", CKPT_ENOTFOUND, "absent", NULL);
    assert_int_equal(mkfifo(TMP "/fifo", 0666), 0);
    assert_told(TMP "/fifo", CKPT_ENOTFOUND, "fifo", NULL);
}

TEST(directories_without_a_checkpoint_are_told_apart)
{
    scratch_at(TMP);
    assert_told(TMP, CKPT_EUNSUPPORTED, "empty", NULL);
    put_text(TMP "/notes", "x");
    assert_told(TMP, CKPT_EUNSUPPORTED, "no checkpoint is recognised", NULL);
    mkdir(TMP "/checkpoint-9", 0777);
    mkdir(TMP "/checkpoint-10", 0777);
    assert_told(TMP, CKPT_EUNSUPPORTED, TMP "/checkpoint-10: the directory is empty", NULL);
    put_text(TMP "/config.json", "{}");
    assert_told(TMP, CKPT_EUNSUPPORTED, "config.json, but no weights", NULL);
    put_text(TMP "/adapter_config.json", "{}");
    assert_told(TMP, CKPT_EUNSUPPORTED, "no adapter_model", NULL);
    put_text(TMP "/model.safetensors.incomplete", "");
    assert_told(TMP, CKPT_EUNSUPPORTED, "partial download", NULL);
}

/* The folder of a run stands for its newest checkpoint, by number or by Ray's index. */
TEST(the_newest_of_a_run_is_opened)
{
    static const char model[] = "\2\0\0\0\0\0\0\0{}";
    static const char right[] = "{\"latest_checkpoint_result\": "
                                "{\"checkpoint_dir_name\": \"checkpoint-9\"}}";
    static const struct { const char *text; int code; const char *says; } wrong[] = {
        {"{\"latest_checkpoint_result\": null}", CKPT_EFORMAT, "no checkpoint was reported"},
        {"{\"latest_checkpoint_result\": {\"checkpoint_dir_name\": \"a/b\"}}", CKPT_EREFUSED,
         "no clean name"},
        {"{\"latest_checkpoint_result\": {\"checkpoint_dir_name\": 7}}", CKPT_EREFUSED,
         "no clean name"},
        {"{\"latest_checkpoint_result\": [\"x\"]}", CKPT_EREFUSED, "no clean name"},
        {"[]", CKPT_EREFUSED, "no clean name"},
        {"{\"latest_checkpoint_result\": {\"checkpoint_dir_name\": \"x\"}}", CKPT_EFORMAT,
         "is not there"},
        {"{\"latest", CKPT_EFORMAT, "checkpoint_manager_snapshot.json"},
    };
    struct ckpt_err err = {0};
    struct ckpt_source *s;

    scratch_at(TMP);
    mkdir(TMP "/checkpoint-9", 0777);
    mkdir(TMP "/checkpoint-10", 0777);
    put_bytes(TMP "/checkpoint-9/model.safetensors", model, sizeof model - 1);
    put_bytes(TMP "/checkpoint-10/model.safetensors", model, sizeof model - 1);
    assert_int_equal(ckpt_open(&s, TMP, NULL, &err), 0);
    assert_string_equal(json_string_value(json_object_get(ckpt_source_info(s), "checkpoint")),
                        TMP "/checkpoint-10");
    ckpt_source_close(s);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        put_text(TMP "/checkpoint_manager_snapshot.json", wrong[i].text);
        assert_told(TMP, wrong[i].code, wrong[i].says, NULL);
    }
    put_text(TMP "/checkpoint_manager_snapshot.json", right);
    assert_int_equal(ckpt_open(&s, TMP, NULL, &err), 0);
    assert_string_equal(json_string_value(json_object_get(ckpt_source_info(s), "checkpoint")),
                        TMP "/checkpoint-9");
    ckpt_source_close(s);
}

/* The last of Ray's list, or what the Trainer's state names. */
TEST_ERR(the_best_of_a_run)
{
    static const struct { const char *text; int code; const char *says; } rows[] = {
        {"{\"checkpoint_results\": [{\"checkpoint_dir_name\": \"x\"}, "
         "{\"checkpoint_dir_name\": \"a\"}]}", 0, TMP "/a"},
        {"{\"checkpoint_results\": []}", CKPT_EFORMAT, "no checkpoint was reported"},
        {"{\"checkpoint_results\": {\"checkpoint_dir_name\": \"a\"}}", CKPT_EFORMAT,
         "no checkpoint was reported"},
        {"{\"checkpoint_results\": [7]}", CKPT_EREFUSED, "the best checkpoint has no clean name"},
        {"{\"checkpoint_results\": [{\"checkpoint_dir_name\": \"..\"}]}", CKPT_EREFUSED,
         "no clean name"},
        {"{\"checkpoint_results\": [{\"checkpoint_dir_name\": \"b\"}]}", CKPT_EFORMAT,
         "names b, which is not there"},
        {"{\"checkpoint_results\": [", CKPT_EFORMAT, "checkpoint_manager_snapshot.json"},
    };
    char path[4096];

    scratch_at(TMP);
    assert_int_equal(run_dir_best(path, TMP, err), CKPT_ENOTFOUND);
    ckpt_err_clear(err);
    mkdir(TMP "/a", 0777);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put_text(TMP "/checkpoint_manager_snapshot.json", rows[i].text);
        assert_int_equal(run_dir_best(path, TMP, err), rows[i].code);
        assert_non_null(strstr(rows[i].code ? err->text : path, rows[i].says));
        ckpt_err_clear(err);
    }
}

/* Folders that only hold each other end. */
TEST(a_run_in_a_run_has_an_end)
{
    char path[400] = TMP;

    scratch_at(TMP);
    for (size_t i = 0; i < 12; i++) {
        strcat(path, "/checkpoint");
        mkdir(path, 0777);
    }
    assert_told(TMP, CKPT_EUNSUPPORTED, "no checkpoint is recognised", NULL);
}

TEST(a_named_format_is_not_guessed)
{
    static const struct { const char *format, *path; int code; } row[] = {
        {"torch", "tests/golden/safetensors/names.safetensors", CKPT_EUNSUPPORTED},
        {"safetensors", "tests/golden/hf/sharded", CKPT_EUNSUPPORTED},
        {"hf", "tests/golden/safetensors", CKPT_ENOTFOUND},
        {"peft", "tests/golden/hf/sharded", CKPT_ENOTFOUND},
        {"onnx", "tests/golden/hf/sharded", CKPT_EUNSUPPORTED},
        {"safetensors", "tests/golden/safetensors/names.safetensors", 0},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *s;
        struct ckpt_err err = {0};

        assert_int_equal(ckpt_open_as(&s, row[i].format, row[i].path, NULL, &err), row[i].code);
        assert_int_equal(s == NULL, row[i].code != 0);
        ckpt_source_close(s);
    }
}

TEST(what_is_not_written_is_refused)
{
    struct ckpt_tensors none = {0};
    struct ckpt_sink *sink;
    struct ckpt_err err = {0};

    scratch_at(TMP);
    assert_int_equal(ckpt_create(&sink, "peft", TMP "/x", &none, NULL, &err), CKPT_EUNSUPPORTED);
    assert_int_equal(ckpt_create(&sink, "onnx", TMP "/x", &none, NULL, &err), CKPT_EUNSUPPORTED);
    assert_int_equal(ckpt_create(&sink, "safetensors", TMP "/x", &none, NULL, &err), 0);
    ckpt_sink_abort(sink);
    assert_int_equal(ckpt_create(&sink, "safetensors", TMP "/no/x", &none, NULL, &err),
                     CKPT_ECREATE);
}

/* What a caller that fills nothing in gets: every format's plain output where it was asked for. */
TEST(zeroed_options_are_plain_ones)
{
    static const struct { const char *format, *from, *to; } row[] = {
        {"safetensors", "tests/golden/hf/sharded", TMP "/x.safetensors"},
        {"hf", "tests/golden/hf/sharded", TMP "/hf"},
        {"torch", "tests/golden/hf/sharded", TMP "/x.pt"},
        {"dcp", "tests/golden/hf/sharded", TMP "/dcp"},
    };
    const struct ckpt_open_opts in = {0};
    const struct ckpt_create_opts out = {0};
    const struct ckpt_copy_opts how = {0};

    scratch_at(TMP);
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct ckpt_source *a = NULL, *b = NULL;
        struct ckpt_sink *sink = NULL;
        struct ckpt_err err = {0};

        if (ckpt_open(&a, row[i].from, &in, &err) ||
            ckpt_create(&sink, row[i].format, row[i].to, ckpt_source_tensors(a), &out, &err) ||
            ckpt_copy(sink, a, &how, &err) || ckpt_sink_commit(sink, &err) ||
            ckpt_open(&b, row[i].to, &in, &err))
            fail_msg("%s: %s", row[i].format, err.text);
        assert_same_tensors(b, a, row[i].format);
        ckpt_source_close(a);
        ckpt_source_close(b);
    }
}

/* Formats that need to be told more say so. */
TEST(zeroed_options_are_too_little_for_some)
{
    static const char *const name[] = {"deepspeed", "universal", "gguf", "peft"};
    const struct ckpt_create_opts out = {0};
    struct ckpt_source *s = must_open("tests/golden/hf/sharded", NULL);

    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
        struct ckpt_err err = {0};
        struct ckpt_sink *sink = NULL;
        int rc = ckpt_create(&sink, name[i], TMP "/none", ckpt_source_tensors(s), &out, &err);

        if (rc == 0)
            ckpt_sink_abort(sink);
        else if (!err.text[0] || strstr(err.text, "stream"))
            fail_msg("%s: %s", name[i], err.text);
        assert_true(access(TMP "/none", F_OK));
    }
    ckpt_source_close(s);
}

AFTER_ALL()
{
    scratch_remove(TMP);
}
