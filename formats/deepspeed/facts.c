/* deepspeed/facts - see deepspeed/facts.h. */
#include "formats/deepspeed/facts.h"

#include <string.h>

#define BUDGET 20000            /* most values of one fact */

/* DeepSpeed's own keys in the model file, of all versions. */
static const char *const own[] = {
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes",
    "frozen_param_fragments", "shared_params", "lr_scheduler", "data_sampler", "random_ltd",
    "sparse_tensor_module_names", "csr_tensor_module_names", "skipped_steps", "global_steps",
    "global_samples", "dp_world_size", "mp_world_size", "checkpoint_parallel_dimensions",
    "ds_config", "ds_version", "universal_checkpoint_info", "num_experts", "ds_autoep_layers",
};

static bool is_own(const char *key)
{
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i], key) == 0)
            return true;
    return false;
}

static void put(json_t *to, const char *key, const struct value *v)
{
    if (v && !value_is(v, VALUE_NONE))
        json_object_set_new(to, key, value_to_json(v, BUDGET));
}

/* Keys added by save_checkpoint's caller: all that are not DeepSpeed's own. */
static json_t *client_state(const struct ds_files *f)
{
    json_t *client = json_object();
    const char *key;
    struct value *v;

    for (size_t i = 0; value_next(f->rank[0].model_root, &i, &key, &v);)
        if (!is_own(key))
            json_object_set_new(client, key, value_to_json(v, BUDGET));
    return client;
}

/* One learning rate per group. */
static void put_lr(json_t *info, const struct value *groups)
{
    json_t *lr = json_array();
    double x;

    for (size_t i = 0; i < value_count(groups); i++)
        if (value_as_float(value_get(value_item(groups, i), "lr"), &x))
            json_array_append_new(lr, json_real(x));
    if (json_array_size(lr) > 0)
        json_object_set(info, "lr", lr);
    json_decref(lr);
}

/* The scaler is an object with cur_scale and more; without ZeRO there are plain numbers. */
static void put_scale(json_t *info, const struct ds_files *f)
{
    const struct value *o = f->stage > 0 ? f->rank[0].optim_root
                                         : value_get(f->rank[0].model_root, "optimizer");
    const struct value *scaler = value_get(o, "loss_scaler");
    double x;

    if (value_as_float(value_is(scaler, VALUE_OBJECT)
                           ? value_get(scaler->u.obj.state, "cur_scale")
                           : value_get(o, "cur_scale"), &x))
        json_object_set_new(info, "loss_scale", json_real(x));
    put(info, "dynamic_loss_scale", value_get(o, "dynamic_loss_scale"));
    put(info, "loss_scaler", scaler);
}

/* The keys of a dictionary, in its order. */
static json_t *names_in(const struct value *v)
{
    json_t *names = json_array();
    const char *name;
    struct value *shape;

    for (size_t i = 0; value_next(v, &i, &name, &shape);)
        json_array_append_new(names, json_string(name));
    return names;
}

/* param_groups refer to parameters by number: these are the names of each group's parameters. */
static void put_group_params(json_t *info, const struct ds_files *f)
{
    json_t *groups = json_array();

    for (size_t g = 0; g < ds_shape_groups(f, 0); g++)
        json_array_append_new(groups, names_in(ds_shapes(f, 0, g)));
    if (json_array_size(groups) > 0)
        json_object_set(info, "group_params", groups);
    json_decref(groups);
}

json_t *ds_facts(const struct ds_files *f)
{
    static const char *const keys[] = {"ds_version", "global_steps", "global_samples",
                                       "skipped_steps", "dp_world_size", "num_experts",
                                       "lr_scheduler"};
    const struct value *root = f->rank[0].model_root, *v;
    json_t *info = json_pack("{s:s,s:s,s:i,s:I}", "format", "deepspeed", "tag", f->tag,
                             "zero_stage", f->stage, "world_size", (json_int_t)f->world);

    if (!info)
        return NULL;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        put(info, keys[i], value_get(root, keys[i]));
    if (f->step >= 0)
        json_object_set_new(info, "optimizer_step", json_real(f->step));
    put_lr(info, ds_param_groups(f, 0));
    put_scale(info, f);
    put(info, "param_groups", ds_param_groups(f, 0));
    put_group_params(info, f);
    v = value_get(root, "frozen_param_shapes");
    if (value_is(v, VALUE_DICT) && v->u.dict.n > 0)
        json_object_set_new(info, "frozen", names_in(v));
    json_object_set_new(info, "client_state", client_state(f));
    put(info, "ds_config", value_get(root, "ds_config"));
    return info;
}
