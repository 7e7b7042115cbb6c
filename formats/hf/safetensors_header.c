/*
 * safetensors_header - see safetensors_header.h.  Source: safetensors 0.8 tensor.rs (serde's
 * HashMetadata and TensorInfo), RFC 8259.
 */
#include "formats/hf/safetensors_header.h"

#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/tensor.h"

#define MAX_DEPTH 64            /* levels of a member that is skipped */

/* The reference's order of dtypes, first in file to last. */
static const enum ckpt_dtype order[] = {
    CKPT_U64, CKPT_I64, CKPT_F64, CKPT_C64, CKPT_F32, CKPT_U32, CKPT_I32, CKPT_BF16, CKPT_F16,
    CKPT_U16, CKPT_I16, CKPT_F8_E5M2FNUZ, CKPT_F8_E4M3FNUZ, CKPT_F8_E8M0, CKPT_F8_E4M3,
    CKPT_F8_E5M2, CKPT_I8, CKPT_U8, CKPT_F6_E3M2, CKPT_F6_E2M3, CKPT_F4, CKPT_BOOL,
};
#define N_ORDER (sizeof order / sizeof order[0])

size_t safetensors_class(enum ckpt_dtype t)
{
    for (size_t i = 0; i < N_ORDER; i++)
        if (order[i] == t)
            return i;
    return SIZE_MAX;
}

struct text { const char *p; size_t n; };

#define WINDOW ((size_t)64 << 10)      /* of the header at once; as much more as a member has */

/* begin, p and end lie in the window, which holds one member whole, and its comma or brace. */
struct parser {
    const char        *begin, *p, *end;
    uint64_t           base;            /* of begin in the header */
    struct ckpt_arena  arena;           /* strings of the window that had escapes */
    struct ckpt_err   *err;
    struct ckpt_file  *file;
    uint64_t           unread;          /* bytes of the header after the window */
    char              *window;
    size_t             cap;
    struct text        said;            /* dtype of the row before: mostly that of the next */
    enum ckpt_dtype    dtype;
};

/* Names are cut in messages. */
static int shown(struct text t) { return t.n < 200 ? (int)t.n : 200; }

static int stop(struct parser *s, const char *wanted)
{
    if (s->p == s->end)
        return ckpt_fail(s->err, CKPT_EFORMAT, "header ends at byte %zu, %s wanted",
                         (size_t)(s->base + (uint64_t)(s->p - s->begin)), wanted);
    return ckpt_fail(s->err, CKPT_EFORMAT, "header, byte %zu: %.1s found, %s wanted",
                     (size_t)(s->base + (uint64_t)(s->p - s->begin)), s->p, wanted);
}

static void skip_blanks(struct parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

/* Step over c and the blanks around it, if it is what comes next. */
static bool take(struct parser *s, char c)
{
    skip_blanks(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    skip_blanks(s);
    return true;
}

static int want(struct parser *s, char c, const char *what)
{
    return take(s, c) ? 0 : stop(s, what);
}

static bool hex4(uint32_t *out, const char *p, const char *end)
{
    *out = 0;
    if (end - p < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

        if (v < 0)
            return false;
        *out = *out << 4 | (uint32_t)v;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

/* The escape behind a backslash at s->p; NULL when there is no such escape. */
static char *take_escape(struct parser *s, char *to)
{
    static const char from[] = "\"\\/bfnrt", is[] = "\"\\/\b\f\n\r\t";
    uint32_t c, low;
    const char *k;

    if (s->p == s->end)
        return NULL;
    if (*s->p != 'u') {
        k = *s->p ? strchr(from, *s->p) : NULL;
        if (!k)
            return NULL;
        s->p++;
        *to++ = is[k - from];
        return to;
    }
    if (!hex4(&c, s->p + 1, s->end) || c == 0 || (c >= 0xdc00 && c < 0xe000))
        return NULL;
    s->p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u' ||
            !hex4(&low, s->p + 2, s->end) || low < 0xdc00 || low >= 0xe000)
            return NULL;
        s->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    return put_utf8(to, c);
}

/* A string with escapes, from its first escape on; what it says is never longer than itself. */
static int take_escaped(struct parser *s, struct text *out, const char *first)
{
    char *copy, *to;
    size_t room = (size_t)(s->end - first);
    const char *q = s->p;

    while (q < s->end && *q != '"')     /* its end, to ask for no more than it needs */
        q += *q == '\\' && s->end - q > 1 ? 2 : 1;
    if (q < s->end)
        room = (size_t)(q - first);
    copy = to = ckpt_arena_alloc(&s->arena, room + 1, 1);
    if (!copy)
        return ckpt_nomem(s->err, room + 1);
    memcpy(to, first, (size_t)(s->p - first));
    to += s->p - first;
    while (s->p < s->end && *s->p != '"') {
        if ((unsigned char)*s->p < 0x20)
            return stop(s, "an escaped control character");
        if (*s->p != '\\') {
            *to++ = *s->p++;
            continue;
        }
        s->p++;
        to = take_escape(s, to);
        if (!to)
            return stop(s, "an escape (of no NUL and no lone surrogate)");
    }
    if (s->p == s->end)
        return stop(s, "the string's end");
    s->p++;
    *out = (struct text){copy, (size_t)(to - copy)};
    return 0;
}

static int take_string(struct parser *s, struct text *out)
{
    const char *first;

    skip_blanks(s);
    if (s->p == s->end || *s->p != '"')
        return stop(s, "a string");
    first = ++s->p;
    while (s->p < s->end && *s->p != '"') {
        if (*s->p == '\\')
            return take_escaped(s, out, first);
        if ((unsigned char)*s->p < 0x20)
            return stop(s, "an escaped control character");
        s->p++;
    }
    if (s->p == s->end)
        return stop(s, "the string's end");
    *out = (struct text){first, (size_t)(s->p - first)};
    s->p++;
    return 0;
}

static bool is(struct text t, const char *word)
{
    return t.n == strlen(word) && memcmp(t.p, word, t.n) == 0;
}

static bool digit(const struct parser *s)
{
    return s->p < s->end && *s->p >= '0' && *s->p <= '9';
}

/* A whole number >= 0, as the reference's usize, up to 2^63 - 1. */
static int take_size(struct parser *s, uint64_t *out)
{
    const char *first;
    uint64_t v = 0;

    skip_blanks(s);
    if (!digit(s))
        return stop(s, "a whole number >= 0");
    for (first = s->p; digit(s); s->p++)
        if (!ckpt_mul(&v, v, 10) || !ckpt_add(&v, v, (uint64_t)(*s->p - '0')) || v > INT64_MAX)
            return stop(s, "a number below 2^63");
    if ((*first == '0' && s->p - first > 1) ||
        (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E')))
        return stop(s, "a whole number without leading zeros");
    *out = v;
    return 0;
}

/* -- members that are not known -------------------------------------------------------------- */

static int skip_digits(struct parser *s)
{
    if (!digit(s))
        return stop(s, "a digit");
    while (digit(s))
        s->p++;
    return 0;
}

static int skip_number(struct parser *s)
{
    if (*s->p == '-')
        s->p++;
    if (digit(s) && *s->p == '0')
        s->p++;
    else if (skip_digits(s))
        return s->err->code;
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (skip_digits(s))
            return s->err->code;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        return skip_digits(s);
    }
    return 0;
}

static int skip_scalar(struct parser *s)
{
    static const char *const words[] = {"true", "false", "null"};
    struct text ignored;

    if (s->p < s->end && *s->p == '"')
        return take_string(s, &ignored);
    if (s->p < s->end && (*s->p == '-' || digit(s)))
        return skip_number(s);
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return 0;
        }
    }
    return stop(s, "a value");
}

/* A key and its colon. */
static int take_key(struct parser *s, struct text *key)
{
    if (take_string(s, key))
        return s->err->code;
    return want(s, ':', "a colon");
}

/* Any value, its insides checked as JSON and forgotten. */
static int skip_value(struct parser *s)
{
    bool object[MAX_DEPTH];             /* what each open level is */
    struct text key;
    size_t depth = 0;

    for (;;) {
        bool opened = false;

        skip_blanks(s);
        if (s->p < s->end && (*s->p == '{' || *s->p == '[')) {
            if (depth == MAX_DEPTH)
                return ckpt_fail(s->err, CKPT_ELIMIT, "header, byte %zu: deeper than %d levels",
                                 (size_t)(s->base + (uint64_t)(s->p - s->begin)),
                                 MAX_DEPTH);
            object[depth++] = *s->p == '{';
            opened = true;
            s->p++;
        } else if (skip_scalar(s)) {
            return s->err->code;
        }
        while (depth > 0 && take(s, object[depth - 1] ? '}' : ']')) {
            depth--;
            opened = false;
        }
        if (depth == 0)
            return 0;
        if (!opened && want(s, ',', "a comma or the end of the list"))
            return s->err->code;
        if (object[depth - 1] && take_key(s, &key))
            return s->err->code;
    }
}

/* -- the members that are ------------------------------------------------------------------- */

static int take_dtype(struct parser *s, struct safetensors_row *r)
{
    struct text t;

    if (take_string(s, &t))
        return s->err->code;
    if (t.n == s->said.n && s->said.p && memcmp(t.p, s->said.p, t.n) == 0) {
        r->dtype = s->dtype;
        return 0;
    }
    for (size_t i = 0; i < N_ORDER; i++)
        if (is(t, ckpt_dtype_name(order[i]))) {
            s->said = t;
            r->dtype = s->dtype = order[i];
            return 0;
        }
    return ckpt_fail(s->err, CKPT_EUNSUPPORTED, "unknown dtype \"%.*s\"", shown(t), t.p);
}

static int take_shape(struct parser *s, struct safetensors_row *r)
{
    if (want(s, '[', "the shape's ["))
        return s->err->code;
    r->shape.rank = 0;
    if (take(s, ']'))
        return 0;
    do {
        uint64_t dim;

        if (r->shape.rank == CKPT_MAX_RANK)
            return ckpt_fail(s->err, CKPT_ELIMIT, "more than %d axes", CKPT_MAX_RANK);
        if (take_size(s, &dim))
            return s->err->code;
        r->shape.dim[r->shape.rank++] = (int64_t)dim;
    } while (take(s, ','));
    return want(s, ']', "a comma or the shape's ]");
}

static int take_offsets(struct parser *s, struct safetensors_row *r)
{
    if (want(s, '[', "[begin, end]") || take_size(s, &r->begin) ||
        want(s, ',', "[begin, end]") || take_size(s, &r->end) || want(s, ']', "[begin, end]"))
        return s->err->code;
    if (r->begin > r->end)
        return ckpt_fail(s->err, CKPT_EFORMAT, "data_offsets end at %llu before they begin at %llu",
                         (unsigned long long)r->end, (unsigned long long)r->begin);
    return 0;
}

static int take_tensor(struct parser *s, struct safetensors_row *r)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0;
    struct text key;

    if (want(s, '{', "an object"))
        return s->err->code;
    if (!take(s, '}')) {
        do {
            size_t f = 0;

            if (take_key(s, &key))
                return s->err->code;
            while (f < 3 && !is(key, fields[f]))
                f++;
            if (f < 3 && seen & 1u << f)
                return ckpt_fail_as(s->err, CKPT_EFORMAT, "duplicate", "%s appears twice",
                                    fields[f]);
            seen |= 1u << f;
            if (f == 0 ? take_dtype(s, r) : f == 1 ? take_shape(s, r)
                : f == 2 ? take_offsets(s, r) : skip_value(s))
                return s->err->code;
        } while (take(s, ','));
        if (want(s, '}', "a comma or the tensor's }"))
            return s->err->code;
    }
    for (size_t f = 0; f < 3; f++)
        if (!(seen & 1u << f))
            return ckpt_fail(s->err, CKPT_EFORMAT, "\"%s\" is absent", fields[f]);
    return 0;
}

static int add_metadata(struct parser *s, json_t *m, struct text key, struct text value)
{
    char *k = ckpt_arena_strndup(&s->arena, key.p, key.n);
    json_t *v = json_stringn(value.p, value.n);

    if (!k || !v || json_object_get(m, k)) {
        json_decref(v);
        return k && v ? ckpt_fail_as(s->err, CKPT_EFORMAT, "duplicate",
                                     "__metadata__: %s appears twice", k)
                      : ckpt_nomem(s->err, key.n + value.n);
    }
    return json_object_set_new_nocheck(m, k, v) ? ckpt_nomem(s->err, key.n + value.n) : 0;
}

static int take_metadata(struct parser *s, json_t **out)
{
    struct text key, value;
    json_t *m;

    skip_blanks(s);
    if (s->p < s->end && *s->p == 'n')
        return skip_scalar(s);          /* null is as good as absent */
    if (want(s, '{', "__metadata__'s {"))
        return s->err->code;
    if (!(m = json_object()))
        return ckpt_nomem(s->err, 64);
    *out = m;
    if (take(s, '}'))
        return 0;
    do {
        if (take_key(s, &key) || take_string(s, &value) || add_metadata(s, m, key, value))
            return s->err->code;
    } while (take(s, ','));
    return want(s, '}', "a comma or __metadata__'s }");
}

/* -- the window over the header --------------------------------------------------------------- */

/* Drop what was parsed and read on: at least one byte more, if there is one. */
static int refill(struct parser *s)
{
    size_t rest = (size_t)(s->end - s->p), more;
    char *grown;

    ckpt_arena_release(&s->arena);
    s->said = (struct text){NULL, 0};
    s->base += (uint64_t)(s->p - s->begin);
    if (rest)
        memmove(s->window, s->p, rest);
    if (rest > s->cap / 2 || !s->cap) {
        size_t cap = s->cap ? 2 * s->cap : WINDOW;

        if (cap > rest + s->unread)
            cap = (size_t)(rest + s->unread) + (rest + s->unread == 0);    /* never NULL */
        grown = cap > s->cap ? ckpt_grow(s->window, cap, 1) : s->window;
        if (!grown && cap)
            return ckpt_nomem(s->err, cap);
        s->window = grown;
        s->cap = cap > s->cap ? cap : s->cap;
    }
    more = s->cap - rest < s->unread ? s->cap - rest : (size_t)s->unread;
    if (more && ckpt_file_read_at(s->file, s->window + rest, more, 8 + s->base + rest, s->err))
        return s->err->code;
    s->unread -= more;
    s->begin = s->p = s->window;
    s->end = s->begin + rest + more;
    return 0;
}

/*
 * Read on until the next member, with the comma or brace that ends it, is in the window.  Whether
 * it is JSON is for the parser; UTF-8 is checked here, as these bytes are told in messages.
 */
static int have_member(struct parser *s)
{
    bool quoted = false, escaped = false, found = false;
    size_t depth = 0, at = 0;

    for (;;) {
        for (; !found && s->p + at < s->end; at++) {
            char c = s->p[at];

            if (quoted) {
                quoted = escaped || c != '"';
                escaped = !escaped && c == '\\';
            } else if (c == '"') {
                quoted = true;
            } else if (c == '{' || c == '[') {
                depth++;
            } else if (c == '}' || c == ']') {
                found = depth == 0;
                depth -= !found;
            } else {
                found = c == ',' && depth == 0;
            }
        }
        if (found || !s->unread)
            break;
        if (refill(s))
            return s->err->code;
    }
    return ckpt_utf8_valid(s->p, at)
               ? 0 : ckpt_fail(s->err, CKPT_EFORMAT,
                               "header is not strict UTF-8, or has a NUL in it");
}

/* Step over blanks, of which there may be more than a window. */
static int skip_padding(struct parser *s)
{
    for (skip_blanks(s); s->p == s->end && s->unread; skip_blanks(s))
        if (refill(s))
            return s->err->code;
    return 0;
}

static int one_tensor(struct parser *s, struct text name, safetensors_row_fn *add, void *ctx)
{
    struct safetensors_row r = {.name = name.p, .name_len = name.n};

    if (take_tensor(s, &r))
        return ckpt_err_in(s->err, "tensor %.*s", shown(name), name.p);
    return add(ctx, &r, s->err);
}

static int members(struct parser *s, json_t **metadata, safetensors_row_fn *add, void *ctx)
{
    bool seen = false;
    struct text name;

    do {
        if (have_member(s) || take_key(s, &name))
            return s->err->code;
        if (!is(name, "__metadata__")) {
            if (one_tensor(s, name, add, ctx))
                return s->err->code;
        } else if (seen) {
            return ckpt_fail_as(s->err, CKPT_EFORMAT, "duplicate", "__metadata__ appears twice");
        } else {
            seen = true;
            if (take_metadata(s, metadata))
                return s->err->code;
        }
    } while (take(s, ','));
    return want(s, '}', "a comma or the header's }");
}

int safetensors_header_read(json_t **metadata, struct ckpt_file *file, uint64_t len,
                            safetensors_row_fn *add, void *ctx, struct ckpt_err *err)
{
    struct parser s = {.file = file, .unread = len, .err = err};
    int rc = refill(&s);

    *metadata = NULL;
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0)
        rc = want(&s, '{', "the header's {");
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0 && !take(&s, '}'))
        rc = members(&s, metadata, add, ctx);
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0 && s.p != s.end)
        rc = stop(&s, "nothing but blanks behind the header's }");
    ckpt_arena_release(&s.arena);
    ckpt_free(s.window);
    return rc;
}
