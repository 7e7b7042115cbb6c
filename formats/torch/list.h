/*
 * torch/list - the tensors of a value tree under the names of their paths.
 *
 * Keys joined by ".", list positions as numbers; pairs, items and attributes of an object
 * are named as if it were a dictionary.  A state dict inside {"model": ...}, {"state_dict": ...},
 * {"module": ...} or {"model_state_dict": ...} is listed without that wrapper, its siblings are
 * CKPT_OTHER; so are all tensors below an optimizer's state or a random state, wherever it is.
 */
#ifndef CKPT_FORMATS_TORCH_LIST_H
#define CKPT_FORMATS_TORCH_LIST_H

#include "formats/torch/add.h"

/*
 * Add to to->list.  A container that is shared is listed under each of its paths.  CKPT_ELIMIT
 * when the graph expands to far more values than it has; else as torch_add.
 */
int torch_list(struct torch_adder *to, struct ckpt_err *err);

#endif
