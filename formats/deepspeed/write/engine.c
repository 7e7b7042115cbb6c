/* write/engine - see write/engine.h.  Source: DeepSpeed 0.19.8 runtime/engine.py
 * (_common_checkpoint_state, _save_checkpoint) and runtime/fp16/loss_scaler.py. */
#include "formats/deepspeed/write/engine.h"

#include "formats/deepspeed/write/values.h"

struct value *ds_value_shared(struct ckpt_arena *a, const struct ds_rank_state *s)
{
    struct value *d = value_dict(a, false);

    for (size_t i = 0; i < s->n_alias; i++)
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

/* Put the caller's keys at top level; keys that would shadow DeepSpeed's own are refused here. */
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

int ds_put_engine(struct ckpt_arena *a, struct value *d, const struct ds_rank_state *s,
                  struct ckpt_err *err)
{
    int rc = value_set_str(a, d, "lr_scheduler", value_none(a)) |
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

    return rc ? ckpt_nomem(err, (size_t)a->used) : merge_client(a, d, s->client_state, err);
}

/* A scaler with the counters of the run. */
static struct value *scaler(struct ckpt_arena *a, const struct ds_scaling *s)
{
    struct value *now = value_dict(a, false), *fp16 = value_dict(a, false);
    int rc;

    if (!s)
        return ds_value_scaler(a, false, NULL, NULL, NULL);
    rc = value_set_str(a, now, "cur_iter", value_int(a, s->iter)) |
         value_set_str(a, now, "last_overflow_iter", value_int(a, s->last_overflow)) |
         value_set_str(a, now, "scale_window", value_int(a, s->window)) |
         value_set_str(a, now, "cur_hysteresis", value_int(a, s->patience)) |
         value_set_str(a, fp16, "min_loss_scale", value_float(a, s->min_scale)) |
         value_set_str(a, fp16, "hysteresis", value_int(a, s->hysteresis));
    return rc ? NULL : ds_value_scaler(a, s->dynamic, value_float(a, s->scale), now, fp16);
}

int ds_put_scaler(struct ckpt_arena *a, struct value *d, int stage,
                  const struct ds_scaling *scaling)
{
    return value_set_str(a, d, "zero_stage", ds_value_stage(a, stage)) |
           value_set_str(a, d, "loss_scaler", scaler(a, scaling)) |
           value_set_str(a, d, "dynamic_loss_scale", value_bool(a, scaling && scaling->dynamic)) |
           value_set_str(a, d, "overflow", value_bool(a, false));
}
