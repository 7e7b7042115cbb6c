/* A log of any bytes, walked: a sentence when it is refused, else series that hold what they count. */
#ifndef CKPT_TESTS_FUZZ_LIB_LOG_WALK_H
#define CKPT_TESTS_FUZZ_LIB_LOG_WALK_H

#include <stdlib.h>
#include <string.h>

#include "formats/logs/run_log.h"
#include "libckpt/err.h"

static inline void log_walk(const void *data, size_t size)
{
    struct run_log *log = NULL;
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    uint64_t points = 0;

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
    } else if (!err.text[0] || log) {
        abort();
    }
    run_log_free(log);
    ckpt_file_close(file);
}

#endif
