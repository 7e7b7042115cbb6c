/*
 * deepspeed_sink: real runs cut for other stages and numbers of ranks, and read back: every
 * weight, buffer and moment as it was, every fact too.
 */
#include "tests/unit/compare.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "formats/deepspeed/deepspeed.h"
#include "libckpt/view.h"

#define GOLDEN "tests/golden/deepspeed/"

SCRATCH_EACH("ds-sink")

static struct ckpt_source *open_all(const char *path)
{
    return must_open(path, &(struct ckpt_open_opts){.optimizer = true});
}

/* Write src, a view of origin, as a run. */
static int cut(const char *path, struct ckpt_source *src, const struct ckpt_source *origin,
               int stage, int world, struct ckpt_err *err)
{
    struct ckpt_copy_opts copy = {.workers = 2, .chunk_bytes = 512};
    struct ckpt_create_opts opts = {.origin = origin, .zero_stage = stage, .world_size = world};

    opts.n_extra = ckpt_source_extras(src, &opts.extra);
    return write_source(path, "deepspeed", src, &opts, &copy, err);
}

/* Names, bytes, kinds, and which names share a tensor. */
static void assert_same_run(struct ckpt_source *found, struct ckpt_source *wanted,
                            const char *where)
{
    assert_same_tensors(found, wanted, where);
    for (size_t i = 0; i < ckpt_source_count(wanted); i++) {
        const struct ckpt_tensor *w = ckpt_source_tensor(wanted, i);
        const struct ckpt_tensor *f = ckpt_source_tensor(found, ckpt_source_find(found, w->name));

        assert_int_equal(f->kind, w->kind);
        assert_string_equal(ckpt_source_tensor(found, f->alias_of)->name,
                            ckpt_source_tensor(wanted, w->alias_of)->name);
    }
}

/* Facts that no cut may change. */
static void assert_same_facts(struct ckpt_source *found, struct ckpt_source *wanted,
                              const char *where)
{
    static const char *const keys[] = {
        "tag", "ds_version", "global_steps", "global_samples", "skipped_steps", "optimizer_step",
        "lr", "lr_scheduler", "client_state"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!json_equal(json_object_get(ckpt_source_info(found), keys[i]),
                        json_object_get(ckpt_source_info(wanted), keys[i])))
            fail_msg("%s: %s differs", where, keys[i]);
}

static void check_run(const char *run)
{
    static const struct { int stage, world; } cuts[] = {{1, 3}, {2, 1}, {2, 8}, {3, 2}, {3, 5}};

    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        int stage = cuts[k].stage, world = cuts[k].world;
        const char *path = text_of("%s/run", dir);
        const char *where = text_of("%s as stage %d on %d", run, stage, world);
        struct ckpt_source *src = open_all(text_of(GOLDEN "%s/ckpt", run)), *back;
        struct ckpt_err err;

        if (cut(path, src, src, stage, world, &err))
            fail_msg("%s: %s", where, err.text);
        back = open_all(path);
        assert_same_run(back, src, where);
        assert_same_facts(back, src, where);
        assert_int_equal(ds_source_files(back)->stage, stage);
        assert_int_equal(ds_source_files(back)->n, world);
        assert_int_equal(ds_source_files(back)->bf16, ds_source_files(src)->bf16 && stage == 1);
        ckpt_source_close(back);
        ckpt_source_close(src);
        scratch_at(dir);
    }
}

/* Every class that writes ZeRO files; frozen weights, sub-groups, tied names, non-zip files. */
TEST(every_cut_holds_what_was_saved)
{
    static const char *const runs[] = {
        "0.19-s0_w1_fp32", "0.19-s0_w2_bf16", "0.19-s0_w2_fused", "0.14-s0_w2_fp16",
        "0.19-s1_w2_bf16", "0.19-s1_w2_fp16", "0.19-s1_w2_bf16grad", "0.19-s1_w2_legacy",
        "0.19-s2_w2_fp16", "0.19-s2_w2_offload", "0.19-s2_w2_rr", "0.19-s3_w3_bf16",
        "0.19-s3_w2_bf16", "0.19-s3_w2_subgroup", "0.19-s3_w4_hpz2", "0.19-s3_w2_nvme", "0.14-s1_w2_bf16", "0.14-s3_w2_fp16"};

    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(runs[i]);
}

/* There and back again: the files of the first cut hold the model's weights as they were saved. */
TEST(the_models_weights_are_rounded_as_deepspeed_rounds)
{
    struct ckpt_source *src = open_all(GOLDEN "0.19-s3_w2_bf16/ckpt"), *model;
    struct ckpt_err err;
    size_t n;

    assert_int_equal(cut(text_of("%s/run", dir), src, src, 2, 3, &err), 0);
    model = must_open(text_of("%s/run/global_step4/mp_rank_00_model_states.pt", dir), NULL);
    n = assert_holds(model, GOLDEN "0.19-s3_w2_bf16/expected_module.safetensors");
    assert_true(n >= 14);
    ckpt_source_close(model);
    ckpt_source_close(src);
}

TEST(a_run_is_written_whole_or_not)
{
    static const struct { const char *left, *says; } cases[] = {
        {"l2.weight", "l2.weight: is left out"},
        {"l2.weight|exp_avg_sq", "l2.weight|exp_avg_sq: is left out"},
        {"frozen_vec", "frozen_vec: is left out"},
        {"running", "running: is left out"},
        {"emb.weight", "head.weight: is tied to emb.weight, which is left out"},
    };
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_source *origin = open_all(GOLDEN "0.19-s2_w2_bf16/ckpt"), *src;

        memset(&err, 0, sizeof err);
        assert_int_equal(ckpt_view_filter(&src, origin, NULL, 0, &cases[i].left, 1, &err), 0);
        assert_int_equal(cut(text_of("%s/run", dir), src, origin, 3, 2, &err), CKPT_EMISMATCH);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].left, err.text);
        ckpt_source_close(src);
    }
    assert_int_equal(entries(dir), 0);
}

/* Masters in another dtype are no masters. */
TEST(cast_weights_are_refused)
{
    struct ckpt_source *origin = open_all(GOLDEN "0.19-s2_w2_bf16/ckpt"), *src;
    struct ckpt_err err = {0};

    assert_int_equal(ckpt_view_cast(&src, origin, &(struct ckpt_cast_rule){"*", CKPT_BF16}, 1,
                                    &err), 0);
    assert_int_equal(cut(text_of("%s/run", dir), src, origin, 3, 2, &err), CKPT_EMISMATCH);
    assert_non_null(strstr(err.text, "is BF16 "));
    ckpt_source_close(src);
}

TEST(what_cannot_be_cut_is_refused)
{
    static const struct { const char *run, *says; int stage, world, code; } cases[] = {
        {"deepspeed/0.19-s2_w2_elastic/ckpt", "elastic_checkpoint", 2, 4, CKPT_EUNSUPPORTED},
        {"deepspeed/0.19-moe_s2_w4_ep2/ckpt", "a run with experts", 2, 4, CKPT_EUNSUPPORTED},
        {"deepspeed/0.19-pipe_s1_w2_pp2/ckpt", "a pipeline", 2, 4, CKPT_EUNSUPPORTED},
        {"deepspeed/0.19-s0_w2_bf16/ckpt", "stages 1 to 3", 0, 4, CKPT_EUSAGE},
        {"deepspeed/0.19-s2_w2_bf16/ckpt", "stages 1 to 3", 4, 4, CKPT_EUSAGE},
        {"deepspeed/0.19-s2_w2_bf16/ckpt", "on 1 to 4096 ranks", 2, 5000, CKPT_EUSAGE},
        {"deepspeed/0.19-s2_w2_bf16/expected.safetensors", "DeepSpeed", 2, 2, CKPT_EUNSUPPORTED},
    };
    struct ckpt_err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ckpt_source *src = open_all(text_of("tests/golden/%s", cases[i].run));

        assert_int_equal(cut(text_of("%s/run", dir), src, src, cases[i].stage, cases[i].world,
                             &err), cases[i].code);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].run, err.text);
        ckpt_source_close(src);
    }
    assert_int_equal(entries(dir), 0);
}

/* Fail the n-th operation of a kind until none is reached: clean errors, nothing left behind. */
TEST(failures_leave_nothing)
{
    /* Every one of the first, then ever rarer: there are thousands. */
    struct ckpt_source *src = open_all(GOLDEN "0.19-s2_w2_bf16/ckpt");
    const char *path = text_of("%s/run", dir);

    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(WRITE) | FAULT(RENAME), .sparse = 8};
         faults_next(&f);) {
        struct ckpt_err err;
        int rc = cut(path, src, src, 3, 2, &err);

        faults_disarm(&f);
        if ((rc != 0) != f.struck || entries(dir) != (f.struck ? 0 : 1))
            fail_msg("kind %d, %lu: %d, %s", f.kind, f.n, rc, err.text);
        if (!f.struck)
            scratch_remove(path);
    }
    ckpt_source_close(src);
}
