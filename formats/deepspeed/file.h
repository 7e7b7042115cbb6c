/*
 * deepspeed/file - build one torch file of a checkpoint: its values request storages, and values
 * of a saved archive are copied with their tensors.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_FILE_H
#define CKPT_FORMATS_DEEPSPEED_FILE_H

#include "formats/container/value.h"
#include "formats/torch/out.h"

struct ds_file {
    struct ckpt_arena     arena;        /* of its values */
    struct torch_storage *storage;
    size_t                n, cap;
    struct ds_copied     *copied;       /* tensors of saved archives, which begin writes */
    size_t                n_copied, cap_copied;
    struct torch_writer  *w;            /* set by begin */
    int                   rc;           /* code of the first call that returned no value, or 0 */
};

/*
 * The error code after building values, any of which may be NULL: that of the first failed call
 * below, else CKPT_ENOMEM.  0 when failed is false.
 */
int ds_file_check(const struct ds_file *file, bool failed, struct ckpt_err *err);
/* A new storage; SIZE_MAX with err filled. */
size_t ds_file_storage(struct ds_file *file, enum ckpt_dtype dtype, int64_t numel,
                       struct ckpt_err *err);
/* A contiguous tensor at the beginning of a storage; NULL when memory is refused. */
struct value *ds_file_tensor(struct ds_file *file, size_t storage,
                             const struct ckpt_shape *shape);
/* The same in a storage of its own. */
struct value *ds_file_new_tensor(struct ds_file *file, size_t *storage, enum ckpt_dtype dtype,
                                 const struct ckpt_shape *shape, struct ckpt_err *err);
/* Copy a value of a saved archive, with its tensors.  NULL with err filled. */
struct value *ds_file_take(struct ds_file *file, const struct torch_archive *from,
                           const struct value *v, struct ckpt_err *err);

/* Write root and the copied tensors; then the other storages may be put. */
int ds_file_begin(struct ds_file *file, struct ckpt_outdir *dir, const char *path,
                  const struct value *root, struct ckpt_err *err);
/* Put elements of a storage; any thread. */
int ds_file_put(const struct ds_file *file, size_t storage, int64_t start, int64_t count,
                const void *src, struct ckpt_err *err);
/* The same for elements of dtype `from`, rounded to the storage's. */
int ds_file_put_rounded(const struct ds_file *file, size_t storage, int64_t start,
                        int64_t count, const void *src, enum ckpt_dtype from,
                        struct ckpt_err *err);
int ds_file_zeros(const struct ds_file *file, size_t storage, int64_t start, int64_t count,
                  struct ckpt_err *err);
/* Commit; every element of every storage must have been put. */
int ds_file_commit(struct ds_file *file, struct ckpt_err *err);
/* Abort what was not committed, and release everything. */
void ds_file_close(struct ds_file *file);

#endif
