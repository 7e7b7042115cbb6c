/* deepspeed/parts - see deepspeed/parts.h. */
#include "formats/deepspeed/parts.h"

#include <string.h>

int ds_archive_open(struct torch_archive **out, const struct value **root, struct ckpt_dir *dir,
                    const char *name, struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc;

    if ((rc = ckpt_file_open_at(&file, dir, name, err)) != 0 ||
        (rc = torch_archive_open(out, file, err)) != 0)
        return rc;
    *root = torch_archive_root(*out);
    if (!value_is(*root, VALUE_DICT))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: holds no dictionary", name);
    return 0;
}

size_t ds_partitions(const struct ds_files *f, size_t rank)
{
    const struct value *v = value_get(f->rank[rank].optim_root, "partition_count");
    int64_t most = 0, n;

    if (value_as_int(v, &n))
        most = n;
    for (size_t i = 0; value_is(v, VALUE_LIST) && i < v->u.seq.n; i++)
        if (value_as_int(v->u.seq.item[i], &n) && n > most)
            most = n;
    return most >= 1 && most <= DS_MAX_RANKS ? (size_t)most : 0;
}

int ds_stage(const struct ds_files *f, size_t rank)
{
    const struct value *v = value_get(f->rank[rank].optim_root, "zero_stage");
    int64_t stage;

    if (value_is(v, VALUE_OBJECT))
        v = value_arg(v, 0);
    return value_as_int(v, &stage) && stage >= 0 && stage <= 3 ? (int)stage : -1;
}

const struct value *ds_numbered(const struct value *dict, size_t key)
{
    int64_t k;

    if (!value_is(dict, VALUE_DICT))
        return NULL;
    /* Keys usually count up from 0: look there first, so that a walk over all is linear. */
    if (key < dict->u.dict.n && value_as_int(dict->u.dict.key[key], &k) && k == (int64_t)key)
        return dict->u.dict.val[key];
    for (size_t j = 0; j < dict->u.dict.n; j++)
        if (value_as_int(dict->u.dict.key[j], &k) && k == (int64_t)key)
            return dict->u.dict.val[j];
    return NULL;
}

size_t ds_group_partitions(const struct ds_files *f, size_t rank, size_t g)
{
    const struct value *v = value_get(f->rank[rank].optim_root, "partition_count");
    int64_t n;

    if (!value_is(v, VALUE_LIST))
        return ds_partitions(f, rank);
    return value_as_int(value_item(v, g), &n) && n >= 1 && n <= DS_MAX_RANKS ? (size_t)n : 0;
}

/* Stage 3: optimizer_state_dict; 1 and 2: base_optimizer_state; 0: the model file's optimizer. */
static const struct value *optimizer(const struct ds_files *f, size_t rank)
{
    const struct ds_rank *r = &f->rank[rank];
    const struct value *o;

    if (f->stage > 0)
        return value_get(r->optim_root,
                         f->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
    o = value_get(r->model_root, "optimizer");
    /* FP16_Optimizer and FP16_UnfusedOptimizer wrap torch's optimizer. */
    return value_get(o, "optimizer_state_dict") ? value_get(o, "optimizer_state_dict") : o;
}

const struct value *ds_state(const struct ds_files *f, size_t rank, size_t g)
{
    const struct value *o = optimizer(f, rank);

    /* With elastic_checkpoint the state is a list, else a dictionary. */
    return value_is(o, VALUE_LIST) ? value_item(o, g) : ds_numbered(value_get(o, "state"), g);
}

const struct value *ds_param_groups(const struct ds_files *f, size_t rank)
{
    const struct value *v = value_get(optimizer(f, rank), "param_groups");

    return v ? v : value_get(f->rank[rank].optim_root, "param_groups");
}

/* In the model file since 0.6, in the optim file before; a list since 0.5.4, before one dict. */
static const struct value *all_shapes(const struct ds_files *f, size_t rank)
{
    const struct ds_rank *r = &f->rank[rank];
    const struct value *v = value_get(r->model_root, "param_shapes");

    if (v && !value_is(v, VALUE_NONE))
        return v;
    v = value_get(r->optim_file, "param_shapes");
    return v ? v : f->shapes;
}

size_t ds_shape_groups(const struct ds_files *f, size_t rank)
{
    const struct value *v = all_shapes(f, rank);

    return value_is(v, VALUE_DICT) ? 1 : value_is(v, VALUE_LIST) ? v->u.seq.n : 0;
}

const struct value *ds_shapes(const struct ds_files *f, size_t rank, size_t g)
{
    const struct value *v = all_shapes(f, rank);

    return value_is(v, VALUE_DICT) && g == 0 ? v : value_item(v, g);
}

int ds_shape_at(struct ds_listed *out, const struct value *shapes, size_t i, const char *what,
                struct ckpt_err *err)
{
    out->name = value_as_str(shapes->u.dict.key[i]);
    if (!out->name)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: name %zu is no text", what, i);
    out->shape.rank = value_dims(shapes->u.dict.val[i], out->shape.dim, CKPT_MAX_RANK);
    if (out->shape.rank < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: the shape of %s is no tuple of up to %d numbers "
                         ">= 0", what, out->name, CKPT_MAX_RANK);
    /* So far below the limit that sums over a group cannot overflow. */
    if (!ckpt_shape_numel(&out->numel, &out->shape) || out->numel > INT64_MAX >> 20)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %s has more elements than can be", what,
                         out->name);
    return 0;
}

const struct value *ds_zero_option(const struct ds_files *f, const char *key)
{
    const struct value *config = value_get(f->rank[0].model_root, "ds_config");

    return value_get(value_get(config, "zero_optimization"), key);
}
