/*
 * torch/tar - the format of torch.save before 0.1.11: a tar of four members.
 *
 *   sys_info   not looked at: the byte order is little, as every reader of it takes it
 *   storages   pickle of their number; for each a pickle (key, location, class), its number of
 *              elements in 64 bits, its elements; a pickle [(view key, key, offset, numel), ...]
 *   tensors    pickle of their number; for each a pickle (key, storage's key, class), its number
 *              of axes in 32 bits and 32 bits of nothing, sizes, strides and offset in 64 bits
 *   pickle     the object; persistent ids are keys
 *
 * Keys are numbers.  There are no checksums but those of the tar's headers.
 * Source: torch 2.15 torch/serialization.py, legacy_load.
 */
#ifndef CKPT_FORMATS_TORCH_TAR_H
#define CKPT_FORMATS_TORCH_TAR_H

#include "formats/torch/value.h"

/* True when a file that begins so may be one. */
bool torch_tar_is(const unsigned char *head, size_t n);
/* Fill root and storages (with their places); values live in arena. */
int torch_tar_read(struct value **root, struct torch_storages *storages, struct ckpt_file *file,
                   struct ckpt_arena *arena, bool strict, struct ckpt_err *err);

#endif
