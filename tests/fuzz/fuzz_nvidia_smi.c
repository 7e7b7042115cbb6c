/*
 * nvidia-smi's CSV of any bytes.
 * Seeds: tests/golden/logs.
 */
#include "formats/logs/nvidia_smi.h"
#include "tests/fuzz/lib/log_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (nvidia_smi_is(data, size))
        log_walk(data, size);
    return 0;
}
