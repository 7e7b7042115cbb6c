/*
 * gguf/header - see gguf/header.h.
 *
 * Layout (little endian), versions 2 and 3, which differ in nothing that is read here:
 *
 *   "GGUF", u32 version, u64 tensors, u64 pairs
 *   pair:    string key, u32 kind, value          string: u64 length, bytes
 *   array:   u32 kind of its elements, u64 count, elements (no arrays: ggml takes none either)
 *   tensor:  string name, u32 rank, u64 dims[rank] fastest first, u32 type, u64 offset
 *   zeros to a multiple of general.alignment (32 unless told), then the data, which offsets
 *   count from: tensors in any order, each padded to the alignment, nothing else between.
 *
 * Version 1 had 32-bit lengths; a big-endian file shows its version byte-swapped.
 * Source: ggml docs/gguf.md and gguf.cpp.
 */
#include "formats/gguf/header.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/buf.h"

#define WINDOW      65536u
#define MAX_PAIRS   100000u         /* a model has about fifty */
#define MAX_KEY     65535u          /* from the specification */
#define SHORT_ARRAY 64u             /* most elements that are stored */

/* The file through a window.  Errors are sticky: after a failure reads give zeros. */
struct reader {
    struct ckpt_file *file;
    struct ckpt_err  *err;
    int               rc;           /* code of the first failure */
    uint64_t          at, size;     /* of the file */
    uint64_t          from;         /* of the window's first byte */
    size_t            n;            /* bytes in it */
    unsigned char    *window;
};

/* Whether n more bytes exist; sets the failure if not. */
static bool has(struct reader *r, uint64_t n, const char *what)
{
    if (r->rc == 0 && n > r->size - r->at)
        r->rc = ckpt_fail_as(r->err, CKPT_EFORMAT, "truncated",
                             "%s needs %llu bytes at %llu, the file has %llu", what,
                             (unsigned long long)n, (unsigned long long)r->at,
                             (unsigned long long)r->size);
    return r->rc == 0;
}

/* The next n bytes, at most a window. */
static const unsigned char *take(struct reader *r, size_t n, const char *what)
{
    static const unsigned char zeros[8];
    const unsigned char *p;

    if (!has(r, n, what))
        return zeros;
    if (r->at < r->from || r->at + n > r->from + r->n) {
        uint64_t left = r->size - r->at;

        r->n = left < WINDOW ? (size_t)left : WINDOW;
        r->from = r->at;
        r->rc = ckpt_file_read_at(r->file, r->window, r->n, r->from, r->err);
        if (r->rc) {
            r->n = 0;
            return zeros;
        }
    }
    p = r->window + (r->at - r->from);
    r->at += n;
    return p;
}

static uint64_t number(struct reader *r, size_t n, const char *what)
{
    const unsigned char *p = take(r, n, what);
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint32_t u32(struct reader *r, const char *what) { return (uint32_t)number(r, 4, what); }

static void skip(struct reader *r, uint64_t n, const char *what)
{
    if (has(r, n, what))
        r->at += n;
}

/* A string in arena memory, at most limit bytes.  NULL when it failed. */
static const char *string(struct reader *r, struct ckpt_arena *a, size_t *len, size_t limit,
                          const char *what)
{
    uint64_t n = number(r, 8, what);
    const unsigned char *p;
    char *s;

    if (!has(r, n, what))
        return NULL;
    if (n > limit) {
        r->rc = ckpt_fail(r->err, CKPT_ELIMIT, "%s has %llu bytes, %zu at most", what,
                          (unsigned long long)n, limit);
        return NULL;
    }
    p = take(r, (size_t)n, what);
    s = r->rc ? NULL : ckpt_arena_strndup(a, (const char *)p, (size_t)n);
    if (r->rc == 0 && !s)
        r->rc = ckpt_nomem(r->err, (size_t)n);
    *len = (size_t)n;
    return s;
}

static const struct {
    const char *name;
    size_t      width;              /* bytes; 0: depends on the content */
} kinds[GGUF_KINDS] = {
    [GGUF_U8] = {"u8", 1}, [GGUF_I8] = {"i8", 1}, [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4}, [GGUF_I32] = {"i32", 4}, [GGUF_F32] = {"f32", 4},
    [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8}, [GGUF_F64] = {"f64", 8},
};

const char *gguf_kind_name(enum gguf_kind kind) { return kinds[kind].name; }

static json_t *real(double v)
{
    return isfinite(v) ? json_real(v) : json_string(isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
}

static json_t *integer(uint64_t v, unsigned bits, bool is_signed)
{
    if (is_signed && bits < 64 && v >> (bits - 1))
        v |= UINT64_MAX << bits;
    return is_signed || v <= INT64_MAX ? json_integer((json_int_t)v) : json_real((double)v);
}

/* A value of fixed width. */
static json_t *scalar(struct reader *r, enum gguf_kind kind)
{
    uint64_t v = number(r, kinds[kind].width, "a value");
    uint32_t low = (uint32_t)v;
    double d;
    float f;

    if (r->rc)
        return NULL;
    switch (kind) {
    case GGUF_F32:
        memcpy(&f, &low, sizeof f);
        return real((double)f);
    case GGUF_F64:
        memcpy(&d, &v, sizeof d);
        return real(d);
    case GGUF_BOOL:
        if (v <= 1)
            return json_boolean(v);
        r->rc = ckpt_fail(r->err, CKPT_EFORMAT, "a bool is %llu", (unsigned long long)v);
        return NULL;
    default:
        return integer(v, (unsigned)kinds[kind].width * 8,
                       kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64);
    }
}

/* A string's text, or JSON null when it is long or invalid UTF-8. */
static json_t *text(struct reader *r, uint64_t *len)
{
    uint64_t n = number(r, 8, "a string");
    const unsigned char *p;

    *len = n;
    if (!has(r, n, "a string"))
        return NULL;
    if (n > GGUF_KEPT) {
        r->at += n;
        return json_null();
    }
    p = take(r, (size_t)n, "a string");
    if (r->rc)
        return NULL;
    return ckpt_utf8_valid(p, (size_t)n) ? json_stringn((const char *)p, (size_t)n) : json_null();
}

/* Append an element to array, if it is stored. */
static void element(struct reader *r, json_t *array, enum gguf_kind of)
{
    uint64_t n;
    json_t *v;

    if (!array && of == GGUF_STRING) {
        n = number(r, 8, "a string");
        skip(r, n, "a string");
        return;
    }
    v = of == GGUF_STRING ? text(r, &n) : scalar(r, of);
    if (r->rc)
        json_decref(v);
    else if (!v || json_array_append_new(array, v))
        r->rc = ckpt_nomem(r->err, 64);
}

static void array(struct reader *r, struct gguf_pair *p)
{
    uint32_t of = u32(r, "an array");
    uint64_t n = number(r, 8, "an array"), bytes;

    if (r->rc)
        return;
    if (of >= GGUF_KINDS || of == GGUF_ARRAY) {
        r->rc = ckpt_fail(r->err, of == GGUF_ARRAY ? CKPT_EUNSUPPORTED : CKPT_EFORMAT,
                          "an array of kind %u", of);
        return;
    }
    p->of = (enum gguf_kind)of;
    p->n = n;
    p->at = r->at;
    if (!ckpt_mul(&bytes, n, of == GGUF_STRING ? 8 : kinds[of].width))
        bytes = UINT64_MAX;
    if (!has(r, bytes, "an array"))
        return;
    if (n > SHORT_ARRAY && of != GGUF_STRING) {
        r->at += bytes;
        return;
    }
    if (n <= SHORT_ARRAY && !(p->value = json_array())) {
        r->rc = ckpt_nomem(r->err, 64);
        return;
    }
    for (uint64_t i = 0; i < n && r->rc == 0; i++)
        element(r, p->value, p->of);
}

/* A string that is long or invalid UTF-8 has no stored value: it is read on request. */
static void value(struct reader *r, struct gguf_pair *p)
{
    p->at = r->at;
    if (p->kind == GGUF_ARRAY)
        array(r, p);
    else
        p->value = p->kind == GGUF_STRING ? text(r, &p->n) : scalar(r, p->kind);
    if (r->rc == 0 && !p->value && p->kind != GGUF_ARRAY)
        r->rc = ckpt_nomem(r->err, 64);
    if (p->kind == GGUF_STRING)
        p->at += 8;
    p->end = r->at;
    if (json_is_null(p->value)) {
        json_decref(p->value);
        p->value = NULL;
    }
}

static void pair(struct reader *r, struct gguf_header *h, struct gguf_pair *p)
{
    size_t len;
    uint32_t kind;

    p->key = string(r, &h->arena, &len, MAX_KEY, "a key");
    if (r->rc == 0 && !ckpt_utf8_valid(p->key, len))
        r->rc = ckpt_fail(r->err, CKPT_EFORMAT, "a key is not strict UTF-8");
    kind = u32(r, "a kind");
    if (r->rc)
        return;
    p->kind = (enum gguf_kind)kind;
    if (kind < GGUF_KINDS)
        value(r, p);
    else
        r->rc = ckpt_fail(r->err, CKPT_EFORMAT, "kind %u", kind);
    if (r->rc)
        ckpt_err_in(r->err, "key %s", p->key);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct gguf_pair *)a)->key, ((const struct gguf_pair *)b)->key);
}

/* Allocate for n items, each of which takes at least that many bytes of the file. */
static int reserve(void **out, struct reader *r, uint64_t n, size_t size, unsigned most,
                   unsigned bytes, const char *what)
{
    uint64_t left = r->size - r->at;

    if (n > most)
        return ckpt_fail(r->err, CKPT_ELIMIT, "%llu %s, %u at most", (unsigned long long)n, what,
                         most);
    if (n > left / bytes)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "truncated",
                            "%llu %s do not fit in the %llu bytes that are left",
                            (unsigned long long)n, what, (unsigned long long)left);
    *out = ckpt_alloc((size_t)n, size);
    return *out ? 0 : ckpt_nomem(r->err, (size_t)n * size);
}

static int read_pairs(struct reader *r, struct gguf_header *h, uint64_t n)
{
    const struct gguf_pair *alignment;
    void *pairs = NULL;

    /* An empty key, a kind, a byte. */
    r->rc = reserve(&pairs, r, n, sizeof *h->pair, MAX_PAIRS, 13, "keys");
    h->pair = pairs;
    for (; h->n_pair < n && r->rc == 0; h->n_pair++)
        pair(r, h, &h->pair[h->n_pair]);
    if (r->rc)
        return r->rc;
    qsort(h->pair, h->n_pair, sizeof *h->pair, by_key);
    for (size_t i = 1; i < h->n_pair; i++)
        if (strcmp(h->pair[i - 1].key, h->pair[i].key) == 0)
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "duplicate", "key %s appears twice",
                                h->pair[i].key);
    alignment = gguf_pair(h, "general.alignment");
    h->alignment = 32;
    if (alignment) {
        json_int_t v = json_integer_value(alignment->value);

        if (alignment->kind != GGUF_U32 || v < 1 || (v & (v - 1)) != 0)
            return ckpt_fail(r->err, CKPT_EFORMAT,
                             "general.alignment is no power of two of kind u32");
        h->alignment = (uint32_t)v;
    }
    return 0;
}

/* Dims, fastest first in the file; bytes from the type's blocks, which lie along rows. */
static int row_shape(struct reader *r, struct gguf_row *t)
{
    uint32_t rank = u32(r, "a tensor");
    uint64_t n = 1, dim;
    uint32_t number_of_type;

    if (r->rc)
        return r->rc;
    if (rank > GGUF_MAX_RANK)
        return ckpt_fail(r->err, CKPT_EFORMAT, "%u axes, %d at most", rank, GGUF_MAX_RANK);
    t->rank = (int)rank;
    for (uint32_t k = rank; k-- > 0;) {
        dim = number(r, 8, "a tensor");
        if (dim > INT64_MAX || !ckpt_mul(&n, n, dim) || n > INT64_MAX)
            return ckpt_fail(r->err, CKPT_EFORMAT, "its shape is out of range");
        t->dim[k] = (int64_t)dim;
    }
    number_of_type = u32(r, "a tensor");
    if (r->rc)
        return r->rc;
    t->type = gguf_type(number_of_type);
    if (!t->type)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "type %u is not known", number_of_type);
    if (t->type->n == 0)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "type %s is not read", t->type->name);
    if ((rank ? (uint64_t)t->dim[rank - 1] : 1) % t->type->n != 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "rows of %lld elements in %s blocks of %u",
                         rank ? (long long)t->dim[rank - 1] : 1, t->type->name, t->type->n);
    if (!ckpt_mul(&t->bytes, n / t->type->n, t->type->bytes))
        return ckpt_fail(r->err, CKPT_EFORMAT, "its shape is out of range");
    return 0;
}

static int read_rows(struct reader *r, struct gguf_header *h, uint64_t n)
{
    void *rows = NULL;

    /* An empty name, rank 0, type, offset. */
    r->rc = reserve(&rows, r, n, sizeof *h->row, CKPT_MAX_TENSORS, 24, "tensors");
    h->row = rows;
    for (; r->rc == 0 && h->n_row < n; h->n_row++) {
        struct gguf_row *t = &h->row[h->n_row];

        t->name = string(r, &h->arena, &t->name_len, CKPT_MAX_NAME, "a tensor's name");
        if (r->rc)
            return ckpt_err_in(r->err, "tensor %zu", h->n_row);
        r->rc = row_shape(r, t);
        t->offset = number(r, 8, "a tensor");
        if (r->rc)
            return ckpt_err_in(r->err, "tensor %s", t->name);
    }
    return r->rc;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_row *x = *(const struct gguf_row *const *)a;
    const struct gguf_row *y = *(const struct gguf_row *const *)b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static uint64_t padded(uint64_t n, uint64_t alignment)
{
    return n > UINT64_MAX - alignment ? UINT64_MAX : (n + alignment - 1) / alignment * alignment;
}

/* Convert offsets to positions in the file; data begins at `data`. */
static int check_tiling(struct gguf_header *h, uint64_t data, uint64_t size, struct ckpt_err *err)
{
    struct gguf_row **order = ckpt_alloc(h->n_row, sizeof *order);
    uint64_t room = size > data ? size - data : 0, at = 0, end = 0;
    int rc = order ? 0 : ckpt_nomem(err, h->n_row * sizeof *order);

    for (size_t i = 0; rc == 0 && i < h->n_row; i++)
        order[i] = &h->row[i];
    if (rc == 0)
        qsort(order, h->n_row, sizeof *order, by_offset);
    for (size_t i = 0; rc == 0 && i < h->n_row; i++) {
        struct gguf_row *t = order[i];

        if (t->offset != at)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, t->offset < at ? "overlap" : "hole",
                              "begins at %llu, the one before it ends at %llu (padded to %u)",
                              (unsigned long long)t->offset, (unsigned long long)at, h->alignment);
        else if (t->bytes > room || at > room - t->bytes)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                              "needs %llu bytes at %llu, the data has %llu",
                              (unsigned long long)t->bytes, (unsigned long long)at,
                              (unsigned long long)room);
        if (rc) {
            ckpt_err_in(err, "tensor %s", t->name);
            break;
        }
        end = at + t->bytes;
        at = padded(end, h->alignment);
        t->offset += data;
    }
    if (rc == 0 && room > at)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "trailing",
                          "tensors need %llu bytes of data, the file has %llu",
                          (unsigned long long)at, (unsigned long long)room);
    ckpt_free(order);
    return rc;
}

int gguf_header_read(struct gguf_header *h, struct ckpt_file *file, struct ckpt_err *err)
{
    struct reader r = {.file = file, .err = err, .size = ckpt_file_size(file)};
    uint64_t n_row, n_pair;
    const unsigned char *magic;

    memset(h, 0, sizeof *h);
    r.window = ckpt_alloc_buffer(WINDOW);
    if (!r.window)
        return ckpt_nomem(err, WINDOW);
    magic = take(&r, 4, "the magic");
    if (r.rc == 0 && memcmp(magic, "GGUF", 4) != 0)
        r.rc = ckpt_fail(err, CKPT_EFORMAT, "does not begin with GGUF");
    h->version = u32(&r, "the version");
    if (r.rc == 0 && (h->version & 0xffff) == 0 && h->version >> 16 != 0)
        r.rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "is big-endian, which is not read");
    if (r.rc == 0 && h->version != 2 && h->version != 3)
        r.rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "GGUF version %u, 2 and 3 are read",
                         h->version);
    n_row = number(&r, 8, "the number of tensors");
    n_pair = number(&r, 8, "the number of keys");
    if (r.rc == 0 && n_row == 0 && n_pair == 0)
        r.rc = ckpt_fail(err, CKPT_EFORMAT, "has neither tensors nor keys");
    if (r.rc == 0)
        r.rc = read_pairs(&r, h, n_pair);
    if (r.rc == 0)
        r.rc = read_rows(&r, h, n_row);
    if (r.rc == 0)
        r.rc = check_tiling(h, padded(r.at, h->alignment), r.size, err);
    ckpt_free(r.window);
    return r.rc;
}

void gguf_header_release(struct gguf_header *h)
{
    for (size_t i = 0; i < h->n_pair; i++)
        json_decref(h->pair[i].value);
    ckpt_free(h->pair);
    ckpt_free(h->row);
    ckpt_arena_release(&h->arena);
    memset(h, 0, sizeof *h);
}

const struct gguf_pair *gguf_pair(const struct gguf_header *h, const char *key)
{
    const struct gguf_pair want = {.key = key};

    return h->n_pair ? bsearch(&want, h->pair, h->n_pair, sizeof want, by_key) : NULL;
}

const char *gguf_string(const struct gguf_header *h, const char *key)
{
    const struct gguf_pair *p = gguf_pair(h, key);

    return p ? json_string_value(p->value) : NULL;
}
