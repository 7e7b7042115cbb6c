/* value_copy - see value_copy.h. */
#include "formats/container/value_copy.h"

#include "libckpt/base/map.h"

#define MAX_DEPTH 512           /* same limit as for reading and writing pickles */

struct copier {
    struct ckpt_arena *a;
    value_tensor_fn   *fn;
    void              *ctx;
    struct ckpt_map   *seen;    /* address of an original -> number of its copy */
    struct value     **made;
    size_t             n, cap;
    struct ckpt_err   *err;
};

static int copy(struct copier *c, struct value **out, const struct value *v, size_t depth);

static int copy_seq(struct copier *c, struct value_seq *to, const struct value_seq *from,
                    size_t depth)
{
    struct value *item;
    int rc;

    *to = (struct value_seq){0};
    for (size_t i = 0; i < from->n; i++) {
        if ((rc = copy(c, &item, from->item[i], depth)) != 0)
            return rc;
        if (value_seq_add(c->a, to, item))
            return ckpt_nomem(c->err, from->n * sizeof *from->item);
    }
    return 0;
}

static int copy_pairs(struct copier *c, struct value_pairs *to, const struct value_pairs *from,
                      size_t depth)
{
    struct value *key, *val;
    int rc;

    *to = (struct value_pairs){0};
    for (size_t i = 0; i < from->n; i++) {
        if ((rc = copy(c, &key, from->key[i], depth)) != 0 ||
            (rc = copy(c, &val, from->val[i], depth)) != 0)
            return rc;
        if (value_pairs_add(c->a, to, key, val))
            return ckpt_nomem(c->err, from->n * sizeof *from->key);
    }
    return from->state ? copy(c, &to->state, from->state, depth) : 0;
}

static int copy_object(struct copier *c, struct value *to, const struct value *from, size_t depth)
{
    struct value *const part[] = {from->u.obj.args, from->u.obj.kwargs, from->u.obj.callee,
                                  from->u.obj.state};
    struct value **const slot[] = {&to->u.obj.args, &to->u.obj.kwargs, &to->u.obj.callee,
                                   &to->u.obj.state};
    int rc;

    for (size_t i = 0; i < 4; i++)
        if (part[i] && (rc = copy(c, slot[i], part[i], depth)) != 0)
            return rc;
    if ((rc = copy_seq(c, &to->u.obj.items, &from->u.obj.items, depth)) != 0)
        return rc;
    return copy_pairs(c, &to->u.obj.pairs, &from->u.obj.pairs, depth);
}

/* Remember that `made` is the copy of v. */
static int remember(struct copier *c, const struct value *v, struct value *made)
{
    const struct value **key = ckpt_arena_alloc(c->a, 1, sizeof *key);

    if (ckpt_reserve(&c->made, c->n, &c->cap, sizeof *c->made, c->err))
        return CKPT_ENOMEM;
    if (!key)
        return ckpt_nomem(c->err, sizeof *key);
    *key = v;
    c->made[c->n] = made;
    return ckpt_map_add(c->seen, (const char *)key, sizeof *key, c->n++, c->err);
}

static int copy(struct copier *c, struct value **out, const struct value *v, size_t depth)
{
    size_t k;
    int rc;

    *out = (struct value *)v;
    if (v->kind < VALUE_LIST || v->kind == VALUE_GLOBAL)
        return 0;
    k = ckpt_map_get(c->seen, (const char *)&v, sizeof v);
    if (k != CKPT_MAP_NONE) {
        *out = c->made[k];
        return 0;
    }
    if (depth == MAX_DEPTH)
        return ckpt_fail(c->err, CKPT_ELIMIT, "a value nested deeper than %d", MAX_DEPTH);
    *out = v->kind == VALUE_TENSOR ? c->fn(c->ctx, v->u.tensor, c->err)
                                   : ckpt_arena_alloc(c->a, 1, sizeof **out);
    if (!*out)
        return v->kind == VALUE_TENSOR ? ckpt_err_code(c->err) : ckpt_nomem(c->err, sizeof **out);
    rc = remember(c, v, *out);
    if (rc || v->kind == VALUE_TENSOR)
        return rc;
    **out = *v;
    (*out)->mark = 0;
    if (v->kind == VALUE_DICT)
        return copy_pairs(c, &(*out)->u.dict, &v->u.dict, depth + 1);
    if (v->kind == VALUE_OBJECT)
        return copy_object(c, *out, v, depth + 1);
    return copy_seq(c, &(*out)->u.seq, &v->u.seq, depth + 1);
}

int value_copy(struct value **out, struct ckpt_arena *a, const struct value *v,
               value_tensor_fn *fn, void *ctx, struct ckpt_err *err)
{
    struct copier c = {.a = a, .fn = fn, .ctx = ctx, .err = err};
    int rc = ckpt_map_new(&c.seen, 64, err);

    if (rc == 0)
        rc = copy(&c, out, v, 0);
    ckpt_map_free(c.seen);
    ckpt_free(c.made);
    return rc;
}
