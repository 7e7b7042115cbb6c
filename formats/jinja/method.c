/* jinja/method - methods of strings and mappings as Python has them; nothing that changes a value,
 * as transformers' sandbox forbids it. */
#include <string.h>
#include <utf8proc.h>

#include "formats/jinja/parts.h"

enum method {
    M_STRIP, M_LSTRIP, M_RSTRIP, M_SPLIT, M_RSPLIT, M_SPLITLINES, M_STARTSWITH, M_ENDSWITH, M_UPPER,
    M_LOWER, M_CAPITALIZE, M_TITLE, M_REPLACE, M_FIND, M_RFIND, M_COUNT, M_REMOVEPREFIX,
    M_REMOVESUFFIX, M_JOIN, M_ISDIGIT, M_FORMAT, M_GET, M_ITEMS, M_KEYS, M_VALUES
};

static const struct { const char *name; enum method method; enum jv_kind of; } methods[] = {
    {"strip", M_STRIP, V_STRING}, {"lstrip", M_LSTRIP, V_STRING}, {"rstrip", M_RSTRIP, V_STRING},
    {"split", M_SPLIT, V_STRING}, {"rsplit", M_RSPLIT, V_STRING},
    {"splitlines", M_SPLITLINES, V_STRING}, {"startswith", M_STARTSWITH, V_STRING},
    {"endswith", M_ENDSWITH, V_STRING}, {"upper", M_UPPER, V_STRING}, {"lower", M_LOWER, V_STRING},
    {"capitalize", M_CAPITALIZE, V_STRING}, {"title", M_TITLE, V_STRING},
    {"replace", M_REPLACE, V_STRING}, {"find", M_FIND, V_STRING}, {"rfind", M_RFIND, V_STRING},
    {"count", M_COUNT, V_STRING}, {"removeprefix", M_REMOVEPREFIX, V_STRING},
    {"removesuffix", M_REMOVESUFFIX, V_STRING}, {"join", M_JOIN, V_STRING},
    {"isdigit", M_ISDIGIT, V_STRING}, {"format", M_FORMAT, V_STRING},
    {"get", M_GET, V_MAP}, {"items", M_ITEMS, V_MAP},
    {"keys", M_KEYS, V_MAP}, {"values", M_VALUES, V_MAP},
};

static int find_method(enum jv_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].of == kind && strcmp(methods[i].name, name) == 0)
            return (int)methods[i].method;
    return -1;
}

bool jinja_has_method(const struct jv *v, const char *name)
{
    return find_method(v->kind, name) >= 0;
}

/* Whether to strip the character at s, *width bytes long: one of chars, or white space. */
static bool goes(const char *s, size_t n, const struct jv *chars, size_t *width)
{
    if (chars->kind != V_STRING)
        return jv_utf8_is_space(s, n, width);
    *width = jv_utf8_offset(s, n, 1);
    return chars->str.n > 0 && memmem(chars->str.s, chars->str.n, s, *width);
}

struct jv jinja_strip(struct jv v, const struct jv *chars, bool left, bool right)
{
    const char *s = v.str.s;
    size_t from = 0, end = v.str.n, width;

    while (left && from < end && goes(s + from, end - from, chars, &width))
        from += width;
    while (right && end > from) {
        size_t last = end - 1;

        while (last > from && ((unsigned char)s[last] & 0xc0) == 0x80)
            last--;
        if (!goes(s + last, end - last, chars, &width))
            break;
        end = last;
    }
    v.str.s = s + from;
    v.str.n = end - from;
    return v;
}

/* Split at runs of white space. */
static void split_words(struct run *r, struct jv_list *out, struct jv v, int64_t most)
{
    const struct jv space = {.kind = V_NONE};

    while (!r->rc) {
        size_t n = 0, width;

        v = jinja_strip(v, &space, true, false);
        if (v.str.n == 0)
            return;
        if (most >= 0 && (int64_t)out->n == most) {
            jv_append(r, out, jinja_strip(v, &space, false, true));
            return;
        }
        while (n < v.str.n && !jv_utf8_is_space(v.str.s + n, v.str.n - n, &width))
            n += width;
        jv_append(r, out, jv_str(v.str.s, n));
        v = jv_str(v.str.s + n, v.str.n - n);
    }
}

static const char *find_last(const char *s, size_t n, const char *what, size_t len)
{
    for (size_t i = n - len + 1; len <= n && i-- > 0;)
        if (memcmp(s + i, what, len) == 0)
            return s + i;
    return NULL;
}

static struct jv split(struct run *r, struct jv v, const struct jv *by, int64_t most,
                          bool from_right)
{
    struct jv out = jv_list_new(r, 0);
    const char *at;

    if (r->rc)
        return out;
    if (by->kind != V_STRING) {
        split_words(r, out.list, v, most);
        return out;
    }
    if (by->str.n == 0) {
        jinja_fail(r, CKPT_EFORMAT, "split by an empty string");
        return out;
    }
    while (!r->rc && (most < 0 || (int64_t)out.list->n < most) &&
           (at = from_right ? find_last(v.str.s, v.str.n, by->str.s, by->str.n)
                            : v.str.n ? memmem(v.str.s, v.str.n, by->str.s, by->str.n) : NULL)) {
        size_t n = (size_t)(at - v.str.s), rest = v.str.n - n - by->str.n;

        jv_append(r, out.list, from_right ? jv_str(at + by->str.n, rest)
                                             : jv_str(v.str.s, n));
        v = from_right ? jv_str(v.str.s, n) : jv_str(at + by->str.n, rest);
    }
    if (!r->rc)
        jv_append(r, out.list, v);
    for (size_t i = 0; from_right && i < out.list->n / 2; i++) {
        struct jv kept = out.list->item[i];

        out.list->item[i] = out.list->item[out.list->n - 1 - i];
        out.list->item[out.list->n - 1 - i] = kept;
    }
    return out;
}

static struct jv split_lines(struct run *r, struct jv v)
{
    struct jv out = jv_list_new(r, 0);

    while (!r->rc && v.str.n > 0) {
        size_t n = 0, gap;

        while (n < v.str.n && v.str.s[n] != '\n' && v.str.s[n] != '\r')
            n++;
        gap = n < v.str.n;
        if (n + 1 < v.str.n && v.str.s[n] == '\r' && v.str.s[n + 1] == '\n')
            gap = 2;
        jv_append(r, out.list, jv_str(v.str.s, n));
        v = jv_str(v.str.s + n + gap, v.str.n - n - gap);
    }
    return out;
}

struct jv jinja_replace(struct run *r, struct jv v, const struct jv *from,
                           const struct jv *to, int64_t most)
{
    struct ckpt_buf b;
    size_t i = 0;

    if (from->kind != V_STRING || to->kind != V_STRING) {
        jinja_fail(r, CKPT_EFORMAT, "replace of %s by %s", jv_type(from), jv_type(to));
        return v;
    }
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    while (i < v.str.n) {
        if (most != 0 && from->str.n <= v.str.n - i &&
            memcmp(v.str.s + i, from->str.s, from->str.n) == 0) {
            ckpt_buf_put(&b, to->str.s, to->str.n);
            i += from->str.n;
            most -= most > 0;
            if (from->str.n > 0 || i >= v.str.n)
                continue;
        }
        {
            size_t n = jv_utf8_offset(v.str.s + i, v.str.n - i, 1);

            ckpt_buf_put(&b, v.str.s + i, n);
            i += n;
        }
    }
    if (from->str.n == 0 && most != 0)
        ckpt_buf_put(&b, to->str.s, to->str.n);
    return jv_of_buf(r, &b);
}

static int ascii_upper(int c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; }
static int ascii_lower(int c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; }

/* how: 'u' upper, 'l' lower, 't' title (a capital after every gap), 'w' the filter's title (after
 * white space, hyphens and opening brackets), 'c' the first letter only. */
struct jv jinja_case(struct run *r, struct jv v, char how)
{
    bool begin = true;
    struct ckpt_buf b;

    jv_work(r, JINJA_SLOW * v.str.n);
    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    for (size_t i = 0; i < v.str.n && !r->rc;) {
        utf8proc_uint8_t text[4];
        utf8proc_int32_t c = (unsigned char)v.str.s[i];
        utf8proc_ssize_t n = c < 0x80 ? 1
                                      : utf8proc_iterate((const utf8proc_uint8_t *)v.str.s + i,
                                                         (utf8proc_ssize_t)(v.str.n - i), &c);
        size_t width;
        bool letter, space, up = how == 'u' || (how != 'l' && begin);

        if (n <= 0)
            break;
        letter = how == 't' && utf8proc_category(c) >= UTF8PROC_CATEGORY_LU &&
                 utf8proc_category(c) <= UTF8PROC_CATEGORY_LO;
        space = how == 'w' && jv_utf8_is_space(v.str.s + i, v.str.n - i, &width);
        if (c < 0x80) {
            ckpt_buf_put_u8(&b, (uint8_t)(up ? ascii_upper(c) : ascii_lower(c)));
        } else if (c == 0xdf && up) {
            ckpt_buf_put_str(&b, how == 'u' || how == 'w' ? "SS" : "Ss");
        } else {
            c = up ? utf8proc_toupper(c) : utf8proc_tolower(c);
            ckpt_buf_put(&b, text, (size_t)utf8proc_encode_char(c, text));
        }
        begin = how == 't' ? !letter
                : how == 'w' && (space || (c < 0x80 && strchr("-({[<", (int)c)));
        i += (size_t)n;
    }
    return jv_of_buf(r, &b);
}

struct jv jinja_join(struct run *r, const struct jv_list *items, const struct jv *by)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, JINJA_MAX_OUTPUT);
    for (size_t i = 0; i < items->n; i++) {
        if (i && by->kind != V_UNDEFINED)
            jv_print(&b, by, false);
        jv_print(&b, &items->item[i], false);
    }
    return jv_of_buf(r, &b);
}

/* A prefix or suffix, or one of a tuple of them. */
static bool ends_with(const struct jv *v, const struct jv *what, bool start)
{
    if (what->kind == V_LIST) {
        for (size_t i = 0; i < what->list->n; i++)
            if (what->list->item[i].kind == V_STRING && ends_with(v, &what->list->item[i], start))
                return true;
        return false;
    }
    return what->kind == V_STRING && what->str.n <= v->str.n &&
           memcmp(v->str.s + (start ? 0 : v->str.n - what->str.n), what->str.s, what->str.n) == 0;
}

static struct jv find(struct run *r, const struct jv *v, const struct jv *what, bool last)
{
    const char *at;

    if (what->kind != V_STRING) {
        jinja_fail(r, CKPT_EFORMAT, "find of %s", jv_type(what));
        return jv_none();
    }
    at = what->str.n == 0 ? v->str.s + (last ? v->str.n : 0)
         : last ? find_last(v->str.s, v->str.n, what->str.s, what->str.n)
         : v->str.n ? memmem(v->str.s, v->str.n, what->str.s, what->str.n) : NULL;
    return jv_int(at ? (int64_t)jv_utf8_count(v->str.s, (size_t)(at - v->str.s)) : -1);
}

static struct jv count(struct run *r, struct jv v, const struct jv *what)
{
    struct jv list;

    if (what->kind != V_STRING || what->str.n == 0) {
        jinja_fail(r, CKPT_EFORMAT, "count of %s", jv_type(what));
        return v;
    }
    list = split(r, v, what, -1, false);
    return r->rc ? list : jv_int((int64_t)list.list->n - 1);
}

static bool is_digits(const struct jv *v)
{
    for (size_t i = 0; i < v->str.n; i++)
        if (v->str.s[i] < '0' || v->str.s[i] > '9')
            return false;
    return v->str.n > 0;
}

/* Bytes that a method examines: a method that compares at each position examines a repeatedly. */
static size_t work_of(int method, const struct jv *v, const struct jv *a)
{
    static const bool often[] = {[M_STRIP] = true,  [M_LSTRIP] = true, [M_RSTRIP] = true,
                                 [M_RSPLIT] = true, [M_RFIND] = true,  [M_REPLACE] = true,
                                 [M_VALUES] = false};
    size_t by = a->kind == V_STRING ? a->str.n : 0;

    return often[method] ? v->str.n * (JINJA_SLOW + by) : JINJA_SLOW * v->str.n + by;
}

static struct jv string_method(struct run *r, int method, struct jv v, const struct args *args)
{
    struct jv none = jv_none(), a = jinja_arg(args, 0, method == M_SPLIT ? "sep" : "chars", none),
                 b = jinja_arg(args, 1, method == M_SPLIT ? "maxsplit" : "", none);
    struct jv_list *items;

    jv_work(r, work_of(method, &v, &a));
    if (r->rc)
        return none;
    switch (method) {
    case M_STRIP:      return jinja_strip(v, &a, true, true);
    case M_LSTRIP:     return jinja_strip(v, &a, true, false);
    case M_RSTRIP:     return jinja_strip(v, &a, false, true);
    case M_SPLIT:
    case M_RSPLIT:     return split(r, v, &a, b.kind == V_INT ? b.i : -1, method == M_RSPLIT);
    case M_SPLITLINES: return split_lines(r, v);
    case M_STARTSWITH:
    case M_ENDSWITH:   return jv_bool(ends_with(&v, &a, method == M_STARTSWITH));
    case M_UPPER:      return jinja_case(r, v, 'u');
    case M_LOWER:      return jinja_case(r, v, 'l');
    case M_CAPITALIZE: return jinja_case(r, v, 'c');
    case M_TITLE:      return jinja_case(r, v, 't');
    case M_REPLACE:
        none = jinja_arg(args, 2, "count", none);
        return jinja_replace(r, v, &a, &b, none.kind == V_INT ? none.i : -1);
    case M_FIND:
    case M_RFIND:      return find(r, &v, &a, method == M_RFIND);
    case M_COUNT:      return count(r, v, &a);
    case M_REMOVEPREFIX:
        return ends_with(&v, &a, true) && a.kind == V_STRING
                   ? jv_str(v.str.s + a.str.n, v.str.n - a.str.n) : v;
    case M_REMOVESUFFIX:
        return ends_with(&v, &a, false) && a.kind == V_STRING
                   ? jv_str(v.str.s, v.str.n - a.str.n) : v;
    case M_JOIN:
        return jv_items(r, &a, &items) ? none : jinja_join(r, items, &v);
    case M_FORMAT:     return jinja_format(r, v, args);
    default:           return jv_bool(is_digits(&v));
    }
}

/* what: M_ITEMS pairs, M_KEYS, M_VALUES */
static struct jv members(struct run *r, const struct jv_map *map, int what)
{
    struct jv out = jv_list_new(r, map->n);

    for (size_t i = 0; i < map->n && !r->rc; i++) {
        struct jv pair = what == M_KEYS ? map->pair[i].key : map->pair[i].value;

        if (what == M_ITEMS) {
            pair = jv_list_new(r, 2);
            if (r->rc)
                break;
            jv_append(r, pair.list, map->pair[i].key);
            jv_append(r, pair.list, map->pair[i].value);
            pair.is_tuple = true;
        }
        jv_append(r, out.list, pair);
    }
    return out;
}

struct jv jinja_items(struct run *r, const struct jv_map *map)
{
    return members(r, map, M_ITEMS);
}

struct jv jinja_method(struct run *r, const struct jv *self, const char *name,
                          const struct args *args)
{
    int method = find_method(self->kind, name);
    struct jv key = jinja_arg(args, 0, "key", jv_none());
    const struct jv *found;

    if (method < 0)
        return jinja_loop_method(r, self, name, args);
    if (self->kind == V_STRING)
        return string_method(r, method, *self, args);
    if (method != M_GET)
        return members(r, self->map, method);
    found = jv_find(r, self->map, &key);
    return found ? *found : jinja_arg(args, 1, "default", jv_none());
}
