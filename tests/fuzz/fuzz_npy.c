/*
 * Any bytes as one of numpy's arrays: refused with a sentence, or it can be read to its end.
 * Seeds: tests/golden/numpy.
 */
#include "formats/npy.h"
#include "tests/fuzz/lib/source_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct ckpt_tensors list = {0};
    struct ckpt_err err = {0};

    (void)npy_is_ids(data, size < 256 ? size : 256);
    if (npy_read(&list, file, "fuzz", &err) == 0) {
        struct ckpt_source *src = source_of_list(&list);

        read_tensors(src, READ_FAILS_NEVER);
        ckpt_source_close(src);
    } else {
        must(err.text[0]);
    }
    ckpt_tensors_release(&list);
    ckpt_file_close(file);
    return 0;
}
