/* npy - see npy.h. */
#include "formats/container/npy.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"

#define MAX_HEADER  ((uint64_t)1 << 20) /* numpy's own limit is 10,000 */
#define MAX_DEPTH   32                  /* nesting of fields */

struct text {
    const char *at, *end;
};

static void blanks(struct text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
        t->at++;
}

static bool take(struct text *t, const char *word)
{
    size_t n = strlen(word);

    blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* Parse a string without escapes, in either kind of quotes. */
static bool take_string(char *dst, size_t size, struct text *t)
{
    const char *stop;
    char quote;

    blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at++;
    stop = memchr(t->at, quote, (size_t)(t->end - t->at));
    if (!stop || (size_t)(stop - t->at) >= size || memchr(t->at, '\\', (size_t)(stop - t->at)))
        return false;
    memcpy(dst, t->at, (size_t)(stop - t->at));
    dst[stop - t->at] = '\0';
    t->at = stop + 1;
    return true;
}

/* Parse digits, and the L that Python 2 wrote. */
static bool take_number(int64_t *out, struct text *t)
{
    const char *begin;

    blanks(t);
    begin = t->at;
    for (*out = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *t->at - '0', out))
            return false;
    if (t->at == begin)
        return false;
    if (t->at < t->end && *t->at == 'L')
        t->at++;
    return true;
}

static int take_shape(struct npy *h, struct text *t, struct ckpt_err *err)
{
    bool good = take(t, "("), more = true;

    while (good && !take(t, ")")) {
        if (h->shape.rank == CKPT_MAX_RANK)
            return ckpt_fail(err, CKPT_ELIMIT, "more than %d axes", CKPT_MAX_RANK);
        good = more && take_number(&h->shape.dim[h->shape.rank++], t);
        more = take(t, ",");
    }
    return good ? 0 : ckpt_fail(err, CKPT_EFORMAT, "shape is no tuple of whole numbers");
}

/*
 * Whether numpy.dtype(descr) contains objects: "O", with the size of a pointer "|O8", by name, or
 * as one of several fields, "i4,3O".
 */
static bool is_object(const char *descr)
{
    for (bool more = true; more; descr++) {
        size_t n;

        descr += strspn(descr, " <>|=0123456789()");
        n = strcspn(descr, ",");
        if ((n > 0 && *descr == 'O' && strspn(descr + 1, "0123456789") + 1 >= n) ||
            strncmp(descr, "object", 6) == 0)
            return true;
        descr += n;
        more = *descr == ',';
    }
    return false;
}

/* Skip a list of fields: strings, numbers and brackets.  A field named O counts as an object
 * too. */
static int take_fields(struct npy *h, struct text *t, struct ckpt_err *err)
{
    char word[256];
    int64_t number;
    int depth = 1;

    h->record = true;
    while (depth > 0 && depth < MAX_DEPTH) {
        if (take(t, "[") || take(t, "("))
            depth++;
        else if (take(t, "]") || take(t, ")"))
            depth--;
        else if (take_string(word, sizeof word, t))
            h->object |= is_object(word);
        else if (!take(t, ",") && !take_number(&number, t))
            break;
    }
    return depth == 0 ? 0 : ckpt_fail(err, CKPT_EFORMAT, "descr is no list of fields");
}

static int take_descr(struct npy *h, struct text *t, struct ckpt_err *err)
{
    static const struct { char kind, size; enum ckpt_dtype dtype; } kinds[] = {
        {'f', 2, CKPT_F16}, {'f', 4, CKPT_F32}, {'f', 8, CKPT_F64}, {'b', 1, CKPT_BOOL},
        {'i', 1, CKPT_I8},  {'i', 2, CKPT_I16}, {'i', 4, CKPT_I32}, {'i', 8, CKPT_I64},
        {'u', 1, CKPT_U8},  {'u', 2, CKPT_U16}, {'u', 4, CKPT_U32}, {'u', 8, CKPT_U64},
        {'c', 8, CKPT_C64}, {'c', 16, CKPT_C128},
    };
    const char *s = h->descr;
    int size = 0, used = 0;

    if (take(t, "["))
        return take_fields(h, t, err);
    if (!take_string(h->descr, sizeof h->descr, t))
        return ckpt_fail(err, CKPT_EFORMAT, "descr is no string");
    h->object = is_object(s);
    h->swapped = *s == '>';
    s += *s && strchr("<>|=", *s);
    if (!*s || !strchr("biufcSUVMm", *s) || sscanf(s + 1, "%9d%n", &size, &used) != 1 || size < 0)
        return 0;
    h->width = (uint64_t)size * (*s == 'U' ? 4 : 1);
    for (size_t k = 0; s[1 + used] == '\0' && k < sizeof kinds / sizeof kinds[0]; k++)
        if (kinds[k].kind == *s && kinds[k].size == size)
            h->dtype = kinds[k].dtype;
    return 0;
}

/* Parse one key and its value. */
static int take_entry(struct npy *h, unsigned *seen, struct text *t, struct ckpt_err *err)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[64], shown[200];
    unsigned k = 0;

    if (!take_string(key, sizeof key, t) || !take(t, ":"))
        return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3 || *seen >> k & 1)
        return ckpt_fail(err, CKPT_EFORMAT, "the header's key %s is %s",
                         ckpt_err_escape(shown, sizeof shown, key, strlen(key)),
                         k == 3 ? "not known" : "there twice");
    *seen |= 1u << k;
    if (k == 0)
        return take_descr(h, t, err);
    if (k == 2)
        return take_shape(h, t, err);
    h->fortran = take(t, "True");
    return h->fortran || take(t, "False")
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "fortran_order is neither True nor False");
}

int npy_parse(struct npy *h, const char *text, size_t n, struct ckpt_err *err)
{
    struct text t = {text, text + n};
    bool more = true;
    unsigned seen = 0;             /* a bit for each key seen */
    int rc;

    *h = (struct npy){.dtype = CKPT_DTYPE_NONE};
    if (!take(&t, "{"))
        return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
    while (!take(&t, "}")) {
        if (!more)
            return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
        if ((rc = take_entry(h, &seen, &t, err)) != 0)
            return rc;
        more = take(&t, ",");
    }
    blanks(&t);
    if (seen != 7 || t.at != t.end)
        return ckpt_fail(err, CKPT_EFORMAT, seen != 7
                         ? "the header lacks descr, fortran_order or shape"
                         : "more than a dictionary in the header");
    return 0;
}

int npy_header(struct npy *h, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file), n, first;
    struct ckpt_arena a = {0};
    unsigned char head[12] = {0};
    struct ckpt_cursor c;
    char *text;
    int rc;

    rc = ckpt_file_read_at(file, head, size < sizeof head ? (size_t)size : sizeof head, 0, err);
    if (rc)
        return rc;
    if (size < 10 || memcmp(head, NPY_MAGIC, 6) != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "does not begin as an array");
    if (head[6] < 1 || head[6] > 3)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "version %u, 1 to 3 are read", head[6]);
    ckpt_cursor_init(&c, head + 8, 4);
    first = head[6] == 1 ? 10 : 12;
    n = head[6] == 1 ? ckpt_cursor_u16le(&c) : ckpt_cursor_u32le(&c);
    if (n > MAX_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT, "a header of %llu bytes", (unsigned long long)n);
    if (first + n > size)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "a header of %llu bytes, the file has "
                            "%llu", (unsigned long long)n, (unsigned long long)size);
    text = ckpt_arena_alloc(&a, (size_t)n + 1, 1);
    rc = text ? ckpt_file_read_at(file, text, (size_t)n, first, err)
              : ckpt_nomem(err, (size_t)n + 1);
    if (rc == 0)
        rc = npy_parse(h, text, (size_t)n, err);
    ckpt_arena_release(&a);
    h->data = first + n;
    return rc;
}
