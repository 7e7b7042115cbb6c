/*
 * wandb_out - see wandb_out.h.  Numbers of fields are those of wandb_internal.proto.
 */
#include "formats/logs/wandb_out_own.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "formats/container/protobuf_out.h"
#include "formats/logs/wandb_files.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"

#define BLOCK       32768
#define CHUNK       7                   /* bytes before a chunk's data */
#define EVEN        64                  /* buckets of a histogram, as wandb.Histogram has */

enum { WHOLE = 1, FIRST, MIDDLE, LAST };
enum { NUM = 1, HISTORY, SUMMARY, FILES = 6, STATS = 7, METRIC = 12, OUTPUT = 13, RUN = 17,
       EXIT = 18, HEADER = 21, ENVIRONMENT = 26, INFO = 200 };
enum { ITEM_KEY = 1, ITEM_NESTED, ITEM_JSON = 16 };

/* -- records ---------------------------------------------------------------------------------- */

static double seconds_of(const struct timespec *t)
{
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

static struct timespec time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t;
}

static void put_time(struct ckpt_buf *b, uint32_t number, const struct timespec *t)
{
    size_t at = protobuf_out_begin(b, number);

    protobuf_out_varint(b, 1, (uint64_t)t->tv_sec);
    protobuf_out_varint(b, 2, (uint64_t)t->tv_nsec);
    protobuf_out_end(b, at);
}

/* Cut a record into chunks that end with their blocks, from where the file ends. */
static void cut(struct ckpt_buf *out, const struct ckpt_buf *record, uint64_t at)
{
    static const unsigned char zeros[CHUNK];
    bool first = true;
    size_t done = 0;

    do {
        size_t left = BLOCK - (size_t)((at + out->len) % BLOCK), n = record->len - done;
        unsigned char head = 0;
        uint32_t crc;

        if (left < CHUNK) {
            ckpt_buf_put(out, zeros, left);
            left = BLOCK;
        }
        n = n < left - CHUNK ? n : left - CHUNK;
        /* Seven bytes at a block's end are a first chunk without data. */
        head = first ? (n == record->len ? WHOLE : FIRST)
                     : (done + n == record->len ? LAST : MIDDLE);
        crc = (uint32_t)crc32(crc32(0, &head, 1), record->data + done, (unsigned)n);
        ckpt_buf_put_u32le(out, crc);
        ckpt_buf_put_u16le(out, (uint16_t)n);
        ckpt_buf_put_u8(out, head);
        if (n > 0)
            ckpt_buf_put(out, record->data + done, n);
        done += n;
        first = false;
    } while (done < record->len && ckpt_buf_ok(out));
}

struct ckpt_buf *wandb_out_begin(struct wandb_out *o)
{
    ckpt_buf_release(&o->record);
    ckpt_buf_init(&o->record, MAX_RECORD);
    protobuf_out_varint(&o->record, NUM, o->num + 1);
    return &o->record;
}

int wandb_out_record(struct wandb_out *o, struct ckpt_err *err)
{
    size_t info = protobuf_out_begin(&o->record, INFO);
    int rc;

    protobuf_out_text(&o->record, 1, o->id);
    protobuf_out_end(&o->record, info);
    if (!ckpt_buf_ok(&o->record))
        return ckpt_fail(err, CKPT_ELIMIT, "%s: a record of more than %zu bytes", o->file.path,
                         MAX_RECORD);
    ckpt_buf_release(&o->chunks);
    ckpt_buf_init(&o->chunks, 2 * MAX_RECORD);
    cut(&o->chunks, &o->record, o->file.size);
    rc = ckpt_buf_ok(&o->chunks) ? log_file_put(&o->file, o->chunks.data, o->chunks.len, err)
                                 : ckpt_nomem(err, o->record.len);
    o->num += rc == 0;
    return rc;
}

/* -- values ----------------------------------------------------------------------------------- */

/* JSON as Python writes it, where a number need not be finite. */
static void number_text(char text[40], double v)
{
    if (isnan(v))
        snprintf(text, 40, "NaN");
    else if (isinf(v))
        snprintf(text, 40, "%sInfinity", v < 0 ? "-" : "");
    else if (v == floor(v) && fabs(v) < 1e15)
        snprintf(text, 40, "%.0f", v);
    else
        snprintf(text, 40, "%.17g", v);
}

/* An item of field `number`, its key in field `key`. */
static void put_item(struct ckpt_buf *b, uint32_t number, uint32_t key, const char *tag,
                     const char *json)
{
    size_t at = protobuf_out_begin(b, number);

    protobuf_out_text(b, key, tag);
    protobuf_out_text(b, ITEM_JSON, json);
    protobuf_out_end(b, at);
}

static void put_number(struct ckpt_buf *b, uint32_t number, uint32_t key, const char *tag, double v)
{
    char text[40];

    number_text(text, v);
    put_item(b, number, key, tag, text);
}

static double runtime(const struct wandb_out *o, const struct timespec *now)
{
    return seconds_of(now) - seconds_of(&o->start);
}

int wandb_out_summary(struct wandb_out *o, const struct log_number *v, size_t n,
                      struct ckpt_err *err)
{
    struct timespec now = time_now();
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, SUMMARY);

    for (size_t i = 0; i < n; i++) {
        put_number(b, 1, ITEM_NESTED, v[i].tag, v[i].value);
        if (json_object_set_new(o->summary, v[i].tag, isfinite(v[i].value)
                                    ? json_real(v[i].value) : json_string("NaN")))
            return ckpt_nomem(err, 64);
    }
    put_number(b, 1, ITEM_NESTED, "_runtime", runtime(o, &now));
    put_number(b, 1, ITEM_NESTED, "_timestamp", seconds_of(&now));
    put_number(b, 1, ITEM_NESTED, "_step", (double)o->step);
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

int wandb_out_history(struct wandb_out *o, const struct log_number *v, size_t n,
                      struct ckpt_err *err)
{
    struct timespec now = time_now();
    struct ckpt_buf *b;
    size_t at, step;
    int rc;

    if ((rc = wandb_out_summary(o, v, n, err)) != 0)
        return rc;
    b = wandb_out_begin(o);
    at = protobuf_out_begin(b, HISTORY);
    for (size_t i = 0; i < n; i++)
        put_number(b, 1, ITEM_NESTED, v[i].tag, v[i].value);
    if (o->next.len > 0)
        ckpt_buf_put(b, o->next.data, o->next.len);
    put_number(b, 1, ITEM_NESTED, "_timestamp", seconds_of(&now));
    put_number(b, 1, ITEM_NESTED, "_runtime", runtime(o, &now));
    put_number(b, 1, ITEM_NESTED, "_step", (double)o->step);
    step = protobuf_out_begin(b, 2);
    protobuf_out_varint(b, 1, (uint64_t)o->step);
    protobuf_out_end(b, step);
    protobuf_out_end(b, at);
    rc = wandb_out_record(o, err);
    o->step += rc == 0;
    ckpt_buf_release(&o->next);
    ckpt_buf_init(&o->next, MAX_RECORD / 2);
    return rc;
}

int wandb_out_histogram(struct wandb_out *o, const char *tag, const struct histogram *h,
                        struct ckpt_err *err)
{
    double edge[EVEN + 1];
    uint64_t count[EVEN];
    struct ckpt_buf b;
    int rc = 0;

    if (h->n == 0)
        return 0;
    histogram_even(h, edge, count, EVEN);
    ckpt_buf_init(&b, (size_t)1 << 16);
    ckpt_buf_put_str(&b, "{\"_type\":\"histogram\",\"values\":[");
    for (size_t i = 0; i < EVEN; i++)
        ckpt_buf_printf(&b, "%s%llu", i ? "," : "", (unsigned long long)count[i]);
    ckpt_buf_put_str(&b, "],\"bins\":[");
    for (size_t i = 0; i <= EVEN; i++)
        ckpt_buf_printf(&b, "%s%.9g", i ? "," : "", edge[i]);
    ckpt_buf_put_str(&b, "]}");
    if (!ckpt_buf_str(&b))
        rc = ckpt_nomem(err, b.len);
    else
        put_item(&o->next, 1, ITEM_NESTED, tag, (const char *)b.data);
    ckpt_buf_release(&b);
    return rc == 0 && !ckpt_buf_ok(&o->next)
               ? ckpt_fail(err, CKPT_ELIMIT, "%s: more histograms than a row holds", o->file.path)
               : rc;
}

int wandb_out_stats(struct wandb_out *o, const struct log_number *v, size_t n,
                    struct ckpt_err *err)
{
    struct timespec now = time_now();
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, STATS);

    put_time(b, 2, &now);
    for (size_t i = 0; i < n; i++)
        put_number(b, 3, ITEM_KEY, v[i].tag, v[i].value);
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

int wandb_out_line(struct wandb_out *o, const char *line, struct ckpt_err *err)
{
    struct timespec now = time_now();
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, OUTPUT), n = strlen(line);

    protobuf_out_varint(b, 1, 1);                       /* STDOUT: W&B shows the other as errors */
    put_time(b, 2, &now);
    if (n > 0 && ckpt_utf8_valid(line, n)) {
        char text[2100];

        snprintf(text, sizeof text, "%s\n", line);
        protobuf_out_text(b, 3, text);
    }
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

/* -- the beginning ---------------------------------------------------------------------------- */

static int put_header(struct wandb_out *o, struct ckpt_err *err)
{
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, HEADER), version = protobuf_out_begin(b, 1);

    protobuf_out_text(b, 1, "ckpt-" CKPT_VERSION);
    protobuf_out_text(b, 2, "0.70.0");
    protobuf_out_end(b, version);
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

/* key = value of an object as items of field 1. */
static int put_config(struct ckpt_buf *b, const json_t *config, struct ckpt_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)(uintptr_t)config, key, v) {
        struct ckpt_buf text;
        int rc;

        ckpt_buf_init(&text, MAX_RECORD);
        rc = ckpt_json_write(&text, v, 0, false, err);
        if (rc == 0 && !ckpt_buf_str(&text))
            rc = ckpt_nomem(err, text.len);
        if (rc == 0)
            put_item(b, 1, ITEM_KEY, key, (const char *)text.data);
        ckpt_buf_release(&text);
        if (rc)
            return rc;
    }
    return 0;
}

static void put_tags(struct ckpt_buf *b, const char *tags)
{
    while (tags && *tags) {
        size_t n = strcspn(tags, ",");

        if (n > 0)
            protobuf_out_bytes(b, 10, tags, n);
        tags += n + (tags[n] == ',');
    }
}

static int put_run(struct wandb_out *o, const struct wandb_out_run *run, const char *host,
                   struct ckpt_err *err)
{
    const struct { uint32_t number; const char *text; } texts[] = {
        {1, run->id}, {2, run->entity}, {3, run->project}, {6, run->group}, {7, run->job_type},
        {8, run->name}, {9, run->notes}, {13, host},
    };
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, RUN), part;
    int rc;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].text && ckpt_utf8_valid(texts[i].text, strlen(texts[i].text)))
            protobuf_out_text(b, texts[i].number, texts[i].text);
    put_tags(b, run->tags);
    part = protobuf_out_begin(b, 4);
    if ((rc = put_config(b, run->config, err)) != 0)
        return rc;
    protobuf_out_end(b, part);
    put_time(b, 17, &o->start);
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

/* All numbers are drawn by the step metric. */
static int put_metrics(struct wandb_out *o, const char *step, struct ckpt_err *err)
{
    for (int i = 0; i < 2; i++) {
        struct ckpt_buf *b = wandb_out_begin(o);
        size_t at = protobuf_out_begin(b, METRIC), options;
        int rc;

        protobuf_out_text(b, i ? 2 : 1, i ? "*" : step);        /* glob_name, name */
        if (i)
            protobuf_out_text(b, 4, step);                      /* step_metric */
        options = protobuf_out_begin(b, 6);
        if (i)
            protobuf_out_varint(b, 1, 1);                       /* step_sync */
        protobuf_out_varint(b, 3, 1);                           /* defined */
        protobuf_out_end(b, options);
        protobuf_out_end(b, at);
        if ((rc = wandb_out_record(o, err)) != 0)
            return rc;
    }
    return 0;
}

static int put_environment(struct wandb_out *o, const struct wandb_out_run *run,
                           const struct utsname *host, struct ckpt_err *err)
{
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, ENVIRONMENT), part;
    char os[300];

    snprintf(os, sizeof os, "%s-%s-%s", host->sysname, host->release, host->machine);
    protobuf_out_text(b, 1, os);
    put_time(b, 3, &o->start);
    protobuf_out_text(b, 6, run->program);
    protobuf_out_text(b, 12, host->nodename);
    protobuf_out_varint(b, 16, run->n_cpu);
    protobuf_out_varint(b, 17, run->n_cpu);
    if (run->gpu) {
        protobuf_out_text(b, 18, run->gpu);
        protobuf_out_varint(b, 19, run->n_gpu);
    }
    part = protobuf_out_begin(b, 21);
    protobuf_out_varint(b, 1, run->memory);
    protobuf_out_end(b, part);
    protobuf_out_text(b, 199, o->id);
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

/* -- open and close --------------------------------------------------------------------------- */

/* What W&B takes as an id: it becomes part of paths and of addresses. */
static int check_id(const char *what, const char *text, size_t most, const char *bad,
                    struct ckpt_err *err)
{
    size_t n = text ? strlen(text) : 0;

    if (n > 0 && n <= most && ckpt_utf8_valid(text, n) && !text[strcspn(text, bad)])
        return 0;
    return ckpt_fail(err, CKPT_EFORMAT, "%s: \"%s\" is none that W&B takes: 1 to %zu bytes without "
                     "any of %s", what, text ? text : "", most, bad);
}

/* Names are those of this second; the link is a convenience. */
static void link_latest(const struct wandb_out *o, const char *above)
{
    char path[4200];

    snprintf(path, sizeof path, "%s/wandb/latest-run", above);
    if ((unlink(path) == 0 || errno == ENOENT) && symlink(strrchr(o->dir, '/') + 1, path))
        errno = 0;                      /* file systems without links do without */
}

static int make(struct wandb_out *o, const struct wandb_out_run *run, struct ckpt_err *err)
{
    static const unsigned char magic[CHUNK] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    char path[4200], when[32];
    struct utsname host;
    struct tm local;
    int rc;

    if ((rc = check_id("WANDB_RUN_ID", run->id, 64, "/\\#?%:", err)) != 0 ||
        (rc = check_id("WANDB_PROJECT", run->project, 128, "/\\#?%:", err)) != 0)
        return rc;
    if (!(o->summary = json_object()))
        return ckpt_nomem(err, 64);
    o->start = time_now();
    localtime_r(&o->start.tv_sec, &local);
    strftime(when, sizeof when, "%Y%m%d_%H%M%S", &local);
    snprintf(o->id, sizeof o->id, "%s", run->id);
    snprintf(o->project, sizeof o->project, "%s", run->project);
    snprintf(path, sizeof path, "%s/wandb/offline-run-%s-%s/files", run->dir, when, o->id);
    if (strlen(path) >= sizeof o->dir)
        return ckpt_fail(err, CKPT_ECREATE, "%s: the path is too long", run->dir);
    if ((rc = ckpt_path_make_dirs(path, err)) != 0)
        return rc;
    snprintf(o->dir, sizeof o->dir, "%.*s", (int)(strlen(path) - strlen("/files")), path);
    snprintf(path, sizeof path, "%s/run-%s.wandb", o->dir, o->id);
    if (uname(&host))
        return ckpt_fail_errno(err, CKPT_EIO, errno, "uname");
    if ((rc = log_file_open(&o->file, path, true, err)) != 0 ||
        (rc = log_file_put(&o->file, magic, sizeof magic, err)) != 0 ||
        (rc = put_header(o, err)) != 0 || (rc = put_run(o, run, host.nodename, err)) != 0 ||
        (rc = put_environment(o, run, &host, err)) != 0 ||
        (rc = put_metrics(o, run->step_metric, err)) != 0 ||
        (rc = wandb_files_config(o->dir, run->config, err)) != 0 ||
        (rc = wandb_files_metadata(o->dir, run, &host, o->start.tv_sec, err)) != 0)
        return rc;
    link_latest(o, run->dir);
    return 0;
}

int wandb_out_open(struct wandb_out **out, const struct wandb_out_run *run, struct ckpt_err *err)
{
    struct wandb_out *o = ckpt_alloc(1, sizeof *o);
    int rc;

    *out = NULL;
    if (!o)
        return ckpt_nomem(err, sizeof *o);
    o->file.fd = -1;
    ckpt_buf_init(&o->record, MAX_RECORD);
    ckpt_buf_init(&o->chunks, MAX_RECORD);
    ckpt_buf_init(&o->next, MAX_RECORD / 2);
    if ((rc = make(o, run, err)) != 0)
        wandb_out_close(o);
    else
        *out = o;
    return rc;
}

const char *wandb_out_dir(const struct wandb_out *o) { return o->dir; }
const char *wandb_out_id(const struct wandb_out *o) { return o->id; }

static int put_files(struct wandb_out *o, struct ckpt_err *err)
{
    static const char *const names[] = {"config.yaml", "wandb-metadata.json",
                                        "wandb-summary.json"};
    struct ckpt_buf *b = wandb_out_begin(o);
    size_t at = protobuf_out_begin(b, FILES);

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t one = protobuf_out_begin(b, 1);

        protobuf_out_text(b, 1, names[i]);
        protobuf_out_varint(b, 2, 1);                   /* END */
        protobuf_out_varint(b, 3, 1);                   /* WANDB */
        protobuf_out_end(b, one);
    }
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}

int wandb_out_end(struct wandb_out *o, int status, struct ckpt_err *err)
{
    struct timespec now = time_now();
    double seconds = runtime(o, &now);
    struct ckpt_buf *b;
    size_t at;
    int rc;

    json_object_set_new(o->summary, "_runtime", json_real(seconds));
    json_object_set_new(o->summary, "_timestamp", json_real(seconds_of(&now)));
    json_object_set_new(o->summary, "_step", json_integer(o->step > 0 ? o->step - 1 : 0));
    if ((rc = wandb_files_summary(o->dir, o->summary, err)) == 0 &&
        (rc = put_files(o, err)) == 0) {
        b = wandb_out_begin(o);
        at = protobuf_out_begin(b, EXIT);
        protobuf_out_varint(b, 1, (uint64_t)status);
        protobuf_out_varint(b, 2, (uint64_t)seconds);
        protobuf_out_end(b, at);
        rc = wandb_out_record(o, err);
    }
    wandb_out_close(o);
    return rc;
}

void wandb_out_close(struct wandb_out *o)
{
    if (!o)
        return;
    log_file_close(&o->file);
    ckpt_buf_release(&o->record);
    ckpt_buf_release(&o->chunks);
    ckpt_buf_release(&o->next);
    json_decref(o->summary);
    ckpt_free(o);
}
