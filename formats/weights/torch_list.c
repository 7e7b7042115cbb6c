/* torch_list - see torch_list.h. */
#include "formats/weights/torch_list.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/pickle.h"
#include "formats/weights/torch_names.h"
#include "formats/weights/torch_shard.h"
#include "libckpt/buf.h"
#include "libckpt/map.h"

/*
 * A shared part is listed under each of its paths: a file of a kilobyte could unfold to any
 * number of them.  Real files repeat little.
 */
#define VISITS_MIN ((size_t)1 << 16)
#define VISITS_PER 16
#define VISITS_MAX ((size_t)256 << 20)
#define MAX_PATH   ((size_t)1 << 20)

/* A container on the way down: its next child, and where its path ends. */
struct frame {
    const struct value *v;
    size_t              i, path_len;
};

struct lister {
    const struct torch_visitor *visitor;
    struct frame                frame[PICKLE_MAX_DEPTH + 8];
    size_t                      depth, visits, max_visits;
    struct ckpt_buf             path;
    enum ckpt_kind              kind;
    const struct value         *skip;   /* listed already */
    struct ckpt_err            *err;
};

/* The path of the value in work; a file that is one tensor has no path. */
static const char *name_of(const struct lister *l)
{
    return l->path.len ? (const char *)l->path.data : "tensor";
}

static size_t name_len(const struct lister *l) { return l->path.len ? l->path.len : 6; }

/* A record that stands for a tensor which could not be made one. */
static int check_object(struct lister *l, const struct value *v)
{
    const struct torch_name *row = torch_name_find(v->u.obj.module, v->u.obj.name);
    const struct value_seq *args = &v->u.obj.args->u.seq;

    if (!row || row->what < NAME_UNREAD)
        return 0;
    /* What it would be says more than what would make it. */
    if (row->what == NAME_FROM_TYPE && args->n > 1 && value_is(args->item[1], VALUE_GLOBAL))
        v = args->item[1];
    return ckpt_fail(l->err, CKPT_EUNSUPPORTED, "tensor %.*s: of kind %s.%s, which is not read",
                     (int)(name_len(l) < 256 ? name_len(l) : 256), name_of(l), v->u.obj.module,
                     v->u.obj.name);
}

/* Take v at the current path: a tensor is listed, a container is entered. */
static int visit(struct lister *l, const struct value *v)
{
    if (++l->visits > l->max_visits)
        return ckpt_fail(l->err, CKPT_ELIMIT, "the values unfold to more than %zu", l->max_visits);
    if (v == l->skip)
        return 0;
    switch (v->kind) {
    case VALUE_TENSOR:
        return l->visitor->tensor(l->visitor->ctx, name_of(l), name_len(l), l->kind, v->u.tensor,
                                  l->err);
    case VALUE_OBJECT:
        if (torch_shard_is(v))
            return l->visitor->shard(l->visitor->ctx, name_of(l), name_len(l), l->kind, v, l->err);
        if (check_object(l, v))
            return l->err->code;
        break;
    case VALUE_LIST: case VALUE_TUPLE: case VALUE_DICT:
        break;
    default:
        return 0;
    }
    for (size_t i = 0; i < l->depth; i++)
        if (l->frame[i].v == v)
            return 0;                   /* inside itself */
    if (l->depth == sizeof l->frame / sizeof l->frame[0])
        return ckpt_fail(l->err, CKPT_ELIMIT, "values nested deeper than %zu", l->depth);
    l->frame[l->depth++] = (struct frame){v, 0, l->path.len};
    return 0;
}

/* The i-th pair, or item behind the pairs, or behind those the state; key NULL: by number. */
static const struct value *child(const struct value *v, size_t i, const struct value **key,
                                 size_t *number, bool *same_path)
{
    const struct value_pairs *d = v->kind == VALUE_DICT ? &v->u.dict
                                  : v->kind == VALUE_OBJECT ? &v->u.obj.pairs : NULL;
    const struct value_seq *s = v->kind == VALUE_DICT ? NULL
                                : v->kind == VALUE_OBJECT ? &v->u.obj.items : &v->u.seq;
    size_t n_pairs = d ? d->n : 0, n_items = s ? s->n : 0;

    *key = NULL;
    *same_path = false;
    *number = i;
    if (i < n_pairs) {
        *key = d->key[i];
        return d->val[i];
    }
    *number = i - n_pairs;
    if (i - n_pairs < n_items)
        return s->item[i - n_pairs];
    *same_path = true;
    return v->kind == VALUE_OBJECT && i == n_pairs + n_items ? v->u.obj.state : NULL;
}

/* path.key, or path.i; keys that are numbers are spelt in digits. */
static int extend(struct lister *l, const struct value *key, size_t number)
{
    int64_t n = (int64_t)number;

    if (l->path.len + (value_is(key, VALUE_STR) ? key->u.text.n : 0) >= MAX_PATH)
        return ckpt_fail(l->err, CKPT_ELIMIT, "a path of over %zu bytes", MAX_PATH);
    if (l->path.len)
        ckpt_buf_put_u8(&l->path, '.');
    if (value_is(key, VALUE_STR)) {
        ckpt_buf_put(&l->path, key->u.text.p, key->u.text.n);
    } else {
        if (!value_as_int(key, &n))
            n = (int64_t)number;
        ckpt_buf_printf(&l->path, "%lld", (long long)n);
    }
    return ckpt_buf_ok(&l->path) ? 0 : ckpt_nomem(l->err, l->path.len);
}

static int walk(struct lister *l, const struct value *root)
{
    int rc = visit(l, root);

    while (rc == 0 && l->depth > 0) {
        struct frame *f = &l->frame[l->depth - 1];
        const struct value *key, *v;
        bool same_path;
        size_t number;

        l->path.len = f->path_len;
        v = child(f->v, f->i++, &key, &number, &same_path);
        if (!v) {
            l->depth--;
            continue;
        }
        if (!same_path)
            rc = extend(l, key, number);
        if (rc == 0)
            rc = visit(l, v);
    }
    return rc;
}

/* The state dict inside {"model": ...} and the like, or NULL. */
static const struct value *unwrap(const struct value *root)
{
    static const char *const wrappers[] = {"model", "state_dict", "module"};

    for (size_t i = 0; i < 3; i++) {
        const struct value *v = value_get(root, wrappers[i]);

        for (size_t k = 0; value_is(v, VALUE_DICT) && k < v->u.dict.n; k++)
            if (value_is(v->u.dict.val[k], VALUE_TENSOR))
                return v;
    }
    return NULL;
}

/* An optimizer's state, or the generators' of a training process: no weights. */
static bool holds_no_weights(const struct value *root)
{
    return (value_get(root, "state") && value_get(root, "param_groups")) ||
           (value_get(root, "python") && value_get(root, "cpu"));
}

int torch_walk(const struct torch_archive *a, const struct torch_visitor *visitor,
               struct ckpt_err *err)
{
    const struct value *root = torch_archive_root(a), *inner = unwrap(root);
    struct lister *l = ckpt_alloc(1, sizeof *l);
    int rc = 0;

    if (!l)
        return ckpt_nomem(err, sizeof *l);
    l->visitor = visitor;
    l->err = err;
    l->max_visits = VISITS_MIN + VISITS_PER * torch_archive_values(a);
    if (l->max_visits > VISITS_MAX)
        l->max_visits = VISITS_MAX;
    ckpt_buf_init(&l->path, MAX_PATH + 64);
    if (inner) {
        l->kind = CKPT_WEIGHT;
        rc = walk(l, inner);
        l->path.len = 0;
        l->skip = inner;
    }
    l->kind = inner || holds_no_weights(root) ? CKPT_OTHER : CKPT_WEIGHT;
    if (rc == 0)
        rc = walk(l, root);
    ckpt_buf_release(&l->path);
    ckpt_free(l);
    return rc;
}

/* -- one file as a list ---------------------------------------------------------------------- */

struct one {
    const struct torch_archive *a;
    struct ckpt_tensors        *list;
    struct ckpt_map            *seen;   /* window -> index: tied tensors */
};

/* Windows are the same when all of this is. */
struct window {
    uint64_t storage, dtype, rank;
    int64_t  offset, dim[CKPT_MAX_RANK], stride[CKPT_MAX_RANK];
};

static int find_alias(struct one *o, const struct value_tensor *t, size_t *alias_of,
                      struct ckpt_err *err)
{
    struct window *w = ckpt_arena_alloc(&o->list->arena, 1, sizeof *w);
    size_t before;

    if (!w)
        return ckpt_nomem(err, sizeof *w);
    w->storage = t->storage;
    w->dtype = t->dtype;
    w->rank = (uint64_t)t->shape.rank;
    w->offset = t->offset;
    for (int i = 0; i < t->shape.rank; i++) {
        w->dim[i] = t->shape.dim[i];
        w->stride[i] = t->stride[i];
    }
    before = ckpt_map_get(o->seen, (const char *)w, sizeof *w);
    if (before != CKPT_MAP_NONE) {
        *alias_of = before;
        return 0;
    }
    return ckpt_map_add(o->seen, (const char *)w, sizeof *w, o->list->n - 1, err);
}

static int add_tensor(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                      const struct value_tensor *t, struct ckpt_err *err)
{
    struct one *o = ctx;
    struct ckpt_fragment *f = NULL;
    struct ckpt_tensor *added;
    int64_t numel;

    if (!ckpt_shape_numel(&numel, &t->shape))
        return ckpt_fail(err, CKPT_EFORMAT, "a tensor's size overflows");
    if (numel > 0 && ckpt_dtype_size(t->dtype) > 0 &&
        torch_archive_fragment(&f, &o->list->arena, o->a, t, err))
        return err->code;
    if (ckpt_tensors_add(o->list, &added, name, len, t->dtype, &t->shape, f, f != NULL, false,
                         err))
        return err->code;
    added->kind = kind;
    return numel ? find_alias(o, t, &added->alias_of, err) : 0;
}

/* Of a tensor that is spread over ranks this file has the whole, or it is a part of a set. */
static int add_whole(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                     const struct value *v, struct ckpt_err *err)
{
    struct one *o = ctx;
    struct torch_shard s;
    int64_t numel;

    if (torch_shard_read(&s, &o->list->arena, v, err))
        return ckpt_err_in(err, "tensor %.*s", (int)(len < 256 ? len : 256), name);
    if (s.n == 1 && ckpt_shape_equal(&s.shape, &s.piece[0].tensor->shape))
        return add_tensor(ctx, name, len, kind, s.piece[0].tensor, err);
    if (s.n == 0 && ckpt_shape_numel(&numel, &s.shape) && numel == 0)
        return ckpt_tensors_add(o->list, NULL, name, len, s.dtype, &s.shape, NULL, 0, false, err);
    ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %.*s: one rank's part of a sharded tensor",
              (int)(len < 256 ? len : 256), name);
    return ckpt_err_hint(err, "a directory that holds the files of all ranks is read as one");
}

int torch_list(struct ckpt_tensors *list, const struct torch_archive *a, struct ckpt_err *err)
{
    struct one o = {.a = a, .list = list};
    struct torch_visitor visitor = {.ctx = &o, .tensor = add_tensor, .shard = add_whole};
    int rc = ckpt_map_new(&o.seen, 64, err);

    if (rc == 0)
        rc = torch_walk(a, &visitor, err);
    ckpt_map_free(o.seen);
    return rc;
}
