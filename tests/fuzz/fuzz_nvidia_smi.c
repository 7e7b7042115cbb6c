/*
 * nvidia-smi's CSV of any bytes: refused with a sentence, or a log whose series hold what they
 * count.
 * Seeds: tests/golden/logs.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/logs/nvidia_smi.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct run_log *log = NULL;
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    uint64_t points = 0;

    if (!nvidia_smi_is(data, size))
        return 0;
    if (ckpt_file_memory(&file, data, size, "fuzz", &err))
        abort();
    if (run_log_read(&log, file, &err) == 0) {
        for (size_t i = 0; i < log->n; i++) {
            const struct log_series *s = &log->series[i];

            if (run_log_find(log, s->tag, strlen(s->tag), s->kind) != s)
                abort();
            points += s->point ? s->count : 0;
        }
        if (points > size || log->torn_bytes > size)
            abort();
    } else if (!err.text[0]) {
        abort();
    }
    run_log_free(log);
    ckpt_file_close(file);
    return 0;
}
