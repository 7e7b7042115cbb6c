/* host - see host.h. */
#include "trainer/model/host.h"

int host_arrays(struct ckpt_arena *arena, const struct host_array *item, size_t n_item,
                struct ckpt_err *err)
{
    for (size_t i = 0; i < n_item; i++) {
        *item[i].to = ckpt_arena_alloc(arena, (size_t)item[i].n, item[i].size);
        if (!*item[i].to)
            return ckpt_nomem(err, (size_t)item[i].n * item[i].size);
    }
    return 0;
}
