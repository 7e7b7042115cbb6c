/* tfevents - see tfevents.h. */
#include "formats/logs/tfevents.h"

#include <string.h>

#include "formats/container/protobuf.h"
#include "formats/logs/crc32c.h"
#include "libckpt/base/half.h"

#define FRAME      12           /* bytes before a payload; four follow it */
#define MAX_STARTS 1000         /* each start passes over all numbers */

static const char version_text[] = "brain.Event:";

/* TensorProto's dtypes, and the field that holds values of each. */
enum { DT_FLOAT = 1, DT_DOUBLE, DT_INT32, DT_UINT8, DT_INT16, DT_INT8, DT_STRING,
       DT_INT64 = 9, DT_BOOL, DT_BFLOAT16 = 14, DT_HALF = 19, DT_UINT32 = 22, DT_UINT64 };

struct reader {
    struct run_log *log;
    uint64_t        starts;
};

/* Fields of an Event besides its summary. */
struct event {
    double            time;
    int64_t           step;
    struct protobuf_field version, summary, source, session;
};

struct value {
    struct protobuf_field tag, simple, image, histogram, audio, tensor, metadata;
};

static uint32_t le32(const unsigned char *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint64_t le64(const unsigned char *b) { return le32(b) | (uint64_t)le32(b + 4) << 32; }

bool tfevents_is(const unsigned char *head, size_t len)
{
    size_t n = sizeof version_text - 1;

    if (len < FRAME + n || le32(head + 8) != crc32c_masked(head, 8) || le64(head) > 4096)
        return false;
    for (size_t i = FRAME; i + n <= len && i < FRAME + 64; i++)
        if (memcmp(head + i, version_text, n) == 0)
            return true;
    return false;
}

static bool parse_event(struct event *e, struct ckpt_cursor c)
{
    struct protobuf_field f;

    *e = (struct event){0};
    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_64))
            e->time = protobuf_double(f.bits);
        else if (protobuf_is(&f, 2, PROTOBUF_VARINT))
            e->step = (int64_t)f.bits;
        else if (protobuf_is(&f, 3, PROTOBUF_BYTES))
            e->version = f;
        else if (protobuf_is(&f, 5, PROTOBUF_BYTES))
            e->summary = f;
        else if (protobuf_is(&f, 7, PROTOBUF_BYTES))
            e->session = f;
        else if (protobuf_is(&f, 10, PROTOBUF_BYTES))
            e->source = f;
    }
    return !c.failed;
}

static bool parse_value(struct value *v, struct ckpt_cursor c)
{
    struct protobuf_field f;

    *v = (struct value){0};
    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 2, PROTOBUF_32))
            v->simple = f;
        if (f.type != PROTOBUF_BYTES)
            continue;
        switch (f.number) {
        case 1: v->tag = f; break;
        case 4: v->image = f; break;
        case 5: v->histogram = f; break;
        case 6: v->audio = f; break;
        case 8: v->tensor = f; break;
        case 9: v->metadata = f; break;
        }
    }
    return !c.failed;
}

/* metadata { plugin_data { plugin_name } }: the bytes of the name, or none. */
static struct protobuf_field plugin_of(const struct protobuf_field *metadata)
{
    struct ckpt_cursor c = protobuf_inside(metadata);
    struct protobuf_field f, name = {0};

    while (protobuf_next(&c, &f)) {
        struct ckpt_cursor inner = protobuf_inside(&f);

        if (f.number != 1)
            continue;
        while (protobuf_next(&inner, &f))
            if (protobuf_is(&f, 1, PROTOBUF_BYTES))
                name = f;
    }
    return name;
}

static bool is_text(const struct protobuf_field *f, const char *s)
{
    return f->bytes && f->len == strlen(s) && memcmp(f->bytes, s, f->len) == 0;
}

/* Kinds of values by plugin. */
static const struct { const char *plugin, *kind; } kinds[] = {
    {"scalars", "scalar"},       {"text", "text"},           {"images", "image"},
    {"histograms", "histogram"}, {"audio", "audio"},         {"hparams", "hparams"},
    {"pr_curves", "pr_curve"},   {"mesh", "mesh"},           {"graphs", "graph"},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* The kind of a tensor value: by its plugin, or by earlier values of its tag. */
static const char *kind_of(const struct run_log *log, const struct value *v)
{
    struct protobuf_field plugin = plugin_of(&v->metadata);

    for (size_t i = 0; i < N_KINDS; i++)
        if (plugin.bytes ? is_text(&plugin, kinds[i].plugin)
                         : run_log_find(log, v->tag.bytes, v->tag.len, kinds[i].kind) != NULL)
            return kinds[i].kind;
    return "tensor";
}

/* A TensorProto: its dtype, whether it has one element, and the first of its values. */
struct tensor {
    uint64_t          dtype;
    bool              one;
    struct protobuf_field content, value;
};

/* tensor_shape { dim { size } }: whether it is one element. */
static bool one_element(const struct protobuf_field *shape)
{
    struct ckpt_cursor c = protobuf_inside(shape);
    struct protobuf_field f;

    while (protobuf_next(&c, &f)) {
        struct ckpt_cursor dim = protobuf_inside(&f);
        uint64_t size = 0;

        if (protobuf_is(&f, 3, PROTOBUF_VARINT) && f.bits)      /* unknown rank */
            return false;
        if (!protobuf_is(&f, 2, PROTOBUF_BYTES))
            continue;
        while (protobuf_next(&dim, &f))
            if (protobuf_is(&f, 1, PROTOBUF_VARINT))
                size = f.bits;
        if (size != 1)
            return false;
    }
    return !c.failed;
}

static bool parse_tensor(struct tensor *t, const struct protobuf_field *from)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;

    *t = (struct tensor){.one = true};
    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_VARINT))
            t->dtype = f.bits;
        else if (protobuf_is(&f, 2, PROTOBUF_BYTES))
            t->one = one_element(&f);
        else if (protobuf_is(&f, 4, PROTOBUF_BYTES))
            t->content = f;
        else if (f.number >= 5 && f.number <= 17 && t->value.number == 0)
            t->value = f;
    }
    return !c.failed;
}

/* The element in tensor_content, little-endian. */
static bool content_value(double *out, const struct tensor *t)
{
    struct ckpt_cursor c = protobuf_inside(&t->content);

    switch (t->dtype) {
    case DT_FLOAT: *out = protobuf_float(ckpt_cursor_u32le(&c)); break;
    case DT_DOUBLE: *out = protobuf_double(ckpt_cursor_u64le(&c)); break;
    case DT_INT32: *out = (int32_t)ckpt_cursor_u32le(&c); break;
    case DT_UINT8: *out = ckpt_cursor_u8(&c); break;
    case DT_INT16: *out = (int16_t)ckpt_cursor_u16le(&c); break;
    case DT_INT8: *out = (int8_t)ckpt_cursor_u8(&c); break;
    case DT_INT64: *out = (double)(int64_t)ckpt_cursor_u64le(&c); break;
    case DT_BOOL: *out = ckpt_cursor_u8(&c) != 0; break;
    case DT_BFLOAT16: *out = ckpt_bf16_to_f32(ckpt_cursor_u16le(&c)); break;
    case DT_HALF: *out = ckpt_f16_to_f32(ckpt_cursor_u16le(&c)); break;
    case DT_UINT32: *out = ckpt_cursor_u32le(&c); break;
    case DT_UINT64: *out = (double)ckpt_cursor_u64le(&c); break;
    default: return false;
    }
    return !c.failed && ckpt_cursor_left(&c) == 0;
}

/* The single element as a number.  A tensor that lists no value is zero. */
static bool tensor_number(double *out, const struct tensor *t)
{
    struct ckpt_cursor c = protobuf_inside(&t->value);
    bool wide = t->dtype == DT_DOUBLE;
    uint64_t bits = t->value.bits;

    if (!t->one || t->dtype == DT_STRING)
        return false;
    if (t->content.len > 0)
        return content_value(out, t);
    if (t->value.type == PROTOBUF_BYTES && t->value.len > 0)     /* packed */
        bits = wide ? ckpt_cursor_u64le(&c)
               : t->dtype == DT_FLOAT ? ckpt_cursor_u32le(&c) : protobuf_varint(&c);
    switch (t->dtype) {
    case DT_FLOAT: *out = protobuf_float(bits); break;
    case DT_DOUBLE: *out = protobuf_double(bits); break;
    case DT_BFLOAT16: *out = ckpt_bf16_to_f32((uint16_t)bits); break;
    case DT_HALF: *out = ckpt_f16_to_f32((uint16_t)bits); break;
    case DT_UINT32: *out = (uint32_t)bits; break;
    case DT_UINT64: *out = (double)bits; break;
    case DT_INT32: case DT_UINT8: case DT_INT16: case DT_INT8: case DT_INT64: case DT_BOOL:
        *out = (double)(int64_t)bits;
        break;
    default: return false;
    }
    return !c.failed;
}

static int tensor_value(struct reader *r, const struct event *e, const struct value *v,
                        struct ckpt_err *err)
{
    struct log_point p = {.step = e->step, .time = e->time};
    const char *kind = kind_of(r->log, v);
    struct tensor t;

    if (!parse_tensor(&t, &v->tensor))
        return ckpt_fail(err, CKPT_EFORMAT, "a tensor that is no protocol buffer");
    if (strcmp(kind, "scalar") == 0 && tensor_number(&p.value, &t))
        return run_log_scalar(r->log, v->tag.bytes, v->tag.len, &p, err);
    if (strcmp(kind, "scalar") == 0)
        kind = "tensor";
    if (strcmp(kind, "text") == 0 && protobuf_is(&t.value, 8, PROTOBUF_BYTES))
        return run_log_other(r->log, v->tag.bytes, v->tag.len, kind, e->step, t.value.bytes,
                             t.value.len, err);
    return run_log_other(r->log, v->tag.bytes, v->tag.len, kind, e->step, NULL, 0, err);
}

static int add_value(struct reader *r, const struct event *e, const struct protobuf_field *from,
                     struct ckpt_err *err)
{
    struct log_point p = {.step = e->step, .time = e->time};
    struct value v;

    if (!parse_value(&v, protobuf_inside(from)))
        return ckpt_fail(err, CKPT_EFORMAT, "a summary value that is no protocol buffer");
    if (!v.tag.bytes)
        v.tag.bytes = (const unsigned char *)"";
    if (v.simple.number) {
        p.value = protobuf_float(v.simple.bits);
        return run_log_scalar(r->log, v.tag.bytes, v.tag.len, &p, err);
    }
    if (v.tensor.number)
        return tensor_value(r, e, &v, err);
    return run_log_other(r->log, v.tag.bytes, v.tag.len,
                         v.histogram.number ? "histogram" : v.image.number ? "image"
                         : v.audio.number ? "audio" : "other", e->step, NULL, 0, err);
}

static int session(struct reader *r, const struct event *e, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(&e->session);
    struct protobuf_field f;
    bool start = false;

    while (protobuf_next(&c, &f))
        if (protobuf_is(&f, 1, PROTOBUF_VARINT))
            start = f.bits == 1;
    if (!start)
        return 0;
    if (r->starts++ == MAX_STARTS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d starts of a session", MAX_STARTS);
    run_log_purge(r->log, e->step);
    return 0;
}

static int add_event(struct reader *r, const unsigned char *payload, size_t len,
                     struct ckpt_err *err)
{
    struct ckpt_cursor c;
    struct protobuf_field f;
    struct event e;
    int rc = 0;

    ckpt_cursor_init(&c, payload, len);
    if (!parse_event(&e, c))
        return ckpt_fail(err, CKPT_EFORMAT, "not an Event");
    if (e.version.bytes && r->log->records == 0)
        rc = run_log_text_fact(r->log, "file_version", e.version.bytes, e.version.len, err);
    c = protobuf_inside(&e.source);
    while (rc == 0 && protobuf_next(&c, &f))
        if (protobuf_is(&f, 1, PROTOBUF_BYTES))
            rc = run_log_text_fact(r->log, "writer", f.bytes, f.len, err);
    if (rc == 0 && e.session.bytes)
        rc = session(r, &e, err);
    c = protobuf_inside(&e.summary);
    while (rc == 0 && protobuf_next(&c, &f))
        if (protobuf_is(&f, 1, PROTOBUF_BYTES))
            rc = add_value(r, &e, &f, err);
    if (rc == 0 && c.failed)
        rc = ckpt_fail(err, CKPT_EFORMAT, "a summary that is no protocol buffer");
    return rc;
}

/* Read the record at *at; *at moves past it, or stays where the file is truncated. */
static int next_record(struct reader *r, struct run_log_window *w, uint64_t *at,
                       struct ckpt_err *err)
{
    uint64_t left = ckpt_file_size(w->file) - *at, len;
    const unsigned char *b;
    bool zeros;
    int rc;

    if (left < FRAME)
        return 0;
    if ((rc = run_log_window_at(&b, w, *at, FRAME, err)) != 0)
        return rc;
    len = le64(b);
    if (le32(b + 8) != crc32c_masked(b, 8)) {
        if ((rc = run_log_window_zeros(w, *at, &zeros, err)) != 0)
            return rc;
        return zeros ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "checksum",
                                        "the checksum of a length does not hold");
    }
    if (len > LOG_MAX_RECORD)
        return ckpt_fail(err, CKPT_ELIMIT, "an event of %llu bytes; the limit is %llu",
                         (unsigned long long)len, (unsigned long long)LOG_MAX_RECORD);
    if (left - FRAME < len + 4)
        return 0;
    if ((rc = run_log_window_at(&b, w, *at + FRAME, (size_t)len + 4, err)) != 0)
        return rc;
    if (le32(b + len) != crc32c_masked(b, (size_t)len)) {
        if ((rc = run_log_window_zeros(w, *at + FRAME, &zeros, err)) != 0)
            return rc;
        return zeros ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "checksum",
                                        "the checksum of an event does not hold");
    }
    *at += FRAME + len + 4;
    return add_event(r, b, (size_t)len, err);
}

int tfevents_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err)
{
    struct run_log_window w = {.file = file};
    struct reader r = {.log = log};
    uint64_t at = 0, before, n = 0;
    int rc;

    log->format = "tensorboard";
    ckpt_file_sequential(file);
    do {
        before = at;
        rc = next_record(&r, &w, &at, err);
        if (rc)
            ckpt_err_in(err, "event %llu, at byte %llu", (unsigned long long)n + 1,
                        (unsigned long long)before);
        if (at != before) {
            n++;
            log->records++;
        }
    } while (rc == 0 && at != before);
    log->torn_bytes += ckpt_file_size(file) - at;
    run_log_window_release(&w);
    return rc;
}
