/*
 * A host file of any bytes, and a choice among its hosts.
 * Input: the choice, a NUL, the file.  Seeds: tests/fuzz/seeds/hostfile.
 */
#include <stdint.h>
#include <string.h>

#include "libckpt/err.h"
#include "trainer/launch/hostfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *choice = (const char *)data;
    size_t n = strnlen(choice, size);
    struct ckpt_err err = {0};
    struct hostfile h;

    for (int include = 0; n < size && include < 2; include++) {
        if (hostfile_parse(&h, choice + n + 1, size - n - 1, "hosts", &err) != 0)
            return 0;
        if (include ? hostfile_include(&h, choice, &err) : hostfile_exclude(&h, choice, &err))
            n = size;
        hostfile_release(&h);
    }
    return 0;
}
