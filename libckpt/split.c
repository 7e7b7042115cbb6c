/* split - see split.h. */
#include "libckpt/split.h"

#define OPEN SIZE_MAX           /* in the shard being filled, not numbered yet */

/* Number the tensors of the shard that is being filled. */
static void number(size_t *shard_of, size_t from, size_t end, size_t shard)
{
    for (size_t i = from; i < end; i++)
        if (shard_of[i] == OPEN)
            shard_of[i] = shard;
}

size_t ckpt_split(size_t *shard_of, const struct ckpt_tensors *list, uint64_t max_bytes)
{
    size_t n = 0, first = 0;         /* first: first tensor that may be in the shard being filled */
    bool filling = false;
    uint64_t used = 0;

    for (size_t i = 0; i < list->n; i++) {
        uint64_t bytes = ckpt_tensor_bytes(&list->item[i]);

        if (bytes > max_bytes) {
            shard_of[i] = n++;
            continue;
        }
        if (used > max_bytes - bytes) {
            number(shard_of, first, i, n++);
            first = i;
            used = 0;
        }
        shard_of[i] = OPEN;
        filling = true;
        used += bytes;
    }
    if (filling)
        number(shard_of, first, list->n, n++);
    return n ? n : 1;
}
