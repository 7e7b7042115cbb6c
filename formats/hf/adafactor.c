/* hf/adafactor - see hf/adafactor.h. */
#include "formats/hf/adafactor.h"

#include <math.h>

#include "formats/hf/optim_file.h"

/* Storages of a parameter: exp_avg_sq_row or exp_avg_sq, exp_avg_sq_col, RMS, exp_avg. */
enum { ROW, COL, RMS, AVG, STORAGES };

struct value *hf_adafactor_group(struct ckpt_arena *a, const struct adamw_group *g)
{
    const struct adafactor_group *o = g->adafactor;
    struct value *d = value_dict(a, false), *eps = value_tuple(a);

    return value_append(a, eps, value_float(a, o->eps)) |
                   value_append(a, eps, value_float(a, o->eps_rms)) |
                   value_set_str(a, d, "lr", o->relative_step ? value_none(a)
                                                              : value_float(a, g->lr)) |
                   value_set_str(a, d, "eps", eps) |
                   value_set_str(a, d, "clip_threshold", value_float(a, o->clip_threshold)) |
                   value_set_str(a, d, "decay_rate", value_float(a, o->decay_rate)) |
                   value_set_str(a, d, "beta1", isnan(o->beta1) ? value_none(a)
                                                                : value_float(a, o->beta1)) |
                   value_set_str(a, d, "weight_decay", value_float(a, g->weight_decay)) |
                   value_set_str(a, d, "scale_parameter", value_bool(a, o->scale_parameter)) |
                   value_set_str(a, d, "relative_step", value_bool(a, o->relative_step)) |
                   value_set_str(a, d, "warmup_init", value_bool(a, o->warmup_init)) |
                   value_set_str(a, d, "initial_lr", value_float(a, g->initial_lr))
               ? NULL : d;
}

/* The shape without axis k from its end. */
static struct ckpt_shape without(const struct ckpt_shape *s, int k)
{
    struct ckpt_shape out = {.rank = 0};

    for (int i = 0; i < s->rank; i++)
        if (i != s->rank - k)
            out.dim[out.rank++] = s->dim[i];
    return out;
}

/* The shapes of a parameter's storages; false where one has none. */
static bool shape_of(struct ckpt_shape *out, const struct adafactor_param *p, int which, bool avg)
{
    *out = which == RMS             ? (struct ckpt_shape){.rank = 0}
           : which == AVG || !p->col ? p->shape
           : which == ROW            ? without(&p->shape, 1)
                                     : without(&p->shape, 2);
    return which == AVG ? avg : which != COL || p->col;
}

struct states {
    const struct adafactor_param *param;
    int64_t                       step;
    const struct adamw_reader    *reader;
};

static int group_of(const void *ctx, size_t i)
{
    return ((const struct states *)ctx)->param[i].group;
}

static int add_state(const void *ctx, struct ckpt_arena *a, struct value *state, size_t i,
                     struct torch_storage *storage)
{
    static const int order[] = {AVG, ROW, COL, RMS};    /* as the class makes them */
    const struct states *s = ctx;
    const struct adafactor_param *p = &s->param[i];
    const char *const name[STORAGES] = {p->col ? "exp_avg_sq_row" : "exp_avg_sq", "exp_avg_sq_col",
                                        "RMS", "exp_avg"};
    struct value *d = value_dict(a, false);
    int rc = value_set_str(a, d, "step", value_int(a, s->step));

    for (int k = 0; k < STORAGES; k++) {
        struct torch_storage *own = &storage[order[k]];
        struct ckpt_shape shape;

        *own = (struct torch_storage){.dtype = CKPT_F32};
        if (!shape_of(&shape, p, order[k], s->reader != NULL))
            continue;
        if (!ckpt_shape_numel(&own->numel, &shape))
            return 1;
        rc |= value_set_str(a, d, name[order[k]],
                            value_tensor_whole(a, CKPT_F32, &shape,
                                               STORAGES * i + (size_t)order[k]));
    }
    return rc | value_set(a, state, value_int(a, (int64_t)i), d);
}

static int put_state(const void *ctx, struct torch_writer *w, size_t i, float *piece,
                     struct ckpt_err *err)
{
    const struct states *s = ctx;
    const struct adafactor_param *p = &s->param[i];
    const struct hf_optim_from from[STORAGES] = {
        {.whole = p->row}, {.whole = p->col}, {.whole = &p->rms},
        {.reader = s->reader, .i = i, .of = ADAMW_EXP_AVG}};
    int rc = 0;

    for (int k = 0; rc == 0 && k < STORAGES; k++) {
        struct ckpt_shape shape;
        int64_t n = 0;

        if (shape_of(&shape, p, k, s->reader != NULL) && ckpt_shape_numel(&n, &shape))
            rc = hf_optim_file_put(w, STORAGES * i + (size_t)k, n, &from[k], piece, err);
    }
    return rc;
}

int hf_adafactor_write(struct ckpt_out *out, const struct adafactor_param *param, size_t n_param,
                       const struct adamw_group *group, size_t n_group, int64_t step,
                       const struct adamw_reader *reader, struct ckpt_err *err)
{
    const struct states s = {param, step, reader};
    const struct hf_optim_file f = {.group = group, .n_group = n_group, .n_param = n_param,
                                    .storages = STORAGES, .ctx = &s, .group_of = group_of,
                                    .add = add_state, .put = put_state};

    return hf_optim_file_write(out, &f, err);
}
