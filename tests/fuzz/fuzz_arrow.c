/*
 * An Arrow stream or file of any bytes: refused with a sentence, or rows that are JSON or fail
 * with one.
 * Seeds: tests/golden/parquet.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    void *self = NULL;
    int64_t n, step;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        abort();
    if (record_arrow.open(&self, file, &(struct records_opts){0}, &err)) {
        if (!err.text[0] || self)
            abort();
        return 0;
    }
    n = record_arrow.count(self);
    step = n / 50 + 1;
    for (int64_t i = 0; i < n && n - i >= 0; i += step) {
        json_t *row = NULL;
        struct ckpt_err why = {0};

        if (record_arrow.get(self, i, &row, &why) ? !why.text[0] || row : !json_is_object(row))
            abort();
        json_decref(row);
        if (i > INT64_MAX - step)
            break;
    }
    record_arrow.close(self);
    return 0;
}
