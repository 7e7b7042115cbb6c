/*
 * deepspeed: what real DeepSpeed wrote, against what its own converter makes of it, and against
 * the live engine's moments; then sets that were damaged.
 */
#include "tests/unit/compare.h"
#include "tests/unit/files.h"

#include "libckpt/convert.h"

#define GOLDEN "tests/golden/deepspeed/"

/*
 * Where the peer's converter is right, bit for bit.  In 0.14 it turns buffers into f32; those
 * two are held against the stored dtype in test_buffers_keep_their_dtype instead.
 */
static const char *const exact[] = {
    "0.19-s1_w2_universal", "0.19-s2_w2_bf16", "0.19-s2_w2_elastic", "0.19-s2_w2_fp16",
    "0.19-s2_w2_fp32", "0.19-s2_w2_offload", "0.19-s3_w1_bf16", "0.19-s3_w2_bf16",
    "0.19-s3_w2_fp16", "0.19-s3_w2_offload", "0.19-s3_w2_subgroup", "0.19-s3_w2_universal",
    "0.19-s3_w4_hpz2", "0.19-s1_w1_fp32", "0.19-s1_w2_bf16", "0.19-s1_w2_fp16",
    "0.19-s2_w2_rr", "0.19-s3_w3_bf16",
    "0.19-s1_w2_legacy", "0.14-s1_w2_fp16", "0.14-s1_w2_universal", "0.14-s3_w2_fp16",
    /* Those that it refuses; the live engine told what they hold: stage 0 and BF16_Optimizer. */
    "0.19-s0_w1_fp32", "0.19-s0_w2_bf16", "0.14-s0_w2_fp16", "0.14-s0_w2_bf16",
    "0.19-s1_w2_bf16grad", "0.14-s1_w2_bf16opt", "0.19-s0_w2_fused",
    /* Experts: with one size of expert-parallel groups and with two, groups of ranks that follow
     * each other, groups of one rank, and without ZeRO. */
    "0.19-moe_s2_w4_ep2", "0.19-moe_s1_w4_mixed", "0.19-moe_s2_w4_data_first",
    "0.19-moe_s1_w2_ep1", "0.19-moe_s0_w2_fp32", "0.19-moe_s0_w2_bf16",
    /* Pipelines, the last of BF16_Optimizer without param_shapes; state swapped out to files. */
    "0.19-pipe_s1_w2_pp2", "0.19-pipe_s1_w2_pp1", "0.19-pipe_s0_w4_pp2", "0.19-s3_w2_nvme",
    /* As versions laid them out that no longer run; files of a partition group alone. */
    "0.3-s2_w2_fp16", "0.5-s1_w2_fp16", "0.14-s3_mics",
};

static struct ckpt_source *open_run(const char *name, bool optimizer)
{
    return must_open(text_of(GOLDEN "%s/ckpt", name),
                     &(struct ckpt_open_opts){.optimizer = optimizer});
}

static void check_all(bool optimizer, const char *expected)
{
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        struct ckpt_source *s = open_run(exact[i], optimizer);

        assert_true(assert_holds(s, text_of(GOLDEN "%s/%s", exact[i], expected)) >= 8);
        ckpt_source_close(s);
    }
}

TEST(weights_equal_zero_to_fp32) { check_all(false, "expected.safetensors"); }
TEST(moments_equal_the_live_engine) { check_all(true, "expected_moments.safetensors"); }

/* zero_to_fp32 drops the frozen weights of stage 1: they are in `module`. */
TEST(frozen_weights_of_stage_1_are_read)
{
    struct ckpt_source *s = open_run("0.19-s1_w2_bf16", false);

    assert_true(ckpt_source_find(s, "frozen_vec") != SIZE_MAX);
    assert_true(ckpt_source_find(s, "l1.base.weight") != SIZE_MAX);
    ckpt_source_close(s);
}

/* The weights of every stage, rounded to the model's dtype, are what the engine computed with. */
TEST(masters_round_to_the_models_weights)
{
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        struct ckpt_source *s = open_run(exact[i], false), *live;

        live = must_open(text_of(GOLDEN "%s/expected_module.safetensors", exact[i]), NULL);
        for (size_t k = 0; k < ckpt_source_count(live); k++) {
            const struct ckpt_tensor *w = ckpt_source_tensor(live, k);
            size_t at = ckpt_source_find(s, w->name);
            void *a, *b, *c;

            if (at == SIZE_MAX)
                fail_msg("%s: %s is absent", exact[i], w->name);
            a = read_whole(s, at);
            b = read_whole(live, k);
            c = malloc((size_t)ckpt_tensor_bytes(w) + 1);
            ckpt_convert(c, w->dtype, a, ckpt_source_tensor(s, at)->dtype, (size_t)w->numel);
            if (memcmp(b, c, (size_t)ckpt_tensor_bytes(w)) != 0)
                fail_msg("%s: %s rounds to something else", exact[i], w->name);
            free(a);
            free(b);
            free(c);
        }
        ckpt_source_close(s);
        ckpt_source_close(live);
    }
}

/* Saved with exclude_frozen_parameters: what is there is read, what is not is not invented. */
TEST(weights_that_were_left_out_are_absent)
{
    struct ckpt_source *s = open_run("0.19-s2_w2_nofrozen", true);

    assert_int_equal(assert_holds(s, GOLDEN "0.19-s2_w2_nofrozen/expected.safetensors"), 13);
    assert_int_equal(assert_holds(s, GOLDEN "0.19-s2_w2_nofrozen/expected_moments.safetensors"),
                     20);
    assert_int_equal(ckpt_source_find(s, "frozen_vec"), SIZE_MAX);
    ckpt_source_close(s);
}

TEST(buffers_keep_their_dtype)
{
    struct ckpt_source *s = open_run("0.14-s3_w2_bf16", false);

    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "counter"))->dtype, CKPT_I64);
    assert_int_equal(ckpt_source_tensor(s, ckpt_source_find(s, "counter"))->kind, CKPT_BUFFER);
    ckpt_source_close(s);
}

TEST(tied_names_share_their_tensor)
{
    struct ckpt_source *s = open_run("0.19-s3_w2_bf16", false);
    size_t head = ckpt_source_find(s, "head.weight"), emb = ckpt_source_find(s, "emb.weight");

    assert_true(head != SIZE_MAX && emb != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, head)->alias_of, emb);
    ckpt_source_close(s);
}

TEST(facts_are_told)
{
    struct ckpt_source *s = open_run("0.19-s2_w2_fp16", false);
    const json_t *info = ckpt_source_info(s);

    assert_string_equal(json_string_value(json_object_get(info, "tag")), "my-tag_7");
    assert_int_equal(json_integer_value(json_object_get(info, "zero_stage")), 2);
    assert_int_equal(json_integer_value(json_object_get(info, "world_size")), 2);
    ckpt_source_close(s);
}

/* -- damage ---------------------------------------------------------------------------------- */

SCRATCH_EACH("deepspeed")

/* A fresh copy of a golden run, and what a command does to it; $D is the tag's folder. */
static void copy_of(const char *run, const char *command)
{
    shell(text_of("rm -rf %s/* && cp -r " GOLDEN "%s/ckpt/. %s && D=%s/$(cat %s/latest) && %s",
                  dir, run, dir, dir, dir, command));
}

static int open_copy(struct ckpt_err *err)
{
    struct ckpt_source *s = NULL;
    int rc;

    memset(err, 0, sizeof *err);
    rc = ckpt_open(&s, dir, NULL, err);
    ckpt_source_close(s);
    return rc;
}

/* A command on a copy of a golden run, and the refusal that must follow. */
struct damage {
    const char *run, *command;
    int         code;
    const char *says;                   /* in the sentence */
};

#define S3 "0.19-s3_w2_bf16"
#define S2 "0.19-s2_w2_fp16"
#define MOE "0.19-moe_s2_w4_ep2"
#define PIPE "0.19-pipe_s1_w2_pp2"
#define NVME "0.19-s3_w2_nvme"
#define OPTIM(r) "$D/bf16_zero_pp_rank_" #r "_mp_rank_00_optim_states.pt"
#define MODEL(r) "$D/zero_pp_rank_" #r "_mp_rank_00_model_states.pt"
#define OTHER(run, tag, name) "cp " GOLDEN run "/ckpt/" tag "/" name " $D/"

static const struct damage damages[] = {
    {S3, "true", 0, ""},
    {S3, "rm " OPTIM(1), CKPT_EFORMAT, "rank 1 of 2"},
    {S3, "rm " OPTIM(0), CKPT_EFORMAT, "rank 0 of 2"},
    {S3, "rm " MODEL(1), CKPT_EFORMAT, "zero_pp_rank_1_mp_rank_00_model_states.pt is absent"},
    {S3, "rm " MODEL(0), CKPT_EFORMAT, "rank 0 of 2"},
    {S3, "rm $D/*", CKPT_ENOTFOUND, "no DeepSpeed files"},
    {S3, "truncate -s -100 " OPTIM(1), CKPT_EFORMAT, "rank_1"},
    {S3, "truncate -s 0 " MODEL(1), CKPT_EFORMAT, "rank_1"},
    {S3, "truncate -s 700 " OPTIM(0), CKPT_EFORMAT, "rank_0"},
    {S3, "printf ../global_step4 > $D/../latest", CKPT_EREFUSED, "no clean name"},
    {S3, "printf 'a\\0b' > $D/../latest", CKPT_EREFUSED, "no clean name"},
    {S3, "printf global_step9 > $D/../latest", CKPT_ENOTFOUND, "global_step9"},
    /* A world's files over another's. */
    {S3, OTHER("0.19-s3_w4_hpz2", "global_step4", "bf16*rank_1_*optim*"), CKPT_EFORMAT,
     "rank 1: the number of partitions is 4, rank 0 has 2"},
    {S3, OTHER("0.19-s3_w4_hpz2", "global_step4", "bf16*rank_3_*optim*"), CKPT_EFORMAT,
     "beyond the 2 that saved"},
    {S3, OTHER("0.19-s3_w2_fp16", "global_step4", "zero*rank_1_*optim*"), CKPT_EFORMAT,
     "two files of one rank"},
    {S3, OTHER("0.19-s2_w2_bf16", "global_step4", "mp_rank*"), CKPT_EFORMAT,
     "model files of two saves"},
    {S3, OTHER("0.19-s2_w2_bf16", "global_step4", "bf16*rank_1_*"), CKPT_EFORMAT,
     "rank 1: the ZeRO stage is 2, rank 0 has 3"},
    /* The same world, stage and step, another run: sizes or versions tell. */
    {S3, OTHER("0.19-s3_w2_universal", "global_step4", "zero*rank_1_*"), CKPT_EFORMAT, "rank 1"},
    {S3, OTHER("0.14-s3_w2_bf16", "global_step4", "*rank_1_*"), CKPT_EFORMAT,
     "written by DeepSpeed 0.14.5"},
    {MOE, "rm $D/layer_0_expert_3_*", CKPT_EFORMAT,
     "layer_0_expert_3_mp_rank_00_model_states.pt: is absent"},
    {MOE, "cp $D/layer_0_expert_1_* $D/layer_0_expert_2_mp_rank_00_model_states.pt", CKPT_EFORMAT,
     "is no tensor of expert 2"},
    {MOE, "cp $D/layer_0_expert_1_* $D/layer_0_expert_4_mp_rank_00_model_states.pt", CKPT_EFORMAT,
     "of an expert beyond the 4"},
    {MOE, "rm $D/*rank_3_mp*", CKPT_EFORMAT, "rank 3 of 4"},
    {MOE, "cp $D/*rank_1_mp* $D/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt", CKPT_EFORMAT,
     "rank 2: param_slice_mappings"},
    {"0.19-moe_s0_w2_fp32", "rm $D/expp_rank_0*", CKPT_EFORMAT, "expp_rank_0"},
    {"0.19-moe_s0_w2_fp32", "rm $D/expp_rank_1*", CKPT_EFORMAT, "expp_rank_1"},
    /* Two runs that came as far as each other: of stage 2 their values tell, of 3 the options. */
    {"0.19-s2_w2_bf16", OTHER("0.19-s2_w2_nofrozen", "global_step4", "bf16*rank_1_*"),
     CKPT_EFORMAT, "files of two runs"},
    {"0.19-s2_w2_bf16", OTHER("0.19-s2_w2_nofrozen", "global_step4", "bf16*rank_0_*"),
     CKPT_EFORMAT, "rank 0: its optimizer's"},
    {S3, OTHER("0.19-s3_w2_offload", "global_step4", "*rank_1_*optim*"), CKPT_EFORMAT,
     "rank 1: its ds_config is not that of rank 0"},
    {S3, OTHER("0.19-s3_w2_offload", "global_step4", "zero*rank_1_*model*"), CKPT_EFORMAT,
     "rank 1: its ds_config is not that of rank 0"},
    {PIPE, "rm $D/mp_rank_01*", CKPT_EFORMAT,
     "zero_pp_rank_0_mp_rank_01_model_states.pt is absent"},
    {PIPE, "rm $D/*mp_rank_01*", CKPT_EFORMAT, "mp_rank_01_model_states.pt: is absent, 2 stages"},
    {PIPE, "rm $D/mp_rank_00*", CKPT_EFORMAT, "mp_rank_00_model_states.pt is absent"},
    {PIPE, "rm $D/layer_03*", CKPT_EFORMAT, "layer_03-model_states.pt: is absent"},
    {PIPE, "cp $D/layer_03-model_states.pt $D/layer_3-model_states.pt", CKPT_EFORMAT,
     "another file is of that layer"},
    {PIPE, "mv $D/layer_01-model_states.pt $D/layer_01-model_00-model_states.pt",
     CKPT_EUNSUPPORTED, "layer_01-model_00-model_states.pt: a slice of a layer"},
    {PIPE, OTHER("0.19-pipe_s1_w2_pp1", "global_step3", "mp_rank_00*"), CKPT_EFORMAT,
     "its model file is of 2 ranks"},
    {S2, "cp $D/mp_rank_00_model_states.pt $D/mp_rank_01_model_states.pt", CKPT_EUNSUPPORTED,
     "mp_rank_01_model_states.pt: of a tensor-parallel checkpoint"},
    {NVME, "rm $D/offloaded_tensors/rank01/1_4.tensor.swp", CKPT_ENOTFOUND,
     "rank01/1_4.tensor.swp"},
    {NVME, "truncate -s 100 $D/offloaded_tensors/rank01/1_4.tensor.swp", CKPT_EFORMAT,
     "rank01/1_4.tensor.swp: has 100 bytes"},
    {NVME, "rm -r $D/offloaded_tensors", CKPT_EUNSUPPORTED, "were swapped out"},
    {S2, "rm $D/zero_pp_rank_0*", CKPT_EFORMAT, "rank 0 of 2"},
    {S2, "rm $D/mp_rank*", CKPT_EFORMAT, "model_states.pt is absent"},
};

TEST(damaged_sets_are_refused_by_name)
{
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *d = &damages[i];
        struct ckpt_err err;
        int rc;

        copy_of(d->run, d->command);
        rc = open_copy(&err);
        if (rc != d->code || (rc && !strstr(err.text, d->says)))
            fail_msg("%s: %d, \"%s\"", d->command, rc, err.text);
    }
}

static bool opens(void)
{
    struct ckpt_err err;

    return open_copy(&err) == 0;
}

/*
 * A flipped bit anywhere in a rank's optim file is seen, unless it is in bytes that opening does not
 * read (of tensors, of members' dates), and never a crash.
 */
TEST(flipped_bits_do_no_harm)
{
    size_t tried, opened;

    copy_of(S3, "true");
    opened = flip_each(text_of("%s/global_step4/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",
                               dir), 61, NULL, 0, opens, &tried);
    assert_true(opens());
    assert_true(tried - opened > 20 && tried > 200);
}
