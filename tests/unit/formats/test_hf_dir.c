/* hf_dir: model directories as transformers keeps them, and as downloads leave them. */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include <sys/stat.h>
#include <unistd.h>

#define HF   "tests/golden/hf/"
#define TMP  "build/test-hf"
#define OUT  "build/test-hf-out"

/* The files of hf/sharded. */
static const char *const shards[] = {
    "config.json", "generation_config.json", "model.safetensors.index.json",
    "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
};

static const char *in_tmp(const char *name)
{
    static char path[300];

    snprintf(path, sizeof path, TMP "/%s", name);
    return path;
}

/* hf/sharded in TMP. */
static void copy_sharded(void)
{
    scratch_at(TMP);
    for (size_t i = 0; i < 5; i++) {
        char from[300];

        snprintf(from, sizeof from, HF "sharded/%s", shards[i]);
        put_copy(in_tmp(shards[i]), from);
    }
}

/* Opening TMP must fail with this code and reason, and say this. */
static void assert_refused(int code, const char *reason, const char *says)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_open(&s, TMP, NULL, &err);

    ckpt_source_close(s);
    if (rc != code || strcmp(err.reason, reason) != 0 || !strstr(err.text, says))
        fail_msg("code %d (%s): %s", rc, err.reason, err.text);
}

TEST(shards_are_one_list)
{
    struct ckpt_source *s = must_open(HF "sharded", NULL);
    const json_t *info = ckpt_source_info(s);
    size_t total = 0;

    assert_string_equal(ckpt_source_format(s), "hf");
    assert_int_equal(ckpt_source_count(s), 20);
    assert_int_equal(json_integer_value(json_object_get(info, "shards")), 2);
    assert_string_equal(json_string_value(json_object_get(
        json_object_get(info, "metadata"), "format")), "pt");
    assert_string_equal(json_string_value(json_object_get(
        json_object_get(info, "config"), "model_type")), "llama");
    for (size_t i = 0; i < 20; i++) {
        free(read_whole(s, i));
        total += ckpt_tensor_bytes(ckpt_source_tensor(s, i));
    }
    assert_int_equal(total, 19584);
    assert_non_null(ckpt_source_extra(s, "config.json"));
    assert_non_null(ckpt_source_extra(s, "generation_config.json"));
    assert_null(ckpt_source_extra(s, "model.safetensors.index.json"));
    ckpt_source_close(s);
}

TEST(bin_shards_hold_the_same_and_show_the_tie)
{
    struct ckpt_source *s = must_open(HF "bin", NULL), *w = must_open(HF "sharded", NULL);
    size_t head = ckpt_source_find(s, "lm_head.weight");
    size_t emb = ckpt_source_find(s, "model.embed_tokens.weight");

    assert_int_equal(ckpt_source_count(s), 21);
    assert_true(ckpt_source_tensor(s, head)->alias_of == emb ||
                ckpt_source_tensor(s, emb)->alias_of == head);
    for (size_t i = 0; i < ckpt_source_count(w); i++)
        assert_same_tensor(s, ckpt_source_tensor(w, i)->name, w, i, HF "bin");
    assert_same_tensor(s, "lm_head.weight", w, ckpt_source_find(w, "model.embed_tokens.weight"),
                       "the tied head");
    ckpt_source_close(s);
    ckpt_source_close(w);
}

TEST(a_single_file_goes_before_an_index)
{
    struct ckpt_source *s;

    copy_sharded();
    put_copy(TMP "/model.safetensors", "tests/golden/safetensors/names.safetensors");
    s = must_open(TMP, NULL);
    assert_int_equal(ckpt_source_count(s), 16);
    ckpt_source_close(s);
}

TEST(what_the_index_gets_wrong_is_told)
{
    copy_sharded();
    unlink(TMP "/model-00002-of-00002.safetensors");
    assert_refused(CKPT_EFORMAT, "missing",
                   "model-00002-of-00002.safetensors is not there: 1 of 2 files are absent");
    unlink(TMP "/model-00001-of-00002.safetensors");
    assert_refused(CKPT_EFORMAT, "missing", "stale index: none of the 2 files");
    copy_sharded();
    put_copy(TMP "/model-00002-of-00002.safetensors", HF "sharded/model-00001-of-00002.safetensors");
    assert_refused(CKPT_EFORMAT, "duplicate", "appears twice");
    copy_sharded();
    put_copy(TMP "/model-00002-of-00002.safetensors", "tests/golden/safetensors/names.safetensors");
    assert_refused(CKPT_EFORMAT, "missing", "which does not have it");
    copy_sharded();
    put_text(TMP "/model-00002-of-00002.safetensors",
             "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    assert_refused(CKPT_EUNSUPPORTED, "unsupported", "Git LFS pointer");
    copy_sharded();
    put_bytes(TMP "/model-00002-of-00002.safetensors", "\0", 1);
    assert_refused(CKPT_EFORMAT, "truncated", "model-00002-of-00002.safetensors");
}

TEST(a_foreign_index_is_read_with_care)
{
    static const struct { const char *text; int code; const char *reason, *says; } row[] = {
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", CKPT_EREFUSED, "refused-path",
         "no clean name"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", CKPT_EREFUSED, "refused-path",
         "no clean name"},
        {"{\"weight_map\": {\"a\": 1}}", CKPT_EFORMAT, "malformed", "a is mapped to no file name"},
        {"{\"weight_map\": []}", CKPT_EFORMAT, "malformed", "weight_map"},
        {"{}", CKPT_EFORMAT, "malformed", "weight_map"},
        {"", CKPT_EFORMAT, "malformed", "index.json"},
        {"{\"weight_map\": {\"a\": \"x.safetensors\", \"a\": \"x.safetensors\"}}", CKPT_EFORMAT,
         "duplicate", ""},
        {"{\"weight_map\": {\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\"}}",
         CKPT_EFORMAT, "unexpected", "which the index does not name"},
    };

    copy_sharded();
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        put_text(TMP "/model.safetensors.index.json", row[i].text);
        assert_refused(row[i].code, row[i].reason, row[i].says);
    }
}

TEST(links_are_followed_only_when_asked)
{
    struct ckpt_source *s;

    copy_sharded();
    assert_int_equal(rename(TMP "/model-00001-of-00002.safetensors", TMP "/blob"), 0);
    assert_int_equal(symlink("blob", TMP "/model-00001-of-00002.safetensors"), 0);
    assert_refused(CKPT_EFORMAT, "missing", "model-00001-of-00002.safetensors");
    s = must_open(TMP, &(struct ckpt_open_opts){.follow = true});
    assert_int_equal(ckpt_source_count(s), 20);
    ckpt_source_close(s);
}

TEST(side_files_are_the_models_own)
{
    static const char *const go[] = {"config.json", "generation_config.json", "tokenizer.json",
                                     "merges.txt", "README.md", "additional_chat_templates/a.jinja",
                                     "1_Pooling/config.json"};
    static const char *const stay[] = {"trainer_state.json", "optimizer.pt", "other/config.json",
                                       ".hidden.json", "model.safetensors.index.json"};
    struct ckpt_source *s;

    copy_sharded();
    mkdir(TMP "/additional_chat_templates", 0777);
    mkdir(TMP "/1_Pooling", 0777);
    mkdir(TMP "/other", 0777);
    for (size_t i = 2; i < 7; i++)
        put_text(in_tmp(go[i]), "{}");
    for (size_t i = 0; i < 4; i++)
        put_text(in_tmp(stay[i]), "{}");
    s = must_open(TMP, NULL);
    for (size_t i = 0; i < 7; i++)
        if (!ckpt_source_extra(s, go[i]))
            fail_msg("%s is left behind", go[i]);
    for (size_t i = 0; i < 5; i++)
        if (ckpt_source_extra(s, stay[i]))
            fail_msg("%s is taken along", stay[i]);
    ckpt_source_close(s);
}

/* -- writing --------------------------------------------------------------------------------- */

static int write_dir(struct ckpt_source *src, uint64_t max_shard, struct ckpt_err *err)
{
    struct ckpt_create_opts opts = {.max_shard_bytes = max_shard};

    scratch_remove(OUT);
    opts.n_extra = ckpt_source_extras(src, &opts.extra);
    return write_to("hf", OUT, src, &opts, 0, err);
}

TEST(what_transformers_wrote_is_written_alike)
{
    static const char *const layer[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                                        "mlp.down_proj", "input_layernorm",
                                        "post_attention_layernorm"};
    struct ckpt_source *s = must_open(HF "sharded", NULL);
    size_t keep[20], n = 0;
    struct ckpt_err err = {0};
    char golden[300];

    /* The order of the module tree, by which the shards were cut. */
    keep[n++] = ckpt_source_find(s, "model.embed_tokens.weight");
    for (size_t i = 0; i < 18; i++) {
        char name[100];

        snprintf(name, sizeof name, "model.layers.%zu.%s.weight", i / 9, layer[i % 9]);
        keep[n++] = ckpt_source_find(s, name);
    }
    keep[n++] = ckpt_source_find(s, "model.norm.weight");
    if (ckpt_view_select(&s, s, keep, n, &err) || write_dir(s, 12000, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < 5; i++) {
        char wrote[300];

        snprintf(wrote, sizeof wrote, OUT "/%s", shards[i]);
        snprintf(golden, sizeof golden, HF "sharded/%s", shards[i]);
        assert_same_file(wrote, golden);
    }
    ckpt_source_close(s);
}

TEST(every_shard_size_reads_back)
{
    static const uint64_t sizes[] = {1, 100, 2000, 5000, 19583, 19584, 0};
    struct ckpt_source *s = must_open(HF "sharded", NULL), *back;
    struct ckpt_err err;
    struct stat st;

    for (size_t k = 0; k < 7; k++) {
        if (write_dir(s, sizes[k], &err))
            fail_msg("%s", err.text);
        assert_int_equal(stat(OUT "/model.safetensors.index.json", &st) == 0, sizes[k] &&
                                                                                  sizes[k] < 19584);
        back = must_open(OUT, NULL);
        assert_same_tensors(back, s, OUT);
        ckpt_source_close(back);
    }
    ckpt_source_close(s);
}

TEST(a_cast_is_told_in_config_json)
{
    struct ckpt_cast_rule rule = {"*", CKPT_BF16};
    struct ckpt_source *s = must_open(HF "sharded", NULL), *cast;
    char wanted[4096], *found, *theirs, *at;
    struct ckpt_err err = {0};
    size_t n;

    assert_int_equal(ckpt_view_cast(&cast, s, &rule, 1, &err), 0);
    assert_int_equal(write_dir(cast, 0, &err), 0);
    found = slurp(OUT "/config.json", &n);
    theirs = slurp(HF "sharded/config.json", &n);
    at = strstr(theirs, "float32");
    assert_non_null(at);
    snprintf(wanted, sizeof wanted, "%.*sbfloat16%s", (int)(at - theirs), theirs, at + 7);
    assert_string_equal(found, wanted);
    free(found);
    free(theirs);
    ckpt_source_close(cast);
}

TEST(what_stops_half_way_leaves_nothing)
{
    struct ckpt_source *s = must_open(HF "sharded", NULL);
    struct ckpt_create_opts opts = {0};
    struct ckpt_sink *sink;
    struct ckpt_err err = {0};
    struct stat st;

    scratch_remove(OUT);
    assert_int_equal(ckpt_create(&sink, "hf", OUT, ckpt_source_tensors(s), &opts, &err), 0);
    assert_int_equal(ckpt_sink_commit(sink, &err), CKPT_ESTATE);
    assert_int_equal(stat(OUT, &st), -1);
    mkdir(OUT, 0777);
    assert_int_equal(ckpt_create(&sink, "hf", OUT, ckpt_source_tensors(s), &opts, &err),
                     CKPT_ECREATE);
    opts.stream_fd = 1;
    assert_int_equal(ckpt_create(&sink, "hf", OUT, ckpt_source_tensors(s), &opts, &err),
                     CKPT_EUNSUPPORTED);
    ckpt_source_close(s);
}

AFTER_ALL()
{
    scratch_remove(TMP);
    scratch_remove(OUT);
}
