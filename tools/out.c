/* out - see out.h.  Both forms are written during the calls: no tree is built. */
#include "tools/out.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "tools/out_fit.h"
#include "tools/term.h"

#define MAX_COLUMNS OUT_FIT_COLUMNS
#define CUT         200         /* most characters of a name shown to people */
#define MAX_BYTES   ((size_t)1 << 30)

struct out {
    bool                     json, begun;
    struct ckpt_buf          text;
    const struct out_column *column;    /* columns of the current table */
    size_t                   n_column, n_cell;
    struct ckpt_arena        arena;     /* cells as text, for people */
    char                   **cell;
    size_t                   cap;
    size_t                   screen;    /* columns of the terminal; 0: unlimited */
    bool                     bold;      /* headings are */
};

int out_new(struct out **out, bool json, struct ckpt_err *err)
{
    struct out *o = ckpt_alloc(1, sizeof *o);

    *out = NULL;
    if (!o)
        return ckpt_nomem(err, sizeof *o);
    o->json = json;
    o->screen = (size_t)term_columns(STDOUT_FILENO);
    o->bold = term_bold(STDOUT_FILENO);
    ckpt_buf_init(&o->text, MAX_BYTES);
    *out = o;
    return 0;
}

/* Put text in quotes; bytes that jansson would refuse become \xNN first. */
static void put_quoted(struct out *o, const char *s)
{
    static const char plain[] = "\"\\";
    size_t n = 0, len;
    char safe[4096], *dump;
    json_t *v;

    while (s[n] >= ' ' && s[n] < 0x7f && !strchr(plain, s[n]))
        n++;
    if (s[n] == '\0') {
        ckpt_buf_put_u8(&o->text, '"');
        ckpt_buf_put(&o->text, s, n);
        ckpt_buf_put_u8(&o->text, '"');
        return;
    }
    len = strlen(s);
    v = ckpt_utf8_valid(s, len) ? json_string_nocheck(s)
                                : json_string_nocheck(ckpt_err_escape(safe, sizeof safe, s, len));
    dump = json_dumps(v, JSON_ENCODE_ANY);
    if (dump)
        ckpt_buf_put_str(&o->text, dump);
    else
        o->text.failed = true;
    free(dump);                         /* jansson's own */
    json_decref(v);
}

/* The shortest digits that read back to the same bits. */
static void put_real(struct out *o, double v)
{
    char text[40];

    if (!isfinite(v)) {
        ckpt_buf_put_str(&o->text, "null");     /* JSON cannot express it */
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    ckpt_buf_put_str(&o->text, text);
    if (!strpbrk(text, ".e"))
        ckpt_buf_put_str(&o->text, ".0");
}

static void put_key(struct out *o, const char *key)
{
    ckpt_buf_put_str(&o->text, o->begun ? ",\n  " : "{\n  ");
    o->begun = true;
    put_quoted(o, key);
    ckpt_buf_put_str(&o->text, ": ");
}

static void field(struct out *o, const char *title, const char *text)
{
    char safe[4096];

    if (title)
        ckpt_buf_printf(&o->text, "%s%s%s\n", title, *title ? ": " : "",
                        ckpt_err_escape(safe, sizeof safe, text, strlen(text)));
}

void out_line(struct out *o, const char *text)
{
    if (!o->json)
        field(o, "", text);
}

/* "1.50 GB" of bytes. */
static char *human(char dst[32], uint64_t n)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double v = (double)n;
    size_t i = 0;

    while (v >= 1000 && i < 5) {
        v /= 1000;
        i++;
    }
    snprintf(dst, 32, i ? "%.2f %s" : "%.0f %s", v, unit[i]);
    return dst;
}

void out_str(struct out *o, const char *key, const char *title, const char *value)
{
    if (!o->json) {
        field(o, title, value);
        return;
    }
    put_key(o, key);
    put_quoted(o, value);
}

void out_int(struct out *o, const char *key, const char *title, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    if (!o->json) {
        field(o, title, text);
        return;
    }
    put_key(o, key);
    ckpt_buf_put_str(&o->text, text);
}

void out_real(struct out *o, const char *key, const char *title, double value)
{
    char text[40];

    if (!o->json) {
        snprintf(text, sizeof text, "%.6g", isnan(value) ? fabs(value) : value);
        field(o, title, text);
        return;
    }
    put_key(o, key);
    put_real(o, value);
}

void out_bytes(struct out *o, const char *key, const char *title, uint64_t value)
{
    char text[32];

    if (!o->json) {
        field(o, title, human(text, value));
        return;
    }
    put_key(o, key);
    ckpt_buf_printf(&o->text, "%llu", (unsigned long long)value);
}

void out_json(struct out *o, const char *key, const char *title, const json_t *value)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    if (!o->json && (!title || !value))
        return;
    ckpt_buf_init(&b, MAX_BYTES);
    if (o->json)
        put_key(o, key);
    else
        ckpt_buf_printf(&o->text, "%s%s", title, *title ? ": " : "");
    if (!value)
        ckpt_buf_put_str(&b, "null");
    else if (ckpt_json_write(&b, value, 2, false, &err))
        o->text.failed = true;
    for (size_t i = 0, n; i < b.len; i += n) {  /* indent each line of the value */
        const unsigned char *end = memchr(b.data + i, '\n', b.len - i);

        n = end ? (size_t)(end - b.data) - i + 1 : b.len - i;
        ckpt_buf_put(&o->text, b.data + i, n);
        if (end && o->json)
            ckpt_buf_put_str(&o->text, "  ");
    }
    if (!o->json)
        ckpt_buf_put_u8(&o->text, '\n');
    ckpt_buf_release(&b);
}

void out_table(struct out *o, const char *key, const struct out_column *column, size_t n)
{
    o->column = column;
    o->n_column = n < MAX_COLUMNS ? n : MAX_COLUMNS;
    o->n_cell = 0;
    if (o->json) {
        put_key(o, key);
        ckpt_buf_put_u8(&o->text, '[');
    }
}

/* Write everything that precedes the next cell's value. */
static void json_cell(struct out *o)
{
    size_t i = o->n_cell++ % o->n_column;

    if (i == 0)
        ckpt_buf_put_str(&o->text, o->n_cell > 1 ? "},\n    {" : "\n    {");
    else
        ckpt_buf_put(&o->text, ", ", 2);
    put_quoted(o, o->column[i].key);
    ckpt_buf_put(&o->text, ": ", 2);
}

/* Copy text to the arena, escaped for people. */
static char *escaped_text(struct out *o, const char *text)
{
    char safe[CUT * 4 + 1];

    ckpt_err_escape(safe, sizeof safe, text, strlen(text));
    return ckpt_arena_strndup(&o->arena, safe, strlen(safe));
}

/* Plain text, the usual case, avoids escaped_text's large buffer, which some builds zero at each
 * call. */
static char *safe_text(struct out *o, const char *text)
{
    size_t n = 0;

    while (n < CUT && text[n] >= ' ' && text[n] < 0x7f)
        n++;
    return text[n] == '\0' ? ckpt_arena_strndup(&o->arena, text, n) : escaped_text(o, text);
}

/* Add a cell for people. */
static void text_cell(struct out *o, const char *text)
{
    struct ckpt_err ignored = {0};

    o->text.failed |= ckpt_reserve(&o->cell, o->n_cell, &o->cap, sizeof *o->cell, &ignored) != 0;
    if (o->text.failed)
        return;
    if (!o->column[o->n_cell % o->n_column].title)
        text = "";
    o->cell[o->n_cell] = safe_text(o, text);
    if (!o->cell[o->n_cell++])
        o->text.failed = true;
}

void out_cell_str(struct out *o, const char *value)
{
    if (!o->json) {
        text_cell(o, value);
        return;
    }
    json_cell(o);
    put_quoted(o, value);
}

void out_cell_json(struct out *o, const char *json)
{
    if (!o->json) {
        text_cell(o, json);
        return;
    }
    json_cell(o);
    ckpt_buf_put_str(&o->text, json);
}

void out_cell_value(struct out *o, const json_t *value)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    ckpt_buf_init(&b, MAX_BYTES);
    if (!value)
        ckpt_buf_put_str(&b, "null");
    else if (ckpt_json_write(&b, value, 0, false, &err))
        o->text.failed = true;
    out_cell_json(o, ckpt_buf_str(&b) ? ckpt_buf_str(&b) : "null");
    ckpt_buf_release(&b);
}

void out_cell_pair(struct out *o, const char *text, const char *json)
{
    out_cell_json(o, o->json ? json : text);
}

void out_cell_none(struct out *o) { out_cell_json(o, o->json ? "null" : ""); }

void out_cell_known(struct out *o, double value)
{
    if (isnan(value))
        out_cell_none(o);
    else
        out_cell_real(o, value);
}

void out_cell_int(struct out *o, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    out_cell_json(o, text);
}

void out_cell_bytes(struct out *o, uint64_t value)
{
    char text[32];

    if (o->json)
        snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    out_cell_json(o, o->json ? text : human(text, value));
}

void out_cell_real(struct out *o, double value)
{
    char text[40];

    if (o->json) {
        json_cell(o);
        put_real(o, value);
        return;
    }
    snprintf(text, sizeof text, "%.6g", isnan(value) ? fabs(value) : value);
    text_cell(o, text);
}

static void pad(struct out *o, size_t n)
{
    static const char blanks[] = "                                ";

    for (size_t k; n > 0; n -= k) {
        k = n < sizeof blanks - 1 ? n : sizeof blanks - 1;
        ckpt_buf_put(&o->text, blanks, k);
    }
}

/* Write the cells of a row up to the end of one line; rest gets the remainder of wrapped cells. */
static void put_line(struct out *o, const struct out_fit *f, const char **text)
{
    size_t blank = 0, done = 0;         /* blanks before the next text: written late, so that
                                           none end a line */

    for (size_t i = 0; i < f->n_column; i++) {
        const struct out_column *c = &f->column[i];
        char cut[OUT_FIT_CUT];
        const char *t = text[i], *rest = NULL;
        size_t n;

        if (!c->title || f->dropped[i])
            continue;
        t = c->align == OUT_WRAP ? out_fit_wrap(cut, t, f->width[i], &rest)
                                 : out_fit_cut(cut, t, f->width[i]);
        text[i] = rest ? rest : "";
        n = out_fit_columns(t);
        blank += done++ ? 2 : 0;
        blank += c->align == OUT_RIGHT ? f->width[i] - n : 0;
        if (n) {
            pad(o, blank);
            ckpt_buf_put(&o->text, t, strlen(t));
            blank = 0;
        }
        blank += c->align == OUT_RIGHT ? 0 : f->width[i] - n;
    }
    ckpt_buf_put_u8(&o->text, '\n');
}

static void put_row(struct out *o, const struct out_fit *f, char *const *cell)
{
    const char *text[MAX_COLUMNS];
    bool more = false;

    for (size_t i = 0; i < f->n_column; i++)
        text[i] = cell[i] ? cell[i] : "";
    do {
        put_line(o, f, text);
        more = false;
        for (size_t i = 0; i < f->n_column; i++)
            more |= *text[i] != '\0' && f->column[i].title && !f->dropped[i];
    } while (more);
}

/* Name the columns that did not fit. */
static void put_dropped(struct out *o, const struct out_fit *f)
{
    static const char begin[] = "(a wider terminal shows:";
    size_t at = 0;
    bool any = false;

    for (size_t i = 0; i < f->n_column; i++) {
        const char *title = f->column[i].title;
        size_t n = f->dropped[i] ? out_fit_columns(title) + 2 : 0;

        if (n == 0)
            continue;
        ckpt_buf_put_str(&o->text, any ? "," : begin);
        at += any ? 0 : sizeof begin - 1;
        any = true;
        if (at + n >= o->screen) {
            ckpt_buf_put_u8(&o->text, '\n');
            at = 0;
        }
        ckpt_buf_printf(&o->text, " %s", title);
        at += n;
    }
    if (any)
        ckpt_buf_put_str(&o->text, ")\n");
}

void out_table_end(struct out *o)
{
    struct out_fit f = {.column = o->column, .n_column = o->n_column};
    char *title[MAX_COLUMNS] = {0};

    if (o->json) {
        ckpt_buf_put_str(&o->text, o->n_cell ? "}\n  ]" : "]");
        return;
    }
    assert(o->n_column > 0);
    for (size_t i = 0; i < o->n_column; i++) {
        title[i] = (char *)o->column[i].title;
        f.width[i] = title[i] ? out_fit_columns(title[i]) : 0;
    }
    for (size_t k = 0; k < o->n_cell; k++) {
        size_t n = o->cell[k] ? out_fit_columns(o->cell[k]) : 0;

        if (n > f.width[k % o->n_column])
            f.width[k % o->n_column] = n;
    }
    out_fit_to(&f, o->screen);
    if (o->bold)
        ckpt_buf_put_str(&o->text, "\033[1m");
    put_row(o, &f, title);
    if (o->bold)
        ckpt_buf_put_str(&o->text, "\033[0m");
    for (size_t k = 0; k + o->n_column <= o->n_cell; k += o->n_column)
        put_row(o, &f, o->cell + k);
    put_dropped(o, &f);
    o->n_cell = 0;
    ckpt_arena_release(&o->arena);
}

int out_take(struct out *o, struct ckpt_buf *text, struct ckpt_err *err)
{
    int rc = 0;

    if (o->json)
        ckpt_buf_put_str(&o->text, o->begun ? "\n}\n" : "{}\n");
    if (!ckpt_buf_ok(&o->text))
        rc = ckpt_nomem(err, o->text.len);
    ckpt_buf_init(text, MAX_BYTES);
    if (rc == 0) {
        *text = o->text;
        ckpt_buf_init(&o->text, MAX_BYTES);
    }
    out_abort(o);
    return rc;
}

int out_end(struct out *o, struct ckpt_err *err)
{
    struct ckpt_buf text;
    int rc = out_take(o, &text, err);

    if (rc == 0) {
        if (text.len)
            fwrite(text.data, 1, text.len, stdout);
        if (fflush(stdout) || ferror(stdout))
            rc = ckpt_fail_errno(err, CKPT_EIO, errno, "standard output");
    }
    ckpt_buf_release(&text);
    return rc;
}

void out_abort(struct out *o)
{
    ckpt_buf_release(&o->text);
    ckpt_arena_release(&o->arena);
    ckpt_free(o->cell);
    ckpt_free(o);
}
