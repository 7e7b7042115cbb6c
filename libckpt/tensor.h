/*
 * tensor - name, dtype, shape, fragments; and lists of tensors with lookup by name.
 */
#ifndef CKPT_LIBCKPT_TENSOR_H
#define CKPT_LIBCKPT_TENSOR_H

#include "libckpt/api.h"
#include "libckpt/fragment.h"
#include "libckpt/mem.h"

CKPT_BEGIN_C

#define CKPT_MAX_TENSORS 4000000
#define CKPT_MAX_NAME    4096

enum ckpt_kind {
    CKPT_WEIGHT,        /* a parameter */
    CKPT_BUFFER,        /* saved with the model, not trained */
    CKPT_OPTIM,         /* optimizer state of a parameter: name is "<parameter>|exp_avg" */
    CKPT_OTHER          /* a tensor of something else: random state, scheduler */
};

struct ckpt_tensor {
    const char                 *name;    /* strict UTF-8, unique in its list, may be empty */
    enum ckpt_dtype             dtype;
    enum ckpt_kind              kind;
    struct ckpt_shape           shape;
    int64_t                     numel;   /* of shape */
    const struct ckpt_fragment *frag;    /* may be empty: then only its source can read it */
    size_t                      n_frag;
    bool                        flat;    /* boxes are in the rank-1 view [numel] */
    size_t                      alias_of;/* index of the tensor with the same shape whose storage
                                            this one shares in full (tied), or its own */
    const char                 *stored;  /* quantised: the block type in the file, "Q4_K", "NF4",
                                            while reads give dtype; else NULL */
    uint64_t                    stored_bytes;   /* quantised: bytes in the file */
    const char                 *unread;  /* why the values cannot be read, only listed: "of kind
                                            sparse_coo, which is not read"; else NULL */
};

/* A list in insertion order.  A zeroed struct is a valid empty list. */
struct ckpt_tensors {
    struct ckpt_arena   arena;           /* names, fragments, strides of the list */
    struct ckpt_tensor *item;
    size_t              n;
    size_t              cap;
    struct ckpt_map    *by_name;
};

/*
 * Append a tensor: name is copied into the arena, frag is borrowed (allocate it in the arena),
 * numel is computed and alias_of set to itself.  Checks name, dtype, rank, limits.  Gives *out,
 * if not NULL: the entry, valid until the next add.  CKPT_EFORMAT "duplicate" on a known name.
 */
int ckpt_tensors_add(struct ckpt_tensors *list, struct ckpt_tensor **out, const char *name,
                     size_t name_len, enum ckpt_dtype dtype, const struct ckpt_shape *shape,
                     const struct ckpt_fragment *frag, size_t n_frag, bool flat,
                     struct ckpt_err *err);
/* Index by name, or SIZE_MAX. */
size_t ckpt_tensors_find(const struct ckpt_tensors *list, const char *name);
void ckpt_tensors_release(struct ckpt_tensors *list);
/* Bytes of one tensor; cannot overflow, ckpt_tensors_add checked it. */
uint64_t ckpt_tensor_bytes(const struct ckpt_tensor *t);
/* Name of the block type or dtype in the file. */
const char *ckpt_tensor_stored(const struct ckpt_tensor *t);
uint64_t ckpt_tensor_stored_bytes(const struct ckpt_tensor *t);

CKPT_END_C

#endif
