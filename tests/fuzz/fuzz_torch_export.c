/*
 * Any text as the config of a torch.export program, beside a weight of 64 bytes: refused with a
 * sentence, or every tensor can be read.
 * Seeds: tests/fuzz/seeds/torch_export.
 */
#include "formats/torch/export.h"
#include "libckpt/base/crc32.h"
#include "tests/fuzz/lib/source_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
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

    must(bytes);
    memcpy(bytes + 64, data, size);
    entry[1].crc = ckpt_crc32(0, data, size);
    z.file = file_of(bytes, 64 + size, "fuzz");
    if (torch_export_list(&list, &z, &err) == 0) {
        struct ckpt_source *src = source_of_list(&list);

        read_tensors(src, READ_FAILS_NEVER);
        ckpt_source_close(src);
    } else {
        must(err.text[0]);
    }
    ckpt_file_close(z.file);
    ckpt_tensors_release(&list);
    free(bytes);
    return 0;
}
