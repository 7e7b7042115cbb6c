/*
 * hf/dir_out - write a model directory: shards split by size, the index last; and, for other
 * directories, just the shards.
 */
#ifndef CKPT_FORMATS_HF_DIR_OUT_H
#define CKPT_FORMATS_HF_DIR_OUT_H

#include "formats/dir_sink.h"
#include "formats/hf/safetensors_out.h"

/*
 * The row's create.  Side files are copied; config.json's dtype (and torch_dtype, where it has
 * one) is set to the dtype of most weights.  The directory appears complete.
 */
int hf_dir_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                  const struct ckpt_create_opts *opts, struct ckpt_err *err);

/* A sink whose tensors are in safetensors files NAME[-i-of-n].safetensors. */
struct hf_shards {
    struct dir_sink           base;
    const char               *name;
    size_t                   *shard_of, *place;     /* [list->n]; place: index within its shard */
    struct safetensors_file **file;                 /* [n] */
    size_t                    n;
};

/* Steps of a struct dir_sink_ops. */
int hf_shards_plan(struct hf_shards *s, const char *name, uint64_t max_bytes,
                   struct ckpt_err *err);
int hf_shards_begin(struct hf_shards *s, const json_t *metadata, struct ckpt_err *err);
bool hf_shards_locate(void *self, size_t i, int64_t start, int64_t count,
                      struct ckpt_sink_extent *out);
int hf_shards_finish(void *self, struct ckpt_err *err);
void hf_shards_release(void *self);

#endif
