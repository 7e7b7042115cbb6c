/*
 * dcp/files - the data files of a distributed checkpoint, and the items at their offsets.
 *
 *   __R_K.distcp     of rank R: a sequence of items, each an archive of torch.save
 *                    ([offset, offset + length) of the file), holding one tensor or one value
 *   with safetensors in place of archives: values as above, then one safetensors image to the
 *                    file's end; all tensors' offsets say where it begins, and its own header
 *                    says where each lies
 *
 * Source: torch 2.15 distributed/checkpoint/filesystem.py.
 */
#ifndef CKPT_FORMATS_DCP_FILES_H
#define CKPT_FORMATS_DCP_FILES_H

#include <pthread.h>

#include "formats/dcp/meta.h"
#include "formats/torch/torch.h"

struct dcp_file {
    const char         *name;
    struct ckpt_file   *file;
    struct ckpt_tensors image;          /* of a safetensors image; filled on first use */
    json_t             *boxes;          /* its DCP_SHARDING_INFO, or NULL */
    bool                has_image;
};

struct dcp_files {
    struct ckpt_dir   *dir;             /* borrowed */
    struct ckpt_arena  arena;
    struct dcp_file  **item;
    size_t             n, cap;
    struct ckpt_map   *by_name;
    pthread_mutex_t    lock;            /* guards the images, and the arena for strides */
    bool               has_lock;
};

void dcp_files_close(struct dcp_files *f);

/*
 * Open the file of a place, unless it is open.  One thread.  CKPT_EFORMAT "missing" when it is
 * absent, "truncated" when it ends before the item does.
 */
int dcp_files_prepare(struct dcp_files *files, const struct dcp_place *place,
                      struct ckpt_err *err);
/*
 * Find box c of tensor e: f covers it, in the coordinates of the complete tensor.  The file's own
 * dtype and shape must agree with e and c.  Any thread, once the place is prepared.
 */
int dcp_files_tensor(struct dcp_files *files, struct ckpt_fragment *f, const struct dcp_entry *e,
                     const struct dcp_chunk *c, struct ckpt_arena *arena, struct ckpt_err *err);
/* The archive at a place; the caller closes it. */
int dcp_files_value(struct dcp_files *files, struct torch_archive **out,
                    const struct dcp_place *place, struct ckpt_err *err);

/*
 * DCP_SHARDING_INFO of a safetensors file's __metadata__, which is JSON in a string, as a new
 * reference: {"<name>": {"saved_offsets": [...]}}; NULL when it is absent.
 */
int dcp_sharding_info(json_t **out, const json_t *metadata, struct ckpt_err *err);
/* The start of the named box; 0 on every axis when boxes does not have it. */
int dcp_sharding_start(int64_t start[CKPT_MAX_RANK], const json_t *boxes, const char *fqn,
                       int rank, struct ckpt_err *err);

#endif
