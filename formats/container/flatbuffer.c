/* container/flatbuffer - see flatbuffer.h. */
#include "formats/container/flatbuffer.h"

/* n bytes at `at`, sign-extended; 0, with failed set, when they are out of range. */
static int64_t number(struct flatbuffer *f, size_t at, unsigned n)
{
    uint64_t v = 0;

    if (at > f->n || n > f->n - at) {
        f->failed = true;
        return 0;
    }
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)f->b[at + i] << 8 * i;
    return n < 8 && v >> (8 * n - 1) ? (int64_t)(v | ~(uint64_t)0 << 8 * n) : (int64_t)v;
}

static size_t u32(struct flatbuffer *f, size_t at) { return (uint32_t)number(f, at, 4); }
static size_t u16(struct flatbuffer *f, size_t at) { return (uint16_t)number(f, at, 2); }

static struct flatbuffer_table table_at(struct flatbuffer *f, size_t at)
{
    struct flatbuffer_table t = {.at = at};
    int64_t back = number(f, at, 4), vtable = (int64_t)at - back;

    if (f->failed || at == 0 || vtable < 0 || (uint64_t)vtable >= f->n)
        goto bad;
    t.vtable = (size_t)vtable;
    t.vsize = u16(f, t.vtable);
    t.size = u16(f, t.vtable + 2);
    if (f->failed || t.vsize < 4 || t.vsize > f->n - t.vtable || t.size < 4 ||
        t.size > f->n - at)
        goto bad;
    return t;
bad:
    f->failed = true;
    return (struct flatbuffer_table){0};
}

struct flatbuffer_table flatbuffer_root(struct flatbuffer *f) { return table_at(f, u32(f, 0)); }

/* Position of a field of that many bytes, or 0. */
static size_t field(struct flatbuffer *f, const struct flatbuffer_table *t, unsigned slot,
                    unsigned bytes)
{
    size_t entry = 4 + 2 * (size_t)slot, in;

    if (t->at == 0 || entry + 2 > t->vsize)
        return 0;
    in = u16(f, t->vtable + entry);
    if (in == 0)
        return 0;
    if (in < 4 || bytes > t->size || in > t->size - bytes) {
        f->failed = true;
        return 0;
    }
    return t->at + in;
}

int64_t flatbuffer_int(struct flatbuffer *f, const struct flatbuffer_table *t, unsigned slot,
                       unsigned bytes,
                       int64_t fallback)
{
    size_t at = field(f, t, slot, bytes);

    return at ? number(f, at, bytes) : fallback;
}

/* Position that the offset in a field points to, or 0. */
static size_t follow(struct flatbuffer *f, size_t at)
{
    size_t by;

    if (at == 0)
        return 0;
    by = u32(f, at);
    if (f->failed || by == 0 || by >= f->n - at) {
        f->failed = true;
        return 0;
    }
    return at + by;
}

struct flatbuffer_table flatbuffer_child(struct flatbuffer *f, const struct flatbuffer_table *t,
                                         unsigned slot)
{
    size_t at = follow(f, field(f, t, slot, 4));

    return at ? table_at(f, at) : (struct flatbuffer_table){0};
}

struct flatbuffer_vector flatbuffer_list(struct flatbuffer *f, const struct flatbuffer_table *t,
                                         unsigned slot,
                                         size_t width)
{
    struct flatbuffer_vector v = {.width = width};
    size_t at = follow(f, field(f, t, slot, 4));

    if (at == 0)
        return v;
    v.n = u32(f, at);
    v.at = at + 4;
    if (f->failed || v.n > (f->n - v.at) / width) {
        f->failed = true;
        v.n = 0;
    }
    return v;
}

const char *flatbuffer_text(struct flatbuffer *f, const struct flatbuffer_table *t,
                            unsigned slot, size_t *len)
{
    struct flatbuffer_vector v = flatbuffer_list(f, t, slot, 1);

    *len = v.n;
    return v.at && !f->failed ? (const char *)f->b + v.at : NULL;
}

struct flatbuffer_table flatbuffer_at(struct flatbuffer *f, const struct flatbuffer_vector *v,
                                      size_t i)
{
    size_t at = follow(f, v->at + 4 * i);

    return at ? table_at(f, at) : (struct flatbuffer_table){0};
}

int64_t flatbuffer_i64(const struct flatbuffer *f, const struct flatbuffer_vector *v, size_t i,
                       size_t in)
{
    struct flatbuffer copy = *f;

    return number(&copy, v->at + i * v->width + in, 8);
}
