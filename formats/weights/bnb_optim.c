/* bnb_optim - see bnb_optim.h. */
#include "formats/weights/bnb_optim.h"

#include "formats/weights/torch_out.h"

#define PER_PARAM 4                     /* storages of a parameter: two states, two scales */

/* -- the file -------------------------------------------------------------------------------- */

struct file {
    struct ckpt_arena     a;
    struct torch_storage *storage;      /* two maps, then PER_PARAM of each parameter */
    const void          **data;
    struct bnb_codec      codec[2];     /* with sign, without */
};

static struct value *tensor(struct ckpt_arena *a, enum ckpt_dtype dtype,
                            const struct ckpt_shape *shape, size_t storage)
{
    struct value_tensor t = {.dtype = dtype, .shape = *shape, .storage = storage};
    int64_t stride = 1;

    for (int i = shape->rank; i-- > 0;) {
        t.stride[i] = stride;
        stride *= shape->dim[i];
    }
    return value_tensor_new(a, &t);
}

/* State k of parameter i into its dictionary; storages are filled. */
static int add_state(struct file *f, struct value *d, size_t i, int k, const struct adamw_param *p,
                     int64_t numel)
{
    static const char *const names[2][3] = {{"state1", "qmap1", "absmax1"},
                                            {"state2", "qmap2", "absmax2"}};
    const float *src = k ? p->exp_avg_sq : p->exp_avg;
    size_t s = 2 + PER_PARAM * i + 2 * (size_t)k;
    struct ckpt_shape map = ckpt_shape_1d(256);
    struct ckpt_shape blocks = ckpt_shape_1d((numel + BNB_BLOCK - 1) / BNB_BLOCK);
    bool packed = numel >= BNB_MIN_8BIT;
    uint8_t *code;
    float *scale;

    f->storage[s] = (struct torch_storage){.dtype = packed ? CKPT_U8 : CKPT_F32, .numel = numel};
    f->storage[s + 1] = (struct torch_storage){.dtype = CKPT_F32};
    f->data[s] = src;
    if (!packed)
        return value_set_str(&f->a, d, names[k][0], tensor(&f->a, CKPT_F32, &p->shape, s));
    code = ckpt_arena_alloc(&f->a, (size_t)numel, 1);
    scale = ckpt_arena_alloc(&f->a, (size_t)blocks.dim[0], sizeof *scale);
    if (!code || !scale)
        return CKPT_ENOMEM;
    bnb_pack(code, scale, src, numel, &f->codec[k]);
    f->data[s] = code;
    f->data[s + 1] = scale;
    f->storage[s + 1].numel = blocks.dim[0];
    return value_set_str(&f->a, d, names[k][0], tensor(&f->a, CKPT_U8, &p->shape, s)) |
           value_set_str(&f->a, d, names[k][1], tensor(&f->a, CKPT_F32, &map, (size_t)k)) |
           value_set_str(&f->a, d, names[k][2], tensor(&f->a, CKPT_F32, &blocks, s + 1));
}

static int add_param(struct file *f, struct value *state, size_t i, const struct adamw_param *p,
                     int64_t step)
{
    struct value *d = value_dict(&f->a, false), *inner = value_dict(&f->a, false);
    int64_t numel = 0;

    if (!ckpt_shape_numel(&numel, &p->shape))
        return CKPT_ENOMEM;
    return add_state(f, inner, i, 0, p, numel) | add_state(f, inner, i, 1, p, numel) |
           value_set_str(&f->a, d, "step", value_int(&f->a, step)) |
           value_set_str(&f->a, d, "__bnb_optimizer_quant_state__", inner) |
           value_set(&f->a, state, value_int(&f->a, (int64_t)i), d);
}

/* Hyper-parameters and indices of one group. */
static struct value *group_value(struct ckpt_arena *a, const struct adamw_group *g, size_t index,
                                 const struct adamw_param *param, size_t n_param)
{
    struct value *d = value_dict(a, false), *betas = value_tuple(a), *params = value_list(a);
    int rc = value_append(a, betas, value_float(a, g->beta1)) |
             value_append(a, betas, value_float(a, g->beta2));

    for (size_t i = 0; i < n_param; i++)
        if ((size_t)param[i].group == index)
            rc |= value_append(a, params, value_int(a, (int64_t)i));
    rc |= value_set_str(a, d, "lr", value_float(a, g->lr)) |
          value_set_str(a, d, "betas", betas) | value_set_str(a, d, "eps", value_float(a, g->eps)) |
          value_set_str(a, d, "weight_decay", value_float(a, g->weight_decay)) |
          value_set_str(a, d, "alpha", value_float(a, 0)) |
          value_set_str(a, d, "t_alpha", value_none(a)) |
          value_set_str(a, d, "t_beta3", value_none(a)) |
          value_set_str(a, d, "initial_lr", value_float(a, g->initial_lr)) |
          value_set_str(a, d, "params", params);
    return rc ? NULL : d;
}

int bnb_optimizer_file_write(struct ckpt_out *out, const struct adamw_param *param, size_t n_param,
                             const struct adamw_group *group, size_t n_group, int64_t step,
                             struct ckpt_err *err)
{
    struct file f = {.storage = NULL};
    size_t n = 2 + PER_PARAM * n_param;
    struct value *root = value_dict(&f.a, false), *state = value_dict(&f.a, false);
    struct value *groups = value_list(&f.a);
    int rc = 0;

    f.storage = ckpt_arena_alloc(&f.a, n, sizeof *f.storage);
    f.data = ckpt_arena_alloc(&f.a, n, sizeof *f.data);
    if (!f.storage || !f.data)
        rc = CKPT_ENOMEM;
    for (int k = 0; rc == 0 && k < 2; k++) {
        bnb_codec_init(&f.codec[k], k == 0);
        f.storage[k] = (struct torch_storage){.dtype = CKPT_F32, .numel = 256};
        f.data[k] = f.codec[k].map;
    }
    for (size_t i = 0; rc == 0 && i < n_param; i++)
        rc = (size_t)param[i].group < n_group ? add_param(&f, state, i, &param[i], step)
                                              : CKPT_ENOMEM;
    for (size_t g = 0; rc == 0 && g < n_group; g++)
        rc = value_append(&f.a, groups, group_value(&f.a, &group[g], g, param, n_param));
    if (rc || value_set_str(&f.a, root, "state", state) ||
        value_set_str(&f.a, root, "param_groups", groups)) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)f.a.used);
    } else {
        rc = torch_write(out, "archive", root, f.storage, f.data, n, err);
    }
    ckpt_arena_release(&f.a);
    return rc;
}
