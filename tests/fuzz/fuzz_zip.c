/* fuzz_zip: any bytes as an archive: members inside the file, or a refusal. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/container/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    struct zip z;

    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        return 0;
    if (zip_open(&z, file, &err) == 0) {
        for (size_t i = 0; i < z.n; i++)
            if (z.entry[i].offset > size || z.entry[i].size > size - z.entry[i].offset)
                abort();
        zip_release(&z);
    }
    ckpt_file_close(file);
    return 0;
}
