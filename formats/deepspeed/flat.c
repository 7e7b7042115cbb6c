/* deepspeed/flat - see deepspeed/flat.h. */
#include "formats/deepspeed/flat.h"

#include <assert.h>
#include <string.h>

#include "formats/deepspeed/experts.h"
#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/mappings.h"
#include "formats/deepspeed/swap.h"

/* A rank's part of a flat tensor. */
struct part {
    size_t                rank, group;  /* index of the tensor there */
    struct ckpt_fragment *frag;
    int64_t               numel;
    struct ds_piece       piece;        /* of the current parameter */
    size_t                mapped;       /* entries of param_slice_mappings consumed */
};

/* One flat tensor of the ranks that partition it: all ranks, except for groups of experts. */
struct flat {
    struct part    *part;               /* [n] */
    size_t          n;                  /* ranks */
    enum ckpt_dtype dtype;
    size_t          size, p;            /* member p of groups of `size` ranks owns it */
    int             align;              /* stages 1 and 2: unit of the padding */
};

struct reader {
    struct ckpt_tensors   *list;
    const struct ds_files *f;
    const char            *state;       /* moment, or NULL for weights */
    const char            *what;        /* the flat tensors' key in the files */
    struct flat            flat;
    struct ckpt_err       *err;
};

/* Fragment of a contiguous 1-D tensor of an archive, all of it.  what names it in errors. */
static int flat_fragment(struct ckpt_fragment **out, int64_t *numel, enum ckpt_dtype *dtype,
                         struct ckpt_arena *arena, const struct torch_archive *a,
                         const struct value *v, const char *what, struct ckpt_err *err)
{
    const char *file = ckpt_file_name(torch_archive_file(a));

    if (!value_is(v, VALUE_TENSOR) || v->u.tensor->shape.rank != 1)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %s is no flat tensor", file, what);
    *numel = v->u.tensor->shape.dim[0];
    *dtype = v->u.tensor->dtype;
    if (*numel > 1 && v->u.tensor->stride[0] != 1)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %s is not contiguous", file, what);
    if (ckpt_dtype_size(*dtype) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s is of %s", file, what,
                         ckpt_dtype_name(*dtype));
    *out = NULL;
    return *numel > 0 ? torch_archive_fragment(out, arena, a, v->u.tensor, err) : 0;
}

/* Make r->flat the parts of flat group g that member p of groups of `size` ranks owns. */
static void share(struct reader *r, size_t g, size_t size, size_t p)
{
    r->flat.size = size;
    r->flat.p = p;
    r->flat.n = r->f->n / size;
    for (size_t k = 0; k < r->flat.n; k++) {
        struct part *part = &r->flat.part[k];

        part->rank = ds_expert_rank(r->f, size, p, k);
        part->group = ds_expert_group(r->f, part->rank, g);
    }
}

static int begin(struct reader *r)
{
    size_t n = r->f->n;

    r->flat.part = ckpt_arena_alloc(&r->list->arena, n, sizeof *r->flat.part);
    if (!r->flat.part)
        return ckpt_nomem(r->err, n * sizeof *r->flat.part);
    share(r, 0, 1, 0);
    return 0;
}

/* Rank's tensor of group g. */
static const struct value *find(const struct reader *r, size_t rank, size_t g)
{
    return r->state ? value_get(ds_state(r->f, rank, g), r->state)
                    : value_item(value_get(r->f->rank[rank].optim_root, r->what), g);
}

/* Add the flat tensor of rank number k to r->flat; all ranks must have the same dtype. */
static int take_flat(struct reader *r, size_t k, const struct torch_archive *a,
                     const struct value *v, const char *what)
{
    struct part *part = &r->flat.part[k];
    enum ckpt_dtype dtype = CKPT_DTYPE_NONE;
    int rc = flat_fragment(&part->frag, &part->numel, &dtype, &r->list->arena, a, v, what, r->err);

    if (rc)
        return rc;
    if (k > 0 && dtype != r->flat.dtype)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch", "rank %zu: %s is %s, rank %zu has %s",
                            part->rank, what, ckpt_dtype_name(dtype), r->flat.part[0].rank,
                            ckpt_dtype_name(r->flat.dtype));
    r->flat.dtype = dtype;
    return 0;
}

/* Add name with one fragment for each rank that has a part of it. */
static int add_pieces(struct reader *r, const char *name, const struct ckpt_shape *shape,
                      enum ckpt_kind kind)
{
    const struct flat *flat = &r->flat;
    size_t n = 0;
    struct ckpt_fragment *frag;
    struct ckpt_tensor *added;
    struct ckpt_shape all;
    int rc;

    /* A parameter that ties pipeline stages is listed in each of them. */
    if (r->f->mp > 0 && ckpt_tensors_find(r->list, name) != SIZE_MAX)
        return ckpt_shape_equal(&r->list->item[ckpt_tensors_find(r->list, name)].shape, shape)
                   ? 0 : ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch", "mp_rank_%02zu: %s has "
                                      "another shape than in a stage before", r->f->mp, name);
    for (size_t k = 0; k < flat->n; k++)
        n += flat->part[k].piece.count > 0;
    frag = ckpt_arena_alloc(&r->list->arena, n, sizeof *frag);
    if (!frag)
        return ckpt_nomem(r->err, n * sizeof *frag);
    n = 0;
    for (size_t k = 0; k < flat->n; k++) {
        const struct part *part = &flat->part[k];
        const struct ds_piece *p = &part->piece;

        if (p->count == 0)
            continue;
        if (p->at > part->numel || p->count > part->numel - p->at)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "truncated",
                                "rank %zu: %s reaches to element %lld of a flat tensor of %lld",
                                part->rank, name, (long long)(p->at + p->count),
                                (long long)part->numel);
        assert(part->frag);             /* a tensor with elements has a fragment */
        frag[n] = *part->frag;
        frag[n].stride = NULL;
        frag[n].box = ckpt_fragment_box(&r->list->arena, 1, &p->start, &p->count);
        if (!frag[n].box)
            return ckpt_nomem(r->err, sizeof *frag[n].box);
        frag[n++].offset += (uint64_t)p->at * ckpt_dtype_size(flat->dtype);
    }
    if ((rc = ckpt_tensors_add(r->list, &added, name, strlen(name), flat->dtype, shape, frag, n,
                               true, r->err)) != 0)
        return rc;
    added->kind = kind;
    all = ckpt_shape_1d(added->numel);
    return ckpt_fragment_check(&all, flat->dtype, frag, n, r->err)
               ? ckpt_err_in(r->err, "%s", name) : 0;
}

/* -- checks against other facts in the files ------------------------------------------------- */

/* Filler after parameter i of group g in the flat buffer (0.19.8; 0 in nearly every run). */
static int64_t filler(const struct reader *r, size_t g, size_t i)
{
    const struct value *v = value_get(r->f->rank[0].optim_root, "param_alignment_paddings");
    int64_t n;

    v = value_item(value_item(v, g), i);
    return value_as_int(v, &n) && n > 0 && n < INT64_MAX >> 20 ? n : 0;
}

/* Elements that a parameter occupies: in each rank's tensor for stage 3, else in the flat group. */
static int64_t extent(const struct reader *r, size_t g, size_t i, int64_t numel)
{
    return r->f->stage == 3 ? ds3_part(numel, (int)r->flat.n) : numel + filler(r, g, i);
}

/* The sum of that over group g. */
static int sum_extents(struct reader *r, const struct value *shapes, size_t g, int64_t *total)
{
    struct ds_listed p;
    int rc;

    *total = 0;
    for (size_t i = 0; i < shapes->u.dict.n; i++) {
        if ((rc = ds_shape_at(&p, shapes, i, "param_shapes", r->err)) != 0)
            return rc;
        if (__builtin_add_overflow(*total, extent(r, g, i, p.numel), total) ||
            *total > INT64_MAX / 64)
            return ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: group %zu has more elements than "
                             "can be", g);
    }
    return 0;
}

/* In stages 1 and 2 a rank's part must have its length with or without the padding. */
static int check_part(struct reader *r, size_t g, int64_t total)
{
    int world = (int)r->flat.n;
    int64_t part = ds12_part(total, world, DS_ALIGN), first = r->flat.part[0].numel, said;

    /* Old versions padded less: the first rank's part reveals it, if that makes a difference. */
    r->flat.align = DS_ALIGN;
    if (first != part && first != part - ds12_padding(total, 0, world, DS_ALIGN) &&
        first == ds12_part(total, world, DS_ALIGN_OLD)) {
        r->flat.align = DS_ALIGN_OLD;
        part = first;
    }

    for (int k = 0; k < world; k++) {
        int64_t pad = ds12_padding(total, k, world, r->flat.align), n = r->flat.part[k].numel;
        size_t rank = r->flat.part[k].rank;
        const struct value *v = value_get(r->f->rank[rank].optim_root, "group_paddings");
        /* BF16_Optimizer records all of the padding on the last rank, wherever it is. */
        int64_t noted = !r->f->bf16 ? pad : k == world - 1 ? part * world - total : 0;

        if (n != part && n != part - pad)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: its part of group %zu has %lld elements, the parameters "
                                "need %lld and %lld of padding", rank, g, (long long)n,
                                (long long)(part - pad), (long long)pad);
        if (value_as_int(value_item(v, r->flat.part[k].group), &said) && said != noted)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: says that group %zu has %lld elements of padding, the "
                                "parameters leave %lld", rank, g, (long long)said,
                                (long long)noted);
    }
    return 0;
}

/* Check param_slice_mappings, a rank's pieces in flat order, against the layout. */
static int check_mapping(struct reader *r, const char *name)
{
    for (size_t k = 0; k < r->flat.n; k++) {
        struct part *part = &r->flat.part[k];
        const struct ds_piece *p = &part->piece;
        const struct value *all = value_get(r->f->rank[part->rank].optim_root,
                                            "param_slice_mappings");
        const struct value *map = value_item(all, part->group);
        size_t at = part->mapped;
        int64_t numel, start;
        const char *found;

        if (p->count == 0 || !value_is(map, VALUE_DICT))
            continue;
        found = at < map->u.dict.n ? value_as_str(map->u.dict.key[at]) : NULL;
        if (!found || strcmp(found, name) != 0 ||
            !ds_address(map->u.dict.val[at], &numel, &start) || numel != p->count || start != p->at)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: param_slice_mappings does not have %s as %lld elements "
                                "from %lld, as the shapes have it", part->rank, name,
                                (long long)p->count, (long long)p->at);
        part->mapped++;
    }
    return 0;
}

/*
 * Mappings have the order of the shapes, except with round robin gradients (where they are wrong:
 * DeepSpeed 0.19.8 computes them before it reorders).
 */
static bool has_mappings(const struct reader *r)
{
    const struct value *config = value_get(r->f->rank[0].model_root, "ds_config");
    int64_t on = 0;

    /* The configuration can be the path it was read from: then it is unknown. */
    if (r->f->stage == 3 || r->state || !value_is(config, VALUE_DICT))
        return false;
    return !(value_as_int(ds_zero_option(r->f, "round_robin_gradients"), &on) && on);
}

/* -- groups ---------------------------------------------------------------------------------- */

/* Compute a parameter's position on each rank; base is the sum of those before it. */
static void cut(struct reader *r, int64_t numel, int64_t base, int64_t total)
{
    int world = (int)r->flat.n;

    for (int k = 0; k < world; k++)
        r->flat.part[k].piece = r->f->stage == 3
                                    ? ds3_piece(numel, base, k, world)
                                    : ds12_piece(base, numel, total, k, world, r->flat.align);
}

/* Rename an expert as in the complete model; ranks count their own experts from 0. */
static int name_expert(struct ds_listed *param, const struct reader *r)
{
    const struct ds_expert *e;
    char a[96], b[96];
    int rc;

    if ((rc = ds_expert_find(&e, r->f->experts, param->name, r->flat.size, r->flat.p,
                             r->err)) != 0)
        return rc;
    if (!e)
        return r->flat.size == 1
                   ? 0 : ckpt_fail(r->err, CKPT_EFORMAT, "%s: is no expert, yet cut into %zu parts "
                                   "on %zu ranks", param->name, r->flat.n, r->f->n);
    if (!ckpt_shape_equal(&e->t->shape, &param->shape))
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch", "%s: is %s in its file, %s in "
                            "param_shapes", e->name, ckpt_shape_text(a, sizeof a, &e->t->shape),
                            ckpt_shape_text(b, sizeof b, &param->shape));
    param->name = e->name;
    return 0;
}

static int add_parameters(struct reader *r, const struct value *shapes, size_t g, int64_t total)
{
    bool mappings = has_mappings(r);
    int64_t base = 0;
    int rc;

    for (size_t k = 0; k < r->flat.n; k++)
        r->flat.part[k].mapped = 0;
    for (size_t i = 0; i < shapes->u.dict.n; i++) {
        struct ds_listed p;
        const char *name;

        if ((rc = ds_shape_at(&p, shapes, i, "param_shapes", r->err)) != 0)
            return rc;
        cut(r, p.numel, base, total);
        if ((mappings && (rc = check_mapping(r, p.name)) != 0) || (rc = name_expert(&p, r)) != 0)
            return rc;
        name = r->state ? ckpt_arena_printf(&r->list->arena, "%s|%s", p.name, r->state) : p.name;
        if (!name)
            return ckpt_nomem(r->err, 64);
        if ((rc = add_pieces(r, name, &p.shape, r->state ? CKPT_OPTIM : CKPT_WEIGHT)) != 0)
            return rc;
        base += extent(r, g, i, p.numel);
    }
    for (size_t k = 0; r->f->stage == 3 && k < r->flat.n; k++)
        if (r->flat.part[k].numel != base)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: %s %zu has %lld elements, its parameters need %lld", k,
                                r->what, g, (long long)r->flat.part[k].numel, (long long)base);
    return 0;
}

/* Add group g for the ranks that share it.  In stage 3 a swapped-out tensor is empty. */
static int add_share(struct reader *r, const struct value *shapes, size_t g)
{
    int64_t total;
    int rc;

    if ((rc = sum_extents(r, shapes, g, &total)) != 0)
        return rc;
    for (size_t k = 0; k < r->flat.n; k++) {
        struct part *part = &r->flat.part[k];
        const struct value *v = find(r, part->rank, part->group);

        if (!v)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "missing",
                                "rank %zu: no %s of group %zu, which param_shapes has", part->rank,
                                r->what, g);
        if ((rc = take_flat(r, k, r->f->rank[part->rank].optim, v, r->what)) != 0)
            return rc;
        if (r->f->stage != 3 || part->numel > 0 || total == 0)
            continue;
        part->numel = total;
        if ((rc = ds_swap_fragment(&part->frag, &r->list->arena, r->f, part->rank, v->u.tensor,
                                   total, r->what, r->err)) != 0)
            return rc;
    }
    if (r->f->stage != 3 && (rc = check_part(r, g, total)) != 0)
        return rc;
    return add_parameters(r, shapes, g, total);
}

static int add_group(struct reader *r, size_t g)
{
    const struct value *shapes = ds_shapes(r->f, 0, g);
    size_t n = r->f->n, parts = r->f->stage == 3 ? n : ds_group_partitions(r->f, 0, g);
    int rc;

    if (!value_is(shapes, VALUE_DICT))
        return ckpt_fail(r->err, CKPT_EFORMAT, "param_shapes: group %zu is no dictionary", g);
    if (parts == 0 || n % parts != 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "partition_count: group %zu is cut into %zu parts, "
                         "on %zu ranks", g, parts, n);
    for (size_t p = 0; p < n / parts; p++) {
        share(r, g, n / parts, p);
        if ((rc = add_share(r, shapes, g)) != 0)
            return rc;
    }
    return 0;
}

/* Check both ways: no flat tensor without shapes, no shapes without a flat tensor. */
static int check_groups(struct reader *r, size_t n)
{
    for (size_t k = 0; k < r->f->n; k++) {
        const struct value *all = value_get(r->f->rank[k].optim_root, r->what);
        size_t found = value_is(all, VALUE_LIST) ? all->u.seq.n : 0;

        if (found != n)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: %zu tensors in %s, param_shapes has %zu groups", k,
                                found, r->what, n);
    }
    return 0;
}

/* Whether the optimizer steps group g by another rule: its state has a tensor, and not this one. */
static bool has_others(const struct reader *r, size_t g)
{
    const char *name;
    struct value *v;

    if (find(r, 0, g))
        return false;
    for (size_t i = 0; value_next(ds_state(r->f, 0, g), &i, &name, &v);)
        if (value_is(v, VALUE_TENSOR) && v->u.tensor->shape.rank > 0)
            return true;
    return false;
}

int ds_flat_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                 struct ckpt_err *err)
{
    struct reader r = {.list = list, .f = f, .state = state, .err = err};
    size_t n = ds_shape_groups(f, 0), have = 0;
    int rc;

    r.what = state ? state : f->stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "param_shapes is in neither file of rank 0");
    if ((rc = begin(&r)) != 0 || (!state && (rc = check_groups(&r, n)) != 0))
        return rc;
    for (size_t g = 0; state && g < n; g++)
        have += find(&r, 0, g) != NULL;
    for (size_t g = 0; (!state || have > 0) && g < n; g++)
        if (!(state && has_others(&r, g)) && (rc = add_group(&r, g)) != 0)
            return rc;
    return 0;
}

int ds_frozen_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    struct reader r = {.list = list, .f = f, .what = "frozen_param_fragments", .err = err};
    const struct value *shapes = value_get(f->rank[0].model_root, "frozen_param_shapes");
    int rc;

    if (!value_is(shapes, VALUE_DICT))
        return 0;
    if ((rc = begin(&r)) != 0)
        return rc;
    for (size_t i = 0; i < shapes->u.dict.n; i++) {
        struct ds_listed p;

        if ((rc = ds_shape_at(&p, shapes, i, "frozen_param_shapes", err)) != 0)
            return rc;
        for (size_t k = 0; k < f->n; k++) {
            const struct value *all = value_get(f->rank[k].model_root, r.what);
            const char *key = value_is(all, VALUE_DICT) && i < all->u.dict.n
                                  ? value_as_str(all->u.dict.key[i]) : NULL;
            int64_t due = ds3_part(p.numel, (int)f->n);

            if (!key || strcmp(key, p.name) != 0)
                return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                    "rank %zu: entry %zu of %s is not %s", k, i, r.what, p.name);
            if ((rc = take_flat(&r, k, f->rank[k].model, all->u.dict.val[i], p.name)) != 0)
                return rc;
            if (r.flat.part[k].numel != due)
                return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                                    "rank %zu: its piece of %s has %lld elements, %lld are due", k,
                                    p.name, (long long)r.flat.part[k].numel, (long long)due);
        }
        cut(&r, p.numel, 0, 0);
        if ((rc = add_pieces(&r, p.name, &p.shape, CKPT_WEIGHT)) != 0)
            return rc;
    }
    return 0;
}
