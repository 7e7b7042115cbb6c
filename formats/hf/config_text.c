/* config_text - see config_text.h. */
#include "formats/hf/config_text.h"

#include <string.h>

#include "libckpt/dtype.h"
#include "libckpt/base/json.h"

/* One member of an object; positions in the text. */
struct member {
    size_t key, key_end;        /* without quotes */
    size_t value, value_end;
};

static size_t skip_blanks(const char *s, size_t n, size_t i)
{
    while (i < n && strchr(" \t\r\n", s[i]) && s[i])
        i++;
    return i;
}

/* i is at a quote; the place behind its partner. */
static size_t skip_string(const char *s, size_t n, size_t i)
{
    for (i++; i < n && s[i] != '"'; i++)
        if (s[i] == '\\')
            i++;
    return i < n ? i + 1 : n;
}

/* The place behind the value at i. */
static size_t skip_value(const char *s, size_t n, size_t i)
{
    size_t depth = 0;

    while (i < n) {
        char c = s[i];

        if (depth == 0 && (c == ',' || c == '}' || c == ']' || strchr(" \t\r\n", c)))
            break;
        if (c == '"') {
            i = skip_string(s, n, i);
        } else {
            depth += c == '{' || c == '[';
            depth -= c == '}' || c == ']';
            i++;
        }
        if (depth == 0 && (c == '"' || c == '}' || c == ']'))
            break;
    }
    return i;
}

/* Step to the next member of an object whose { lies before i; false at its end. */
static bool next_member(struct member *m, const char *s, size_t n, size_t *i)
{
    *i = skip_blanks(s, n, *i);
    if (*i < n && s[*i] == ',')
        *i = skip_blanks(s, n, *i + 1);
    if (*i >= n || s[*i] != '"')
        return false;
    m->key = *i + 1;
    *i = skip_string(s, n, *i);
    m->key_end = *i - 1;
    *i = skip_blanks(s, n, *i);                 /* the colon */
    m->value = skip_blanks(s, n, *i < n ? *i + 1 : n);
    *i = m->value_end = skip_value(s, n, m->value);
    return true;
}

static bool key_is(const struct member *m, const char *s, const char *key)
{
    size_t n = strlen(key);

    return m->key_end - m->key == n && memcmp(s + m->key, key, n) == 0;
}

/* The place behind the object's {. */
static int begin_object(size_t *at, const char *s, size_t n, struct ckpt_err *err)
{
    json_t *v;

    if (ckpt_json_parse(&v, s, n, CKPT_JSON_PYTHON, err))
        return err->code;
    if (!json_is_object(v)) {
        json_decref(v);
        return ckpt_fail(err, CKPT_EFORMAT, "is no object");
    }
    json_decref(v);
    *at = skip_blanks(s, n, 0) + 1;
    return 0;
}

static int finish(const struct ckpt_buf *out, struct ckpt_err *err)
{
    return ckpt_buf_ok(out) ? 0 : ckpt_nomem(err, out->len);
}

int config_set(struct ckpt_buf *out, const char *text, size_t len, const char *key,
               const char *value, struct ckpt_err *err)
{
    size_t at, end = 0, n = 0, first = 0;
    struct member m;

    if (begin_object(&at, text, len, err))
        return err->code;
    for (first = end = at; next_member(&m, text, len, &at); n++) {
        if (key_is(&m, text, key)) {
            ckpt_buf_put(out, text, m.value);
            ckpt_buf_put_str(out, value);
            ckpt_buf_put(out, text + m.value_end, len - m.value_end);
            return finish(out, err);
        }
        end = m.value_end;
    }
    /* As its neighbours: what lies between the { and the first key goes before the new one. */
    ckpt_buf_put(out, text, end);
    if (n)
        ckpt_buf_put_str(out, ",");
    ckpt_buf_put(out, text + first, skip_blanks(text, len, first) - first);
    ckpt_buf_printf(out, "\"%s\": %s", key, value);
    ckpt_buf_put(out, text + end, len - end);
    return finish(out, err);
}

/* A string that names a floating dtype. */
static bool names_dtype(const char *s, const struct member *m)
{
    size_t n = m->value_end - m->value;
    char name[40];

    if (n < 3 || n - 2 >= sizeof name || s[m->value] != '"')
        return false;
    memcpy(name, s + m->value + 1, n - 2);
    name[n - 2] = '\0';
    return ckpt_dtype_class(ckpt_dtype_parse(name)) == CKPT_CLASS_FLOAT;
}

/* A part of a model that has a description of its own; how it is quantised is none. */
static bool is_part(const char *s, const struct member *m)
{
    size_t n = m->key_end - m->key;

    return n > 7 && memcmp(s + m->key_end - 7, "_config", 7) == 0 && s[m->value] == '{' &&
           !key_is(m, s, "quantization_config");
}

int config_set_dtype(struct ckpt_buf *out, const char *text, size_t len, const char *dtype,
                     struct ckpt_err *err)
{
    size_t at, done = 0, outer = 0;             /* outer: where to go on behind a part */
    struct member m;

    if (begin_object(&at, text, len, err))
        return err->code;
    for (;;) {
        if (!next_member(&m, text, len, &at)) {
            if (!outer)
                break;
            at = outer;
            outer = 0;
            continue;
        }
        if ((key_is(&m, text, "dtype") || key_is(&m, text, "torch_dtype")) &&
            names_dtype(text, &m)) {
            ckpt_buf_put(out, text + done, m.value - done);
            ckpt_buf_printf(out, "\"%s\"", dtype);
            done = m.value_end;
        } else if (!outer && is_part(text, &m)) {
            outer = m.value_end;
            at = m.value + 1;
        }
    }
    ckpt_buf_put(out, text + done, len - done);
    return finish(out, err);
}
