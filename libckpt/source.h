/*
 * source - the read side: a list of tensors that can be read by ranges, whatever the format.
 *
 * A range counts elements of a tensor in row-major order: a flat partition, some rows, or the
 * whole tensor.  Copying, merging and sharding need no other kind of slice, so N-dimensional
 * boxes stay inside fragment.h.
 */
#ifndef CKPT_LIBCKPT_SOURCE_H
#define CKPT_LIBCKPT_SOURCE_H

#include <jansson.h>

#include "libckpt/api.h"
#include "libckpt/tensor.h"

CKPT_BEGIN_C

/* The calls of a format or a view; self is its own handle. */
struct ckpt_source_ops {
    const char *format;                         /* "safetensors", "deepspeed", "view-cast" */
    /* Read a checked, non-empty range.  Any thread.  NULL: gather the tensor's fragments. */
    int (*read)(void *self, size_t i, int64_t start, int64_t count, void *dst,
                struct ckpt_err *err);
    /* As ckpt_source_locate.  NULL: look at the tensor's fragments. */
    bool (*locate)(void *self, size_t i, int64_t start, int64_t count, struct ckpt_extent *out);
    /* Release self and everything below it. */
    void (*close)(void *self);
};

/* A file that belongs to the checkpoint but holds no tensors: config.json, tokenizer files. */
struct ckpt_extra {
    const char       *name;                     /* clean relative path */
    struct ckpt_file *file;                     /* borrowed from the source */
};

struct ckpt_source;

/*
 * Make a source of a filled list.  Takes self, list, extras array's memory (in list->arena) and
 * info (a JSON object of facts about the checkpoint, or NULL), on failure too, when ops->close
 * has been called.  CKPT_ESTATE when an alias_of points outside the list.
 */
int ckpt_source_new(struct ckpt_source **out, const struct ckpt_source_ops *ops, void *self,
                    struct ckpt_tensors *list, const struct ckpt_extra *extra, size_t n_extra,
                    json_t *info, struct ckpt_err *err);
void ckpt_source_close(struct ckpt_source *src);

const char *ckpt_source_format(const struct ckpt_source *src);
/* The handle of src if it was made with exactly these ops, for the room that made it; else NULL. */
void *ckpt_source_self(const struct ckpt_source *src, const struct ckpt_source_ops *ops);
size_t ckpt_source_count(const struct ckpt_source *src);
const struct ckpt_tensor *ckpt_source_tensor(const struct ckpt_source *src, size_t i);
const struct ckpt_tensors *ckpt_source_tensors(const struct ckpt_source *src);
size_t ckpt_source_find(const struct ckpt_source *src, const char *name);   /* or SIZE_MAX */
size_t ckpt_source_extras(const struct ckpt_source *src, const struct ckpt_extra **out);
const struct ckpt_extra *ckpt_source_extra(const struct ckpt_source *src, const char *name);
/*
 * Facts about the checkpoint, always an object.  Keys by convention: "format", "metadata" (string
 * -> string, safetensors' __metadata__), "zero_stage", "world_size", "global_steps",
 * "ds_version", "step" ...  Borrowed.
 */
const json_t *ckpt_source_info(const struct ckpt_source *src);

/*
 * Read elements [start, start + count) of tensor i, row-major, in its dtype, after checking the
 * range.  Any thread.  After a failure the content of dst is undefined.
 */
int ckpt_source_read(struct ckpt_source *src, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err);
/* True when that range is stored as it is read, in one piece of one file. */
bool ckpt_source_locate(struct ckpt_source *src, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out);

CKPT_END_C

#endif
