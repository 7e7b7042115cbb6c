/*
 * arrow/schema - see arrow/schema.h.
 *
 * In the rows, a field with a dictionary holds indices; its values form a separate field after
 * those of the schema.  Fields are read by functions that call themselves as deep as they nest,
 * at most ARROW_MAX_DEPTH.
 */
#include "formats/records/arrow/schema.h"

#include <string.h>

#include "formats/records/parquet/schema.h"
#include "libckpt/base/map.h"

/* Members of the union Type */
enum { T_NULL = 1, T_INT, T_FLOAT, T_BINARY, T_UTF8, T_BOOL, T_DECIMAL, T_DATE, T_TIME,
       T_TIMESTAMP, T_INTERVAL, T_LIST, T_STRUCT, T_UNION, T_FIXED_BINARY, T_FIXED_LIST, T_MAP,
       T_DURATION, T_LARGE_BINARY, T_LARGE_UTF8, T_LARGE_LIST };

struct reader {
    struct arrow_file *f;
    struct flatbuffer *flat;
    size_t             cap;
    /* Dictionaries whose values remain to be read: field and its table. */
    struct { size_t field; struct flatbuffer_table table; } *pending;
    size_t             n_pending, cap_pending;
    struct ckpt_err   *err;
};

size_t arrow_buffers_of(const struct arrow_field *field)
{
    static const uint8_t n[] = {[ARROW_NULL] = 0, [ARROW_FIXED] = 2, [ARROW_BOOL] = 2,
                                [ARROW_BYTES] = 3, [ARROW_LIST] = 2, [ARROW_FIXED_LIST] = 1,
                                [ARROW_STRUCT] = 1, [ARROW_MAP] = 2};

    return n[field->layout];
}

static bool set_int(struct arrow_field *x, struct flatbuffer *f,
                    const struct flatbuffer_table *t)
{
    int64_t bits = flatbuffer_int(f, t, 0, 4, 0);

    x->layout = ARROW_FIXED;
    x->width = (size_t)bits / 8;
    x->is_signed = flatbuffer_int(f, t, 1, 1, 0) != 0;
    x->text.type = PQ_INT64;
    x->text.meaning = x->is_signed ? PQ_PLAIN : PQ_UNSIGNED;
    return bits == 8 || bits == 16 || bits == 32 || bits == 64;
}

static bool set_float(struct arrow_field *x, struct flatbuffer *f,
                      const struct flatbuffer_table *t)
{
    int64_t precision = flatbuffer_int(f, t, 0, 2, 0);

    if (precision < 0 || precision > 2)
        return false;
    x->layout = ARROW_FIXED;
    x->width = (size_t)2 << precision;
    x->is_float = precision > 0;
    x->text.type = precision == 0 ? PQ_FIXED : PQ_DOUBLE;
    x->text.meaning = precision == 0 ? PQ_HALF : PQ_PLAIN;
    return true;
}

static bool set_decimal(struct arrow_field *x, struct flatbuffer *f,
                        const struct flatbuffer_table *t)
{
    int64_t scale = flatbuffer_int(f, t, 1, 4, 0), bits = flatbuffer_int(f, t, 2, 4, 128);

    x->layout = ARROW_FIXED;
    x->width = (size_t)bits / 8;
    x->text.type = PQ_FIXED;
    x->text.meaning = PQ_DECIMAL;
    x->text.scale = (int32_t)scale;
    return scale >= 0 && scale <= 100 && (bits == 32 || bits == 64 || bits == 128 || bits == 256);
}

/* Set the unit of times: 0 seconds, 1 to 3 thousandths, millionths, billionths. */
static bool set_time(struct arrow_field *x, enum pq_meaning meaning, int64_t unit, size_t width)
{
    if (unit < 0 || unit > 3)
        return false;
    x->layout = ARROW_FIXED;
    x->width = width;
    x->is_signed = true;
    x->text.type = PQ_INT64;
    x->text.meaning = meaning;
    x->text.digits = (uint8_t)(unit == 0 ? 3 : 3 * unit);
    x->factor = unit == 0 ? 1000 : 1;
    return true;
}

static bool set_date(struct arrow_field *x, struct flatbuffer *f,
                     const struct flatbuffer_table *t)
{
    x->days_of_ms = flatbuffer_int(f, t, 0, 2, 1) != 0;
    x->layout = ARROW_FIXED;
    x->width = x->days_of_ms ? 8 : 4;
    x->is_signed = true;
    x->text.type = PQ_INT32;
    x->text.meaning = PQ_DATE;
    return true;
}

static bool set_bytes(struct arrow_field *x, bool text, size_t width)
{
    x->layout = ARROW_BYTES;
    x->width = width;
    x->text.type = PQ_BYTE_ARRAY;
    x->text.meaning = text ? PQ_TEXT : PQ_PLAIN;
    return true;
}

static bool set_fixed(struct arrow_field *x, struct flatbuffer *f,
                      const struct flatbuffer_table *t)
{
    int64_t width = flatbuffer_int(f, t, 0, 4, 0);

    x->layout = ARROW_FIXED;
    x->width = (size_t)width;
    x->text.type = PQ_FIXED;
    x->text.width = (int32_t)width;
    return width >= 0 && width <= 1 << 20;
}

static bool set_list(struct arrow_field *x, enum arrow_layout layout, size_t width)
{
    x->layout = layout;
    x->width = width;
    return true;
}

/* False for a type that is not read. */
static bool set_type(struct arrow_field *x, struct flatbuffer *f, int64_t type,
                     const struct flatbuffer_table *t)
{
    size_t n;

    x->factor = 1;
    switch (type) {
    case T_NULL: x->layout = ARROW_NULL; return true;
    case T_INT: return set_int(x, f, t);
    case T_FLOAT: return set_float(x, f, t);
    case T_BOOL: x->layout = ARROW_BOOL; x->text.type = PQ_BOOLEAN; return true;
    case T_DECIMAL: return set_decimal(x, f, t);
    case T_DATE: return set_date(x, f, t);
    case T_TIME:
        return set_time(x, PQ_TIME, flatbuffer_int(f, t, 0, 2, 1),
                        flatbuffer_int(f, t, 1, 4, 32) == 64 ? 8 : 4);
    case T_TIMESTAMP:
        x->text.utc = flatbuffer_text(f, t, 1, &n) != NULL && n > 0;
        return set_time(x, PQ_TIMESTAMP, flatbuffer_int(f, t, 0, 2, 0), 8);
    case T_DURATION: return set_time(x, PQ_PLAIN, 1, 8);
    case T_BINARY: return set_bytes(x, false, 4);
    case T_UTF8: return set_bytes(x, true, 4);
    case T_LARGE_BINARY: return set_bytes(x, false, 8);
    case T_LARGE_UTF8: return set_bytes(x, true, 8);
    case T_FIXED_BINARY: return set_fixed(x, f, t);
    case T_LIST: return set_list(x, ARROW_LIST, 4);
    case T_LARGE_LIST: return set_list(x, ARROW_LIST, 8);
    case T_MAP: return set_list(x, ARROW_MAP, 4);
    case T_STRUCT: return set_list(x, ARROW_STRUCT, 0);
    case T_FIXED_LIST:
        x->list = flatbuffer_int(f, t, 0, 4, 0);
        return set_list(x, ARROW_FIXED_LIST, 0) && x->list >= 0;
    default: return false;
    }
}

static int read_field(struct reader *r, const struct flatbuffer_table *t, bool values,
                      unsigned depth);

static int read_children(struct reader *r, const struct flatbuffer_table *t, size_t self,
                         unsigned depth)
{
    struct flatbuffer_vector children = flatbuffer_list(r->flat, t, 5, 4);
    enum arrow_layout layout = r->f->field[self].layout;
    size_t wanted = layout == ARROW_STRUCT ? children.n
                    : layout >= ARROW_LIST ? 1 : 0;
    int rc;

    if (children.n != wanted)
        return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\" has %zu children, not %zu",
                         r->f->field[self].name, children.n, wanted);
    for (size_t i = 0; i < children.n; i++) {
        struct flatbuffer_table child = flatbuffer_at(r->flat, &children, i);

        if ((rc = read_field(r, &child, false, depth + 1)) != 0)
            return rc;
    }
    r->f->field[self].end = r->f->n_field;
    if (layout == ARROW_MAP) {
        const struct arrow_field *pair = &r->f->field[self + 1];

        if (pair->layout != ARROW_STRUCT || pair->coded || self + 2 == pair->end ||
            r->f->field[self + 2].end == pair->end ||
            r->f->field[r->f->field[self + 2].end].end != pair->end)
            return ckpt_fail(r->err, CKPT_EFORMAT, "map \"%s\" is not of keys and values",
                             r->f->field[self].name);
    }
    return 0;
}

/* A struct with two fields of one name cannot become an object. */
static int check_names(const struct arrow_file *f, size_t from, size_t end, struct ckpt_err *err)
{
    struct ckpt_map *names;
    int rc = ckpt_map_new(&names, 16, err);

    for (size_t i = from; rc == 0 && i < end; i = f->field[i].end)
        if (ckpt_map_add(names, f->field[i].name, strlen(f->field[i].name), i, err))
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "two fields are named \"%s\"",
                              f->field[i].name);
    ckpt_map_free(names);
    return rc;
}

/* A dictionary's indices, and a note that its values are to be read. */
static int set_coded(struct reader *r, size_t self, const struct flatbuffer_table *t,
                     const struct flatbuffer_table *dictionary)
{
    struct arrow_field *x = &r->f->field[self];
    struct flatbuffer_table type = flatbuffer_child(r->flat, dictionary, 1);

    x->coded = true;
    x->dictionary = flatbuffer_int(r->flat, dictionary, 0, 8, 0);
    x->end = r->f->n_field;
    x->factor = 1;
    if (type.at ? !set_int(x, r->flat, &type) : false)
        return ckpt_fail(r->err, CKPT_EFORMAT, "column \"%s\" has indices of %zu bytes", x->name,
                         x->width);
    if (!type.at) {
        x->layout = ARROW_FIXED;
        x->width = 4;
        x->is_signed = true;
    }
    if (ckpt_reserve(&r->pending, r->n_pending, &r->cap_pending, sizeof *r->pending, r->err))
        return CKPT_ENOMEM;
    r->pending[r->n_pending].field = self;
    r->pending[r->n_pending++].table = *t;
    return 0;
}

static int new_field(struct reader *r, const struct flatbuffer_table *t)
{
    struct arrow_file *f = r->f;
    struct arrow_field *x;
    size_t len;
    const char *name = flatbuffer_text(r->flat, t, 0, &len);

    if (r->flat->failed || t->at == 0)
        return ckpt_fail(r->err, CKPT_EFORMAT, "the schema is damaged");
    if (!name)
        name = "";
    if (!ckpt_utf8_valid(name, len) || len > 4096)
        return ckpt_fail(r->err, CKPT_EFORMAT, "a column's name is too long or not UTF-8");
    if (f->n_field == ARROW_MAX_FIELDS)
        return ckpt_fail(r->err, CKPT_ELIMIT, "more than %d fields", ARROW_MAX_FIELDS);
    if (ckpt_reserve(&f->field, f->n_field, &r->cap, sizeof *f->field, r->err))
        return CKPT_ENOMEM;
    x = &f->field[f->n_field++];
    *x = (struct arrow_field){.name = ckpt_arena_strndup(&f->arena, name, len)};
    x->text.name = x->name;
    x->text.key = x->name ? pq_json_key(&f->arena, x->name, r->err) : NULL;
    return x->name && x->text.key ? 0 : ckpt_nomem(r->err, len);
}

/* Extension types, stored as another type: a UUID is sixteen bytes. */
static void set_extension(struct arrow_field *x, struct flatbuffer *f,
                          const struct flatbuffer_table *t)
{
    struct flatbuffer_vector pairs = flatbuffer_list(f, t, 6, 4);

    for (size_t i = 0; i < pairs.n && !f->failed; i++) {
        struct flatbuffer_table pair = flatbuffer_at(f, &pairs, i);
        size_t n, m;
        const char *key = flatbuffer_text(f, &pair, 0, &n),
                   *value = flatbuffer_text(f, &pair, 1, &m);

        if (key && value && n == 20 && memcmp(key, "ARROW:extension:name", 20) == 0 && m == 10 &&
            memcmp(value, "arrow.uuid", 10) == 0 && x->text.type == PQ_FIXED && x->width == 16)
            x->text.meaning = PQ_UUID;
    }
}

static int read_field(struct reader *r, const struct flatbuffer_table *t, bool values,
                      unsigned depth)
{
    size_t self = r->f->n_field;
    int64_t type = flatbuffer_int(r->flat, t, 2, 1, 0);
    struct flatbuffer_table inner = flatbuffer_child(r->flat, t, 3),
                            coded = flatbuffer_child(r->flat, t, 4);
    int rc;

    if (depth > ARROW_MAX_DEPTH)
        return ckpt_fail(r->err, CKPT_ELIMIT, "nested deeper than %d levels", ARROW_MAX_DEPTH);
    if ((rc = new_field(r, t)) != 0)
        return rc;
    if (coded.at && !values)
        return set_coded(r, self, t, &coded);
    if (!set_type(&r->f->field[self], r->flat, type & 0xff, &inner))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "column \"%s\" has Arrow type %lld",
                         r->f->field[self].name, (long long)(type & 0xff));
    set_extension(&r->f->field[self], r->flat, t);
    if ((rc = read_children(r, t, self, depth)) != 0)
        return rc;
    return r->f->field[self].layout == ARROW_STRUCT
               ? check_names(r->f, self + 1, r->f->field[self].end, r->err) : 0;
}

/* What the writer says beside the fields; what is no text, or long, is left out. */
static int read_metadata(struct arrow_file *f, struct flatbuffer *flat,
                         const struct flatbuffer_table *schema, struct ckpt_err *err)
{
    struct flatbuffer_vector pairs = flatbuffer_list(flat, schema, 2, 4);

    json_decref(f->metadata);
    f->metadata = json_object();
    if (!f->metadata)
        return ckpt_nomem(err, 64);
    for (size_t i = 0; i < pairs.n && i < ARROW_MAX_PAIRS && !flat->failed; i++) {
        struct flatbuffer_table pair = flatbuffer_at(flat, &pairs, i);
        size_t n, m;
        const char *key = flatbuffer_text(flat, &pair, 0, &n),
                   *value = flatbuffer_text(flat, &pair, 1, &m);

        if (!key || !value || n > ARROW_MAX_VALUE || m > ARROW_MAX_VALUE ||
            !ckpt_utf8_valid(key, n) || !ckpt_utf8_valid(value, m))
            continue;
        if (json_object_setn_new_nocheck(f->metadata, key, n, json_stringn_nocheck(value, m)))
            return ckpt_nomem(err, n + m);
    }
    return 0;
}

/* Number the buffers of the fields [from, end) from 0; how many. */
static size_t number_buffers(struct arrow_file *f, size_t from, size_t end)
{
    size_t n = 0;

    for (size_t i = from; i < end; i++) {
        f->field[i].buffer = n;
        n += arrow_buffers_of(&f->field[i]);
    }
    return n;
}

int arrow_schema_read(struct arrow_file *f, struct flatbuffer *flat,
                      const struct flatbuffer_table *schema,
                      struct ckpt_err *err)
{
    struct reader r = {.f = f, .flat = flat, .err = err};
    struct flatbuffer_vector fields = flatbuffer_list(flat, schema, 1, 4);
    int rc = 0;

    if (flatbuffer_int(flat, schema, 0, 2, 0) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "its numbers are big endian");
    for (size_t i = 0; rc == 0 && i < fields.n; i++) {
        struct flatbuffer_table t = flatbuffer_at(flat, &fields, i);

        rc = read_field(&r, &t, false, 1);
    }
    f->n_schema = f->n_field;
    f->n_buffer = number_buffers(f, 0, f->n_schema);
    /* The list grows when values have dictionaries themselves. */
    for (size_t i = 0; rc == 0 && i < r.n_pending; i++) {
        struct flatbuffer_table t = r.pending[i].table;
        size_t values = f->n_field;

        f->field[r.pending[i].field].values = values;
        rc = read_field(&r, &t, true, 1);
        if (rc == 0)
            number_buffers(f, values, f->n_field);
    }
    if (rc == 0)
        rc = check_names(f, 0, f->n_schema, err);
    if (rc == 0)
        rc = read_metadata(f, flat, schema, err);
    if (rc == 0 && flat->failed)
        rc = ckpt_fail(err, CKPT_EFORMAT, "the schema is damaged");
    if (rc == 0 && !f->field)           /* rows without fields */
        f->field = ckpt_alloc(1, sizeof *f->field);
    ckpt_free(r.pending);
    return rc == 0 && !f->field ? ckpt_nomem(err, sizeof *f->field) : rc;
}
