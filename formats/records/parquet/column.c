/* parquet/column - see parquet/column.h. */
#include "formats/records/parquet/column.h"

#include <assert.h>
#include <string.h>

#include "formats/container/protobuf.h"

#define MAX_VALUE ((size_t)256 << 20)   /* largest value that prefixes may build up, in bytes */

struct pq_entry {
    uint32_t at, len;
};

/* Size of a value of that type; 0 if it varies. */
static size_t width_of(const struct pq_node *leaf)
{
    static const uint8_t width[] = {[PQ_INT32] = 4, [PQ_INT64] = 8, [PQ_INT96] = 12,
                                    [PQ_FLOAT] = 4, [PQ_DOUBLE] = 8, [PQ_FIXED] = 0};

    return leaf->type == PQ_FIXED ? (size_t)leaf->width
           : leaf->type == PQ_BYTE_ARRAY ? 0 : width[leaf->type];
}

static unsigned level_bits(unsigned most)
{
    unsigned n = 0;

    for (; most > 0; most >>= 1)
        n++;
    return n;
}

static uint64_t le(const unsigned char *b, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)b[i] << 8 * i;
    return v;
}

/* A value of fixed width. */
static void load(struct pq_value *v, const struct pq_node *leaf, const unsigned char *b)
{
    switch (leaf->type) {
    case PQ_INT32: v->i = (int32_t)le(b, 4); break;
    case PQ_INT64: v->i = (int64_t)le(b, 8); break;
    case PQ_FLOAT: v->d = protobuf_float(le(b, 4)); break;
    case PQ_DOUBLE: v->d = protobuf_double(le(b, 8)); break;
    default:
        v->bytes = b;
        v->len = width_of(leaf);
    }
}

void pq_column_open(struct pq_column *c, const struct pq_file *file, const struct pq_group *group,
                    size_t i, uint64_t *memory)
{
    *c = (struct pq_column){
        .leaf = &file->node[file->leaf[i]], .left = group->chunk[i].values,
        .pages = {.file = file, .leaf = &file->node[file->leaf[i]], .chunk = &group->chunk[i],
                  .memory = memory},
    };
}

static void drop_dictionary(struct pq_column *c)
{
    *c->pages.memory -= c->dictionary_cap;
    ckpt_free(c->dictionary);
    ckpt_free(c->entry);
    c->dictionary = NULL;
    c->entry = NULL;
    c->dictionary_cap = 0;
}

void pq_column_close(struct pq_column *c)
{
    drop_dictionary(c);
    *c->pages.memory -= c->last_cap;
    ckpt_free(c->last);
    pq_pages_release(&c->pages);
}

static int bad(const struct pq_column *c, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EFORMAT, "page before byte %llu: %s",
                     (unsigned long long)(c->pages.chunk->start + c->pages.at), what);
}

/* Find the start of each text in a dictionary page. */
static int list_entries(struct pq_column *c, const struct pq_page *page, struct ckpt_err *err)
{
    struct ckpt_cursor at;
    size_t bytes;

    if (page->values > page->data_len / 4)
        return bad(c, "a dictionary of more values than bytes", err);
    bytes = (size_t)page->values * sizeof *c->entry;
    c->entry = ckpt_alloc((size_t)page->values + 1, sizeof *c->entry);
    if (!c->entry)
        return ckpt_nomem(err, bytes);
    c->dictionary_cap += bytes;
    *c->pages.memory += bytes;
    ckpt_cursor_init(&at, page->data, page->data_len);
    for (uint64_t i = 0; i < page->values; i++) {
        uint32_t len = ckpt_cursor_u32le(&at);

        c->entry[i] = (struct pq_entry){(uint32_t)at.pos, len};
        ckpt_cursor_skip(&at, len);
    }
    return at.failed ? bad(c, "a dictionary that is cut", err) : 0;
}

static int set_dictionary(struct pq_column *c, const struct pq_page *page, struct ckpt_err *err)
{
    size_t width = width_of(c->leaf);

    if (c->dictionary)
        return bad(c, "a second dictionary", err);
    if (c->leaf->type == PQ_BOOLEAN || (page->encoding != PQ_ENC_PLAIN &&
                                        page->encoding != PQ_ENC_PLAIN_DICTIONARY))
        return bad(c, "a dictionary that is not plain", err);
    if (width > 0 && page->values > page->data_len / width)
        return bad(c, "a dictionary that is cut", err);
    c->dictionary = pq_pages_take(&c->pages, &c->dictionary_cap);
    c->entries = page->data;
    c->n_entry = (size_t)page->values;
    return c->leaf->type == PQ_BYTE_ARRAY ? list_entries(c, page, err) : 0;
}

/* Read the lengths, which precede the bytes. */
static bool begin_lengths(struct pq_delta *d, struct ckpt_cursor *rest,
                          const unsigned char *bytes, size_t len, uint64_t most)
{
    struct pq_delta end;

    if (!pq_delta_init(d, bytes, len, most))
        return false;
    end = *d;
    if (!pq_delta_end(&end))
        return false;
    *rest = end.c;
    return true;
}

/* Which types an encoding is defined on. */
static bool allowed(int encoding, enum pq_type t)
{
    switch (encoding) {
    case PQ_ENC_PLAIN: return true;
    case PQ_ENC_PLAIN_DICTIONARY: case PQ_ENC_RLE_DICTIONARY: return t != PQ_BOOLEAN;
    case PQ_ENC_RLE: return t == PQ_BOOLEAN;
    case PQ_ENC_DELTA: return t == PQ_INT32 || t == PQ_INT64;
    case PQ_ENC_DELTA_LENGTH: return t == PQ_BYTE_ARRAY;
    case PQ_ENC_DELTA_BYTES: return t == PQ_BYTE_ARRAY || t == PQ_FIXED;
    case PQ_ENC_SPLIT: return t != PQ_BOOLEAN && t != PQ_BYTE_ARRAY && t != PQ_INT96;
    default: return false;
    }
}

/* Prepare to read the values of a page that has some; false on failure. */
static bool begin_values(struct pq_column *c, const struct pq_page *p)
{
    uint32_t len;

    switch (c->encoding) {
    case PQ_ENC_PLAIN_DICTIONARY: case PQ_ENC_RLE_DICTIONARY:
        if (p->data[0] > 32)
            return false;
        pq_hybrid_init(&c->index, p->data + 1, p->data_len - 1, p->data[0]);
        return true;
    case PQ_ENC_RLE:
        len = ckpt_cursor_u32le(&c->plain);
        if (c->plain.failed || len > ckpt_cursor_left(&c->plain))
            return false;
        pq_hybrid_init(&c->index, p->data + 4, len, 1);
        return true;
    case PQ_ENC_DELTA:
        return pq_delta_init(&c->delta, p->data, p->data_len, p->values);
    case PQ_ENC_DELTA_LENGTH:
        return begin_lengths(&c->delta, &c->plain, p->data, p->data_len, p->values);
    case PQ_ENC_DELTA_BYTES:
        return begin_lengths(&c->delta, &c->plain, p->data, p->data_len, p->values) &&
               begin_lengths(&c->suffix, &c->plain, c->plain.base + c->plain.pos,
                             ckpt_cursor_left(&c->plain), p->values);
    case PQ_ENC_SPLIT:
        assert(width_of(c->leaf) > 0);      /* see allowed() */
        c->n_split = p->data_len / width_of(c->leaf);
        return p->data_len % width_of(c->leaf) == 0;
    default: return true;
    }
}

static int begin_page(struct pq_column *c, const struct pq_page *p, struct ckpt_err *err)
{
    if (p->values > c->left)
        return bad(c, "more values than its chunk has", err);
    c->left -= p->values;
    c->in_page = p->values;
    pq_hybrid_init(&c->reps, p->rep, p->rep_len, level_bits(c->leaf->rep));
    pq_hybrid_init(&c->defs, p->def, p->def_len, level_bits(c->leaf->def));
    c->encoding = p->encoding;
    if (!allowed(p->encoding, c->leaf->type))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s values encoded as %d (%s)",
                         pq_type_name(c->leaf->type), p->encoding,
                         pq_encoding_name(p->encoding));
    c->bit = c->split = c->n_split = 0;
    c->last_len = 0;
    c->index = (struct pq_hybrid){0};
    c->delta = c->suffix = (struct pq_delta){0};
    ckpt_cursor_init(&c->plain, p->data, p->data_len);
    /* A page of nulls only may have no bytes. */
    return p->data_len == 0 || begin_values(c, p) ? 0 : bad(c, "values that are damaged", err);
}

/* Load pages until one has entries. */
static int next_page(struct pq_column *c, bool *end, struct ckpt_err *err)
{
    struct pq_page page;
    bool got;
    int rc;

    *end = false;
    while (c->in_page == 0) {
        if (c->left == 0) {
            *end = true;
            return 0;
        }
        if ((rc = pq_pages_next(&c->pages, &page, &got, err)) != 0)
            return rc;
        if (!got)
            return ckpt_fail(err, CKPT_EFORMAT, "its chunk lacks %llu values",
                             (unsigned long long)c->left);
        rc = page.dictionary ? set_dictionary(c, &page, err) : begin_page(c, &page, err);
        if (rc)
            return rc;
    }
    return 0;
}

int pq_column_peek(struct pq_column *c, bool *end, struct ckpt_err *err)
{
    *end = false;
    if (c->there)
        return 0;
    if (c->in_page == 0 && next_page(c, end, err))
        return ckpt_err_in(err, "column \"%s\"", c->leaf->name);
    if (*end)
        return 0;
    c->rep = 0;
    c->def = c->leaf->def;
    if ((c->leaf->rep > 0 && (!pq_hybrid_next(&c->reps, &c->rep) || c->rep > c->leaf->rep)) ||
        (c->leaf->def > 0 && (!pq_hybrid_next(&c->defs, &c->def) || c->def > c->leaf->def))) {
        bad(c, "levels that are damaged", err);
        return ckpt_err_in(err, "column \"%s\"", c->leaf->name);
    }
    c->there = true;
    return 0;
}

static bool plain_value(struct pq_column *c, struct pq_value *v)
{
    size_t width = width_of(c->leaf);
    const unsigned char *b;

    if (c->leaf->type == PQ_BOOLEAN) {
        if (c->bit / 8 >= c->plain.end)
            return false;
        v->i = c->plain.base[c->bit / 8] >> (c->bit % 8) & 1;
        c->bit++;
        return true;
    }
    if (c->leaf->type == PQ_BYTE_ARRAY) {
        v->len = ckpt_cursor_u32le(&c->plain);
        v->bytes = ckpt_cursor_bytes(&c->plain, v->len);
        return !c->plain.failed;
    }
    b = ckpt_cursor_bytes(&c->plain, width);
    if (b)
        load(v, c->leaf, b);
    return b != NULL;
}

static bool dictionary_value(struct pq_column *c, struct pq_value *v)
{
    uint32_t i;

    if (!c->dictionary || !pq_hybrid_next(&c->index, &i) || i >= c->n_entry)
        return false;
    if (c->leaf->type == PQ_BYTE_ARRAY) {
        v->bytes = c->entries + c->entry[i].at;
        v->len = c->entry[i].len;
    } else {
        load(v, c->leaf, c->entries + i * width_of(c->leaf));
    }
    return true;
}

/* The next length, and as many of the bytes after the lengths. */
static bool piece(struct pq_delta *lengths, struct ckpt_cursor *from, const unsigned char **b,
                  size_t *len)
{
    int64_t n;

    if (!pq_delta_next(lengths, &n) || n < 0 || (uint64_t)n > ckpt_cursor_left(from))
        return false;
    *len = (size_t)n;
    *b = ckpt_cursor_bytes(from, *len);
    return !from->failed;
}

/* A prefix of the value before, and a suffix. */
static int prefixed_value(struct pq_column *c, struct pq_value *v, struct ckpt_err *err)
{
    const unsigned char *suffix;
    int64_t prefix;
    size_t n, all;

    if (!pq_delta_next(&c->delta, &prefix) || prefix < 0 || (uint64_t)prefix > c->last_len ||
        !piece(&c->suffix, &c->plain, &suffix, &n))
        return bad(c, "values that are damaged", err);
    all = (size_t)prefix + n;
    if (all > MAX_VALUE)
        return ckpt_fail(err, CKPT_ELIMIT, "a value of %zu bytes; the limit is %zu", all,
                         MAX_VALUE);
    if (all > c->last_cap) {
        size_t cap = 2 * all;
        unsigned char *grown = ckpt_grow(c->last, cap, 1);

        if (!grown)
            return ckpt_nomem(err, cap);
        *c->pages.memory += cap - c->last_cap;
        c->last = grown;
        c->last_cap = cap;
    }
    if (n > 0)
        memcpy(c->last + prefix, suffix, n);
    c->last_len = all;
    if (c->leaf->type == PQ_FIXED && all != (size_t)c->leaf->width)
        return bad(c, "a value of another width", err);
    v->bytes = all > 0 ? c->last : (const unsigned char *)"";
    v->len = all;
    return 0;
}

/* Byte k of value i lies in plane k. */
static int split_value(struct pq_column *c, struct pq_value *v, struct ckpt_err *err)
{
    size_t width = width_of(c->leaf);

    if (c->split == c->n_split)
        return bad(c, "values end early", err);
    if (width > c->last_cap) {
        ckpt_free(c->last);
        c->last = ckpt_alloc(width, 1);
        *c->pages.memory -= c->last_cap;
        c->last_cap = c->last ? width : 0;
        *c->pages.memory += c->last_cap;
        if (!c->last)
            return ckpt_nomem(err, width);
    }
    for (size_t k = 0; k < width; k++)
        c->last[k] = c->plain.base[k * c->n_split + c->split];
    c->split++;
    load(v, c->leaf, c->last);
    return 0;
}

static int next_value(struct pq_column *c, struct pq_value *v, struct ckpt_err *err)
{
    uint32_t bit = 0;
    bool good;

    *v = (struct pq_value){0};
    switch (c->encoding) {
    case PQ_ENC_PLAIN: good = plain_value(c, v); break;
    case PQ_ENC_RLE:
        good = pq_hybrid_next(&c->index, &bit);
        v->i = bit;
        break;
    case PQ_ENC_DELTA:
        good = pq_delta_next(&c->delta, &v->i);
        if (c->leaf->type == PQ_INT32)
            v->i = (int32_t)v->i;
        break;
    case PQ_ENC_DELTA_LENGTH: good = piece(&c->delta, &c->plain, &v->bytes, &v->len); break;
    case PQ_ENC_DELTA_BYTES: return prefixed_value(c, v, err);
    case PQ_ENC_SPLIT: return split_value(c, v, err);
    default: good = dictionary_value(c, v); break;
    }
    return good ? 0 : bad(c, "values that are damaged or end early", err);
}

int pq_column_take(struct pq_column *c, struct pq_value *v, struct ckpt_err *err)
{
    c->there = false;
    c->in_page--;
    if (c->def == c->leaf->def && next_value(c, v, err))
        return ckpt_err_in(err, "column \"%s\"", c->leaf->name);
    return 0;
}

/* Go past whole pages of at most n rows in all; *passed of them. */
static int pass_pages(struct pq_column *c, uint64_t n, uint64_t *passed, struct ckpt_err *err)
{
    *passed = 0;
    if (c->leaf->rep > 0 || c->there || c->in_page > 0 || c->left == 0)
        return 0;
    if (pq_pages_pass(&c->pages, n < c->left ? n : c->left, passed, err))
        return ckpt_err_in(err, "column \"%s\"", c->leaf->name);
    c->left -= *passed;
    return 0;
}

int pq_column_skip(struct pq_column *c, uint64_t n, struct ckpt_err *err)
{
    struct pq_value v;
    uint64_t passed;
    bool end = false;
    int rc = 0;

    while (rc == 0 && n > 0 && !end) {
        rc = pass_pages(c, n, &passed, err);
        n -= passed;
        if (rc || n == 0)
            break;
        rc = pq_column_peek(c, &end, err);
        if (rc || end)
            break;
        do {                            /* a row's first value, then those that repeat in it */
            rc = pq_column_take(c, &v, err);
            if (rc == 0)
                rc = c->leaf->rep > 0 ? pq_column_peek(c, &end, err) : 0;
        } while (rc == 0 && !end && c->leaf->rep > 0 && c->rep > 0);
        n--;
    }
    return rc;
}
