/*
 * fuzz_pickle: any bytes as a pickle: a value or a refusal.  A value prints within its budget,
 * and what is written of it is read and written again to the same bytes.
 */
#include "formats/container/pickle/pickle.h"
#include "formats/container/pickle/out.h"
#include "tests/fuzz/lib/target.h"

#define WRITTEN ((size_t)4 << 20)      /* a graph of few bytes may be long when written */

static void write_twice(const struct value *v)
{
    struct ckpt_arena a = {.limit = (uint64_t)1 << 30};
    struct ckpt_err err = {0};
    struct ckpt_buf once, again;
    struct ckpt_cursor c;
    struct value *w;
    int rc;

    ckpt_buf_init(&once, WRITTEN);
    ckpt_buf_init(&again, WRITTEN);
    if (pickle_write(&once, v, NULL, 0, &err) == 0 && ckpt_buf_ok(&once)) {
        ckpt_cursor_init(&c, once.data, once.len);
        must(pickle_read(&w, &c, &a, NULL, &err) == 0 && ckpt_cursor_left(&c) == 0);
        /* A set comes back as the call that makes one, a level deeper: the only way to fail. */
        if ((rc = pickle_write(&again, w, NULL, 0, &err)) != 0)
            must(rc == CKPT_ELIMIT);
        else
            must(again.len == once.len && memcmp(again.data, once.data, once.len) == 0);
    }
    ckpt_buf_release(&once);
    ckpt_buf_release(&again);
    ckpt_arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_arena a = {.limit = (uint64_t)256 << 20};
    struct value_seq names = {0};
    struct ckpt_err err = {0};
    struct ckpt_cursor c;
    struct value *v;
    int rc;

    ckpt_cursor_init(&c, data, size);
    rc = pickle_read(&v, &c, &a, &names, &err);
    if (rc == 0) {
        must(!c.failed && c.pos <= size);
        json_decref(value_to_json(v, 1000));
        write_twice(v);
    } else {
        must(err.text[0]);
    }
    ckpt_arena_release(&a);
    return 0;
}
