/*
 * tfevents_out - see tfevents_out.h.  Numbers of fields are those of event.proto, summary.proto
 * and tensor.proto of tensorboard 2.21.
 */
#include "formats/logs/tfevents_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "formats/container/protobuf_out.h"
#include "formats/logs/crc32c.h"
#include "libckpt/ckpt.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"

enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7,
       EVENT_SOURCE = 10 };
enum { VALUE_TAG = 1, VALUE_SIMPLE, VALUE_HISTOGRAM = 5, VALUE_TENSOR = 8, VALUE_METADATA };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_STRING = 8 };
enum { HISTO_MIN = 1, HISTO_MAX, HISTO_NUM, HISTO_SUM, HISTO_SQUARES, HISTO_LIMIT, HISTO_BUCKET };

#define DT_STRING 7
#define FRAME     12            /* bytes before a payload; four follow it */
#define MAX_EVENT ((size_t)64 << 20)

struct tfevents_out {
    struct log_file file;
    struct ckpt_buf event;      /* the frame and the event that is being made */
};

static double time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void begin(struct tfevents_out *o, int64_t step)
{
    static const unsigned char frame[FRAME];

    ckpt_buf_release(&o->event);
    ckpt_buf_init(&o->event, MAX_EVENT);
    ckpt_buf_put(&o->event, frame, FRAME);
    protobuf_out_double(&o->event, EVENT_TIME, time_now());
    if (step != 0)
        protobuf_out_varint(&o->event, EVENT_STEP, (uint64_t)step);
}

static void put_le(unsigned char *dst, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        dst[i] = (unsigned char)(v >> (8 * i));
}

/* Fill the frame, append its end, and write all. */
static int end(struct tfevents_out *o, struct ckpt_err *err)
{
    struct ckpt_buf *b = &o->event;
    uint64_t len = b->len - FRAME;

    if (!ckpt_buf_ok(b))
        return ckpt_fail(err, CKPT_ELIMIT, "%s: an event of more than %zu bytes", o->file.path,
                         MAX_EVENT);
    put_le(b->data, len, 8);
    put_le(b->data + 8, crc32c_masked(b->data, 8), 4);
    ckpt_buf_put_u32le(b, crc32c_masked(b->data + FRAME, (size_t)len));
    return ckpt_buf_ok(b) ? log_file_put(&o->file, b->data, b->len, err)
                          : ckpt_nomem(err, b->len);
}

/* A name in a file name: what is none there becomes "_". */
static void host_name(char name[256])
{
    if (gethostname(name, 255) || !*name)
        snprintf(name, 256, "localhost");
    name[255] = '\0';
    for (char *p = name; *p; p++)
        if (*p == '/')
            *p = '_';
}

int tfevents_out_open(struct tfevents_out **out, const char *dir, struct ckpt_err *err)
{
    struct tfevents_out *o = ckpt_alloc(1, sizeof *o);
    char path[4200], host[256];
    size_t at;
    int rc;

    *out = NULL;
    if (!o)
        return ckpt_nomem(err, sizeof *o);
    o->file.fd = -1;
    ckpt_buf_init(&o->event, MAX_EVENT);
    host_name(host);
    rc = ckpt_path_make_dirs(dir, err);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.0", dir,
             (long long)time(NULL), host, (long)getpid());
    if (rc == 0)
        rc = log_file_open(&o->file, path, false, err);
    if (rc) {
        tfevents_out_close(o);
        return rc;
    }
    *out = o;
    if (o->file.size > 0)               /* within the same second, by the same process */
        return 0;
    begin(o, 0);
    protobuf_out_text(&o->event, EVENT_VERSION, "brain.Event:2");
    at = protobuf_out_begin(&o->event, EVENT_SOURCE);
    protobuf_out_text(&o->event, 1, "ckpt " CKPT_VERSION);
    protobuf_out_end(&o->event, at);
    if ((rc = end(o, err)) != 0) {
        *out = NULL;
        tfevents_out_close(o);
    }
    return rc;
}

int tfevents_out_start(struct tfevents_out *o, int64_t step, struct ckpt_err *err)
{
    size_t at;

    begin(o, step);
    at = protobuf_out_begin(&o->event, EVENT_SESSION);
    protobuf_out_varint(&o->event, 1, 1);                   /* status: START */
    protobuf_out_end(&o->event, at);
    return end(o, err);
}

int tfevents_out_scalars(struct tfevents_out *o, int64_t step, const struct log_number *v,
                         size_t n, struct ckpt_err *err)
{
    size_t summary;

    begin(o, step);
    summary = protobuf_out_begin(&o->event, EVENT_SUMMARY);
    for (size_t i = 0; i < n; i++) {
        size_t value = protobuf_out_begin(&o->event, 1);

        protobuf_out_text(&o->event, VALUE_TAG, v[i].tag);
        protobuf_out_float(&o->event, VALUE_SIMPLE, (float)v[i].value);
        protobuf_out_end(&o->event, value);
    }
    protobuf_out_end(&o->event, summary);
    return end(o, err);
}

/* metadata { plugin_data { plugin_name: "text" } }, tensor of one string. */
int tfevents_out_text(struct tfevents_out *o, int64_t step, const char *tag, const char *text,
                      struct ckpt_err *err)
{
    struct ckpt_buf *b = &o->event;
    size_t summary, value, part, inner;

    begin(o, step);
    summary = protobuf_out_begin(b, EVENT_SUMMARY);
    value = protobuf_out_begin(b, 1);
    protobuf_out_text(b, VALUE_TAG, tag);
    part = protobuf_out_begin(b, VALUE_METADATA);
    inner = protobuf_out_begin(b, 1);
    protobuf_out_text(b, 1, "text");
    protobuf_out_end(b, inner);
    protobuf_out_end(b, part);
    part = protobuf_out_begin(b, VALUE_TENSOR);
    protobuf_out_varint(b, TENSOR_DTYPE, DT_STRING);
    inner = protobuf_out_begin(b, TENSOR_SHAPE);
    protobuf_out_bytes(b, 2, "\x08\x01", 2);                /* dim { size: 1 } */
    protobuf_out_end(b, inner);
    protobuf_out_bytes(b, TENSOR_STRING, text, strlen(text));
    protobuf_out_end(b, part);
    protobuf_out_end(b, value);
    protobuf_out_end(b, summary);
    return end(o, err);
}

int tfevents_out_histogram(struct tfevents_out *o, int64_t step, const char *tag,
                           const struct histogram *h, struct ckpt_err *err)
{
    double limit[HISTOGRAM_BUCKETS], count[HISTOGRAM_BUCKETS];
    size_t n = histogram_buckets(h, limit, count), summary, value, histo;
    struct ckpt_buf *b = &o->event;

    begin(o, step);
    summary = protobuf_out_begin(b, EVENT_SUMMARY);
    value = protobuf_out_begin(b, 1);
    protobuf_out_text(b, VALUE_TAG, tag);
    histo = protobuf_out_begin(b, VALUE_HISTOGRAM);
    protobuf_out_double(b, HISTO_MIN, h->min);
    protobuf_out_double(b, HISTO_MAX, h->max);
    protobuf_out_double(b, HISTO_NUM, (double)h->n);
    protobuf_out_double(b, HISTO_SUM, h->sum);
    protobuf_out_double(b, HISTO_SQUARES, h->sum_squares);
    protobuf_out_doubles(b, HISTO_LIMIT, limit, n);
    protobuf_out_doubles(b, HISTO_BUCKET, count, n);
    protobuf_out_end(b, histo);
    protobuf_out_end(b, value);
    protobuf_out_end(b, summary);
    return end(o, err);
}

void tfevents_out_close(struct tfevents_out *o)
{
    if (!o)
        return;
    log_file_close(&o->file);
    ckpt_buf_release(&o->event);
    ckpt_free(o);
}
