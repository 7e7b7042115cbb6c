/*
 * deepspeed_out - see deepspeed_out.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_save_checkpoint, _save_zero_checkpoint) and runtime/zero/stage3.py (state_dict).
 */
#include "formats/weights/deepspeed_out.h"

#include <stdio.h>
#include <string.h>

#include "formats/weights/deepspeed_layout.h"
#include "formats/weights/torch_out.h"

#define DS_VERSION "0.19.8"     /* whose layout this is */

static int name_of(char *path, size_t size, const char *tag, int rank, const char *what)
{
    return snprintf(path, size, "%s/zero_pp_rank_%d_mp_rank_00_%s_states.pt", tag, rank, what);
}

/* torch.Size(dims) */
static struct value *torch_size(struct ckpt_arena *a, const struct ckpt_shape *shape)
{
    struct value *dims = value_tuple(a), *args = value_tuple(a);

    for (int i = 0; i < shape->rank; i++)
        if (value_append(a, dims, value_int(a, shape->dim[i])))
            return NULL;
    return value_append(a, args, dims) ? NULL
                                       : value_object(a, "torch", "Size", args, NULL, false);
}

/* An enum member: Class(value). */
static struct value *stage_enum(struct ckpt_arena *a, int64_t stage)
{
    struct value *args = value_tuple(a);

    return value_append(a, args, value_int(a, stage))
               ? NULL : value_object(a, "deepspeed.runtime.zero.config", "ZeroStageEnum", args,
                                     NULL, false);
}

/* A static scaler of 1: full precision has no other. */
static struct value *loss_scaler(struct ckpt_arena *a)
{
    struct value *state = value_dict(a, false);

    if (value_set_str(a, state, "cur_scale", value_float(a, 1.0)) ||
        value_set_str(a, state, "dynamic", value_bool(a, false)))
        return NULL;
    return value_object(a, "deepspeed.runtime.fp16.loss_scaler", "LossScaler", value_tuple(a),
                        state, true);
}

/* One OrderedDict of name -> shape per group. */
static struct value *param_shapes(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *list = value_list(a);

    for (size_t g = 0; g < s->n_group; g++) {
        struct value *d = value_dict(a, true);

        for (size_t i = 0; i < s->n_param; i++)
            if (s->param[i].trainable && s->param[i].group == (int)g &&
                value_set_str(a, d, s->param[i].name, torch_size(a, &s->param[i].shape)))
                return NULL;
        if (value_append(a, list, d))
            return NULL;
    }
    return list;
}

/* Stage 3 keeps only placeholders of shape [0] in `module`, tied names included. */
static struct value *placeholders(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value_tensor empty = {.dtype = s->model_dtype, .shape = ckpt_shape_1d(0),
                                 .stride = {1}};
    struct value *d = value_dict(a, true);

    for (size_t i = 0; i < s->n_param + s->n_alias; i++)
        if (value_set_str(a, d, i < s->n_param ? s->param[i].name
                                               : s->alias[i - s->n_param].name,
                          value_tensor_new(a, &empty)))
            return NULL;
    return d;
}

static struct value *shared_params(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *d = value_dict(a, false);

    for (size_t i = 0; s->rank == 0 && i < s->n_alias; i++)
        if (value_set_str(a, d, s->alias[i].name, value_str(a, s->alias[i].kept)))
            return NULL;
    return d;
}

/* The model file's dictionary. */
static struct value *model_states(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *d = value_dict(a, false);
    int rc = value_set_str(a, d, "module", placeholders(a, s)) |
             value_set_str(a, d, "buffer_names", value_list(a)) |
             value_set_str(a, d, "optimizer", value_none(a)) |
             value_set_str(a, d, "param_shapes", param_shapes(a, s)) |
             value_set_str(a, d, "frozen_param_shapes", value_none(a)) |
             value_set_str(a, d, "frozen_param_fragments", value_none(a)) |
             value_set_str(a, d, "shared_params", shared_params(a, s)) |
             value_set_str(a, d, "lr_scheduler", value_none(a)) |
             value_set_str(a, d, "data_sampler", value_none(a)) |
             value_set_str(a, d, "random_ltd", value_none(a)) |
             value_set_str(a, d, "sparse_tensor_module_names", value_list(a)) |
             value_set_str(a, d, "skipped_steps", value_int(a, s->skipped_steps)) |
             value_set_str(a, d, "global_steps", value_int(a, s->global_steps)) |
             value_set_str(a, d, "global_samples", value_int(a, s->global_samples)) |
             value_set_str(a, d, "dp_world_size", value_int(a, s->world_size)) |
             value_set_str(a, d, "mp_world_size", value_int(a, 1)) |
             value_set_str(a, d, "ds_config", value_of_json(a, s->ds_config)) |
             value_set_str(a, d, "ds_version", value_str(a, DS_VERSION));

    return rc ? NULL : d;
}

static int write_model(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *s,
                       struct ckpt_err *err)
{
    struct torch_storage empty = {.dtype = s->model_dtype, .numel = 0};
    const void *nothing[1] = {NULL};
    struct ckpt_arena a = {0};
    struct value *root = model_states(&a, s);
    struct ckpt_out *out;
    char path[512];
    int rc = root ? 0 : ckpt_nomem(err, (size_t)a.used);

    name_of(path, sizeof path, tag, s->rank, "model");
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, path, err);
    if (rc == 0)
        rc = torch_write(out, "archive", root, &empty, nothing, 1, err);
    ckpt_arena_release(&a);
    return rc;
}

/* Elements of a group's flat tensor on each rank. */
static int64_t flat_numel(const struct ds_rank_state *s, size_t group)
{
    int64_t n = 0, numel;

    for (size_t i = 0; i < s->n_param; i++)
        if (s->param[i].trainable && s->param[i].group == (int)group &&
            ckpt_shape_numel(&numel, &s->param[i].shape))
            n += ds3_part(numel, s->world_size);
    return n;
}

static struct value *flat_tensor(struct ckpt_arena *a, size_t storage, int64_t numel, int rank)
{
    struct value_tensor t = {.dtype = CKPT_F32, .storage = storage, .stride = {1}};

    t.shape = rank ? ckpt_shape_1d(numel) : ckpt_shape_of(0, NULL);
    return value_tensor_new(a, &t);
}

/* Storages of a group: master, step, exp_avg, exp_avg_sq. */
enum { S_MASTER, S_STEP, S_EXP_AVG, S_EXP_AVG_SQ, S_COUNT };

/* torch's nested optimizer.state_dict(): one flat parameter per group. */
static struct value *adamw_state(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *state = value_dict(a, false), *d = value_dict(a, false);
    int64_t *first = ckpt_arena_alloc(a, 2 * s->n_group, sizeof *first);
    int rc = first ? 0 : 1;

    for (size_t g = 0; !rc && g < s->n_group; g++) {
        struct value *one = value_dict(a, false);
        int64_t n = flat_numel(s, g);

        rc = value_set_str(a, one, "step", flat_tensor(a, g * S_COUNT + S_STEP, 1, 0)) |
             value_set_str(a, one, "exp_avg", flat_tensor(a, g * S_COUNT + S_EXP_AVG, n, 1)) |
             value_set_str(a, one, "exp_avg_sq",
                           flat_tensor(a, g * S_COUNT + S_EXP_AVG_SQ, n, 1)) |
             value_set(a, state, value_int(a, (int64_t)g), one);
        first[g] = (int64_t)g;
        first[s->n_group + g] = 1;
    }
    if (rc || value_set_str(a, d, "state", state) ||
        value_set_str(a, d, "param_groups",
                      adamw_param_groups(a, s->group, s->n_group, first, first + s->n_group)))
        return NULL;
    return d;
}

static struct value *optim_states(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *root = value_dict(a, false), *d = value_dict(a, false), *flat = value_list(a);
    int rc = 0;

    for (size_t g = 0; g < s->n_group; g++)
        rc |= value_append(a, flat, flat_tensor(a, g * S_COUNT + S_MASTER, flat_numel(s, g), 1));
    rc |= value_set_str(a, d, "zero_stage", stage_enum(a, 3)) |
          value_set_str(a, d, "loss_scaler", loss_scaler(a)) |
          value_set_str(a, d, "dynamic_loss_scale", value_bool(a, false)) |
          value_set_str(a, d, "overflow", value_bool(a, false)) |
          value_set_str(a, d, "partition_count", value_int(a, s->world_size)) |
          value_set_str(a, d, "optimizer_state_dict", adamw_state(a, s)) |
          value_set_str(a, d, "fp32_flat_groups", flat) |
          value_set_str(a, root, "optimizer_state_dict", d) |
          value_set_str(a, root, "ds_config", value_of_json(a, s->ds_config)) |
          value_set_str(a, root, "ds_version", value_str(a, DS_VERSION));
    return rc ? NULL : root;
}

/* The parts of a group's parameters, one behind the other, into storage which of group g. */
static int put_group(struct torch_writer *w, const struct ds_rank_state *s, size_t g, int which,
                     const float *const *part, struct ckpt_err *err)
{
    int64_t at = 0, numel;

    for (size_t i = 0; i < s->n_param; i++) {
        int64_t n;

        if (!s->param[i].trainable || s->param[i].group != (int)g ||
            !ckpt_shape_numel(&numel, &s->param[i].shape))
            continue;
        n = ds3_part(numel, s->world_size);
        if (torch_writer_put(w, g * S_COUNT + (size_t)which, at, n, part[i], err))
            return err->code;
        at += n;
    }
    return 0;
}

static int put_all(struct torch_writer *w, const struct ds_rank_state *s, struct ckpt_err *err)
{
    float step = (float)s->optimizer_step;

    for (size_t g = 0; g < s->n_group; g++)
        if (torch_writer_put(w, g * S_COUNT + S_STEP, 0, 1, &step, err) ||
            put_group(w, s, g, S_MASTER, s->master, err) ||
            put_group(w, s, g, S_EXP_AVG, s->exp_avg, err) ||
            put_group(w, s, g, S_EXP_AVG_SQ, s->exp_avg_sq, err))
            return err->code;
    return 0;
}

static int write_optim(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *s,
                       struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct torch_storage *storage = ckpt_arena_alloc(&a, S_COUNT * s->n_group, sizeof *storage);
    struct value *root = optim_states(&a, s);
    struct torch_writer *w = NULL;
    struct ckpt_out *out;
    char path[512];
    int rc = storage && root ? 0 : ckpt_nomem(err, (size_t)a.used);

    for (size_t g = 0; rc == 0 && g < s->n_group; g++)
        for (int k = 0; k < S_COUNT; k++)
            storage[g * S_COUNT + (size_t)k] = (struct torch_storage){
                .dtype = CKPT_F32, .numel = k == S_STEP ? 1 : flat_numel(s, g)};
    name_of(path, sizeof path, tag, s->rank, "optim");
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, path, err);
    if (rc == 0)
        rc = torch_writer_new(&w, out, "archive", root, storage, S_COUNT * s->n_group, err);
    if (rc == 0) {
        rc = put_all(w, s, err);
        if (rc == 0)
            rc = torch_writer_commit(w, err);
        else
            torch_writer_abort(w);
    }
    ckpt_arena_release(&a);
    return rc;
}

int ds_write_rank(struct ckpt_outdir *dir, const char *tag, const struct ds_rank_state *state,
                  struct ckpt_err *err)
{
    return write_model(dir, tag, state, err) ? err->code : write_optim(dir, tag, state, err);
}

int ds_write_latest(struct ckpt_outdir *dir, const char *tag, struct ckpt_err *err)
{
    return ckpt_outdir_put(dir, "latest", tag, strlen(tag), err);
}
