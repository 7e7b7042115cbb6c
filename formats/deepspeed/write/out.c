/*
 * write/out - see write/out.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_common_checkpoint_state, _save_checkpoint, _save_zero_checkpoint) and runtime/zero/stage3.py
 * (state_dict, _create_fp16_sub_groups).
 *
 * Storages of the optim file: four a sub-group (enum below).  Of the model file: one empty one
 * for all placeholders, then one for each frozen parameter.
 */
#include "formats/deepspeed/write/out.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/write/values.h"
#include "formats/torch/out.h"
#include "libckpt/convert.h"
#include "libckpt/mem.h"

enum { S_MASTER, S_STEP, S_EXP_AVG, S_EXP_AVG_SQ, S_COUNT };

/* How the parameters lie in the files. */
struct layout {
    const struct ds_rank_state *s;
    int64_t *part;              /* [n_param] elements of this rank's part */
    size_t  *sub;               /* [n_param] sub-group, or NONE for a frozen parameter */
    size_t   n_sub;
    int64_t *sub_numel;         /* [n_sub] */
    int64_t *first, *count;     /* [n_group] sub-groups of the groups that have some */
    struct adamw_group *group;  /* [n_group] of the same */
    size_t   n_group;
    size_t   n_frozen;
    float   *piece;             /* [2][ADAMW_PIECE] what a reader gives; what was converted */
};

#define NONE SIZE_MAX

/* Cut group g into sub-groups: a cut follows the parameter with which the size is reached. */
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
        .first = ckpt_arena_alloc(a, s->n_group, sizeof *l->first),
        .count = ckpt_arena_alloc(a, s->n_group, sizeof *l->count),
        .group = ckpt_arena_alloc(a, s->n_group, sizeof *l->group),
        .piece = ckpt_alloc_buffer(2 * (size_t)ADAMW_PIECE * sizeof *l->piece)};
    if (!l->piece)
        return ckpt_nomem(err, 2 * (size_t)ADAMW_PIECE * sizeof *l->piece);
    if (!l->part || !l->sub || !l->sub_numel || !l->first || !l->count || !l->group)
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
        l->n_frozen += !p->trainable;
    }
    for (size_t g = 0; g < s->n_group; g++)
        cut_group(l, g);
    return 0;
}

/* -- values ---------------------------------------------------------------------------------- */

static struct value *flat_tensor(struct ckpt_arena *a, enum ckpt_dtype dtype, size_t storage,
                                 int64_t numel)
{
    struct ckpt_shape shape = ckpt_shape_1d(numel);

    return value_tensor_whole(a, dtype, &shape, storage);
}

static struct value *scalar_tensor(struct ckpt_arena *a, size_t storage)
{
    struct value_tensor t = {.dtype = CKPT_F32, .storage = storage,
                             .shape = ckpt_shape_of(0, NULL)};

    return value_tensor_new(a, &t);
}

/* One OrderedDict of name -> shape per sub-group. */
static struct value *param_shapes(struct ckpt_arena *a, const struct layout *l)
{
    struct value *list = value_list(a);

    for (size_t k = 0; k < l->n_sub; k++)
        if (value_append(a, list, value_dict(a, true)))
            return NULL;
    /* In a sub-group parameters keep their order, so one pass fills all. */
    for (size_t i = 0; list && i < l->s->n_param; i++)
        if (l->sub[i] != NONE &&
            value_set_str(a, list->u.seq.item[l->sub[i]], l->s->param[i].name,
                          ds_value_size(a, &l->s->param[i].shape)))
            return NULL;
    return list;
}

/* Stage 3 keeps only placeholders of shape [0] in `module`, tied and frozen names included. */
static struct value *placeholders(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *d = value_dict(a, true);

    for (size_t i = 0; i < s->n_param + s->n_alias; i++)
        if (value_set_str(a, d, i < s->n_param ? s->param[i].name
                                               : s->alias[i - s->n_param].name,
                          flat_tensor(a, s->model_dtype, 0, 0)))
            return NULL;
    return d;
}

static struct value *frozen(struct ckpt_arena *a, const struct layout *l, bool fragments)
{
    struct value *d = value_dict(a, true);
    size_t storage = 1;

    for (size_t i = 0; i < l->s->n_param; i++) {
        const struct ds_param *p = &l->s->param[i];

        if (!p->trainable &&
            value_set_str(a, d, p->name, fragments ? flat_tensor(a, l->s->model_dtype, storage++,
                                                                 l->part[i])
                                                   : ds_value_size(a, &p->shape)))
            return NULL;
    }
    return d;
}

/* DeepSpeed fills the table on global rank 0 alone. */
static struct value *shared_params(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *d = value_dict(a, false);

    for (size_t i = 0; s->rank == 0 && i < s->n_alias; i++)
        if (value_set_str(a, d, s->alias[i].name, value_str(a, s->alias[i].kept)))
            return NULL;
    return d;
}

static struct value *parallel_dimensions(struct ckpt_arena *a)
{
    struct value *d = value_dict(a, false);

    return value_set_str(a, d, "pp_degree", value_int(a, 1)) ||
                   value_set_str(a, d, "tp_degree", value_int(a, 1))
               ? NULL : d;
}

/* The caller's keys at top level; DeepSpeed lets them shadow its own, which nobody wants. */
static int merge_client(struct ckpt_arena *a, struct value *root, const struct value *client,
                        struct ckpt_err *err)
{
    for (size_t i = 0; client && i < client->u.dict.n; i++) {
        const char *key = value_as_str(client->u.dict.key[i]);

        if (!key || value_get(root, key))
            return ckpt_fail(err, CKPT_ESTATE, "client state: %s is a key of DeepSpeed's own",
                             key ? key : "a key that is no text");
        if (value_set_str(a, root, key, client->u.dict.val[i]))
            return ckpt_nomem(err, (size_t)a->used);
    }
    return 0;
}

/* The model file's dictionary. */
static int model_states(struct value **out, struct ckpt_arena *a, const struct layout *l,
                        struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    struct value *d = value_dict(a, false);
    int rc = value_set_str(a, d, "module", placeholders(a, s)) |
             value_set_str(a, d, "buffer_names", value_list(a)) |
             value_set_str(a, d, "optimizer", value_none(a)) |
             value_set_str(a, d, "param_shapes", param_shapes(a, l)) |
             value_set_str(a, d, "frozen_param_shapes", frozen(a, l, false)) |
             value_set_str(a, d, "shared_params", shared_params(a, s)) |
             value_set_str(a, d, "frozen_param_fragments", frozen(a, l, true)) |
             value_set_str(a, d, "lr_scheduler", value_none(a)) |
             value_set_str(a, d, "data_sampler", value_none(a)) |
             value_set_str(a, d, "random_ltd", value_none(a)) |
             value_set_str(a, d, "skipped_steps", value_int(a, s->skipped_steps)) |
             value_set_str(a, d, "global_steps", value_int(a, s->global_steps)) |
             value_set_str(a, d, "global_samples", value_int(a, s->global_samples)) |
             value_set_str(a, d, "dp_world_size", value_int(a, s->world_size)) |
             value_set_str(a, d, "mp_world_size", value_int(a, 1)) |
             value_set_str(a, d, "checkpoint_parallel_dimensions", parallel_dimensions(a)) |
             value_set_str(a, d, "ds_config", value_of_json(a, s->ds_config)) |
             value_set_str(a, d, "ds_version", value_str(a, DS_VERSION));

    *out = d;
    return rc ? ckpt_nomem(err, (size_t)a->used) : merge_client(a, d, s->client_state, err);
}

/* torch's nested optimizer.state_dict(): one flat parameter per sub-group. */
static struct value *adamw_state(struct ckpt_arena *a, const struct layout *l)
{
    struct value *state = value_dict(a, false), *d = value_dict(a, false);

    for (size_t k = 0; k < l->n_sub; k++) {
        struct value *one = value_dict(a, false);
        int64_t n = l->sub_numel[k];

        if (value_set_str(a, one, "step", scalar_tensor(a, k * S_COUNT + S_STEP)) ||
            value_set_str(a, one, "exp_avg",
                          flat_tensor(a, CKPT_F32, k * S_COUNT + S_EXP_AVG, n)) ||
            value_set_str(a, one, "exp_avg_sq",
                          flat_tensor(a, CKPT_F32, k * S_COUNT + S_EXP_AVG_SQ, n)) ||
            value_set(a, state, value_int(a, (int64_t)k), one))
            return NULL;
    }
    if (value_set_str(a, d, "state", state) ||
        value_set_str(a, d, "param_groups",
                      hf_adamw_groups(a, l->group, l->n_group, l->first, l->count)))
        return NULL;
    return d;
}

static struct value *optim_states(struct ckpt_arena *a, const struct layout *l)
{
    const struct ds_rank_state *s = l->s;
    struct value *root = value_dict(a, false), *d = value_dict(a, false), *flat = value_list(a);
    int rc = 0;

    for (size_t k = 0; k < l->n_sub; k++)
        rc |= value_append(a, flat,
                           flat_tensor(a, CKPT_F32, k * S_COUNT + S_MASTER, l->sub_numel[k]));
    rc |= value_set_str(a, d, "zero_stage", ds_value_stage(a, 3)) |
          value_set_str(a, d, "loss_scaler", ds_value_scaler(a, false, NULL, NULL, NULL)) |
          value_set_str(a, d, "dynamic_loss_scale", value_bool(a, false)) |
          value_set_str(a, d, "overflow", value_bool(a, false)) |
          value_set_str(a, d, "partition_count", value_int(a, s->world_size)) |
          value_set_str(a, d, "optimizer_state_dict", adamw_state(a, l)) |
          value_set_str(a, d, "fp32_flat_groups", flat) |
          value_set_str(a, root, "optimizer_state_dict", d) |
          value_set_str(a, root, "ds_config", value_of_json(a, s->ds_config)) |
          value_set_str(a, root, "ds_version", value_str(a, DS_VERSION));
    return rc ? NULL : root;
}

/* -- files ----------------------------------------------------------------------------------- */

/* Up to a piece's elements of an array, from `at` on; n: how many.  NULL when the reader fails. */
static const float *elements(const struct layout *l, size_t i, enum adamw_array of, int64_t at,
                             int64_t *n, struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    const float *const *array[ADAMW_ARRAYS] = {[ADAMW_MASTER] = s->master,
                                               [ADAMW_EXP_AVG] = s->exp_avg,
                                               [ADAMW_EXP_AVG_SQ] = s->exp_avg_sq};

    *n = l->part[i] - at < ADAMW_PIECE ? l->part[i] - at : ADAMW_PIECE;
    if (!s->reader.read)
        return array[of][i] + at;
    return s->reader.read(s->reader.ctx, i, of, at, *n, l->piece, err) ? NULL : l->piece;
}

/* Frozen parts go out in the model's dtype, where they were put together. */
static int put_frozen(struct torch_writer *w, const struct layout *l, struct ckpt_err *err)
{
    const struct ds_rank_state *s = l->s;
    size_t storage = 0;
    int64_t n;
    int rc;

    for (size_t i = 0; i < s->n_param; i++) {
        if (s->param[i].trainable)
            continue;
        storage++;
        for (int64_t at = 0; at < l->part[i]; at += n) {
            const float *from = elements(l, i, ADAMW_MASTER, at, &n, err);

            if (!from)
                return ckpt_err_code(err);
            ckpt_convert(l->piece + ADAMW_PIECE, s->model_dtype, from, CKPT_F32, (size_t)n);
            if ((rc = torch_writer_put(w, storage, at, n, l->piece + ADAMW_PIECE, err)) != 0)
                return rc;
        }
    }
    return 0;
}

/* One array of every trainable parameter, part after part in its sub-group's storage. */
static int put_parts(struct torch_writer *w, const struct layout *l, int which,
                     enum adamw_array of, struct ckpt_err *err)
{
    size_t k = NONE;
    int64_t base = 0, n;

    for (size_t g = 0; g < l->s->n_group; g++)
        for (size_t i = 0; i < l->s->n_param; i++) {
            if (l->sub[i] == NONE || l->s->param[i].group != (int)g)
                continue;
            base = l->sub[i] == k ? base : 0;
            k = l->sub[i];
            for (int64_t at = 0; at < l->part[i]; at += n) {
                const float *from = elements(l, i, of, at, &n, err);

                if (!from || torch_writer_put(w, k * S_COUNT + (size_t)which, base + at, n, from,
                                              err))
                    return ckpt_err_code(err);
            }
            base += l->part[i];
        }
    return 0;
}

static int put_optim(struct torch_writer *w, const struct layout *l, struct ckpt_err *err)
{
    float step = (float)l->s->optimizer_step;
    int rc;

    for (size_t k = 0; k < l->n_sub; k++)
        if ((rc = torch_writer_put(w, k * S_COUNT + S_STEP, 0, 1, &step, err)) != 0)
            return rc;
    if ((rc = put_parts(w, l, S_MASTER, ADAMW_MASTER, err)) != 0 ||
        (rc = put_parts(w, l, S_EXP_AVG, ADAMW_EXP_AVG, err)) != 0)
        return rc;
    return put_parts(w, l, S_EXP_AVG_SQ, ADAMW_EXP_AVG_SQ, err);
}

typedef int put_fn(struct torch_writer *w, const struct layout *l, struct ckpt_err *err);

static int write_file(struct ckpt_outdir *dir, const char *path, const struct value *root,
                      const struct torch_storage *storage, size_t n, put_fn *put,
                      const struct layout *l, struct ckpt_err *err)
{
    struct torch_writer *w = NULL;
    struct ckpt_out *out;
    int rc;

    if ((rc = ckpt_outdir_file(&out, dir, path, err)) != 0 ||
        (rc = torch_writer_new(&w, out, "archive", root, storage, n, NULL, err)) != 0)
        return rc;
    rc = put(w, l, err);
    if (rc == 0)
        return torch_writer_commit(w, err);
    torch_writer_abort(w);
    return rc;
}

static int write_model(struct ckpt_outdir *dir, const char *tag, struct ckpt_arena *a,
                       const struct layout *l, struct ckpt_err *err)
{
    struct torch_storage *storage = ckpt_arena_alloc(a, l->n_frozen + 1, sizeof *storage);
    struct value *root;
    char path[512];
    size_t n = 1;
    int rc;

    if (!storage)
        return ckpt_nomem(err, (l->n_frozen + 1) * sizeof *storage);
    storage[0] = (struct torch_storage){.dtype = l->s->model_dtype, .numel = 0};
    for (size_t i = 0; i < l->s->n_param; i++)
        if (!l->s->param[i].trainable)
            storage[n++] = (struct torch_storage){.dtype = l->s->model_dtype,
                                                  .numel = l->part[i]};
    if ((rc = model_states(&root, a, l, err)) != 0)
        return rc;
    snprintf(path, sizeof path, "%s/zero_pp_rank_%d_mp_rank_00_model_states.pt", tag, l->s->rank);
    return write_file(dir, path, root, storage, n, put_frozen, l, err);
}

static int write_optim(struct ckpt_outdir *dir, const char *tag, struct ckpt_arena *a,
                       const struct layout *l, struct ckpt_err *err)
{
    struct torch_storage *storage = ckpt_arena_alloc(a, S_COUNT * l->n_sub, sizeof *storage);
    struct value *root = optim_states(a, l);
    char path[512];

    if (!storage || !root)
        return ckpt_nomem(err, (size_t)a->used);
    for (size_t i = 0; i < S_COUNT * l->n_sub; i++)
        storage[i] = (struct torch_storage){
            .dtype = CKPT_F32, .numel = i % S_COUNT == S_STEP ? 1 : l->sub_numel[i / S_COUNT]};
    /* The prefix says that bf16 is enabled; DeepSpeed looks for it under that name alone. */
    snprintf(path, sizeof path, "%s/%szero_pp_rank_%d_mp_rank_00_optim_states.pt", tag,
             l->s->model_dtype == CKPT_BF16 ? "bf16_" : "", l->s->rank);
    return write_file(dir, path, root, storage, S_COUNT * l->n_sub, put_optim, l, err);
}

int ds_write_rank(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *state,
                  struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct layout l;
    int rc = lay_out(&l, &a, state, err);

    if (rc == 0)
        rc = write_model(dir, tag, &a, &l, err);
    if (rc == 0)
        rc = write_optim(dir, tag, &a, &l, err);
    ckpt_free(l.piece);
    ckpt_arena_release(&a);
    return rc;
}

int ds_write_latest(struct ckpt_outdir *dir, const char *tag, struct ckpt_err *err)
{
    return ckpt_outdir_put(dir, "latest", tag, strlen(tag), err);
}
