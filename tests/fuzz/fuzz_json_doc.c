/* JSON documents and token ids of any bytes; a split expression of them. */
#include "formats/records/split.h"
#include "tests/fuzz/lib/records_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct records_opts plain, deep = {.field = "a.b", .stream_tokens = 3};
    struct split_part part[SPLIT_MAX_PARTS];
    struct ckpt_err err = {0};
    char text[256];
    int64_t from, to;
    size_t n = size < sizeof text ? size : sizeof text - 1;

    walk(&record_json, data, size, &plain, NULL);
    walk(&record_json, data, size, &deep, NULL);
    walk(&record_token_ids, data, size, &deep, NULL);
    memcpy(text, data, n);
    text[n] = '\0';
    if (split_parse(part, &n, text, &err) == 0)
        for (size_t i = 0; i < n; i++)
            must(split_range(&part[i], 1234, &from, &to, &err) ||
                 (from >= 0 && from <= to && to <= 1234));
    return 0;
}
