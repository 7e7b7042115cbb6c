/*
 * spm_norm - sentencepiece's own normalizer: the character map by its longest sequence, spaces
 * squeezed and marked, a mark in front.  Source: sentencepiece 2734490 src/normalizer.cc.
 */
#include <string.h>

#include "formats/tokens/spm.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

#define MARK 0x2581u

static int keep_whole(struct norm_step *s, const json_t *list, struct ckpt_err *err)
{
    size_t n = json_array_size(list);
    struct trie_key *key;
    int rc;

    if (n == 0)
        return 0;
    key = ckpt_alloc(n, sizeof *key);
    if (!key)
        return ckpt_nomem(err, n * sizeof *key);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(list, i));

        key[i] = (struct trie_key){(const unsigned char *)(text ? text : ""),
                                   text ? strlen(text) : 0, 1};
    }
    rc = trie_new(&s->whole, key, n, err);
    ckpt_free(key);
    return rc;
}

int spm_norm_parse(struct norm_step *s, const json_t *json, struct ckpt_err *err)
{
    const char *text;
    int rc;

    if ((rc = ckpt_json_str(&text, json, "precompiled_charsmap", err)) != 0 ||
        (rc = ckpt_json_bool_or(&s->left, json, "prefix", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&s->right, json, "suffix", false, err)) != 0 ||
        (rc = ckpt_json_bool_or(&s->squeeze, json, "squeeze", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&s->escape, json, "escape", true, err)) != 0 ||
        (rc = keep_whole(s, json_object_get(json, "whole"), err)) != 0)
        return rc;
    return *text ? charsmap_parse(&s->map, text, err) : 0;
}

/* Length of the longest text at s that is never split, or 0. */
static size_t whole_at(const struct norm_step *step, const unsigned char *s, size_t n)
{
    uint32_t k = TRIE_ROOT;
    size_t found = 0;

    for (size_t i = 0; step->whole && i < n; i++) {
        k = trie_step(step->whole, k, s[i]);
        if (k == TRIE_NONE)
            break;
        if (step->whole->value[k] >= 0)
            found = i + 1;
    }
    return found;
}

/* Replacement of the next bytes of in: returns how many bytes, and [*by, *by + *n_by). */
static size_t next_prefix(const struct norm_step *s, const struct piece *in, size_t pos,
                          const unsigned char **by, size_t *n_by)
{
    const unsigned char *at = in->text + pos;
    size_t left = in->n - pos, n = whole_at(s, at, left);

    if (n == 0 && s->map && (n = charsmap_find(s->map, at, left, false, by, n_by)) > 0)
        return n;
    if (n == 0)
        n = utf8_width(at[0]);
    *by = at;
    *n_by = n;
    return n;
}

/* Remove trailing spaces. */
static void strip_end(struct edit_buf *out, bool escape)
{
    const char *space = escape ? "\xe2\x96\x81" : " ";
    size_t n = strlen(space);

    while (out->n >= n && memcmp(out->byte + out->n - n, space, n) == 0)
        out->n -= n;
}

int spm_norm(const struct norm_step *s, struct norm_work *w, struct piece *p,
             struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit_buf *out = &w->buf[p->text == w->buf[0].byte];
    const unsigned char *by;
    size_t n, n_by, width;
    bool space = s->squeeze;            /* the character before was one */
    uint32_t mark = s->escape ? MARK : ' ';
    struct edit e;

    edit_begin(&e, &in, out);
    for (; s->squeeze && e.pos < in.n; e.pos += n) {
        n = next_prefix(s, &in, e.pos, &by, &n_by);
        if (n_by != 1 || by[0] != ' ')
            break;
    }
    if (e.pos < in.n && s->left && !s->right)
        edit_put(&e, mark, edit_span(&in, e.pos));
    for (; e.pos < in.n; e.pos += n) {
        struct span span;

        n = next_prefix(s, &in, e.pos, &by, &n_by);
        span = (struct span){edit_span(&in, e.pos).start, edit_span(&in, e.pos + n - 1).end};
        while (space && n_by > 0 && by[0] == ' ') {
            by++;
            n_by--;
        }
        for (size_t i = 0; i < n_by; i += width) {
            uint32_t cp = utf8_get(by + i, &width);

            edit_put(&e, cp == ' ' ? mark : cp, span);
        }
        if (n_by > 0)
            space = by[n_by - 1] == ' ';
        space = space && s->squeeze;
    }
    if (s->squeeze)
        strip_end(out, s->escape);
    if (in.n > 0 && out->n > 0 && s->left && s->right)
        edit_put(&e, mark, edit_span(&in, in.n - 1));
    return edit_end(&e, p, err);
}
