/* host - arrays of a model or a generation session on the host, allocated together. */
#ifndef CKPT_TRAINER_MODEL_HOST_H
#define CKPT_TRAINER_MODEL_HOST_H

#include "libckpt/mem.h"

struct host_array {
    void  **to;
    int64_t n;
    size_t  size;                       /* bytes of an element */
};

/* A row: the pointer, and its number of elements. */
#define HOST_ARRAY(p, count) {(void **)&(p), (count), sizeof *(p)}

/* Allocate each of n_item arrays, zeroed, in the arena. */
int host_arrays(struct ckpt_arena *arena, const struct host_array *item, size_t n_item,
                struct ckpt_err *err);

#endif
