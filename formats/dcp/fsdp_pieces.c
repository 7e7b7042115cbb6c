/* fsdp_pieces - see fsdp_pieces.h. */
#include "formats/dcp/fsdp_pieces.h"

#include <string.h>

#include "formats/torch/names.h"
#include "formats/torch/shard.h"

#define MAX_DEPTH  16
#define MAX_VISITS ((size_t)4 << 20)

struct frame {
    const struct value *v;
    size_t              i;
};

struct walker {
    struct fsdp_rank           *out;
    const struct torch_archive *a;
    struct ckpt_file           *file;
    struct ckpt_arena          *arena;
    struct ckpt_err            *err;
    struct frame                frame[MAX_DEPTH];
    const char                 *part[MAX_DEPTH + 1];
    size_t                      depth, visits;
};

void fsdp_pieces_release(struct fsdp_rank *r)
{
    ckpt_free(r->item);
    memset(r, 0, sizeof *r);
}

/* Add a piece at the current path. */
static int add(struct walker *w, struct fsdp_piece **out)
{
    struct fsdp_rank *r = w->out;
    size_t depth = w->depth ? w->depth : 1;     /* name of a bare tensor */
    const char **part = ckpt_arena_alloc(w->arena, depth, sizeof *part);

    if (!part)
        return ckpt_nomem(w->err, w->depth * sizeof *part);
    if (ckpt_reserve(&r->item, r->n, &r->cap, sizeof *r->item, w->err))
        return CKPT_ENOMEM;
    part[0] = "tensor";
    memcpy(part, w->part, w->depth * sizeof *part);
    r->item[r->n] = (struct fsdp_piece){.part = part, .n_part = depth};
    *out = &r->item[r->n++];
    return 0;
}

/* Locate tensor t in the rank's file; not if it is empty.  start: of t in the piece's tensor,
 * NULL when t is all of it. */
static int place(struct walker *w, struct fsdp_piece *p, const struct value_tensor *t,
                 const int64_t *start)
{
    struct ckpt_fragment *found;
    int64_t numel;
    int rc;

    if (!ckpt_shape_numel(&numel, &t->shape))
        return ckpt_fail(w->err, CKPT_EFORMAT, "its size overflows");
    if (numel == 0)
        return 0;
    if ((rc = torch_archive_fragment(&found, w->arena, w->a, t, w->err)) != 0)
        return rc;
    p->frag = *found;
    p->frag.file = w->file;
    p->frag.box = start ? ckpt_fragment_box(w->arena, t->shape.rank, start, t->shape.dim) : NULL;
    if (start && !p->frag.box)
        return ckpt_nomem(w->err, sizeof *p->frag.box);
    return 0;
}

static int add_plain(struct walker *w, const struct value_tensor *t)
{
    struct fsdp_piece *p;
    int rc;

    if ((rc = add(w, &p)) != 0)
        return rc;
    p->plain = true;
    p->dtype = t->dtype;
    p->shape = t->shape;
    return place(w, p, t, NULL);
}

/* Add the rank's boxes of a distributed tensor; a piece without elements if it has none. */
static int add_boxes(struct walker *w, const struct torch_shard *s)
{
    struct fsdp_piece *p;
    int rc;

    for (size_t i = 0; i < (s->n ? s->n : 1); i++) {
        if ((rc = add(w, &p)) != 0)
            return rc;
        p->dtype = s->dtype;
        p->shape = s->shape;
        if (s->n == 0)
            continue;
        if ((rc = place(w, p, s->piece[i].tensor, s->piece[i].start)) != 0)
            return rc;
    }
    if (s->world > w->out->world)
        w->out->world = s->world;
    if (s->rank >= 0)
        w->out->rank = s->rank;
    return 0;
}

static bool ends_in(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n >= k && strcmp(s + n - k, tail) == 0;
}

/* Use a record that may stand for a tensor.  *entered: it does not. */
static int take_record(struct walker *w, const struct value *v, bool *entered)
{
    const struct torch_name *row = torch_name_find(v->u.obj.module, v->u.obj.name);
    struct torch_shard s;
    int rc;

    *entered = false;
    if (row && row->what == NAME_PARAMETER && value_is(value_arg(v, 0), VALUE_OBJECT))
        v = value_arg(v, 0);            /* a Parameter around it changes nothing */
    if (torch_shard_is(v)) {
        if (w->depth && ends_in(w->part[w->depth - 1], "flat_param"))
            w->out->local = true;
        rc = torch_shard_read(&s, w->arena, v, w->err);
        return rc ? rc : add_boxes(w, &s);
    }
    if (row && row->what >= NAME_UNREAD)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "of kind %s.%s, which is not read",
                         v->u.obj.module, v->u.obj.name);
    *entered = true;
    return 0;
}

static int visit(struct walker *w, const struct value *v)
{
    bool enter = value_is(v, VALUE_DICT) || value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE);
    int rc = 0;

    if (++w->visits > MAX_VISITS)
        return ckpt_fail(w->err, CKPT_ELIMIT, "the values unfold to more than %zu", MAX_VISITS);
    if (value_is(v, VALUE_TENSOR))
        rc = add_plain(w, v->u.tensor);
    else if (value_is(v, VALUE_OBJECT))
        rc = take_record(w, v, &enter);
    if (rc)
        return ckpt_err_in(w->err, "%s", w->depth ? w->part[w->depth - 1] : "tensor");
    /* Skip records that are not tensors, and values nested deeper than state dicts are. */
    if (enter && !value_is(v, VALUE_OBJECT) && w->depth < MAX_DEPTH)
        w->frame[w->depth++] = (struct frame){v, 0};
    return 0;
}

/* The next child of the innermost container; NULL when there is none. */
static const struct value *next(struct walker *w, int *rc)
{
    struct frame *f = &w->frame[w->depth - 1];
    size_t i = f->i++;
    int64_t n = (int64_t)i;
    const char *name = NULL;

    *rc = 0;
    if (f->v->kind == VALUE_DICT) {
        if (i >= f->v->u.dict.n)
            return NULL;
        name = value_as_str(f->v->u.dict.key[i]);
        if (!name && !value_as_int(f->v->u.dict.key[i], &n))
            name = "?";
    } else if (i >= f->v->u.seq.n) {
        return NULL;
    }
    if (!name)
        name = ckpt_arena_printf(w->arena, "%lld", (long long)n);
    if (!name || !(name = ckpt_arena_strndup(w->arena, name, strlen(name)))) {
        *rc = ckpt_nomem(w->err, 64);
        return NULL;
    }
    w->part[w->depth - 1] = name;
    return f->v->kind == VALUE_DICT ? f->v->u.dict.val[i] : f->v->u.seq.item[i];
}

/* Mark the place of param_groups, which are beside an optimizer's state. */
static int mark(struct walker *w)
{
    struct fsdp_piece *p;
    int rc;

    if (strcmp(w->part[w->depth - 1], "param_groups") != 0)
        return 0;
    if ((rc = add(w, &p)) != 0)
        return rc;
    p->marker = true;
    return 0;
}

int fsdp_pieces_read(struct fsdp_rank *out, const struct torch_archive *a,
                     struct ckpt_file *file, struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct walker w = {.out = out, .a = a, .file = file, .arena = arena, .err = err};
    int rc;

    out->world = out->rank = -1;
    rc = visit(&w, torch_archive_root(a));
    while (rc == 0 && w.depth > 0) {
        const struct value *v = next(&w, &rc);

        if (rc)
            break;
        if (!v) {
            w.depth--;
            continue;
        }
        rc = mark(&w);
        if (rc == 0)
            rc = visit(&w, v);
    }
    return rc;
}
