/* norm_steps - see norm_steps.h.  Source: huggingface/tokenizers 0.23 src/normalizers/. */
#include "formats/tokens/norm_steps.h"

#include <string.h>

/* The buffer that does not hold p. */
static struct edit_buf *other(struct norm_work *w, const struct piece *p)
{
    const struct edit_buf *b = &w->buf[0];

    return b->byte && p->text >= b->byte && p->text < b->byte + b->cap ? &w->buf[1] : &w->buf[0];
}

/* A character is kept, replaced (by *to), or removed. */
enum fate { STAYS, TURNS, GOES };
typedef enum fate fate_fn(uint32_t cp, uint32_t *to);

/* Apply fate to each character; nothing is written before the first one that changes. */
static int each(fate_fn *fate, struct norm_work *w, struct piece *p, struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    size_t width;
    bool begun = false;

    for (size_t i = 0; i < in.n; i += width) {
        uint32_t to;
        enum fate f = fate(utf8_get(in.text + i, &width), &to);

        if (f == STAYS)
            continue;
        if (!begun)
            edit_begin(&e, &in, other(w, &in));
        begun = true;
        edit_copy(&e, i - e.pos);
        if (f == TURNS)
            edit_replace(&e, to);
        else
            edit_drop(&e, width);
    }
    return begun ? edit_end(&e, p, err) : 0;
}

/* Map bytes if the whole piece is ASCII; false when it is not.  Characters keep their positions,
 * so a piece without spans stays one. */
static bool ascii_map(const unsigned char map[128], struct norm_work *w, struct piece *p)
{
    struct edit_buf *buf = other(w, p);
    size_t first = p->n, i = 0;

    for (; i < p->n && p->text[i] < 0x80; i++)
        if (first == p->n && map[p->text[i]] != p->text[i])
            first = i;
    if (i < p->n)
        return false;
    if (first == p->n)
        return true;
    buf->n = 0;
    if (!edit_more(buf, p->n))
        return false;           /* the general path finds the same and reports it */
    memcpy(buf->byte, p->text, first);
    for (i = first; i < p->n; i++)
        buf->byte[i] = map[p->text[i]];
    if (p->span)
        memcpy(buf->span, p->span, p->n * sizeof *p->span);
    p->span = p->span ? buf->span : NULL;
    p->text = buf->byte;
    return true;
}

int norm_compose(const struct norm_step *s, struct norm_work *w, struct piece *p,
                 struct ckpt_err *err)
{
    return compose(p, s->form, w->compose, other(w, p), err);
}

int norm_lowercase(const struct norm_step *s, struct norm_work *w, struct piece *p,
                   struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    unsigned char map[128];
    size_t width;
    bool begun = false;

    (void)s;
    for (int c = 0; c < 128; c++)
        map[c] = (unsigned char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    if (ascii_map(map, w, p))
        return 0;
    for (size_t i = 0; i < in.n; i += width) {
        uint32_t cp = utf8_get(in.text + i, &width), lower = unicode_lower(cp);

        if (lower == cp && cp != 0x130)
            continue;
        if (!begun)
            edit_begin(&e, &in, other(w, &in));
        begun = true;
        edit_copy(&e, i - e.pos);
        edit_replace(&e, cp == 0x130 ? 'i' : lower);
        if (cp == 0x130)
            edit_insert(&e, 0x307);
    }
    return begun ? edit_end(&e, p, err) : 0;
}

int norm_strip(const struct norm_step *s, struct norm_work *w, struct piece *p,
               struct ckpt_err *err)
{
    size_t from = 0, to = p->n, width, i;

    (void)w;
    (void)err;
    while (s->left && from < to && unicode_is_space(utf8_get(p->text + from, &width)))
        from += width;
    while (s->right && to > from) {
        for (i = to - 1; i > from && (p->text[i] & 0xc0) == 0x80; i--)
            ;
        if (!unicode_is_space(utf8_get(p->text + i, &width)))
            break;
        to = i;
    }
    p->text += from;
    p->n = to - from;
    if (p->span)
        p->span += from;
    else
        p->at += from;
    return 0;
}

static enum fate fate_mark(uint32_t cp, uint32_t *to)
{
    (void)to;
    return cp >= 0x300 && unicode_is_mark(cp) ? GOES : STAYS;
}

int norm_strip_accents(const struct norm_step *s, struct norm_work *w, struct piece *p,
                       struct ckpt_err *err)
{
    (void)s;
    return each(fate_mark, w, p, err);
}

static enum fate fate_nonspacing(uint32_t cp, uint32_t *to)
{
    (void)to;
    return cp >= 0x300 && unicode_is_nonspacing(cp) ? GOES : STAYS;
}

int norm_strip_nonspacing(const struct norm_step *s, struct norm_work *w, struct piece *p,
                          struct ckpt_err *err)
{
    (void)s;
    return each(fate_nonspacing, w, p, err);
}

/* BertNormalizer's clean_text. */
static enum fate fate_clean(uint32_t cp, uint32_t *to)
{
    *to = ' ';
    if (cp > ' ' && cp < 0x7f)
        return STAYS;
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return TURNS;
    if (cp == 0 || cp == 0xfffd || unicode_is_control(cp))
        return GOES;
    return cp != ' ' && unicode_is_space(cp) ? TURNS : STAYS;
}

int norm_clean(const struct norm_step *s, struct norm_work *w, struct piece *p,
               struct ckpt_err *err)
{
    bool plain = true;

    (void)s;
    for (size_t i = 0; plain && i < p->n; i++)
        plain = p->text[i] >= ' ' && p->text[i] < 0x7f;
    return plain ? 0 : each(fate_clean, w, p, err);
}

static enum fate fate_nmt(uint32_t cp, uint32_t *to)
{
    *to = ' ';
    if (cp >= ' ' && cp < 0x7f)
        return STAYS;
    if ((cp >= 1 && cp <= 8) || cp == 0x0b || (cp >= 0x0e && cp <= 0x1f) || cp == 0x7f ||
        cp == 0x8f || cp == 0x9f)
        return GOES;
    return cp == 0x09 || cp == 0x0a || cp == 0x0c || cp == 0x0d || cp == 0x1680 ||
                   (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 ||
                   cp == 0x2581 || cp == 0xfeff || cp == 0xfffd ? TURNS : STAYS;
}

int norm_nmt(const struct norm_step *s, struct norm_work *w, struct piece *p,
             struct ckpt_err *err)
{
    (void)s;
    return each(fate_nmt, w, p, err);
}

static bool is_chinese(uint32_t cp)
{
    return cp >= 0x3400 &&
           (cp <= 0x4dbf || (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0xf900 && cp <= 0xfaff) ||
            (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b81f) ||
            (cp >= 0x2b920 && cp <= 0x2ceaf) || (cp >= 0x2f800 && cp <= 0x2fa1f));
}

int norm_chinese(const struct norm_step *s, struct norm_work *w, struct piece *p,
                 struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    size_t width;
    bool begun = false;

    (void)s;
    for (size_t i = 0; i < in.n; i += width) {
        uint32_t cp = utf8_get(in.text + i, &width);

        if (!is_chinese(cp))
            continue;
        if (!begun)
            edit_begin(&e, &in, other(w, &in));
        begun = true;
        edit_copy(&e, i - e.pos);
        edit_replace(&e, ' ');
        edit_insert(&e, cp);
        edit_insert(&e, ' ');
    }
    return begun ? edit_end(&e, p, err) : 0;
}

static void insert_text(struct edit *e, const char *text, size_t n)
{
    size_t width;

    for (size_t i = 0; i < n; i += width)
        edit_insert(e, utf8_get((const unsigned char *)text + i, &width));
}

/* Replace a single byte everywhere: what nearly every file with Replace does. */
static int replace_byte(const struct norm_step *s, struct norm_work *w, struct piece *p,
                        struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    const unsigned char *at = memchr(in.text, s->only, in.n);

    if (!at)
        return 0;
    edit_begin(&e, &in, other(w, &in));
    do {
        edit_copy(&e, (size_t)(at - in.text) - e.pos);
        edit_drop(&e, 1);
        insert_text(&e, s->text, s->n_text);
    } while ((at = memchr(in.text + e.pos, s->only, in.n - e.pos)));
    return edit_end(&e, p, err);
}

int norm_replace(const struct norm_step *s, struct norm_work *w, struct piece *p,
                 struct ckpt_err *err)
{
    const struct piece in = *p;
    struct regex_match m = {0};
    struct edit e;
    bool begun = false, found;
    int rc;

    if (in.n == 0)
        return 0;
    if (s->only >= 0)
        return replace_byte(s, w, p, err);
    for (;;) {
        if ((rc = regex_next(s->regex, w->regex, in.text, in.n, &m, &found, err)) != 0)
            return rc;
        if (!found)
            return begun ? edit_end(&e, p, err) : 0;
        if (!begun)
            edit_begin(&e, &in, other(w, &in));
        begun = true;
        edit_copy(&e, m.start - e.pos);
        edit_drop(&e, m.end - m.start);
        insert_text(&e, s->text, s->n_text);
    }
}

int norm_prepend(const struct norm_step *s, struct norm_work *w, struct piece *p,
                 struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    size_t width, first;

    if (in.n == 0 || s->n_text == 0)
        return 0;
    edit_begin(&e, &in, other(w, &in));
    edit_replace(&e, utf8_get((const unsigned char *)s->text, &width));
    insert_text(&e, s->text + width, s->n_text - width);
    edit_insert(&e, utf8_get(in.text, &first));
    return edit_end(&e, p, err);
}

int norm_precompiled(const struct norm_step *s, struct norm_work *w, struct piece *p,
                     struct ckpt_err *err)
{
    return charsmap_apply(s->map, p, other(w, p), err);
}

/* Replace every byte by the character that spells it. */
int norm_bytes(const struct norm_step *s, struct norm_work *w, struct piece *p,
               struct ckpt_err *err)
{
    (void)s;
    return edit_spell_bytes(p, other(w, p), err);
}
