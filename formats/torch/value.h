/*
 * torch/value - pickle values -> storages, tensors, dictionaries.
 *
 * One table lists the names that a checkpoint may contain, and the value of each; anything else is
 * an inert record, which strict resolving refuses by name.  Nothing is called.
 * Source: torch 2.15 torch/_utils.py, serialization.py, _tensor.py; DeepSpeed 0.19; transformers
 * 5.17; files of theirs.
 */
#ifndef CKPT_FORMATS_TORCH_VALUE_H
#define CKPT_FORMATS_TORCH_VALUE_H

#include "formats/torch/torch.h"

/* The storages that persistent ids name, in order of first mention. */
struct torch_storages {
    struct torch_storage *item;
    size_t                n, cap;
    struct ckpt_map      *by_key;
    bool                  legacy;       /* persistent ids have views */
    bool                  keep_unread;  /* tensors that are not read stay records */
    size_t                values;       /* below the root, each counted once */
    struct value_tensor **named;        /* the tensors of persistent ids in torch's tar */
    size_t                cap_named;
    struct ckpt_map      *by_id;        /* -> named; NULL elsewhere */
};

void torch_storages_release(struct torch_storages *s);
/* Index of the storage of that key, new or known; CKPT_EFORMAT when known otherwise. */
int torch_storages_add(struct torch_storages *s, size_t *index, const char *key,
                       enum ckpt_dtype dtype, int64_t numel, struct ckpt_err *err);
/* Let persistent id `id` be this tensor; both must outlive the storages. */
int torch_storages_name(struct torch_storages *s, const char *id, struct value_tensor *t,
                        struct ckpt_err *err);
/* The tensor lies in numel elements of its storage, and is no blown-up view. */
int torch_storages_fit(const struct torch_storages *s, const struct value_tensor *t, int64_t numel,
                       struct ckpt_err *err);
/* The dtype a storage class holds, or CKPT_DTYPE_NONE. */
enum ckpt_dtype torch_storage_dtype(const struct value *class);

/*
 * Refuse a pickle that names a global of no table, wherever it did so.  alarms_only: it failed
 * anyway, and only names that look malicious change the sentence.
 */
int torch_names_check(const struct value_seq *names, bool alarms_only, struct ckpt_err *err);

/*
 * Make tensors, dictionaries and plain values of the records below root, in place.  Every value
 * is visited once; more than 64 M are CKPT_ELIMIT.  Tensors are checked against their storage's
 * size by the pickle (offsets in the file are not known here); those of kinds that are
 * not read are CKPT_EUNSUPPORTED, unless the storages say they stay records.
 */
int torch_value_resolve(struct value *root, struct torch_storages *storages,
                        struct ckpt_arena *arena, bool strict, struct ckpt_err *err);

#endif
