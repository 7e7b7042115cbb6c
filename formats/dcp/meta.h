/*
 * dcp/meta - the `.metadata` of a torch distributed checkpoint: its items, the boxes that each
 * tensor is cut into, and the file and bytes of each.
 *
 * One pickle, not a zip; protocol 4 or 5 as written, any is read:
 *
 */
#ifndef CKPT_FORMATS_DCP_META_H
#define CKPT_FORMATS_DCP_META_H

#include "formats/container/value.h"
#include "libckpt/file.h"
#include "libckpt/base/map.h"

/* Where an item's bytes lie, as the file says; not compared with the data files here. */
struct dcp_place {
    const char *file;           /* clean relative path */
    uint64_t    offset, length;
};

/* A box of a tensor and where it lies.  Boxes of no elements are left out. */
struct dcp_chunk {
    const int64_t   *start, *count;     /* [rank of the tensor] */
    struct dcp_place place;
};

struct dcp_entry {
    const char         *fqn;
    const char *const  *part;           /* the path by planner_data, or {fqn} */
    size_t              n_part;
    bool                bytes;          /* a Python value, else a tensor */
    struct dcp_place    place;          /* of bytes */
    enum ckpt_dtype     dtype;
    struct ckpt_shape   shape;
    struct dcp_chunk   *chunk;
    size_t              n_chunk;
};

struct dcp_meta {
    struct ckpt_arena  arena;           /* of all below, and of the pickle's values */
    struct dcp_entry  *entry;           /* in the file's order */
    size_t             n, cap;
    struct ckpt_map   *by_name;
    const char        *version;         /* "1.0.0", or NULL */
};

/*
 * Add the entries of one .metadata.  Those of several (a save without collectives leaves one a
 * rank) are joined: boxes that an earlier file had stay as that one placed them.
 * CKPT_EFORMAT for a graph that is none of the above, for a box that has no place ("missing")
 * or two; CKPT_EUNSUPPORTED for items that are stored transformed; CKPT_EREFUSED for a name in
 * no table and for a path that leads out of the directory.
 */
int dcp_meta_read(struct dcp_meta *m, struct ckpt_file *file, struct ckpt_err *err);
void dcp_meta_release(struct dcp_meta *m);

#endif
