/*
 * write/flat_out - see write/flat_out.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_save_checkpoint, _save_zero_checkpoint) and runtime/zero/stage_1_and_2.py (state_dict).
 *
 * Storages of the optim file: four per group (enum below); of the model file: one per parameter.
 */
#include "formats/deepspeed/write/flat_out.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/file.h"
#include "formats/deepspeed/write/engine.h"
#include "formats/deepspeed/write/values.h"
#include "libckpt/mem.h"

enum { S_MASTER, S_STEP, S_EXP_AVG, S_EXP_AVG_SQ, S_COUNT };

static const enum adamw_array array_of[S_COUNT] = {
    [S_MASTER] = ADAMW_MASTER, [S_EXP_AVG] = ADAMW_EXP_AVG, [S_EXP_AVG_SQ] = ADAMW_EXP_AVG_SQ};

struct ds_flat_out {
    const struct ds_rank_state *s;
    struct ckpt_arena     arena;
    struct ds_flat_group *group;        /* [n_group] */
    struct adamw_group   *options;      /* [n_group] of the same */
    size_t                n_group;
    struct ds_file        model, optim;
    bool                  has_model;
};

/* Take the parameters of group g, if there are any. */
static void take_group(struct ds_flat_out *f, size_t *param, size_t g, const int64_t *numel)
{
    const struct ds_rank_state *s = f->s;
    struct ds_flat_group *to = &f->group[f->n_group];

    *to = (struct ds_flat_group){.param = param};
    for (size_t i = 0; i < s->n_param; i++)
        if (s->param[i].trainable && s->param[i].group == (int)g) {
            param[to->n++] = i;
            to->numel += numel[i];
        }
    if (to->n == 0)
        return;
    to->part = ds12_part(to->numel, s->world_size, DS_ALIGN);
    to->own = to->part - ds12_padding(to->numel, s->rank, s->world_size, DS_ALIGN);
    f->options[f->n_group++] = s->group[g];
}

static int lay_out(struct ds_flat_out *f, struct ckpt_err *err)
{
    const struct ds_rank_state *s = f->s;
    size_t *param = ckpt_arena_alloc(&f->arena, s->n_param + 1, sizeof *param);
    int64_t *numel = ckpt_arena_alloc(&f->arena, s->n_param + 1, sizeof *numel);

    f->group = ckpt_arena_alloc(&f->arena, s->n_group + 1, sizeof *f->group);
    f->options = ckpt_arena_alloc(&f->arena, s->n_group + 1, sizeof *f->options);
    if (!param || !numel || !f->group || !f->options)
        return ckpt_nomem(err, (size_t)f->arena.used);
    for (size_t i = 0; i < s->n_param; i++) {
        const struct ds_param *p = &s->param[i];

        if (!ckpt_shape_numel(&numel[i], &p->shape))
            return ckpt_fail(err, CKPT_ESTATE, "%s: its shape has no count of elements", p->name);
        if (p->trainable && (p->group < 0 || (size_t)p->group >= s->n_group))
            return ckpt_fail(err, CKPT_ESTATE, "%s: is of group %d, there are %zu", p->name,
                             p->group, s->n_group);
    }
    for (size_t g = 0; g < s->n_group; g++) {
        size_t before = f->n_group;

        take_group(f, param, g, numel);
        if (f->n_group > before)
            param += f->group[before].n;
    }
    return 0;
}

/* -- the model file -------------------------------------------------------------------------- */

/* The parameter of a name; its index is its storage's. */
static size_t index_of(const struct ds_rank_state *s, const char *name)
{
    size_t i = 0;

    while (i < s->n_param && strcmp(s->param[i].name, name) != 0)
        i++;
    return i;
}

/* The model's state_dict, in which tied names share a storage. */
static int put_module(struct ds_flat_out *f, struct value *root, struct ckpt_err *err)
{
    const struct ds_rank_state *s = f->s;
    struct ckpt_arena *a = &f->model.arena;
    struct value *d = value_dict(a, true);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n_param; i++)
        rc = value_set_str(a, d, s->param[i].name,
                           ds_file_tensor(&f->model, i, &s->param[i].shape));
    for (size_t i = 0; rc == 0 && i < s->n_alias; i++) {
        size_t kept = index_of(s, s->alias[i].kept);

        if (kept == s->n_param)
            return ckpt_fail(err, CKPT_ESTATE, "%s: is tied to %s, which is no parameter",
                             s->alias[i].name, s->alias[i].kept);
        rc = value_set_str(a, d, s->alias[i].name,
                           ds_file_tensor(&f->model, kept, &s->param[kept].shape));
    }
    return rc || value_set_str(a, root, "module", d) ? ckpt_nomem(err, (size_t)a->used) : 0;
}

/* One OrderedDict of name -> shape per group. */
static struct value *param_shapes(struct ds_flat_out *f)
{
    struct ckpt_arena *a = &f->model.arena;
    struct value *list = value_list(a);

    for (size_t k = 0; k < f->n_group; k++) {
        struct value *d = value_dict(a, true);

        for (size_t j = 0; j < f->group[k].n; j++) {
            const struct ds_param *p = &f->s->param[f->group[k].param[j]];

            if (value_set_str(a, d, p->name, value_size(a, &p->shape)))
                return NULL;
        }
        if (value_append(a, list, d))
            return NULL;
    }
    return list;
}

/* For each frozen parameter its shape or itself; in stage 1 DeepSpeed has them in `module` only. */
static struct value *frozen(struct ds_flat_out *f, bool tensors)
{
    struct ckpt_arena *a = &f->model.arena;
    struct value *d = value_dict(a, true);

    if (f->s->stage == 1)
        return value_none(a);
    for (size_t i = 0; i < f->s->n_param; i++) {
        const struct ds_param *p = &f->s->param[i];

        if (!p->trainable &&
            value_set_str(a, d, p->name, tensors ? ds_file_tensor(&f->model, i, &p->shape)
                                                 : value_size(a, &p->shape)))
            return NULL;
    }
    return d;
}

static int model_states(struct value **out, struct ds_flat_out *f, struct ckpt_err *err)
{
    const struct ds_rank_state *s = f->s;
    struct ckpt_arena *a = &f->model.arena;
    struct value *d = value_dict(a, false);
    int rc;

    for (size_t i = 0; i < s->n_param; i++) {
        int64_t numel = 0;

        ckpt_shape_numel(&numel, &s->param[i].shape);
        ds_file_storage(&f->model, s->model_dtype, numel, err);
    }
    if (f->model.rc)
        return f->model.rc;
    if ((rc = put_module(f, d, err)) != 0)
        return rc;
    rc = value_set_str(a, d, "buffer_names", value_list(a)) |
         value_set_str(a, d, "optimizer", value_none(a)) |
         value_set_str(a, d, "param_shapes", param_shapes(f)) |
         value_set_str(a, d, "frozen_param_shapes", frozen(f, false)) |
         value_set_str(a, d, "shared_params", ds_value_shared(a, s)) |
         value_set_str(a, d, "frozen_param_fragments", frozen(f, true));
    *out = d;
    return rc ? ckpt_nomem(err, (size_t)a->used) : ds_put_engine(a, d, s, err);
}

/* -- the optim file -------------------------------------------------------------------------- */

/* A group's array, as one flat tensor of all of its storage. */
static struct value *flat_tensor(struct ds_flat_out *f, size_t k, size_t which)
{
    size_t storage = k * S_COUNT + which;
    struct ckpt_shape shape = ckpt_shape_1d(f->optim.storage[storage].numel);

    return ds_file_tensor(&f->optim, storage, &shape);
}

/* torch's optimizer.state_dict(): one flat parameter per group. */
static struct value *adamw_state(struct ds_flat_out *f)
{
    const struct ckpt_shape scalar = {0};
    struct ckpt_arena *a = &f->optim.arena;
    struct value *state = value_dict(a, false), *d = value_dict(a, false);
    int64_t *first = ckpt_arena_alloc(a, f->n_group + 1, sizeof *first);
    int64_t *count = ckpt_arena_alloc(a, f->n_group + 1, sizeof *count);

    if (!first || !count)
        return NULL;
    for (size_t k = 0; k < f->n_group; k++) {
        struct value *one = value_dict(a, false);

        first[k] = (int64_t)k;
        count[k] = 1;
        if (value_set_str(a, one, "step",
                          ds_file_tensor(&f->optim, k * S_COUNT + S_STEP, &scalar)) ||
            (ds_keeps(f->s, &f->options[k], ADAMW_EXP_AVG) &&
             value_set_str(a, one, ds_moment_name(f->s, &f->options[k]),
                           flat_tensor(f, k, S_EXP_AVG))) ||
            (ds_keeps(f->s, &f->options[k], ADAMW_EXP_AVG_SQ) &&
             value_set_str(a, one, "exp_avg_sq", flat_tensor(f, k, S_EXP_AVG_SQ))) ||
            value_set(a, state, value_int(a, (int64_t)k), one))
            return NULL;
    }
    return value_set_str(a, d, "state", state) ||
                   value_set_str(a, d, "param_groups",
                                 hf_adamw_groups(a, f->options, f->n_group, first, count))
               ? NULL : d;
}

/* This rank's part of the true weights, without padding. */
static struct value *masters(struct ds_flat_out *f)
{
    struct value *list = value_list(&f->optim.arena);

    for (size_t k = 0; k < f->n_group; k++) {
        struct value *v = flat_tensor(f, k, S_MASTER);

        if (v)
            v->u.tensor->requires_grad = true;
        if (value_append(&f->optim.arena, list, v))
            return NULL;
    }
    return list;
}

/* Which elements of this rank's part belong to each name. */
static struct value *mappings(struct ds_flat_out *f)
{
    const struct ds_rank_state *s = f->s;
    struct ckpt_arena *a = &f->optim.arena;
    struct value *list = value_list(a);

    for (size_t k = 0; k < f->n_group; k++) {
        const struct ds_flat_group *g = &f->group[k];
        struct value *d = value_dict(a, true);
        int64_t offset = 0, numel = 0;

        for (size_t j = 0; j < g->n; j++, offset += numel) {
            const struct ds_param *p = &s->param[g->param[j]];
            struct ds_piece piece;

            ckpt_shape_numel(&numel, &p->shape);
            piece = ds12_piece(offset, numel, g->numel, s->rank, s->world_size, DS_ALIGN);
            if (piece.count > 0 &&
                value_set_str(a, d, p->name, ds_value_address(a, piece.count, piece.at)))
                return NULL;
        }
        if (value_append(a, list, d))
            return NULL;
    }
    return list;
}

enum per_group { PADDING, WORLD, FILLERS };

/* A list with a number per group, or with the fillers after its parameters: none. */
static struct value *per_group(struct ds_flat_out *f, enum per_group what)
{
    struct ckpt_arena *a = &f->optim.arena;
    struct value *list = value_list(a);

    for (size_t k = 0; k < f->n_group; k++) {
        const struct ds_flat_group *g = &f->group[k];
        struct value *v = what == FILLERS ? value_list(a)
                          : value_int(a, what == PADDING ? g->part - g->own : f->s->world_size);

        for (size_t j = 0; what == FILLERS && j < g->n; j++)
            if (value_append(a, v, value_int(a, 0)))
                return NULL;
        if (value_append(a, list, v))
            return NULL;
    }
    return list;
}

static int optim_states(struct value **out, struct ds_flat_out *f, struct ckpt_err *err)
{
    const struct ds_rank_state *s = f->s;
    struct ckpt_arena *a = &f->optim.arena;
    struct value *root = value_dict(a, false), *d = value_dict(a, false);
    json_t *clip = json_object_get(s->ds_config, "gradient_clipping");
    int rc;

    for (size_t i = 0; i < S_COUNT * f->n_group; i++) {
        const struct ds_flat_group *g = &f->group[i / S_COUNT];

        ds_file_storage(&f->optim, CKPT_F32,
                        i % S_COUNT == S_STEP     ? 1
                        : i % S_COUNT == S_MASTER ? g->own
                        : ds_keeps(s, &f->options[i / S_COUNT], array_of[i % S_COUNT]) ? g->part
                                                                                       : 0, err);
    }
    if (f->optim.rc)
        return f->optim.rc;
    rc = ds_put_scaler(a, d, s->stage, s->scaling) |
         value_set_str(a, d, "clip_grad", value_float(a, json_number_value(clip))) |
         value_set_str(a, d, "base_optimizer_state", adamw_state(f)) |
         value_set_str(a, d, "single_partition_of_fp32_groups", masters(f)) |
         value_set_str(a, d, "group_paddings", per_group(f, PADDING)) |
         value_set_str(a, d, "param_alignment_paddings", per_group(f, FILLERS)) |
         value_set_str(a, d, "partition_count", per_group(f, WORLD)) |
         value_set_str(a, d, "ds_version", value_str(a, DS_VERSION)) |
         value_set_str(a, d, "param_slice_mappings", mappings(f)) |
         value_set_str(a, root, "optimizer_state_dict", d) |
         value_set_str(a, root, "ds_config", value_of_json(a, s->ds_config)) |
         value_set_str(a, root, "ds_version", value_str(a, DS_VERSION));
    *out = root;
    return rc ? ckpt_nomem(err, (size_t)a->used) : 0;
}

/* -- files ----------------------------------------------------------------------------------- */

static int begin_optim(struct ds_flat_out *f, struct ckpt_outdir *dir, const char *tag,
                       struct ckpt_err *err)
{
    float step = (float)f->s->optimizer_step;
    char path[512];
    struct value *root;
    int rc = optim_states(&root, f, err);

    /* The prefix means that bf16 is enabled; DeepSpeed then looks for that name first. */
    snprintf(path, sizeof path, "%s/%szero_pp_rank_%d_mp_rank_00_optim_states.pt", tag,
             f->s->model_dtype == CKPT_BF16 ? "bf16_" : "", f->s->rank);
    if (rc == 0)
        rc = ds_file_begin(&f->optim, dir, path, root, err);
    for (size_t k = 0; rc == 0 && k < f->n_group; k++) {
        const struct ds_flat_group *g = &f->group[k];

        rc = ds_file_put(&f->optim, k * S_COUNT + S_STEP, 0, 1, &step, err);
        for (size_t of = S_EXP_AVG; rc == 0 && of <= S_EXP_AVG_SQ; of++)
            if (ds_keeps(f->s, &f->options[k], array_of[of]))
                rc = ds_file_zeros(&f->optim, k * S_COUNT + of, g->own, g->part - g->own, err);
    }
    return rc;
}

static int begin_model(struct ds_flat_out *f, struct ckpt_outdir *dir, const char *tag,
                       struct ckpt_err *err)
{
    char path[512];
    struct value *root;
    int rc = model_states(&root, f, err);

    snprintf(path, sizeof path, "%s/mp_rank_00_model_states.pt", tag);
    return rc ? rc : ds_file_begin(&f->model, dir, path, root, err);
}

int ds_flat_out_begin(struct ds_flat_out **out, struct ckpt_outdir *dir, const char *tag,
                      const struct ds_rank_state *state, bool module, struct ckpt_err *err)
{
    struct ds_flat_out *f = ckpt_alloc(1, sizeof *f);
    int rc;

    *out = NULL;
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    f->s = state;
    f->has_model = module;
    rc = lay_out(f, err);
    if (rc == 0)
        rc = begin_optim(f, dir, tag, err);
    if (rc == 0 && module)
        rc = begin_model(f, dir, tag, err);
    if (rc)
        ds_flat_out_close(f);
    else
        *out = f;
    return rc;
}

const struct ds_flat_group *ds_flat_out_groups(const struct ds_flat_out *f, size_t *n)
{
    *n = f->n_group;
    return f->group;
}

int ds_flat_out_put(struct ds_flat_out *f, size_t group, enum adamw_array of, int64_t at,
                    int64_t n, const float *src, struct ckpt_err *err)
{
    static const size_t storage[ADAMW_ARRAYS] = {
        [ADAMW_MASTER] = S_MASTER, [ADAMW_EXP_AVG] = S_EXP_AVG, [ADAMW_EXP_AVG_SQ] = S_EXP_AVG_SQ};

    return ds_file_put(&f->optim, group * S_COUNT + storage[of], at, n, src, err);
}

int ds_flat_out_put_weight(struct ds_flat_out *f, size_t param, int64_t start, int64_t n,
                           const float *src, struct ckpt_err *err)
{
    return f->s->model_dtype == CKPT_F32
               ? ds_file_put(&f->model, param, start, n, src, err)
               : ds_file_put_rounded(&f->model, param, start, n, src, CKPT_F32, err);
}

int ds_flat_out_commit(struct ds_flat_out *f, struct ckpt_err *err)
{
    int rc = ds_file_commit(&f->optim, err);

    return rc || !f->has_model ? rc : ds_file_commit(&f->model, err);
}

void ds_flat_out_close(struct ds_flat_out *f)
{
    if (!f)
        return;
    ds_file_close(&f->model);
    ds_file_close(&f->optim);
    ckpt_arena_release(&f->arena);
    ckpt_free(f);
}
