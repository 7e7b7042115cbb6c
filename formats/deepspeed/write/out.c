/*
 * write/out - see write/out.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_common_checkpoint_state, _save_checkpoint, _save_zero_checkpoint) and runtime/zero/stage3.py
 * (state_dict, _create_fp16_sub_groups).
 *
 * Storages of the optim file: four per sub-group (enum below).  Those of the model file: an empty
 * one for all placeholders, then one for each frozen parameter.
 */
#include "formats/deepspeed/write/out.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/file.h"
#include "formats/deepspeed/write/engine.h"
#include "formats/deepspeed/write/values.h"
#include "libckpt/convert.h"
#include "libckpt/mem.h"

enum { S_MASTER, S_STEP, S_EXP_AVG, S_EXP_AVG_SQ, S_COUNT };

static const enum adamw_array array_of[S_COUNT] = {
    [S_MASTER] = ADAMW_MASTER, [S_EXP_AVG] = ADAMW_EXP_AVG, [S_EXP_AVG_SQ] = ADAMW_EXP_AVG_SQ};

/* Positions of the parameters in the files. */
struct layout {
    const struct ds_rank_state *s;
    int64_t *part;              /* [n_param] elements of this rank's part */
    size_t  *sub;               /* [n_param] sub-group, or NONE for a frozen parameter */
    size_t   n_sub;
    int64_t *sub_numel;         /* [n_sub] */
    size_t  *of;                /* [n_sub] its group among the following */
    int64_t *first, *count;     /* [n_group] sub-groups of groups that have any */
    struct adamw_group *group;  /* [n_group] of the same */
    size_t   n_group;
    float   *piece;             /* [2][ADAMW_PIECE] read; converted */
};

#define NONE SIZE_MAX

/* Cut group g into sub-groups: after the parameter with which the size is reached. */
static void cut_group(struct layout *l, size_t g)
{
    const struct ds_rank_state *s = l->s;
    int64_t limit = s->sub_group_size > 0 ? s->sub_group_size : DS_SUB_GROUP_SIZE;
    size_t before = l->n_sub;
    bool open = false;

    for (size_t i = 0; i < s->n_param; i++) {
        if (!s->param[i].trainable || s->param[i].group != (int)g)
            continue;
        l->n_sub += !open;
        open = true;
        l->sub[i] = l->n_sub - 1;
        l->of[l->sub[i]] = l->n_group;
        l->sub_numel[l->n_sub - 1] += l->part[i];
        if (l->sub_numel[l->n_sub - 1] >= limit)
            open = false;
    }
    if (l->n_sub == before)
        return;
    l->first[l->n_group] = (int64_t)before;
    l->count[l->n_group] = (int64_t)(l->n_sub - before);
    l->group[l->n_group++] = s->group[g];
}

static int lay_out(struct layout *l, struct ckpt_arena *a, const struct ds_rank_state *s,
                   struct ckpt_err *err)
{
    *l = (struct layout){
        .s = s, .part = ckpt_arena_alloc(a, s->n_param, sizeof *l->part),
        .sub = ckpt_arena_alloc(a, s->n_param, sizeof *l->sub),
        .sub_numel = ckpt_arena_alloc(a, s->n_param, sizeof *l->sub_numel),
        .of = ckpt_arena_alloc(a, s->n_param, sizeof *l->of),
        .first = ckpt_arena_alloc(a, s->n_group, sizeof *l->first),
        .count = ckpt_arena_alloc(a, s->n_group, sizeof *l->count),
        .group = ckpt_arena_alloc(a, s->n_group, sizeof *l->group),
        .piece = ckpt_alloc_buffer(2 * (size_t)ADAMW_PIECE * sizeof *l->piece)};
    if (!l->piece)
        return ckpt_nomem(err, 2 * (size_t)ADAMW_PIECE * sizeof *l->piece);
    if (!l->part || !l->sub || !l->sub_numel || !l->of || !l->first || !l->count || !l->group)
        return ckpt_nomem(err, s->n_param * sizeof *l->part);
    for (size_t i = 0; i < s->n_param; i++) {
        const struct ds_param *p = &s->param[i];
        int64_t numel;

        if (!ckpt_shape_numel(&numel, &p->shape))
            return ckpt_fail(err, CKPT_ESTATE, "%s: its shape has no count of elements", p->name);
        if (p->trainable && (p->group < 0 || (size_t)p->group >= s->n_group))
            return ckpt_fail(err, CKPT_ESTATE, "%s: is of group %d, there are %zu", p->name,
                             p->group, s->n_group);
        l->part[i] = ds3_part(numel, s->world_size);
        l->sub[i] = NONE;
    }
    for (size_t g = 0; g < s->n_group; g++)
        cut_group(l, g);
    return 0;
}

/* -- values ---------------------------------------------------------------------------------- */

/* A flat tensor of a storage. */
static struct value *flat_tensor(struct ds_file *file, size_t storage)
{
    struct ckpt_shape shape = ckpt_shape_1d(file->storage[storage].numel);

    return ds_file_tensor(file, storage, &shape);
}

/* One OrderedDict of name -> shape per sub-group. */
static struct value *param_shapes(struct ckpt_arena *a, const struct layout *l)
{
    struct value *list = value_list(a);

    for (size_t k = 0; k < l->n_sub; k++)
        if (value_append(a, list, value_dict(a, true)))
            return NULL;
    /* Parameters keep their order in a sub-group, so one pass fills all. */
    for (size_t i = 0; list && i < l->s->n_param; i++)
        if (l->sub[i] != NONE &&
            value_set_str(a, list->u.seq.item[l->sub[i]], l->s->param[i].name,
                          value_size(a, &l->s->param[i].shape)))
            return NULL;
    return list;
}

/* In stage 3 `module` has only placeholders of shape [0], tied and frozen names included. */
static struct value *placeholders(struct ds_file *file, const struct ds_rank_state *s)
{
    struct value *d = value_dict(&file->arena, true);

    for (size_t i = 0; i < s->n_param + s->n_alias; i++)
        if (value_set_str(&file->arena, d,
                          i < s->n_param ? s->param[i].name : s->alias[i - s->n_param].name,
                          flat_tensor(file, 0)))
            return NULL;
    return d;
}

/* For each frozen parameter its shape, or this rank's part. */
static struct value *frozen(struct ds_file *file, const struct layout *l, bool parts)
{
    struct value *d = value_dict(&file->arena, true);
    size_t storage = 1;

    for (size_t i = 0; i < l->s->n_param; i++) {
        const struct ds_param *p = &l->s->param[i];

        if (!p->trainable &&
            value_set_str(&file->arena, d, p->name,
                          parts ? flat_tensor(file, storage++)
                                : value_size(&file->arena, &p->shape)))
            return NULL;
    }
    return d;
}

/* The model file's dictionary.  DeepSpeed fills the table of tied names on global rank 0 only. */
static int model_states(struct value **out, struct ds_file *file, const struct layout *l,
                        struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    struct ckpt_arena *a = &file->arena;
    struct value *d = value_dict(a, false);
    int rc;

    ds_file_storage(file, s->model_dtype, 0, err);
    for (size_t i = 0; i < s->n_param; i++)
        if (!s->param[i].trainable)
            ds_file_storage(file, s->model_dtype, l->part[i], err);
    if (file->rc)
        return file->rc;
    rc = value_set_str(a, d, "module", placeholders(file, s)) |
         value_set_str(a, d, "buffer_names", value_list(a)) |
         value_set_str(a, d, "optimizer", value_none(a)) |
         value_set_str(a, d, "param_shapes", param_shapes(a, l)) |
         value_set_str(a, d, "frozen_param_shapes", frozen(file, l, false)) |
         value_set_str(a, d, "shared_params",
                       s->rank == 0 ? ds_value_shared(a, s) : value_dict(a, false)) |
         value_set_str(a, d, "frozen_param_fragments", frozen(file, l, true));
    *out = d;
    return rc ? ckpt_nomem(err, (size_t)a->used) : ds_put_engine(a, d, s, err);
}

bool ds_keeps(const struct ds_rank_state *s, const struct adamw_group *g, enum adamw_array of)
{
    int fewer = s->fewer + (g->muon != NULL);

    return of == ADAMW_EXP_AVG ? fewer < 2 : of == ADAMW_EXP_AVG_SQ ? fewer < 1 : true;
}

const char *ds_moment_name(const struct ds_rank_state *s, const struct adamw_group *g)
{
    if (g->muon)
        return "momentum_buffer";
    return s->fewer && s->moment ? s->moment : "exp_avg";
}

/* torch's nested optimizer.state_dict(): one flat parameter per sub-group. */
static struct value *adamw_state(struct ds_file *file, const struct layout *l)
{
    const struct ckpt_shape scalar = {0};
    struct ckpt_arena *a = &file->arena;
    struct value *state = value_dict(a, false), *d = value_dict(a, false);

    for (size_t k = 0; k < l->n_sub; k++) {
        const struct adamw_group *g = &l->group[l->of[k]];
        struct value *one = value_dict(a, false);

        if (value_set_str(a, one, "step", ds_file_tensor(file, k * S_COUNT + S_STEP, &scalar)) ||
            (ds_keeps(l->s, g, ADAMW_EXP_AVG) &&
             value_set_str(a, one, ds_moment_name(l->s, g),
                           flat_tensor(file, k * S_COUNT + S_EXP_AVG))) ||
            (ds_keeps(l->s, g, ADAMW_EXP_AVG_SQ) &&
             value_set_str(a, one, "exp_avg_sq",
                           flat_tensor(file, k * S_COUNT + S_EXP_AVG_SQ))) ||
            value_set(a, state, value_int(a, (int64_t)k), one))
            return NULL;
    }
    if (value_set_str(a, d, "state", state) ||
        value_set_str(a, d, "param_groups",
                      hf_adamw_groups(a, l->group, l->n_group, l->first, l->count)))
        return NULL;
    return d;
}

static int optim_states(struct value **out, struct ds_file *file, const struct layout *l,
                        struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    struct ckpt_arena *a = &file->arena;
    struct value *root = value_dict(a, false), *d = value_dict(a, false), *flat = value_list(a);
    int rc = 0;

    for (size_t i = 0; i < S_COUNT * l->n_sub; i++)
        ds_file_storage(file, CKPT_F32,
                        i % S_COUNT == S_STEP ? 1
                        : ds_keeps(s, &l->group[l->of[i / S_COUNT]], array_of[i % S_COUNT])
                            ? l->sub_numel[i / S_COUNT] : 0, err);
    if (file->rc)
        return file->rc;
    for (size_t k = 0; k < l->n_sub; k++)
        rc |= value_append(a, flat, flat_tensor(file, k * S_COUNT + S_MASTER));
    rc |= ds_put_scaler(a, d, 3, s->scaling) |
          value_set_str(a, d, "partition_count", value_int(a, s->world_size)) |
          value_set_str(a, d, "optimizer_state_dict", adamw_state(file, l)) |
          value_set_str(a, d, "fp32_flat_groups", flat) |
          value_set_str(a, root, "optimizer_state_dict", d) |
          value_set_str(a, root, "ds_config", value_of_json(a, s->ds_config)) |
          value_set_str(a, root, "ds_version", value_str(a, DS_VERSION));
    *out = root;
    return rc ? ckpt_nomem(err, (size_t)a->used) : 0;
}

/* -- files ----------------------------------------------------------------------------------- */

/* Write elements of this rank's part of parameter i to a storage, from `at` on. */
static int put_part(const struct ds_file *file, size_t storage, int64_t at, const struct layout *l,
                    size_t i, enum adamw_array of, struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    const float *const *array[ADAMW_ARRAYS] = {[ADAMW_MASTER] = s->master,
                                               [ADAMW_EXP_AVG] = s->exp_avg,
                                               [ADAMW_EXP_AVG_SQ] = s->exp_avg_sq};
    enum ckpt_dtype dtype = file->storage[storage].dtype;
    int rc = 0;

    for (int64_t k = 0, n; rc == 0 && k < l->part[i]; k += n) {
        const void *from = s->reader.read ? l->piece : array[of][i] + k;

        n = l->part[i] - k < ADAMW_PIECE ? l->part[i] - k : ADAMW_PIECE;
        if (s->reader.read)
            rc = s->reader.read(s->reader.ctx, i, of, k, n, l->piece, err);
        if (rc == 0 && dtype != CKPT_F32) {
            ckpt_convert(l->piece + ADAMW_PIECE, dtype, from, CKPT_F32, (size_t)n);
            from = l->piece + ADAMW_PIECE;
        }
        if (rc == 0)
            rc = ds_file_put(file, storage, at + k, n, from, err);
    }
    return rc;
}

/* Write parts of frozen parameters, in the model's dtype. */
static int put_frozen(const struct ds_file *file, const struct layout *l, struct ckpt_err *err)
{
    size_t storage = 1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->s->n_param; i++)
        if (!l->s->param[i].trainable)
            rc = put_part(file, storage++, 0, l, i, ADAMW_MASTER, err);
    return rc;
}

/* Write one array of the parameters of sub-group k, part after part in its storage. */
static int put_parts(const struct ds_file *file, const struct layout *l, size_t k, size_t which,
                     struct ckpt_err *err)
{
    int64_t base = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->s->n_param; i++)
        if (l->sub[i] == k) {
            rc = put_part(file, k * S_COUNT + which, base, l, i, array_of[which], err);
            base += l->part[i];
        }
    return rc;
}

/* In the order of the file, so that it is digested while it is written. */
static int put_optim(const struct ds_file *file, const struct layout *l, struct ckpt_err *err)
{
    float step = (float)l->s->optimizer_step;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < S_COUNT * l->n_sub; i++)
        if (i % S_COUNT == S_STEP)
            rc = ds_file_put(file, i, 0, 1, &step, err);
        else if (ds_keeps(l->s, &l->group[l->of[i / S_COUNT]], array_of[i % S_COUNT]))
            rc = put_parts(file, l, i / S_COUNT, i % S_COUNT, err);
    return rc;
}

/* A kind of file: its values and storages, and their elements. */
struct kind {
    int (*states)(struct value **root, struct ds_file *file, const struct layout *l,
                  struct ckpt_err *err);
    int (*put)(const struct ds_file *file, const struct layout *l, struct ckpt_err *err);
};

static int write_file(struct ckpt_outdir *dir, const char *path, const struct kind *kind,
                      const struct layout *l, struct ckpt_err *err)
{
    struct ds_file file = {0};
    struct value *root;
    int rc = kind->states(&root, &file, l, err);

    if (rc == 0)
        rc = ds_file_begin(&file, dir, path, root, err);
    if (rc == 0)
        rc = kind->put(&file, l, err);
    if (rc == 0)
        rc = ds_file_commit(&file, err);
    ds_file_close(&file);
    return rc;
}

int ds_write_rank(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *state,
                  struct ckpt_err *err)
{
    static const struct kind model = {model_states, put_frozen}, optim = {optim_states, put_optim};
    struct ckpt_arena a = {0};
    struct layout l;
    char path[512];
    int rc = lay_out(&l, &a, state, err);

    snprintf(path, sizeof path, "%s/zero_pp_rank_%d_mp_rank_00_model_states.pt", tag, state->rank);
    if (rc == 0)
        rc = write_file(dir, path, &model, &l, err);
    /* The prefix means that bf16 is enabled; DeepSpeed then looks only for that name. */
    snprintf(path, sizeof path, "%s/%szero_pp_rank_%d_mp_rank_00_optim_states.pt", tag,
             state->model_dtype == CKPT_BF16 ? "bf16_" : "", state->rank);
    if (rc == 0)
        rc = write_file(dir, path, &optim, &l, err);
    ckpt_free(l.piece);
    ckpt_arena_release(&a);
    return rc;
}

int ds_write_latest(struct ckpt_outdir *dir, const char *tag, struct ckpt_err *err)
{
    return ckpt_outdir_put(dir, "latest", tag, strlen(tag), err);
}

/* zero_to_fp32.py as a string. */
static const char script[] =
#include "formats/deepspeed/write/zero_to_fp32.inc"
    ;

int ds_write_script(struct ckpt_outdir *dir, struct ckpt_err *err)
{
    return ckpt_outdir_put(dir, "zero_to_fp32.py", script, sizeof script - 1, err);
}
