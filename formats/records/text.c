/*
 * text - lines of plain text as records {"text": line}.  Empty lines are records too, as in
 * Hugging Face's text loader.
 */
#include <string.h>
#include <strings.h>

#include "formats/records/lines.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"

/* Any bytes could be text, so the name must say so. */
static int bid(const char *path, const unsigned char *head, size_t len)
{
    size_t n = strlen(path);

    (void)head;
    (void)len;
    return n > 4 && strcasecmp(path + n - 4, ".txt") == 0 ? 70 : 0;
}

static int text_open(void **self, struct ckpt_file *file, const struct records_opts *opts,
                     struct ckpt_err *err)
{
    struct lines *l = NULL;
    int rc = lines_open(&l, file, false, err);

    (void)opts;
    *self = l;
    return rc;
}

static int64_t text_count(void *self) { return lines_count(self); }

static int text_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    struct ckpt_buf line;
    json_t *text = NULL;
    int rc;

    *out = NULL;
    ckpt_buf_init(&line, SIZE_MAX);
    rc = lines_get(self, i, &line, err);
    if (rc == 0 && !ckpt_utf8_valid(line.len ? (const void *)line.data : "", line.len))
        rc = ckpt_fail(err, CKPT_EFORMAT, "not UTF-8 text");
    if (rc)
        ckpt_err_in(err, "line %lld", (long long)lines_number(self, i));
    if (rc == 0) {
        text = json_stringn_nocheck(line.len ? (const char *)line.data : "", line.len);
        /* json_pack takes text, on failure too. */
        *out = text ? json_pack("{s:o}", "text", text) : NULL;
        if (!*out)
            rc = ckpt_nomem(err, line.len);
    }
    ckpt_buf_release(&line);
    return rc;
}

static void text_close(void *self) { lines_close(self); }

const struct record_ops record_text = {
    .name = "text", .bid = bid, .open = text_open, .count = text_count, .get = text_get,
    .close = text_close,
};
