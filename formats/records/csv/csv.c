/*
 * csv - comma or tab separated values as records, read as pandas and so datasets read them.
 *
 * RFC 4180 with pandas' leniency (its C parser, 3.0): a record ends at "\n", "\r\n" or "\r"; a
 * field that begins with a quote goes on, over line ends, to the closing one, "" inside is one
 * quote and what stands after the closing quote is taken as it is; lines of white space are no
 * records; a record with fewer fields than the header ends in nulls, one with more is an error.
 * The first record names the columns: an empty name becomes "Unnamed: 2", a second "a" "a.1".
 *
 * Types are those of whole columns: integers, reals (also integers with nulls between), true and
 * false, text otherwise; nothing and pandas' words for it are null.  Integers beyond int64
 * keep their digits as text.  With records_opts.literal all is text and only nothing is null.
 *
 * One pass finds where records start and what the columns are; memory is eight bytes a record.
 */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "formats/records/csv/value.h"
#include "formats/records/lines.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/base/json.h"

#define BLOCK      ((size_t)1 << 20)
#define MAX_FIELDS 16384
#define EACH       0x0101010101010101u  /* a byte in all eight places */

/* State of reading a record. */
enum state { BEGIN, PLAIN, QUOTED, QUOTE_SEEN, BEHIND_QUOTE, AFTER_CR };

/* One record: fields are bytes [end[k - 1], end[k]) of text. */
struct row {
    enum state      state;
    char            delimiter;
    struct ckpt_buf text;
    size_t         *end;                /* [max] */
    size_t          n, max;             /* n may be more, in which case many is set */
    bool            quoted, many;       /* a quote was seen; there are more fields than max */
};

/* Types that all values of a column so far allow. */
struct column {
    const char *name;
    bool        is_int, is_real, is_bool, has_null, has_value;
};

struct csv {
    struct ckpt_file     *file;
    struct ckpt_arena     arena;
    char                  delimiter;
    bool                  literal;
    struct column        *column;
    size_t                n_column;
    uint64_t             *start;        /* [n] */
    int64_t               n;
    size_t                cap;
};

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);

    return n > k && strcasecmp(path + n - k, end) == 0;
}

/* Any text could be CSV, so the name must say so. */
static int bid(const char *path, const unsigned char *head, size_t len)
{
    (void)head;
    (void)len;
    return ends_in(path, ".csv") || ends_in(path, ".tsv") ? 80 : 0;
}

static void end_field(struct row *r)
{
    if (r->n < r->max)
        r->end[r->n] = r->text.len;
    else
        r->many = true;
    r->n++;
}

static void begin_row(struct row *r)
{
    r->text.len = r->n = 0;
    r->quoted = r->many = false;
}

/* Take a byte.  True when it ended a record, which is then in r; the next byte begins another.
 * "\n" after "\r" is skipped: *begun says whether the byte belongs to a record. */
static bool take(struct row *r, char c, bool *begun)
{
    *begun = true;
    if (r->state == AFTER_CR) {
        r->state = BEGIN;
        if (c == '\n') {
            *begun = false;
            return false;
        }
    }
    if (r->state == QUOTED) {
        if (c == '"')
            r->state = QUOTE_SEEN;
        else
            ckpt_buf_put_u8(&r->text, (uint8_t)c);
        return false;
    }
    if (c == '"' && (r->state == BEGIN || r->state == QUOTE_SEEN)) {
        if (r->state == QUOTE_SEEN)
            ckpt_buf_put_u8(&r->text, '"');
        r->quoted = true;
        r->state = QUOTED;
        return false;
    }
    if (c == '\n' || c == '\r') {
        end_field(r);
        r->state = c == '\r' ? AFTER_CR : BEGIN;
        return true;
    }
    if (c == r->delimiter) {
        end_field(r);
        r->state = BEGIN;
        return false;
    }
    ckpt_buf_put_u8(&r->text, (uint8_t)c);
    r->state = r->state == QUOTE_SEEN || r->state == BEHIND_QUOTE ? BEHIND_QUOTE : PLAIN;
    return false;
}

/* The number of bytes, of these n, that take would only append to the text, as far as this quick
 * check sees. */
static size_t run_of(const struct row *r, const unsigned char *b, size_t n)
{
    const unsigned char *quote;
    size_t i = 0;

    if (r->state == QUOTED)
        return (quote = memchr(b, '"', n)) ? (size_t)(quote - b) : n;
    if (r->state != PLAIN && r->state != BEHIND_QUOTE)
        return 0;
    /* Eight at a time: x has a zero byte where a byte of v is the one searched for; only then (x
     * - 1) & ~x has its top bit set, except in bytes after one that was found. */
    for (; i + 8 <= n; i += 8) {
        uint64_t v, x, y, z, found;

        memcpy(&v, b + i, sizeof v);
        x = v ^ EACH * (unsigned char)r->delimiter;
        y = v ^ EACH * '\n';
        z = v ^ EACH * '\r';
        found = ((x - EACH) & ~x) | ((y - EACH) & ~y) | ((z - EACH) & ~z);
        if (found & EACH << 7)
            break;
    }
    while (i < n && b[i] != (unsigned char)r->delimiter && b[i] != '\n' && b[i] != '\r')
        i++;
    return i;
}

static const char *field_of(const struct row *r, size_t k, size_t *len)
{
    size_t from = k ? r->end[k - 1] : 0;

    *len = r->end[k] - from;
    return r->text.data ? (const char *)r->text.data + from : "";
}

static bool is_blank(const struct row *r)
{
    if (r->n != 1 || r->quoted)
        return false;
    for (size_t i = 0; i < r->text.len; i++)
        if (r->text.data[i] != ' ' && r->text.data[i] != '\t')
            return false;
    return true;
}

/* -- values ---------------------------------------------------------------------------------- */

static void observe(struct csv *c, const struct row *r)
{
    for (size_t k = 0; k < c->n_column; k++) {
        struct column *col = &c->column[k];
        size_t n = 0;
        const char *s = k < r->n ? field_of(r, k, &n) : "";
        int64_t whole;
        double real;

        if (csv_is_null(s, n, c->literal)) {
            col->has_null = true;
            continue;
        }
        col->has_value = true;
        col->is_int = col->is_int && csv_as_int(s, n, &whole);
        col->is_real = col->is_real && csv_as_real(s, n, &real);
        col->is_bool = col->is_bool && csv_as_bool(s, n) >= 0;
    }
}

static json_t *value_of(const struct column *col, const char *s, size_t n, bool literal)
{
    int64_t whole;
    double real;

    if (csv_is_null(s, n, literal))
        return json_null();
    if (col->is_int && !col->has_null && csv_as_int(s, n, &whole))
        return json_integer(whole);
    if (col->is_real && csv_as_real(s, n, &real))
        return isfinite(real) ? json_real(real) : json_string(real > 0 ? "Infinity" : "-Infinity");
    if (col->is_bool)
        return json_boolean(csv_as_bool(s, n) == 1);
    return json_stringn_nocheck(s, n);
}

/* -- names ----------------------------------------------------------------------------------- */

static bool is_taken(const struct csv *c, const char *name, size_t before)
{
    for (size_t i = 0; i < before; i++)
        if (strcmp(c->column[i].name, name) == 0)
            return true;
    return false;
}

static int add_columns(struct csv *c, const struct row *r, struct ckpt_err *err)
{
    c->column = ckpt_arena_alloc(&c->arena, r->n, sizeof *c->column);
    if (!c->column)
        return ckpt_nomem(err, r->n * sizeof *c->column);
    for (size_t k = 0; k < r->n; k++) {
        struct column *col = &c->column[k];
        size_t n;
        const char *s = field_of(r, k, &n);

        if (n > 4096 || !ckpt_utf8_valid(s, n))
            return ckpt_fail(err, CKPT_EFORMAT, "the name of column %zu is no UTF-8 text", k + 1);
        col->name = n ? ckpt_arena_strndup(&c->arena, s, n)
                      : ckpt_arena_printf(&c->arena, "Unnamed: %zu", k);
        for (size_t again = 1; col->name && is_taken(c, col->name, k); again++)
            col->name = ckpt_arena_printf(&c->arena, "%.*s.%zu", (int)n, s, again);
        if (!col->name)
            return ckpt_nomem(err, n);
        col->is_int = col->is_real = col->is_bool = !c->literal;
    }
    c->n_column = r->n;
    return 0;
}

static int add_start(struct csv *c, uint64_t at, struct ckpt_err *err)
{
    if (ckpt_reserve(&c->start, (size_t)c->n, &c->cap, sizeof *c->start, err))
        return CKPT_ENOMEM;
    c->start[c->n++] = at;
    return 0;
}

/* Add a complete record that begins at byte `at`. */
static int add_row(struct csv *c, struct row *r, uint64_t at, struct ckpt_err *err)
{
    int rc = 0;

    if (!ckpt_buf_ok(&r->text))
        return ckpt_fail(err, CKPT_ELIMIT, "record %lld is longer than %llu bytes",
                         (long long)c->n + 1, (unsigned long long)LINES_MAX_LINE);
    if (!is_blank(r)) {
        if (!c->column && r->many)
            rc = ckpt_fail(err, CKPT_ELIMIT, "more than %d columns", MAX_FIELDS);
        else if (!c->column)
            rc = add_columns(c, r, err);
        else if ((rc = add_start(c, at, err)) == 0 && r->n <= c->n_column)
            observe(c, r);
    }
    begin_row(r);
    return rc;
}

/* Use the caller's column names, as if the file had them. */
static int name_columns(struct csv *c, struct row *r, const char *names, struct ckpt_err *err)
{
    bool begun;

    for (const char *s = names; *s; s++)
        take(r, *s == ',' ? r->delimiter : *s, &begun);
    take(r, '\n', &begun);
    return add_row(c, r, 0, err);
}

static int read_all(struct csv *c, struct row *r, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(c->file), begin = 0;
    unsigned char *block = ckpt_alloc_buffer(size < BLOCK ? size : BLOCK);
    bool inside = false, begun;
    int rc = block ? 0 : ckpt_nomem(err, BLOCK);

    ckpt_file_sequential(c->file);
    for (uint64_t at = 0; rc == 0 && at < size; at += BLOCK) {
        size_t n = size - at < BLOCK ? (size_t)(size - at) : BLOCK, i = 0;

        rc = ckpt_file_read_at(c->file, block, n, at, err);
        if (rc == 0 && at == 0 && n >= 3 && memcmp(block, "\xef\xbb\xbf", 3) == 0)
            i = 3;
        for (; rc == 0 && i < n; i++) {
            size_t run = run_of(r, block + i, n - i);
            bool ended;

            if (run > 0)
                ckpt_buf_put(&r->text, block + i, run);
            if ((i += run) == n)
                break;
            ended = take(r, (char)block[i], &begun);
            if (begun && !inside)
                begin = at + i;
            inside = begun && !ended;
            if (ended)
                rc = add_row(c, r, begin, err);
        }
        if (rc == 0 && !ckpt_buf_ok(&r->text))
            rc = add_row(c, r, begin, err);
    }
    if (rc == 0 && r->state == QUOTED)
        rc = ckpt_fail(err, CKPT_EFORMAT, "record %lld: a quote that begins after byte %llu has "
                       "no end", (long long)c->n + 1, (unsigned long long)begin);
    if (rc == 0 && inside) {
        end_field(r);
        rc = add_row(c, r, begin, err);
    }
    ckpt_free(block);
    return rc;
}

static struct row *row_new(const struct csv *c, size_t max)
{
    struct row *r = ckpt_alloc(1, sizeof *r);

    if (!r || !(r->end = ckpt_alloc(max, sizeof *r->end))) {
        ckpt_free(r);
        return NULL;
    }
    r->max = max;
    r->delimiter = c->delimiter;
    ckpt_buf_init(&r->text, LINES_MAX_LINE);
    return r;
}

static void row_free(struct row *r)
{
    if (!r)
        return;
    ckpt_buf_release(&r->text);
    ckpt_free(r->end);
    ckpt_free(r);
}

static void csv_close(void *self)
{
    struct csv *c = self;

    ckpt_arena_release(&c->arena);
    ckpt_free(c->start);
    ckpt_file_close(c->file);
}

static int csv_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                    struct ckpt_err *err)
{
    struct csv *c = self;
    struct row *r;
    uint64_t fields;
    int rc;

    c->file = file;
    c->literal = opts->literal;
    c->delimiter = opts->delimiter ? opts->delimiter
                                   : strcasestr(ckpt_file_name(file), ".tsv") ? '\t' : ',';
    /* No more fields than bytes, or than the names have. */
    fields = ckpt_file_size(file) + (opts->columns ? strlen(opts->columns) : 0) + 2;
    r = row_new(c, fields < MAX_FIELDS ? (size_t)fields : MAX_FIELDS);
    rc = r ? 0 : ckpt_nomem(err, sizeof *r);
    if (rc == 0 && opts->columns)
        rc = name_columns(c, r, opts->columns, err);
    if (rc == 0)
        rc = read_all(c, r, err);
    row_free(r);
    return rc;
}

static int64_t csv_count(void *self) { return ((struct csv *)self)->n; }

/* Record i into r. */
static int read_row(const struct csv *c, int64_t i, struct row *r, struct ckpt_err *err)
{
    uint64_t at = c->start[i], end = i + 1 < c->n ? c->start[i + 1] : ckpt_file_size(c->file);
    unsigned char block[8192];
    bool begun;
    int rc;

    while (at < end) {
        size_t n = end - at < sizeof block ? (size_t)(end - at) : sizeof block;

        if ((rc = ckpt_file_read_at(c->file, block, n, at, err)) != 0)
            return rc;
        for (size_t k = 0; k < n; k++) {
            size_t run = run_of(r, block + k, n - k);

            if (run > 0)
                ckpt_buf_put(&r->text, block + k, run);
            if ((k += run) < n && take(r, (char)block[k], &begun))
                return 0;
        }
        at += n;
    }
    end_field(r);
    return 0;
}

static int csv_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    const struct csv *c = self;
    struct row *r = row_new(c, c->n_column + 1);    /* one more would be too many */
    json_t *row = json_object();
    int rc = r && row ? read_row(c, i, r, err) : ckpt_nomem(err, sizeof *r);

    *out = NULL;
    if (rc == 0 && (r->n > c->n_column || r->many))
        rc = ckpt_fail(err, CKPT_EFORMAT, "at byte %llu: %zu fields, the header names %zu",
                       (unsigned long long)c->start[i], r->n, c->n_column);
    for (size_t k = 0; rc == 0 && k < c->n_column; k++) {
        size_t n = 0;
        const char *s = k < r->n ? field_of(r, k, &n) : "";

        if (!ckpt_utf8_valid(s, n))
            rc = ckpt_fail(err, CKPT_EFORMAT, "at byte %llu: column \"%s\" is not UTF-8 text",
                           (unsigned long long)c->start[i], c->column[k].name);
        else if (json_object_set_new(row, c->column[k].name,
                                     value_of(&c->column[k], s, n, c->literal)))
            rc = ckpt_nomem(err, n);
    }
    if (rc == 0) {
        *out = row;
        row = NULL;
    }
    json_decref(row);
    row_free(r);
    return rc;
}

const struct record_ops record_csv = {
    .name = "csv", .size = sizeof(struct csv), .bid = bid, .open = csv_open, .count = csv_count,
    .get = csv_get, .close = csv_close,
};
