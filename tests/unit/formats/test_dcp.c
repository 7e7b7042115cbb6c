/*
 * dcp: what torch's own checkpoint writers left, bit for bit against the live weights and
 * moments; then directories that were damaged, and metadata that lies.
 */
#include "tests/unit/compare.h"
#include "tests/unit/unit.h"

#include "formats/dcp/names.h"

#define GOLDEN  "tests/golden/fsdp/"
#define TRAINER GOLDEN "trainer/run/checkpoint-4"

static struct ckpt_source *open_dir(const char *path, bool optimizer)
{
    struct ckpt_open_opts opts = {.optimizer = optimizer};

    return must_open(path, &opts);
}

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
        char path[512], expected[512];
        struct ckpt_source *s;

        snprintf(path, sizeof path, GOLDEN "%s", whole[i].dir);
        snprintf(expected, sizeof expected, GOLDEN "%s", whole[i].expected);
        s = open_dir(path, false);
        assert_string_equal(ckpt_source_format(s), "dcp");
        assert_true(assert_holds(s, expected) >= whole[i].n);
        if (ckpt_source_count(s) > whole[i].n)
            fail_msg("%s: lists %zu, %zu expected", path, ckpt_source_count(s), whole[i].n);
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
        char path[512], expected[512];
        struct ckpt_source *s;

        snprintf(path, sizeof path, GOLDEN "%s", runs[i][0]);
        snprintf(expected, sizeof expected, GOLDEN "%s.safetensors", runs[i][1]);
        s = open_dir(path, true);
        assert_true(assert_holds(s, expected) >= 28);
        ckpt_source_close(s);
    }
}

/* bf16 training keeps bf16 moments: the expected ones are their values in f32. */
TEST(moments_keep_their_dtype)
{
    struct ckpt_source *s = open_dir(GOLDEN "2.15-fsdp2_w2_bf16/dcp", true);
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
    struct ckpt_source *s = open_dir(GOLDEN "2.15-fsdp2_w2/dcp_flat", false);
    struct ckpt_source *w = must_open(GOLDEN "2.15-fsdp2_w2/expected.safetensors", NULL);
    char name[256];

    for (size_t i = 0; i < ckpt_source_count(w); i++) {
        snprintf(name, sizeof name, "model.%s", ckpt_source_tensor(w, i)->name);
        assert_same_tensor(s, name, w, i, "dcp_flat");
    }
    ckpt_source_close(w);
    ckpt_source_close(s);
}

TEST(facts_are_told)
{
    struct ckpt_source *s = open_dir(GOLDEN "2.15-fsdp2_w2/dcp", true);
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
    struct ckpt_source *s = open_dir(GOLDEN "2.11-dcp_flatosd", true);
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
    struct ckpt_source *s = open_dir(GOLDEN "2.15-fsdp2_w2/dcp", true);
    size_t i = ckpt_source_find(s, "lrs.1.a");

    assert_true(i != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, i)->kind, CKPT_OTHER);
    ckpt_source_close(s);
}

/* -- names ----------------------------------------------------------------------------------- */

#define PATH(...) .part = (const char *const[]){__VA_ARGS__}, \
                  .n_part = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void assert_names(struct dcp_item *item, size_t n, const char *const *wanted,
                         const enum ckpt_kind *kind)
{
    struct ckpt_arena a = {0};
    struct ckpt_err err = {0};

    assert_int_equal(dcp_names_fill(item, n, &a, &err), 0);
    for (size_t i = 0; i < n; i++) {
        if (!item[i].tensor)
            continue;
        assert_string_equal(item[i].name, wanted[i]);
        assert_int_equal(item[i].kind, kind[i]);
    }
    ckpt_arena_release(&a);
}

TEST(names_inside_wrappers)
{
    struct dcp_item item[] = {
        {PATH("app", "model", "_fsdp_wrapped_module.a._orig_mod.w"), .tensor = true},
        {PATH("app", "optim", "state", "a._orig_mod.w", "exp_avg"), .tensor = true},
        {PATH("app", "optim", "param_groups", "0", "lr"), .tensor = true},
        {PATH("app", "optim", "state", "0", "exp_avg"), .tensor = true},
        {PATH("app", "extra"), .tensor = true},
    };
    static const char *const wanted[] = {"a.w", "a.w|exp_avg", "app.optim.param_groups.0.lr",
                                         "app.optim.state.0.exp_avg", "app.extra"};
    static const enum ckpt_kind kind[] = {CKPT_WEIGHT, CKPT_OPTIM, CKPT_OTHER, CKPT_OTHER,
                                          CKPT_OTHER};

    assert_names(item, 5, wanted, kind);
}

TEST(names_that_only_look_like_an_optimizer)
{
    struct dcp_item item[] = {
        {PATH("state.proj.weight"), .tensor = true}, {PATH("head.weight"), .tensor = true},
    };
    static const char *const wanted[] = {"state.proj.weight", "head.weight"};
    static const enum ckpt_kind kind[] = {CKPT_WEIGHT, CKPT_WEIGHT};

    assert_names(item, 2, wanted, kind);
}

TEST(names_of_data_parallel_and_megatron)
{
    struct dcp_item ddp[] = {
        {PATH("module.a.w"), .tensor = true}, {PATH("module.b"), .tensor = true},
        {PATH("optimizer.state.exp_avg.module.a.w"), .tensor = true},
    };
    static const char *const wanted[] = {"a.w", "b", "a.w|exp_avg"};
    static const enum ckpt_kind kind[] = {CKPT_WEIGHT, CKPT_WEIGHT, CKPT_OPTIM};

    assert_names(ddp, 3, wanted, kind);
}

/* -- damage ---------------------------------------------------------------------------------- */

static const char *copy_of(const char *dir)
{
    const char *to = scratch("dcp");
    char command[700];

    snprintf(command, sizeof command, "cp -r " GOLDEN "%s/. %s", dir, to);
    if (system(command))
        fail_msg("%s", command);
    return to;
}

static char *slurp(const char *dir, const char *name, size_t *n)
{
    char path[600], *bytes;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "rb");
    if (!f)
        fail_msg("%s", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*n + 1);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static void spill(const char *dir, const char *name, const char *bytes, size_t n)
{
    char path[600];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Opening fails with this code, and the words stand in the sentence. */
static void assert_refused(const char *dir, int code, const char *words)
{
    struct ckpt_open_opts opts = {.optimizer = true};
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    int rc = ckpt_open(&s, dir, &opts, &err);

    if (rc == 0)
        fail_msg("%s was opened, \"%s\" expected", dir, words);
    if (rc != code || !strstr(err.text, words))
        fail_msg("%d \"%s\", %d with \"%s\" expected", rc, err.text, code, words);
    assert_null(s);
}

TEST(a_lost_rank_is_named)
{
    const char *dir = copy_of("2.15-fsdp2_w2/dcp");
    char path[600];

    snprintf(path, sizeof path, "%s/__1_0.distcp", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, CKPT_EFORMAT, "__1_0.distcp is not there");
    scratch_remove(dir);
}

TEST(a_lost_index_is_named)
{
    const char *dir = copy_of("2.15-fsdp2_w2/dcp");
    char path[600];

    snprintf(path, sizeof path, "%s/.metadata", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, CKPT_EFORMAT, "has no .metadata");
    scratch_remove(dir);
}

TEST(a_lost_index_of_a_rank_is_a_hole)
{
    const char *dir = copy_of("2.15-more/alone");
    char path[600];

    snprintf(path, sizeof path, "%s/__1.metadata", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, CKPT_EFORMAT, "model.a");
    scratch_remove(dir);
}

TEST(a_lost_shard_is_a_hole)
{
    const char *dir = copy_of("2.15-fsdp2_hsdp_w4/dcp_hf");
    char path[600];

    snprintf(path, sizeof path, "%s/shard-00001-model-00001-of-00001.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, CKPT_EFORMAT, "");
    scratch_remove(dir);
}

TEST(leftovers_are_not_looked_at)
{
    const char *dir = copy_of("2.15-fsdp2_w2/dcp");
    struct ckpt_source *s;

    spill(dir, "__2_0.distcp", "no archive", 10);
    s = open_dir(dir, true);
    assert_true(assert_holds(s, GOLDEN "2.15-fsdp2_w2/expected.safetensors") == 17);
    ckpt_source_close(s);
    scratch_remove(dir);
}

TEST(a_cut_file_is_refused)
{
    const char *dir = copy_of("2.15-fsdp2_w2/dcp");
    size_t n;
    char *bytes = slurp(dir, "__0_0.distcp", &n);

    spill(dir, "__0_0.distcp", bytes, n - 1);
    assert_refused(dir, CKPT_EFORMAT, "the file ends at");
    spill(dir, "__0_0.distcp", bytes, 0);
    assert_refused(dir, CKPT_EFORMAT, "the file ends at");
    free(bytes);
    scratch_remove(dir);
}

TEST(files_that_changed_places_are_refused)
{
    const char *dir = copy_of("2.15-fsdp2_w2/dcp");
    size_t n, m;
    char *a = slurp(dir, "__0_0.distcp", &n), *b = slurp(dir, "__1_0.distcp", &m);

    spill(dir, "__0_0.distcp", b, m);
    spill(dir, "__1_0.distcp", a, n);
    assert_refused(dir, CKPT_EFORMAT, "");
    free(a);
    free(b);
    scratch_remove(dir);
}

/* One byte of a file, in place. */
static void poke(const char *dir, const char *name, size_t at, char byte)
{
    char path[600];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, f), 1);
    fclose(f);
}

static void cut(const char *dir, const char *name, size_t n)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(truncate(path, (off_t)n), 0);
}

/* Open what may be broken, and read a little of what opens: a word or values, nothing else. */
static bool try(const char *dir)
{
    struct ckpt_open_opts opts = {.optimizer = true};
    struct ckpt_source *s = NULL;
    struct ckpt_err err = {0};
    unsigned char bytes[1024];

    if (ckpt_open_as(&s, "dcp", dir, &opts, &err)) {
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

static void flip_each(const char *golden, const char *name, size_t step)
{
    static const unsigned char bits[] = {0x01, 0x80, 0xff};
    const char *dir = copy_of(golden);
    size_t n, opened = 0, tries = 0;
    char *bytes = slurp(dir, name, &n);

    for (size_t i = 0; i < n; i += step)
        for (size_t k = 0; k < 3; k++, tries++) {
            poke(dir, name, i, (char)(bytes[i] ^ bits[k]));
            opened += try(dir);
            poke(dir, name, i, bytes[i]);
        }
    if (opened == tries)
        fail_msg("%s: no flip of %zu was seen", name, tries);
    for (size_t i = n - 1; i > 4; i -= 5) {
        cut(dir, name, i);
        if (try(dir))
            fail_msg("%s cut to %zu of %zu bytes was opened", name, i, n);
    }
    free(bytes);
    scratch_remove(dir);
}

TEST(flipped_metadata)
{
    flip_each("2.11-dcp_st", ".metadata", 2);
    flip_each("2.15-more/mesh2d", ".metadata", 7);
}

TEST(flipped_data)
{
    flip_each("2.15-more/st", "__1_0.distcp", 2);
    flip_each("2.15-more/mesh2d", "__0_0.distcp", 5);
    flip_each("2.11-dcp_hf", "shard-00002-model-00001-of-00001.safetensors", 1);
}

/* Replace the n-th place where `from` stands by as many bytes. */
static void replace(const char *dir, const char *name, size_t nth, const char *from,
                    const char *to, size_t len)
{
    size_t n;
    char *bytes = slurp(dir, name, &n), *at = bytes;

    for (;; at++) {
        at = memmem(at, n - (size_t)(at - bytes), from, len);
        if (!at)
            fail_msg("%s has no such bytes", name);
        if (nth-- == 0)
            break;
    }
    memcpy(at, to, len);
    spill(dir, name, bytes, n);
    free(bytes);
}

/* Lies about 2.11-dcp_st: what stands in it, what is put there, what is said. */
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
        {"BUILD", "BUILD", 0, 0, 0, NULL},
    };

    for (size_t i = 0; lie[i].words; i++) {
        const char *dir = copy_of("2.11-dcp_st");

        replace(dir, ".metadata", lie[i].nth, lie[i].from, lie[i].to, lie[i].len);
        assert_refused(dir, lie[i].code, lie[i].words);
        scratch_remove(dir);
    }
}

/* A pickle that would run something is refused and called what it is. */
TEST(malicious_metadata)
{
    static const char evil[] = "cos\nsystem\n(S'true'\ntR.";
    const char *dir = copy_of("2.11-dcp_st");

    spill(dir, ".metadata", evil, sizeof evil - 1);
    assert_refused(dir, CKPT_EREFUSED, "looks malicious");
    scratch_remove(dir);
}

TEST(recognition)
{
    const struct ckpt_format *f = NULL;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_recognise(&f, GOLDEN "2.11-dcp_hf2", false, &err), 0);
    assert_string_equal(f->name, "hf");         /* the joined files beside their shards */
    assert_int_equal(ckpt_recognise(&f, GOLDEN "2.11-dcp_hf", false, &err), 0);
    assert_string_equal(f->name, "dcp");
    assert_int_equal(ckpt_recognise(&f, TRAINER, false, &err), 0);
    assert_string_equal(f->name, "dcp");
    assert_int_not_equal(ckpt_recognise(&f, GOLDEN "2.15-more", false, &err), 0);
}
