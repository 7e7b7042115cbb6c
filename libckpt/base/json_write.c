/*
 * json_write - a value as text; see json.h.  Indented output is spelt as Python's
 * json.dumps(indent=n, ensure_ascii=False); numbers as Python's repr.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/mem.h"

struct writer {
    struct ckpt_buf *out;
    unsigned         indent;
    bool             sort;
};

json_t *ckpt_json_text(const char *s, size_t n)
{
    size_t most = 4 * n + 1;            /* each byte as "\\xff" */
    json_t *v;
    char *safe;

    if (ckpt_utf8_valid(s, n))
        return json_stringn(s, n);
    safe = ckpt_alloc(most, 1);
    v = safe ? json_string(ckpt_err_escape(safe, most, s, n)) : NULL;
    ckpt_free(safe);
    return v;
}

void ckpt_json_put_string(struct ckpt_buf *b, const char *s, size_t n)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    size_t done = 0;

    ckpt_buf_put_u8(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *at;

        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        ckpt_buf_put(b, s + done, i - done);
        done = i + 1;
        at = c ? strchr(from, c) : NULL;
        if (at)
            ckpt_buf_printf(b, "\\%c", to[at - from]);
        else
            ckpt_buf_printf(b, "\\u%04x", c);
    }
    ckpt_buf_put(b, s + done, n - done);
    ckpt_buf_put_u8(b, '"');
}

/* The shortest digits that read back to the same bits, placed as Python's repr places them. */
static void put_real(struct ckpt_buf *b, double v)
{
    char text[40], digits[24] = "";
    int precision = 0, exponent, n = 0;
    char *e;

    while (precision < 17) {
        snprintf(text, sizeof text, "%.*e", precision, v);
        if (strtod(text, NULL) == v)
            break;
        precision++;
    }
    e = strchr(text, 'e');
    exponent = (int)strtol(e + 1, NULL, 10);
    for (char *p = text; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (signbit(v))
        ckpt_buf_put_u8(b, '-');
    if (exponent < -4 || exponent >= 16) {
        ckpt_buf_put_u8(b, (uint8_t)digits[0]);
        if (n > 1)
            ckpt_buf_printf(b, ".%.*s", n - 1, digits + 1);
        ckpt_buf_printf(b, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        ckpt_buf_printf(b, "0.%.*s%.*s", -exponent - 1, "0000", n, digits);
    } else if (n <= exponent + 1) {
        ckpt_buf_printf(b, "%.*s%.*s.0", n, digits, exponent + 1 - n, "0000000000000000");
    } else {
        ckpt_buf_printf(b, "%.*s.%.*s", exponent + 1, digits, n - exponent - 1,
                        digits + exponent + 1);
    }
}

static void put_break(struct writer *w, unsigned level)
{
    if (!w->indent)
        return;
    ckpt_buf_put_u8(w->out, '\n');
    for (unsigned i = 0; i < level * w->indent; i++)
        ckpt_buf_put_u8(w->out, ' ');
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Keys in the order they are written; NULL when refused. */
static const char **keys_of(const json_t *obj, bool sort)
{
    size_t n = 0;
    const char **key = ckpt_alloc(json_object_size(obj), sizeof *key), *k;
    json_t *v;

    if (!key)
        return NULL;
    json_object_foreach ((json_t *)obj, k, v)
        key[n++] = k;
    if (sort)
        qsort(key, n, sizeof *key, by_key);
    return key;
}

static int put_value(struct writer *w, const json_t *v, unsigned level, struct ckpt_err *err);

static int put_object(struct writer *w, const json_t *v, unsigned level, struct ckpt_err *err)
{
    size_t n = json_object_size(v);
    const char **key = keys_of(v, w->sort);
    int rc = key ? 0 : ckpt_nomem(err, n * sizeof *key);

    ckpt_buf_put_u8(w->out, '{');
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i)
            ckpt_buf_put_u8(w->out, ',');
        put_break(w, level + 1);
        ckpt_json_put_string(w->out, key[i], strlen(key[i]));
        ckpt_buf_put_str(w->out, w->indent ? ": " : ":");
        rc = put_value(w, json_object_get(v, key[i]), level + 1, err);
    }
    ckpt_free(key);
    if (n)
        put_break(w, level);
    ckpt_buf_put_u8(w->out, '}');
    return rc;
}

static int put_array(struct writer *w, const json_t *v, unsigned level, struct ckpt_err *err)
{
    size_t n = json_array_size(v);
    int rc = 0;

    ckpt_buf_put_u8(w->out, '[');
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i)
            ckpt_buf_put_u8(w->out, ',');
        put_break(w, level + 1);
        rc = put_value(w, json_array_get(v, i), level + 1, err);
    }
    if (n)
        put_break(w, level);
    ckpt_buf_put_u8(w->out, ']');
    return rc;
}

/* Recursion is bounded: values deeper than a reader would accept are refused. */
static int put_value(struct writer *w, const json_t *v, unsigned level, struct ckpt_err *err)
{
    if (level > CKPT_JSON_MAX_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "json: nested deeper than %d levels",
                         CKPT_JSON_MAX_DEPTH);
    switch (json_typeof(v)) {
    case JSON_OBJECT:  return put_object(w, v, level, err);
    case JSON_ARRAY:   return put_array(w, v, level, err);
    case JSON_STRING:
        ckpt_json_put_string(w->out, json_string_value(v), json_string_length(v));
        return 0;
    case JSON_INTEGER: ckpt_buf_printf(w->out, "%lld", (long long)json_integer_value(v)); return 0;
    case JSON_REAL:    put_real(w->out, json_real_value(v)); return 0;
    case JSON_TRUE:    ckpt_buf_put_str(w->out, "true"); return 0;
    case JSON_FALSE:   ckpt_buf_put_str(w->out, "false"); return 0;
    default:           ckpt_buf_put_str(w->out, "null"); return 0;
    }
}

int ckpt_json_write(struct ckpt_buf *out, const json_t *value, unsigned indent, bool sort,
                    struct ckpt_err *err)
{
    struct writer w = {.out = out, .indent = indent, .sort = sort};
    int rc = value ? put_value(&w, value, 0, err) : ckpt_nomem(err, sizeof *value);

    if (rc == 0 && !ckpt_buf_ok(out))
        rc = ckpt_nomem(err, out->len);
    return rc;
}
