/* out_fit - see out_fit.h. */
#include "tools/out_fit.h"

#include <stdio.h>
#include <string.h>

#define GAP   2
#define LEAST 12                /* narrowest column of cut text */
#define NAME  32                /* narrowest first column, while other columns can be dropped */
#define OTHER 16
#define WRAP  24

size_t out_fit_columns(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static size_t total(const struct out_fit *f)
{
    size_t n = 0, shown = 0;

    for (size_t i = 0; i < f->n_column; i++)
        if (f->column[i].title && !f->dropped[i]) {
            n += f->width[i] + (shown ? GAP : 0);
            shown++;
        }
    return n;
}

/* The smallest width of column i. */
static size_t least(const struct out_fit *f, size_t i, size_t first, bool hard)
{
    size_t title = out_fit_columns(f->column[i].title);
    size_t n = hard ? LEAST : f->column[i].align == OUT_WRAP ? WRAP : i == first ? NAME : OTHER;

    return n > title ? n : title;
}

/* Narrow the widest text column repeatedly; false when that does not suffice. */
static bool narrow(struct out_fit *f, size_t screen, bool hard)
{
    size_t first = 0;

    while (first < f->n_column && !f->column[first].title)
        first++;
    for (size_t all = total(f); all > screen; all--) {
        size_t widest = SIZE_MAX;

        for (size_t i = 0; i < f->n_column; i++)
            if (f->column[i].title && !f->dropped[i] && f->column[i].align != OUT_RIGHT &&
                f->width[i] > least(f, i, first, hard) &&
                (widest == SIZE_MAX || f->width[i] > f->width[widest]))
                widest = i;
        if (widest == SIZE_MAX)
            return false;
        f->width[widest]--;
    }
    return true;
}

void out_fit_to(struct out_fit *f, size_t screen)
{
    const struct out_fit wanted = *f;
    size_t last = f->n_column;

    if (screen == 0 || narrow(f, screen, false))
        return;
    *f = wanted;
    while (last > 0) {                  /* drop the last columns, except wrapped ones */
        if (!f->column[--last].title || f->column[last].align == OUT_WRAP)
            continue;
        for (size_t i = 0; i < f->n_column; i++)
            f->width[i] = wanted.width[i];
        f->dropped[last] = true;
        if (total(f) == 0)
            break;
        if (narrow(f, screen, false))
            return;
    }
    *f = wanted;                        /* nothing fits: keep the wanted widths */
    narrow(f, screen, true);
}

/* Bytes of the first n characters. */
static size_t bytes_of(const char *s, size_t n)
{
    size_t at = 0;

    while (s[at] && n > 0) {
        at++;
        while (((unsigned char)s[at] & 0xc0) == 0x80)
            at++;
        n--;
    }
    return at;
}

const char *out_fit_cut(char dst[OUT_FIT_CUT], const char *text, size_t width)
{
    size_t n = out_fit_columns(text), head = width / 3, tail;

    if (n <= width)
        return text;
    tail = bytes_of(text, n - (width - 1 - head));      /* names differ at their ends */
    head = bytes_of(text, head);
    snprintf(dst, OUT_FIT_CUT, "%.*s\u2026%s", (int)head, text, text + tail);
    return dst;
}

const char *out_fit_wrap(char dst[OUT_FIT_CUT], const char *text, size_t width, const char **rest)
{
    size_t n = bytes_of(text, width), end = n;

    *rest = NULL;
    if (!text[n])
        return text;
    while (end > 0 && text[end] != ' ')
        end--;
    if (end == 0)
        end = n;
    if (end >= OUT_FIT_CUT)
        end = OUT_FIT_CUT - 1;
    memcpy(dst, text, end);
    dst[end] = '\0';
    *rest = text + end + strspn(text + end, " ");
    return dst;
}
