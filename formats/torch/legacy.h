/*
 * torch/legacy - the format of torch.save before 1.6, and still an option of it: five pickles
 * and the storages, one after the other.
 *
 *   pickle   0x1950a86a20f9469cfc6c
 *   pickle   1001
 *   pickle   {"protocol_version": 1001, "little_endian": bool, "type_sizes": {...}}
 *   pickle   the object; persistent ids have a sixth element: None, or (view key, offset, numel)
 *   pickle   [key, ...]: the storages in the order they follow
 *   storage  numel as 64 bits little-endian, then its elements in the writer's byte order; ...
 *
 * There are no lengths and no checksums: where a pickle ends is found by running it.
 * Source: torch 2.15 torch/serialization.py, _legacy_save and _legacy_load.
 */
#ifndef CKPT_FORMATS_TORCH_LEGACY_H
#define CKPT_FORMATS_TORCH_LEGACY_H

#include "formats/torch/value.h"

/* True when a file that begins so is one; 32 bytes are enough. */
bool torch_legacy_is(const unsigned char *head, size_t n);
/* Fill root, storages (with their places) and big_endian; values live in arena. */
int torch_legacy_read(struct value **root, struct torch_storages *storages, bool *big_endian,
                      const struct ckpt_file *file, struct ckpt_arena *arena, bool strict,
                      struct ckpt_err *err);

#endif
