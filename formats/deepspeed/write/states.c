/*
 * write/states - see write/states.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_common_checkpoint_state), zero/stage_1_and_2.py, zero/stage3.py, bf16_optimizer.py.
 */
#include "formats/deepspeed/write/states.h"

#include <string.h>

#include "formats/deepspeed/write/values.h"

/* A file being built, and its rank. */
struct maker {
    struct ds_file    *file;
    struct ckpt_arena *a;               /* the file's */
    struct ds_cut     *cut;
    int                rank;
    size_t             from;            /* the saved rank whose files are copied */
    struct ckpt_err   *err;
};

static void replace(struct value *dict, const char *key, struct value *v)
{
    for (size_t i = 0; i < dict->u.dict.n; i++) {
        const char *k = value_as_str(dict->u.dict.key[i]);

        if (k && strcmp(k, key) == 0)
            dict->u.dict.val[i] = v;
    }
}

static struct value *take_model(struct maker *m, const struct value *v)
{
    return ds_file_take(m->file, m->cut->run.f->rank[m->from].model, v, m->err);
}

/* Copied from rank 0's optimizer: hyper-parameters and scalers are the same on all ranks. */
static struct value *take_optim(struct maker *m, const struct value *v)
{
    return ds_file_take(m->file, m->cut->run.options_file, v, m->err);
}

/* The configuration (possibly the path of a file), with the new stage. */
static struct value *config(struct maker *m)
{
    const struct value *saved = value_get(m->cut->run.f->rank[0].model_root, "ds_config");
    struct value *v = saved ? ds_file_take(m->file, m->cut->run.f->rank[0].model, saved, m->err)
                            : value_none(m->a);

    if (value_is(v, VALUE_DICT) && value_is(value_get(v, "zero_optimization"), VALUE_DICT))
        replace(value_get(v, "zero_optimization"), "stage", value_int(m->a, m->cut->run.stage));
    return v;
}

/* -- the model file -------------------------------------------------------------------------- */

static bool is_parameter(const struct ds_target *t)
{
    return t->kind == DS_TRAINED || t->kind == DS_FROZEN;
}

/* These storages come first and in the list's order, so that all ranks' files agree. */
static int model_storages(struct maker *m)
{
    struct ds_cut *cut = m->cut;

    for (size_t i = 0; i < cut->list->n; i++) {
        const struct ckpt_tensor *t = &cut->list->item[i];
        struct ds_target *to = &cut->target[i];
        bool parts = cut->run.stage == 3 && to->kind == DS_FROZEN;

        if (to->kind == DS_MOMENT || to->kind == DS_ALIAS ||
            (cut->run.stage == 3 && to->kind == DS_TRAINED))
            continue;
        to->storage = ds_file_storage(m->file,
                                      to->kind == DS_TRAINED ? to->model_dtype : t->dtype,
                                      parts ? ds3_part(t->numel, cut->run.world) : t->numel,
                                      m->err);
    }
    return m->file->rc;
}

/* An empty tensor, stage 3's placeholder for a parameter in `module`. */
static struct value *placeholder(struct maker *m, enum ckpt_dtype dtype)
{
    struct ckpt_shape none = ckpt_shape_1d(0);
    size_t storage = 0;

    while (storage < m->file->n && (m->file->storage[storage].numel != 0 ||
                                    m->file->storage[storage].dtype != dtype))
        storage++;
    if (storage == m->file->n)
        storage = ds_file_storage(m->file, dtype, 0, m->err);
    return storage == SIZE_MAX ? NULL : ds_file_tensor(m->file, storage, &none);
}

/* The list's index of `name`, or of the tensor it is tied to; SIZE_MAX. */
static size_t written_as(const struct ds_cut *cut, const char *name)
{
    size_t i = ckpt_tensors_find(cut->list, name), k;

    if (i != SIZE_MAX && cut->target[i].kind == DS_ALIAS)
        return cut->list->item[i].alias_of;
    if (i != SIZE_MAX)
        return i;
    k = ckpt_tensors_find(cut->saved, name);
    return k == SIZE_MAX
               ? SIZE_MAX : ckpt_tensors_find(cut->list,
                                              cut->saved->item[cut->saved->item[k].alias_of].name);
}

/* The value of a name in `module`. */
static struct value *module_entry(struct maker *m, const char *name, const struct value *saved)
{
    size_t i = name ? written_as(m->cut, name) : SIZE_MAX;

    if (i == SIZE_MAX)
        return take_model(m, saved);
    if (m->cut->run.stage == 3 && is_parameter(&m->cut->target[i]))
        return placeholder(m, m->cut->target[i].model_dtype);
    return ds_file_tensor(m->file, m->cut->target[i].storage, &m->cut->list->item[i].shape);
}

/* In the saved order, with the tied names. */
static struct value *module(struct maker *m)
{
    const struct value *saved = value_get(m->cut->run.f->rank[m->from].model_root, "module");
    struct value *d = value_dict(m->a, true);

    for (size_t i = 0; d && i < saved->u.dict.n; i++)
        if (value_set(m->a, d, saved->u.dict.key[i],
                      module_entry(m, value_as_str(saved->u.dict.key[i]), saved->u.dict.val[i])))
            return NULL;
    if (!d || !saved->u.dict.state)
        return d;
    d->u.dict.state = take_model(m, saved->u.dict.state);
    return d->u.dict.state ? d : NULL;
}

/* One OrderedDict of name -> shape per flat tensor. */
static struct value *param_shapes(struct maker *m)
{
    const struct ds_run *run = &m->cut->run;
    struct value *list = value_list(m->a);

    for (size_t k = 0; k < run->n_flat; k++) {
        struct value *d = value_dict(m->a, true);

        for (size_t i = run->flat[k].first; i < run->flat[k].first + run->flat[k].n; i++)
            if (value_set_str(m->a, d, run->param[i].name,
                              value_size(m->a, &run->param[i].shape)))
                return NULL;
        if (value_append(m->a, list, d))
            return NULL;
    }
    return list;
}

/* Stage 1 stores no frozen parameters separately; 2 has each complete, 3 has parts. */
static struct value *frozen(struct maker *m, bool fragments)
{
    const struct ds_cut *cut = m->cut;
    struct value *d = value_dict(m->a, true);

    if (cut->run.stage == 1)
        return value_none(m->a);
    for (size_t i = 0; d && i < cut->list->n; i++) {
        const struct ckpt_tensor *t = &cut->list->item[i];
        struct ckpt_shape shape = t->shape;

        if (cut->target[i].kind != DS_FROZEN)
            continue;
        if (fragments && cut->run.stage == 3)
            shape = ckpt_shape_1d(ds3_part(t->numel, cut->run.world));
        if (value_set_str(m->a, d, t->name,
                          fragments ? ds_file_tensor(m->file, cut->target[i].storage, &shape)
                                    : value_size(m->a, &shape)))
            return NULL;
    }
    return d;
}

/* DeepSpeed fills the table only on global rank 0. */
static struct value *shared_params(struct maker *m)
{
    const struct value *v = value_get(m->cut->run.f->rank[0].model_root, "shared_params");
    const struct ckpt_tensors *saved = m->cut->saved;
    struct value *d = value_dict(m->a, false);

    if (m->rank == 0 && value_is(v, VALUE_DICT))
        return ds_file_take(m->file, m->cut->run.f->rank[0].model, v, m->err);
    /* Without ZeRO there is no table: tied names are those that share a tensor. */
    for (size_t i = 0; m->rank == 0 && i < saved->n; i++)
        if (saved->item[i].alias_of != i &&
            value_set_str(m->a, d, saved->item[i].name,
                          value_str(m->a, saved->item[saved->item[i].alias_of].name)))
            return NULL;
    return d;
}

int ds_model_states(struct value **root, struct ds_file *file, struct ds_cut *cut, int rank,
                    struct ckpt_err *err)
{
    const struct ds_files *f = cut->run.f;
    struct maker m = {.file = file, .a = &file->arena, .cut = cut, .rank = rank, .err = err,
                      .from = f->sharded && (size_t)rank < f->n ? (size_t)rank : 0};
    const struct value *saved = f->rank[m.from].model_root;
    int rc = model_storages(&m);
    struct { const char *key; struct value *v; } own[] = {
        {"module", rc ? NULL : module(&m)},
        {"optimizer", value_none(m.a)},
        {"param_shapes", param_shapes(&m)},
        {"frozen_param_shapes", rc ? NULL : frozen(&m, false)},
        {"frozen_param_fragments", rc ? NULL : frozen(&m, true)},
        {"shared_params", rc ? NULL : shared_params(&m)},
        {"dp_world_size", value_int(m.a, cut->run.world)},
        {"ds_config", rc ? NULL : config(&m)},
    };
    size_t n_own = sizeof own / sizeof own[0];

    *root = value_dict(m.a, false);
    for (size_t i = 0; rc == 0 && i < saved->u.dict.n; i++) {
        const char *key = value_as_str(saved->u.dict.key[i]);
        size_t k = 0;

        while (key && k < n_own && strcmp(own[k].key, key) != 0)
            k++;
        rc = value_set(m.a, *root, saved->u.dict.key[i],
                       key && k < n_own ? own[k].v : take_model(&m, saved->u.dict.val[i]));
    }
    for (size_t k = 0; rc == 0 && k < n_own; k++)
        if (!value_get(*root, own[k].key))
            rc = value_set_str(m.a, *root, own[k].key, own[k].v);
    return ds_file_check(file, rc != 0, err);
}

/* -- the optim file -------------------------------------------------------------------------- */

/* Whether the file is one of BF16_Optimizer, which supports stage 1 only. */
static bool bf16_form(const struct ds_cut *cut)
{
    return cut->run.f->bf16 && cut->run.stage == 1;
}

int64_t ds_optim_numel(const struct ds_cut *cut, size_t k, size_t which, int rank)
{
    int64_t part = ds_run_part(&cut->run, k);

    if (which > 0 && !ds_run_has(&cut->run, k, which - 1))
        return 0;
    return which > 0 || bf16_form(cut) ? part : part - ds_run_padding(&cut->run, k, rank);
}

/* Storages of all flat tensors, before any other. */
static int optim_storages(struct maker *m)
{
    const struct ds_run *run = &m->cut->run;

    for (size_t k = 0; k < run->n_flat; k++)
        for (size_t which = 0; which <= run->n_moment; which++) {
            enum ckpt_dtype dtype = which == 0 ? run->dtype : run->moment[which - 1].dtype;

            ds_file_storage(m->file, dtype, ds_optim_numel(m->cut, k, which, m->rank), m->err);
        }
    return m->file->rc;
}

static struct value *flat_tensor(struct maker *m, size_t k, size_t which)
{
    size_t storage = ds_optim_storage(&m->cut->run, k, which);
    struct ckpt_shape shape = ckpt_shape_1d(m->file->storage[storage].numel);

    return ds_file_tensor(m->file, storage, &shape);
}

static struct value *weights(struct maker *m)
{
    struct value *list = value_list(m->a);

    for (size_t k = 0; k < m->cut->run.n_flat; k++) {
        struct value *v = flat_tensor(m, k, 0);

        if (v)
            v->u.tensor->requires_grad = true;
        if (value_append(m->a, list, v))
            return NULL;
    }
    return list;
}

/* The optimizer state of flat tensor k: moments resized, the rest (step) unchanged. */
static struct value *state_of(struct maker *m, size_t k)
{
    const struct ds_run *run = &m->cut->run;
    const struct value *saved = ds_run_state(run, k);
    struct value *d = value_dict(m->a, false);

    for (size_t i = 0; d && i < saved->u.dict.n; i++) {
        const char *key = value_as_str(saved->u.dict.key[i]);
        size_t which = key ? ds_run_moment_of(run, key) : run->n_moment;

        if (value_set(m->a, d, saved->u.dict.key[i],
                      which < run->n_moment ? flat_tensor(m, k, which + 1)
                                            : ds_file_take(m->file, run->state_file,
                                                           saved->u.dict.val[i], m->err)))
            return NULL;
    }
    return d;
}

/* torch's optimizer.state_dict(): one flat parameter per flat tensor. */
static struct value *optimizer(struct maker *m)
{
    const struct ds_run *run = &m->cut->run;
    struct value *state = value_dict(m->a, false), *groups = value_list(m->a);
    struct value *d = value_dict(m->a, false);

    for (size_t k = 0; k < run->n_flat; k++)
        if (value_is(ds_run_state(run, k), VALUE_DICT) &&
            value_set(m->a, state, value_int(m->a, (int64_t)k), state_of(m, k)))
            return NULL;
    for (size_t g = 0; g < run->n_group; g++) {
        struct value *options = take_optim(m, run->group[g].options), *params = value_list(m->a);

        for (size_t k = 0; k < run->n_flat; k++)
            if (run->flat[k].group == g &&
                value_append(m->a, params, value_int(m->a, (int64_t)k)))
                return NULL;
        if (!options || value_append(m->a, groups, options))
            return NULL;
        replace(options, "params", params);
    }
    return value_set_str(m->a, d, "state", state) ||
                   value_set_str(m->a, d, "param_groups", groups) ? NULL : d;
}

/* A list with one number per group, computed from the flat tensor. */
static struct value *per_group(struct maker *m, int64_t (*number)(struct maker *m, size_t k))
{
    struct value *list = value_list(m->a);

    for (size_t k = 0; k < m->cut->run.n_flat; k++)
        if (value_append(m->a, list, value_int(m->a, number(m, k))))
            return NULL;
    return list;
}

static int64_t world_of(struct maker *m, size_t k)
{
    (void)k;
    return m->cut->run.world;
}

/* BF16_Optimizer records all of the padding on the last rank. */
static int64_t padding_of(struct maker *m, size_t k)
{
    const struct ds_run *run = &m->cut->run;

    if (!bf16_form(m->cut))
        return ds_run_padding(run, k, m->rank);
    return m->rank == run->world - 1 ? ds_run_part(run, k) * run->world - run->flat[k].numel : 0;
}

/* No filler after any parameter. */
static struct value *alignment(struct maker *m)
{
    struct value *list = value_list(m->a);

    for (size_t k = 0; k < m->cut->run.n_flat; k++) {
        struct value *one = value_list(m->a);

        for (size_t i = 0; i < m->cut->run.flat[k].n; i++)
            if (value_append(m->a, one, value_int(m->a, 0)))
                return NULL;
        if (value_append(m->a, list, one))
            return NULL;
    }
    return list;
}

/* Assign the pieces of this rank's part to names. */
static struct value *mappings(struct maker *m)
{
    const struct ds_run *run = &m->cut->run;
    struct value *list = value_list(m->a);

    for (size_t k = 0; k < run->n_flat; k++) {
        struct value *d = value_dict(m->a, true);

        for (size_t i = run->flat[k].first; i < run->flat[k].first + run->flat[k].n; i++) {
            struct ds_piece p = ds_run_piece(run, i, m->rank);

            if (p.count > 0 && value_set_str(m->a, d, run->param[i].name,
                                             ds_value_address(m->a, p.count, p.at)))
                return NULL;
        }
        if (value_append(m->a, list, d))
            return NULL;
    }
    return list;
}

/* Where loss scaling is saved: in the optim file; without ZeRO beside the optimizer. */
static const struct value *scaling(const struct maker *m)
{
    const struct ds_files *f = m->cut->run.f;

    return f->stage > 0 ? f->rank[0].optim_root : value_get(f->rank[0].model_root, "optimizer");
}

/* Without ZeRO the scaler is plain numbers, and its settings are in the configuration. */
static struct value *make_scaler(struct maker *m)
{
    const struct value *o = scaling(m), *scale = value_get(o, "cur_scale");
    const struct value *fp16 =
        value_get(value_get(m->cut->run.f->rank[0].model_root, "ds_config"), "fp16");
    int64_t dynamic = 0;

    value_as_int(value_get(o, "dynamic_loss_scale"), &dynamic);
    return ds_value_scaler(m->a, dynamic != 0, scale ? take_optim(m, scale) : NULL, o, fp16);
}

/* A fact of the saved optim file, or another value if it is absent. */
static struct value *fact(struct maker *m, const char *key, struct value *otherwise)
{
    const struct value *v = value_get(scaling(m), key);

    return v ? take_optim(m, v) : otherwise;
}

static int put_scaling(struct maker *m, struct value *d)
{
    return value_set_str(m->a, d, "zero_stage", ds_value_stage(m->a, m->cut->run.stage)) |
           value_set_str(m->a, d, "loss_scaler", fact(m, "loss_scaler", make_scaler(m))) |
           value_set_str(m->a, d, "dynamic_loss_scale",
                         fact(m, "dynamic_loss_scale", value_bool(m->a, false))) |
           value_set_str(m->a, d, "overflow", fact(m, "overflow", value_bool(m->a, false)));
}

/* The limit of gradient norms, if the saved run has one. */
static int put_clip(struct maker *m, struct value *d)
{
    const struct value *clip = value_get(scaling(m), "clip_grad");

    return clip ? value_set_str(m->a, d, "clip_grad", take_optim(m, clip)) : 0;
}

int ds_put_scaling(struct value *d, struct ds_file *file, const struct ds_cut *cut,
                   struct ckpt_err *err)
{
    struct maker m = {.file = file, .a = &file->arena, .cut = (struct ds_cut *)cut, .err = err};

    return ds_file_check(file, put_scaling(&m, d) | put_clip(&m, d), err);
}

/* The version that saved the run; equal in all files of a tag. */
static struct value *version(struct maker *m)
{
    const struct ds_rank *first = &m->cut->run.f->rank[0];
    const struct value *v = value_get(first->optim_file, "ds_version");

    v = v ? v : value_get(first->model_root, "ds_version");
    return v ? take_optim(m, v) : value_str(m->a, DS_VERSION);
}

/* The optimizer_state_dict of stages 1 and 2. */
static int put_stage_12(struct maker *m, struct value *d)
{
    return put_clip(m, d) |
           value_set_str(m->a, d, "base_optimizer_state", optimizer(m)) |
           value_set_str(m->a, d, "single_partition_of_fp32_groups", weights(m)) |
           value_set_str(m->a, d, "group_paddings", per_group(m, padding_of)) |
           (bf16_form(m->cut) ? 0 : value_set_str(m->a, d, "param_alignment_paddings",
                                                  alignment(m))) |
           value_set_str(m->a, d, "partition_count", per_group(m, world_of)) |
           value_set_str(m->a, d, "ds_version", version(m)) |
           value_set_str(m->a, d, "param_slice_mappings", mappings(m));
}

static int put_stage_3(struct maker *m, struct value *d)
{
    return value_set_str(m->a, d, "partition_count", value_int(m->a, m->cut->run.world)) |
           value_set_str(m->a, d, "optimizer_state_dict", optimizer(m)) |
           value_set_str(m->a, d, "fp32_flat_groups", weights(m));
}

int ds_optim_states(struct value **root, struct ds_file *file, const struct ds_cut *cut, int rank,
                    struct ckpt_err *err)
{
    struct maker m = {.file = file, .a = &file->arena, .cut = (struct ds_cut *)cut, .rank = rank,
                      .err = err};
    struct value *d = value_dict(m.a, false);
    int rc;

    *root = value_dict(m.a, false);
    if ((rc = optim_storages(&m)) != 0)
        return rc;
    rc = (bf16_form(cut) ? 0 : put_scaling(&m, d)) |
         (cut->run.stage == 3 ? put_stage_3(&m, d) : put_stage_12(&m, d)) |
         value_set_str(m.a, *root, "optimizer_state_dict", d) |
         value_set_str(m.a, *root, "ds_config", config(&m)) |
         value_set_str(m.a, *root, "ds_version", version(&m));
    return ds_file_check(file, rc != 0, err);
}
