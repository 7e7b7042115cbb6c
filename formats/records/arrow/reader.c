/*
 * arrow - the rows of Arrow IPC streams and files as records: the format in which Hugging Face's
 * datasets stores data.  A row is reached through offsets, so only its own bytes are read; values
 * are written like those of parquet files (parquet/text.h).
 */
#include <string.h>
#include <strings.h>

#include "formats/container/protobuf.h"
#include "formats/records/arrow/arrow.h"
#include "formats/records/parquet/rows.h"
#include "formats/records/parquet/text.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/base/json.h"
#include "libckpt/base/range.h"

#define MAX_NESTING 64          /* includes dictionaries within dictionaries */

/* State of writing a row as text. */
struct row {
    const struct arrow_file *f;
    struct ckpt_buf          out;
    struct ckpt_err         *err;
};

static int put(struct row *r, const struct arrow_batch *b, size_t k, int64_t i, unsigned depth);

/* n bytes of buffer number m of field k, from byte `from`. */
static int bytes(struct row *r, const struct arrow_batch *b, size_t k, size_t m, uint64_t from,
                 void *dst, size_t n)
{
    const struct arrow_buffer *buffer = &b->buffer[r->f->field[k].buffer + m];

    if (from > buffer->len || n > buffer->len - from)
        return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\": a buffer ends early",
                         r->f->field[k].name);
    return n > 0 ? ckpt_file_read_at(r->f->file, dst, n, buffer->at + from, r->err) : 0;
}

static int bit(struct row *r, const struct arrow_batch *b, size_t k, size_t m, int64_t i, bool *set)
{
    unsigned char byte = 0;
    int rc = bytes(r, b, k, m, (uint64_t)i / 8, &byte, 1);

    *set = byte >> (i % 8) & 1;
    return rc;
}

/* Offsets i and i + 1 of a field whose values have any length. */
static int range(struct row *r, const struct arrow_batch *b, size_t k, int64_t i, int64_t *from,
                 int64_t *to)
{
    size_t width = r->f->field[k].width;
    unsigned char raw[16];
    int rc;

    if ((rc = bytes(r, b, k, 1, (uint64_t)i * width, raw, 2 * width)) != 0)
        return rc;
    *from = records_int(raw, width, true);
    *to = records_int(raw + width, width, true);
    return *from >= 0 && *to >= *from
               ? 0 : ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\": offsets %lld and %lld",
                               r->f->field[k].name, (long long)*from, (long long)*to);
}

static int put_bytes(struct row *r, const struct arrow_batch *b, size_t k, size_t m, uint64_t from,
                     size_t n)
{
    struct pq_value v = {.len = n};
    unsigned char *room;
    int rc;

    if (n > (PQ_MAX_ROW - r->out.len) / 6)
        return ckpt_fail(r->err, CKPT_ELIMIT, "a row of more than %zu bytes", PQ_MAX_ROW);
    room = ckpt_alloc_buffer(n + 1);
    if (!room)
        return ckpt_nomem(r->err, n);
    v.bytes = room;
    rc = bytes(r, b, k, m, from, room, n);
    if (rc == 0)
        pq_text(&r->out, &r->f->field[k].text, &v);
    ckpt_free(room);
    return rc;
}

/* Put the value that an index refers to, from a batch of its dictionary. */
static int put_coded(struct row *r, const struct arrow_field *x, int64_t index, unsigned depth)
{
    for (size_t i = 0; i < r->f->n_entry; i++) {
        const struct arrow_batch *e = &r->f->entry[i];

        if (e->dictionary == x->dictionary && index >= e->first && index - e->first < e->rows)
            return put(r, e, e->field, index - e->first, depth + 1);
    }
    return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\": entry %lld is in no dictionary", x->name,
                     (long long)index);
}

static int put_fixed(struct row *r, const struct arrow_batch *b, size_t k, int64_t i,
                     unsigned depth)
{
    const struct arrow_field *x = &r->f->field[k];
    unsigned char raw[32], turned[32];
    struct pq_value v = {.bytes = raw, .len = x->width};
    uint64_t at;
    int rc;

    if (!ckpt_mul(&at, (uint64_t)i, x->width))
        return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\" is too long", x->name);
    if (x->text.type == PQ_FIXED && x->text.meaning == PQ_PLAIN)
        return put_bytes(r, b, k, 1, at, x->width);
    if ((rc = bytes(r, b, k, 1, at, raw, x->width)) != 0)
        return rc;
    if (x->text.type == PQ_FIXED && x->text.meaning == PQ_DECIMAL) {
        for (size_t j = 0; j < x->width; j++)
            turned[j] = raw[x->width - 1 - j];
        v.bytes = turned;
    } else if (x->is_float) {
        v.d = x->width == 4 ? (double)protobuf_float((uint64_t)records_int(raw, 4, false))
                            : protobuf_double((uint64_t)records_int(raw, 8, false));
    } else if (x->text.type != PQ_FIXED) {
        v.i = records_int(raw, x->width, x->is_signed);
        if (__builtin_mul_overflow(v.i, x->factor, &v.i))
            return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\": a time out of range", x->name);
        if (x->days_of_ms)
            v.i = v.i / 86400000 - (v.i % 86400000 < 0);
    }
    if (x->coded)
        return put_coded(r, x, v.i, depth);
    pq_text(&r->out, &x->text, &v);
    return 0;
}

/* Values [from, to) of the child of a list as a list. */
static int put_elements(struct row *r, const struct arrow_batch *b, size_t k, int64_t from,
                        int64_t to, unsigned depth)
{
    int rc;

    ckpt_buf_put_u8(&r->out, '[');
    for (int64_t i = from; i < to; i++) {
        if (i > from)
            ckpt_buf_put_u8(&r->out, ',');
        if ((rc = put(r, b, k + 1, i, depth + 1)) != 0)
            return rc;
    }
    ckpt_buf_put_u8(&r->out, ']');
    return 0;
}

/* Put fields [k, end) at row i: of an object, or of a pair. */
static int put_fields(struct row *r, const struct arrow_batch *b, size_t k, size_t end, int64_t i,
                      bool pair, unsigned depth)
{
    const struct arrow_field *field = r->f->field;
    int rc;

    ckpt_buf_put_u8(&r->out, pair ? '[' : '{');
    for (size_t c = k; c < end; c = field[c].end) {
        if (c > k)
            ckpt_buf_put_u8(&r->out, ',');
        if (!pair)
            ckpt_buf_put_str(&r->out, field[c].text.key);
        if ((rc = put(r, b, c, i, depth + 1)) != 0)
            return rc;
    }
    ckpt_buf_put_u8(&r->out, pair ? ']' : '}');
    return 0;
}

static int put_there(struct row *r, const struct arrow_batch *b, size_t k, int64_t i,
                     unsigned depth)
{
    const struct arrow_field *x = &r->f->field[k];
    struct pq_value v = {0};
    int64_t from, to;
    bool set;
    int rc;

    switch (x->layout) {
    case ARROW_NULL: break;
    case ARROW_FIXED: return put_fixed(r, b, k, i, depth);
    case ARROW_BOOL:
        if ((rc = bit(r, b, k, 1, i, &set)) != 0)
            return rc;
        v.i = set;
        pq_text(&r->out, &x->text, &v);
        return 0;
    case ARROW_BYTES:
        return (rc = range(r, b, k, i, &from, &to)) != 0
                   ? rc
                   : put_bytes(r, b, k, 2, (uint64_t)from, (size_t)(to - from));
    case ARROW_LIST: case ARROW_MAP:
        return (rc = range(r, b, k, i, &from, &to)) != 0 ? rc
                                             : put_elements(r, b, k, from, to, depth);
    case ARROW_FIXED_LIST:
        if (__builtin_mul_overflow(i, x->list, &from) ||
            __builtin_add_overflow(from, x->list, &to))
            return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\" is too long", x->name);
        return put_elements(r, b, k, from, to, depth);
    case ARROW_STRUCT:
        return put_fields(r, b, k + 1, x->end, i,
                          k > 0 && r->f->field[k - 1].layout == ARROW_MAP &&
                              r->f->field[k - 1].end == x->end, depth);
    }
    ckpt_buf_put_str(&r->out, "null");
    return 0;
}

/* Value i of field k. */
static int put(struct row *r, const struct arrow_batch *b, size_t k, int64_t i, unsigned depth)
{
    const struct arrow_field *x = &r->f->field[k];
    bool there = true;
    int rc;

    if (depth > MAX_NESTING)
        return ckpt_fail(r->err, CKPT_ELIMIT, "nested deeper than %d levels", MAX_NESTING);
    if (i < 0 || i >= b->length[k - b->field])
        return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\": value %lld of %lld", x->name,
                         (long long)i, (long long)b->length[k - b->field]);
    if (x->layout != ARROW_NULL && b->buffer[x->buffer].len > 0 &&
        (rc = bit(r, b, k, 0, i, &there)) != 0)
        return rc;
    if (!there)
        ckpt_buf_put_str(&r->out, "null");
    else if ((rc = put_there(r, b, k, i, depth)) != 0)
        return rc;
    if (ckpt_buf_ok(&r->out))
        return 0;
    return r->out.len > PQ_MAX_ROW / 2
               ? ckpt_fail(r->err, CKPT_ELIMIT, "a row of more than %zu bytes", PQ_MAX_ROW)
               : ckpt_nomem(r->err, r->out.len);
}

static int bid(const char *path, const unsigned char *head, size_t len)
{
    size_t n = strlen(path);

    if (!arrow_is(head, len))
        return 0;
    return n > 6 && strcasecmp(path + n - 6, ".arrow") == 0 ? 100 : 80;
}

static void arrow_close(void *self)
{
    struct arrow_file *f = self;
    struct ckpt_file *file = f->file;

    arrow_file_release(f);
    ckpt_file_close(file);
}

static int arrow_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                      struct ckpt_err *err)
{
    (void)opts;
    return arrow_file_open(self, file, err);
}

static int64_t arrow_count(void *self) { return ((struct arrow_file *)self)->rows; }

static const json_t *arrow_metadata(void *self) { return ((struct arrow_file *)self)->metadata; }

static int arrow_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    const struct arrow_file *f = self;
    const struct arrow_batch *b =
        &f->batch[ckpt_range_of(&f->batch->first, f->n_batch, sizeof *f->batch, (uint64_t)i)];
    struct row r = {.f = f, .err = err};
    int rc;

    *out = NULL;
    ckpt_buf_init(&r.out, PQ_MAX_ROW);
    rc = put_fields(&r, b, 0, f->n_schema, i - b->first, false, 0);
    if (rc == 0)
        rc = ckpt_json_parse(out, (const char *)r.out.data, r.out.len, CKPT_JSON_STRICT, err);
    ckpt_buf_release(&r.out);
    return rc;
}

const struct record_ops record_arrow = {
    .name = "arrow", .size = sizeof(struct arrow_file), .bid = bid, .open = arrow_open,
    .count = arrow_count, .get = arrow_get, .close = arrow_close,
    .metadata = arrow_metadata,
};
