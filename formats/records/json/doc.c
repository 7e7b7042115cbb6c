/*
 * json/doc - a JSON document as records: the layouts that Hugging Face's datasets reads.
 *
 *   [{...}, {...}]                        rows
 *   {"data": [{...}, ...], ...}           rows of the member data, or of the one that is named
 *   {"a": [...], "b": [...]}              columns of one length
 *   {...} {...}                           rows one after another (JSON lines, or spread out)
 *   {"data": [{"paragraphs": ...}]}       SQuAD: one record a question, as datasets' squad_v2
 *
 * One pass finds where each row lies; a row is parsed when it is read.  SQuAD's questions share
 * their paragraphs and are put into a spill file.
 */
#include <string.h>
#include <strings.h>

#include "formats/records/json/scan.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "formats/records/spill_file.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

#define MAX_ROW     ((uint64_t)64 << 20)    /* largest row in bytes: the limit of documents */
#define MAX_COLUMNS 4096

/* A member that is a list: its items are span[first, first + n). */
struct column {
    const char *name;
    size_t      first, n;
};

struct doc {
    struct ckpt_file  *file;
    struct ckpt_arena  arena;
    struct json_span  *span;
    size_t             n_span, cap;
    struct column     *column;              /* [n_column]; rows of a list: one without a name */
    size_t             n_column, n_other;   /* members that are not lists */
    int64_t            rows;
    struct spill_file *spill;               /* holds SQuAD's questions */
    struct spill_part  part;
};

static int bid(const char *path, const unsigned char *head, size_t len)
{
    size_t i = len >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, n = strlen(path);

    while (i < len && strchr(" \t\r\n", head[i]) && head[i])
        i++;
    if (n > 5 && strcasecmp(path + n - 5, ".json") == 0)
        return 80;
    return i < len && head[i] == '[' && !memchr(head, 0, len) ? 60 : 0;     /* as jsonl's */
}

static void doc_close(void *self)
{
    struct doc *d = self;

    spill_file_part_release(&d->part);
    spill_file_close(d->spill);
    ckpt_arena_release(&d->arena);
    ckpt_free(d->span);
    ckpt_file_close(d->file);
}

static int add_span(struct doc *d, struct json_span span, struct ckpt_err *err)
{
    if (ckpt_reserve(&d->span, d->n_span, &d->cap, sizeof *d->span, err))
        return CKPT_ENOMEM;
    d->span[d->n_span++] = span;
    return 0;
}

static int parse_span(const struct doc *d, struct json_span span, json_t **out,
                      struct ckpt_err *err)
{
    json_t *list = NULL;
    char *text;
    int rc;

    *out = NULL;
    if (span.n > MAX_ROW)
        return ckpt_fail(err, CKPT_ELIMIT, "a value of %llu bytes at byte %llu; the limit is %llu",
                         (unsigned long long)span.n, (unsigned long long)span.at,
                         (unsigned long long)MAX_ROW);
    text = ckpt_alloc_buffer((size_t)span.n + 2);
    if (!text)
        return ckpt_nomem(err, (size_t)span.n + 2);
    /* Wrapped in a list, since the parser takes only documents. */
    text[0] = '[';
    text[span.n + 1] = ']';
    rc = ckpt_file_read_at(d->file, text + 1, (size_t)span.n, span.at, err);
    if (rc == 0)
        rc = ckpt_json_parse(&list, text, (size_t)span.n + 2, CKPT_JSON_PYTHON, err);
    if (rc)
        ckpt_err_in(err, "at byte %llu", (unsigned long long)span.at);
    else
        *out = json_incref(json_array_get(list, 0));
    json_decref(list);
    ckpt_free(text);
    return rc;
}

/* Find the items of a list, from its bracket on. */
static int read_list(struct doc *d, struct json_scan *s, const char *name, struct ckpt_err *err)
{
    struct column *c;
    bool more;
    int rc = json_scan_expect(s, '[');

    if (rc == 0 && d->n_column == MAX_COLUMNS)
        rc = ckpt_fail(err, CKPT_ELIMIT, "more than %d columns", MAX_COLUMNS);
    if (rc)
        return rc;
    if (!d->column)
        d->column = ckpt_arena_alloc(&d->arena, MAX_COLUMNS, sizeof *d->column);
    if (!d->column)
        return ckpt_nomem(err, MAX_COLUMNS * sizeof *d->column);
    c = &d->column[d->n_column++];
    *c = (struct column){.name = name, .first = d->n_span};
    more = json_scan_peek(s) != ']';
    if (!more)
        rc = json_scan_expect(s, ']');
    while (rc == 0 && more) {
        struct json_span span;

        rc = json_scan_value(s, &span);
        if (rc == 0)
            rc = add_span(d, span, err);
        if (rc == 0)
            rc = json_scan_next(s, ']', &more);
    }
    c->n = d->n_span - c->first;
    return rc;
}

/* Read a member's name into the arena; the scan then stands at its value. */
static int read_name(struct doc *d, struct json_scan *s, const char **name, struct ckpt_err *err)
{
    struct json_span span = {0};
    json_t *v = NULL;
    int rc = json_scan_peek(s) == '"' ? json_scan_value(s, &span) : json_scan_expect(s, '"');

    *name = NULL;
    if (rc == 0)
        rc = parse_span(d, span, &v, err);
    if (rc == 0) {
        *name = ckpt_arena_strndup(&d->arena, json_string_value(v), json_string_length(v));
        rc = *name ? json_scan_expect(s, ':') : ckpt_nomem(err, json_string_length(v));
    }
    json_decref(v);
    return rc;
}

/* Scan members of an object, from its brace on: lists become columns.  With want the scan stops
 * at that member's value, and *found is set. */
static int read_object(struct doc *d, struct json_scan *s, const char *want, size_t want_len,
                       bool *found, struct ckpt_err *err)
{
    bool more;
    int rc = json_scan_expect(s, '{');

    *found = false;
    more = rc == 0 && json_scan_peek(s) != '}';
    if (rc == 0 && !more)
        rc = json_scan_expect(s, '}');
    while (rc == 0 && more) {
        struct json_span span;
        const char *name;

        rc = read_name(d, s, &name, err);
        if (rc)
            break;
        if (want && strlen(name) == want_len && memcmp(name, want, want_len) == 0) {
            *found = true;
            return 0;
        }
        if (!want && json_scan_peek(s) == '[') {
            rc = read_list(d, s, name, err);
        } else {
            rc = json_scan_value(s, &span);
            d->n_other++;
        }
        if (rc == 0)
            rc = json_scan_next(s, '}', &more);
    }
    return rc;
}

/* Scan concatenated values; commas between them would not be JSON. */
static int read_stream(struct doc *d, struct json_scan *s, struct ckpt_err *err)
{
    struct json_span span;
    int rc = 0;

    d->column = ckpt_arena_alloc(&d->arena, 1, sizeof *d->column);
    if (!d->column)
        return ckpt_nomem(err, sizeof *d->column);
    d->n_column = 1;
    d->n_span = 0;
    while (rc == 0 && json_scan_peek(s) >= 0) {
        rc = json_scan_value(s, &span);
        if (rc == 0)
            rc = add_span(d, span, err);
    }
    d->column->n = d->n_span;
    return rc ? rc : s->rc;
}

static bool is_object(const struct doc *d, struct json_span span)
{
    struct ckpt_err ignored = {0};
    char c;

    return ckpt_file_read_at(d->file, &c, 1, span.at, &ignored) == 0 && c == '{';
}

/* Choose which lists of an object are the data: "data" if it contains objects, else all. */
static int choose_columns(struct doc *d, struct ckpt_err *err)
{
    for (size_t i = 0; i < d->n_column; i++) {
        struct column c = d->column[i];

        if (strcmp(c.name, "data") == 0 && c.n > 0 && is_object(d, d->span[c.first])) {
            d->column[0] = (struct column){.first = c.first, .n = c.n};
            d->n_column = 1;
            return 0;
        }
    }
    for (size_t i = 1; i < d->n_column; i++)
        if (d->column[i].n != d->column[0].n)
            return ckpt_fail(err, CKPT_EFORMAT, "column \"%s\" has %zu values, \"%s\" has %zu",
                             d->column[i].name, d->column[i].n, d->column[0].name,
                             d->column[0].n);
    return 0;
}

static int read_member(struct doc *d, struct json_scan *s, const char *field,
                       struct ckpt_err *err)
{
    int rc;

    for (const char *at = field; *at;) {
        size_t n = strcspn(at, ".");
        bool found;

        if ((rc = read_object(d, s, at, n, &found, err)) != 0)
            return rc;
        if (!found) {
            ckpt_fail(err, CKPT_EFORMAT, "no member \"%s\" in the document", field);
            return ckpt_err_hint(err, "--data-field names the member that holds the rows");
        }
        at += n + (at[n] == '.');
    }
    return 0;
}

static int read_all(struct doc *d, struct json_scan *s, const char *field, struct ckpt_err *err)
{
    bool found;
    int c, rc;

    if (field && (rc = read_member(d, s, field, err)) != 0)
        return rc;
    c = json_scan_peek(s);
    if (c < 0)
        return s->rc;
    if (c != '{')
        return read_list(d, s, NULL, err);
    if ((rc = read_object(d, s, NULL, 0, &found, err)) != 0)
        return rc;
    if (!field && (json_scan_peek(s) >= 0 || d->n_column == 0)) {
        json_scan_close(s);
        rc = json_scan_open(s, d->file, err);
        return rc ? rc : read_stream(d, s, err);
    }
    /* Settings beside lists: the object is one record, unless a list is named data. */
    if ((rc = choose_columns(d, err)) != 0)
        return rc;
    if (d->n_other > 0 && d->n_column > 0 && d->column[0].name) {
        json_scan_close(s);
        rc = json_scan_open(s, d->file, err);
        return rc ? rc : read_stream(d, s, err);
    }
    return 0;
}

/* -- SQuAD ----------------------------------------------------------------------------------- */

/* {"text": [...], "answer_start": [...]} of [{"text":, "answer_start":}, ...] */
static json_t *answers_of(const json_t *list)
{
    json_t *text = json_array(), *start = json_array(), *answer;
    size_t i;

    json_array_foreach((json_t *)list, i, answer) {
        json_array_append(text, json_object_get(answer, "text"));
        json_array_append(start, json_object_get(answer, "answer_start"));
    }
    return json_pack("{s:o, s:o}", "text", text, "answer_start", start);
}

static int put_question(struct doc *d, const json_t *article, const json_t *paragraph,
                        const json_t *qa, struct ckpt_err *err)
{
    struct ckpt_buf line;
    json_t *row = json_pack("{s:O?, s:O?, s:O?, s:O?, s:o?}", "id", json_object_get(qa, "id"),
                            "title", json_object_get(article, "title"), "context",
                            json_object_get(paragraph, "context"), "question",
                            json_object_get(qa, "question"), "answers",
                            answers_of(json_object_get(qa, "answers")));
    int rc;

    ckpt_buf_init(&line, SIZE_MAX);
    rc = row ? ckpt_json_write(&line, row, 0, false, err) : ckpt_nomem(err, sizeof line);
    if (rc == 0)
        rc = spill_file_put(d->spill, &d->part, line.data, line.len, err);
    d->rows++;
    ckpt_buf_release(&line);
    json_decref(row);
    return rc;
}

static int put_article(struct doc *d, const json_t *article, struct ckpt_err *err)
{
    json_t *paragraph, *qa;
    size_t i, k;
    int rc;

    json_array_foreach(json_object_get(article, "paragraphs"), i, paragraph)
        json_array_foreach(json_object_get(paragraph, "qas"), k, qa)
            if ((rc = put_question(d, article, paragraph, qa, err)) != 0)
                return rc;
    return 0;
}

/* Turn articles into questions if the first row has paragraphs. */
static int unfold_squad(struct doc *d, struct ckpt_err *err)
{
    json_t *row = NULL;
    int64_t n = d->rows;
    int rc;

    if (n == 0 || d->n_column != 1 || d->column[0].name ||
        !is_object(d, d->span[d->column[0].first]))
        return 0;
    rc = parse_span(d, d->span[d->column[0].first], &row, err);
    if (rc || !json_is_array(json_object_get(row, "paragraphs"))) {
        /* A damaged row is reported when it is read. */
        ckpt_err_clear(err);
        json_decref(row);
        return 0;
    }
    d->rows = 0;
    rc = spill_file_open(&d->spill, err);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        json_decref(row);
        rc = parse_span(d, d->span[d->column[0].first + (size_t)i], &row, err);
        if (rc == 0)
            rc = put_article(d, row, err);
        if (rc)
            ckpt_err_in(err, "article %lld", (long long)(i + 1));
    }
    if (rc == 0)
        rc = spill_file_flush(d->spill, &d->part, err);
    json_decref(row);
    return rc;
}

/* -- the reader ------------------------------------------------------------------------------ */

static int doc_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                    struct ckpt_err *err)
{
    struct doc *d = self;
    struct json_scan scan;
    int rc;

    d->file = file;
    rc = json_scan_open(&scan, file, err);
    if (rc == 0)
        rc = read_all(d, &scan, opts->field, err);
    if (rc == 0)
        rc = scan.rc;
    json_scan_close(&scan);
    d->rows = d->n_column ? (int64_t)d->column[0].n : 0;
    return rc ? rc : unfold_squad(d, err);
}

static int64_t doc_count(void *self) { return ((struct doc *)self)->rows; }

static int get_columns(const struct doc *d, int64_t i, json_t **out, struct ckpt_err *err)
{
    json_t *row = json_object(), *v;

    if (!row)
        return ckpt_nomem(err, sizeof row);
    for (size_t k = 0; k < d->n_column; k++) {
        const struct column *c = &d->column[k];

        if (parse_span(d, d->span[c->first + (size_t)i], &v, err)) {
            json_decref(row);
            return ckpt_err_in(err, "column \"%s\"", c->name);
        }
        if (json_object_set_new(row, c->name, v)) {
            json_decref(row);
            return ckpt_nomem(err, sizeof row);
        }
    }
    *out = row;
    return 0;
}

static int doc_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    struct doc *d = self;
    struct ckpt_buf text;
    int rc;

    *out = NULL;
    if (d->spill) {
        ckpt_buf_init(&text, SIZE_MAX);
        rc = spill_file_get(d->spill, &d->part, i, &text, err);
        if (rc == 0)
            rc = ckpt_json_parse(out, (const char *)text.data, text.len, CKPT_JSON_PYTHON, err);
        ckpt_buf_release(&text);
        return rc;
    }
    if (d->column[0].name)
        return get_columns(d, i, out, err);
    rc = parse_span(d, d->span[d->column[0].first + (size_t)i], out, err);
    if (rc == 0 && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        rc = ckpt_fail(err, CKPT_EFORMAT, "not a JSON object");
    }
    return rc;
}

const struct record_ops record_json = {
    .name = "json", .size = sizeof(struct doc), .bid = bid, .open = doc_open, .count = doc_count,
    .get = doc_get, .close = doc_close,
};
