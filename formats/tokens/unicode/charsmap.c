/* charsmap - see charsmap.h. */
#include "formats/tokens/unicode/charsmap.h"

#include <string.h>
#include <utf8proc.h>

#include "libckpt/base/base64.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

struct charsmap {
    uint32_t      *unit;
    size_t         n_unit;
    unsigned char *text;            /* replacements, valid UTF-8, NUL after the last */
    size_t         n_text;
    bool           ascii[128];      /* is replaced by itself alone */
};

int charsmap_new(struct charsmap **out, const void *blob, size_t n, struct ckpt_err *err)
{
    const unsigned char *b = blob;
    struct charsmap *map = NULL;
    size_t trie = 0, good;
    int rc = 0;

    *out = NULL;
    if (n >= 4)
        trie = (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    if (n < 4 || trie == 0 || trie % 4 != 0 || trie > n - 4)
        return ckpt_fail(err, CKPT_EFORMAT, "precompiled_charsmap: a trie of %zu bytes in %zu",
                         trie, n);
    map = ckpt_alloc(1, sizeof *map);
    if (map) {
        map->n_unit = trie / 4;
        map->n_text = n - 4 - trie;
        map->unit = ckpt_alloc(map->n_unit, sizeof *map->unit);
        map->text = ckpt_alloc(map->n_text + 1, 1);
    }
    if (!map || !map->unit || !map->text) {
        rc = ckpt_nomem(err, n);
        goto out;
    }
    memcpy(map->text, b + 4 + trie, map->n_text);
    good = utf8_valid_prefix(map->text, map->n_text);
    if (good != map->n_text) {
        rc = ckpt_fail(err, CKPT_EFORMAT,
                       "precompiled_charsmap: replacements are not UTF-8 at byte %zu", good);
        goto out;
    }
    for (size_t i = 0; i < map->n_unit; i++)
        map->unit[i] = (uint32_t)b[4 + 4 * i] | (uint32_t)b[5 + 4 * i] << 8 |
                       (uint32_t)b[6 + 4 * i] << 16 | (uint32_t)b[7 + 4 * i] << 24;
    for (int c = 1; c < 128; c++) {
        unsigned char s = (unsigned char)c;
        const unsigned char *by;

        map->ascii[c] = charsmap_find(map, &s, 1, true, &by, &good) > 0;
    }
    *out = map;
    map = NULL;
out:
    charsmap_free(map);
    return rc;
}

int charsmap_parse(struct charsmap **out, const char *text, struct ckpt_err *err)
{
    size_t len = strlen(text), n;
    unsigned char *blob = ckpt_alloc(len / 4 * 3 + 1, 1);
    int rc;

    *out = NULL;
    if (!blob)
        return ckpt_nomem(err, len);
    rc = base64_decode(blob, &n, text, len)
             ? charsmap_new(out, blob, n, err)
             : ckpt_fail(err, CKPT_EFORMAT, "precompiled_charsmap is not base64");
    ckpt_free(blob);
    return rc;
}

void charsmap_free(struct charsmap *map)
{
    if (!map)
        return;
    ckpt_free(map->unit);
    ckpt_free(map->text);
    ckpt_free(map);
}

static inline size_t offset_of(uint32_t u)
{
    return (size_t)(u >> 10) << ((u & 0x200) >> 6);
}

size_t charsmap_find(const struct charsmap *map, const unsigned char *s, size_t n, bool shortest,
                     const unsigned char **by, size_t *by_len)
{
    size_t node = offset_of(map->unit[0]), found = 0, value = 0;

    for (size_t i = 0; i < n && s[i] != 0; i++) {
        uint32_t u;

        node ^= s[i];
        if (node >= map->n_unit)
            break;
        u = map->unit[node];
        if ((u & 0x800000ff) != s[i])
            break;
        node ^= offset_of(u);
        if (node >= map->n_unit)
            break;
        if (u >> 8 & 1) {
            value = map->unit[node] & 0x7fffffff;
            found = i + 1;
            if (shortest)
                break;
        }
    }
    /* Replacements begin at characters: any other value is damage. */
    if (found == 0 || value > map->n_text || (map->text[value] & 0xc0) == 0x80)
        return 0;
    *by = map->text + value;
    *by_len = strlen((const char *)*by);
    return found;
}

static size_t count_chars(const unsigned char *s, size_t n)
{
    size_t chars = 0;

    for (size_t i = 0; i < n; i++)
        chars += (s[i] & 0xc0) != 0x80;
    return chars;
}

/* Replace the next n bytes by `by`, character for character; surplus characters are new, missing
 * ones belong to the last. */
static void exchange(struct edit *e, size_t n, const unsigned char *by, size_t by_len)
{
    size_t end = e->pos + n, chars = count_chars(e->in->text + e->pos, n), width;

    for (size_t i = 0; i < by_len; i += width) {
        uint32_t cp = utf8_get(by + i, &width);

        if (chars > 0)
            edit_replace(e, cp);
        else
            edit_insert(e, cp);
        chars -= chars > 0;
    }
    edit_drop(e, end - e->pos);
}

/* Bytes of the grapheme cluster at i. */
static size_t cluster(const unsigned char *s, size_t n, size_t i)
{
    utf8proc_int32_t state = 0;
    size_t width, from = i;
    uint32_t cp = utf8_get(s + i, &width), next;

    for (i += width; i < n; i += width) {
        /* ASCII characters are separate clusters, except CR LF. */
        if (s[i] < 0x80 && cp < 0x80 && !(cp == '\r' && s[i] == '\n'))
            break;
        next = utf8_get(s + i, &width);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next,
                                             &state))
            break;
        cp = next;
    }
    return i - from;
}

/* Changes of a text in which something is removed: that counts for the character before, and
 * before the first one not at all, as in the reference. */
struct changes {
    struct { uint32_t cp; int32_t change; } *item;
    size_t n, cap;
};

static bool add_change(struct changes *c, uint32_t cp, int32_t change)
{
    struct ckpt_err ignored = {0};

    if (ckpt_reserve(&c->item, c->n, &c->cap, sizeof *c->item, &ignored))
        return false;
    c->item[c->n].cp = cp;
    c->item[c->n++].change = change;
    return true;
}

/* by in place of chars characters. */
static bool add_changes(struct changes *c, const unsigned char *by, size_t by_len, size_t chars)
{
    size_t more = count_chars(by, by_len), width;
    int32_t less = (int32_t)chars - (int32_t)more;

    for (size_t i = 0, k = 0; i < by_len; i += width, k++)
        if (!add_change(c, utf8_get(by + i, &width), k >= chars))
            return false;
    if (less > 0 && c->n > 0)
        c->item[c->n - 1].change -= less;
    return true;
}

static bool list_changes(const struct charsmap *map, const struct piece *p, struct changes *c)
{
    const unsigned char *by;
    size_t by_len;

    for (size_t i = 0, n, step; i < p->n; i += n) {
        bool whole;

        n = cluster(p->text, p->n, i);
        whole = n < 6 && charsmap_find(map, p->text + i, n, true, &by, &by_len);
        for (size_t k = i; k < i + n; k += step) {
            step = whole ? n : utf8_width(p->text[k]);
            if (whole || charsmap_find(map, p->text + k, step, true, &by, &by_len)) {
                if (!add_changes(c, by, by_len, count_chars(p->text + k, step)))
                    return false;
            } else if (!add_change(c, utf8_get(p->text + k, &step), 0)) {
                return false;
            }
        }
    }
    return true;
}

static int apply_listed(const struct charsmap *map, struct piece *p, struct edit_buf *buf,
                        struct ckpt_err *err)
{
    const struct piece in = *p;
    struct changes c = {0};
    struct edit e;
    int rc;

    if (!list_changes(map, &in, &c)) {
        ckpt_free(c.item);
        return ckpt_nomem(err, c.cap * sizeof *c.item);
    }
    edit_begin(&e, &in, buf);
    for (size_t i = 0; i < c.n; i++) {
        int32_t change = c.item[i].change;

        if (change > 0) {
            edit_insert(&e, c.item[i].cp);
            continue;
        }
        edit_replace(&e, c.item[i].cp);
        for (; change < 0 && e.pos < in.n; change++)
            edit_drop(&e, utf8_width(in.text[e.pos]));
    }
    edit_drop(&e, in.n - e.pos);
    rc = edit_end(&e, p, err);
    ckpt_free(c.item);
    return rc;
}

/* Rewrite one cluster; *begun: e was begun.  False when something is removed entirely. */
static bool rewrite(const struct charsmap *map, struct edit *e, const struct piece *p, size_t i,
                    size_t n, bool *begun, struct edit_buf *buf)
{
    const unsigned char *by;
    size_t by_len, step;
    bool whole = n < 6 && charsmap_find(map, p->text + i, n, true, &by, &by_len);

    for (size_t end = i + n; i < end; i += step) {
        step = whole ? n : utf8_width(p->text[i]);
        if (!whole && !charsmap_find(map, p->text + i, step, true, &by, &by_len))
            continue;
        if (by_len == 0)
            return false;
        if (!*begun)
            edit_begin(e, p, buf);
        *begun = true;
        edit_copy(e, i - e->pos);
        exchange(e, step, by, by_len);
    }
    return true;
}

int charsmap_apply(const struct charsmap *map, struct piece *p, struct edit_buf *buf,
                   struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    bool begun = false;

    for (size_t i = 0, n; i < in.n; i += n) {
        /* Most text: unchanged ASCII. */
        n = 1;
        if (in.text[i] < 0x80 && !map->ascii[in.text[i]] && in.text[i] != '\r' &&
            (i + 1 == in.n || in.text[i + 1] < 0x80))
            continue;
        n = cluster(in.text, in.n, i);
        if (!rewrite(map, &e, &in, i, n, &begun, buf))
            return apply_listed(map, p, buf, err);
    }
    return begun ? edit_end(&e, p, err) : 0;
}
