/* deepspeed_out: what is written is read back bit for bit, at every world size. */
#include "tests/unit/ds_model.h"
#include "tests/unit/faults.h"
#include "tests/unit/files.h"

#include "libckpt/base/half.h"

SCRATCH_EACH("ds-out")

/* The path of the run that a test saves. */
static const char *run(void) { return text_of("%s/run", dir); }

static struct ckpt_source *open_saved(void)
{
    return must_open(run(), &(struct ckpt_open_opts){.optimizer = true});
}

/* Array k of parameter i under its name, as f32 or as what a frozen weight is stored in. */
static void check_tensor(struct ckpt_source *s, int k, size_t i)
{
    static const char *const suffix[] = {"", "|exp_avg", "|exp_avg_sq"};
    const struct ckpt_tensor *t;
    const char *name = text_of("%s%s", ds_params[i].name, suffix[k]);
    size_t at = ckpt_source_find(s, name);
    void *p;

    if (!ds_params[i].trainable && k > 0) {
        assert_int_equal(at, SIZE_MAX);
        return;
    }
    if (at == SIZE_MAX)
        fail_msg("%s is absent", name);
    t = ckpt_source_tensor(s, at);
    assert_true(ckpt_shape_equal(&t->shape, &ds_params[i].shape));
    assert_int_equal(t->dtype, ds_params[i].trainable ? CKPT_F32 : CKPT_BF16);
    assert_int_equal(t->kind, k ? CKPT_OPTIM : CKPT_WEIGHT);
    p = read_whole(s, at);
    for (int64_t e = 0; e < t->numel; e++) {
        float found = ds_params[i].trainable ? ((float *)p)[e]
                                             : ckpt_bf16_to_f32(((uint16_t *)p)[e]);

        if (found != ds_element(k, i, e))
            fail_msg("%s[%lld] is %g, %g was written", name, (long long)e, (double)found,
                     (double)ds_element(k, i, e));
    }
    free(p);
}

static void check_saved(void)
{
    struct ckpt_source *s = open_saved();
    size_t head = ckpt_source_find(s, "head.weight");

    for (int k = 0; k < DS_ARRAYS; k++)
        for (size_t i = 0; i < DS_N; i++)
            check_tensor(s, k, i);
    assert_true(head != SIZE_MAX);
    assert_int_equal(ckpt_source_tensor(s, head)->alias_of, ckpt_source_find(s, "emb.weight"));
    assert_int_equal(ckpt_source_count(s), DS_N + 1 + 2 * (DS_N - 2));
    ckpt_source_close(s);
}

TEST(every_world_reads_back_equal)
{
    static const int worlds[] = {1, 2, 3, 8};

    for (size_t i = 0; i < 4; i++) {
        ds_save(run(), worlds[i], NULL);
        check_saved();
        scratch_at(dir);
    }
}

static void stage_1(struct ds_rank_state *s) { s->stage = 1; }
static void stage_2(struct ds_rank_state *s) { s->stage = 2; }

TEST(flat_groups_of_every_world_read_back_equal)
{
    static const int worlds[] = {1, 2, 3, 8};

    for (size_t i = 0; i < 8; i++) {
        ds_save(run(), worlds[i % 4], i < 4 ? stage_1 : stage_2);
        check_saved();
        scratch_at(dir);
    }
}

static void small_sub_groups(struct ds_rank_state *s) { s->sub_group_size = 100; }

TEST(sub_groups_are_cut_as_deepspeed_cuts_them)
{
    const json_t *groups;
    struct ckpt_source *s;

    ds_save(run(), 2, small_sub_groups);
    check_saved();
    s = open_saved();
    groups = json_object_get(ckpt_source_info(s), "param_groups");
    /* Parts of 279, 207, 6 | 9, 1, 12: a cut follows the first two. */
    assert_int_equal(json_array_size(json_object_get(json_array_get(groups, 0), "params")), 3);
    assert_int_equal(json_array_size(json_object_get(json_array_get(groups, 1), "params")), 1);
    ckpt_source_close(s);
}

static void nothing_in_group_1(struct ds_rank_state *s) { s->n_param = 4; }

TEST(a_group_without_parameters_is_left_out)
{
    struct ckpt_source *s;

    ds_save(run(), 2, nothing_in_group_1);
    s = open_saved();
    assert_int_equal(json_array_size(json_object_get(ckpt_source_info(s), "param_groups")), 1);
    check_tensor(s, DS_EXP_AVG, 1);
    ckpt_source_close(s);
}

TEST(bf16_is_in_the_name_and_counters_in_the_file)
{
    const json_t *info;
    struct ckpt_source *s;

    ds_save(run(), 2, NULL);
    s = open_saved();
    info = ckpt_source_info(s);
    assert_int_equal(json_integer_value(json_object_get(info, "global_steps")), DS_STEP + 1);
    assert_int_equal(json_integer_value(json_object_get(info, "skipped_steps")), 1);
    assert_true(json_number_value(json_object_get(info, "optimizer_step")) == DS_STEP);
    assert_true(json_number_value(json_array_get(json_object_get(info, "lr"), 1)) == 0.01);
    assert_int_equal(json_array_size(json_object_get(info, "frozen")), 2);
    ckpt_source_close(s);
    assert_int_equal(access(text_of("%s/global_step8/bf16_zero_pp_rank_1_mp_rank_00_optim_states"
                                    ".pt", run()), R_OK), 0);
}

/* The client's keys lie beside DeepSpeed's and may not shadow them. */
TEST(client_state_is_merged_but_never_over_deepspeeds)
{
    static const char *const keys[] = {"epoch", "global_steps"};
    json_t *config = json_object();

    for (int i = 0; i < 2; i++) {
        struct ckpt_arena arena = {0};
        struct ckpt_outdir *out = NULL;
        struct ckpt_err err = {0};
        struct ds_arrays a;
        struct ds_rank_state s;
        struct value *client = value_dict(&arena, false);

        ds_arrays_make(&a, 0, 1, 0);
        s = ds_state_of(&a, 0, 1, config);
        s.client_state = client;
        assert_int_equal(value_set_str(&arena, client, keys[i], value_int(&arena, 3)), 0);
        assert_int_equal(ckpt_outdir_create(&out, run(), &err), 0);
        assert_int_equal(ds_write_rank(out, "t", &s, &err), i == 0 ? 0 : CKPT_ESTATE);
        if (i == 1)
            assert_non_null(strstr(err.text, "global_steps"));
        ckpt_outdir_abort(out);
        ds_arrays_free(&a);
        ckpt_arena_release(&arena);
    }
    json_decref(config);
}

/* Fail the n-th operation of a kind until none is reached: clean errors, nothing left behind. */
static void failures(int stage)
{
    json_t *config = json_object();
    struct ds_arrays a;
    struct ds_rank_state s;

    ds_arrays_make(&a, 0, 2, 0);
    s = ds_state_of(&a, 0, 2, config);
    s.stage = stage;
    for (struct faults f = {.kinds = FAULT(ALLOC) | FAULT(WRITE) | FAULT(SYNC) | FAULT(RENAME),
                            .later = true}; faults_next(&f);) {
        struct ckpt_outdir *out = NULL;
        struct ckpt_err err = {0};
        int rc;

        assert_int_equal(ckpt_outdir_create(&out, run(), &err), 0);
        faults_arm(&f);
        rc = (stage ? ds_write_flat_rank : ds_write_rank)(out, "t", &s, &err);
        faults_disarm(&f);
        ckpt_outdir_abort(out);
        assert_int_equal(entries(dir), 0);
        assert_int_equal(rc != 0, f.struck);
    }
    ds_arrays_free(&a);
    json_decref(config);
}

TEST(failures_leave_nothing) { failures(0); }
TEST(failures_of_flat_groups_leave_nothing) { failures(2); }
