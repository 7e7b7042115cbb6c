/* value - see value.h. */
#include "formats/container/value.h"

#include <string.h>

#include "libckpt/base/json.h"

static struct value *make(struct ckpt_arena *a, enum value_kind kind)
{
    struct value *v = ckpt_arena_alloc(a, 1, sizeof *v);

    if (v)
        v->kind = kind;
    return v;
}

struct value *value_none(struct ckpt_arena *a) { return make(a, VALUE_NONE); }

struct value *value_bool(struct ckpt_arena *a, bool b)
{
    struct value *v = make(a, VALUE_BOOL);

    if (v)
        v->u.b = b;
    return v;
}

struct value *value_int(struct ckpt_arena *a, int64_t i)
{
    struct value *v = make(a, VALUE_INT);

    if (v)
        v->u.i = i;
    return v;
}

struct value *value_float(struct ckpt_arena *a, double f)
{
    struct value *v = make(a, VALUE_FLOAT);

    if (v)
        v->u.f = f;
    return v;
}

static struct value *text(struct ckpt_arena *a, enum value_kind kind, const void *p, size_t n)
{
    struct value *v = make(a, kind);

    if (!v)
        return NULL;
    v->u.text.p = ckpt_arena_strndup(a, p, n);
    v->u.text.n = n;
    return v->u.text.p ? v : NULL;
}

struct value *value_str(struct ckpt_arena *a, const char *s)
{
    return text(a, VALUE_STR, s, strlen(s));
}

struct value *value_bytes(struct ckpt_arena *a, const void *p, size_t n)
{
    return text(a, VALUE_BYTES, p, n);
}

struct value *value_list(struct ckpt_arena *a) { return make(a, VALUE_LIST); }
struct value *value_tuple(struct ckpt_arena *a) { return make(a, VALUE_TUPLE); }

struct value *value_dict(struct ckpt_arena *a, bool ordered)
{
    struct value *v = make(a, VALUE_DICT);

    if (v)
        v->ordered = ordered;
    return v;
}

struct value *value_global(struct ckpt_arena *a, const char *module, const char *name)
{
    struct value *v = make(a, VALUE_GLOBAL);

    if (!v)
        return NULL;
    v->u.obj.module = ckpt_arena_strndup(a, module, strlen(module));
    v->u.obj.name = ckpt_arena_strndup(a, name, strlen(name));
    return v->u.obj.module && v->u.obj.name ? v : NULL;
}

struct value *value_object(struct ckpt_arena *a, const char *module, const char *name,
                           struct value *args, struct value *state, bool newobj)
{
    struct value *v = args ? value_global(a, module, name) : NULL;

    if (!v)
        return NULL;
    v->kind = VALUE_OBJECT;
    v->u.obj.args = args;
    v->u.obj.state = state;
    v->u.obj.newobj = newobj;
    return v;
}

struct value *value_tensor_new(struct ckpt_arena *a, const struct value_tensor *t)
{
    struct value *v = make(a, VALUE_TENSOR);

    if (!v)
        return NULL;
    v->u.tensor = ckpt_arena_alloc(a, 1, sizeof *t);
    if (!v->u.tensor)
        return NULL;
    *v->u.tensor = *t;
    return v;
}

void value_tensor_pack(struct value_tensor *t)
{
    int64_t stride = 1;

    for (int d = t->shape.rank; d-- > 0;) {
        t->stride[d] = stride;
        stride *= t->shape.dim[d] ? t->shape.dim[d] : 1;
    }
}

struct value *value_tensor_whole(struct ckpt_arena *a, enum ckpt_dtype dtype,
                                 const struct ckpt_shape *shape, size_t storage)
{
    struct value_tensor t = {.dtype = dtype, .shape = *shape, .storage = storage};

    value_tensor_pack(&t);
    return value_tensor_new(a, &t);
}

struct value *value_size(struct ckpt_arena *a, const struct ckpt_shape *shape)
{
    struct value *dims = value_tuple(a), *args = value_tuple(a);

    for (int i = 0; i < shape->rank; i++)
        if (value_append(a, dims, value_int(a, shape->dim[i])))
            return NULL;
    return value_append(a, args, dims) ? NULL
                                       : value_object(a, "torch", "Size", args, NULL, false);
}

/* Grow a sequence in an arena by one place; the old block stays allocated. */
static struct value **grown(struct ckpt_arena *a, struct value **old, size_t n, size_t *cap)
{
    size_t more = *cap ? 2 * *cap : 4;
    struct value **p;

    if (n < *cap)
        return old;
    p = ckpt_arena_alloc(a, more, sizeof *p);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, old, n * sizeof *p);
    *cap = more;
    return p;
}

int value_seq_add(struct ckpt_arena *a, struct value_seq *s, struct value *item)
{
    struct value **p = item ? grown(a, s->item, s->n, &s->cap) : NULL;

    if (!p)
        return CKPT_ENOMEM;
    s->item = p;
    s->item[s->n++] = item;
    return 0;
}

int value_pairs_add(struct ckpt_arena *a, struct value_pairs *d, struct value *key,
                    struct value *val)
{
    size_t cap = d->cap;
    struct value **k, **v;

    if (!key || !val)
        return CKPT_ENOMEM;
    k = grown(a, d->key, d->n, &cap);
    cap = d->cap;
    v = grown(a, d->val, d->n, &cap);
    if (!k || !v)
        return CKPT_ENOMEM;
    d->key = k;
    d->val = v;
    d->cap = cap;
    d->key[d->n] = key;
    d->val[d->n++] = val;
    return 0;
}

int value_append(struct ckpt_arena *a, struct value *seq, struct value *item)
{
    return seq ? value_seq_add(a, &seq->u.seq, item) : CKPT_ENOMEM;
}

int value_set(struct ckpt_arena *a, struct value *dict, struct value *key, struct value *val)
{
    return dict ? value_pairs_add(a, &dict->u.dict, key, val) : CKPT_ENOMEM;
}

int value_set_str(struct ckpt_arena *a, struct value *dict, const char *key, struct value *val)
{
    return value_set(a, dict, value_str(a, key), val);
}

/* Recursion is bounded by the depth limit of JSON documents. */
static struct value *of_json(struct ckpt_arena *a, const json_t *json, int depth)
{
    const char *key;
    struct value *v;
    json_t *item;
    size_t i;

    if (depth > CKPT_JSON_MAX_DEPTH)
        return NULL;
    switch (json_typeof(json)) {
    case JSON_STRING:  return value_str(a, json_string_value(json));
    case JSON_INTEGER: return value_int(a, json_integer_value(json));
    case JSON_REAL:    return value_float(a, json_real_value(json));
    case JSON_TRUE:    return value_bool(a, true);
    case JSON_FALSE:   return value_bool(a, false);
    case JSON_NULL:    return value_none(a);
    case JSON_ARRAY:
        v = value_list(a);
        json_array_foreach (json, i, item)
            if (value_append(a, v, of_json(a, item, depth + 1)))
                return NULL;
        return v;
    default:
        v = value_dict(a, false);
        json_object_foreach ((json_t *)json, key, item)
            if (value_set_str(a, v, key, of_json(a, item, depth + 1)))
                return NULL;
        return v;
    }
}

struct value *value_of_json(struct ckpt_arena *a, const json_t *json)
{
    return json ? of_json(a, json, 0) : NULL;
}

struct value *value_get(const struct value *dict, const char *key)
{
    struct value *found = NULL;

    /* The last entry wins, as when Python sets items one after another. */
    for (size_t i = 0; value_is(dict, VALUE_DICT) && i < dict->u.dict.n; i++) {
        const char *k = value_as_str(dict->u.dict.key[i]);

        if (k && strcmp(k, key) == 0)
            found = dict->u.dict.val[i];
    }
    return found;
}

bool value_next(const struct value *dict, size_t *i, const char **key, struct value **val)
{
    for (*key = NULL; value_is(dict, VALUE_DICT) && !*key && *i < dict->u.dict.n; ++*i) {
        *key = value_as_str(dict->u.dict.key[*i]);
        *val = dict->u.dict.val[*i];
    }
    return *key != NULL;
}

size_t value_count(const struct value *seq)
{
    return value_is(seq, VALUE_LIST) || value_is(seq, VALUE_TUPLE) ? seq->u.seq.n : 0;
}

struct value *value_item(const struct value *seq, size_t i)
{
    return i < value_count(seq) ? seq->u.seq.item[i] : NULL;
}

struct value *value_arg(const struct value *record, size_t i)
{
    return value_is(record, VALUE_OBJECT) ? value_item(record->u.obj.args, i) : NULL;
}

int value_dims(const struct value *v, int64_t *out, int max)
{
    if (value_names(v, "torch", "Size"))
        v = value_arg(v, 0);
    if (!value_is(v, VALUE_TUPLE) && !value_is(v, VALUE_LIST))
        return VALUE_NO_DIMS;
    if (v->u.seq.n > (size_t)max)
        return VALUE_MANY_DIMS;
    for (size_t i = 0; i < v->u.seq.n; i++)
        if (!value_as_int(v->u.seq.item[i], &out[i]) || out[i] < 0)
            return VALUE_NO_DIMS;
    return (int)v->u.seq.n;
}

bool value_as_int(const struct value *v, int64_t *out)
{
    if (value_is(v, VALUE_INT))
        *out = v->u.i;
    else if (value_is(v, VALUE_BOOL))
        *out = v->u.b;
    else
        return false;
    return true;
}

bool value_as_float(const struct value *v, double *out)
{
    if (value_is(v, VALUE_FLOAT))
        *out = v->u.f;
    else if (value_is(v, VALUE_INT))
        *out = (double)v->u.i;
    else
        return false;
    return true;
}

const char *value_as_str(const struct value *v)
{
    /* "a" and "a\0b" are different keys in Python: never return one as a C string of the other. */
    return value_is(v, VALUE_STR) && strlen(v->u.text.p) == v->u.text.n ? v->u.text.p : NULL;
}

bool value_names(const struct value *v, const char *module, const char *name)
{
    return (value_is(v, VALUE_OBJECT) || value_is(v, VALUE_GLOBAL)) &&
           strcmp(v->u.obj.module, module) == 0 && strcmp(v->u.obj.name, name) == 0;
}
