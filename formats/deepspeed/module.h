/*
 * deepspeed/whole - what lies whole in rank 0's model file: buffers, weights that no optimizer
 * trained, tied names; and of stage 0 everything.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WHOLE_H
#define CKPT_FORMATS_DEEPSPEED_WHOLE_H

#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"
#include "libckpt/tensor.h"

/* `module` and what is asked of it: names that are in it, and those the file lists besides. */
struct ds_module {
    const struct value *dict;
    struct ckpt_map    *names, *buffers, *shared;
    struct ckpt_map    *first;          /* a tensor's place and form -> number of its first name */
    struct ckpt_arena   arena;
};

/* Close it, after a failure too. */
int ds_module_open(struct ds_module *m, const struct ds_files *f, struct ckpt_err *err);
void ds_module_close(struct ds_module *m);
/*
 * Number of the name that entry i, a tensor, was first met under, or i itself, which is kept in
 * mind.
 */
int ds_module_first(size_t *out, struct ds_module *m, size_t i, struct ckpt_err *err);

/* List a tensor that lies whole in an archive. */
int ds_whole_add(struct ckpt_tensors *list, const struct torch_archive *a, const char *name,
                 const struct value_tensor *t, enum ckpt_kind kind, struct ckpt_err *err);
/* List name as another of tensor number `kept` of the list. */
int ds_alias_add(struct ckpt_tensors *list, const char *name, size_t kept, struct ckpt_err *err);
/*
 * List what `module` has and list has not: buffers (kind BUFFER), weights, and names that share
 * the storage of another (alias_of).  Stage 3's placeholders are passed over.
 */
int ds_module_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);
/* List the aliases of shared_params whose kept name is listed.  Shapes are proved. */
int ds_alias_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);

#endif
