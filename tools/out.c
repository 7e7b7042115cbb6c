/* out - see out.h. */
#include "tools/out.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/json.h"
#include "libckpt/mem.h"

#define MAX_COLUMNS 16
#define CUT         200         /* characters of a name that a person sees */

struct out {
    bool                     json;
    json_t                  *doc;
    struct ckpt_buf          text;
    const struct out_column *column;    /* of the table in work */
    size_t                   n_column, n_cell;
    json_t                  *rows, *row;
    const char              *table_key;
    struct ckpt_arena        arena;     /* cells as text */
    char                   **cell;
    size_t                   cap;
};

int out_new(struct out **out, bool json, struct ckpt_err *err)
{
    struct out *o = ckpt_alloc(1, sizeof *o);

    *out = NULL;
    if (o)
        o->doc = json_object();
    if (!o || !o->doc) {
        ckpt_free(o);
        return ckpt_nomem(err, sizeof *o);
    }
    o->json = json;
    ckpt_buf_init(&o->text, (size_t)1 << 30);
    *out = o;
    return 0;
}

static void field(struct out *o, const char *title, const char *text)
{
    char safe[4096];

    if (!o->json && title)
        ckpt_buf_printf(&o->text, "%s%s%s\n", title, *title ? ": " : "",
                        ckpt_escape(safe, sizeof safe, text, strlen(text)));
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

/* Names that are no UTF-8 are told escaped. */
static json_t *string(const char *value)
{
    json_t *s = json_string(value);
    char safe[4096];

    return s ? s : json_string(ckpt_escape(safe, sizeof safe, value, strlen(value)));
}

void out_str(struct out *o, const char *key, const char *title, const char *value)
{
    json_object_set_new(o->doc, key, string(value));
    field(o, title, value);
}

void out_int(struct out *o, const char *key, const char *title, int64_t value)
{
    char text[32];

    json_object_set_new(o->doc, key, json_integer(value));
    snprintf(text, sizeof text, "%lld", (long long)value);
    field(o, title, text);
}

/* JSON has no NaN and no infinities. */
static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

void out_real(struct out *o, const char *key, const char *title, double value)
{
    char text[40];

    json_object_set_new(o->doc, key, real(value));
    snprintf(text, sizeof text, "%.6g", value);
    field(o, title, text);
}

void out_bytes(struct out *o, const char *key, const char *title, uint64_t value)
{
    char text[32];

    json_object_set_new(o->doc, key, json_integer((json_int_t)value));
    field(o, title, human(text, value));
}

void out_json(struct out *o, const char *key, const char *title, const json_t *value)
{
    struct ckpt_err err = {0};
    struct ckpt_buf b;

    json_object_set(o->doc, key, (json_t *)value);
    if (o->json || !title)
        return;
    ckpt_buf_init(&b, (size_t)1 << 24);
    if (ckpt_json_write(&b, value, 2, false, &err) == 0 && ckpt_buf_str(&b))
        ckpt_buf_printf(&o->text, "%s: %s\n", title, ckpt_buf_str(&b));
    ckpt_buf_release(&b);
}

void out_line(struct out *o, const char *text)
{
    field(o, "", text);
}

void out_table(struct out *o, const char *key, const struct out_column *column, size_t n)
{
    o->table_key = key;
    o->column = column;
    o->n_column = n < MAX_COLUMNS ? n : MAX_COLUMNS;
    o->n_cell = 0;
    o->rows = json_array();
    o->row = NULL;
}

/* One more cell for programs; takes value. */
static void json_cell(struct out *o, json_t *value)
{
    size_t i = o->n_cell++ % o->n_column;

    if (i == 0) {
        o->row = json_object();
        json_array_append_new(o->rows, o->row);
    }
    json_object_set_new(o->row, o->column[i].key, value);
}

/* One more cell for people. */
static void text_cell(struct out *o, const char *text)
{
    char safe[CUT * 4 + 1];

    if (o->n_cell == o->cap) {
        size_t cap = o->cap ? 2 * o->cap : 256;
        void *grown = ckpt_grow(o->cell, cap, sizeof *o->cell);

        if (!grown) {
            o->text.failed = true;
            return;
        }
        o->cell = grown;
        o->cap = cap;
    }
    ckpt_escape(safe, sizeof safe, text, strlen(text));
    o->cell[o->n_cell++] = ckpt_arena_strndup(&o->arena, safe, strlen(safe));
}

void out_cell_str(struct out *o, const char *value)
{
    if (o->json)
        json_cell(o, string(value));
    else
        text_cell(o, value);
}

void out_cell_int(struct out *o, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    if (o->json)
        json_cell(o, json_integer(value));
    else
        text_cell(o, text);
}

void out_cell_bytes(struct out *o, uint64_t value)
{
    char text[32];

    if (o->json)
        json_cell(o, json_integer((json_int_t)value));
    else
        text_cell(o, human(text, value));
}

void out_cell_real(struct out *o, double value)
{
    char text[40];

    snprintf(text, sizeof text, "%.6g", value);
    if (o->json)
        json_cell(o, real(value));
    else
        text_cell(o, text);
}

void out_cell_none(struct out *o)
{
    if (o->json)
        json_cell(o, json_null());
    else
        text_cell(o, "");
}

static void pad(struct out *o, size_t n)
{
    static const char blanks[] = "                                ";

    for (size_t k; n > 0; n -= k) {
        k = n < sizeof blanks - 1 ? n : sizeof blanks - 1;
        ckpt_buf_put(&o->text, blanks, k);
    }
}

static void put_row(struct out *o, char *const *text, const size_t *width)
{
    for (size_t i = 0; i < o->n_column; i++) {
        bool last = i + 1 == o->n_column;
        const char *t = text[i] ? text[i] : "";
        size_t n = strlen(t), blank = width[i] > n ? width[i] - n : 0;

        if (o->column[i].align == OUT_RIGHT)
            pad(o, blank);
        ckpt_buf_put(&o->text, t, n);
        if (o->column[i].align == OUT_LEFT && !last)
            pad(o, blank);
        ckpt_buf_put_str(&o->text, last ? "\n" : "  ");
    }
}

void out_table_end(struct out *o)
{
    size_t width[MAX_COLUMNS];
    char *title[MAX_COLUMNS];

    if (o->json) {
        json_object_set_new(o->doc, o->table_key, o->rows);
        o->rows = NULL;
        return;
    }
    json_decref(o->rows);
    o->rows = NULL;
    for (size_t i = 0; i < o->n_column; i++) {
        title[i] = (char *)o->column[i].title;
        width[i] = strlen(title[i]);
    }
    for (size_t k = 0; k < o->n_cell; k++) {
        size_t n = o->cell[k] ? strlen(o->cell[k]) : 0;

        if (n > width[k % o->n_column])
            width[k % o->n_column] = n;
    }
    put_row(o, title, width);
    for (size_t k = 0; k + o->n_column <= o->n_cell; k += o->n_column)
        put_row(o, o->cell + k, width);
    o->n_cell = 0;
}

int out_end(struct out *o, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)1 << 30);
    if (o->json) {
        rc = ckpt_json_write(&b, o->doc, 2, false, err);
        ckpt_buf_put_u8(&b, '\n');
    }
    if (rc == 0 && (!ckpt_buf_ok(&b) || !ckpt_buf_ok(&o->text)))
        rc = ckpt_nomem(err, o->text.len);
    if (rc == 0) {
        fwrite(o->json ? b.data : o->text.data, 1, o->json ? b.len : o->text.len, stdout);
        if (fflush(stdout) || ferror(stdout))
            rc = ckpt_fail_errno(err, CKPT_EIO, errno, "standard output");
    }
    ckpt_buf_release(&b);
    out_abort(o);
    return rc;
}

void out_abort(struct out *o)
{
    ckpt_buf_release(&o->text);
    ckpt_arena_release(&o->arena);
    ckpt_free(o->cell);
    json_decref(o->rows);
    json_decref(o->doc);
    ckpt_free(o);
}
