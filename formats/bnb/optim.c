/* bnb/optim - see bnb/optim.h. */
#include "formats/bnb/optim.h"

#include "formats/torch/out.h"

#define PER_PARAM 4                     /* storages per parameter: two states, two scales */

/* -- the file -------------------------------------------------------------------------------- */

struct file {
    struct ckpt_arena           a;
    struct torch_storage       *storage;    /* two maps, then PER_PARAM of each parameter */
    struct bnb_codec            codec[2];   /* signed, unsigned */
    const struct adamw_param   *param;
    size_t                      n_param;
    int                         states;     /* of a parameter: 2, or 1 (Lion) */
    const struct adamw_reader  *reader;
    uint8_t                    *code;       /* [ADAMW_PIECE] */
    float                      *piece;      /* [ADAMW_PIECE]; also used for scales */
};

/* Storage of state k of parameter i; its scales follow. */
static size_t storage_of(size_t i, int k) { return 2 + PER_PARAM * i + 2 * (size_t)k; }

/* Add state k of parameter i to its dictionary, and describe its storages. */
static int add_state(struct file *f, struct value *d, size_t i, int k, int64_t numel)
{
    static const char *const names[2][3] = {{"state1", "qmap1", "absmax1"},
                                            {"state2", "qmap2", "absmax2"}};
    const struct adamw_param *p = &f->param[i];
    size_t s = storage_of(i, k);
    struct ckpt_shape map = ckpt_shape_1d(256);
    struct ckpt_shape blocks = ckpt_shape_1d((numel + BNB_BLOCK - 1) / BNB_BLOCK);
    bool packed = p->kind == ADAMW_8BIT;

    f->storage[s] = (struct torch_storage){.dtype = packed ? CKPT_U8 : CKPT_F32, .numel = numel};
    f->storage[s + 1] = (struct torch_storage){.dtype = CKPT_F32,
                                               .numel = packed ? blocks.dim[0] : 0};
    if (!packed)
        return value_set_str(&f->a, d, names[k][0],
                             value_tensor_whole(&f->a, CKPT_F32, &p->shape, s));
    return value_set_str(&f->a, d, names[k][0],
                         value_tensor_whole(&f->a, CKPT_U8, &p->shape, s)) |
           value_set_str(&f->a, d, names[k][1],
                         value_tensor_whole(&f->a, CKPT_F32, &map, (size_t)k)) |
           value_set_str(&f->a, d, names[k][2],
                         value_tensor_whole(&f->a, CKPT_F32, &blocks, s + 1));
}

static int add_param(struct file *f, struct value *state, size_t i, int64_t step)
{
    struct value *d = value_dict(&f->a, false), *inner = value_dict(&f->a, false);
    int64_t numel = 0;

    if (!ckpt_shape_numel(&numel, &f->param[i].shape))
        return CKPT_ENOMEM;
    return add_state(f, inner, i, 0, numel) |
           (f->states > 1 ? add_state(f, inner, i, 1, numel) : 0) |
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

/* Write elements [at, at + n) of state k of parameter i to their storages. */
static int put_piece(struct file *f, struct torch_writer *w, size_t i, int k, int64_t at,
                     int64_t n, struct ckpt_err *err)
{
    const struct adamw_param *p = &f->param[i];
    const struct adamw_reader *r = f->reader;
    const float *whole = k ? p->exp_avg_sq : p->exp_avg;
    enum adamw_array moment = k ? ADAMW_EXP_AVG_SQ : ADAMW_EXP_AVG;
    size_t s = storage_of(i, k);
    int64_t blocks = (n + BNB_BLOCK - 1) / BNB_BLOCK;
    int rc;

    if (p->kind != ADAMW_8BIT) {
        if (!whole && (rc = r->read(r->ctx, i, moment, at, n, f->piece, err)) != 0)
            return rc;
        return torch_writer_put(w, s, at, n, whole ? whole + at : f->piece, err);
    }
    if (whole)
        bnb_pack(f->code, f->piece, whole + at, n, &f->codec[k]);
    else if ((rc = r->read(r->ctx, i, moment, at, n, f->code, err)) != 0 ||
             (rc = r->read(r->ctx, i, k ? ADAMW_ABSMAX_SQ : ADAMW_ABSMAX, at, n, f->piece,
                           err)) != 0)
        return rc;
    rc = torch_writer_put(w, s, at, n, f->code, err);
    return rc ? rc : torch_writer_put(w, s + 1, at / BNB_BLOCK, blocks, f->piece, err);
}

static int put_states(struct file *f, struct torch_writer *w, struct ckpt_err *err)
{
    int rc = 0;

    for (int k = 0; rc == 0 && k < 2; k++)
        rc = torch_writer_put(w, (size_t)k, 0, 256, f->codec[k].map, err);
    for (size_t i = 0; rc == 0 && i < f->n_param; i++)
        for (int k = 0; rc == 0 && k < f->states; k++) {
            int64_t numel = f->storage[storage_of(i, k)].numel;

            for (int64_t at = 0; rc == 0 && at < numel; at += ADAMW_PIECE)
                rc = put_piece(f, w, i, k, at,
                               numel - at < ADAMW_PIECE ? numel - at : ADAMW_PIECE, err);
        }
    return rc;
}

int bnb_optimizer_file_write(struct ckpt_out *out, const struct adamw_param *param, size_t n_param,
                             const struct adamw_group *group, size_t n_group, int states,
                             int64_t step, const struct adamw_reader *reader, struct ckpt_err *err)
{
    struct file f = {.param = param, .n_param = n_param, .states = states, .reader = reader,
                     .code = ckpt_alloc_buffer((size_t)ADAMW_PIECE),
                     .piece = ckpt_alloc_buffer((size_t)ADAMW_PIECE * sizeof *f.piece)};
    size_t n = 2 + PER_PARAM * n_param;
    struct value *root = value_dict(&f.a, false), *state = value_dict(&f.a, false);
    struct value *groups = value_list(&f.a);
    struct torch_writer *w = NULL;
    int rc = 0;

    f.storage = ckpt_arena_alloc(&f.a, n, sizeof *f.storage);
    if (!f.storage || !f.code || !f.piece)
        rc = CKPT_ENOMEM;
    for (int k = 0; rc == 0 && k < 2; k++) {
        bnb_codec_init(&f.codec[k], k == 0);
        f.storage[k] = (struct torch_storage){.dtype = CKPT_F32, .numel = 256};
    }
    for (size_t i = 2; rc == 0 && i < n; i++)
        f.storage[i] = (struct torch_storage){.dtype = CKPT_F32};
    for (size_t i = 0; rc == 0 && i < n_param; i++)
        rc = (size_t)param[i].group < n_group ? add_param(&f, state, i, step) : CKPT_ENOMEM;
    for (size_t g = 0; rc == 0 && g < n_group; g++)
        rc = value_append(&f.a, groups, group_value(&f.a, &group[g], g, param, n_param));
    if (rc || value_set_str(&f.a, root, "state", state) ||
        value_set_str(&f.a, root, "param_groups", groups)) {
        ckpt_out_abort(out);
        rc = ckpt_nomem(err, (size_t)f.a.used);
    } else {
        rc = torch_writer_new(&w, out, "archive", root, f.storage, n, NULL, err);
    }
    if (rc == 0)
        rc = put_states(&f, w, err);
    if (w && rc == 0)
        rc = torch_writer_commit(w, err);
    else
        torch_writer_abort(w);
    ckpt_free(f.code);
    ckpt_free(f.piece);
    ckpt_arena_release(&f.a);
    return rc;
}
