/*
 * dcp/blob - one item of a data file being written: an archive of torch.save of its own.
 *
 * Its length follows from the item's dtype and shape, or its pickle, so that items are placed
 * before any is written; the bytes of its tensor may then come in any order from any thread.
 *
 *   archive/data.pkl, .format_version, .storage_alignment, byteorder, data/0 (of a tensor that
 *   is: its elements), version, .data/serialization_id; laid out as zip_out does
 */
#ifndef CKPT_FORMATS_DCP_BLOB_H
#define CKPT_FORMATS_DCP_BLOB_H

#include "formats/container/crc_join.h"
#include "formats/container/value.h"
#include "libckpt/base/buf.h"
#include "libckpt/commit.h"

struct dcp_blob {
    uint64_t        base;           /* offset in the file: set by the caller before begin */
    uint64_t        length;         /* of the archive */
    uint64_t        payload;        /* of element 0, from base */
    uint64_t        bytes;          /* of the elements */
    uint32_t        pickle, pickle_crc;     /* bytes and checksum of data.pkl */
    bool            tensor;
    struct crc_join crc;            /* of the elements written: the caller adds to it */
};

/* Replace out's content by value's pickle. */
int dcp_blob_pickle(struct ckpt_buf *out, const struct value *v, struct ckpt_err *err);
/* The pickle of a contiguous tensor. */
int dcp_blob_tensor_pickle(struct ckpt_buf *out, enum ckpt_dtype dtype,
                           const struct ckpt_shape *shape, struct ckpt_err *err);
/* Set everything but base.  bytes: of a tensor's elements. */
void dcp_blob_plan(struct dcp_blob *b, const struct ckpt_buf *pickle, bool tensor, uint64_t bytes);
/* Write headers and the small members. */
int dcp_blob_begin(struct ckpt_out *out, const struct dcp_blob *b, const struct ckpt_buf *pickle,
                   struct ckpt_err *err);
/* Write the members that contain checksums; crc must cover all elements. */
int dcp_blob_finish(struct ckpt_out *out, const struct dcp_blob *b, struct ckpt_err *err);

#endif
