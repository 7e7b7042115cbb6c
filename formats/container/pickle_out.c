/* pickle_out - see pickle_out.h. */
#include "formats/container/pickle_out.h"

#include <string.h>

#define MAX_DEPTH 512

struct out {
    struct ckpt_buf             *b;
    const struct pickle_storage *storage;
    size_t                       n_storage;
};

static int put(struct out *o, const struct value *v, int depth, struct ckpt_err *err);

static void op(struct out *o, char c) { ckpt_buf_put_u8(o->b, (uint8_t)c); }

static void put_global(struct out *o, const char *module, const char *name)
{
    op(o, 'c');
    ckpt_buf_put_str(o->b, module);
    op(o, '\n');
    ckpt_buf_put_str(o->b, name);
    op(o, '\n');
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
    } else {                            /* LONG1, as few bytes as hold the sign */
        int n = 8;

        while (n > 1 && (i >> (8 * (n - 1) - 1) == 0 || i >> (8 * (n - 1) - 1) == -1))
            n--;
        op(o, (char)0x8a);
        ckpt_buf_put_u8(o->b, (uint8_t)n);
        for (int k = 0; k < n; k++)
            ckpt_buf_put_u8(o->b, (uint8_t)((uint64_t)i >> (8 * k)));
    }
}

static void put_float(struct out *o, double f)
{
    uint64_t bits;

    memcpy(&bits, &f, sizeof bits);
    op(o, 'G');
    for (int k = 7; k >= 0; k--)
        ckpt_buf_put_u8(o->b, (uint8_t)(bits >> (8 * k)));
}

static void put_text(struct out *o, const char *s, size_t n)
{
    op(o, 'X');
    ckpt_buf_put_u32le(o->b, (uint32_t)n);
    ckpt_buf_put(o->b, s, n);
}

/* _codecs.encode(text, 'latin1'): each byte is one character. */
static void put_bytes(struct out *o, const struct value_text *t)
{
    size_t extra = 0;

    if (t->n == 0) {
        put_global(o, "__builtin__", "bytes");
        ckpt_buf_put_str(o->b, ")R");
        return;
    }
    for (size_t i = 0; i < t->n; i++)
        extra += (unsigned char)t->p[i] >= 0x80;
    put_global(o, "_codecs", "encode");
    op(o, 'X');
    ckpt_buf_put_u32le(o->b, (uint32_t)(t->n + extra));
    for (size_t i = 0; i < t->n; i++) {
        unsigned char c = (unsigned char)t->p[i];

        if (c >= 0x80)
            ckpt_buf_put_u8(o->b, (uint8_t)(0xc0 | c >> 6));
        ckpt_buf_put_u8(o->b, (uint8_t)(c >= 0x80 ? 0x80 | (c & 0x3f) : c));
    }
    put_text(o, "latin1", 6);
    op(o, (char)0x86);
    op(o, 'R');
}

static int put_items(struct out *o, const struct value_seq *s, int depth, struct ckpt_err *err)
{
    for (size_t i = 0; i < s->n; i++)
        if (put(o, s->item[i], depth + 1, err))
            return err->code;
    return 0;
}

static int put_tuple(struct out *o, const struct value_seq *s, int depth, struct ckpt_err *err)
{
    if (s->n == 0) {
        op(o, ')');
        return 0;
    }
    if (s->n > 3)
        op(o, '(');
    if (put_items(o, s, depth, err))
        return err->code;
    op(o, s->n > 3 ? 't' : (char)(0x84 + s->n));
    return 0;
}

static int put_pairs(struct out *o, const struct value_pairs *d, int depth, struct ckpt_err *err)
{
    for (size_t i = 0; i < d->n; i += 1000) {
        size_t end = d->n - i < 1000 ? d->n : i + 1000;

        op(o, '(');
        for (size_t k = i; k < end; k++)
            if (put(o, d->key[k], depth + 1, err) || put(o, d->val[k], depth + 1, err))
                return err->code;
        op(o, 'u');
    }
    return 0;
}

static int put_list(struct out *o, const struct value_seq *s, int depth, struct ckpt_err *err)
{
    for (size_t i = 0; i < s->n; i += 1000) {
        struct value_seq part = {.item = s->item + i, .n = s->n - i < 1000 ? s->n - i : 1000};

        op(o, '(');
        if (put_items(o, &part, depth, err))
            return err->code;
        op(o, 'e');
    }
    return 0;
}

/* ('storage', class, key, 'cpu', numel) as a persistent id. */
static void put_storage(struct out *o, size_t i)
{
    const struct pickle_storage *s = &o->storage[i];
    const char *class = ckpt_dtype_torch_storage(s->dtype);
    struct ckpt_buf key;

    op(o, '(');
    put_text(o, "storage", 7);
    if (class)
        put_global(o, "torch", class);
    else
        put_global(o, "torch.storage", "UntypedStorage");
    ckpt_buf_init(&key, 32);
    ckpt_buf_printf(&key, "%zu", i);
    put_text(o, (const char *)key.data, key.len);
    ckpt_buf_release(&key);
    put_text(o, "cpu", 3);
    put_int(o, class ? s->numel : s->numel * (int64_t)ckpt_dtype_size(s->dtype));
    op(o, 't');
    op(o, 'Q');
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
    op(o, rank > 3 ? 't' : (char)(0x84 + rank));
}

static int put_tensor(struct out *o, const struct value_tensor *t, struct ckpt_err *err)
{
    bool typed;

    if (t->storage >= o->n_storage)
        return ckpt_fail(err, CKPT_ESTATE, "pickle: storage %zu of %zu", t->storage, o->n_storage);
    typed = ckpt_dtype_torch_storage(o->storage[t->storage].dtype) != NULL;
    if (t->parameter) {
        put_global(o, "torch._utils", "_rebuild_parameter");
        op(o, '(');
    }
    put_global(o, "torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    op(o, '(');
    put_storage(o, t->storage);
    put_int(o, t->offset);
    put_dims(o, t->shape.dim, t->shape.rank);
    put_dims(o, t->stride, t->shape.rank);
    op(o, t->requires_grad && !t->parameter ? (char)0x88 : (char)0x89);
    put_global(o, "collections", "OrderedDict");
    ckpt_buf_put_str(o->b, ")R");
    if (!typed)
        put_global(o, "torch", ckpt_dtype_torch_name(t->dtype));
    op(o, 't');
    op(o, 'R');
    if (t->parameter) {
        op(o, t->requires_grad ? (char)0x88 : (char)0x89);
        put_global(o, "collections", "OrderedDict");
        ckpt_buf_put_str(o->b, ")Rt");
        op(o, 'R');
    }
    return 0;
}

static int put_object(struct out *o, const struct value *v, int depth, struct ckpt_err *err)
{
    put_global(o, v->u.obj.module, v->u.obj.name);
    if (v->kind == VALUE_GLOBAL)
        return 0;
    if (put_tuple(o, &v->u.obj.args->u.seq, depth + 1, err))
        return err->code;
    op(o, v->u.obj.newobj ? (char)0x81 : 'R');
    if (v->u.obj.items.n && put_list(o, &v->u.obj.items, depth, err))
        return err->code;
    if (v->u.obj.pairs.n && put_pairs(o, &v->u.obj.pairs, depth, err))
        return err->code;
    if (v->u.obj.state) {
        if (put(o, v->u.obj.state, depth + 1, err))
            return err->code;
        op(o, 'b');
    }
    return 0;
}

static int put(struct out *o, const struct value *v, int depth, struct ckpt_err *err)
{
    if (depth > MAX_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "pickle: nested deeper than %d", MAX_DEPTH);
    switch (v->kind) {
    case VALUE_NONE:   op(o, 'N'); return 0;
    case VALUE_BOOL:   op(o, v->u.b ? (char)0x88 : (char)0x89); return 0;
    case VALUE_INT:    put_int(o, v->u.i); return 0;
    case VALUE_FLOAT:  put_float(o, v->u.f); return 0;
    case VALUE_STR:    put_text(o, v->u.text.p, v->u.text.n); return 0;
    case VALUE_BYTES:  put_bytes(o, &v->u.text); return 0;
    case VALUE_TUPLE:  return put_tuple(o, &v->u.seq, depth, err);
    case VALUE_LIST:
        op(o, ']');
        return put_list(o, &v->u.seq, depth, err);
    case VALUE_DICT:
        if (v->ordered) {
            put_global(o, "collections", "OrderedDict");
            ckpt_buf_put_str(o->b, ")R");
        } else {
            op(o, '}');
        }
        return put_pairs(o, &v->u.dict, depth, err);
    case VALUE_TENSOR: return put_tensor(o, v->u.tensor, err);
    case VALUE_GLOBAL:
    case VALUE_OBJECT: return put_object(o, v, depth, err);
    default:
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "pickle: a value of kind %d is not written",
                         (int)v->kind);
    }
}

int pickle_write(struct ckpt_buf *out, const struct value *v,
                 const struct pickle_storage *storage, size_t n_storage, struct ckpt_err *err)
{
    struct out o = {.b = out, .storage = storage, .n_storage = n_storage};

    op(&o, (char)0x80);
    op(&o, 2);
    if (put(&o, v, 0, err))
        return err->code;
    op(&o, '.');
    return ckpt_buf_ok(out) ? 0 : ckpt_nomem(err, out->len);
}
