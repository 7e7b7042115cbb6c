/* hf/adafactor - see hf/adafactor.h. */
#include "formats/hf/adafactor.h"

#include <math.h>

#include "formats/torch/out.h"
#include "libckpt/mem.h"

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

/* The entry of parameter i, and its storages. */
static int add_state(struct ckpt_arena *a, struct value *state, size_t i,
                     const struct adafactor_param *p, int64_t step, bool avg,
                     struct torch_storage *storage)
{
    const char *const name[STORAGES] = {p->col ? "exp_avg_sq_row" : "exp_avg_sq", "exp_avg_sq_col",
                                        "RMS", "exp_avg"};
    static const int order[] = {AVG, ROW, COL, RMS};    /* as the class makes them */
    struct value *d = value_dict(a, false);
    int rc = value_set_str(a, d, "step", value_int(a, step));

    for (int k = 0; k < STORAGES; k++) {
        size_t at = STORAGES * i + (size_t)order[k];
        struct ckpt_shape shape;
        int64_t numel = 0;

        storage[at] = (struct torch_storage){.dtype = CKPT_F32};
        if (!shape_of(&shape, p, order[k], avg))
            continue;
        rc |= !ckpt_shape_numel(&numel, &shape);
        storage[at].numel = numel;
        rc |= value_set_str(a, d, name[order[k]], value_tensor_whole(a, CKPT_F32, &shape, at));
    }
    return rc | value_set(a, state, value_int(a, (int64_t)i), d);
}

/* exp_avg of parameter i through the reader. */
static int put_avg(struct torch_writer *w, size_t i, int64_t numel,
                   const struct adamw_reader *reader, float *piece, struct ckpt_err *err)
{
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < numel; at += ADAMW_PIECE) {
        int64_t n = numel - at < ADAMW_PIECE ? numel - at : ADAMW_PIECE;

        rc = reader->read(reader->ctx, i, ADAMW_EXP_AVG, at, n, piece, err);
        if (rc == 0)
            rc = torch_writer_put(w, STORAGES * i + AVG, at, n, piece, err);
    }
    return rc;
}

static int put_states(struct torch_writer *w, const struct adafactor_param *param, size_t n_param,
                      const struct torch_storage *storage, const struct adamw_reader *reader,
                      struct ckpt_err *err)
{
    float *piece = reader ? ckpt_alloc_buffer((size_t)ADAMW_PIECE * sizeof *piece) : NULL;
    int rc = reader && !piece ? ckpt_nomem(err, (size_t)ADAMW_PIECE * sizeof *piece) : 0;

    for (size_t i = 0; rc == 0 && i < n_param; i++) {
        const float *from[] = {param[i].row, param[i].col, &param[i].rms};

        for (size_t k = 0; rc == 0 && k < AVG; k++)
            if (storage[STORAGES * i + k].numel > 0)
                rc = torch_writer_put(w, STORAGES * i + k, 0, storage[STORAGES * i + k].numel,
                                      from[k], err);
        if (rc == 0 && reader)
            rc = put_avg(w, i, storage[STORAGES * i + AVG].numel, reader, piece, err);
    }
    ckpt_free(piece);
    return rc;
}

int hf_adafactor_write(struct ckpt_out *out, const struct adafactor_param *param, size_t n_param,
                       const struct adamw_group *group, size_t n_group, int64_t step,
                       const struct adamw_reader *reader, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct torch_storage *storage = ckpt_arena_alloc(&a, STORAGES * n_param + 1, sizeof *storage);
    int64_t *first = ckpt_arena_alloc(&a, 2 * n_group, sizeof *first);
    struct value *root = value_dict(&a, false), *state = value_dict(&a, false);
    struct torch_writer *w = NULL;
    int rc = !storage || !first;

    for (size_t i = 0; !rc && i < n_param; i++) {
        int64_t *count = first + n_group;

        rc = (size_t)param[i].group >= n_group ||
             add_state(&a, state, i, &param[i], step, reader != NULL, storage);
        if (!rc && count[param[i].group]++ == 0)
            first[param[i].group] = (int64_t)i;
    }
    if (rc || value_set_str(&a, root, "state", state) ||
        value_set_str(&a, root, "param_groups",
                      hf_adamw_groups(&a, group, n_group, first, first + n_group))) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)a.used);
    } else {
        rc = torch_writer_new(&w, out, "archive", root, storage, STORAGES * n_param, NULL, err);
    }
    if (rc == 0)
        rc = put_states(w, param, n_param, storage, reader, err);
    if (w && rc == 0)
        rc = torch_writer_commit(w, err);
    else
        torch_writer_abort(w);
    ckpt_arena_release(&a);
    return rc;
}
