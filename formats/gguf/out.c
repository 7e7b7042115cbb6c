/* gguf/out - see gguf/out.h.  The layout is in gguf/header.c. */
#include "formats/gguf/out.h"

#include <pthread.h>
#include <string.h>

#include "formats/gguf/requantize.h"
#include "formats/gguf/header.h"
#include "libckpt/base/buf.h"

#define HEADER_MAX ((size_t)1 << 30)
#define STAGE      512              /* blocks packed at once */

/* A block of Q8_0 that is partly filled. */
struct edge {
    size_t   tensor;
    int64_t  block;
    uint32_t have;                  /* a bit for each element */
    float    value[GGUF_Q8_0_N];
};

struct place {
    uint64_t offset;
    bool     packed;
};

struct sink {
    const struct ckpt_tensors *list;
    struct ckpt_out           *out;
    struct place              *place;       /* [n] */
    pthread_mutex_t            lock;        /* of the edges */
    struct edge               *edge;
    size_t                     n_edge, cap;
    const char                *record;      /* see create's opts */
    uint64_t                   record_at;   /* offset of it in the file */
    size_t                     record_len;
};

static bool is_packed(const struct ckpt_tensor *t)
{
    return t->stored && strcmp(t->stored, "Q8_0") == 0 && t->dtype == CKPT_F32;
}

/* -- the header ------------------------------------------------------------------------------ */

static void put_string(struct ckpt_buf *b, const char *s, size_t n)
{
    ckpt_buf_put_u64le(b, n);
    ckpt_buf_put(b, s, n);
}

static bool put_scalar(struct ckpt_buf *b, enum gguf_kind kind, const json_t *v)
{
    uint64_t n = (uint64_t)json_integer_value(v);
    double d = json_number_value(v);
    float f = (float)d;
    uint32_t bits;
    uint64_t wide;

    switch (kind) {
    case GGUF_STRING:
        if (json_is_string(v))
            put_string(b, json_string_value(v), json_string_length(v));
        return json_is_string(v);
    case GGUF_BOOL:
        ckpt_buf_put_u8(b, json_is_true(v));
        return json_is_boolean(v);
    case GGUF_F32:
        memcpy(&bits, &f, sizeof bits);
        ckpt_buf_put_u32le(b, bits);
        return json_is_number(v);
    case GGUF_F64:
        memcpy(&wide, &d, sizeof wide);
        ckpt_buf_put_u64le(b, wide);
        return json_is_number(v);
    case GGUF_U8: case GGUF_I8:
        ckpt_buf_put_u8(b, (uint8_t)n);
        break;
    case GGUF_U16: case GGUF_I16:
        ckpt_buf_put_u16le(b, (uint16_t)n);
        break;
    case GGUF_U32: case GGUF_I32:
        ckpt_buf_put_u32le(b, (uint32_t)n);
        break;
    case GGUF_U64: case GGUF_I64:
        ckpt_buf_put_u64le(b, n);
        break;
    default:
        return false;
    }
    return json_is_integer(v);
}

/* The kind of that name; *list says whether "[]" follows. */
static enum gguf_kind kind_named(const char *name, bool *list)
{
    size_t n = strcspn(name, "[");

    *list = name[n] == '[';
    for (int k = 0; k < GGUF_KINDS; k++)
        if (k != GGUF_ARRAY && strlen(gguf_kind_name((enum gguf_kind)k)) == n &&
            strncmp(gguf_kind_name((enum gguf_kind)k), name, n) == 0)
            return (enum gguf_kind)k;
    return GGUF_KINDS;
}

static int put_pair(struct ckpt_buf *b, const json_t *pair, struct ckpt_err *err)
{
    const json_t *key = json_array_get(pair, 0), *v = json_array_get(pair, 2), *item;
    const char *name = json_string_value(json_array_get(pair, 1));
    bool list, ok = true;
    enum gguf_kind kind;
    size_t i;

    if (!json_is_string(key) || !name || !v)
        return ckpt_fail(err, CKPT_ESTATE, "a key of a GGUF file is no [key, kind, value]");
    kind = kind_named(name, &list);
    if (kind == GGUF_KINDS || (list && !json_is_array(v)))
        return ckpt_fail(err, CKPT_ESTATE, "key %s: kind %s", json_string_value(key), name);
    put_string(b, json_string_value(key), json_string_length(key));
    ckpt_buf_put_u32le(b, list ? GGUF_ARRAY : kind);
    if (!list) {
        ok = put_scalar(b, kind, v);
    } else {
        ckpt_buf_put_u32le(b, kind);
        ckpt_buf_put_u64le(b, json_array_size(v));
        json_array_foreach ((json_t *)v, i, item)
            ok = put_scalar(b, kind, item) && ok;
    }
    return ok ? 0 : ckpt_fail(err, CKPT_ESTATE, "key %s: its value is no %s",
                              json_string_value(key), name);
}

static int put_row(struct ckpt_buf *b, const struct ckpt_tensor *t, uint64_t at,
                   struct ckpt_err *err)
{
    uint32_t type = is_packed(t) ? GGUF_Q8_0 : gguf_type_of(t->dtype);
    size_t n = strlen(t->name);

    if (type == UINT32_MAX)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: GGUF has no %s", t->name,
                         ckpt_dtype_name(t->dtype));
    if (n > GGUF_MAX_NAME)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: its name has %zu bytes, GGUF takes %u",
                         t->name, n, GGUF_MAX_NAME);
    if (t->shape.rank > GGUF_MAX_RANK)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %d axes, GGUF takes %d", t->name,
                         t->shape.rank, GGUF_MAX_RANK);
    if (is_packed(t) && (t->shape.rank == 0 || t->shape.dim[t->shape.rank - 1] % GGUF_Q8_0_N))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: its rows are not multiples of %d, as "
                         "Q8_0 wants", t->name, GGUF_Q8_0_N);
    put_string(b, t->name, n);
    ckpt_buf_put_u32le(b, (uint32_t)t->shape.rank);
    for (int k = t->shape.rank; k-- > 0;)
        ckpt_buf_put_u64le(b, (uint64_t)t->shape.dim[k]);
    ckpt_buf_put_u32le(b, type);
    ckpt_buf_put_u64le(b, at);
    return 0;
}

static uint64_t bytes_of(const struct ckpt_tensor *t)
{
    return is_packed(t) ? (uint64_t)t->numel / GGUF_Q8_0_N * GGUF_Q8_0_BYTES
                        : ckpt_tensor_bytes(t);
}

static void pad(struct ckpt_buf *b)
{
    while (b->len % GGUF_ALIGNMENT != 0 && ckpt_buf_ok(b))
        ckpt_buf_put_u8(b, 0);
}

/* Put all keys: the record, keys copied from another file, and those of the facts; *n of them. */
static int put_keys(struct ckpt_buf *b, struct sink *s, const json_t *info, uint64_t *n,
                    struct ckpt_err *err)
{
    const json_t *pairs = json_object_get(info, "gguf");
    const char *from = json_string_value(json_object_get(info, "gguf_from"));
    json_t *pair;
    size_t i;
    int rc = 0;

    *n = 0;
    if (s->record) {                    /* first, so that its position is known */
        put_string(b, CKPT_RECORD_KEY, strlen(CKPT_RECORD_KEY));
        ckpt_buf_put_u32le(b, GGUF_STRING);
        s->record_len = strlen(s->record);
        s->record_at = b->len + 8;
        put_string(b, s->record, s->record_len);
    }
    if (from)
        rc = gguf_requantize_keys(b, n, from, err);
    json_array_foreach ((json_t *)pairs, i, pair)
        rc = rc ? rc : put_pair(b, pair, err);
    *n += json_array_size(pairs) + (s->record != NULL);
    return rc;
}

/* The header's bytes; place[] gets offsets relative to the data. */
static int put_header(struct ckpt_buf *b, struct sink *s, const json_t *info, uint64_t *total,
                      struct ckpt_err *err)
{
    uint64_t at = 0, n;
    int rc;

    ckpt_buf_put_str(b, "GGUF");
    ckpt_buf_put_u32le(b, 3);
    ckpt_buf_put_u64le(b, s->list->n);
    ckpt_buf_put_u64le(b, 0);           /* their number, when it is known */
    if ((rc = put_keys(b, s, info, &n, err)) != 0)
        return rc;
    for (int k = 0; k < 8 && ckpt_buf_ok(b); k++)
        b->data[16 + k] = (unsigned char)(n >> 8 * k);
    for (size_t i = 0; i < s->list->n; i++) {
        const struct ckpt_tensor *t = &s->list->item[i];
        uint64_t end;

        if ((rc = put_row(b, t, at, err)) != 0)
            return rc;
        s->place[i] = (struct place){at, is_packed(t)};
        if (!ckpt_add(&end, at, bytes_of(t)) || !ckpt_add(&end, end, GGUF_ALIGNMENT - 1))
            return ckpt_fail(err, CKPT_ELIMIT, "tensor %s: the bytes of all tensors overflow",
                             t->name);
        at = end / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
    }
    pad(b);
    *total = at;
    if (ckpt_buf_ok(b))
        return 0;
    return b->len < b->limit / 2 ? ckpt_nomem(err, b->len)      /* memory grows by doubling */
                                 : ckpt_fail(err, CKPT_ELIMIT, "the header passes %zu bytes",
                                             b->limit);
}

/* -- the sink -------------------------------------------------------------------------------- */

/* Fill a part of a block; the last part writes the block. */
static int put_edge(struct sink *s, size_t i, int64_t at, int64_t n, const float *src,
                    struct ckpt_err *err)
{
    unsigned char block[GGUF_Q8_0_BYTES];
    int64_t k = at / GGUF_Q8_0_N;
    struct edge *e;
    bool full = false;
    size_t at_edge = 0;

    pthread_mutex_lock(&s->lock);
    while (at_edge < s->n_edge && (s->edge[at_edge].tensor != i || s->edge[at_edge].block != k))
        at_edge++;
    if (ckpt_reserve(&s->edge, at_edge, &s->cap, sizeof *s->edge, err)) {
        pthread_mutex_unlock(&s->lock);
        return CKPT_ENOMEM;
    }
    e = &s->edge[at_edge];
    if (at_edge == s->n_edge) {
        *e = (struct edge){.tensor = i, .block = k};
        s->n_edge++;
    }
    for (int64_t j = 0; j < n; j++) {
        e->value[at % GGUF_Q8_0_N + j] = src[j];
        e->have |= UINT32_C(1) << (at % GGUF_Q8_0_N + j);
    }
    if (e->have == UINT32_MAX) {
        full = true;
        gguf_q8_0_pack(block, e->value);
        *e = s->edge[--s->n_edge];
    }
    pthread_mutex_unlock(&s->lock);
    return full ? ckpt_out_write_at(s->out, block, sizeof block,
                                    s->place[i].offset + (uint64_t)k * GGUF_Q8_0_BYTES, err)
                : 0;
}

static int write_packed(struct sink *s, size_t i, int64_t start, int64_t count, const float *src,
                        struct ckpt_err *err)
{
    unsigned char stage[STAGE * GGUF_Q8_0_BYTES];
    int64_t at = start, end = start + count;
    int rc = 0;

    while (rc == 0 && at < end) {
        int64_t from = at % GGUF_Q8_0_N, blocks = from ? 0 : (end - at) / GGUF_Q8_0_N, n;

        if (blocks == 0) {
            n = end - at < GGUF_Q8_0_N - from ? end - at : GGUF_Q8_0_N - from;
            rc = put_edge(s, i, at, n, src, err);
        } else {
            blocks = blocks < STAGE ? blocks : STAGE;
            n = blocks * GGUF_Q8_0_N;
            for (int64_t b = 0; b < blocks; b++)
                gguf_q8_0_pack(stage + b * GGUF_Q8_0_BYTES, src + b * GGUF_Q8_0_N);
            rc = ckpt_out_write_at(s->out, stage, (size_t)blocks * GGUF_Q8_0_BYTES,
                                   s->place[i].offset +
                                       (uint64_t)(at / GGUF_Q8_0_N) * GGUF_Q8_0_BYTES, err);
        }
        at += n;
        src += n;
    }
    return rc;
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;
    size_t width = ckpt_dtype_size(s->list->item[i].dtype);

    if (s->place[i].packed)
        return write_packed(s, i, start, count, src, err);
    return ckpt_out_write_at(s->out, src, (size_t)count * width,
                             s->place[i].offset + (uint64_t)start * width, err);
}

static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    struct sink *s = self;

    (void)count;
    if (s->place[i].packed)
        return false;
    out->out = s->out;
    out->offset = s->place[i].offset + (uint64_t)start * ckpt_dtype_size(s->list->item[i].dtype);
    return true;
}

static void sink_free(struct sink *s)
{
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->place);
    ckpt_free(s->edge);
    ckpt_free(s);
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = 0;

    if (s->record && strlen(s->record) != s->record_len)
        rc = ckpt_fail(err, CKPT_ESTATE, "the record's length changed while it was written");
    else if (s->record)
        rc = ckpt_out_write_at(s->out, s->record, s->record_len, s->record_at, err);
    if (rc)
        ckpt_out_abort(s->out);
    else
        rc = ckpt_out_commit(s->out, err);
    sink_free(s);
    return rc;
}

static void sink_abort(void *self)
{
    struct sink *s = self;

    ckpt_out_abort(s->out);
    sink_free(s);
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "gguf", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

int gguf_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = ckpt_alloc(1, sizeof *s);
    uint64_t total = 0;
    bool dry = opts->flags & CKPT_DRY_RUN;
    struct ckpt_buf head;
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    ckpt_buf_init(&head, HEADER_MAX);
    s->list = tensors;
    s->record = opts->record;
    s->place = ckpt_alloc(tensors->n, sizeof *s->place);
    rc = s->place ? 0 : ckpt_nomem(err, tensors->n * sizeof *s->place);
    if (rc == 0 && opts->stream_fd > 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "GGUF is not written to a stream");
    if (rc == 0)
        rc = put_header(&head, s, opts->info, &total, err);
    if (rc == 0)
        rc = dry ? ckpt_out_ready(path, opts->flags, err)
                 : ckpt_out_create(&s->out, path, opts->flags, err);
    if (rc == 0 && !dry)
        rc = ckpt_out_reserve(s->out, head.len + total, err);
    if (rc == 0 && !dry)
        rc = ckpt_out_write(s->out, head.data, head.len, err);
    for (size_t i = 0; rc == 0 && i < tensors->n; i++)
        s->place[i].offset += head.len;
    ckpt_buf_release(&head);
    if (rc || dry) {
        sink_abort(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
}
