/*
 * bleu_words - sacreBLEU's tokenizers; see metric.h.
 *
 * Source: sacreBLEU 2.6 tokenizers/tokenizer_{13a,re,intl,char,zh,none}.py, whose regular
 * expressions are the rows below.
 */
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/err.h"
#include "tools/eval/score/metric.h"

/* A substitution of one character, or of two in a row, by themselves with text around them. */
struct step {
    bool (*first)(uint32_t cp);
    bool (*second)(uint32_t cp);        /* NULL: one alone */
    const char *before, *between, *after;
};

static bool is_digit(uint32_t cp) { return cp >= '0' && cp <= '9'; }
static bool is_no_digit(uint32_t cp) { return !is_digit(cp); }
static bool is_point(uint32_t cp) { return cp == '.' || cp == ','; }
static bool is_dash(uint32_t cp) { return cp == '-'; }

/* ASCII but letters, digits and ' , - . */
static bool is_sign(uint32_t cp)
{
    return (cp >= '{' && cp <= '~') || (cp >= '[' && cp <= '`') || (cp >= ' ' && cp <= '&') ||
           (cp >= '(' && cp <= '+') || (cp >= ':' && cp <= '@') || cp == '/';
}

static bool is_no_number(uint32_t cp) { return !unicode_is_numeric(cp); }

static const struct step steps_13a[] = {
    {is_sign, NULL, " ", "", " "},
    {is_no_digit, is_point, "", " ", " "},
    {is_point, is_no_digit, " ", " ", ""},
    {is_digit, is_dash, "", " ", " "},
};
static const struct step steps_intl[] = {
    {is_no_number, unicode_is_p, "", " ", " "},
    {unicode_is_p, is_no_number, " ", " ", ""},
    {unicode_is_symbol, NULL, " ", "", " "},
};

/*
 * Chinese and full-width characters.  Two ranges are as in the source, where five digits follow on
 * \u: the fifth is a character of its own.
 */
static bool is_chinese(uint32_t cp)
{
    static const struct { uint32_t first, last; } ranges[] = {
        {0x3400, 0x4db5}, {0x4e00, 0x9fa5}, {0x9fa6, 0x9fbb}, {0xf900, 0xfa2d}, {0xfa30, 0xfa6a},
        {0xfa70, 0xfad9}, {0x2001, 0x2a6d}, {0x2f81, 0x2fa1}, {0xff00, 0xffef}, {0x2e80, 0x2eff},
        {0x3000, 0x303f}, {0x31c0, 0x31ef}, {0x2f00, 0x2fdf}, {0x2ff0, 0x2fff}, {0x3100, 0x312f},
        {0x31a0, 0x31bf}, {0xfe10, 0xfe1f}, {0xfe30, 0xfe4f}, {0x2600, 0x26ff}, {0x2700, 0x27bf},
        {0x3200, 0x32ff}, {0x3300, 0x33ff},
    };

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (cp >= ranges[i].first && cp <= ranges[i].last)
            return true;
    return false;
}

static const struct step steps_zh[] = {{is_chinese, NULL, " ", "", " "}};

/* Replace the bytes of *b by those after a step; matches do not overlap. */
static void substitute(struct ckpt_buf *b, const struct step *step)
{
    struct ckpt_buf out;
    const unsigned char *s = b->data;
    size_t n, width, next;

    ckpt_buf_init(&out, SIZE_MAX);
    for (size_t at = 0; at < b->len; at += width) {
        bool hit = step->first(utf8_get(s + at, &width));

        n = width;
        if (hit && step->second) {
            hit = at + n < b->len && step->second(utf8_get(s + at + n, &next));
            width += hit ? next : 0;
        }
        ckpt_buf_put_str(&out, hit ? step->before : "");
        ckpt_buf_put(&out, s + at, n);
        ckpt_buf_put_str(&out, hit ? step->between : "");
        ckpt_buf_put(&out, s + at + n, width - n);
        ckpt_buf_put_str(&out, hit ? step->after : "");
    }
    ckpt_buf_release(b);
    *b = out;
}

/* Replace one text by another, wherever it is. */
static void replace(struct ckpt_buf *b, const char *from, const char *to)
{
    struct ckpt_buf out;
    size_t n = strlen(from), at = 0;

    if (b->len < n || !memmem(b->data, b->len, from, n))
        return;
    ckpt_buf_init(&out, SIZE_MAX);
    while (at < b->len) {
        const unsigned char *hit = memmem(b->data + at, b->len - at, from, n);
        size_t end = hit ? (size_t)(hit - b->data) : b->len;

        ckpt_buf_put(&out, b->data + at, end - at);
        if (hit)
            ckpt_buf_put_str(&out, to);
        at = end + (hit ? n : 0);
    }
    ckpt_buf_release(b);
    *b = out;
}

static void all_steps(struct ckpt_buf *b, const struct step *step, size_t n)
{
    for (size_t i = 0; i < n && ckpt_buf_ok(b); i++)
        substitute(b, &step[i]);
}

#define ALL(b, steps) all_steps(b, steps, sizeof (steps) / sizeof (steps)[0])

static void plain_13a(struct ckpt_buf *b)
{
    static const struct { const char *from, *to; } of[] = {
        {"<skipped>", ""}, {"-\n", ""}, {"\n", " "}, {"&quot;", "\""}, {"&amp;", "&"},
        {"&lt;", "<"}, {"&gt;", ">"},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        replace(b, of[i].from, of[i].to);
}

/* A blank at both ends, as the rules for points need it. */
static void pad(struct ckpt_buf *b)
{
    struct ckpt_buf out;

    ckpt_buf_init(&out, SIZE_MAX);
    ckpt_buf_put_u8(&out, ' ');
    ckpt_buf_put(&out, b->data, b->len);
    ckpt_buf_put_u8(&out, ' ');
    ckpt_buf_release(b);
    *b = out;
}

int metric_bleu_words(struct words *w, enum bleu_variant variant, const char *line,
               struct words_vocab *v, struct ckpt_err *err)
{
    size_t len;
    const char *text = words_strip(line, &len), *from = variant == BLEU_ZH ? text : line;
    struct ckpt_buf b;
    int rc;

    if (variant == BLEU_CHAR)
        return words_characters(w, line, err);
    ckpt_buf_init(&b, SIZE_MAX);
    ckpt_buf_put(&b, from, (size_t)(text - from) + len);
    if (variant == BLEU_13A) {
        plain_13a(&b);
        pad(&b);
    } else if (variant == BLEU_ZH) {
        ALL(&b, steps_zh);
    }
    if (variant == BLEU_13A || variant == BLEU_ZH)
        ALL(&b, steps_13a);
    else if (variant == BLEU_INTL)
        ALL(&b, steps_intl);
    rc = ckpt_buf_ok(&b) ? words_split(w, (char *)b.data, b.len, v, err) : ckpt_nomem(err, len);
    ckpt_buf_release(&b);
    return rc;
}
