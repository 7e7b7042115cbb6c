/*
 * Any bytes as one of numpy's arrays: refused with a sentence, or it can be read to its end.
 * Seeds: tests/golden/numpy.
 */
#include <stdlib.h>

#include "formats/npy.h"
#include "libckpt/err.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct ckpt_tensors list = {0};
    struct ckpt_file *file;
    struct ckpt_err err = {0};

    (void)npy_is_ids(data, size < 256 ? size : 256);
    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        return 0;
    if (npy_read(&list, file, "fuzz", &err) == 0) {
        const struct ckpt_tensor *t = &list.item[0];
        unsigned char x[1024];

        for (int64_t at = 0; at < t->numel; at += t->numel / 3 + 1) {
            int64_t n = t->numel - at < 60 ? t->numel - at : 60;

            if (ckpt_fragment_gather(x, &t->shape, t->dtype, t->frag, t->n_frag, at, n, &err))
                abort();
        }
    } else if (!err.text[0]) {
        abort();
    }
    ckpt_tensors_release(&list);
    ckpt_file_close(file);
    return 0;
}
