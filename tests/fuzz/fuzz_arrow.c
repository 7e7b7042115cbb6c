/*
 * An Arrow stream or file of any bytes: refused with a sentence, or rows that are JSON or fail
 * with one.
 * Seeds: tests/golden/parquet.
 */
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_err err = {0};
    void *self = NULL;
    int64_t n, step;

    if (record_open(&self, &record_arrow, file, &(struct records_opts){0}, &err)) {
        must(err.text[0] && !self);
        return 0;
    }
    n = record_arrow.count(self);
    step = n / 50 + 1;
    for (int64_t i = 0; i < n && n - i >= 0; i += step) {
        json_t *row = NULL;
        struct ckpt_err why = {0};

        if (record_arrow.get(self, i, &row, &why))
            must(why.text[0] && !row);
        else
            must(json_is_object(row));
        json_decref(row);
        if (i > INT64_MAX - step)
            break;
    }
    record_close(self, &record_arrow);
    return 0;
}
