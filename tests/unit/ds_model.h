/*
 * ds_model - a small model whose every element is known, saved by deepspeed_out at any world
 * size: what the tests of writing and of reading back one rank share.
 */
#ifndef CKPT_TESTS_UNIT_DS_MODEL_H
#define CKPT_TESTS_UNIT_DS_MODEL_H

#include "tests/unit/compare.h"
#include "tests/unit/unit.h"

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/write/flat_out.h"

/* Sizes that no world divides; one of a single element, one frozen in between. */
static const struct ds_param ds_params[] = {
    {"emb.weight", {2, {31, 18}}, 0, true}, {"l1.weight", {2, {23, 18}}, 0, true},
    {"frozen.weight", {2, {5, 3}}, 0, false}, {"pos", {3, {1, 11, 1}}, 0, true},
    {"norm.weight", {1, {18}}, 1, true}, {"gate", {1, {1}}, 1, true},
    {"frozen.bias", {1, {7}}, 1, false}, {"l1.bias", {1, {23}}, 1, true},
};
#define DS_N (sizeof ds_params / sizeof ds_params[0])
#define DS_STEP 7

enum { DS_MASTER, DS_EXP_AVG, DS_EXP_AVG_SQ, DS_ARRAYS };

/* Element e of array k of parameter i: exact in 16 bits for frozen ones. */
static inline float ds_element(int k, size_t i, int64_t e)
{
    if (!ds_params[i].trainable)
        return (float)(e % 64) - 20.0f;
    return (float)(k + 1) * 1000.0f + (float)i * 17.0f + (float)e * 0.37f;
}

static inline int64_t ds_numel(size_t i)
{
    int64_t n = 0;

    assert_true(ckpt_shape_numel(&n, &ds_params[i].shape));
    return n;
}

/* One rank's arrays, padding set to `padding`. */
struct ds_arrays { float *p[DS_ARRAYS][DS_N]; };

static inline void ds_arrays_make(struct ds_arrays *a, int rank, int world, float padding)
{
    for (int k = 0; k < DS_ARRAYS; k++)
        for (size_t i = 0; i < DS_N; i++) {
            int64_t part = ds3_part(ds_numel(i), world);
            struct ds_piece piece = ds3_piece(ds_numel(i), 0, rank, world);

            a->p[k][i] = malloc((size_t)part * sizeof(float) + 1);
            for (int64_t e = 0; e < part; e++)
                a->p[k][i][e] = e < piece.count ? ds_element(k, i, piece.start + e) : padding;
        }
}

static inline void ds_arrays_free(struct ds_arrays *a)
{
    for (int k = 0; k < DS_ARRAYS; k++)
        for (size_t i = 0; i < DS_N; i++)
            free(a->p[k][i]);
}

static const struct ds_alias ds_aliases[] = {{"head.weight", "emb.weight"}};
static const struct adamw_group ds_groups[] = {
    {.lr = 0.01, .initial_lr = 0.02, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.lr = 0.01, .initial_lr = 0.02, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
};

/* The state as it is written, for a test to change before it does. */
static inline struct ds_rank_state ds_state_of(const struct ds_arrays *a, int rank, int world,
                                               const json_t *config)
{
    return (struct ds_rank_state){
        .rank = rank, .world_size = world, .param = ds_params, .n_param = DS_N,
        .alias = ds_aliases, .n_alias = 1, .group = ds_groups, .n_group = 2,
        .model_dtype = CKPT_BF16, .master = (const float *const *)a->p[DS_MASTER],
        .exp_avg = (const float *const *)a->p[DS_EXP_AVG],
        .exp_avg_sq = (const float *const *)a->p[DS_EXP_AVG_SQ],
        .optimizer_step = DS_STEP, .global_steps = DS_STEP + 1, .skipped_steps = 1,
        .global_samples = 32, .ds_config = config};
}

/* A rank's files of a run of stage 1 or 2; rank 0 writes the model's. */
static inline int ds_write_flat_rank(struct ckpt_outdir *dir, const char *tag,
                                     const struct ds_rank_state *s, struct ckpt_err *err)
{
    static const enum adamw_array of[] = {ADAMW_MASTER, ADAMW_EXP_AVG, ADAMW_EXP_AVG_SQ};
    struct ds_flat_out *f;
    size_t n_group = 0;
    const struct ds_flat_group *g;
    int rc = ds_flat_out_begin(&f, dir, tag, s, s->rank == 0, err);

    g = rc ? NULL : ds_flat_out_groups(f, &n_group);
    for (size_t q = 0; q < n_group; q++)
        for (int k = 0; k < DS_ARRAYS; k++) {
            int64_t base = 0, from = g[q].part * s->rank;

            for (size_t j = 0; j < g[q].n; base += ds_numel(g[q].param[j++]))
                for (int64_t e = 0; rc == 0 && e < ds_numel(g[q].param[j]); e++) {
                    float x = ds_element(k, g[q].param[j], e);

                    if (base + e >= from && base + e < from + g[q].own)
                        rc = ds_flat_out_put(f, q, of[k], base + e - from, 1, &x, err);
                }
        }
    for (size_t i = 0; rc == 0 && s->rank == 0 && i < s->n_param; i++)
        for (int64_t e = 0; rc == 0 && e < ds_numel(i); e++) {
            float x = ds_element(DS_MASTER, i, e);

            rc = ds_flat_out_put_weight(f, i, e, 1, &x, err);
        }
    if (rc == 0)
        rc = ds_flat_out_commit(f, err);
    ds_flat_out_close(f);
    return rc;
}

/* A test's changes to the state of a rank. */
typedef void ds_change_fn(struct ds_rank_state *s);

/* Save world ranks below a fresh path. */
static inline void ds_save(const char *path, int world, ds_change_fn *change)
{
    json_t *config = json_pack("{s:{s:i},s:{s:b}}", "zero_optimization", "stage", 3, "bf16",
                               "enabled", 1);
    struct ckpt_outdir *dir = NULL;
    struct ckpt_err err = {0};

    if (ckpt_outdir_create(&dir, path, &err))
        fail_msg("%s", err.text);
    for (int r = 0; r < world; r++) {
        struct ds_arrays a;
        struct ds_rank_state s;

        ds_arrays_make(&a, r, world, 0.0f / 0.0f);
        s = ds_state_of(&a, r, world, config);
        if (change)
            change(&s);
        if ((s.stage ? ds_write_flat_rank : ds_write_rank)(dir, "global_step8", &s, &err))
            fail_msg("%s", err.text);
        ds_arrays_free(&a);
    }
    if (ds_write_latest(dir, "global_step8", &err) || ckpt_outdir_commit(dir, &err))
        fail_msg("%s", err.text);
    json_decref(config);
}

#endif
