/* log_walk - a log of any bytes: a sentence when it is refused, else series that hold what they
 * count. */
#ifndef CKPT_TESTS_FUZZ_LIB_LOG_WALK_H
#define CKPT_TESTS_FUZZ_LIB_LOG_WALK_H

#include "formats/logs/run_log.h"
#include "tests/fuzz/lib/target.h"

static inline void log_walk(const void *data, size_t size)
{
    struct ckpt_file *file = file_of(data, size, "fuzz");
    struct run_log *log = NULL;
    struct ckpt_err err = {0};
    uint64_t points = 0;

    if (run_log_read(&log, file, &err) == 0) {
        for (size_t i = 0; i < log->n; i++) {
            const struct log_series *s = &log->series[i];

            must(run_log_find(log, s->tag, strlen(s->tag), s->kind) == s);
            points += s->point ? s->count : 0;
        }
        must(points <= size && log->torn_bytes <= size);
    } else {
        must(err.text[0] && !log);
    }
    run_log_free(log);
    ckpt_file_close(file);
}

static inline void put_u32(unsigned char *b, uint32_t v)
{
    for (int k = 0; k < 4; k++)
        b[k] = (unsigned char)(v >> 8 * k);
}

/* The same with its checksums put right: they would keep the fuzzer out of all that follows. */
static inline int mended_log_walk(const uint8_t *data, size_t size,
                                  void (*mend)(unsigned char *b, size_t size))
{
    unsigned char *copy = copy_of(data, size);

    mend(copy, size);
    log_walk(copy, size);
    free(copy);
    return 0;
}

#endif
