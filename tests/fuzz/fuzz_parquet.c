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

/* The same rows after half of them were left out, if they could be read and every column has them. */
static void skip_half(const struct pq_file *f, size_t g, const struct ckpt_buf *half)
{
    struct pq_rows *rows = NULL;
    struct ckpt_err err = {0};
    struct ckpt_buf row;
    int rc = pq_rows_open(&rows, f, g, NULL, &err);

    ckpt_buf_init(&row, 1 << 20);
    if (rc == 0)
        rc = pq_rows_skip(rows, f->group[g].rows / 2, &err);
    if (rc == 0)
        rc = pq_rows_next(rows, &row, &err);
    must(rc == 0 || err.text[0]);
    if (half->len > 0 && rc == 0)
        must(row.len == half->len && memcmp(row.data, half->data, row.len) == 0);
    pq_rows_close(rows);
    ckpt_buf_release(&row);
}

static void read_group(const struct pq_file *f, size_t g)
{
    struct pq_rows *rows = NULL;
    struct ckpt_err err = {0};
    struct ckpt_buf row, half;
    int rc;

    ckpt_buf_init(&row, 1 << 20);
    ckpt_buf_init(&half, 1 << 20);
    rc = pq_rows_open(&rows, f, g, NULL, &err);
    for (int64_t i = 0; rc == 0 && i < f->group[g].rows && i < 300; i++) {
        row.len = 0;
        rc = pq_rows_next(rows, &row, &err);
        if (rc == 0)
            check_row(&row);
        if (rc == 0 && i == f->group[g].rows / 2)
            ckpt_buf_put(&half, row.data, row.len);
    }
    must(rc == 0 || err.text[0]);
    pq_rows_close(rows);
    ckpt_buf_release(&row);
    skip_half(f, g, &half);
    ckpt_buf_release(&half);
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
