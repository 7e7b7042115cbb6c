/* write/values - see write/values.h.  Source: pickles of DeepSpeed 0.19.8. */
#include "formats/deepspeed/write/values.h"

struct value *ds_value_stage(struct ckpt_arena *a, int64_t stage)
{
    struct value *args = value_tuple(a);

    return value_append(a, args, value_int(a, stage))
               ? NULL : value_object(a, "deepspeed.runtime.zero.config", "ZeroStageEnum", args,
                                     NULL, false);
}

/* A number of a dictionary, or its default. */
static struct value *number(struct ckpt_arena *a, const struct value *dict, const char *key,
                            int64_t otherwise)
{
    struct value *v = value_get(dict, key);

    return v ? v : value_int(a, otherwise);
}

struct value *ds_value_scaler(struct ckpt_arena *a, bool dynamic, struct value *scale,
                              const struct value *now, const struct value *fp16)
{
    struct value *s = value_dict(a, false), *left = value_get(now, "cur_hysteresis");
    int rc = value_set_str(a, s, "cur_scale", scale ? scale : value_float(a, 1.0)) |
             value_set_str(a, s, "dynamic", value_bool(a, dynamic));

    if (dynamic)
        rc |= value_set_str(a, s, "cur_iter", number(a, now, "cur_iter", 0)) |
              value_set_str(a, s, "last_overflow_iter", number(a, now, "last_overflow_iter", -1)) |
              value_set_str(a, s, "scale_factor", number(a, now, "scale_factor", 2)) |
              value_set_str(a, s, "scale_window", number(a, now, "scale_window", 1000)) |
              value_set_str(a, s, "min_scale", number(a, fp16, "min_loss_scale", 1)) |
              value_set_str(a, s, "delayed_shift", number(a, fp16, "hysteresis", 2)) |
              value_set_str(a, s, "cur_hysteresis",
                            left ? left : number(a, fp16, "hysteresis", 2)) |
              value_set_str(a, s, "consecutive_hysteresis", value_bool(a, false)) |
              value_set_str(a, s, "raise_error_at_min_scale", value_bool(a, true)) |
              value_set_str(a, s, "dtype", value_global(a, "torch", "float16"));
    return rc ? NULL : value_object(a, "deepspeed.runtime.fp16.loss_scaler",
                                    dynamic ? "DynamicLossScaler" : "LossScaler", value_tuple(a),
                                    s, true);
}

struct value *ds_value_address(struct ckpt_arena *a, int64_t numel, int64_t start)
{
    struct value *state = value_dict(a, false);

    if (value_set_str(a, state, "numel", value_int(a, numel)) ||
        value_set_str(a, state, "start", value_int(a, start)))
        return NULL;
    return value_object(a, "deepspeed.utils.tensor_fragment", "fragment_address", value_tuple(a),
                        state, true);
}
