/* dcp/ranks_out - see dcp/ranks_out.h. */
#include "formats/dcp/ranks_out.h"

#include <stdio.h>
#include <string.h>

#include "formats/dcp/boxes.h"
#include "libckpt/base/crc32.h"
#include "libckpt/mem.h"

#define MAX_PICKLE ((size_t)1 << 30)

/* What this rank has of a tensor: boxes that follow each other in its elements' order. */
struct own {
    size_t  item, n;                    /* the first of them, and how many */
    int64_t start;                      /* first element */
};

struct dcp_ranks {
    struct dcp_index    index;          /* without `all`: of this rank's items alone */
    int                 rank, world_size;
    bool                all;            /* it writes .metadata */
    struct own         *own;            /* [n] tensors */
    size_t              n, cap;
    size_t              last, n_last;   /* items of the tensor that was listed last */
    struct ckpt_outdir *dir;            /* borrowed, as is folder */
    const char         *folder;
    struct ckpt_out    *file;           /* NULL: this rank has no items */
};

int dcp_ranks_new(struct dcp_ranks **out, int rank, int world_size, bool index,
                  struct ckpt_err *err)
{
    struct dcp_ranks *r = *out = ckpt_alloc(1, sizeof *r);

    if (!r)
        return ckpt_nomem(err, sizeof *r);
    r->rank = rank;
    r->world_size = world_size;
    r->all = index;
    return 0;
}

struct dcp_index *dcp_ranks_index(struct dcp_ranks *r) { return &r->index; }

int dcp_ranks_value(struct dcp_ranks *r, struct value *path, struct value *v,
                    struct ckpt_err *err)
{
    struct dcp_out_item *it;
    int rc;

    if (!v)
        return ckpt_nomem(err, 64);
    if (!r->all && r->rank != 0)
        return 0;
    if ((rc = dcp_index_add(&r->index, &it, path, err)) == 0)
        it->value = v;
    return rc;
}

/* A box of the tensor at path that a rank writes. */
static int add_box(struct dcp_ranks *r, struct value *path, enum ckpt_dtype dtype,
                   const struct ckpt_shape *full, const struct ckpt_box *box, int rank,
                   struct ckpt_err *err)
{
    struct ckpt_box *kept = ckpt_fragment_box(&r->index.arena, full->rank, box->start, box->count);
    struct ckpt_shape *shape = ckpt_arena_alloc(&r->index.arena, 1, sizeof *shape);
    struct dcp_out_item *it;
    int rc;

    if (!kept || !shape)
        return ckpt_nomem(err, sizeof *shape);
    *shape = ckpt_shape_of(full->rank, box->count);
    rc = r->n_last > 0 ? dcp_index_add_box(&r->index, &it, err)
                       : dcp_index_add(&r->index, &it, path, err);
    if (rc)
        return rc;
    it->dtype = dtype;
    it->shape = shape;
    it->full = full;
    it->start = kept->start;
    it->rank = rank;
    r->n_last++;
    return 0;
}

int dcp_ranks_tensor(struct dcp_ranks *r, size_t *number, struct value *path,
                     enum ckpt_dtype dtype, const struct ckpt_shape *shape,
                     const struct dcp_run *run, struct ckpt_err *err)
{
    struct dcp_run whole = {0, 0};
    struct own *own;
    int rc = 0, n_run = run ? r->world_size : 1;

    ckpt_shape_numel(&whole.count, shape);
    if (ckpt_reserve(&r->own, r->n, &r->cap, sizeof *r->own, err))
        return CKPT_ENOMEM;
    own = &r->own[*number = r->n++];
    *own = (struct own){0};
    r->last = r->index.n;
    r->n_last = 0;
    for (int k = 0; rc == 0 && k < n_run; k++) {
        struct dcp_run has = run ? run[k] : whole;
        struct ckpt_box box[BOXES_OF_RUN];
        size_t n = r->all || k == r->rank ? boxes_of_run(box, shape, has.start, has.count) : 0;

        if (k == r->rank)
            *own = (struct own){.item = r->index.n, .n = n, .start = has.start};
        for (size_t b = 0; rc == 0 && b < n; b++)
            rc = add_box(r, path, dtype, shape, &box[b], k, err);
    }
    return rc;
}

int dcp_ranks_alias(struct dcp_ranks *r, struct value *path, struct ckpt_err *err)
{
    size_t first = r->last, n = r->n_last;
    int rc = 0;

    r->n_last = 0;
    for (size_t k = 0; rc == 0 && r->all && k < n; k++) {
        struct dcp_out_item *it, of = r->index.item[first + k];
        struct ckpt_box box = {0};

        memcpy(box.start, of.start, (size_t)of.full->rank * sizeof *box.start);
        memcpy(box.count, of.shape->dim, (size_t)of.full->rank * sizeof *box.count);
        rc = add_box(r, path, of.dtype, of.full, &box, of.rank, err);
        it = &r->index.item[r->index.n - 1];
        if (rc == 0)
            it->same = first + k + 1;
    }
    r->last = r->index.n - r->n_last;
    return rc;
}

/* -- writing ---------------------------------------------------------------------------------- */

/* Whether it lies in this rank's file. */
static bool is_own(const struct dcp_ranks *r, const struct dcp_out_item *it)
{
    return it->rank == r->rank && !it->same;
}

/* Place all items; *bytes: length of this rank's file. */
static int lay_out(struct dcp_ranks *r, uint64_t *bytes, struct ckpt_buf *b, struct ckpt_err *err)
{
    uint64_t *size = ckpt_alloc((size_t)r->world_size, sizeof *size);
    int rc = size ? 0 : ckpt_nomem(err, (size_t)r->world_size * sizeof *size);

    for (size_t i = 0; rc == 0 && i < r->index.n; i++) {
        struct dcp_out_item *it = &r->index.item[i];

        if (it->same)
            it->blob = r->index.item[it->same - 1].blob;
        else
            rc = dcp_index_place(it, &size[it->rank], b, err);
    }
    *bytes = size ? size[r->rank] : 0;
    ckpt_free(size);
    return rc;
}

static int open_file(struct dcp_ranks *r, uint64_t bytes, struct ckpt_err *err)
{
    char name[64], path[256];
    int rc;

    if (bytes == 0)
        return 0;
    dcp_index_file_name(name, r->rank, 0);
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    if ((rc = ckpt_outdir_file(&r->file, r->dir, path, err)) != 0)
        return rc;
    return ckpt_out_reserve(r->file, bytes, err);
}

int dcp_ranks_begin(struct dcp_ranks *r, struct ckpt_outdir *dir, const char *folder,
                    struct ckpt_err *err)
{
    struct ckpt_buf b;
    uint64_t bytes = 0;
    int rc;

    r->dir = dir;
    r->folder = folder;
    ckpt_buf_init(&b, MAX_PICKLE);
    rc = lay_out(r, &bytes, &b, err);
    if (rc == 0)
        rc = open_file(r, bytes, err);
    for (size_t i = 0; rc == 0 && i < r->index.n; i++) {
        const struct dcp_out_item *it = &r->index.item[i];

        if (is_own(r, it) && (rc = dcp_index_blob_pickle(&b, it, err)) == 0)
            rc = dcp_blob_begin(r->file, &it->blob, &b, err);
    }
    ckpt_buf_release(&b);
    return rc;
}

int dcp_ranks_put(struct dcp_ranks *r, size_t number, int64_t start, int64_t count,
                  const void *src, struct ckpt_err *err)
{
    const struct own *own = &r->own[number];
    const unsigned char *from = src;
    int64_t at = own->start, end = start + count;
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < own->n && at < end; k++) {
        struct dcp_out_item *it = &r->index.item[own->item + k];
        size_t width = ckpt_dtype_size(it->dtype);
        int64_t n = (int64_t)(it->blob.bytes / width);
        int64_t lo = start > at ? start : at, hi = end < at + n ? end : at + n;

        if (lo < hi) {
            uint64_t skip = (uint64_t)(lo - at) * width, bytes = (uint64_t)(hi - lo) * width;
            const unsigned char *some = from + (size_t)(lo - start) * width;

            rc = ckpt_out_write_at(r->file, some, (size_t)bytes,
                                   it->blob.base + it->blob.payload + skip, err);
            if (rc == 0)
                rc = crc_join_add(&it->blob.crc, skip, bytes, ckpt_crc32(0, some, (size_t)bytes),
                                  err);
        }
        at += n;
    }
    return rc;
}

static int put_index(struct dcp_ranks *r, struct ckpt_err *err)
{
    struct ckpt_buf b;
    char path[256];
    int rc;

    snprintf(path, sizeof path, "%s/.metadata", r->folder);
    ckpt_buf_init(&b, MAX_PICKLE);
    rc = dcp_index_pickle(&b, &r->index, err);
    if (rc == 0)
        rc = ckpt_outdir_put(r->dir, path, b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

int dcp_ranks_commit(struct dcp_ranks *r, struct ckpt_err *err)
{
    struct ckpt_out *file = r->file;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < r->index.n; i++) {
        const struct dcp_out_item *it = &r->index.item[i];

        if (is_own(r, it) && dcp_blob_finish(file, &it->blob, err))
            rc = ckpt_err_in(err, "%s", it->fqn);
    }
    if (rc == 0 && file) {
        r->file = NULL;
        rc = ckpt_out_commit(file, err);
    }
    return rc == 0 && r->all ? put_index(r, err) : rc;
}

void dcp_ranks_close(struct dcp_ranks *r)
{
    if (!r)
        return;
    ckpt_out_abort(r->file);
    for (size_t i = 0; i < r->index.n; i++)
        if (r->index.item[i].same)      /* its checksums are the other's */
            r->index.item[i].blob.crc = (struct crc_join){0};
    dcp_index_release(&r->index);
    ckpt_free(r->own);
    ckpt_free(r);
}
