/* deepspeed_values - see deepspeed_values.h.  Source: what DeepSpeed 0.19.8 pickles. */
#include "formats/weights/deepspeed_values.h"

struct value *ds_value_size(struct ckpt_arena *a, const struct ckpt_shape *shape)
{
    struct value *dims = value_tuple(a), *args = value_tuple(a);

    for (int i = 0; i < shape->rank; i++)
        if (value_append(a, dims, value_int(a, shape->dim[i])))
            return NULL;
    return value_append(a, args, dims) ? NULL
                                       : value_object(a, "torch", "Size", args, NULL, false);
}

struct value *ds_value_stage(struct ckpt_arena *a, int64_t stage)
{
    struct value *args = value_tuple(a);

    return value_append(a, args, value_int(a, stage))
               ? NULL : value_object(a, "deepspeed.runtime.zero.config", "ZeroStageEnum", args,
                                     NULL, false);
}

struct value *ds_value_scaler(struct ckpt_arena *a)
{
    struct value *state = value_dict(a, false);

    if (value_set_str(a, state, "cur_scale", value_float(a, 1.0)) ||
        value_set_str(a, state, "dynamic", value_bool(a, false)))
        return NULL;
    return value_object(a, "deepspeed.runtime.fp16.loss_scaler", "LossScaler", value_tuple(a),
                        state, true);
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
