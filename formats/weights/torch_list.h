/*
 * torch_list - the tensors of a value tree under the names of their paths.
 *
 * Keys joined by ".", list positions as numbers; what an object holds (pairs, items, attributes)
 * is named as if it were a dictionary.  A state dict inside {"model": ...}, {"state_dict": ...}
 * or {"module": ...} is listed without that wrapper, what lies beside it is CKPT_OTHER; so are
 * all tensors of an optimizer's or a random state's file.
 */
#ifndef CKPT_TORCH_LIST_H
#define CKPT_TORCH_LIST_H

#include "formats/weights/torch.h"

/*
 * Append to list.  A container that is shared is listed under each of its paths; windows on the
 * same bytes are aliases of the first.  CKPT_EUNSUPPORTED names a tensor that is not read here
 * (sparse, quantised, sharded); CKPT_ELIMIT when the graph unfolds to far more
 * values than it has.
 */
int torch_list(struct ckpt_tensors *list, const struct torch_archive *a, struct ckpt_err *err);

/* What a walk gives: a tensor, or the record of one that is spread over ranks; name is its path. */
struct torch_visitor {
    void *ctx;
    int (*tensor)(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                  const struct value_tensor *t, struct ckpt_err *err);
    int (*shard)(void *ctx, const char *name, size_t len, enum ckpt_kind kind,
                 const struct value *v, struct ckpt_err *err);
};
/* As torch_list goes through the values. */
int torch_walk(const struct torch_archive *a, const struct torch_visitor *visitor,
               struct ckpt_err *err);

#endif
