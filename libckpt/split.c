/* split - see split.h. */
#include "libckpt/split.h"

size_t ckpt_split(size_t *shard_of, const struct ckpt_tensors *list, uint64_t max_bytes)
{
    size_t shard = 0;
    uint64_t used = 0;

    for (size_t i = 0; i < list->n; i++) {
        uint64_t bytes = ckpt_tensor_bytes(&list->item[i]);

        if (used > 0 && (bytes > max_bytes || used > max_bytes - bytes)) {
            shard++;
            used = 0;
        }
        shard_of[i] = shard;
        used += bytes;
    }
    return shard + 1;
}
