/* json - see json.h.  Writing is in json_write.c. */
#include "libckpt/base/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/json_lex.h"

/* Nesting depth of a text, ignoring strings; stops counting at limit + 1. */
static size_t depth_of(const char *text, size_t len, size_t limit)
{
    size_t depth = 0, most = 0;
    bool escaped = false;

    for (const char *p = text, *end = text + len; p < end && most <= limit; p++) {
        if (*p == '"') {
            p = ckpt_json_string_end(p + 1, end, &escaped);
        } else if (*p == '{' || *p == '[') {
            depth++;
            most = depth > most ? depth : most;
        } else if ((*p == '}' || *p == ']') && depth > 0) {
            depth--;
        }
    }
    return most;
}

/* Length of a bare NaN, Infinity or -Infinity at s when it is a value, not a key; else 0. */
static size_t python_word(const char *s, size_t left)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]), next = n;

        if (left < n || memcmp(s, words[i], n) != 0)
            continue;
        while (next < left && memchr(" \t\r\n", s[next], 4))
            next++;
        return next < left && s[next] == ':' ? 0 : n;
    }
    return 0;
}

/* Number of bytes at s that can belong to a number; *big: it is an integer of more than 64 bits. */
static size_t number(bool *big, const char *s, size_t left)
{
    static const char most[] = "9223372036854775807", least[] = "9223372036854775808";
    bool negative = s[0] == '-', digits = true;
    const char *limit = negative ? least : most;
    size_t from = negative, n = from, count;

    while (n < left && s[n] && strchr("0123456789+-.eE", s[n]))
        digits &= s[n] >= '0' && s[n] <= '9', n++;
    count = n - from;
    *big = digits && count > 0 && s[from] != '0' &&
           (count >= sizeof most ||
            (count == sizeof most - 1 && memcmp(s + from, limit, count) > 0));
    return n;
}

/*
 * Turn Python's extensions of JSON into JSON: quote the words; write integers beyond 64 bits,
 * such as the length limit 10^30 of a tokenizer without one, as reals.
 */
static void from_python(struct ckpt_buf *out, const char *text, size_t len)
{
    bool escaped = false, big;
    size_t from = 0;

    for (size_t i = 0; i < len; i++) {
        size_t n;

        if (text[i] == '"') {
            i = (size_t)(ckpt_json_string_end(text + i + 1, text + len, &escaped) - text);
        } else if ((n = python_word(text + i, len - i)) > 0) {
            ckpt_buf_put(out, text + from, i - from);
            ckpt_buf_put_u8(out, '"');
            ckpt_buf_put(out, text + i, n);
            ckpt_buf_put_u8(out, '"');
            from = i + n;
            i = from - 1;
        } else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
            i += number(&big, text + i, len - i) - 1;
            if (big) {
                ckpt_buf_put(out, text + from, i + 1 - from);
                ckpt_buf_put(out, ".0", 2);
                from = i + 1;
            }
        }
    }
    ckpt_buf_put(out, text + from, len - from);
}

int ckpt_json_parse(json_t **out, const char *text, size_t len, unsigned flags,
                    struct ckpt_err *err)
{
    struct ckpt_buf json;
    size_t good = ckpt_utf8_prefix(text, len);
    json_error_t why;
    char line[32] = "";
    bool starved;

    *out = NULL;
    if (good < len)
        return ckpt_fail(err, CKPT_EFORMAT,
                         "json: byte %zu of %zu is 0x%02x, which is not strict UTF-8", good, len,
                         (unsigned char)text[good]);
    if (depth_of(text, len, CKPT_JSON_MAX_DEPTH) > CKPT_JSON_MAX_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "json: nested deeper than %d levels",
                         CKPT_JSON_MAX_DEPTH);
    ckpt_buf_init(&json, SIZE_MAX);
    if (flags & CKPT_JSON_PYTHON) {
        from_python(&json, text, len);
        if (!ckpt_buf_ok(&json)) {
            ckpt_buf_release(&json);
            return ckpt_nomem(err, len);
        }
        text = (const char *)json.data;
        len = json.len;
    }
    errno = 0;
    *out = json_loadb(text ? text : "", len, JSON_REJECT_DUPLICATES, &why);
    /* jansson reports another cause, or none, when it runs out of memory */
    starved = errno == ENOMEM;
    ckpt_buf_release(&json);
    if (*out)
        return 0;
    if (starved || json_error_code(&why) == json_error_out_of_memory ||
        (why.line < 0 && !*why.text))
        return ckpt_nomem(err, len);
    if (!(flags & CKPT_JSON_LINE))
        snprintf(line, sizeof line, "line %d, ", why.line);
    if (json_error_code(&why) == json_error_null_character)     /* jansson tells of its flags */
        snprintf(why.text, sizeof why.text, "a text with \\u0000 in it");
    return ckpt_fail_as(err, CKPT_EFORMAT,
                        json_error_code(&why) == json_error_duplicate_key ? "duplicate"
                                                                          : "malformed",
                        "json: %scolumn %d: %s", line, why.column, why.text);
}

int ckpt_json_read(json_t **out, struct ckpt_file *file, uint64_t limit, unsigned flags,
                   struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    char *text;
    size_t len;
    int rc;

    *out = NULL;
    rc = ckpt_file_slurp(file, &arena, limit, &text, &len, err);
    if (rc == 0 && ckpt_json_parse(out, text, len, flags, err))
        rc = ckpt_err_in(err, "%s", ckpt_file_name(file));
    ckpt_arena_release(&arena);
    return rc;
}

static const char *type_name(json_type t)
{
    static const char *const names[] = {"an object", "a list",  "a string", "an integer",
                                        "a number",  "true",    "false",    "null"};

    return names[t];
}

int ckpt_json_get(json_t **out, const json_t *obj, const char *key, json_type type,
                  struct ckpt_err *err)
{
    *out = json_object_get(obj, key);
    if (!*out)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is absent, %s wanted", key, type_name(type));
    if (json_typeof(*out) != type)
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is %s, %s wanted", key,
                         type_name(json_typeof(*out)), type_name(type));
    return 0;
}

int ckpt_json_str(const char **out, const json_t *obj, const char *key, struct ckpt_err *err)
{
    json_t *v;
    int rc;

    if ((rc = ckpt_json_get(&v, obj, key, JSON_STRING, err)) != 0)
        return rc;
    *out = json_string_value(v);
    return 0;
}

int ckpt_json_int(int64_t *out, const json_t *obj, const char *key, struct ckpt_err *err)
{
    json_t *v;
    int rc;

    if ((rc = ckpt_json_get(&v, obj, key, JSON_INTEGER, err)) != 0)
        return rc;
    *out = json_integer_value(v);
    return 0;
}

/* The member is absent or null. */
static bool unsaid(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);

    return !v || json_is_null(v);
}

int ckpt_json_int_or(int64_t *out, const json_t *obj, const char *key, int64_t fallback,
                     struct ckpt_err *err)
{
    *out = fallback;
    return unsaid(obj, key) ? 0 : ckpt_json_int(out, obj, key, err);
}

int ckpt_json_num_or(double *out, const json_t *obj, const char *key, double fallback,
                     struct ckpt_err *err)
{
    const json_t *v = json_object_get(obj, key);

    *out = fallback;
    if (unsaid(obj, key))
        return 0;
    if (!json_is_number(v))
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is %s, a number wanted", key,
                         type_name(json_typeof(v)));
    *out = json_number_value(v);
    return 0;
}

int ckpt_json_bool_or(bool *out, const json_t *obj, const char *key, bool fallback,
                      struct ckpt_err *err)
{
    const json_t *v = json_object_get(obj, key);

    *out = fallback;
    if (unsaid(obj, key))
        return 0;
    if (!json_is_boolean(v))
        return ckpt_fail(err, CKPT_EFORMAT, "\"%s\" is %s, true or false wanted", key,
                         type_name(json_typeof(v)));
    *out = json_is_true(v);
    return 0;
}

int ckpt_json_str_or(const char **out, const json_t *obj, const char *key, const char *fallback,
                     struct ckpt_err *err)
{
    *out = fallback;
    return unsaid(obj, key) ? 0 : ckpt_json_str(out, obj, key, err);
}
