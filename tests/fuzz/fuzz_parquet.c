/*
 * A parquet file of any bytes: refused with a sentence, or rows each of which is JSON text.
 * Seeds: tests/golden/parquet.
 */
#include "formats/records/parquet/rows.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* What makes a row no JSON though the file is sound: its texts, and names that clash. */
static void check_row(const struct ckpt_buf *row)
{
    struct ckpt_err err = {0};
    json_t *v;

    if (!ckpt_utf8_valid(row->data, row->len) || memmem(row->data, row->len, "\\u0000", 6))
        return;
    must(ckpt_json_parse(&v, (const char *)row->data, row->len, CKPT_JSON_STRICT, &err) !=
         CKPT_EFORMAT);
    json_decref(v);
}

static void read_group(const struct pq_file *f, size_t g)
{
    struct pq_rows *rows = NULL;
    struct ckpt_err err = {0};
    struct ckpt_buf row;
    int rc;

    ckpt_buf_init(&row, 1 << 20);
    rc = pq_rows_open(&rows, f, g, NULL, &err);
    for (int64_t i = 0; rc == 0 && i < f->group[g].rows && i < 300; i++) {
        row.len = 0;
        rc = pq_rows_next(rows, &row, &err);
        if (rc == 0)
            check_row(&row);
    }
    must(rc == 0 || err.text[0]);
    pq_rows_close(rows);
    ckpt_buf_release(&row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_err err = {0};
    struct pq_file f;

    if (pq_file_open(&f, file, &err) == 0) {
        for (size_t g = 0; g < f.n_group && g < 20; g++)
            read_group(&f, g);
    } else {
        must(err.text[0]);
    }
    pq_file_release(&f);
    ckpt_file_close(file);
    return 0;
}
