/* fuzz_pickle: any bytes as a pickle: a value or a refusal; a value prints within its budget. */
#include <stddef.h>
#include <stdint.h>

#include "formats/container/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt_arena a = {.limit = (uint64_t)256 << 20};
    struct value_seq names = {0};
    struct ckpt_err err = {0};
    struct ckpt_cursor c;
    struct value *v;

    ckpt_cursor_init(&c, data, size);
    if (pickle_read(&v, &c, &a, &names, &err) == 0)
        json_decref(value_to_json(v, 1000));
    ckpt_arena_release(&a);
    return 0;
}
