/* config_text - see config_text.h. */
#include "formats/hf/config_text.h"

#include <string.h>

#include "libckpt/dtype.h"
#include "libckpt/base/json.h"
#include "libckpt/base/json_lex.h"

/* One member of an object, in the text. */
struct member { struct ckpt_json_text key, value; };

/* Step to the next member of an object, from after its { or after a member; false at its end. */
static bool next_member(struct member *m, struct ckpt_json_lex *l)
{
    ckpt_json_take(l, ',');
    ckpt_json_blanks(l);
    if (l->p == l->end || *l->p != '"' || ckpt_json_take_key(l, &m->key))
        return false;
    m->value.p = l->p;
    if (ckpt_json_skip_value(l))
        return false;
    m->value.n = (size_t)(l->p - m->value.p);
    return true;
}

static bool key_is(const struct member *m, const char *key)
{
    return m->key.n == strlen(key) && memcmp(m->key.p, key, m->key.n) == 0;
}

/* Step to after the object's {. */
static int begin_object(struct ckpt_json_lex *l, const char *s, size_t n, struct ckpt_err *err)
{
    json_t *v;
    int rc = ckpt_json_parse(&v, s, n, CKPT_JSON_PYTHON, err);

    if (rc == 0 && !json_is_object(v))
        rc = ckpt_fail(err, CKPT_EFORMAT, "is no object");
    json_decref(v);
    *l = (struct ckpt_json_lex){.begin = s, .p = s, .end = s + n, .name = "config",
                                .python = true, .err = err};
    ckpt_json_blanks(l);
    l->p += rc == 0;
    return rc;
}

static int finish(const struct ckpt_buf *out, struct ckpt_err *err)
{
    return ckpt_buf_ok(out) ? 0 : ckpt_nomem(err, out->len);
}

int config_set(struct ckpt_buf *out, const char *text, size_t len, const char *key,
               const char *value, struct ckpt_err *err)
{
    const char *first, *end, *stop = text + len;
    struct ckpt_json_lex l;
    struct member m;
    size_t n;
    int rc = begin_object(&l, text, len, err);

    if (rc)
        return rc;
    first = end = l.p;
    for (n = 0; next_member(&m, &l); n++) {
        end = m.value.p + m.value.n;
        if (key_is(&m, key)) {
            ckpt_buf_put(out, text, (size_t)(m.value.p - text));
            ckpt_buf_put_str(out, value);
            ckpt_buf_put(out, end, (size_t)(stop - end));
            return finish(out, err);
        }
    }
    /* Format as its neighbours: repeat the white space between { and the first key. */
    l.p = first;
    ckpt_json_blanks(&l);
    ckpt_buf_put(out, text, (size_t)(end - text));
    if (n)
        ckpt_buf_put_str(out, ",");
    ckpt_buf_put(out, first, (size_t)(l.p - first));
    ckpt_buf_printf(out, "\"%s\": %s", key, value);
    ckpt_buf_put(out, end, (size_t)(stop - end));
    return finish(out, err);
}

/* A string that names a floating dtype. */
static bool names_dtype(struct ckpt_json_text v)
{
    char name[40];

    if (v.n < 3 || v.n - 2 >= sizeof name || v.p[0] != '"')
        return false;
    memcpy(name, v.p + 1, v.n - 2);
    name[v.n - 2] = '\0';
    return ckpt_dtype_class(ckpt_dtype_parse(name)) == CKPT_CLASS_FLOAT;
}

/* Whether a member describes a part of the model; quantization_config does not. */
static bool is_part(const struct member *m)
{
    return m->key.n > 7 && memcmp(m->key.p + m->key.n - 7, "_config", 7) == 0 &&
           m->value.p[0] == '{' && !key_is(m, "quantization_config");
}

int config_set_dtype(struct ckpt_buf *out, const char *text, size_t len, const char *dtype,
                     struct ckpt_err *err)
{
    const char *done = text, *outer = NULL;     /* outer: where to continue after a part */
    struct ckpt_json_lex l;
    struct member m;
    int rc = begin_object(&l, text, len, err);

    if (rc)
        return rc;
    for (;;) {
        if (!next_member(&m, &l)) {
            if (!outer)
                break;
            l.p = outer;
            outer = NULL;
            continue;
        }
        if ((key_is(&m, "dtype") || key_is(&m, "torch_dtype")) && names_dtype(m.value)) {
            ckpt_buf_put(out, done, (size_t)(m.value.p - done));
            ckpt_buf_printf(out, "\"%s\"", dtype);
            done = m.value.p + m.value.n;
        } else if (!outer && is_part(&m)) {
            outer = l.p;
            l.p = m.value.p + 1;
        }
    }
    ckpt_buf_put(out, done, (size_t)(text + len - done));
    return finish(out, err);
}
