/*
 * wandb_record - see wandb_record.h.  Numbers of fields are those of wandb_internal.proto.
 *
 * Facts: "config" and "summary" are objects, nested as their keys are; "system" is what the
 * machine was measured to do, as the series "system/KEY", which have no steps and are counted.
 * A string NaN, Infinity or -Infinity is that number.
 */
#include "formats/logs/wandb_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/protobuf.h"
#include "libckpt/base/json.h"

#define MAX_NESTED 32           /* most parts of a nested key */

enum { HISTORY = 2, SUMMARY, CONFIG = 5, STATS = 7, RUN = 17, EXIT = 18, HEADER = 21,
       ENVIRONMENT = 26 };

/* One key and value of a record. */
struct item {
    struct protobuf_field key, nested[MAX_NESTED];
    size_t            n_nested;
    struct protobuf_field json;             /* JSON text; else `typed` */
    struct protobuf_field typed;            /* none, boolean, integer, number, text */
};

int wandb_record_begin(struct run_log *log, struct ckpt_err *err)
{
    int rc = run_log_fact(log, "config", json_object(), err);

    return rc ? rc : run_log_fact(log, "summary", json_object(), err);
}

static int parse_item(struct item *it, const struct protobuf_field *from, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;

    it->key = it->json = it->typed = (struct protobuf_field){0};
    it->n_nested = 0;
    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_BYTES))
            it->key = f;
        else if (protobuf_is(&f, 2, PROTOBUF_BYTES) && it->n_nested == MAX_NESTED)
            return ckpt_fail(err, CKPT_ELIMIT, "a key of more than %d parts", MAX_NESTED);
        else if (protobuf_is(&f, 2, PROTOBUF_BYTES))
            it->nested[it->n_nested++] = f;
        else if (protobuf_is(&f, 16, PROTOBUF_BYTES) || protobuf_is(&f, 8, PROTOBUF_BYTES))
            it->json = f;
        else if (f.number >= 3 && f.number <= 7)
            it->typed = f;
    }
    if (it->n_nested == 0)
        it->nested[it->n_nested++] = it->key;
    for (size_t i = 0; i < it->n_nested; i++) {
        if (!it->nested[i].bytes)
            it->nested[i].bytes = (const unsigned char *)"";
        if (!ckpt_utf8_valid(it->nested[i].bytes, it->nested[i].len))
            return ckpt_fail(err, CKPT_EFORMAT, "a key that is not UTF-8");
    }
    return c.failed ? ckpt_fail(err, CKPT_EFORMAT, "an item that is no protocol buffer") : 0;
}

/* Join the parts of a key.  0 when they do not fit. */
static size_t join(char dst[LOG_MAX_TAG], const char *before, const struct item *it)
{
    size_t n = strlen(before);

    memcpy(dst, before, n);
    for (size_t i = 0; i < it->n_nested; i++) {
        if (it->nested[i].len + 1 > LOG_MAX_TAG - n)
            return 0;
        if (i > 0)
            dst[n++] = '.';
        memcpy(dst + n, it->nested[i].bytes, it->nested[i].len);
        n += it->nested[i].len;
    }
    return n;
}

static bool is_key(const struct item *it, const char *name)
{
    return it->n_nested == 1 && it->nested[0].len == strlen(name) &&
           memcmp(it->nested[0].bytes, name, it->nested[0].len) == 0;
}

/* Parse a JSON text that is one plain number, the common case. */
static bool plain_number(double *out, const struct protobuf_field *json)
{
    char text[40], *end;

    if (json->len == 0 || json->len >= sizeof text || !strchr("-0123456789", json->bytes[0]))
        return false;
    memcpy(text, json->bytes, json->len);
    text[json->len] = '\0';
    if (strspn(text, "+-.0123456789eE") != json->len)
        return false;
    *out = strtod(text, &end);
    return end == text + json->len;
}

/* Parse a JSON value of any type.  A new reference. */
static int parse_json(json_t **out, const struct protobuf_field *text, struct ckpt_err *err)
{
    struct ckpt_buf b;
    json_t *list = NULL;
    int rc;

    *out = NULL;
    if (text->len > CKPT_JSON_MAX_BYTES)
        return ckpt_fail(err, CKPT_ELIMIT, "a JSON value of %zu bytes", text->len);
    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_put_u8(&b, '[');
    ckpt_buf_put(&b, text->bytes, text->len);
    ckpt_buf_put_u8(&b, ']');
    rc = ckpt_buf_ok(&b) ? ckpt_json_parse(&list, (const char *)b.data, b.len, CKPT_JSON_PYTHON,
                                           err)
                         : ckpt_nomem(err, text->len);
    if (rc == 0 && json_array_size(list) != 1)
        rc = ckpt_fail(err, CKPT_EFORMAT, "a JSON text of %zu values", json_array_size(list));
    if (rc == 0)
        *out = json_incref(json_array_get(list, 0));
    json_decref(list);
    ckpt_buf_release(&b);
    return rc;
}

/* JSON cannot express numbers that are not finite: text, as W&B writes them. */
static json_t *json_of_double(double d)
{
    return isfinite(d) ? json_real(d)
                       : json_string(isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
}

static int parse_typed(json_t **out, const struct protobuf_field *f, struct ckpt_err *err)
{
    *out = f->number == 4   ? json_boolean(f->bits != 0)
           : f->number == 5 ? json_integer(protobuf_zigzag(f->bits))
           : f->number == 6 ? json_of_double(protobuf_double(f->bits))
           : f->number == 7 && f->bytes && ckpt_utf8_valid(f->bytes, f->len)
               ? json_stringn_nocheck((const char *)f->bytes, f->len)
               : json_null();
    return *out ? 0 : ckpt_nomem(err, 64);
}

static int item_value(json_t **out, const struct item *it, struct ckpt_err *err)
{
    if (it->json.bytes)
        return parse_json(out, &it->json, err);
    return parse_typed(out, &it->typed, err);
}

static bool value_number(double *out, const json_t *v)
{
    const char *s = json_string_value(v);

    *out = json_is_number(v)                        ? json_number_value(v)
           : s && strcmp(s, "NaN") == 0             ? (double)NAN
           : s && strcmp(s, "Infinity") == 0        ? (double)INFINITY
                                                    : -(double)INFINITY;
    return json_is_number(v) || (s && (strcmp(s, "NaN") == 0 || strcmp(s, "Infinity") == 0 ||
                                       strcmp(s, "-Infinity") == 0));
}

/* The kind of a value that is not a number: W&B's own objects name theirs. */
static const char *kind_of(const json_t *v)
{
    static const char *const known[] = {"histogram", "table-file", "image-file", "audio-file",
                                        "video-file", "plotly-file", "html-file"};
    const char *type = json_string_value(json_object_get(v, "_type"));

    for (size_t i = 0; type && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(type, known[i]) == 0)
            return known[i];
    return json_is_string(v) ? "text" : json_is_boolean(v) ? "boolean" : json_is_array(v) ? "list"
           : json_is_null(v) ? "null" : "object";
}

static int put_value(struct run_log *log, const char *before, const struct item *it,
                     const struct log_point *at, struct ckpt_err *err)
{
    struct log_point p = *at;
    char tag[LOG_MAX_TAG];
    size_t n = join(tag, before, it);
    json_t *v;
    int rc;

    if (n == 0 && it->nested[0].len > 0)
        return ckpt_fail(err, CKPT_ELIMIT, "a key of more than %d bytes", LOG_MAX_TAG);
    if (it->json.bytes && plain_number(&p.value, &it->json))
        return run_log_scalar(log, tag, n, &p, err);
    rc = item_value(&v, it, err);
    if (rc)
        return rc;
    if (value_number(&p.value, v))
        rc = run_log_scalar(log, tag, n, &p, err);
    else
        rc = run_log_other(log, tag, n, kind_of(v), p.step, json_string_value(v),
                           json_string_length(v), err);
    json_decref(v);
    return rc;
}

/* Take the step or time from a history's own items. */
static int history_point(struct log_point *p, struct ckpt_cursor c, struct ckpt_err *err)
{
    struct protobuf_field f;
    struct item it;
    json_t *v;
    int rc;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 2, PROTOBUF_BYTES)) {               /* step { num } */
            struct ckpt_cursor inner = protobuf_inside(&f);

            while (protobuf_next(&inner, &f))
                if (protobuf_is(&f, 1, PROTOBUF_VARINT))
                    p->step = (int64_t)f.bits;
        }
        if (!protobuf_is(&f, 1, PROTOBUF_BYTES))
            continue;
        if ((rc = parse_item(&it, &f, err)) != 0)
            return rc;
        if (!is_key(&it, "_step") && !is_key(&it, "_timestamp"))
            continue;
        if ((rc = item_value(&v, &it, err)) != 0)
            return rc;
        if (is_key(&it, "_timestamp"))
            p->time = json_number_value(v);
        else if (json_is_integer(v))
            p->step = json_integer_value(v);
        json_decref(v);
    }
    return 0;
}

static int history(struct run_log *log, const struct protobuf_field *from, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct log_point p = {0};
    struct protobuf_field f;
    struct item it;
    int rc = history_point(&p, c, err);

    while (rc == 0 && protobuf_next(&c, &f)) {
        if (!protobuf_is(&f, 1, PROTOBUF_BYTES))
            continue;
        rc = parse_item(&it, &f, err);
        if (rc == 0 && !is_key(&it, "_step") && !is_key(&it, "_timestamp") &&
            !is_key(&it, "_runtime"))
            rc = put_value(log, "", &it, &p, err);
    }
    return rc == 0 && c.failed ? ckpt_fail(err, CKPT_EFORMAT, "a history that is cut") : rc;
}

/* Timestamp { seconds, nanos }. */
static double timestamp(const struct protobuf_field *from)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;
    double t = 0;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_VARINT))
            t += (double)(int64_t)f.bits;
        if (protobuf_is(&f, 2, PROTOBUF_VARINT))
            t += (double)(int64_t)f.bits / 1e9;
    }
    return t;
}

/* Number of values of a series, which is the step of its next one. */
static int64_t count_of(const struct run_log *log, const char *tag, size_t n)
{
    const struct log_series *s = run_log_find(log, tag, n, "scalar");

    return s ? (int64_t)s->count : 0;
}

static int stats(struct run_log *log, const struct protobuf_field *from, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct log_point p = {0};
    struct protobuf_field f;
    struct item it;
    int rc;

    while (protobuf_next(&c, &f))
        if (protobuf_is(&f, 2, PROTOBUF_BYTES))
            p.time = timestamp(&f);
    for (c = protobuf_inside(from); protobuf_next(&c, &f);) {
        char tag[LOG_MAX_TAG];

        if (!protobuf_is(&f, 3, PROTOBUF_BYTES))
            continue;
        if ((rc = parse_item(&it, &f, err)) != 0)
            return rc;
        /* StatsItem: key and value_json alone. */
        it.n_nested = 1;
        it.nested[0] = it.key;
        if (!it.key.bytes || !it.json.bytes)
            continue;
        p.step = count_of(log, tag, join(tag, "system/", &it));
        if ((rc = put_value(log, "system/", &it, &p, err)) != 0)
            return rc;
    }
    return 0;
}

/* root[part][part]... = value, which is taken.  Values in the way are replaced. */
static int set_nested(json_t *root, const struct item *it, json_t *value, struct ckpt_err *err)
{
    bool bad = false;

    for (size_t i = 0; i + 1 < it->n_nested && !bad; i++) {
        const char *key = (const char *)it->nested[i].bytes;
        json_t *next = json_object_getn(root, key, it->nested[i].len);

        if (!json_is_object(next)) {
            next = json_object();
            bad = json_object_setn_new_nocheck(root, key, it->nested[i].len, next) != 0;
        }
        root = next;
    }
    if (bad)
        json_decref(value);
    else
        bad = json_object_setn_new_nocheck(root,
                                           (const char *)it->nested[it->n_nested - 1].bytes,
                                           it->nested[it->n_nested - 1].len, value) != 0;
    return bad ? ckpt_nomem(err, 64) : 0;
}

/* A ConfigRecord or SummaryRecord: repeated update = 1, remove = 2. */
static int updates(json_t *root, const struct protobuf_field *from, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;
    struct item it;
    json_t *v;
    int rc;

    while (protobuf_next(&c, &f)) {
        if (!protobuf_is(&f, 1, PROTOBUF_BYTES) && !protobuf_is(&f, 2, PROTOBUF_BYTES))
            continue;
        if ((rc = parse_item(&it, &f, err)) != 0)
            return rc;
        if (f.number == 2) {
            if (it.n_nested == 1)
                json_object_deln(root, (const char *)it.nested[0].bytes, it.nested[0].len);
            continue;
        }
        if ((rc = item_value(&v, &it, err)) != 0 || (rc = set_nested(root, &it, v, err)) != 0)
            return rc;
    }
    return c.failed ? ckpt_fail(err, CKPT_EFORMAT, "an update that is cut") : 0;
}

/* A field of a record that is a fact of its own. */
struct fact {
    uint32_t    number;
    const char *key;
};

static int texts(struct run_log *log, const struct protobuf_field *from,
                 const struct fact *fact, size_t n, struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;
    int rc;

    while (protobuf_next(&c, &f))
        for (size_t i = 0; i < n; i++)
            if (protobuf_is(&f, fact[i].number, PROTOBUF_BYTES) && f.len > 0 &&
                (rc = run_log_text_fact(log, fact[i].key, f.bytes, f.len, err)) != 0)
                return rc;
    return c.failed ? ckpt_fail(err, CKPT_EFORMAT, "a record that is cut") : 0;
}

static int run(struct run_log *log, const struct protobuf_field *from, struct ckpt_err *err)
{
    static const struct fact facts[] = {
        {1, "run_id"}, {2, "entity"}, {3, "project"}, {6, "group"}, {7, "job_type"},
        {8, "name"}, {9, "notes"}, {12, "sweep_id"}, {13, "host"},
    };
    static const struct fact git[] = {{1, "git_remote"}, {2, "git_commit"}};
    struct ckpt_cursor c = protobuf_inside(from);
    json_t *tags = json_array();
    struct protobuf_field f;
    int rc = tags ? texts(log, from, facts, sizeof facts / sizeof facts[0], err)
                  : ckpt_nomem(err, 64);

    while (rc == 0 && protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 4, PROTOBUF_BYTES))
            rc = updates(json_object_get(log->info, "config"), &f, err);
        else if (protobuf_is(&f, 5, PROTOBUF_BYTES))
            rc = updates(json_object_get(log->info, "summary"), &f, err);
        else if (protobuf_is(&f, 10, PROTOBUF_BYTES) && ckpt_utf8_valid(f.bytes, f.len))
            rc = json_array_append_new(tags, json_stringn_nocheck((const char *)f.bytes, f.len))
                     ? ckpt_nomem(err, f.len) : 0;
        else if (protobuf_is(&f, 17, PROTOBUF_BYTES))
            rc = run_log_fact(log, "start_time", json_real(timestamp(&f)), err);
        else if (protobuf_is(&f, 21, PROTOBUF_BYTES))
            rc = texts(log, &f, git, 2, err);
    }
    if (rc == 0 && json_array_size(tags) > 0)
        return run_log_fact(log, "run_tags", tags, err);
    json_decref(tags);
    return rc;
}

/* RunExitRecord: exit_code = 1, runtime = 2; zero is not written. */
static int run_exit(struct run_log *log, const struct protobuf_field *from,
                    struct ckpt_err *err)
{
    struct ckpt_cursor c = protobuf_inside(from);
    int32_t code = 0, runtime = 0;
    struct protobuf_field f;
    int rc;

    while (protobuf_next(&c, &f)) {
        if (protobuf_is(&f, 1, PROTOBUF_VARINT))
            code = (int32_t)f.bits;
        if (protobuf_is(&f, 2, PROTOBUF_VARINT))
            runtime = (int32_t)f.bits;
    }
    rc = run_log_fact(log, "exit_code", json_integer(code), err);
    return rc ? rc : run_log_fact(log, "runtime", json_integer(runtime), err);
}

static int header(struct run_log *log, const struct protobuf_field *from, struct ckpt_err *err)
{
    static const struct fact version[] = {{1, "wandb_version"}};
    struct ckpt_cursor c = protobuf_inside(from);
    struct protobuf_field f;
    int rc = 0;

    while (rc == 0 && protobuf_next(&c, &f))
        if (protobuf_is(&f, 1, PROTOBUF_BYTES))
            rc = texts(log, &f, version, 1, err);
    return rc;
}

int wandb_record(struct run_log *log, const unsigned char *bytes, size_t len,
                 struct ckpt_err *err)
{
    static const struct fact environment[] = {
        {1, "os"}, {2, "python"}, {6, "program"}, {12, "host"}, {18, "gpu"},
    };
    struct ckpt_cursor c;
    struct protobuf_field f;
    int rc = 0;

    ckpt_cursor_init(&c, bytes ? (const void *)bytes : "", len);
    while (rc == 0 && protobuf_next(&c, &f)) {
        if (f.type != PROTOBUF_BYTES)
            continue;
        switch (f.number) {
        case HISTORY: rc = history(log, &f, err); break;
        case SUMMARY: rc = updates(json_object_get(log->info, "summary"), &f, err); break;
        case CONFIG: rc = updates(json_object_get(log->info, "config"), &f, err); break;
        case STATS: rc = stats(log, &f, err); break;
        case RUN: rc = run(log, &f, err); break;
        case EXIT: rc = run_exit(log, &f, err); break;
        case HEADER: rc = header(log, &f, err); break;
        case ENVIRONMENT: rc = texts(log, &f, environment, 5, err); break;
        }
    }
    if (rc == 0 && c.failed)
        rc = ckpt_fail(err, CKPT_EFORMAT, "not a Record");
    return rc;
}
