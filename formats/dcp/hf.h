/*
 * dcp/hf - safetensors shards of boxes, as torch's HuggingFaceStorageWriter writes them.
 *
 *   shard-0000R-model-0000K-of-0000N.safetensors    R from 1
 *   __metadata__: DCP_SHARDING_INFO = {"<name>": {"saved_offsets": [first element an axis]}}
 *
 * A tensor's shape follows from the furthest ends of its boxes.  Boxes that are identical in
 * several shards (buffers) are used once.  Source: torch 2.15
 * distributed/checkpoint/hf_storage.py and _hf_utils.py.
 */
#ifndef CKPT_FORMATS_DCP_HF_H
#define CKPT_FORMATS_DCP_HF_H

#include "formats/place.h"

#define DCP_HF_GLOB "shard-[0-9]*-model-[0-9]*-of-[0-9]*.safetensors"

struct dcp_hf {
    struct ckpt_file **file;
    size_t             n;
};

/* Open all shards among a directory's entries and add their tensors to list. */
int dcp_hf_open(struct dcp_hf *h, struct ckpt_tensors *list, const struct ckpt_place *p,
                struct ckpt_err *err);
void dcp_hf_close(struct dcp_hf *h);

#endif
