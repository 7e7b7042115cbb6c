/*
 * JSON lines and text of any bytes: each record is an object or an error, and asking for
 * records backwards gives the same answers.  Then, as data: a sample or an error.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/records/record_rows.h"
#include "trainer/data/sample.h"
#include "trainer/data/template.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void use(const json_t *record)
{
    struct ckpt_err err = {0};
    struct sample s = {0};
    struct template *t;
    struct ckpt_buf b;

    if (sample_from_ids(&s, record, 16, &err) == 0)
        for (int64_t i = 0; i < s.n; i++)
            if (s.ids[i] < 0 || s.labels[i] < SAMPLE_NO_LABEL)
                abort();
    sample_release(&s);
    ckpt_buf_init(&b, SIZE_MAX);
    /* The record's own text as a template over it. */
    if (json_string_value(json_object_get(record, "text")) &&
        template_parse(&t, json_string_value(json_object_get(record, "text")), &err) == 0) {
        template_render(t, &b, record, &err);
        template_free(t);
    }
    ckpt_buf_release(&b);
}

static void walk(const struct record_ops *ops, const unsigned char *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    void *self;
    int64_t n, good = 0;
    json_t *v;

    if (ckpt_file_memory(&file, data, size, "rows", &err) || ops->open(&self, file, &err))
        return;
    n = ops->count(self);
    for (int64_t i = 0; i < n; i++)
        if (ops->get(self, i, &v, &err) == 0) {
            if (!json_is_object(v))
                abort();
            use(v);
            json_decref(v);
            good++;
        } else if (v || !err.text[0]) {
            abort();
        }
    for (int64_t i = n; i-- > 0;)
        if (ops->get(self, i, &v, &err) == 0) {
            json_decref(v);
            good--;
        }
    if (good != 0)
        abort();
    ops->close(self);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    walk(&record_jsonl, data, size);
    walk(&record_text, data, size);
    return 0;
}
