/* pickle/fields - see pickle/fields.h. */
#include "formats/container/pickle/fields.h"

#include <string.h>

void fields_of_dtype(struct fields *f, const struct item *args)
{
    const struct item *t = args->kind == TUPLE && args->n ? &args->u.item[0] : NULL;

    f->dtype = f->unknown = true;
    if (!t || t->kind != TEXT || t->n == 0 || t->n > 8)
        return;
    f->object = t->u.p[0] == 'O';
    f->unknown = !strchr("biufcSUMmO?", t->u.p[0]);
    for (size_t i = 1; i < t->n; i++)
        if (t->u.p[i] >= '0' && t->u.p[i] <= '9')
            f->width = f->width * 10 + (t->u.p[i] - '0');
        else
            f->unknown = true;
    f->width *= t->u.p[0] == 'U' ? 4 : 1;
    f->unknown |= t->n < 2 && !f->object;
}

/* Elements of a shape. */
static int64_t count_of(const struct item *shape)
{
    int64_t n = 1;

    if (shape->kind != TUPLE)
        return -1;
    for (size_t i = 0; i < shape->n; i++)
        if (shape->u.item[i].kind != INT || shape->u.item[i].u.i < 0 ||
            __builtin_mul_overflow(n, shape->u.item[i].u.i, &n))
            return -1;
    return n;
}

void fields_set(struct fields *f, const struct item *key, const struct item *val)
{
    if (key->kind != TEXT)
        return;
    if (key->n == 5 && memcmp(key->u.p, "shape", 5) == 0)
        f->count = count_of(val);
    if (key->n == 27 && memcmp(key->u.p, "numpy_array_alignment_bytes", 27) == 0)
        f->aligned = val->kind == INT;
    if (key->n == 5 && memcmp(key->u.p, "dtype", 5) == 0 && val->kind == MADE && val->u.f) {
        f->dtype = true;
        f->object = val->u.f->object;
        f->unknown = val->u.f->unknown;
        f->width = val->u.f->width;
    }
}

bool fields_bytes(const struct fields *f, int64_t *bytes)
{
    return f->dtype && !f->unknown && f->count >= 0 &&
           !__builtin_mul_overflow(f->count, f->width, bytes);
}
