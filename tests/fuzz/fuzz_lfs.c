/* fuzz_lfs: a pointer that is recognised is written the same. */
#include "libckpt/remote/git/lfs.h"
#include "tests/fuzz/lib/target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char oid[CKPT_SHA256_HEX];
    struct ckpt_buf b;
    uint64_t n;

    if (!ckpt_lfs_parse((const char *)data, size, oid, &n))
        return 0;
    ckpt_buf_init(&b, 4096);
    ckpt_lfs_pointer(&b, oid, n);
    must(ckpt_buf_ok(&b));
    ckpt_buf_release(&b);
    return 0;
}
