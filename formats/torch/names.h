/*
 * torch/names - the one table of names that a checkpoint's pickle may contain.
 */
#ifndef CKPT_FORMATS_TORCH_NAMES_H
#define CKPT_FORMATS_TORCH_NAMES_H

#include <stdbool.h>

enum torch_name_what {
    NAME_INERT,                 /* kept as a record, or as a name */
    NAME_ENUM,                  /* likewise; getattr of it may name a member */
    NAME_GETATTR, NAME_DICT, NAME_SET, NAME_BYTES,
    /* Calls that make tensors; UNREAD: of kinds that are not read, kept as a record. */
    NAME_UNREAD, NAME_TENSOR_V2, NAME_TENSOR_V3, NAME_QTENSOR, NAME_PARAMETER, NAME_FROM_TYPE
};

struct torch_name {
    const char          *module, *name;     /* name NULL: every class of the module */
    enum torch_name_what what;
};

/* NULL when it is in no row. */
const struct torch_name *torch_name_find(const char *module, const char *name);
/* True for names that no checkpoint has a use for (pickle/danger.h), unless they are found. */
bool torch_name_alarms(const char *module, const char *name);

#endif
