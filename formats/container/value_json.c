/*
 * value_json - an inert value as JSON; see value.h.
 *
 * The value may be a graph: containers on the path from the root are remembered, and one that
 * contains itself becomes {"$ref": levels up}.  Depth and count are bounded.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/value.h"
#include "libckpt/base/buf.h"

#define MAX_DEPTH 60            /* JSON readers stop at 64 */
#define MAX_TEXT  ((size_t)16 << 20)

struct walk {
    size_t              budget;         /* values */
    size_t              text_left;      /* bytes */
    const struct value *path[MAX_DEPTH];
};

static json_t *convert(struct walk *w, const struct value *v, size_t depth);

/* Text for JSON: invalid UTF-8 is escaped. */
static json_t *text(struct walk *w, const char *p, size_t n)
{
    char escaped[4096];

    /* Shared texts are repeated, so that a long one with many references could fill memory. */
    if (n > w->text_left)
        return json_string("...");
    w->text_left -= n;
    if (ckpt_utf8_valid(p, n))
        return json_stringn(p, n);
    return json_string(ckpt_err_escape(escaped, sizeof escaped, p, n));
}

static json_t *bytes(const struct value *v)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = v->u.text.n < 32 ? v->u.text.n : 32;
    char head[65];

    for (size_t i = 0; i < n; i++) {
        head[2 * i] = hex[(unsigned char)v->u.text.p[i] >> 4];
        head[2 * i + 1] = hex[v->u.text.p[i] & 15];
    }
    head[2 * n] = '\0';
    return json_pack("{s:I,s:s}", "$bytes", (json_int_t)v->u.text.n, "hex", head);
}

static json_t *real(double f)
{
    return isnan(f) ? json_string("NaN")
           : isinf(f) ? json_string(f > 0 ? "Infinity" : "-Infinity") : json_real(f);
}

static json_t *tensor(const struct value_tensor *t)
{
    json_t *shape = json_array();

    for (int i = 0; shape && i < t->shape.rank; i++)
        json_array_append_new(shape, json_integer(t->shape.dim[i]));
    return json_pack("{s:{s:s,s:o,s:b}}", "$tensor", "dtype", ckpt_dtype_name(t->dtype), "shape",
                     shape, "requires_grad", t->requires_grad);
}

static json_t *sequence(struct walk *w, const struct value_seq *s, size_t depth)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < s->n; i++) {
        if (w->budget == 0) {
            json_array_append_new(list, json_string("..."));
            break;
        }
        json_array_append_new(list, convert(w, s->item[i], depth + 1));
    }
    return list;
}

/* Set a member; a key that is not a text is written in its JSON spelling, or as # and its place
 * where that is another key's: {"1": a, 1: b}. */
static void set(struct walk *w, json_t *obj, const struct value *key, const struct value *val,
                size_t depth)
{
    json_t *k = value_is(key, VALUE_STR) ? text(w, key->u.text.p, key->u.text.n)
                                         : convert(w, key, depth + 1);
    char *spelt = k && !json_is_string(k) ? json_dumps(k, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const char *name = spelt ? spelt : k ? json_string_value(k) : "?";
    char place[32];

    if (json_object_get(obj, name)) {
        snprintf(place, sizeof place, "#%zu", json_object_size(obj));
        name = place;
    }
    json_object_set_new(obj, name, convert(w, val, depth + 1));
    free(spelt);
    json_decref(k);
}

static json_t *pairs(struct walk *w, const struct value_pairs *d, size_t depth)
{
    json_t *obj = json_object();

    for (size_t i = 0; obj && i < d->n; i++) {
        if (w->budget == 0) {
            json_object_set_new(obj, "...", json_string("..."));
            break;
        }
        set(w, obj, d->key[i], d->val[i], depth);
    }
    return obj;
}

static json_t *object(struct walk *w, const struct value *v, size_t depth)
{
    json_t *obj = json_object();
    char name[1024];

    snprintf(name, sizeof name, "%s.%s", v->u.obj.module, v->u.obj.name);
    if (!obj)
        return NULL;
    json_object_set_new(obj, "$object", text(w, name, strlen(name)));
    if (v->u.obj.callee)
        json_object_set_new(obj, "callee", convert(w, v->u.obj.callee, depth + 1));
    if (v->u.obj.args && v->u.obj.args->u.seq.n)
        json_object_set_new(obj, "args", convert(w, v->u.obj.args, depth + 1));
    if (v->u.obj.kwargs)
        json_object_set_new(obj, "kwargs", convert(w, v->u.obj.kwargs, depth + 1));
    if (v->u.obj.state)
        json_object_set_new(obj, "state", convert(w, v->u.obj.state, depth + 1));
    if (v->u.obj.items.n)
        json_object_set_new(obj, "items", sequence(w, &v->u.obj.items, depth));
    if (v->u.obj.pairs.n)
        json_object_set_new(obj, "pairs", pairs(w, &v->u.obj.pairs, depth));
    return obj;
}

static json_t *convert(struct walk *w, const struct value *v, size_t depth)
{
    if (!v)
        return json_null();
    if (w->budget == 0 || depth >= MAX_DEPTH)
        return json_string("...");
    w->budget--;
    for (size_t i = 0; i < depth; i++)
        if (w->path[i] == v)
            return json_pack("{s:I}", "$ref", (json_int_t)(depth - i));
    w->path[depth] = v;
    switch (v->kind) {
    case VALUE_NONE:       return json_null();
    case VALUE_BOOL:       return json_boolean(v->u.b);
    case VALUE_INT:        return json_integer(v->u.i);
    case VALUE_FLOAT:      return real(v->u.f);
    case VALUE_BIGINT:
    case VALUE_STR:        return text(w, v->u.text.p, v->u.text.n);
    case VALUE_BYTES:      return bytes(v);
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_SET:        return sequence(w, &v->u.seq, depth);
    case VALUE_DICT:       return pairs(w, &v->u.dict, depth);
    case VALUE_TENSOR:     return tensor(v->u.tensor);
    case VALUE_PERSISTENT: return json_pack("{s:o}", "$persistent",
                                            sequence(w, &v->u.seq, depth));
    case VALUE_GLOBAL:
    case VALUE_OBJECT:     return object(w, v, depth);
    }
    return json_null();
}

json_t *value_to_json(const struct value *v, size_t budget)
{
    struct walk w = {.budget = budget, .text_left = MAX_TEXT};

    return convert(&w, v, 0);
}
