/*
 * dcp: what torch's own checkpoint writers left, bit for bit against the live weights and
 * moments; then directories that were damaged, and metadata that lies.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "formats/dcp/names.h"

#define GOLDEN  "tests/golden/fsdp/"
#define TRAINER GOLDEN "trainer/run/checkpoint-4"

static const struct ckpt_open_opts with_optimizer = {.optimizer = true};

SCRATCH_EACH("dcp")

/* -- what is read ---------------------------------------------------------------------------- */

/* Directory, expected weights, how many there are at least. */
static const struct { const char *dir, *expected; size_t n; } whole[] = {
    {"2.15-fsdp1_w2/dcp_sharded", "2.15-fsdp1_w2/expected.safetensors", 17},
    {"2.15-fsdp2_w2/dcp", "2.15-fsdp2_w2/expected.safetensors", 17},
    {"2.15-fsdp2_w2/dcp_hf", "2.15-fsdp2_w2/expected.safetensors", 17},
    {"2.15-fsdp2_w2_bf16/dcp", "2.15-fsdp2_w2_bf16/expected.safetensors", 17},
    {"2.15-fsdp2_w2_bf16/dcp_hf", "2.15-fsdp2_w2_bf16/expected.safetensors", 17},
    {"2.15-fsdp2_hsdp_w4/dcp", "2.15-fsdp2_hsdp_w4/expected.safetensors", 17},
    {"2.15-fsdp2_hsdp_w4/dcp_hf", "2.15-fsdp2_hsdp_w4/expected.safetensors", 17},
    {"2.15-more/mesh2d", "2.15-more/mesh2d/expected.safetensors", 7},
    {"2.15-more/threads", "2.15-more/threads/expected.safetensors", 7},
    {"2.15-more/alone", "2.15-more/alone/expected.safetensors", 7},
    {"2.15-more/st", "2.15-more/st/expected.safetensors", 5},
    {"trainer/run/checkpoint-4", "trainer/expected.safetensors", 21},
    {"trainer/run/checkpoint-4/pytorch_model_fsdp_0", "trainer/expected.safetensors", 21},
    /* What torch joined itself, against the shards it joined. */
    {"2.11-dcp_hf", "2.11-dcp_hf2", 5},
    {"2.11-dcp_st", "2.11-dcp_hf2", 5},
};

TEST(weights_are_those_of_the_live_model)
{
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "%s", whole[i].dir), NULL);

        assert_string_equal(ckpt_source_format(s), "dcp");
        assert_true(assert_holds(s, text_of(GOLDEN "%s", whole[i].expected)) >= whole[i].n);
        if (ckpt_source_count(s) > whole[i].n)
            fail_msg("%s: lists %zu, %zu expected", whole[i].dir, ckpt_source_count(s),
                     whole[i].n);
        ckpt_source_close(s);
    }
}

TEST(moments_are_those_of_the_live_optimizer)
{
    static const char *const runs[][2] = {
        /* Where torch gathers FSDP1's state on CPU it puts exp_avg_sq under both names: its
           converter of the directory is the witness here. */
        {"2.15-fsdp1_w2/dcp_sharded", "2.15-fsdp1_w2/dcp_moments"},
        {"2.15-fsdp2_w2/dcp", "2.15-fsdp2_w2/expected_moments"},
        {"2.15-fsdp2_hsdp_w4/dcp", "2.15-fsdp2_hsdp_w4/expected_moments"},
        {"trainer/run/checkpoint-4", "trainer/expected_moments"},
        {"trainer/run/checkpoint-4/optimizer_0", "trainer/expected_moments"},
    };

    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct ckpt_source *s = must_open(text_of(GOLDEN "%s", runs[i][0]), &with_optimizer);

        assert_true(assert_holds(s, text_of(GOLDEN "%s.safetensors", runs[i][1])) >= 28);
        ckpt_source_close(s);
    }
}

/* bf16 training keeps bf16 moments: the expected ones are their values in f32. */
TEST(moments_keep_their_dtype)
{
    struct ckpt_source *s = must_open(GOLDEN "2.15-fsdp2_w2_bf16/dcp", &with_optimizer);
    struct ckpt_source *w = must_open(GOLDEN "2.15-fsdp2_w2_bf16/expected_moments.safetensors",
                                      NULL);

    for (size_t i = 0; i < ckpt_source_count(w); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(w, i);
        size_t k = ckpt_source_find(s, t->name);
        uint16_t *narrow;
        uint32_t *wide;

        assert_true(k != SIZE_MAX);
        assert_int_equal(ckpt_source_tensor(s, k)->dtype, CKPT_BF16);
        narrow = read_whole(s, k);
        wide = read_whole(w, i);
        for (int64_t j = 0; j < t->numel; j++)
            assert_int_equal((uint32_t)narrow[j] << 16, wide[j]);
        free(narrow);
        free(wide);
    }
    ckpt_source_close(w);
    ckpt_source_close(s);
}

/* A bare state dict keeps the names it was saved under. */
TEST(bare_names_stay)
{
    struct ckpt_source *s = must_open(GOLDEN "2.15-fsdp2_w2/dcp_flat", NULL);
    struct ckpt_source *w = must_open(GOLDEN "2.15-fsdp2_w2/expected.safetensors", NULL);

    for (size_t i = 0; i < ckpt_source_count(w); i++)
        assert_same_tensor(s, text_of("model.%s", ckpt_source_tensor(w, i)->name), w, i,
                           "dcp_flat");
    ckpt_source_close(w);
    ckpt_source_close(s);
}

TEST(facts_are_told)
{
    struct ckpt_source *s = must_open(GOLDEN "2.15-fsdp2_w2/dcp", &with_optimizer);
    const json_t *info = ckpt_source_info(s), *groups = json_object_get(info, "param_groups");
    const json_t *second = json_array_get(groups, 1);
    size_t step = ckpt_source_find(s, "emb.weight|step");
    float *value;

    assert_int_equal(json_integer_value(json_object_get(info, "step")), 3);
    assert_int_equal(json_integer_value(json_object_get(info, "world_size")), 2);
    assert_string_equal(json_string_value(json_object_get(json_object_get(info, "values"),
                                                          "note")), "x");
    assert_int_equal(json_array_size(groups), 2);
    assert_true(json_real_value(json_object_get(second, "weight_decay")) == 0.0);
    assert_true(json_real_value(json_object_get(second, "lr")) == 1e-2);
    assert_int_equal(json_array_size(json_object_get(second, "params")) +
                     json_array_size(json_object_get(json_array_get(groups, 0), "params")), 15);
    assert_true(step != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, step)->kind, CKPT_OPTIM);
    value = read_whole(s, step);
    assert_true(*value == 3.0f);
    free(value);
    ckpt_source_close(s);
}

/* Flattened optimizers have a hyper-parameter for each parameter: groups are found again. */
TEST(flattened_optimizers)
{
    struct ckpt_source *s = must_open(GOLDEN "2.11-dcp_flatosd", &with_optimizer);
    const json_t *groups = json_object_get(ckpt_source_info(s), "param_groups");

    assert_true(ckpt_source_find(s, "emb.weight") != SIZE_MAX);
    assert_true(ckpt_source_find(s, "emb.weight|exp_avg_sq") != SIZE_MAX);
    assert_true(ckpt_source_find(s, "out.weight|step") != SIZE_MAX);
    assert_int_equal(json_array_size(groups), 1);
    assert_int_equal(json_array_size(json_object_get(json_array_get(groups, 0), "params")), 4);
    ckpt_source_close(s);
}

TEST(what_is_beside_the_model_is_told_apart)
{
    struct ckpt_source *s = must_open(GOLDEN "2.15-fsdp2_w2/dcp", &with_optimizer);
    size_t i = ckpt_source_find(s, "lrs.1.a");

    assert_true(i != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, i)->kind, CKPT_OTHER);
    ckpt_source_close(s);
}

/* -- names ----------------------------------------------------------------------------------- */

#define PATH(...) .part = (const char *const[]){__VA_ARGS__}, \
                  .n_part = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* An item, and the name and kind that it must get. */
struct named {
    struct dcp_item item;
    const char     *name;
    enum ckpt_kind  kind;
};

#define TENSOR(...) {PATH(__VA_ARGS__), .tensor = true}

static void assert_names(const struct named *wanted, size_t n)
{
    struct dcp_item item[8];
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};

    for (size_t i = 0; i < n; i++)
        item[i] = wanted[i].item;
    assert_int_equal(dcp_names_fill(item, n, &a, &err), 0);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(item[i].name, wanted[i].name);
        assert_int_equal(item[i].kind, wanted[i].kind);
    }
    ckpt_arena_release(&a);
}

TEST(names_inside_wrappers)
{
    assert_names((struct named[]){
        {TENSOR("app", "model", "_fsdp_wrapped_module.a._orig_mod.w"), "a.w", CKPT_WEIGHT},
        {TENSOR("app", "optim", "state", "a._orig_mod.w", "exp_avg"), "a.w|exp_avg", CKPT_OPTIM},
        {TENSOR("app", "optim", "param_groups", "0", "lr"), "app.optim.param_groups.0.lr",
         CKPT_OTHER},
        {TENSOR("app", "optim", "state", "0", "exp_avg"), "app.optim.state.0.exp_avg", CKPT_OTHER},
        {TENSOR("app", "extra"), "app.extra", CKPT_OTHER}}, 5);
}

TEST(names_that_only_look_like_an_optimizer)
{
    assert_names((struct named[]){
        {TENSOR("state.proj.weight"), "state.proj.weight", CKPT_WEIGHT},
        {TENSOR("head.weight"), "head.weight", CKPT_WEIGHT}}, 2);
}

TEST(names_of_data_parallel_and_megatron)
{
    assert_names((struct named[]){
        {TENSOR("module.a.w"), "a.w", CKPT_WEIGHT}, {TENSOR("module.b"), "b", CKPT_WEIGHT},
        {TENSOR("optimizer.state.exp_avg.module.a.w"), "a.w|exp_avg", CKPT_OPTIM}}, 3);
}

/* -- damage ---------------------------------------------------------------------------------- */

static void copy_of(const char *golden)
{
    shell(text_of("cp -r " GOLDEN "%s/. %s", golden, dir));
}

TEST(lost_files_are_named)
{
    static const struct { const char *golden, *lost, *words; } rows[] = {
        {"2.15-fsdp2_w2/dcp", "__1_0.distcp", "__1_0.distcp is not there"},
        {"2.15-fsdp2_w2/dcp", ".metadata", "has no .metadata"},
        /* The index of a rank, and a shard, leave a hole. */
        {"2.15-more/alone", "__1.metadata", "model.a"},
        {"2.15-fsdp2_hsdp_w4/dcp_hf", "shard-00001-model-00001-of-00001.safetensors", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        copy_of(rows[i].golden);
        assert_int_equal(unlink(text_of("%s/%s", dir, rows[i].lost)), 0);
        must_not_open(dir, &with_optimizer, CKPT_EFORMAT, rows[i].words);
        scratch_at(dir);
    }
}

TEST(leftovers_are_not_looked_at)
{
    struct ckpt_source *s;

    copy_of("2.15-fsdp2_w2/dcp");
    put_bytes(text_of("%s/__2_0.distcp", dir), "no archive", 10);
    s = must_open(dir, &with_optimizer);
    assert_true(assert_holds(s, GOLDEN "2.15-fsdp2_w2/expected.safetensors") == 17);
    ckpt_source_close(s);
}

TEST(a_cut_file_is_refused)
{
    const char *path = text_of("%s/__0_0.distcp", dir);
    unsigned char *bytes;
    size_t n;

    copy_of("2.15-fsdp2_w2/dcp");
    bytes = slurp(path, &n);
    put_bytes(path, bytes, n - 1);
    must_not_open(dir, &with_optimizer, CKPT_EFORMAT, "the file ends at");
    put_bytes(path, bytes, 0);
    must_not_open(dir, &with_optimizer, CKPT_EFORMAT, "the file ends at");
    free(bytes);
}

TEST(files_that_changed_places_are_refused)
{
    copy_of("2.15-fsdp2_w2/dcp");
    shell(text_of("cd %s && mv __0_0.distcp x && mv __1_0.distcp __0_0.distcp && "
                  "mv x __1_0.distcp", dir));
    must_not_open(dir, &with_optimizer, CKPT_EFORMAT, "");
}

/* Open a directory that may be broken, and read a little: a sentence or values, nothing else. */
static bool opens(void)
{
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    unsigned char bytes[1024];

    if (ckpt_open_as(&s, "dcp", dir, &with_optimizer, &err)) {
        if (!err.text[0])
            fail_msg("refused without a word");
        return false;
    }
    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);

        if (t->numel > 0 && ckpt_dtype_size(t->dtype))
            ckpt_source_read(s, i, 0, t->numel < 64 ? t->numel : 64, bytes, &err);
    }
    ckpt_source_close(s);
    return true;
}

TEST(flipped_and_cut_files)
{
    static const unsigned char masks[] = {0x01, 0x80, 0xff};
    static const struct { const char *golden, *name; size_t step; } rows[] = {
        {"2.11-dcp_st", ".metadata", 2},
        {"2.15-more/mesh2d", ".metadata", 7},
        {"2.15-more/st", "__1_0.distcp", 2},
        {"2.15-more/mesh2d", "__0_0.distcp", 5},
        {"2.11-dcp_hf", "shard-00002-model-00001-of-00001.safetensors", 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stat st;
        char path[600];
        size_t tried;

        snprintf(path, sizeof path, "%s/%s", dir, rows[i].name);
        copy_of(rows[i].golden);
        if (flip_each(path, rows[i].step, masks, 3, opens, &tried) == tried)
            fail_msg("%s: no flip of %zu was seen", path, tried);
        assert_int_equal(stat(path, &st), 0);
        for (off_t n = st.st_size - 1; n > 4; n -= 5) {
            assert_int_equal(truncate(path, n), 0);
            if (opens())
                fail_msg("%s cut to %lld bytes was opened", path, (long long)n);
        }
        scratch_at(dir);
    }
}

/* Replace the n-th place of `from` by as many bytes. */
static void replace(const char *name, size_t nth, const char *from, const char *to, size_t len)
{
    const char *path = text_of("%s/%s", dir, name);
    size_t n;
    unsigned char *bytes = slurp(path, &n), *at = bytes;

    for (;; at++) {
        at = memmem(at, n - (size_t)(at - bytes), from, len);
        if (!at)
            fail_msg("%s has no such bytes", name);
        if (nth-- == 0)
            break;
    }
    memcpy(at, to, len);
    put_bytes(path, bytes, n);
    free(bytes);
}

/* Bytes of 2.11-dcp_st, their replacement, the sentence. */
TEST(metadata_that_lies)
{
    static const struct {
        const char *from, *to;
        size_t      nth, len;
        int         code;
        const char *words;
    } lie[] = {
        /* emb.weight is [10, 6], cut after row 5 */
        {"K\x0aK\x06", "K\x0bK\x06", 0, 4, CKPT_EFORMAT, "emb.weight"},
        {"K\x0aK\x06", "K\x09K\x06", 0, 4, CKPT_EFORMAT, "which has 9"},
        {"K\x05K\x06", "K\x04K\x06", 0, 4, CKPT_EFORMAT, ""},
        {"__0_0.distcp", "__0/../../x1", 0, 12, CKPT_EREFUSED, "no clean relative path"},
        {"__0_0.distcp", "__7_0.distcp", 0, 12, CKPT_EFORMAT, "__7_0.distcp is not there"},
        {"float32", "float64", 0, 7, CKPT_EFORMAT, "the metadata says F64"},
        {"float32", "float99", 0, 7, CKPT_EREFUSED, "float99"},
        {"PosixPath", "WindowsPt", 0, 9, CKPT_EREFUSED, "WindowsPt"},
        {"pathlib", "builtin", 0, 7, CKPT_EREFUSED, "builtin"},
        {"storage_data", "storage_dada", 0, 12, CKPT_EFORMAT, "without state_dict_metadata"},
        {"relative_path", "relative_patt", 0, 13, CKPT_EFORMAT, "no _StorageInfo"},
        {"_StorageInfo", "_StorageInfa", 0, 12, CKPT_EREFUSED, "_StorageInfa"},
    };

    for (size_t i = 0; i < sizeof lie / sizeof lie[0]; i++) {
        copy_of("2.11-dcp_st");
        replace(".metadata", lie[i].nth, lie[i].from, lie[i].to, lie[i].len);
        must_not_open(dir, &with_optimizer, lie[i].code, lie[i].words);
    }
}

/* A pickle that would run something is refused and called what it is. */
TEST(malicious_metadata)
{
    static const char evil[] = "cos\nsystem\n(S'true'\ntR.";

    copy_of("2.11-dcp_st");
    put_bytes(text_of("%s/.metadata", dir), evil, sizeof evil - 1);
    must_not_open(dir, &with_optimizer, CKPT_EREFUSED, "looks malicious");
}

TEST(recognition)
{
    static const char *const rows[][2] = {
        {GOLDEN "2.11-dcp_hf2", "hf"},          /* the joined files beside their shards */
        {GOLDEN "2.11-dcp_hf", "dcp"}, {TRAINER, "dcp"},
    };
    const struct ckpt_format *f = NULL;
    struct ckpt_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(ckpt_recognise(&f, rows[i][0], false, &err), 0);
        assert_string_equal(f->name, rows[i][1]);
    }
    assert_int_not_equal(ckpt_recognise(&f, GOLDEN "2.15-more", false, &err), 0);
}
