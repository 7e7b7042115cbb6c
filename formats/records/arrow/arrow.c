/* arrow - see arrow.h. */
#include "formats/records/arrow/arrow.h"

#include <string.h>

#include "formats/container/flatbuffer.h"
#include "formats/records/arrow/schema.h"

#define MAGIC "ARROW1\0"        /* and a NUL: eight bytes */

enum { SCHEMA = 1, DICTIONARY_BATCH, RECORD_BATCH };

/* One message: its metadata in memory, its body in the file. */
struct message {
    unsigned char    *meta;
    struct flatbuffer flat;
    struct flatbuffer_table header;
    int               type;
    uint64_t          body, body_len, next;
};

static uint32_t le32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

bool arrow_is(const unsigned char *head, size_t len)
{
    if (len >= 8 && memcmp(head, MAGIC, 8) == 0)
        return true;
    /* A stream: the marker, a length, and FlatBuffers with a root close by. */
    return len >= 16 && le32(head) == 0xffffffffu && le32(head + 4) > 16 &&
           le32(head + 4) < ARROW_MAX_META && le32(head + 4) % 8 == 0 && le32(head + 8) < 4096;
}

/* The message at offset; m->meta NULL at the end of the stream. */
static int read_message(struct message *m, const struct arrow_file *f, uint64_t at,
                        struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(f->file), len, left;
    unsigned char head[8];
    struct flatbuffer_table root;
    int rc;

    *m = (struct message){0};
    if (at == size)
        return 0;
    if (size - at < 4)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "ends inside a message");
    if ((rc = ckpt_file_read_at(f->file, head, size - at < 8 ? 4 : 8, at, err)) != 0)
        return rc;
    /* Before version 0.15 there was no marker. */
    at += le32(head) == 0xffffffffu ? 8 : 4;
    len = le32(head) == 0xffffffffu ? (at <= size ? le32(head + 4) : 0) : le32(head);
    if (len == 0)
        return 0;
    left = at <= size ? size - at : 0;
    if (len > left)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "metadata of %llu bytes, %llu are left",
                            (unsigned long long)len, (unsigned long long)left);
    if (len > ARROW_MAX_META)
        return ckpt_fail(err, CKPT_ELIMIT, "metadata of %llu bytes", (unsigned long long)len);
    m->meta = ckpt_alloc_buffer((size_t)len);
    if (!m->meta)
        return ckpt_nomem(err, (size_t)len);
    if ((rc = ckpt_file_read_at(f->file, m->meta, (size_t)len, at, err)) != 0)
        return rc;
    m->flat = (struct flatbuffer){m->meta, (size_t)len, false};
    root = flatbuffer_root(&m->flat);
    m->type = (int)flatbuffer_int(&m->flat, &root, 1, 1, 0);
    m->header = flatbuffer_child(&m->flat, &root, 2);
    m->body = at + len;
    m->body_len = (uint64_t)flatbuffer_int(&m->flat, &root, 3, 8, 0);
    if (m->flat.failed || m->header.at == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "its metadata is damaged");
    if (m->body_len > size - m->body)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "a body of %llu bytes, %llu are left",
                            (unsigned long long)m->body_len,
                            (unsigned long long)(size - m->body));
    m->next = m->body + m->body_len;
    return 0;
}

/* Record where a batch's buffers lie, of fields [from, to). */
static int set_batch(struct arrow_file *f, struct arrow_batch *b, struct message *m,
                     const struct flatbuffer_table *t, size_t n_field, size_t n_buffer,
                     struct ckpt_err *err)
{
    struct flatbuffer_vector nodes = flatbuffer_list(&m->flat, t, 1, 16),
                             buffers = flatbuffer_list(&m->flat, t, 2, 16);

    b->rows = flatbuffer_int(&m->flat, t, 0, 8, 0);
    if (flatbuffer_child(&m->flat, t, 3).at)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "its buffers are compressed");
    if (m->flat.failed || b->rows < 0 || nodes.n != n_field || buffers.n != n_buffer)
        return ckpt_fail(err, CKPT_EFORMAT, "a batch of %zu nodes and %zu buffers, %zu and %zu "
                         "follow from the schema", nodes.n, buffers.n, n_field, n_buffer);
    b->length = ckpt_arena_alloc(&f->arena, n_field + 1, sizeof *b->length);
    b->buffer = ckpt_arena_alloc(&f->arena, n_buffer + 1, sizeof *b->buffer);
    if (!b->length || !b->buffer)
        return ckpt_nomem(err, n_buffer * sizeof *b->buffer);
    for (size_t i = 0; i < n_field; i++)
        b->length[i] = flatbuffer_i64(&m->flat, &nodes, i, 0);
    for (size_t i = 0; i < n_buffer; i++) {
        uint64_t at = (uint64_t)flatbuffer_i64(&m->flat, &buffers, i, 0),
                 len = (uint64_t)flatbuffer_i64(&m->flat, &buffers, i, 8);

        if (at > m->body_len || len > m->body_len - at)
            return ckpt_fail(err, CKPT_EFORMAT, "buffer %zu lies at %llu, %llu bytes, in a body "
                             "of %llu", i, (unsigned long long)at, (unsigned long long)len,
                             (unsigned long long)m->body_len);
        b->buffer[i] = (struct arrow_buffer){m->body + at, len};
    }
    return 0;
}

static struct arrow_batch *more(struct arrow_batch **list, size_t *n, size_t *cap,
                                struct ckpt_err *err)
{
    if (ckpt_reserve(list, *n, cap, sizeof **list, err))
        return NULL;
    (*list)[*n] = (struct arrow_batch){0};
    return &(*list)[(*n)++];
}

static int add_rows(struct arrow_file *f, struct message *m, struct ckpt_err *err)
{
    struct arrow_batch *b = more(&f->batch, &f->n_batch, &f->cap_batch, err);
    int rc;

    if (!b)
        return CKPT_ENOMEM;
    b->first = f->rows;
    if ((rc = set_batch(f, b, m, &m->header, f->n_schema, f->n_buffer, err)) != 0)
        return rc;
    for (size_t i = 0; i < f->n_schema; i = f->field[i].end)
        if (b->length[i] != b->rows)
            return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\" has %lld values for %lld rows",
                             f->field[i].name, (long long)b->length[i], (long long)b->rows);
    if (b->rows > INT64_MAX - f->rows || (b->rows > 0 && f->n_schema == 0))
        return ckpt_fail(err, CKPT_EFORMAT, "%lld rows without a column", (long long)b->rows);
    f->rows += b->rows;
    return 0;
}

/* The buffers of the fields [from, end). */
static size_t count_buffers(const struct arrow_file *f, size_t from)
{
    size_t n = 0;

    for (size_t i = from; i < f->field[from].end; i++)
        n += arrow_buffers_of(&f->field[i]);
    return n;
}

static int add_dictionary(struct arrow_file *f, struct message *m, struct ckpt_err *err)
{
    int64_t id = flatbuffer_int(&m->flat, &m->header, 0, 8, 0), first = 0;
    struct flatbuffer_table data = flatbuffer_child(&m->flat, &m->header, 1);
    bool delta = flatbuffer_int(&m->flat, &m->header, 2, 1, 0) != 0;
    struct arrow_batch *b;
    size_t k = 0;
    int rc;

    while (k < f->n_field && !(f->field[k].coded && f->field[k].dictionary == id))
        k++;
    if (k == f->n_field || data.at == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "a dictionary %lld that no column has", (long long)id);
    for (size_t i = 0; i < f->n_entry; i++)
        if (f->entry[i].dictionary == id) {
            if (!delta)
                return ckpt_fail(err, CKPT_EUNSUPPORTED, "dictionary %lld is replaced",
                                 (long long)id);
            first = f->entry[i].first + f->entry[i].rows;
        }
    b = more(&f->entry, &f->n_entry, &f->cap_entry, err);
    if (!b)
        return CKPT_ENOMEM;
    b->dictionary = id;
    b->first = first;
    b->field = f->field[k].values;
    if ((rc = set_batch(f, b, m, &data, f->field[b->field].end - b->field,
                        count_buffers(f, b->field), err)) != 0)
        return rc;
    return b->rows > INT64_MAX - first ? ckpt_fail(err, CKPT_EFORMAT, "a dictionary too long") : 0;
}

static int add_message(struct arrow_file *f, struct message *m, struct ckpt_err *err)
{
    if (m->type == SCHEMA)
        return f->field ? ckpt_fail(err, CKPT_EFORMAT, "a second schema")
                        : arrow_schema_read(f, &m->flat, &m->header, err);
    if (!f->field)
        return ckpt_fail(err, CKPT_EFORMAT, "does not begin with a schema");
    if (m->type == RECORD_BATCH)
        return add_rows(f, m, err);
    if (m->type == DICTIONARY_BATCH)
        return add_dictionary(f, m, err);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "a message of type %d", m->type);
}

int arrow_file_open(struct arrow_file *f, struct ckpt_file *file, struct ckpt_err *err)
{
    struct message m = {0};
    unsigned char head[8];
    uint64_t at = 0;
    int rc = 0;

    *f = (struct arrow_file){.file = file};
    if (ckpt_file_size(file) >= 8) {
        rc = ckpt_file_read_at(file, head, 8, 0, err);
        at = rc == 0 && memcmp(head, MAGIC, 8) == 0 ? 8 : 0;
    }
    do {
        if (rc == 0)
            rc = read_message(&m, f, at, err);
        if (rc == 0 && m.meta)
            rc = add_message(f, &m, err);
        if (rc)
            ckpt_err_in(err, "message at byte %llu", (unsigned long long)at);
        at = m.next;
        ckpt_free(m.meta);
    } while (rc == 0 && m.meta);
    if (rc == 0 && !f->field)
        rc = ckpt_fail(err, CKPT_EFORMAT, "has no schema");
    return rc;
}

void arrow_file_release(struct arrow_file *f)
{
    ckpt_free(f->field);
    ckpt_free(f->batch);
    ckpt_free(f->entry);
    json_decref(f->metadata);
    ckpt_arena_release(&f->arena);
    *f = (struct arrow_file){0};
}
