/* json/scan - see json/scan.h. */
#include "formats/records/json/scan.h"

#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/base/json_lex.h"
#include "libckpt/err.h"

#define BLOCK ((size_t)1 << 20)

int json_scan_open(struct json_scan *s, const struct ckpt_file *file, struct ckpt_err *err)
{
    unsigned char mark[3];
    int rc;

    *s = (struct json_scan){.file = file, .size = ckpt_file_size(file), .err = err};
    s->block = ckpt_alloc_buffer(s->size < BLOCK ? (size_t)s->size + 1 : BLOCK);
    if (!s->block)
        return ckpt_nomem(err, BLOCK);
    ckpt_file_sequential(file);
    if (s->size >= 3 && (rc = ckpt_file_read_at(file, mark, 3, 0, err)) != 0)
        return rc;
    if (s->size >= 3 && memcmp(mark, "\xef\xbb\xbf", 3) == 0)
        s->first = 3;
    return 0;
}

void json_scan_close(struct json_scan *s)
{
    ckpt_free(s->block);
    s->block = NULL;
}

uint64_t json_scan_at(const struct json_scan *s) { return s->first + s->i; }

/* The current byte; -1 at the end. */
static int look(struct json_scan *s)
{
    uint64_t left;

    if (s->i < s->have)
        return s->block[s->i];
    s->first += s->have;
    s->i = s->have = 0;
    left = s->size - s->first;
    if (left == 0 || s->rc)
        return -1;
    s->have = left < BLOCK ? (size_t)left : BLOCK;
    s->rc = ckpt_file_read_at(s->file, s->block, s->have, s->first, s->err);
    if (s->rc)
        s->have = 0;
    return s->rc ? -1 : s->block[0];
}

int json_scan_peek(struct json_scan *s)
{
    int c;

    while ((c = look(s)) >= 0 && ckpt_json_is_blank((char)c))
        s->i++;
    return c;
}

static int wrong(struct json_scan *s, const char *wanted)
{
    int c = json_scan_peek(s);
    unsigned long long at = (unsigned long long)json_scan_at(s);

    if (s->rc)
        return s->rc;
    s->rc = c < 0 ? ckpt_fail(s->err, CKPT_EFORMAT, "ends at byte %llu where %s was expected", at,
                              wanted)
                  : ckpt_fail(s->err, CKPT_EFORMAT, "byte %llu is '%c' where %s was expected", at,
                              c, wanted);
    return s->rc;
}

int json_scan_expect(struct json_scan *s, char c)
{
    char wanted[4] = {'\'', c, '\'', '\0'};

    if (json_scan_peek(s) != (unsigned char)c)
        return wrong(s, wanted);
    s->i++;
    return 0;
}

/* Skip a string, from after the opening quote. */
static int skip_string(struct json_scan *s)
{
    const char *block = (const char *)s->block;
    bool escaped = false;

    while (look(s) >= 0) {
        s->i = (size_t)(ckpt_json_string_end(block + s->i, block + s->have, &escaped) - block);
        if (s->i < s->have) {
            s->i++;
            return 0;
        }
    }
    return wrong(s, "the end of a string");
}

/* Skip a number or word: up to a byte that cannot belong to one. */
static int skip_word(struct json_scan *s)
{
    uint64_t from = json_scan_at(s);
    int c;

    while ((c = look(s)) > ' ' && c != ',' && c != ']' && c != '}' && c != ':' && c != '"' &&
           c != '[' && c != '{')
        s->i++;
    return json_scan_at(s) > from ? 0 : wrong(s, "a value");
}

int json_scan_value(struct json_scan *s, struct json_span *out)
{
    char open[CKPT_JSON_MAX_DEPTH + 2];
    size_t depth = 0;
    int rc;

    json_scan_peek(s);
    out->at = json_scan_at(s);
    do {
        int c = json_scan_peek(s);

        if (c == '{' || c == '[') {
            if (depth == sizeof open)
                return s->rc = ckpt_fail(s->err, CKPT_ELIMIT, "nested deeper than %d at byte %llu",
                                         CKPT_JSON_MAX_DEPTH,
                                         (unsigned long long)json_scan_at(s));
            open[depth++] = c == '{' ? '}' : ']';
            s->i++;
        } else if (depth > 0 && c == open[depth - 1]) {
            depth--;
            s->i++;
        } else if (c == '"') {
            s->i++;
            if ((rc = skip_string(s)) != 0)
                return rc;
        } else if (depth > 0 && (c == ',' || c == ':')) {
            s->i++;
        } else if (c < 0 || c == '}' || c == ']') {
            return wrong(s, depth == 0 ? "a value" : open[depth - 1] == '}' ? "'}'" : "']'");
        } else if ((rc = skip_word(s)) != 0) {
            return rc;
        }
    } while (depth > 0);
    out->n = json_scan_at(s) - out->at;
    return s->rc;
}

int json_scan_next(struct json_scan *s, char close, bool *more)
{
    int c = json_scan_peek(s);

    if (c != ',' && c != close)
        return wrong(s, close == ']' ? "',' or ']'" : "',' or '}'");
    *more = c == ',';
    s->i++;
    return 0;
}
