/*
 * Any text as the config of a torch.export program, beside a weight of 64 bytes: refused with a
 * sentence, or every tensor can be read.
 * Seeds: tests/fuzz/seeds/torch_export.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/torch/export.h"
#include "libckpt/base/crc32.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void read_all(const struct ckpt_tensors *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];
        struct ckpt_err err = {0};
        unsigned char x[1024];
        int64_t n = t->numel < 60 ? t->numel : 60;

        if (t->n_frag && (ckpt_fragment_gather(x, &t->shape, t->dtype, t->frag, 1, 0, n, &err) ||
                          ckpt_fragment_gather(x, &t->shape, t->dtype, t->frag, 1, t->numel - n, n, &err)))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct zip_entry entry[] = {
        {.name = "archive_format"},
        {.name = "data/weights/m_weights_config.json", .offset = 64, .size = size, .plain = size},
        {.name = "data/weights/weight_0", .size = 64, .plain = 64},
    };
    struct zip z = {.entry = entry, .n = 3};
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};
    unsigned char *bytes = calloc(1, 64 + size);

    if (bytes && size)
        memcpy(bytes + 64, data, size);
    entry[1].crc = ckpt_crc32(0, data, size);
    if (bytes && ckpt_file_memory(&z.file, bytes, 64 + size, "fuzz", &err) == 0) {
        if (torch_export_list(&list, &z, &err) == 0)
            read_all(&list);
        else if (!err.text[0])
            abort();
        ckpt_file_close(z.file);
    }
    ckpt_tensors_release(&list);
    free(bytes);
    return 0;
}
