/*
 * A safetensors file of any bytes: refused with a sentence, or a list whose tensors lie inside
 * the file and can be read to the end.
 * Seeds: tests/golden/safetensors, tests/golden/malicious/safetensors.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/hf/safetensors.h"
#include "formats/hf/safetensors_header.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(const struct ckpt_tensors *list, size_t size)
{
    unsigned char element[16];
    uint64_t sum = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];
        uint64_t bytes = ckpt_tensor_bytes(t);
        struct ckpt_err err = {0};

        if (ckpt_tensors_find(list, t->name) != i || safetensors_class(t->dtype) == SIZE_MAX)
            abort();
        if (t->n_frag && (t->frag[0].offset > size || bytes > size - t->frag[0].offset))
            abort();
        if (ckpt_dtype_size(t->dtype) && t->n_frag &&
            ckpt_fragment_check(&t->shape, t->dtype, t->frag, t->n_frag, &err))
            abort();
        if (ckpt_dtype_size(t->dtype) && t->n_frag &&
            ckpt_fragment_gather(element, &t->shape, t->dtype, t->frag, 1, t->numel - 1, 1, &err))
            abort();
        sum += bytes;
    }
    if (sum > size)
        abort();
}

/* What was accepted is JSON to another parser too. */
static void check_json(const unsigned char *data, size_t size)
{
    struct ckpt_cursor c;
    json_error_t why;
    json_t *v;
    uint64_t n;

    ckpt_cursor_init(&c, data, size);
    n = ckpt_cursor_u64le(&c);
    v = json_loadb((const char *)data + 8, (size_t)n, 0, &why);
    if (!v)
        abort();
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    json_t *metadata = NULL;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        return 0;
    if (safetensors_read(&list, file, &metadata, &err) == 0) {
        check(&list, size);
        check_json(data, size);
    } else if (!err.text[0] || metadata) {
        abort();
    }
    json_decref(metadata);
    ckpt_tensors_release(&list);
    ckpt_file_close(file);
    return 0;
}
