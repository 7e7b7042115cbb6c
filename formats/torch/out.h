/*
 * torch/out - writing archives that torch.load(weights_only=True) reads.
 *
 * The layout is known before the first storage byte: records in torch's order (data.pkl,
 * .format_version, .storage_alignment, byteorder, data/N, version, .data/serialization_id),
 * payloads aligned to 64 bytes, zip64 where needed, fixed date.  Storages may then be written
 * in any order by any thread; CRC-32s of the pieces are combined at the end.
 */
#ifndef CKPT_FORMATS_TORCH_OUT_H
#define CKPT_FORMATS_TORCH_OUT_H

#include "formats/torch/torch.h"

struct torch_writer;

/*
 * Takes out (on failure too).  top is the archive's inner folder ("archive").  root's tensors
 * point into storage[]; both are borrowed for the call (offset and key are ignored: keys are
 * the indices).  record: see struct ckpt_create_opts; NULL: none.
 */
int torch_writer_new(struct torch_writer **w, struct ckpt_out *out, const char *top,
                     const struct value *root, const struct torch_storage *storage,
                     size_t n_storage, const char *record, struct ckpt_err *err);
/* Elements [start, start + count) of storage i.  Any thread. */
int torch_writer_put(struct torch_writer *w, size_t i, int64_t start, int64_t count,
                     const void *src, struct ckpt_err *err);
/* The file and the offset in it that element start of storage i goes to. */
void torch_writer_place(const struct torch_writer *w, size_t i, int64_t start,
                        struct ckpt_out **out, uint64_t *offset);
/* Every element must have been put.  Takes w; commits the file. */
int torch_writer_commit(struct torch_writer *w, struct ckpt_err *err);
void torch_writer_abort(struct torch_writer *w);        /* NULL accepted */

/* A small archive in one go: data[i] has all of storage i (NULL where numel is 0).  Takes out. */
int torch_write(struct ckpt_out *out, const char *top, const struct value *root,
                const struct torch_storage *storage, const void *const *data, size_t n_storage,
                struct ckpt_err *err);

#endif
