/* encode - see encode.h. */
#include "tools/inspect/encode.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "formats/tokens/tokenizer.h"
#include "libckpt/base/buf.h"
#include "libckpt/io/path.h"
#include "libckpt/base/pool.h"

#define BLOCK       ((size_t)1 << 20)       /* bytes of input read at once */
#define MAX_LINE    ((size_t)256 << 20)
#define MAX_JOBS    64
#define PIECES      8                       /* parts of a block per job, for an even load */

/* Complete lines of the input, and the beginning of the next. */
struct input {
    struct ckpt_file *file;         /* NULL: stdin */
    uint64_t          at;
    char             *data;
    size_t            len, cap;
    size_t            lines_end;    /* bytes of complete lines in data */
    uint64_t          line;         /* number of the first, from 1 */
    bool              end;
};

/* Consecutive lines, and the output for them. */
struct share {
    const char     *from;
    size_t          len;
    uint64_t        line;
    struct ckpt_buf out;
    struct encoding enc;
};

struct job {
    const struct tokenizer *tok;
    const char             *name;   /* of the input */
    bool                    decode, jsonl, special;
    struct share           *share;
};

static int read_some(struct input *in, size_t room, size_t *got, struct ckpt_err *err)
{
    uint64_t left;
    ssize_t n;
    int rc;

    if (in->file) {
        left = ckpt_file_size(in->file) - in->at;
        *got = left < room ? (size_t)left : room;
        if (*got && (rc = ckpt_file_read_at(in->file, in->data + in->len, *got, in->at,
                                            err)) != 0)
            return rc;
        in->at += *got;
        return 0;
    }
    do
        n = read(STDIN_FILENO, in->data + in->len, room);
    while (n < 0 && errno == EINTR && !cli_stop);
    if (n < 0)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "stdin");
    *got = (size_t)n;
    return 0;
}

/* Read more complete lines; none and end at the end of the input. */
static int next_block(struct input *in, struct ckpt_err *err)
{
    size_t got = 0;
    int rc;

    if (in->lines_end > 0)              /* otherwise data may be NULL */
        memmove(in->data, in->data + in->lines_end, in->len - in->lines_end);
    in->len -= in->lines_end;
    in->lines_end = 0;
    while (!in->end && in->lines_end == 0) {
        if (in->cap - in->len < BLOCK) {
            size_t cap = in->cap ? 2 * in->cap : 2 * BLOCK;
            void *p;

            if (in->len > MAX_LINE)
                return ckpt_fail(err, CKPT_ELIMIT, "line %llu is longer than %zu bytes",
                                 (unsigned long long)in->line, MAX_LINE);
            p = ckpt_grow(in->data, cap, 1);
            if (!p)
                return ckpt_nomem(err, cap);
            in->data = p;
            in->cap = cap;
        }
        if ((rc = read_some(in, BLOCK, &got, err)) != 0)
            return rc;
        if (got == 0) {
            in->end = true;
            in->lines_end = in->len;
        } else {
            const char *last = memrchr(in->data + in->len, '\n', got);

            in->len += got;
            in->lines_end = last ? (size_t)(last + 1 - in->data) : 0;
        }
    }
    return 0;
}

/* A JSON string; s is UTF-8. */
static void put_string(struct ckpt_buf *out, const char *s, size_t n)
{
    size_t from = 0;

    ckpt_buf_put(out, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];

        if (c >= ' ' && c != '"' && c != '\\' && c != 0x7f)
            continue;
        ckpt_buf_put(out, s + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\')
            ckpt_buf_put(out, c == '"' ? "\\\"" : "\\\\", 2);
        else if (c == '\n' || c == '\t' || c == '\r')
            ckpt_buf_put(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r", 2);
        else
            ckpt_buf_printf(out, "\\u%04x", c);
    }
    ckpt_buf_put(out, s + from, n - from);
    ckpt_buf_put(out, "\"", 1);
}

static void put_number(struct ckpt_buf *out, uint64_t n)
{
    char digits[20], *p = digits + sizeof digits;

    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    ckpt_buf_put(out, p, (size_t)(digits + sizeof digits - p));
}

/* Byte offsets of a text -> character offsets, fast for increasing offsets. */
struct counter { const char *text; size_t byte, chars; };

static size_t chars_to(struct counter *c, size_t byte)
{
    if (byte < c->byte)
        c->byte = c->chars = 0;
    for (; c->byte < byte; c->byte++)
        c->chars += ((unsigned char)c->text[c->byte] & 0xc0) != 0x80;
    return c->chars;
}

static int put_encoding(struct share *s, const struct job *j, const char *text,
                        struct ckpt_err *err)
{
    struct ckpt_buf *out = &s->out;
    const struct encoding *e = &s->enc;
    struct counter count = {.text = text};
    char *decoded;
    size_t len;
    int rc;

    if ((rc = tokenizer_decode(j->tok, &decoded, &len, e->id, e->n, !j->special, err)) != 0)
        return rc;
    ckpt_buf_put_str(out, "{\"ids\":[");
    for (size_t i = 0; i < e->n; i++) {
        if (i)
            ckpt_buf_put(out, ",", 1);
        put_number(out, (uint64_t)e->id[i]);
    }
    ckpt_buf_put_str(out, "],\"offsets\":[");
    for (size_t i = 0; i < e->n; i++) {
        ckpt_buf_put_str(out, i ? ",[" : "[");
        /* Added tokens have offset 0 whatever is around them. */
        put_number(out, e->start[i] ? chars_to(&count, (size_t)e->start[i]) : 0);
        ckpt_buf_put(out, ",", 1);
        put_number(out, e->end[i] ? chars_to(&count, (size_t)e->end[i]) : 0);
        ckpt_buf_put(out, "]", 1);
    }
    ckpt_buf_put_str(out, "],\"tokens\":[");
    for (size_t i = 0; i < e->n; i++) {
        const char *token = tokenizer_token(j->tok, e->id[i]);

        if (i)
            ckpt_buf_put(out, ",", 1);
        put_string(out, token, strlen(token));
    }
    ckpt_buf_put_str(out, "],\"decoded\":");
    put_string(out, decoded, len);
    ckpt_buf_put_str(out, "}\n");
    ckpt_free(decoded);
    return 0;
}

static int encode_line(struct share *s, const struct job *j, const char *line, size_t n,
                       struct ckpt_err *err)
{
    json_error_t why;
    json_t *v = NULL;
    int rc;

    if (j->jsonl) {
        v = json_loadb(line, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
        if (!v)
            return ckpt_fail(err, CKPT_EFORMAT, "not JSON: %s", why.text);
        if (!json_is_string(v)) {
            json_decref(v);
            return ckpt_fail(err, CKPT_EFORMAT, "not a JSON string");
        }
        line = json_string_value(v);
        n = json_string_length(v);
    }
    s->enc.n = 0;
    rc = tokenizer_encode(j->tok, &s->enc, line, n, j->special, err);
    if (rc == 0)
        rc = put_encoding(s, j, line, err);
    json_decref(v);
    return rc;
}

static int decode_line(struct share *s, const struct job *j, const char *line, size_t n,
                       struct ckpt_err *err)
{
    json_error_t why;
    json_t *v = json_loadb(line, n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why), *ids;
    size_t n_ids, len;
    int32_t *id = NULL;
    char *text = NULL;
    int rc = 0;

    if (!v)
        return ckpt_fail(err, CKPT_EFORMAT, "not JSON: %s", why.text);
    ids = json_is_object(v) ? json_object_get(v, "ids") : v;
    n_ids = json_array_size(ids);
    id = ckpt_alloc(n_ids + 1, sizeof *id);
    if (!json_is_array(ids))
        rc = ckpt_fail(err, CKPT_EFORMAT, "neither an array of ids nor an object with ids");
    else if (!id)
        rc = ckpt_nomem(err, n_ids * sizeof *id);
    for (size_t i = 0; rc == 0 && i < n_ids; i++) {
        const json_t *one = json_array_get(ids, i);
        json_int_t value = json_is_integer(one) ? json_integer_value(one) : -1;

        if (value < 0 || value > INT32_MAX)
            rc = ckpt_fail(err, CKPT_EFORMAT, "number %zu is no id", i);
        else
            id[i] = (int32_t)value;
    }
    if (rc == 0)
        rc = tokenizer_decode(j->tok, &text, &len, id, n_ids, !j->special, err);
    if (rc == 0) {
        put_string(&s->out, text, len);
        ckpt_buf_put(&s->out, "\n", 1);
    }
    ckpt_free(text);
    ckpt_free(id);
    json_decref(v);
    return rc;
}

static int work(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    const struct job *j = ctx;
    struct share *s = &j->share[i];
    uint64_t line = s->line;

    (void)worker;
    s->out.len = 0;
    for (size_t at = 0; at < s->len; line++) {
        const char *begin = s->from + at, *eol = memchr(begin, '\n', s->len - at);
        size_t n = eol ? (size_t)(eol - begin) : s->len - at;

        at += n + (eol != NULL);
        n -= n > 0 && begin[n - 1] == '\r';
        if (j->decode ? decode_line(s, j, begin, n, err) : encode_line(s, j, begin, n, err))
            return ckpt_err_in(err, "%s:%llu", j->name, (unsigned long long)line);
    }
    return ckpt_buf_ok(&s->out) ? 0 : ckpt_nomem(err, s->len);
}

/* Divide complete lines into at most n shares of about equal size. */
static size_t deal(struct input *in, struct share *share, size_t n)
{
    size_t each, used = 0;

    assert(n > 0);
    each = in->lines_end / n + 1;
    for (size_t at = 0; at < in->lines_end; used++) {
        size_t to = at + each < in->lines_end ? at + each : in->lines_end;
        const char *eol = memchr(in->data + to - 1, '\n', in->lines_end - to + 1);

        to = eol ? (size_t)(eol + 1 - in->data) : in->lines_end;
        share[used].from = in->data + at;
        share[used].len = to - at;
        share[used].line = in->line;
        for (const char *p = in->data + at; (p = memchr(p, '\n', (size_t)(in->data + to - p)));
             p++)
            in->line++;
        at = to;
    }
    return used;
}

/* Process all of the input, block by block. */
static int run(struct job *j, struct input *in, size_t jobs, struct ckpt_err *err)
{
    size_t n_share = jobs == 1 ? 1 : jobs * PIECES;
    int rc = 0;

    j->share = ckpt_alloc(n_share, sizeof *j->share);
    if (!j->share)
        return ckpt_nomem(err, n_share * sizeof *j->share);
    for (size_t i = 0; i < n_share; i++)
        ckpt_buf_init(&j->share[i].out, SIZE_MAX);
    while (rc == 0 && !in->end) {
        size_t n = 0;

        rc = cli_stop ? ckpt_fail(err, CKPT_ESTOPPED, "stopped by a signal")
                      : next_block(in, err);
        if (rc == 0)
            n = deal(in, j->share, n_share);
        if (rc == 0)
            rc = ckpt_pool_run(jobs, n, work, j, err);
        for (size_t i = 0; rc == 0 && i < n; i++)
            if (fwrite(j->share[i].out.data, 1, j->share[i].out.len, stdout) !=
                j->share[i].out.len)
                rc = ckpt_fail_errno(err, CKPT_EIO, errno, "stdout");
        if (rc == 0 && fflush(stdout))
            rc = ckpt_fail_errno(err, CKPT_EIO, errno, "stdout");
    }
    for (size_t i = 0; i < n_share; i++) {
        ckpt_buf_release(&j->share[i].out);
        encoding_release(&j->share[i].enc);
    }
    ckpt_free(j->share);
    return rc;
}

static int open_tokenizer(struct tokenizer **tok, const char *path, unsigned flags,
                          struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    struct ckpt_dir *dir = NULL;
    int rc;

    *tok = NULL;
    if (ckpt_path_is_dir(path)) {
        rc = ckpt_path_dir(&dir, path, flags, err);
        if (rc == 0)
            rc = tokenizer_open_dir(tok, dir, err);
    } else {
        rc = ckpt_path_file(&file, path, flags, err);
        if (rc == 0)
            rc = tokenizer_open(tok, file, err);
    }
    ckpt_dir_close(dir);
    ckpt_file_close(file);
    return rc;
}

int inspect_encode(const struct encode_want *w, const struct cli *cli, const char *path,
                   struct ckpt_err *err)
{
    const char *name = w->encode ? w->encode : w->decode, *dot = strrchr(name, '.');
    unsigned flags = cli->follow ? CKPT_FOLLOW : 0;
    struct job j = {.name = name, .decode = w->decode != NULL, .special = w->special,
                    .jsonl = dot && strcmp(dot, ".jsonl") == 0};
    struct input in = {.line = 1};
    struct tokenizer *tok;
    int rc = open_tokenizer(&tok, path, flags, err);

    j.tok = tok;
    if (rc == 0 && strcmp(name, "-") == 0)
        j.name = "stdin";
    else if (rc == 0)
        rc = ckpt_path_file(&in.file, name, flags, err);
    if (rc == 0)
        rc = run(&j, &in, cli->jobs ? (size_t)cli->jobs : ckpt_pool_default(MAX_JOBS), err);
    ckpt_file_close(in.file);
    ckpt_free(in.data);
    tokenizer_close(tok);
    return rc;
}
