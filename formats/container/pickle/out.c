/* pickle/out - see pickle/out.h. */
#include "formats/container/pickle/out.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/map.h"

#define MAX_DEPTH    512
#define BATCH        1000       /* most items of one APPENDS or SETITEMS */
#define MAX_NAME     2100       /* longest module and name of a global */
#define MAX_LONG     255        /* most bytes of a LONG1 */

struct out {
    struct ckpt_buf             *b;
    const struct pickle_storage *storage;
    size_t                       n_storage;
    struct ckpt_map             *memo;      /* identity -> index */
    size_t                       n_memo;
    struct ckpt_arena            keys;      /* of the map */
    struct ckpt_err             *err;
};

/* Key of a value in the memo: its address, or its name. */
struct id {
    char   bytes[32];
    size_t n;
};

static int put(struct out *o, const struct value *v, int depth);

static void op(struct out *o, int c) { ckpt_buf_put_u8(o->b, (uint8_t)c); }

/* -- memo ------------------------------------------------------------------------------------ */

/* Python's compiler shares equal constants; these belong to torch and to pickle itself. */
static bool is_constant(const struct value *v)
{
    return v->kind == VALUE_STR &&
           (strcmp(v->u.text.p, "storage") == 0 || strcmp(v->u.text.p, "cpu") == 0 ||
            strcmp(v->u.text.p, "latin1") == 0);
}

static struct id id_of(const struct value *v)
{
    struct id id = {.n = 1 + sizeof v};

    if (is_constant(v)) {
        id.n = (size_t)snprintf(id.bytes, sizeof id.bytes, "s%s", v->u.text.p);
    } else {
        id.bytes[0] = 'p';
        memcpy(id.bytes + 1, &v, sizeof v);
    }
    return id;
}

/* Put an opcode of the memo with its index, in one byte or in four. */
static void put_index(struct out *o, int short_op, int long_op, size_t i)
{
    op(o, i < 256 ? short_op : long_op);
    if (i < 256)
        ckpt_buf_put_u8(o->b, (uint8_t)i);
    else
        ckpt_buf_put_u32le(o->b, (uint32_t)i);
}

/* If the memo has it, put a GET and return true. */
static bool put_known(struct out *o, const char *id, size_t n)
{
    size_t i = ckpt_map_get(o->memo, id, n);

    if (i != CKPT_MAP_NONE)
        put_index(o, 'h', 'j', i);
    return i != CKPT_MAP_NONE;
}

/* Memoise the top of the stack; id NULL: it is never referred to again. */
static int memoize_as(struct out *o, const char *id, size_t n)
{
    size_t i = o->n_memo++;
    char *key;

    put_index(o, 'q', 'r', i);
    if (!id)
        return 0;
    key = ckpt_arena_strndup(&o->keys, id, n);
    return key ? ckpt_map_add(o->memo, key, n, i, o->err) : ckpt_nomem(o->err, n);
}

static int memoize(struct out *o, const struct id *id)
{
    return id ? memoize_as(o, id->bytes, id->n) : memoize_as(o, NULL, 0);
}

/* -- atoms ----------------------------------------------------------------------------------- */

static int put_global(struct out *o, const char *module, const char *name)
{
    char id[MAX_NAME];
    int n = snprintf(id, sizeof id, "c%s\n%s", module, name);

    if (n < 0 || n >= MAX_NAME)
        return ckpt_fail(o->err, CKPT_ELIMIT, "pickle: the name %s.%s is too long", module, name);
    if (strchr(module, '\n') || strchr(name, '\n'))
        return ckpt_fail(o->err, CKPT_EUNSUPPORTED, "pickle: the name %s.%s has a line feed in it",
                         module, name);
    if (put_known(o, id, (size_t)n))
        return 0;
    ckpt_buf_put(o->b, id, (size_t)n);
    op(o, '\n');
    return memoize_as(o, id, (size_t)n);
}

static void put_long(struct out *o, const unsigned char *p, size_t n)
{
    while (n > 1 && p[n - 1] == (p[n - 2] & 0x80 ? 0xff : 0))
        n--;
    op(o, 0x8a);
    ckpt_buf_put_u8(o->b, (uint8_t)n);
    ckpt_buf_put(o->b, p, n);
}

static void put_int(struct out *o, int64_t i)
{
    if (i >= 0 && i < 256) {
        op(o, 'K');
        ckpt_buf_put_u8(o->b, (uint8_t)i);
    } else if (i >= 0 && i < 65536) {
        op(o, 'M');
        ckpt_buf_put_u16le(o->b, (uint16_t)i);
    } else if (i >= INT32_MIN && i <= INT32_MAX) {
        op(o, 'J');
        ckpt_buf_put_u32le(o->b, (uint32_t)i);
    } else {
        unsigned char p[8];

        for (int k = 0; k < 8; k++)
            p[k] = (unsigned char)((uint64_t)i >> (8 * k));
        put_long(o, p, sizeof p);
    }
}

/* Decimal digits as two's complement. */
static int put_big(struct out *o, const struct value_text *t)
{
    unsigned char p[MAX_LONG + 1] = {0};
    bool negative = t->n > 0 && t->p[0] == '-';
    unsigned carry;

    for (size_t i = negative || (t->n > 0 && t->p[0] == '+'); i < t->n; i++) {
        carry = (unsigned)(t->p[i] - '0');
        for (size_t k = 0; k < sizeof p; k++) {
            carry += 10u * p[k];
            p[k] = (unsigned char)carry;
            carry >>= 8;
        }
        if (carry || p[MAX_LONG - 1] & 0x80 || p[MAX_LONG])
            return ckpt_fail(o->err, CKPT_ELIMIT, "pickle: a number of over %d bytes", MAX_LONG);
    }
    for (size_t k = 0; negative && k < sizeof p; k++)
        p[k] = (unsigned char)~p[k];
    for (size_t k = 0; negative && k < sizeof p && ++p[k] == 0; k++)
        ;
    put_long(o, p, MAX_LONG);
    return 0;
}

static void put_float(struct out *o, double f)
{
    uint64_t bits;

    memcpy(&bits, &f, sizeof bits);
    op(o, 'G');
    for (int k = 7; k >= 0; k--)
        ckpt_buf_put_u8(o->b, (uint8_t)(bits >> (8 * k)));
}

static int put_text(struct out *o, const char *s, size_t n, const struct id *id)
{
    if (id && put_known(o, id->bytes, id->n))
        return 0;
    if (n > UINT32_MAX)
        return ckpt_fail(o->err, CKPT_ELIMIT, "pickle: a text of %zu bytes", n);
    op(o, 'X');
    ckpt_buf_put_u32le(o->b, (uint32_t)n);
    ckpt_buf_put(o->b, s, n);
    return memoize(o, id);
}

static int put_constant(struct out *o, const char *s)
{
    struct value v = {.kind = VALUE_STR, .u.text = {s, strlen(s)}};
    struct id id = id_of(&v);

    return put_text(o, s, v.u.text.n, &id);
}

/* Put each byte of p as one character of a text. */
static int put_latin1(struct out *o, const char *p, size_t n)
{
    struct ckpt_buf text;
    int rc;

    ckpt_buf_init(&text, SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c >= 0x80)
            ckpt_buf_put_u8(&text, (uint8_t)(0xc0 | c >> 6));
        ckpt_buf_put_u8(&text, (uint8_t)(c >= 0x80 ? 0x80 | (c & 0x3f) : c));
    }
    rc = ckpt_buf_ok(&text) ? put_text(o, (const char *)text.data, text.len, NULL)
                            : ckpt_nomem(o->err, 2 * n);
    ckpt_buf_release(&text);
    return rc;
}

/* _codecs.encode(text, 'latin1'), or bytes(). */
static int put_bytes(struct out *o, const struct value_text *t)
{
    int rc;

    if (t->n == 0) {
        if ((rc = put_global(o, "__builtin__", "bytes")) != 0)
            return rc;
        op(o, ')');
    } else {
        if ((rc = put_global(o, "_codecs", "encode")) != 0 ||
            (rc = put_latin1(o, t->p, t->n)) != 0 || (rc = put_constant(o, "latin1")) != 0)
            return rc;
        op(o, 0x86);
        memoize(o, NULL);
    }
    op(o, 'R');
    return 0;
}

/* -- containers ------------------------------------------------------------------------------ */

/*
 * Put n rows of items in batches, which end in ops[1]; a single row has no mark and ends in
 * ops[0]. exact: as CPython's fast path for true lists and dictionaries does it.
 */
static int put_batches(struct out *o, struct value **const *column, size_t n_column, size_t n,
                       const char *ops, bool exact, int depth)
{
    int rc;

    for (size_t i = 0; i < n;) {
        size_t end = n - i < BATCH ? n : i + BATCH;
        bool alone = end - i == 1 && (i == 0 || !exact);

        if (!alone)
            op(o, '(');
        for (; i < end; i++)
            for (size_t k = 0; k < n_column; k++)
                if ((rc = put(o, column[k][i], depth + 1)) != 0)
                    return rc;
        op(o, ops[!alone]);
    }
    return 0;
}

static int put_list(struct out *o, const struct value_seq *s, bool exact, int depth)
{
    return put_batches(o, &s->item, 1, s->n, "ae", exact, depth);
}

static int put_pairs(struct out *o, const struct value_pairs *d, bool exact, int depth)
{
    struct value **const column[] = {d->key, d->val};
    int rc = put_batches(o, column, 2, d->n, "su", exact, depth);

    if (rc == 0 && exact && d->n > 0 && d->n % BATCH == 0)
        ckpt_buf_put_str(o->b, "(u");  /* as CPython, which looks for another item and finds none */
    return rc;
}

/* Put v's items as a tuple; id NULL if nothing else refers to it. */
static int put_tuple(struct out *o, const struct value_seq *s, const struct id *id, int depth)
{
    int rc;

    if (s->n == 0) {
        op(o, ')');
        return 0;
    }
    if (s->n > 3)
        op(o, '(');
    for (size_t i = 0; i < s->n; i++)
        if ((rc = put(o, s->item[i], depth + 1)) != 0)
            return rc;
    /* A tuple that contains itself, through a list, is in the memo by now: drop what was put. */
    if (id && ckpt_map_get(o->memo, id->bytes, id->n) != CKPT_MAP_NONE) {
        for (size_t i = 0; s->n <= 3 && i < s->n; i++)
            op(o, '0');
        if (s->n > 3)
            op(o, '1');
        put_known(o, id->bytes, id->n);
        return 0;
    }
    op(o, s->n > 3 ? 't' : (int)(0x84 + s->n));
    return memoize(o, id);
}

/* An empty collections.OrderedDict(). */
static int put_ordered(struct out *o, const struct id *id)
{
    int rc;

    if ((rc = put_global(o, "collections", "OrderedDict")) != 0)
        return rc;
    op(o, ')');
    op(o, 'R');
    return memoize(o, id);
}

static int put_dict(struct out *o, const struct value *v, const struct id *id, int depth)
{
    int rc;

    if (!v->ordered) {
        op(o, '}');
        rc = memoize(o, id);
        return rc ? rc : put_pairs(o, &v->u.dict, true, depth);
    }
    if ((rc = put_ordered(o, id)) != 0 || (rc = put_pairs(o, &v->u.dict, false, depth)) != 0)
        return rc;
    if (v->u.dict.state) {
        if ((rc = put(o, v->u.dict.state, depth + 1)) != 0)
            return rc;
        op(o, 'b');
    }
    return 0;
}

/* __builtin__.set([items]) */
static int put_set(struct out *o, const struct value *v, const struct id *id, int depth)
{
    int rc;

    if ((rc = put_global(o, "__builtin__", "set")) != 0)
        return rc;
    op(o, ']');
    memoize(o, NULL);
    if ((rc = put_list(o, &v->u.seq, true, depth)) != 0)
        return rc;
    op(o, 0x85);
    memoize(o, NULL);
    op(o, 'R');
    return memoize(o, id);
}

static int put_object(struct out *o, const struct value *v, const struct id *id, int depth)
{
    int rc;

    if (v->u.obj.kwargs)
        return ckpt_fail(o->err, CKPT_EUNSUPPORTED, "pickle: %s.%s with keyword arguments is not "
                         "written", v->u.obj.module, v->u.obj.name);
    rc = v->u.obj.callee ? put(o, v->u.obj.callee, depth + 1)
                         : put_global(o, v->u.obj.module, v->u.obj.name);
    if (rc)
        return rc;
    if ((rc = put(o, v->u.obj.args, depth + 1)) != 0)
        return rc;
    op(o, v->u.obj.newobj ? 0x81 : 'R');
    if ((rc = memoize(o, id)) != 0 || (rc = put_list(o, &v->u.obj.items, false, depth)) != 0 ||
        (rc = put_pairs(o, &v->u.obj.pairs, false, depth)) != 0)
        return rc;
    if (v->u.obj.state) {
        if ((rc = put(o, v->u.obj.state, depth + 1)) != 0)
            return rc;
        op(o, 'b');
    }
    return 0;
}

/* -- tensors --------------------------------------------------------------------------------- */

/* ('storage', class, key, 'cpu', numel) as a persistent id. */
static int put_storage(struct out *o, size_t i)
{
    const struct pickle_storage *s = &o->storage[i];
    const char *class = ckpt_dtype_torch_storage(s->dtype);
    struct id id;
    char key[24];
    int rc;

    snprintf(key, sizeof key, "%zu", i);
    id.n = (size_t)snprintf(id.bytes, sizeof id.bytes, "k%zu", i);

    op(o, '(');
    if ((rc = put_constant(o, "storage")) != 0 ||
        (rc = put_global(o, class ? "torch" : "torch.storage",
                         class ? class : "UntypedStorage")) != 0 ||
        (rc = put_text(o, key, strlen(key), &id)) != 0 || (rc = put_constant(o, "cpu")) != 0)
        return rc;
    put_int(o, class ? s->numel : s->numel * (int64_t)ckpt_dtype_size(s->dtype));
    op(o, 't');
    memoize(o, NULL);
    op(o, 'Q');
    return 0;
}

static void put_dims(struct out *o, const int64_t *dim, int rank)
{
    if (rank == 0) {
        op(o, ')');
        return;
    }
    if (rank > 3)
        op(o, '(');
    for (int i = 0; i < rank; i++)
        put_int(o, dim[i]);
    op(o, rank > 3 ? 't' : 0x84 + rank);
    memoize(o, NULL);
}

/* Check that a tensor fits inside one of the storages, and has its class. */
static int check_tensor(struct out *o, const struct value_tensor *t)
{
    const struct pickle_storage *s = t->storage < o->n_storage ? &o->storage[t->storage] : NULL;
    int64_t numel, last = t->offset;

    if (!s || !ckpt_shape_numel(&numel, &t->shape) || t->offset < 0 || t->dtype != s->dtype ||
        !ckpt_dtype_torch_name(t->dtype) || (t->dtype >= CKPT_QI8 && t->dtype <= CKPT_QI32))
        return ckpt_fail(o->err, CKPT_ESTATE, "pickle: a tensor of %s cannot lie in storage %zu "
                         "of %zu", ckpt_dtype_name(t->dtype), t->storage, o->n_storage);
    for (int i = 0; numel > 0 && i < t->shape.rank; i++) {
        int64_t part;

        if (t->stride[i] < 0 || __builtin_mul_overflow(t->shape.dim[i] - 1, t->stride[i], &part) ||
            __builtin_add_overflow(last, part, &last))
            last = INT64_MAX;
    }
    return numel == 0 || last < s->numel
               ? 0 : ckpt_fail(o->err, CKPT_ESTATE, "pickle: a tensor reaches element %lld of "
                               "storage %zu, which has %lld", (long long)last, t->storage,
                               (long long)s->numel);
}

static int put_tensor(struct out *o, const struct value_tensor *t, const struct id *id)
{
    bool typed = ckpt_dtype_torch_storage(t->dtype) != NULL;
    int rc;

    if ((rc = check_tensor(o, t)) != 0)
        return rc;
    if (t->parameter && (rc = put_global(o, "torch._utils", "_rebuild_parameter")) != 0)
        return rc;
    if ((rc = put_global(o, "torch._utils",
                         typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3")) != 0)
        return rc;
    op(o, '(');
    if ((rc = put_storage(o, t->storage)) != 0)
        return rc;
    put_int(o, t->offset);
    put_dims(o, t->shape.dim, t->shape.rank);
    put_dims(o, t->stride, t->shape.rank);
    op(o, t->requires_grad && !t->parameter ? 0x88 : 0x89);
    if ((rc = put_ordered(o, NULL)) != 0 ||
        (!typed && (rc = put_global(o, "torch", ckpt_dtype_torch_name(t->dtype))) != 0))
        return rc;
    op(o, 't');
    memoize(o, NULL);
    op(o, 'R');
    if ((rc = memoize(o, t->parameter ? NULL : id)) != 0)
        return rc;
    if (!t->parameter)
        return 0;
    op(o, t->requires_grad ? 0x88 : 0x89);
    if ((rc = put_ordered(o, NULL)) != 0)
        return rc;
    op(o, 0x87);
    memoize(o, NULL);
    op(o, 'R');
    return memoize(o, id);
}

/* -- any value ------------------------------------------------------------------------------- */

/* Put values that are never memoised. */
static bool put_atom(struct out *o, const struct value *v)
{
    switch (v->kind) {
    case VALUE_NONE:  op(o, 'N'); return true;
    case VALUE_BOOL:  op(o, v->u.b ? 0x88 : 0x89); return true;
    case VALUE_INT:   put_int(o, v->u.i); return true;
    case VALUE_FLOAT: put_float(o, v->u.f); return true;
    default:          return false;
    }
}

static int put(struct out *o, const struct value *v, int depth)
{
    struct id id;
    int rc;

    if (depth > MAX_DEPTH)
        return ckpt_fail(o->err, CKPT_ELIMIT, "pickle: nested deeper than %d", MAX_DEPTH);
    if (put_atom(o, v))
        return 0;
    id = id_of(v);
    if (put_known(o, id.bytes, id.n))
        return 0;
    switch (v->kind) {
    case VALUE_STR:    return put_text(o, v->u.text.p, v->u.text.n, &id);
    case VALUE_BYTES:
        rc = put_bytes(o, &v->u.text);
        return rc ? rc : memoize(o, &id);
    case VALUE_BIGINT: return put_big(o, &v->u.text);
    case VALUE_TUPLE:  return put_tuple(o, &v->u.seq, &id, depth);
    case VALUE_LIST:
        op(o, ']');
        rc = memoize(o, &id);
        return rc ? rc : put_list(o, &v->u.seq, true, depth);
    case VALUE_DICT:   return put_dict(o, v, &id, depth);
    case VALUE_SET:    return put_set(o, v, &id, depth);
    case VALUE_TENSOR: return put_tensor(o, v->u.tensor, &id);
    case VALUE_GLOBAL: return put_global(o, v->u.obj.module, v->u.obj.name);
    case VALUE_OBJECT: return put_object(o, v, &id, depth);
    default:
        return ckpt_fail(o->err, CKPT_EUNSUPPORTED, "pickle: a value of kind %d is not written",
                         (int)v->kind);
    }
}

int pickle_write(struct ckpt_buf *out, const struct value *v,
                 const struct pickle_storage *storage, size_t n_storage, struct ckpt_err *err)
{
    struct out o = {.b = out, .storage = storage, .n_storage = n_storage, .err = err};
    int rc = ckpt_map_new(&o.memo, 256, err);

    op(&o, 0x80);
    op(&o, 2);
    if (rc == 0)
        rc = put(&o, v, 0);
    op(&o, '.');
    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_nomem(err, out->len);
    ckpt_map_free(o.memo);
    ckpt_arena_release(&o.keys);
    return rc;
}
