/* fuzz_lfs: a pointer that is recognised is written the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/remote/git/lfs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char oid[CKPT_SHA256_HEX];
    struct ckpt_buf b;
    uint64_t n;

    if (!ckpt_lfs_parse((const char *)data, size, oid, &n))
        return 0;
    ckpt_buf_init(&b, 4096);
    ckpt_lfs_pointer(&b, oid, n);
    if (!ckpt_buf_ok(&b))
        abort();
    ckpt_buf_release(&b);
    return 0;
}
