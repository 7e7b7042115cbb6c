/* safetensors_out - see safetensors_out.h.  Source: safetensors 0.8 tensor.rs, prepare(). */
#include "formats/hf/safetensors_out.h"

#include <stdlib.h>
#include <string.h>

#include "formats/hf/safetensors.h"
#include "formats/hf/safetensors_header.h"
#include "libckpt/base/json.h"

#define PART_BYTES 65536u       /* bytes of the header buffered at once: all of it may be 100 MB */

struct safetensors_file {
    struct ckpt_out *out;
    uint64_t        *offset;    /* [n_pick] of the data, in the file */
    const char      *record;    /* see create's opts; NULL: none */
    struct ckpt_buf  stood;     /* its JSON spelling in the header */
    uint64_t         record_at; /* offset of that in the file */
};

struct row {
    const struct ckpt_tensor *t;
    size_t                    class;    /* of its dtype, SIZE_MAX: none */
    size_t                    k;        /* index in pick */
};

static int by_class(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    return x->class != y->class ? (x->class < y->class ? -1 : 1) : strcmp(x->t->name, y->t->name);
}

/* The tensors in file order; pick NULL: all.  NULL when out of memory. */
static struct row *rows_in_order(const struct ckpt_tensors *list, const size_t *pick, size_t n)
{
    struct row *row = ckpt_alloc(n, sizeof *row);

    if (!row)
        return NULL;
    for (size_t k = 0; k < n; k++) {
        const struct ckpt_tensor *t = &list->item[pick ? pick[k] : k];

        row[k] = (struct row){t, safetensors_class(t->dtype), k};
    }
    qsort(row, n, sizeof *row, by_class);
    return row;
}

/* The record comes first in the object, so that its position is known. */
static int put_metadata(struct ckpt_buf *b, struct safetensors_file *s, const json_t *metadata,
                        struct ckpt_err *err)
{
    json_t *m = metadata ? json_copy((json_t *)metadata) : json_object();
    int rc = 0;

    if (!m || (!json_object_get(m, "format") &&
               json_object_set_new(m, "format", json_string("pt"))))
        rc = ckpt_nomem(err, 64);
    ckpt_buf_put_str(b, "{\"__metadata__\":");
    if (rc == 0 && s->record) {
        json_object_del(m, CKPT_RECORD_KEY);
        ckpt_json_put_string(&s->stood, s->record, strlen(s->record));
        rc = ckpt_buf_ok(&s->stood) ? 0 : ckpt_nomem(err, s->stood.len);
        ckpt_buf_put_str(b, "{\"" CKPT_RECORD_KEY "\":");
        s->record_at = 8 + b->len;
        ckpt_buf_put(b, s->stood.data, s->stood.len);
        ckpt_buf_put_u8(b, ',');
    }
    if (rc == 0) {
        size_t brace = b->len;

        rc = ckpt_json_write(b, m, 0, true, err);
        if (rc == 0 && s->record && ckpt_buf_ok(b)) {   /* merge the two objects into one */
            memmove(b->data + brace, b->data + brace + 1, b->len - brace - 1);
            b->len--;
        }
    }
    json_decref(m);
    return rc;
}

/* Pass on a finished part of the header: count it, and write it if requested. */
static int pass_on(struct ckpt_buf *b, uint64_t *len, size_t n, struct ckpt_out *out,
                   struct ckpt_err *err)
{
    int rc;

    if (!ckpt_buf_ok(b) && b->len < b->limit / 2)      /* memory grows by doubling */
        return ckpt_nomem(err, b->len);
    if (!ckpt_buf_ok(b) || *len + b->len > SAFETENSORS_MAX_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT, "header of %zu tensors passes %u bytes", n,
                         SAFETENSORS_MAX_HEADER);
    if (out && (rc = ckpt_out_write(out, b->data, b->len, err)) != 0)
        return rc;
    *len += b->len;
    b->len = 0;
    return 0;
}

int safetensors_check(const struct ckpt_tensors *list, struct ckpt_err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];

        if (safetensors_class(t->dtype) == SIZE_MAX)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: safetensors has no %s", t->name,
                             ckpt_dtype_name(t->dtype));
        if (strcmp(t->name, "__metadata__") == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "safetensors has no tensor of name %s",
                             t->name);
    }
    return 0;
}

/*
 * Write the header's text to out part by part, or with out NULL only compute its length with
 * padding; s->offset[] gets positions relative to the data.
 */
static int put_header(uint64_t *len, struct ckpt_buf *b, struct safetensors_file *s,
                      uint64_t *total, const struct row *row, size_t n, const json_t *metadata,
                      struct ckpt_out *out, struct ckpt_err *err)
{
    uint64_t at = 0;
    int rc;

    *len = 0;
    s->stood.len = 0;
    if ((rc = put_metadata(b, s, metadata, err)) != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = row[i].t;
        uint64_t bytes = ckpt_tensor_bytes(t);

        ckpt_buf_put_u8(b, ',');
        ckpt_json_put_string(b, t->name, strlen(t->name));
        ckpt_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", ckpt_dtype_name(t->dtype));
        for (int d = 0; d < t->shape.rank; d++)
            ckpt_buf_printf(b, d ? ",%lld" : "%lld", (long long)t->shape.dim[d]);
        ckpt_buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                        (unsigned long long)(at + bytes));
        s->offset[row[i].k] = at;
        at += bytes;
        if (b->len >= PART_BYTES && (rc = pass_on(b, len, n, out, err)) != 0)
            return rc;
    }
    ckpt_buf_put_u8(b, '}');
    while ((*len + b->len) % 8 != 0 && ckpt_buf_ok(b))
        ckpt_buf_put_u8(b, ' ');
    *total = at;
    return pass_on(b, len, n, out, err);
}

int safetensors_begin(struct safetensors_file **f, struct ckpt_out *out,
                      const struct ckpt_tensors *list, const size_t *pick, size_t n_pick,
                      const json_t *metadata, const char *record, struct ckpt_err *err)
{
    struct safetensors_file *s = ckpt_alloc(1, sizeof *s);
    struct row *row = rows_in_order(list, pick, n_pick);
    unsigned char size[8];
    struct ckpt_buf head;
    uint64_t total = 0, len = 0;
    int rc = 0;

    *f = NULL;
    ckpt_buf_init(&head, SAFETENSORS_MAX_HEADER);
    if (s) {
        s->out = out;
        s->record = record;
        ckpt_buf_init(&s->stood, SAFETENSORS_MAX_HEADER);
        s->offset = ckpt_alloc(n_pick, sizeof *s->offset);
    }
    if (!s || !row || !s->offset) {
        rc = ckpt_nomem(err, n_pick * sizeof *row);
        goto out;
    }
    rc = put_header(&len, &head, s, &total, row, n_pick, metadata, NULL, err);
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(len >> 8 * i);
    if (rc == 0)
        rc = ckpt_out_reserve(out, 8 + len + total, err);
    if (rc == 0)
        rc = ckpt_out_write(out, size, sizeof size, err);
    if (rc == 0)
        rc = put_header(&len, &head, s, &total, row, n_pick, metadata, out, err);
    for (size_t k = 0; rc == 0 && k < n_pick; k++)
        s->offset[k] += 8 + len;
out:
    ckpt_buf_release(&head);
    ckpt_free(row);
    if (rc == 0) {
        *f = s;
    } else if (s) {
        safetensors_abort(s);
    } else {
        ckpt_out_abort(out);
    }
    return rc;
}

uint64_t safetensors_offset(const struct safetensors_file *f, size_t k) { return f->offset[k]; }
struct ckpt_out *safetensors_out_file(const struct safetensors_file *f) { return f->out; }

static void file_free(struct safetensors_file *f)
{
    ckpt_buf_release(&f->stood);
    ckpt_free(f->offset);
    ckpt_free(f);
}

/* Rewrite the record if it differs from the header's. */
static int rewrite_record(struct safetensors_file *f, struct ckpt_err *err)
{
    struct ckpt_buf now;
    int rc;

    ckpt_buf_init(&now, SAFETENSORS_MAX_HEADER);
    ckpt_json_put_string(&now, f->record, strlen(f->record));
    rc = ckpt_buf_ok(&now) ? 0 : ckpt_nomem(err, now.len);
    if (rc == 0 && now.len != f->stood.len)
        rc = ckpt_fail(err, CKPT_ESTATE, "the record's length changed while it was written");
    if (rc == 0 && memcmp(now.data, f->stood.data, now.len) != 0)
        rc = ckpt_out_write_at(f->out, now.data, now.len, f->record_at, err);
    ckpt_buf_release(&now);
    return rc;
}

int safetensors_commit(struct safetensors_file *f, struct ckpt_err *err)
{
    int rc = f->record && !ckpt_out_is_stream(f->out) ? rewrite_record(f, err) : 0;

    if (rc) {
        safetensors_abort(f);
        return rc;
    }
    rc = ckpt_out_commit(f->out, err);
    file_free(f);
    return rc;
}

void safetensors_abort(struct safetensors_file *f)
{
    if (!f)
        return;
    ckpt_out_abort(f->out);
    file_free(f);
}

/* -- the sink over one file ------------------------------------------------------------------ */

struct sink {
    struct safetensors_file   *file;
    struct ckpt_out           *out;     /* a stream: not committed with the file */
    const struct ckpt_tensors *list;    /* the list given to the sink */
    struct ckpt_tensors        sorted;  /* stream: the list in file order */
};

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;
    const struct ckpt_tensor *t = &s->list->item[i];
    size_t width = ckpt_dtype_size(t->dtype);

    if (ckpt_out_is_stream(s->out))
        return ckpt_out_write(s->out, src, (size_t)count * width, err);
    return ckpt_out_write_at(s->out, src, (size_t)count * width,
                             safetensors_offset(s->file, i) + (uint64_t)start * width, err);
}

static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    struct sink *s = self;

    (void)count;
    out->out = s->out;
    out->offset = safetensors_offset(s->file, i) +
                  (uint64_t)start * ckpt_dtype_size(s->list->item[i].dtype);
    return true;
}

static void sink_free(struct sink *s)
{
    ckpt_tensors_release(&s->sorted);
    ckpt_free(s);
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = safetensors_commit(s->file, err);

    sink_free(s);
    return rc;
}

static void sink_abort(void *self)
{
    struct sink *s = self;

    safetensors_abort(s->file);
    sink_free(s);
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "safetensors", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

/* A stream takes tensors in file order: the sink's list becomes a sorted copy. */
static int sort_list(struct sink *s, const struct ckpt_tensors *list, struct ckpt_err *err)
{
    struct row *row = rows_in_order(list, NULL, list->n);
    int rc = row ? 0 : ckpt_nomem(err, list->n * sizeof *row);

    for (size_t k = 0; rc == 0 && k < list->n; k++)
        rc = ckpt_tensors_add(&s->sorted, NULL, row[k].t->name, strlen(row[k].t->name),
                              row[k].t->dtype, &row[k].t->shape, NULL, 0, false, err);
    ckpt_free(row);
    s->list = &s->sorted;
    return rc;
}

int safetensors_create(struct ckpt_sink **out, const char *path,
                       const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                       struct ckpt_err *err)
{
    bool stream = opts->stream_fd > 0;
    struct sink *s = ckpt_alloc(1, sizeof *s);
    size_t *pick = ckpt_alloc(tensors->n, sizeof *pick);
    bool dry = opts->flags & CKPT_DRY_RUN;
    int rc = s && pick ? safetensors_check(tensors, err)
                       : ckpt_nomem(err, tensors->n * sizeof *pick);

    *out = NULL;
    for (size_t i = 0; rc == 0 && i < tensors->n; i++)
        pick[i] = i;
    if (rc == 0) {
        s->list = tensors;
        rc = stream ? sort_list(s, tensors, err) : 0;
    }
    if (rc == 0)
        rc = stream ? dry ? 0 : ckpt_out_stream(&s->out, opts->stream_fd, path, err)
             : dry  ? ckpt_out_ready(path, opts->flags, err)
                    : ckpt_out_create(&s->out, path, opts->flags, err);
    if (rc == 0 && !dry)
        rc = safetensors_begin(&s->file, s->out, s->list, pick, tensors->n, opts->metadata,
                               opts->record, err);
    ckpt_free(pick);
    if (rc || dry) {
        if (s)
            sink_free(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, s->list, stream, err);
}
