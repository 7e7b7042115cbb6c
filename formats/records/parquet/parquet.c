/* parquet - see parquet.h. */
#include "formats/records/parquet/parquet.h"

#include <string.h>

#include "formats/records/parquet/schema.h"

#define TAIL      8             /* length and magic at the end */
#define MAX_VALUE (64 << 10)    /* longest metadata value that is kept */
#define SLACK     100           /* bytes: old writers did not count a dictionary's header */

const char *pq_type_name(enum pq_type type)
{
    static const char *const names[] = {"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE",
                                        "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};

    return names[type];
}

const char *pq_codec_name(int codec)
{
    static const char *const names[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4",
                                        "ZSTD", "LZ4_RAW"};

    return codec >= 0 && codec < 8 ? names[codec] : "unknown";
}

const char *pq_encoding_name(int encoding)
{
    static const char *const names[] = {
        "PLAIN", "GROUP_VAR_INT", "PLAIN_DICTIONARY", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED",
        "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "BYTE_STREAM_SPLIT",
    };

    return encoding >= 0 && encoding < 10 ? names[encoding] : "unknown";
}

const char *pq_meaning_name(const struct pq_node *leaf)
{
    static const char *const plain[] = {"bool", "int32", "int64", "timestamp[ns]", "float",
                                        "double", "binary", "fixed binary"};
    static const char *const time[] = {"time[ms]", "time[us]", "time[ns]"};
    static const char *const stamp[][2] = {{"timestamp[ms]", "timestamp[ms, UTC]"},
                                           {"timestamp[us]", "timestamp[us, UTC]"},
                                           {"timestamp[ns]", "timestamp[ns, UTC]"}};
    size_t digits = leaf->digits >= 3 ? (size_t)leaf->digits / 3 - 1 : 0;

    switch (leaf->meaning) {
    case PQ_TEXT: return "string";
    case PQ_UNSIGNED:
        return leaf->bits == 8 ? "uint8" : leaf->bits == 16 ? "uint16"
               : leaf->type == PQ_INT32 ? "uint32" : "uint64";
    case PQ_DECIMAL: return "decimal";
    case PQ_DATE: return "date";
    case PQ_TIME: return time[digits];
    case PQ_TIMESTAMP: return stamp[digits][leaf->utc];
    case PQ_UUID: return "uuid";
    case PQ_HALF: return "half";
    case PQ_INTERVAL: return "interval";
    case PQ_NOTHING: return "null";
    case PQ_PLAIN: break;
    }
    if (leaf->bits && leaf->type == PQ_INT32)
        return leaf->bits == 8 ? "int8" : "int16";
    return plain[leaf->type];
}

/* A ColumnMetaData as it stands in the file. */
struct column {
    int64_t type, codec, values, raw, bytes, data, dictionary;
    uint32_t encodings;
    bool     has_meta, has_path, encrypted;
};

static void parse_meta(struct column *m, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};
    enum thrift_type type;

    m->has_meta = true;
    m->type = m->codec = m->data = -1;
    while (thrift_next(c, &f)) {
        switch (f.id) {
        case 1: m->type = f.i; break;
        case 4: m->codec = f.i; break;
        case 5: m->values = f.i; break;
        case 6: m->raw = f.i; break;
        case 7: m->bytes = f.i; break;
        case 9: m->data = f.i; break;
        case 11: m->dictionary = f.i; break;
        }
        if (f.id == 2 && f.type == THRIFT_LIST) {
            for (size_t n = thrift_list(c, &type); n > 0 && !c->failed; n--) {
                int64_t e = thrift_int(c);

                if (e >= 0 && e < 32)
                    m->encodings |= (uint32_t)1 << e;
            }
        } else {
            thrift_skip(c, &f);
        }
    }
}

static int set_chunk(const struct pq_file *f, const struct pq_node *leaf, struct pq_chunk *chunk,
                     const struct column *m, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), end;

    if (m->encrypted)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "column \"%s\" is encrypted", leaf->name);
    if (m->has_path)
        return ckpt_fail(err, CKPT_EREFUSED, "column \"%s\" lies in another file", leaf->name);
    if (!m->has_meta || m->type != (int64_t)leaf->type)
        return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\": its chunk has type %lld, the schema %d",
                         leaf->name, (long long)m->type, (int)leaf->type);
    chunk->codec = m->codec >= 0 && m->codec < 100 ? (int)m->codec : 100;
    chunk->encodings = m->encodings;
    if (m->values == 0)
        return 0;                       /* an empty group may omit its position */
    if (m->values < 0 || m->bytes < 0 || m->raw < 0 || m->data < 4)
        return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\": a negative number", leaf->name);
    chunk->start = (uint64_t)(m->dictionary > 0 && m->dictionary < m->data ? m->dictionary
                                                                           : m->data);
    chunk->bytes = (uint64_t)m->bytes;
    chunk->raw_bytes = (uint64_t)m->raw;
    chunk->values = (uint64_t)m->values;
    end = chunk->start + chunk->bytes;      /* cannot overflow: both are below 2^63 */
    if (end > size - TAIL)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "column \"%s\" ends at byte %llu of %llu", leaf->name,
                            (unsigned long long)end, (unsigned long long)size);
    chunk->limit = chunk->bytes + (size - TAIL - end < SLACK ? size - TAIL - end : SLACK);
    return 0;
}

static void parse_chunk(struct column *m, struct ckpt_cursor *c)
{
    struct thrift_field f = {0};

    *m = (struct column){0};
    while (thrift_next(c, &f)) {
        m->has_path |= f.id == 1;
        m->encrypted |= f.id == 8 || f.id == 9;
        if (f.id == 3 && f.type == THRIFT_STRUCT)
            parse_meta(m, c);
        else
            thrift_skip(c, &f);
    }
}

static int parse_columns(struct pq_file *f, struct pq_group *g, struct ckpt_cursor *c,
                         struct ckpt_err *err)
{
    enum thrift_type type;
    size_t n = thrift_list(c, &type);
    struct column m;
    int rc;

    if (c->failed || type != THRIFT_STRUCT || n != f->n_leaf)
        return ckpt_fail(err, CKPT_EFORMAT, "%zu columns, %zu in the schema", n, f->n_leaf);
    g->chunk = ckpt_arena_alloc(&f->arena, n, sizeof *g->chunk);
    if (!g->chunk)
        return ckpt_nomem(err, n * sizeof *g->chunk);
    for (size_t i = 0; i < n; i++) {
        parse_chunk(&m, c);
        if (c->failed)
            return ckpt_fail(err, CKPT_EFORMAT, "column %zu is damaged", i + 1);
        if ((rc = set_chunk(f, &f->node[f->leaf[i]], &g->chunk[i], &m, err)) != 0)
            return rc;
    }
    return 0;
}

static int parse_group(struct pq_file *f, struct pq_group *g, struct ckpt_cursor *c,
                       struct ckpt_err *err)
{
    struct thrift_field field = {0};
    int rc;

    g->rows = -1;
    while (thrift_next(c, &field)) {
        if (field.id == 3)
            g->rows = field.i;
        if (field.id == 1 && field.type == THRIFT_LIST) {
            if (g->chunk)
                return ckpt_fail(err, CKPT_EFORMAT, "columns are listed twice");
            if ((rc = parse_columns(f, g, c, err)) != 0)
                return rc;
        } else {
            thrift_skip(c, &field);
        }
    }
    if (c->failed || g->rows < 0 || (!g->chunk && f->n_leaf > 0))
        return ckpt_fail(err, CKPT_EFORMAT, "is damaged");
    for (size_t i = 0; i < f->n_leaf; i++)
        if (g->chunk[i].values < (uint64_t)g->rows)
            return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\" has %llu values for %lld rows",
                             f->node[f->leaf[i]].name, (unsigned long long)g->chunk[i].values,
                             (long long)g->rows);
    return 0;
}

static int parse_groups(struct pq_file *f, struct ckpt_cursor *c, struct ckpt_err *err)
{
    enum thrift_type type;
    size_t n = thrift_list(c, &type);
    int64_t rows = 0;

    if (!f->node || f->group)
        return ckpt_fail(err, CKPT_EFORMAT, "row groups %s",
                         f->node ? "are listed twice" : "come before the schema");
    if (c->failed || (n > 0 && type != THRIFT_STRUCT))
        return ckpt_fail(err, CKPT_EFORMAT, "the row groups are no list");
    f->group = ckpt_arena_alloc(&f->arena, n ? n : 1, sizeof *f->group);
    if (!f->group)
        return ckpt_nomem(err, n * sizeof *f->group);
    for (size_t i = 0; i < n; i++) {
        f->group[i].first = rows;
        if (parse_group(f, &f->group[i], c, err))
            return ckpt_err_in(err, "row group %zu", i + 1);
        if (f->group[i].rows > INT64_MAX - rows)
            return ckpt_fail(err, CKPT_EFORMAT, "more rows than 64 bits count");
        rows += f->group[i].rows;
        f->n_group++;
    }
    return 0;
}

/* Read a KeyValue; skip values that are not text, and Arrow's schema, an encoded copy of the
 * file's. */
static int parse_pair(struct pq_file *f, struct ckpt_cursor *c, struct ckpt_err *err)
{
    struct thrift_field field = {0}, key = {0}, value = {0};
    json_t *v;

    while (thrift_next(c, &field)) {
        if (field.id == 1)
            key = field;
        else if (field.id == 2)
            value = field;
        thrift_skip(c, &field);
    }
    if (c->failed || !key.bytes || !value.bytes || value.len > MAX_VALUE ||
        (key.len == 12 && memcmp(key.bytes, "ARROW:schema", 12) == 0) ||
        !ckpt_utf8_valid(key.bytes, key.len) || !ckpt_utf8_valid(value.bytes, value.len))
        return 0;
    v = json_stringn_nocheck((const char *)value.bytes, value.len);
    return json_object_setn_new_nocheck(f->metadata, (const char *)key.bytes, key.len, v)
               ? ckpt_nomem(err, value.len) : 0;
}

static int parse_field(struct pq_file *f, const struct thrift_field *field, struct ckpt_cursor *c,
                       struct ckpt_err *err)
{
    enum thrift_type type;
    int rc = 0;

    if (field->id == 2 && field->type == THRIFT_LIST)
        return f->node ? ckpt_fail(err, CKPT_EFORMAT, "two schemas") : pq_schema_read(f, c, err);
    if (field->id == 4 && field->type == THRIFT_LIST)
        return parse_groups(f, c, err);
    if (field->id == 5 && field->type == THRIFT_LIST) {
        for (size_t n = thrift_list(c, &type); rc == 0 && n > 0 && !c->failed; n--)
            rc = type == THRIFT_STRUCT ? parse_pair(f, c, err)
                                       : ckpt_fail(err, CKPT_EFORMAT, "metadata of type %d", type);
        return rc;
    }
    if (field->id == 6 && field->bytes && ckpt_utf8_valid(field->bytes, field->len)) {
        f->created_by = ckpt_arena_strndup(&f->arena, (const char *)field->bytes, field->len);
        if (!f->created_by)
            return ckpt_nomem(err, field->len);
    }
    thrift_skip(c, field);
    return 0;
}

static int parse_footer(struct pq_file *f, const unsigned char *bytes, size_t len,
                        struct ckpt_err *err)
{
    struct thrift_field field = {0};
    struct ckpt_cursor c;
    int64_t rows = 0;
    int rc = 0;

    ckpt_cursor_init(&c, bytes, len);
    while (rc == 0 && thrift_next(&c, &field))
        rc = parse_field(f, &field, &c, err);
    if (rc)
        return rc;
    if (c.failed || !f->node || !f->group)
        return ckpt_fail(err, CKPT_EFORMAT, "%s", c.failed ? "is damaged"
                                                  : "has no schema or no row groups");
    for (size_t i = 0; i < f->n_group; i++)
        rows += f->group[i].rows;
    if (rows > 0 && f->n_leaf == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "has %lld rows and no column", (long long)rows);
    f->rows = rows;                     /* some writers leave the file's own number at 0 */
    return 0;
}

int pq_file_open(struct pq_file *f, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file), len;
    unsigned char tail[TAIL], *bytes = NULL;
    int rc;

    *f = (struct pq_file){.file = file};
    if (size < 4 + TAIL)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%llu bytes are no parquet file",
                            (unsigned long long)size);
    if ((rc = ckpt_file_read_at(file, tail, TAIL, size - TAIL, err)) != 0)
        return rc;
    if (memcmp(tail + 4, "PARE", 4) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "its footer is encrypted");
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "does not end in PAR1: it is cut, or no parquet file");
    len = (uint64_t)tail[0] | (uint64_t)tail[1] << 8 | (uint64_t)tail[2] << 16 |
          (uint64_t)tail[3] << 24;
    if (len > size - 4 - TAIL)
        return ckpt_fail(err, CKPT_EFORMAT, "a footer of %llu bytes in a file of %llu",
                         (unsigned long long)len, (unsigned long long)size);
    if (len > PQ_MAX_FOOTER)
        return ckpt_fail(err, CKPT_ELIMIT, "a footer of %llu bytes; the limit is %llu",
                         (unsigned long long)len, (unsigned long long)PQ_MAX_FOOTER);
    f->metadata = json_object();
    bytes = ckpt_alloc_buffer((size_t)len + 1);
    rc = f->metadata && bytes ? ckpt_file_read_at(file, bytes, (size_t)len, size - TAIL - len, err)
                              : ckpt_nomem(err, (size_t)len);
    if (rc == 0 && parse_footer(f, bytes, (size_t)len, err))
        rc = ckpt_err_in(err, "footer");
    ckpt_free(bytes);
    if (rc)
        pq_file_release(f);
    return rc;
}

void pq_file_release(struct pq_file *f)
{
    json_decref(f->metadata);
    ckpt_arena_release(&f->arena);
    *f = (struct pq_file){0};
}
