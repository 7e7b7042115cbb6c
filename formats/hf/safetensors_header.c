/*
 * safetensors_header - see safetensors_header.h.  Source: safetensors 0.8 tensor.rs (serde's
 * HashMetadata and TensorInfo), RFC 8259.
 */
#include "formats/hf/safetensors_header.h"

#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/json_lex.h"
#include "libckpt/tensor.h"

/* The reference's order of dtypes in a file. */
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

#define WINDOW ((size_t)64 << 10)      /* bytes of the header read at once; a longer member makes
                                          it grow */

/* The lexer reads from the window, which holds one member completely, with its comma or brace. */
struct parser {
    struct ckpt_json_lex  lex;
    struct ckpt_arena     arena;        /* strings of the window that had escapes */
    struct ckpt_err      *err;
    struct ckpt_file     *file;
    uint64_t              unread;       /* bytes of the header after the window */
    char                 *window;
    size_t                cap;
    struct ckpt_json_text said;         /* dtype of the row before, usually the same */
    enum ckpt_dtype       dtype;
};

/* Names are shortened in messages. */
static int shown(struct ckpt_json_text t) { return t.n < 200 ? (int)t.n : 200; }

static bool is(struct ckpt_json_text t, const char *word)
{
    return t.n == strlen(word) && memcmp(t.p, word, t.n) == 0;
}

static int take_dtype(struct parser *s, struct safetensors_row *r)
{
    struct ckpt_json_text t;
    int rc;

    if ((rc = ckpt_json_take_string(&s->lex, &t)) != 0)
        return rc;
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

static int take_shape(struct ckpt_json_lex *l, struct safetensors_row *r)
{
    int rc = ckpt_json_want(l, '[', "the shape's [");

    r->shape.rank = 0;
    if (rc || ckpt_json_take(l, ']'))
        return rc;
    do {
        uint64_t dim;

        if (r->shape.rank == CKPT_MAX_RANK)
            return ckpt_fail(l->err, CKPT_ELIMIT, "more than %d axes", CKPT_MAX_RANK);
        if ((rc = ckpt_json_take_size(l, &dim)) != 0)
            return rc;
        r->shape.dim[r->shape.rank++] = (int64_t)dim;
    } while (ckpt_json_take(l, ','));
    return ckpt_json_want(l, ']', "a comma or the shape's ]");
}

static int take_offsets(struct ckpt_json_lex *l, struct safetensors_row *r)
{
    int rc;

    if ((rc = ckpt_json_want(l, '[', "[begin, end]")) != 0 ||
        (rc = ckpt_json_take_size(l, &r->begin)) != 0 ||
        (rc = ckpt_json_want(l, ',', "[begin, end]")) != 0 ||
        (rc = ckpt_json_take_size(l, &r->end)) != 0 ||
        (rc = ckpt_json_want(l, ']', "[begin, end]")) != 0)
        return rc;
    if (r->begin > r->end)
        return ckpt_fail(l->err, CKPT_EFORMAT, "data_offsets end at %llu before they begin at %llu",
                         (unsigned long long)r->end, (unsigned long long)r->begin);
    return 0;
}

static int take_field(struct parser *s, size_t field, struct safetensors_row *r)
{
    switch (field) {
    case 0:  return take_dtype(s, r);
    case 1:  return take_shape(&s->lex, r);
    case 2:  return take_offsets(&s->lex, r);
    default: return ckpt_json_skip_value(&s->lex);
    }
}

static int take_tensor(struct parser *s, struct safetensors_row *r)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    struct ckpt_json_lex *l = &s->lex;
    struct ckpt_json_text key;
    unsigned seen = 0;
    int rc = ckpt_json_want(l, '{', "an object");

    if (rc == 0 && !ckpt_json_take(l, '}')) {
        do {
            size_t f = 0;

            if ((rc = ckpt_json_take_key(l, &key)) != 0)
                return rc;
            while (f < 3 && !is(key, fields[f]))
                f++;
            if (f < 3 && seen & 1u << f)
                return ckpt_fail_as(s->err, CKPT_EFORMAT, "duplicate", "%s appears twice",
                                    fields[f]);
            seen |= 1u << f;
            if ((rc = take_field(s, f, r)) != 0)
                return rc;
        } while (ckpt_json_take(l, ','));
        rc = ckpt_json_want(l, '}', "a comma or the tensor's }");
    }
    for (size_t f = 0; rc == 0 && f < 3; f++)
        if (!(seen & 1u << f))
            rc = ckpt_fail(s->err, CKPT_EFORMAT, "\"%s\" is absent", fields[f]);
    return rc;
}

static int add_metadata(struct parser *s, json_t *m, struct ckpt_json_text key,
                        struct ckpt_json_text value)
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
    struct ckpt_json_lex *l = &s->lex;
    struct ckpt_json_text key, value;
    int rc;

    ckpt_json_blanks(l);
    if (l->p < l->end && *l->p == 'n')
        return ckpt_json_skip_value(l);         /* null counts as absent */
    if ((rc = ckpt_json_want(l, '{', "__metadata__'s {")) != 0)
        return rc;
    if (!(*out = json_object()))
        return ckpt_nomem(s->err, 64);
    if (ckpt_json_take(l, '}'))
        return 0;
    do {
        if ((rc = ckpt_json_take_key(l, &key)) != 0 ||
            (rc = ckpt_json_take_string(l, &value)) != 0 ||
            (rc = add_metadata(s, *out, key, value)) != 0)
            return rc;
    } while (ckpt_json_take(l, ','));
    return ckpt_json_want(l, '}', "a comma or __metadata__'s }");
}

/* -- the window over the header --------------------------------------------------------------- */

/* Drop parsed bytes and read more: at least one byte, if there is one. */
static int refill(struct parser *s)
{
    size_t rest = (size_t)(s->lex.end - s->lex.p), more;
    char *grown;
    int rc;

    ckpt_arena_release(&s->arena);
    s->said = (struct ckpt_json_text){NULL, 0};
    s->lex.base += (uint64_t)(s->lex.p - s->lex.begin);
    if (rest)
        memmove(s->window, s->lex.p, rest);
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
    if (more && (rc = ckpt_file_read_at(s->file, s->window + rest, more, 8 + s->lex.base + rest,
                                        s->err)) != 0)
        return rc;
    s->unread -= more;
    s->lex.begin = s->lex.p = s->window;
    s->lex.end = s->lex.begin + rest + more;
    return 0;
}

/*
 * Read until the next member, with the comma or brace that ends it, is in the window.  The parser
 * checks whether it is JSON; UTF-8 is checked here, since messages quote these bytes.
 */
static int have_member(struct parser *s)
{
    bool quoted = false, escaped = false, found = false;
    size_t depth = 0, at = 0;
    int rc;

    for (;;) {
        while (!found && s->lex.p + at < s->lex.end) {
            char c = s->lex.p[at++];

            if (quoted) {
                const char *close = ckpt_json_string_end(s->lex.p + at - 1, s->lex.end, &escaped);

                quoted = close == s->lex.end;
                at = (size_t)(close - s->lex.p) + !quoted;
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
        if ((rc = refill(s)) != 0)
            return rc;
    }
    return ckpt_utf8_valid(s->lex.p, at)
               ? 0 : ckpt_fail(s->err, CKPT_EFORMAT,
                               "header is not strict UTF-8, or has a NUL in it");
}

/* Skip blanks, possibly more than a window. */
static int skip_padding(struct parser *s)
{
    int rc;

    for (ckpt_json_blanks(&s->lex); s->lex.p == s->lex.end && s->unread; ckpt_json_blanks(&s->lex))
        if ((rc = refill(s)) != 0)
            return rc;
    return 0;
}

static int one_tensor(struct parser *s, struct ckpt_json_text name, safetensors_row_fn *add,
                      void *ctx)
{
    struct safetensors_row r = {.name = name.p, .name_len = name.n};

    if (take_tensor(s, &r))
        return ckpt_err_in(s->err, "tensor %.*s", shown(name), name.p);
    return add(ctx, &r, s->err);
}

static int members(struct parser *s, json_t **metadata, safetensors_row_fn *add, void *ctx)
{
    bool seen = false;
    struct ckpt_json_text name;
    int rc;

    do {
        if ((rc = have_member(s)) != 0 || (rc = ckpt_json_take_key(&s->lex, &name)) != 0)
            return rc;
        if (!is(name, "__metadata__")) {
            if ((rc = one_tensor(s, name, add, ctx)) != 0)
                return rc;
        } else if (seen) {
            return ckpt_fail_as(s->err, CKPT_EFORMAT, "duplicate", "__metadata__ appears twice");
        } else {
            seen = true;
            if ((rc = take_metadata(s, metadata)) != 0)
                return rc;
        }
    } while (ckpt_json_take(&s->lex, ','));
    return ckpt_json_want(&s->lex, '}', "a comma or the header's }");
}

int safetensors_header_read(json_t **metadata, struct ckpt_file *file, uint64_t len,
                            safetensors_row_fn *add, void *ctx, struct ckpt_err *err)
{
    struct parser s = {.file = file, .unread = len, .err = err};
    int rc;

    s.lex = (struct ckpt_json_lex){.name = "header", .arena = &s.arena, .err = err};
    rc = refill(&s);

    *metadata = NULL;
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0)
        rc = ckpt_json_want(&s.lex, '{', "the header's {");
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0 && !ckpt_json_take(&s.lex, '}'))
        rc = members(&s, metadata, add, ctx);
    if (rc == 0)
        rc = skip_padding(&s);
    if (rc == 0 && s.lex.p != s.lex.end)
        rc = ckpt_json_stop(&s.lex, "nothing but blanks after the header's }");
    ckpt_arena_release(&s.arena);
    ckpt_free(s.window);
    return rc;
}
