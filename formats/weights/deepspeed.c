/*
 * deepspeed - see deepspeed.h.  Source: DeepSpeed 0.19.8 utils/zero_to_fp32.py and the classes
 * that write the files; where that converter drops or refuses something (stage 0, frozen weights
 * of stage 1, BF16_Optimizer), this reader does not.
 */
#include "formats/weights/deepspeed.h"

#include <string.h>

#include "formats/place.h"
#include "formats/weights/deepspeed_files.h"
#include "formats/weights/deepspeed_layout.h"
#include "formats/weights/side_files.h"
#include "libckpt/json.h"

struct ds {
    struct ckpt_dir   *dir;
    struct ds_files    files;
    struct side_files  side;
};

/* Reading goes on inside one checkpoint: what every step needs. */
struct reader {
    struct ds           *ds;
    struct ckpt_tensors *list;
    bool                 optimizer;
    struct ckpt_err     *err;
};

static void close_ds(void *self)
{
    struct ds *d = self;

    ds_files_close(&d->files);
    side_files_close(&d->side);
    ckpt_dir_close(d->dir);
    ckpt_free(d);
}

/* torch.Size((..)) or a plain tuple. */
static int read_size(struct reader *r, struct ckpt_shape *out, const struct value *v)
{
    if (value_names(v, "torch", "Size") && v->u.obj.args && v->u.obj.args->u.seq.n == 1)
        v = v->u.obj.args->u.seq.item[0];
    if ((!value_is(v, VALUE_TUPLE) && !value_is(v, VALUE_LIST)) || v->u.seq.n > CKPT_MAX_RANK)
        return ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: a shape is no tuple of up to %d",
                         CKPT_MAX_RANK);
    out->rank = (int)v->u.seq.n;
    for (int i = 0; i < out->rank; i++)
        if (!value_as_int(v->u.seq.item[i], &out->dim[i]) || out->dim[i] < 0)
            return ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: a dimension is no number >= 0");
    return 0;
}

/* A 1-D contiguous tensor of a rank's file as one fragment. */
static int flat_fragment(struct reader *r, struct ckpt_fragment **out, int64_t *numel,
                         enum ckpt_dtype *dtype, const struct torch_archive *a,
                         const struct value *v, const char *what)
{
    if (!value_is(v, VALUE_TENSOR) || v->u.tensor->shape.rank != 1)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s is no flat tensor",
                         ckpt_file_name(torch_archive_file(a)), what);
    *numel = v->u.tensor->shape.dim[0];
    *dtype = v->u.tensor->dtype;
    if (torch_archive_fragment(out, &r->list->arena, a, v->u.tensor, r->err))
        return r->err->code;
    return (*out)->stride && *numel > 1
               ? ckpt_fail(r->err, CKPT_EFORMAT, "%s: %s is not contiguous",
                           ckpt_file_name(torch_archive_file(a)), what)
               : 0;
}

/* One group's flat tensor on every rank. */
struct group {
    struct ckpt_fragment **flat;        /* [ranks] */
    int64_t               *numel;       /* [ranks] */
    enum ckpt_dtype        dtype;
};

typedef const struct value *find_fn(const struct ds_rank *rank, size_t group, const char *state);

static int read_group(struct reader *r, struct group *g, size_t index, find_fn *find,
                      const char *state)
{
    size_t n = r->ds->files.n;

    g->flat = ckpt_arena_alloc(&r->list->arena, n, sizeof *g->flat);
    g->numel = ckpt_arena_alloc(&r->list->arena, n, sizeof *g->numel);
    if (!g->flat || !g->numel)
        return ckpt_nomem(r->err, n * sizeof *g->flat);
    for (size_t k = 0; k < n; k++) {
        const struct ds_rank *rank = &r->ds->files.rank[k];
        enum ckpt_dtype dtype;

        if (flat_fragment(r, &g->flat[k], &g->numel[k], &dtype, rank->optim,
                          find(rank, index, state), state))
            return r->err->code;
        if (k > 0 && dtype != g->dtype)
            return ckpt_fail(r->err, CKPT_EFORMAT, "rank %zu: %s is %s, rank 0 has %s", k, state,
                             ckpt_dtype_name(dtype), ckpt_dtype_name(g->dtype));
        g->dtype = dtype;
    }
    return 0;
}

static const struct value *item(const struct value *list, size_t i)
{
    return (value_is(list, VALUE_LIST) || value_is(list, VALUE_TUPLE)) && i < list->u.seq.n
               ? list->u.seq.item[i] : NULL;
}

/* dict[i] of a dictionary with number keys. */
static const struct value *numbered(const struct value *dict, size_t i)
{
    int64_t k;

    for (size_t j = 0; value_is(dict, VALUE_DICT) && j < dict->u.dict.n; j++)
        if (value_as_int(dict->u.dict.key[j], &k) && k == (int64_t)i)
            return dict->u.dict.val[j];
    return NULL;
}

/* Stage 3: master weights, or a moment, of sub-group g. */
static const struct value *find3(const struct ds_rank *rank, size_t g, const char *state)
{
    if (strcmp(state, "fp32_flat_groups") == 0)
        return item(value_get(rank->optim_root, state), g);
    return value_get(numbered(value_get(value_get(rank->optim_root, "optimizer_state_dict"),
                                        "state"), g), state);
}

/* Stages 1 and 2: with elastic_checkpoint the state is a list, else a dictionary. */
static const struct value *find12(const struct ds_rank *rank, size_t g, const char *state)
{
    const struct value *base = value_get(rank->optim_root, "base_optimizer_state");

    if (strcmp(state, "single_partition_of_fp32_groups") == 0)
        return item(value_get(rank->optim_root, state), g);
    if (value_is(base, VALUE_LIST))
        return value_get(item(base, g), state);
    return value_get(numbered(value_get(base, "state"), g), state);
}

/* Add name with one fragment for each rank that holds some of it. */
static int add_pieces(struct reader *r, const char *name, const struct ckpt_shape *shape,
                      const struct group *g, const struct ds_piece *piece, enum ckpt_kind kind)
{
    size_t n = r->ds->files.n, used = 0;
    struct ckpt_fragment *frag = ckpt_arena_alloc(&r->list->arena, n, sizeof *frag);
    struct ckpt_tensor *added;

    if (!frag)
        return ckpt_nomem(r->err, n * sizeof *frag);
    for (size_t k = 0; k < n; k++) {
        if (piece[k].count == 0)
            continue;
        if (piece[k].at + piece[k].count > g->numel[k])
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "truncated",
                                "%s: rank %zu holds its elements up to %lld, its flat tensor has "
                                "%lld", name, k, (long long)(piece[k].at + piece[k].count),
                                (long long)g->numel[k]);
        frag[used] = *g->flat[k];
        frag[used].stride = NULL;
        frag[used].box.start[0] = piece[k].start;
        frag[used].box.count[0] = piece[k].count;
        frag[used++].offset += (uint64_t)piece[k].at * ckpt_dtype_size(g->dtype);
    }
    if (ckpt_tensors_add(r->list, &added, name, strlen(name), g->dtype, shape, frag, used, true,
                         r->err))
        return r->err->code;
    added->kind = kind;
    struct ckpt_shape flat = ckpt_shape_1d(added->numel);
    return ckpt_fragments_check(&flat, g->dtype, frag, used, r->err)
               ? ckpt_err_in(r->err, "%s", name) : 0;
}

/* What a moment of name is called, or name itself. */
static const char *state_name(struct reader *r, const char *name, const char *state, bool moment)
{
    return moment ? ckpt_arena_printf(&r->list->arena, "%s|%s", name, state) : name;
}

/* All parameters of one group, in the order of its shapes. */
static int add_group(struct reader *r, const struct value *shapes, size_t index, find_fn *find,
                     const char *state, bool moment)
{
    size_t n = r->ds->files.n;
    int w = (int)n, stage = r->ds->files.stage;
    struct ds_piece *piece = ckpt_arena_alloc(&r->list->arena, n, sizeof *piece);
    int64_t base = 0, total = 0;
    struct group g;

    if (!piece)
        return ckpt_nomem(r->err, n * sizeof *piece);
    if (!value_is(shapes, VALUE_DICT))
        return ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: group %zu is no dictionary", index);
    if (read_group(r, &g, index, find, state))
        return r->err->code;
    for (int pass = stage == 3; pass < 2; pass++)       /* stages 1 and 2 need the sum first */
        for (size_t i = 0; i < shapes->u.dict.n; i++) {
            const char *name = value_as_str(shapes->u.dict.key[i]);
            struct ckpt_shape shape;
            int64_t numel;

            if (!name || read_size(r, &shape, shapes->u.dict.val[i]) ||
                !ckpt_shape_numel(&numel, &shape))
                return r->err->code ? r->err->code
                                    : ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: no name");
            if (pass == 0) {
                total += numel;
                continue;
            }
            for (int k = 0; k < w; k++)
                piece[k] = stage == 3 ? ds3_piece(numel, base, k, w)
                                      : ds12_piece(base, numel, total, k, w);
            name = state_name(r, name, state, moment);
            if (!name)
                return ckpt_nomem(r->err, 64);
            if (add_pieces(r, name, &shape, &g, piece, moment ? CKPT_OPTIM : CKPT_WEIGHT))
                return r->err->code;
            base += stage == 3 ? ds3_part(numel, w) : numel;
        }
    for (int k = 0; k < w; k++)
        if (stage == 3 && g.numel[k] != base)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "rank %d: group %zu has %lld elements, its parameters need %lld", k,
                             index, (long long)g.numel[k], (long long)base);
    return 0;
}

/* Parts of parameters that were not trained: 16-bit, cut as stage 3 cuts (stage 2: whole). */
static int add_frozen(struct reader *r)
{
    const struct ds_files *f = &r->ds->files;
    const struct value *shapes = value_get(f->rank[0].model_root, "frozen_param_shapes");
    size_t n = f->n;
    struct ds_piece *piece = ckpt_arena_alloc(&r->list->arena, n, sizeof *piece);
    struct group g = {.flat = ckpt_arena_alloc(&r->list->arena, n, sizeof *g.flat),
                      .numel = ckpt_arena_alloc(&r->list->arena, n, sizeof *g.numel)};

    if (!piece || !g.flat || !g.numel)
        return ckpt_nomem(r->err, n * sizeof *piece);
    for (size_t i = 0; f->stage == 3 && value_is(shapes, VALUE_DICT) && i < shapes->u.dict.n; i++) {
        const char *name = value_as_str(shapes->u.dict.key[i]);
        struct ckpt_shape shape;
        int64_t numel;

        if (!name || read_size(r, &shape, shapes->u.dict.val[i]) ||
            !ckpt_shape_numel(&numel, &shape))
            return r->err->code ? r->err->code
                                : ckpt_fail(r->err, CKPT_EFORMAT, "frozen_param_shapes: no name");
        for (size_t k = 0; k < n; k++) {
            const struct value *frag =
                value_get(value_get(f->rank[k].model_root, "frozen_param_fragments"), name);

            if (flat_fragment(r, &g.flat[k], &g.numel[k], &g.dtype, f->rank[k].model, frag, name))
                return r->err->code;
            piece[k] = ds3_piece(numel, 0, (int)k, (int)n);
        }
        if (add_pieces(r, name, &shape, &g, piece, CKPT_WEIGHT))
            return r->err->code;
    }
    return 0;
}

static bool in_list(const struct value *list, const char *name)
{
    for (size_t i = 0; (value_is(list, VALUE_LIST) || value_is(list, VALUE_SET)) &&
                       i < list->u.seq.n; i++)
        if (value_as_str(list->u.seq.item[i]) &&
            strcmp(value_as_str(list->u.seq.item[i]), name) == 0)
            return true;
    return false;
}

/* A tensor that lies whole in rank 0's model file. */
static int add_whole(struct reader *r, const char *name, const struct value_tensor *t,
                     enum ckpt_kind kind)
{
    struct ckpt_fragment *frag = NULL;
    struct ckpt_tensor *added;
    int64_t numel;

    ckpt_shape_numel(&numel, &t->shape);
    if (numel > 0 && torch_archive_fragment(&frag, &r->list->arena, r->ds->files.rank[0].model, t,
                                            r->err))
        return r->err->code;
    if (ckpt_tensors_add(r->list, &added, name, strlen(name), t->dtype, &t->shape, frag,
                         frag != NULL, false, r->err))
        return r->err->code;
    added->kind = kind;
    return 0;
}

/*
 * What only `module` has: buffers, frozen weights of stages 1 and 2, everything of stage 0.
 * Stage 3's placeholders have no elements and are passed over.  Names in shared_params come
 * later, as aliases.
 */
static int add_module(struct reader *r)
{
    const struct value *root = r->ds->files.rank[0].model_root;
    const struct value *module = value_get(root, "module");
    const struct value *buffers = value_get(root, "buffer_names");
    const struct value *shared = value_get(root, "shared_params");

    for (size_t i = 0; value_is(module, VALUE_DICT) && i < module->u.dict.n; i++) {
        const char *name = value_as_str(module->u.dict.key[i]);
        const struct value *v = module->u.dict.val[i];
        int64_t numel;

        if (!name || !value_is(v, VALUE_TENSOR) || value_get(shared, name) ||
            ckpt_tensors_find(r->list, name) != SIZE_MAX)
            continue;
        ckpt_shape_numel(&numel, &v->u.tensor->shape);
        if (r->ds->files.stage == 3 && numel == 0 && !in_list(buffers, name))
            continue;
        if (add_whole(r, name, v->u.tensor, in_list(buffers, name) ? CKPT_BUFFER : CKPT_WEIGHT))
            return r->err->code;
    }
    return 0;
}

/* Tied names: the same pieces under another name. */
static int add_aliases(struct reader *r)
{
    const struct value *shared = value_get(r->ds->files.rank[0].model_root, "shared_params");

    for (size_t i = 0; value_is(shared, VALUE_DICT) && i < shared->u.dict.n; i++) {
        const char *alias = value_as_str(shared->u.dict.key[i]);
        const char *kept = value_as_str(shared->u.dict.val[i]);
        size_t k = kept ? ckpt_tensors_find(r->list, kept) : SIZE_MAX;
        struct ckpt_tensor t, *added;

        if (!alias || k == SIZE_MAX || ckpt_tensors_find(r->list, alias) != SIZE_MAX)
            continue;
        t = r->list->item[k];
        if (ckpt_tensors_add(r->list, &added, alias, strlen(alias), t.dtype, &t.shape, t.frag,
                             t.n_frag, t.flat, r->err))
            return r->err->code;
        added->kind = t.kind;
        added->alias_of = k;
    }
    return 0;
}

/* Stage 0 keeps names that share storage as they are: find them by their bytes. */
static void tie_equal(struct ckpt_tensors *list)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct ckpt_tensor *a = &list->item[k], *b = &list->item[i];

            if (a->n_frag == 1 && b->n_frag == 1 && !a->flat && !b->flat &&
                a->frag->file == b->frag->file && a->frag->offset == b->frag->offset &&
                ckpt_shape_equal(&a->shape, &b->shape) && a->alias_of == k) {
                list->item[i].alias_of = k;
                break;
            }
        }
}

/* Weights, then what else there is, then moments. */
static int list_all(struct reader *r)
{
    static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
    const struct ds_files *f = &r->ds->files;
    const struct value *shapes = value_get(f->rank[0].model_root, "param_shapes");
    find_fn *find = f->stage == 3 ? find3 : find12;
    const char *master = f->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    size_t n = f->stage > 0 && value_is(shapes, VALUE_LIST) ? shapes->u.seq.n : 0;

    if (f->stage > 0 && !value_is(shapes, VALUE_LIST))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED,
                         "no param_shapes in the model file: written before DeepSpeed 0.6");
    for (size_t g = 0; g < n; g++)
        if (add_group(r, shapes->u.seq.item[g], g, find, master, false))
            return r->err->code;
    if (add_frozen(r) || add_module(r) || add_aliases(r))
        return r->err->code;
    if (f->stage == 0)
        tie_equal(r->list);
    for (size_t m = 0; r->optimizer && m < 2; m++)
        for (size_t g = 0; g < n; g++)
            if (add_group(r, shapes->u.seq.item[g], g, find, moments[m], true))
                return r->err->code;
    return 0;
}

/* Facts that the files tell: numbers, the configuration, the optimizer's groups. */
static json_t *facts(const struct ds_files *f)
{
    static const char *const keys[] = {"ds_version", "global_steps", "global_samples",
                                       "skipped_steps", "dp_world_size", "ds_config"};
    const struct value *root = f->rank[0].model_root, *o = f->rank[0].optim_root, *groups;
    json_t *info = json_pack("{s:s,s:s,s:i,s:I}", "format", "deepspeed", "tag", f->tag,
                             "zero_stage", f->stage, "world_size", (json_int_t)f->n);

    for (size_t i = 0; info && i < sizeof keys / sizeof keys[0]; i++)
        if (value_get(root, keys[i]))
            json_object_set_new(info, keys[i], value_to_json(value_get(root, keys[i]), 2000));
    groups = value_get(value_get(o, f->stage == 3 ? "optimizer_state_dict"
                                                  : "base_optimizer_state"), "param_groups");
    if (info && groups)
        json_object_set_new(info, "param_groups", value_to_json(groups, 2000));
    if (info && value_get(o, "loss_scaler"))
        json_object_set_new(info, "loss_scaler", value_to_json(value_get(o, "loss_scaler"), 200));
    return info;
}

static const struct ckpt_source_ops ops = {.format = "deepspeed", .close = close_ds};

static bool is_tag_folder(const struct ckpt_place *p)
{
    return place_has(p, "mp_rank_00_model_states.pt") ||
           place_has_like(p, "*zero_pp_rank_*_mp_rank_00_optim_states.pt");
}

static int bid(const struct ckpt_place *p)
{
    bool folder = false;

    if (!p->dir)
        return 0;
    if (is_tag_folder(p))
        return 90;
    for (size_t i = 0; i < p->n_entry; i++)
        folder = folder || p->entry[i].is_dir;
    return folder && place_has(p, "latest") ? 80 : 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct reader r = {.list = &list, .optimizer = opts->optimizer, .err = err};
    char tag[256] = "";
    struct ds *d;
    int rc;

    *out = NULL;
    if (!place->dir)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: a DeepSpeed directory wanted, is a file",
                         place->path);
    d = ckpt_alloc(1, sizeof *d);
    if (!d)
        return ckpt_nomem(err, sizeof *d);
    d->dir = place->dir;
    place->took = true;
    r.ds = d;
    rc = is_tag_folder(place) ? 0 : ds_find_tag(tag, d->dir, opts->tag, err);
    if (rc == 0)
        rc = ds_files_open(&d->files, d->dir, tag, err);
    if (rc == 0)
        rc = list_all(&r);
    if (rc == 0)
        rc = side_files_open(&d->side, d->dir, &list.arena, err);
    if (rc) {
        ckpt_err_in(err, "%s", place->path);
        close_ds(d);
        ckpt_tensors_release(&list);
        return rc;
    }
    return ckpt_source_new(out, &ops, d, &list, d->side.item, d->side.n, facts(&d->files), err);
}

const struct ckpt_format ckpt_format_deepspeed = {
    .name = "deepspeed", .title = "DeepSpeed checkpoint", .bid = bid, .open = open_source,
};
