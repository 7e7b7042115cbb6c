/*
 * A safetensors file of any bytes: refused with a sentence, or a list whose tensors lie inside
 * the file and can be read to the end.
 * Seeds: tests/golden/safetensors, tests/golden/malicious/safetensors.
 */
#include "formats/hf/safetensors.h"
#include "formats/hf/safetensors_header.h"
#include "libckpt/base/json.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check(const struct ckpt_tensors *list, size_t size)
{
    unsigned char element[16];
    uint64_t sum = 0;

    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];
        uint64_t bytes = ckpt_tensor_bytes(t);
        struct ckpt_err err = {0};

        sum += bytes;
        must(ckpt_tensors_find(list, t->name) == i && safetensors_class(t->dtype) != SIZE_MAX);
        if (t->n_frag == 0)
            continue;
        must(t->frag[0].offset <= size && bytes <= size - t->frag[0].offset);
        if (ckpt_dtype_size(t->dtype) == 0)
            continue;
        must(ckpt_fragment_check(&t->shape, t->dtype, t->frag, t->n_frag, &err) == 0);
        must(ckpt_fragment_gather(element, &t->shape, t->dtype, t->frag, 1, t->numel - 1, 1,
                                  &err) == 0);
    }
    must(sum <= size);
}

/* What was accepted is JSON to another parser too. */
static void check_json(const uint8_t *data, size_t size)
{
    struct ckpt_cursor c;
    json_error_t why;
    json_t *v;
    uint64_t n;

    ckpt_cursor_init(&c, data, size);
    n = ckpt_cursor_u64le(&c);
    v = json_loadb((const char *)data + 8, (size_t)n, 0, &why);
    must(v);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    json_t *metadata = NULL;

    if (safetensors_read(&list, file, &metadata, &err) == 0) {
        check(&list, size);
        check_json(data, size);
    } else {
        must(err.text[0] && !metadata);
    }
    json_decref(metadata);
    ckpt_tensors_release(&list);
    ckpt_file_close(file);
    return 0;
}
