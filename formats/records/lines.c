/* lines - see lines.h. */
#include "formats/records/lines.h"
#include "libckpt/err.h"

#include <string.h>

#define SCAN_BYTES ((size_t)1 << 20)

/* State of the scan. */
struct scan {
    struct lines *l;
    uint64_t      begin;            /* of the line being read */
    bool          skip_blank, blank;
};

static bool is_blank(unsigned char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static int end_line(struct scan *s, uint64_t next, struct ckpt_err *err)
{
    struct lines *l = s->l;

    if (!s->skip_blank || !s->blank) {
        if (ckpt_reserve(&l->start, (size_t)l->n, &l->cap, sizeof *l->start, err))
            return CKPT_ENOMEM;
        l->start[l->n++] = s->begin;
    }
    s->begin = next;
    s->blank = true;
    return 0;
}

/* Scan n bytes from offset. */
static int scan_block(struct scan *s, const unsigned char *b, size_t n, uint64_t offset,
                      struct ckpt_err *err)
{
    size_t i = 0;
    int rc;

    while (i < n) {
        const unsigned char *eol = memchr(b + i, '\n', n - i);
        size_t end = eol ? (size_t)(eol - b) : n;

        /* Stops at the line's first visible byte, so that each byte is examined at most twice. */
        for (; s->blank && i < end; i++)
            s->blank = is_blank(b[i]);
        if (eol && (rc = end_line(s, offset + end + 1, err)) != 0)
            return rc;
        i = end + (eol != NULL);
    }
    return 0;
}

int lines_open(void *self, struct ckpt_file *file, bool skip_blank, struct ckpt_err *err)
{
    struct lines *l = self;
    uint64_t size = ckpt_file_size(file);
    size_t block_bytes = size < SCAN_BYTES ? (size_t)size : SCAN_BYTES;
    unsigned char *block = ckpt_alloc_buffer(block_bytes);
    struct scan s = {.l = l, .skip_blank = skip_blank, .blank = true};
    int rc = block ? 0 : ckpt_nomem(err, block_bytes);

    l->file = file;
    ckpt_file_sequential(file);
    for (uint64_t at = 0; rc == 0 && at < size; at += SCAN_BYTES) {
        size_t n = size - at < SCAN_BYTES ? (size_t)(size - at) : SCAN_BYTES, bom = 0;

        rc = ckpt_file_read_at(file, block, n, at, err);
        if (rc == 0 && at == 0 && n >= 3 && memcmp(block, "\xef\xbb\xbf", 3) == 0)
            s.begin = bom = 3;
        if (rc == 0)
            rc = scan_block(&s, block + bom, n - bom, at + bom, err);
    }
    if (rc == 0 && s.begin < size)
        rc = end_line(&s, size, err);
    ckpt_free(block);
    return rc;
}

void lines_close(void *self)
{
    struct lines *l = self;

    ckpt_file_close(l->file);
    ckpt_free(l->start);
}

int64_t lines_count(void *self) { return ((struct lines *)self)->n; }

/* Read the bytes of line i; the caller frees them. */
static int read_line(const struct lines *l, int64_t i, char **out, size_t *len,
                     struct ckpt_err *err)
{
    uint64_t begin = l->start[i],
             next = i + 1 < l->n ? l->start[i + 1] : ckpt_file_size(l->file);
    const char *eol;
    size_t n;
    int rc;

    *out = NULL;
    if (next - begin > LINES_MAX_LINE)
        return ckpt_fail(err, CKPT_ELIMIT, "a line of %llu bytes; the limit is %llu",
                         (unsigned long long)(next - begin),
                         (unsigned long long)LINES_MAX_LINE);
    n = (size_t)(next - begin);
    *out = ckpt_alloc_buffer(n + 1);
    if (!*out)
        return ckpt_nomem(err, n + 1);
    if (n > 0 && (rc = ckpt_file_read_at(l->file, *out, n, begin, err)) != 0)
        return rc;
    /* Skipped lines may follow. */
    eol = memchr(*out, '\n', n);
    n = eol ? (size_t)(eol - *out) : n;
    *len = n > 0 && (*out)[n - 1] == '\r' ? n - 1 : n;
    return 0;
}

/* The number of line i in the file, from 1: computed again, for messages only. */
static int64_t number_of(const struct lines *l, int64_t i)
{
    struct ckpt_err ignored = {0};
    unsigned char block[4096];
    int64_t number = 1;

    for (uint64_t at = 0, n; at < l->start[i]; at += n) {
        n = l->start[i] - at < sizeof block ? l->start[i] - at : sizeof block;
        if (ckpt_file_read_at(l->file, block, (size_t)n, at, &ignored))
            return 0;
        for (uint64_t k = 0; k < n; k++)
            number += block[k] == '\n';
    }
    return number;
}

int lines_get(void *self, int64_t i, json_t **out,
              int (*parse)(json_t **out, const char *line, size_t n, struct ckpt_err *err),
              struct ckpt_err *err)
{
    char *line;
    size_t n;
    int rc = read_line(self, i, &line, &n, err);

    *out = NULL;
    if (rc == 0)
        rc = parse(out, line, n, err);
    if (rc) {
        ckpt_err_in(err, "line %lld", (long long)number_of(self, i));
        json_decref(*out);
        *out = NULL;
    }
    ckpt_free(line);
    return rc;
}
