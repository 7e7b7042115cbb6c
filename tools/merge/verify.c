/* verify - read the output back and compare; see parts.h. */
#include "tools/merge/parts.h"

#include <string.h>

#include "formats/gguf/types.h"

#define VERIFY_BYTES ((size_t)4 << 20)

int merge_verify(struct ckpt_source *src, const char *output, bool optimizer,
                 struct ckpt_err *err)
{
    unsigned char *a = ckpt_alloc_buffer(2 * VERIFY_BYTES), *b = a ? a + VERIFY_BYTES : NULL;
    struct ckpt_source *back = NULL;
    struct ckpt_open_opts opts = {.optimizer = optimizer, .spool = cli_spool()};
    int rc = a ? ckpt_open(&back, output, &opts, err) : ckpt_nomem(err, 2 * VERIFY_BYTES);

    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        size_t j = ckpt_source_find(back, t->name), width = ckpt_dtype_size(t->dtype);
        int64_t step = (int64_t)(VERIFY_BYTES / (width ? width : 1));

        if (j == SIZE_MAX)
            rc = ckpt_fail_as(err, CKPT_EIO, "digest", "%s: %s is not there after writing", output,
                              t->name);
        for (int64_t at = 0; rc == 0 && at < t->numel; at += step) {
            int64_t n = t->numel - at < step ? t->numel - at : step;

            rc = ckpt_source_read(src, i, at, n, a, err);
            if (rc == 0)
                rc = ckpt_source_read(back, j, at, n, b, err);
            if (rc == 0 && t->stored && strcmp(t->stored, "Q8_0") == 0)
                gguf_q8_0_round((float *)(void *)a, (size_t)n);
            if (rc == 0 && memcmp(a, b, (size_t)n * width) != 0)
                rc = ckpt_fail_as(err, CKPT_EIO, "digest",
                                  "%s: %s reads back other than it was written", output, t->name);
        }
    }
    ckpt_source_close(back);
    ckpt_free(a);
    return rc;
}
