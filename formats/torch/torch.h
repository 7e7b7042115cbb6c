/*
 * torch - .pt, .bin, .pth archives: zip + pickle + storages, or the legacy stream of pickles (see
 * torch/legacy.h), read without executing anything.
 *
 * Tensors found anywhere in the value tree are listed under their path: keys joined by ".", list
 * positions as numbers; a state dict inside {"model": ...}, {"state_dict": ...} or
 * {"module": ...} is listed without that wrapper.
 */
#ifndef CKPT_FORMATS_TORCH_TORCH_H
#define CKPT_FORMATS_TORCH_TORCH_H

#include "formats/container/value.h"
#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_torch;

/* One storage record of an archive. */
struct torch_storage {
    enum ckpt_dtype dtype;
    int64_t         numel;
    uint64_t        offset;             /* of element 0 in the file, bytes */
    const char     *key;                /* "0", "1", ... */
};

/* An open archive: for formats built of several torch files (DeepSpeed, DCP). */
struct torch_archive;

/*
 * For loading: strict.  A name in no row of torch_names, wherever the pickle mentions it, makes
 * the archive CKPT_EREFUSED (reason "refused-global").  Takes file, on failure too.  Checksums of
 * the pickle and the small members are proved; those of storages by torch_archive_verify, and
 * as they are read when the file was opened with CKPT_PROVE.
 */
int torch_archive_open(struct torch_archive **out, struct ckpt_file *file, struct ckpt_err *err);
/*
 * For looking, never for loading: refuses only what is malformed.  Unknown calls, and tensors of
 * kinds that are not read, stay inert records in the tree.  Takes file, on failure too.
 */
int torch_archive_open_any(struct torch_archive **out, struct ckpt_file *file,
                           struct ckpt_err *err);
/*
 * What such a file holds, as a source of tensors to look at: only who was refused by ckpt_open
 * has a use for it.  Takes file, on failure too.
 */
int torch_look(struct ckpt_source **out, struct ckpt_file *file, struct ckpt_err *err);
/* False for legacy files, and for archives that torch was told to write no checksums into. */
bool torch_archive_has_sums(const struct torch_archive *a);
/* Prove the checksum of every member, if there are any: reads the whole file. */
int torch_archive_verify(const struct torch_archive *a, struct ckpt_err *err);
void torch_archive_close(struct torch_archive *a);
const struct value *torch_archive_root(const struct torch_archive *a);
struct ckpt_file *torch_archive_file(const struct torch_archive *a);
/* "zip", "TorchScript" (a zip with code), "legacy stream", "legacy tar". */
const char *torch_archive_container(const struct torch_archive *a);
/* Values below the root, each counted once. */
size_t torch_archive_values(const struct torch_archive *a);
size_t torch_archive_storages(const struct torch_archive *a, const struct torch_storage **out);
/*
 * One fragment that covers all of tensor t, strides and byte order included, in arena memory.
 * The tensor was bounds-checked against its storage when the archive was opened.
 */
int torch_archive_fragment(struct ckpt_fragment **out, struct ckpt_arena *arena,
                           const struct torch_archive *a, const struct value_tensor *t,
                           struct ckpt_err *err);
/* Elements [start, start + count) of it in row-major order.  Any thread. */
int torch_archive_read(void *dst, const struct torch_archive *a, const struct value_tensor *t,
                       int64_t start, int64_t count, struct ckpt_err *err);

#endif
