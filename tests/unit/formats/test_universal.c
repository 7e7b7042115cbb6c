/*
 * universal, universal_out: what ds_to_universal made is read; what is written is read again and
 * cut like any other run; damage is told.
 */
#include "tests/unit/compare.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/universal.h"
#include "libckpt/log.h"

#define GOLDEN "tests/golden/deepspeed/"

SCRATCH_EACH("universal")

static struct ckpt_source *open_all(const char *path, const char *tag)
{
    return must_open(path, &(struct ckpt_open_opts){.optimizer = true, .tag = tag});
}

static int write_as(const char *format, const char *path, struct ckpt_source *src, int stage,
                    int world, struct ckpt_err *err)
{
    struct ckpt_copy_opts copy = {.workers = 2, .chunk_bytes = 512};
    struct ckpt_create_opts opts = {.origin = src, .zero_stage = stage, .world_size = world};

    return write_source(path, format, src, &opts, &copy, err);
}

TEST(what_the_peer_made_is_read)
{
    static const char *const runs[] = {"0.19-s1_w2_universal", "0.19-s3_w2_universal"};
    static const char tag[] = "global_step4_universal";

    for (size_t i = 0; i < 2; i++) {
        struct ckpt_source *s = open_all(text_of(GOLDEN "%s/ckpt", runs[i]), tag), *folder;
        const char *path = text_of(GOLDEN "%s/ckpt/%s", runs[i], tag);
        size_t head;

        assert_int_equal(assert_holds(s, text_of(GOLDEN "%s/expected.safetensors", runs[i])), 18);
        assert_int_equal(assert_holds(s, text_of(GOLDEN "%s/expected_moments.safetensors",
                                                 runs[i])), 34);
        head = ckpt_source_find(s, "lm_head.weight");
        assert_int_equal(ckpt_source_tensor(s, head)->alias_of,
                         ckpt_source_find(s, "transformer.word_embeddings.weight"));
        assert_true(json_number_value(json_object_get(ckpt_source_info(s), "optimizer_step")) == 4);
        assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(s), "world_size")), 2);
        folder = open_all(path, NULL);
        assert_same_tensors(folder, s, path);
        ckpt_source_close(folder);
        ckpt_source_close(s);
    }
}

static int warnings;

static void count_warnings(void *ctx, enum ckpt_log_level level, const char *line)
{
    (void)ctx;
    warnings += level == CKPT_LOG_WARNING && strstr(line, "1 of the model file's tensors") &&
                strstr(line, "transformer.ln_f.bias");
}

/* A copy of a universal checkpoint, and what a command does to it; $D is its folder. */
static void copy_of(const char *command)
{
    shell(text_of("cp -r " GOLDEN "0.19-s1_w2_universal/ckpt/global_step4_universal %s/u && "
                  "D=%s/u && %s", dir, dir, command));
}

/* Made of several mp_ranks: model files have slices, zero/ has all that was trained. */
TEST(states_of_tensor_parallel_runs_are_whole)
{
    struct ckpt_source *s;

    copy_of("cp $D/mp_rank_00_model_states.pt $D/mp_rank_01_model_states.pt && "
            "mv $D/zero/transformer.ln_f.bias $D/zero/another.name");
    ckpt_log_hook(count_warnings, NULL);
    s = open_all(text_of("%s/u", dir), NULL);
    ckpt_log_hook(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_int_equal(ckpt_source_find(s, "transformer.ln_f.bias"), SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "another.name"))->shape.dim[0], 16);
    assert_true(ckpt_source_find(s, "another.name|exp_avg_sq") != SIZE_MAX);
    assert_true(ckpt_source_find(s, "lm_head.weight") != SIZE_MAX);
    assert_int_equal(ckpt_source_find(s, "lm_head.weight|exp_avg"), SIZE_MAX);
    ckpt_source_close(s);
}

TEST(it_is_cut_like_any_run)
{
    static const char *const runs[] = {"0.19-s1_w2_universal", "0.19-s3_w2_universal"};
    struct ckpt_err err;

    for (size_t i = 0; i < 2; i++)
        for (int stage = 1; stage <= 3; stage++) {
            const char *to = text_of("%s/%zu-%d", dir, i, stage);
            struct ckpt_source *s = open_all(text_of(GOLDEN "%s/ckpt", runs[i]),
                                             "global_step4_universal"), *back;

            if (write_as("deepspeed", to, s, stage, 3, &err))
                fail_msg("%s as stage %d: %s", runs[i], stage, err.text);
            back = open_all(to, NULL);
            assert_same_tensors(back, s, to);
            assert_int_equal(ds_source_files(back)->stage, stage);
            assert_true(ds_source_files(back)->bf16_names);
            assert_true(json_equal(json_object_get(ckpt_source_info(back), "param_groups"),
                                   json_object_get(ckpt_source_info(s), "param_groups")));
            ckpt_source_close(back);
            ckpt_source_close(s);
        }
}

/* Frozen weights and buffers too; of every class that saves. */
TEST(what_is_written_holds_the_run)
{
    static const char *const runs[] = {"0.19-s0_w2_bf16", "0.19-s1_w2_bf16grad", "0.19-s2_w2_fp16",
                                       "0.19-s2_w2_bf16", "0.19-s3_w2_subgroup",
                                       "0.14-s1_w2_bf16", "0.14-s0_w2_fp16"};
    static const char *const facts[] = {"lr", "loss_scale", "dynamic_loss_scale"};
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct ckpt_source *s = open_all(text_of(GOLDEN "%s/ckpt", runs[i]), NULL), *back;
        const char *to = text_of("%s/%zu", dir, i);

        if (write_as("universal", to, s, 0, 0, &err))
            fail_msg("%s: %s", runs[i], err.text);
        back = open_all(to, NULL);
        assert_same_tensors(back, s, runs[i]);
        assert_non_null(ds_source_files(back)->universal);
        assert_int_equal(ds_source_files(back)->bf16, ds_source_files(s)->bf16);
        for (size_t k = 0; k < sizeof facts / sizeof facts[0]; k++) {
            const json_t *was = json_object_get(ckpt_source_info(s), facts[k]);

            if (was && !json_equal(json_object_get(ckpt_source_info(back), facts[k]), was))
                fail_msg("%s: %s is lost", runs[i], facts[k]);
        }
        ckpt_source_close(back);
        ckpt_source_close(s);
    }
}

TEST(damage_is_told)
{
    static const struct { const char *command, *says; int code; } cases[] = {
        {"rm $D/zero/transformer.ln_f.bias/fp32.pt", "transformer.ln_f.bias/fp32.pt",
         CKPT_ENOTFOUND},
        {"rm -r $D/zero/transformer.ln_f.bias", "transformer.ln_f.bias", CKPT_ENOTFOUND},
        {"truncate -s 900 $D/zero/transformer.ln_f.bias/exp_avg.pt",
         "transformer.ln_f.bias/exp_avg.pt", CKPT_EFORMAT},
        {"rm $D/zero/optimizer_state.pt", "optimizer_state.pt", CKPT_ENOTFOUND},
        {"rm $D/*model_states.pt", "no checkpoint is recognised", CKPT_EUNSUPPORTED},
        {"cp $D/zero/transformer.word_embeddings.weight/fp32.pt $D/zero/transformer.ln_f.bias/",
         "zero/transformer.ln_f.bias: its weight is [37, 16], the model file says [16]",
         CKPT_EFORMAT},
        {"cp $D/zero/optimizer_state.pt $D/zero/transformer.ln_f.bias/fp32.pt", "no tensor in it",
         CKPT_EFORMAT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        copy_of(cases[i].command);
        must_not_open(text_of("%s/u", dir), &(struct ckpt_open_opts){.optimizer = true},
                      cases[i].code, cases[i].says);
        scratch_at(dir);
    }
}

/* Fail the n-th operation of a kind until none is reached: clean errors, nothing left behind. */
TEST(failures_leave_nothing)
{
    struct ckpt_source *src = open_all(GOLDEN "0.19-s2_w2_bf16/ckpt", NULL);
    const char *path = text_of("%s/run", dir);

    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(WRITE) | FAULT(RENAME), .sparse = 6};
         faults_next(&f);) {
        struct ckpt_err err;
        int rc = write_as("universal", path, src, 0, 0, &err);

        faults_disarm(&f);
        if ((rc != 0) != f.struck || entries(dir) != (f.struck ? 0 : 1))
            fail_msg("kind %d, %lu: %d, %s", f.kind, f.n, rc, err.text);
        if (!f.struck)
            scratch_remove(path);
    }
    ckpt_source_close(src);
}
