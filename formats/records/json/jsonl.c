/*
 * jsonl - one JSON object a line as records.  Blank lines are no records.
 */
#include <string.h>
#include <strings.h>

#include "formats/records/lines.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/base/json.h"

/* A name of JSON lines is sure enough that any other content is reported as an error; without it
 * the first visible byte must open an object. */
static int bid(const char *path, const unsigned char *head, size_t len)
{
    static const char *const ends[] = {".jsonl", ".ndjson"};
    size_t i = len >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, n = strlen(path);

    while (i < len && strchr(" \t\r\n", head[i]) && head[i])
        i++;
    for (size_t k = 0; k < 2; k++)
        if (n > strlen(ends[k]) && strcasecmp(path + n - strlen(ends[k]), ends[k]) == 0)
            return 90;
    /* Text contains no NUL: a safetensors file begins with its header's length, whose first byte
     * may be 0x7b. */
    return i < len && head[i] == '{' && !memchr(head, 0, len) ? 60 : 0;
}

static int jsonl_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                      struct ckpt_err *err)
{
    (void)opts;
    return lines_open(self, file, true, err);
}

static int parse(json_t **out, const char *line, size_t n, struct ckpt_err *err)
{
    int rc = ckpt_json_parse(out, line, n, CKPT_JSON_PYTHON | CKPT_JSON_LINE, err);

    return rc || json_is_object(*out) ? rc : ckpt_fail(err, CKPT_EFORMAT, "not a JSON object");
}

static int jsonl_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    return lines_get(self, i, out, parse, err);
}

const struct record_ops record_jsonl = {
    .name = "jsonl", .size = sizeof(struct lines), .bid = bid, .open = jsonl_open,
    .count = lines_count, .get = jsonl_get, .close = lines_close,
};
