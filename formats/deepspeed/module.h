/*
 * deepspeed/module - tensors of rank 0's model file that are not partitioned: buffers, weights
 * that no optimizer trained, tied names; in stage 0 everything.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_MODULE_H
#define CKPT_FORMATS_DEEPSPEED_MODULE_H

#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"
#include "libckpt/tensor.h"

/* `module`, and maps of its names and of those that the file lists besides. */
struct ds_module {
    const struct value *dict;
    struct ckpt_map    *names, *buffers, *shared;
    struct ckpt_map    *first;          /* a tensor's place and layout -> index of its first name */
    struct ckpt_arena   arena;
};

/* Open it; close it after a failure too. */
int ds_module_open(struct ds_module *m, const struct ds_files *f, struct ckpt_err *err);
void ds_module_close(struct ds_module *m);
/* The first entry with the same tensor as entry i: i itself when there is no earlier one. */
int ds_module_first(size_t *out, struct ds_module *m, size_t i, struct ckpt_err *err);

/* List a tensor of an archive. */
int ds_tensor_add(struct ckpt_tensors *list, const struct torch_archive *a, const char *name,
                 const struct value_tensor *t, enum ckpt_kind kind, struct ckpt_err *err);
/* List name as an alias of tensor `kept` of the list. */
int ds_alias_add(struct ckpt_tensors *list, const char *name, size_t kept, struct ckpt_err *err);
/*
 * List the entries of `module` that list lacks: buffers (kind BUFFER), weights, and names that
 * share the storage of another (alias_of).  Stage 3's placeholders are skipped.
 */
int ds_module_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);
/* List the aliases in shared_params whose kept name is listed, after checking their shapes. */
int ds_alias_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);

#endif
