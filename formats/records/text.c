/*
 * text - lines of plain text as records {"text": line}.  Empty lines are records too, as in
 * Hugging Face's text loader.
 */
#include <string.h>
#include <strings.h>

#include "formats/records/lines.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"

/* Any bytes could be text, so the name decides. */
static int bid(const char *path, const unsigned char *head, size_t len)
{
    size_t n = strlen(path);

    (void)head;
    (void)len;
    return n > 4 && strcasecmp(path + n - 4, ".txt") == 0 ? 70 : 0;
}

static int text_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                     struct ckpt_err *err)
{
    (void)opts;
    return lines_open(self, file, false, err);
}

static int parse(json_t **out, const char *line, size_t n, struct ckpt_err *err)
{
    json_t *text;

    if (!ckpt_utf8_valid(line, n))
        return ckpt_fail(err, CKPT_EFORMAT, "not UTF-8 text");
    text = json_stringn_nocheck(line, n);
    /* json_pack takes text, on failure too. */
    *out = text ? json_pack("{s:o}", "text", text) : NULL;
    return *out ? 0 : ckpt_nomem(err, n);
}

static int text_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    return lines_get(self, i, out, parse, err);
}

const struct record_ops record_text = {
    .name = "text", .size = sizeof(struct lines), .bid = bid, .open = text_open,
    .count = lines_count, .get = text_get, .close = lines_close,
};
