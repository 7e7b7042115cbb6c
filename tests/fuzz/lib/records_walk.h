/* records_walk - every record of a file of any bytes, forwards and backwards: an object or an
 * error each time, and the same answers both ways. */
#ifndef CKPT_TESTS_FUZZ_LIB_RECORDS_WALK_H
#define CKPT_TESTS_FUZZ_LIB_RECORDS_WALK_H

#include "formats/records/rows.h"
#include "tests/fuzz/lib/target.h"

static inline void walk(const struct record_ops *ops, const unsigned char *data, size_t size,
                        const struct records_opts *opts, void (*use)(const json_t *))
{
    struct ckpt_err err = {0};
    void *self;
    int64_t n, good = 0;
    json_t *v;

    if (record_open(&self, ops, file_of(data, size, "rows"), opts, &err))
        return;
    n = ops->count(self);
    for (int64_t i = 0; i < n; i++)
        if (ops->get(self, i, &v, &err) == 0) {
            must(json_is_object(v));
            if (use)
                use(v);
            json_decref(v);
            good++;
        } else {
            must(!v && err.text[0]);
        }
    for (int64_t i = n; i-- > 0;)
        if (ops->get(self, i, &v, &err) == 0) {
            json_decref(v);
            good--;
        }
    must(good == 0);
    record_close(self, ops);
}

#endif
