/* torch/value - see torch/value.h. */
#include "formats/torch/value.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "formats/torch/names.h"
#include "libckpt/base/map.h"

#define MAX_VISITS ((size_t)64 << 20)
#define MAX_NEST   8            /* rebuild calls inside each other */

/* A value to visit, and its depth. */
struct level {
    struct value *v;
    unsigned      depth;
};

struct walk {
    struct torch_storages *storages;
    struct ckpt_arena     *a;
    bool                   strict;
    struct ckpt_err       *err;
    struct level          *stack;
    size_t                 n, cap, visits;
    unsigned               depth;       /* depth of the current value */
    const struct value    *class;       /* of the last storage, usually of the next one too */
    enum ckpt_dtype        class_dtype;
};

static int bad(struct walk *w, const char *what)
{
    return ckpt_fail(w->err, CKPT_EFORMAT, "pickle: %s", what);
}

/* -- storages -------------------------------------------------------------------------------- */

/* A storage that a persistent id names, or in old files a part of one. */
struct base {
    size_t  storage;
    int64_t offset, numel;              /* elements */
};

/* (view key, offset, numel) of a legacy storage. */
static int view_of(struct walk *w, struct base *b, const struct value *v)
{
    int64_t offset, numel;

    if (value_is(v, VALUE_NONE))
        return 0;
    if (!value_is(v, VALUE_TUPLE) || v->u.seq.n != 3 || !value_as_int(v->u.seq.item[1], &offset) ||
        !value_as_int(v->u.seq.item[2], &numel) || offset < 0 || numel < 0 ||
        offset > b->numel || numel > b->numel - offset)
        return bad(w, "a storage's view does not lie in it");
    b->offset = offset;
    b->numel = numel;
    return 0;
}

/* ('storage', class, key, location, numel), in legacy files with a view after. */
static int find_storage(struct walk *w, const struct value *v, struct base *b)
{
    const struct value *t = value_is(v, VALUE_PERSISTENT) ? v->u.seq.item[0] : NULL;
    size_t n = w->storages->legacy ? 6 : 5;
    enum ckpt_dtype dtype;
    const char *what = value_as_str(value_item(t, 0)), *key = value_as_str(value_item(t, 2));
    int rc;

    *b = (struct base){0};
    if (!value_is(t, VALUE_TUPLE) || value_count(t) != n || !what || strcmp(what, "storage") != 0)
        return bad(w, "a persistent id is no storage");
    if (value_item(t, 1) != w->class) {
        w->class = value_item(t, 1);
        w->class_dtype = torch_storage_dtype(w->class);
    }
    dtype = w->class_dtype;
    if (!key || strlen(key) > 64 || strspn(key, "0123456789") != strlen(key) || !*key)
        return bad(w, "a storage's key is no number");
    if (dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "storage %s: of an unknown class", key);
    if (!value_as_int(value_item(t, 4), &b->numel) || b->numel < 0)
        return ckpt_fail(w->err, CKPT_EFORMAT, "storage %s: its size is no number >= 0", key);
    if ((rc = torch_storages_add(w->storages, &b->storage, key, dtype, b->numel, w->err)) != 0)
        return rc;
    return n == 6 ? view_of(w, b, value_item(t, 5)) : 0;
}

/* -- tensors --------------------------------------------------------------------------------- */

static int dims(struct walk *w, const struct value *v, int64_t *out, int *n)
{
    *n = value_dims(v, out, CKPT_MAX_RANK);
    if (*n == VALUE_MANY_DIMS)
        return ckpt_fail(w->err, CKPT_ELIMIT, "pickle: a tensor of more than %d axes",
                         CKPT_MAX_RANK);
    return *n < 0 ? bad(w, "a tensor's size or stride is no tuple of numbers >= 0") : 0;
}

/*
 * Two 4-bit values per element: listed with a last axis of twice the length, as in safetensors,
 * and never read.  Its bounds were checked as bytes.
 */
static int make_pairs(struct walk *w, struct value_tensor *t)
{
    int64_t want = 1, *last = t->shape.rank ? &t->shape.dim[t->shape.rank - 1] : NULL;

    for (int i = t->shape.rank; i-- > 0; want *= t->shape.dim[i])
        if (t->shape.dim[i] != 1 && t->stride[i] != want)
            last = NULL;
    if (!last || __builtin_mul_overflow(*last, 2, last))
        return ckpt_fail(w->err, CKPT_EUNSUPPORTED,
                         "a tensor of dtype torch.float4_e2m1fn_x2 without axes, or with strides, "
                         "is not read");
    for (int i = 0; i + 1 < t->shape.rank; i++)
        t->stride[i] *= 2;
    t->dtype = CKPT_F4;
    return 0;
}

/* {"conj": True}, {"neg": True}: the storage holds the conjugate, or the negative. */
static int take_bits(struct walk *w, struct value_tensor *t, const struct value *metadata)
{
    enum ckpt_dtype_class class = ckpt_dtype_class(t->dtype);
    bool known = true;

    for (size_t i = 0; value_is(metadata, VALUE_DICT) && i < metadata->u.dict.n; i++) {
        const char *key = value_as_str(metadata->u.dict.key[i]);
        const struct value *v = metadata->u.dict.val[i];
        bool *bit = key && strcmp(key, "conj") == 0  ? &t->conjugated
                    : key && strcmp(key, "neg") == 0 ? &t->negated : NULL;

        known = known && bit && value_is(v, VALUE_BOOL);
        if (known)
            *bit = v->u.b;
    }
    if (known && (!t->conjugated || class == CKPT_CLASS_COMPLEX) &&
        (!t->negated || class == CKPT_CLASS_COMPLEX || class == CKPT_CLASS_FLOAT))
        return 0;
    return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "a tensor of %s with a conjugate, negative or "
                     "other bit is not read", ckpt_dtype_name(t->dtype));
}

static int resolve(struct walk *w, struct value *v, int nest);

/* The quantizer of a quantised tensor: its scales and zeros may be tensors themselves. */
static int take_quantizer(struct walk *w, struct value_tensor *t, struct value *v, int nest)
{
    int rc;

    if (t->dtype < CKPT_QI8 || t->dtype > CKPT_QI32)
        return bad(w, "a quantised tensor lies in a storage of another class");
    if (!value_is(v, VALUE_TUPLE) || v->u.seq.n > 4)
        return bad(w, "a quantised tensor without a quantizer");
    for (size_t i = 0; i < v->u.seq.n; i++)
        if ((rc = resolve(w, v->u.seq.item[i], nest + 1)) != 0)
            return rc;
    t->quantizer = v;
    return 0;
}

/* _rebuild_tensor, _v2, _v3 and _rebuild_qtensor: storage, offset, size, stride, ... */
static int make_tensor(struct walk *w, struct value *v, const struct torch_name *row, int nest)
{
    struct value_tensor t = {0};
    const struct value *grad = value_arg(v, row->what == NAME_QTENSOR ? 5 : 4);
    const struct value *dtype = row->what == NAME_TENSOR_V3 ? value_arg(v, 6) : NULL;
    const struct value *metadata = row->what == NAME_TENSOR_V3 ? value_arg(v, 7)
                                   : row->what == NAME_QTENSOR ? NULL : value_arg(v, 6);
    struct base base;
    bool pairs = false;
    int n_stride;
    int rc;

    if ((rc = find_storage(w, value_arg(v, 0), &base)) != 0)
        return rc;
    t.storage = base.storage;
    if (!value_as_int(value_arg(v, 1), &t.offset) || t.offset < 0)
        return bad(w, "a tensor's offset is no number >= 0");
    if ((rc = dims(w, value_arg(v, 2), t.shape.dim, &t.shape.rank)) != 0 ||
        (rc = dims(w, value_arg(v, 3), t.stride, &n_stride)) != 0)
        return rc;
    if (n_stride != t.shape.rank)
        return bad(w, "a tensor has more strides than axes, or fewer");
    t.dtype = w->storages->item[t.storage].dtype;
    if (row->what == NAME_TENSOR_V3) {
        if (!value_is(dtype, VALUE_GLOBAL))
            return bad(w, "a tensor's dtype is none");
        pairs = strcmp(dtype->u.obj.name, "float4_e2m1fn_x2") == 0;
        t.dtype = pairs ? CKPT_U8 : ckpt_dtype_parse(dtype->u.obj.name);
        if (t.dtype == CKPT_DTYPE_NONE || ckpt_dtype_size(t.dtype) == 0)
            return ckpt_fail(w->err, CKPT_EUNSUPPORTED, "a tensor of dtype torch.%s is not read",
                             dtype->u.obj.name);
    }
    if ((rc = take_bits(w, &t, metadata)) != 0)
        return rc;
    t.requires_grad = value_is(grad, VALUE_BOOL) && grad->u.b;
    if ((rc = torch_storages_fit(w->storages, &t, base.numel, w->err)) != 0 ||
        (pairs && (rc = make_pairs(w, &t)) != 0))
        return rc;
    /* Last: a call that failed stays a record, which each visit would resolve again. */
    if (row->what == NAME_QTENSOR && (rc = take_quantizer(w, &t, value_arg(v, 4), nest)) != 0)
        return rc;
    t.offset += base.offset; /* a typed view: the same elements; cannot overflow, both below 2^63 */
    v->kind = VALUE_TENSOR;
    v->u.tensor = ckpt_arena_alloc(w->a, 1, sizeof t);
    if (!v->u.tensor)
        return ckpt_nomem(w->err, sizeof t);
    *v->u.tensor = t;
    return 0;
}

/* Replace a call by its n-th argument. */
static int become_arg(struct walk *w, struct value *v, size_t n, int nest, bool parameter)
{
    struct value *inner = value_arg(v, n);
    struct value_tensor *copy;
    bool grad = value_is(value_arg(v, 1), VALUE_BOOL) && value_arg(v, 1)->u.b;
    int rc;

    if (!inner)
        return bad(w, "a rebuilt parameter has no tensor in it");
    if ((rc = resolve(w, inner, nest + 1)) != 0)
        return rc;
    if (value_is(inner, VALUE_OBJECT))
        return 0;                       /* its kind is not read, so neither is this */
    if (!value_is(inner, VALUE_TENSOR))
        return bad(w, "a rebuilt parameter has no tensor in it");
    copy = ckpt_arena_alloc(w->a, 1, sizeof *copy);
    if (!copy)
        return ckpt_nomem(w->err, sizeof *copy);
    *copy = *inner->u.tensor;
    if (parameter) {
        copy->parameter = true;
        copy->requires_grad = grad;
    }
    v->kind = VALUE_TENSOR;
    v->u.tensor = copy;
    return 0;
}

/* _rebuild_from_type_v2(func, type, args, state): func(*args), with attributes. */
static int from_type(struct walk *w, struct value *v, int nest)
{
    struct value *func = value_arg(v, 0), *args = value_arg(v, 2);
    struct value call = {.kind = VALUE_OBJECT};
    int rc;

    if (!value_is(func, VALUE_GLOBAL) || !value_is(args, VALUE_TUPLE))
        return bad(w, "_rebuild_from_type_v2 without function and arguments");
    call.u.obj.module = func->u.obj.module;
    call.u.obj.name = func->u.obj.name;
    call.u.obj.args = args;
    if ((rc = resolve(w, &call, nest + 1)) != 0)
        return rc;
    if (call.kind == VALUE_TENSOR) {
        call.u.tensor->attrs = value_is(value_arg(v, 3), VALUE_DICT) ? value_arg(v, 3) : NULL;
        *v = call;
    }
    return 0;
}

/* -- plain values ---------------------------------------------------------------------------- */

/* OrderedDict(): SETITEMS added its items. */
static int make_dict(struct walk *w, struct value *v)
{
    struct value_pairs pairs = v->u.obj.pairs;
    struct value *items = value_arg(v, 0);

    /* OrderedDict([[key, value], ...]) is protocol 0's form. */
    if (items && value_is(items, VALUE_LIST))
        for (size_t i = 0; i < items->u.seq.n; i++) {
            struct value *kv = items->u.seq.item[i];

            if (value_count(kv) != 2)
                return bad(w, "an OrderedDict of what are no pairs");
            if (value_pairs_add(w->a, &pairs, kv->u.seq.item[0], kv->u.seq.item[1]))
                return ckpt_nomem(w->err, sizeof pairs);
        }
    pairs.state = v->u.obj.state;
    v->kind = VALUE_DICT;
    v->ordered = true;
    v->u.dict = pairs;
    return 0;
}

static int make_set(struct walk *w, struct value *v)
{
    struct value *items = value_arg(v, 0);

    if (items && !value_is(items, VALUE_LIST) && !value_is(items, VALUE_TUPLE))
        return bad(w, "a set of what is no list");
    v->kind = VALUE_SET;
    v->u.seq = items ? items->u.seq : (struct value_seq){0};
    return 0;
}

/* bytes(), or _codecs.encode(text, 'latin1'): characters below 256 are the bytes. */
static int make_bytes(struct walk *w, struct value *v)
{
    const struct value *t = value_arg(v, 0);
    const char *encoding = value_as_str(value_arg(v, 1));
    const unsigned char *s;
    struct value out = {.kind = VALUE_BYTES};
    size_t n = 0;
    char *bytes;

    if (!t) {
        out.u.text.p = "";
        *v = out;
        return 0;
    }
    if (!value_is(t, VALUE_STR) || !encoding ||
        (strcmp(encoding, "latin1") != 0 && strcmp(encoding, "latin-1") != 0))
        return bad(w, "bytes of what is no text in latin1");
    s = (const unsigned char *)t->u.text.p;
    bytes = ckpt_arena_alloc(w->a, t->u.text.n + 1, 1);
    if (!bytes)
        return ckpt_nomem(w->err, t->u.text.n);
    for (size_t i = 0; i < t->u.text.n; i++) {
        if (s[i] < 0x80) {
            bytes[n++] = (char)s[i];
        } else if ((s[i] & 0xfc) == 0xc0 && i + 1 < t->u.text.n && (s[i + 1] & 0xc0) == 0x80) {
            bytes[n++] = (char)((s[i] & 3) << 6 | (s[i + 1] & 0x3f));
            i++;
        } else {
            return bad(w, "bytes of a text that is no Latin-1");
        }
    }
    out.u.text.p = bytes;
    out.u.text.n = n;
    *v = out;
    return 0;
}

/* -- the walk -------------------------------------------------------------------------------- */

static int refuse(struct ckpt_err *err, const struct value *v)
{
    if (torch_name_alarms(v->u.obj.module, v->u.obj.name))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-global",
                            "pickle: asks for %s.%s: this file looks malicious", v->u.obj.module,
                            v->u.obj.name);
    ckpt_fail_as(err, CKPT_EREFUSED, "refused-global",
                 "pickle: asks for %s.%s, which is in no table of known names", v->u.obj.module,
                 v->u.obj.name);
    return ckpt_err_hint(err, "ckpt-inspect shows what such a file holds without running it");
}

/* The same, with a hint if a module was saved instead of its state_dict. */
static int refuse_of(const struct value_seq *names, const struct value *v, struct ckpt_err *err)
{
    int rc = refuse(err, v);

    for (size_t i = 0; i < names->n && !torch_name_alarms(v->u.obj.module, v->u.obj.name); i++)
        if (strncmp(names->item[i]->u.obj.module, "torch.nn.modules.", 17) == 0)
            return ckpt_err_hint(err, "a module was saved: load it where its code is, and "
                                 "save its state_dict()");
    return rc;
}

int torch_names_check(const struct value_seq *names, bool alarms_only, struct ckpt_err *err)
{
    for (size_t i = 0; i < names->n; i++) {
        const struct value *v = names->item[i];

        if (!torch_name_find(v->u.obj.module, v->u.obj.name) &&
            (!alarms_only || torch_name_alarms(v->u.obj.module, v->u.obj.name)))
            return refuse_of(names, v, err);
    }
    return 0;
}

/* In torch's tar: resolve the key of a tensor. */
static int take_named(struct walk *w, struct value *v)
{
    const char *id = value_as_str(v->u.seq.item[0]);
    char digits[24];
    int64_t n;
    size_t i;

    if (value_as_int(v->u.seq.item[0], &n)) {
        snprintf(digits, sizeof digits, "%lld", (long long)n);
        id = digits;
    }
    i = id ? ckpt_map_get(w->storages->by_id, id, strlen(id)) : CKPT_MAP_NONE;
    if (i == CKPT_MAP_NONE)
        return bad(w, "a persistent id names no tensor");
    v->kind = VALUE_TENSOR;
    v->u.tensor = w->storages->named[i];
    return 0;
}

/* A persistent id that is not a storage names a module's source, in torch's old files. */
static int check_persistent(struct walk *w, struct value *v)
{
    const struct value *t = v->u.seq.item[0];
    const char *what = value_is(t, VALUE_TUPLE) && t->u.seq.n
                           ? value_as_str(t->u.seq.item[0]) : NULL;
    struct base base;

    if (w->storages->by_id && !value_is(t, VALUE_TUPLE))
        return take_named(w, v);
    if (what && strcmp(what, "storage") == 0)
        return find_storage(w, v, &base);
    if (!w->strict)
        return 0;
    return ckpt_fail_as(w->err, CKPT_EREFUSED, "refused-global",
                        "pickle: a persistent id names no storage: this file looks malicious");
}

/*
 * getattr(class, 'MEMBER'): how CPython 3.11.0 to 3.11.3 wrote members of enumerations, and how
 * FSDP1 names the class ShardedTensor.ProcessGroupState.
 */
static bool is_member(const struct value *v)
{
    const struct value *class = value_arg(v, 0);
    const char *name = value_as_str(value_arg(v, 1));
    const struct torch_name *row = value_is(class, VALUE_GLOBAL)
                                       ? torch_name_find(class->u.obj.module, class->u.obj.name)
                                       : NULL;

    if (!row || !name || v->u.obj.args->u.seq.n != 2)
        return false;
    return row->what == NAME_ENUM || (strcmp(class->u.obj.name, "ShardedTensor") == 0 &&
                                      strcmp(name, "ProcessGroupState") == 0);
}

/* A name without a row, getattr, or a call of a call's result: keep the record, or refuse. */
static int unknown(struct walk *w, struct value *v)
{
    const struct value *callee = v->u.obj.callee, *get = callee ? callee : v;
    const struct torch_name *row = NULL;

    /* The callee may have become a dictionary by now. */
    if (get->kind == VALUE_OBJECT && !get->u.obj.callee)
        row = torch_name_find(get->u.obj.module, get->u.obj.name);
    return !w->strict || (row && row->what == NAME_GETATTR && is_member(get))
               ? 0 : refuse(w->err, v);
}

static int resolve_by(struct walk *w, struct value *v, const struct torch_name *row, int nest)
{
    switch (row->what) {
    case NAME_TENSOR_V2:
    case NAME_QTENSOR:
    case NAME_TENSOR_V3: return make_tensor(w, v, row, nest);
    case NAME_PARAMETER: return become_arg(w, v, 0, nest, true);
    case NAME_FROM_TYPE: return from_type(w, v, nest);
    case NAME_DICT:      return make_dict(w, v);
    case NAME_SET:       return make_set(w, v);
    case NAME_BYTES:     return make_bytes(w, v);
    case NAME_GETATTR:
    case NAME_ENUM:
    case NAME_UNREAD:
    case NAME_INERT:     return 0;
    }
    return 0;
}

/* Resolve one value; the walk resolves the values below it. */
static int resolve(struct walk *w, struct value *v, int nest)
{
    const struct torch_name *row;
    int rc;

    if (nest > MAX_NEST)
        return bad(w, "tensors rebuilt inside each other too deep");
    if (v->kind != VALUE_OBJECT && v->kind != VALUE_GLOBAL && v->kind != VALUE_PERSISTENT)
        return 0;
    if (v->kind == VALUE_PERSISTENT) {
        rc = check_persistent(w, v);
    } else {
        row = torch_name_find(v->u.obj.module, v->u.obj.name);
        if (!row || v->u.obj.callee || row->what == NAME_GETATTR)
            return unknown(w, v);
        if (v->kind == VALUE_GLOBAL)
            return 0;
        rc = resolve_by(w, v, row, nest);
    }
    /* Records of tensors that are not read stay, for callers that only look or list. */
    if ((rc == CKPT_EUNSUPPORTED && (!w->strict || w->storages->keep_unread)) ||
        (rc == CKPT_ELIMIT && !w->strict)) {
        ckpt_err_clear(w->err);
        rc = 0;
    }
    return rc;
}

static int push(struct walk *w, struct value *v)
{
    if (!v || v->mark)
        return 0;
    if (++w->visits > MAX_VISITS)
        return ckpt_fail(w->err, CKPT_ELIMIT, "pickle: more than %zu values", MAX_VISITS);
    v->mark = 1;
    if (w->depth >= PICKLE_MAX_DEPTH)
        return ckpt_fail(w->err, CKPT_ELIMIT, "pickle: nested deeper than %d", PICKLE_MAX_DEPTH);
    if (ckpt_reserve(&w->stack, w->n, &w->cap, sizeof *w->stack, w->err))
        return CKPT_ENOMEM;
    w->stack[w->n++] = (struct level){v, w->depth + 1};
    return 0;
}

static int push_seq(struct walk *w, const struct value_seq *s)
{
    int rc;

    for (size_t i = s->n; i-- > 0;)     /* the first is visited first, so that storages keep
                                           their order */
        if ((rc = push(w, s->item[i])) != 0)
            return rc;
    return 0;
}

static int push_pairs(struct walk *w, const struct value_pairs *d)
{
    int rc;

    for (size_t i = d->n; i-- > 0;)
        if ((rc = push(w, d->val[i])) != 0 || (rc = push(w, d->key[i])) != 0)
            return rc;
    return 0;
}

static int push_children(struct walk *w, struct value *v)
{
    int rc;

    switch (v->kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_SET:  return push_seq(w, &v->u.seq);
    case VALUE_DICT:
        rc = push(w, v->u.dict.state);
        return rc ? rc : push_pairs(w, &v->u.dict);
    case VALUE_OBJECT:
        if ((rc = push(w, v->u.obj.state)) != 0 || (rc = push_pairs(w, &v->u.obj.pairs)) != 0 ||
            (rc = push_seq(w, &v->u.obj.items)) != 0 || (rc = push(w, v->u.obj.kwargs)) != 0 ||
            (rc = push(w, v->u.obj.args)) != 0)
            return rc;
        return push(w, v->u.obj.callee);
    default: return 0;
    }
}

int torch_value_resolve(struct value *root, struct torch_storages *storages,
                        struct ckpt_arena *arena, bool strict, struct ckpt_err *err)
{
    struct walk w = {.storages = storages, .a = arena, .strict = strict, .err = err};
    int rc = push(&w, root);

    while (rc == 0 && w.n > 0) {
        struct level l = w.stack[--w.n];

        w.depth = l.depth;
        rc = resolve(&w, l.v, 0);
        if (rc == 0)
            rc = push_children(&w, l.v);
    }
    storages->values = w.visits;
    ckpt_free(w.stack);
    return rc;
}
