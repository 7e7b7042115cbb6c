/*
 * JSON lines and text of any bytes: each record is an object or an error, and asking for
 * records backwards gives the same answers.  Then, as data: a sample or an error.
 */
#include "tests/fuzz/lib/records_walk.h"
#include "trainer/data/sample.h"
#include "trainer/data/template.h"

static void use(const json_t *record)
{
    struct ckpt_err err = {0};
    struct sample s = {0};
    struct template *t;
    struct ckpt_buf b;

    if (sample_from_ids(&s, record, 16, &err) == 0)
        for (int64_t i = 0; i < s.n; i++)
            must(s.ids[i] >= 0 && s.labels[i] >= SAMPLE_NO_LABEL);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct records_opts none;

    walk(&record_jsonl, data, size, &none, use);
    walk(&record_text, data, size, &none, use);
    return 0;
}
