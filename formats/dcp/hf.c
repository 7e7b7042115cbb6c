/* dcp/hf - see dcp/hf.h. */
#include "formats/dcp/hf.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/boxes.h"
#include "formats/dcp/files.h"
#include "formats/hf/safetensors.h"
#include "formats/place.h"

/* A box, with the tensor it belongs to. */
struct box {
    const char          *name;
    size_t               name_len;
    size_t               tensor;        /* index of its tensor in order of first mention */
    size_t               order;         /* index of the box, for a stable order */
    enum ckpt_dtype      dtype;
    struct ckpt_shape    shape;         /* of the box */
    int64_t              start[CKPT_MAX_RANK];
    struct ckpt_fragment frag;          /* file NULL when the box is empty */
};

struct reader {
    struct dcp_hf       *h;
    struct ckpt_tensors *list;
    struct ckpt_map     *by_name;
    struct box          *box;
    size_t               n, cap, n_tensor;
    struct ckpt_err     *err;
};

void dcp_hf_close(struct dcp_hf *h)
{
    for (size_t i = 0; i < h->n; i++)
        ckpt_file_close(h->file[i]);
    ckpt_free(h->file);
    memset(h, 0, sizeof *h);
}

static int add_box(struct reader *r, const struct ckpt_tensor *t, const json_t *boxes)
{
    struct box *b;
    size_t i;
    int rc;

    if (ckpt_reserve(&r->box, r->n, &r->cap, sizeof *r->box, r->err))
        return CKPT_ENOMEM;
    b = &r->box[r->n];
    *b = (struct box){.name_len = strlen(t->name), .order = r->n, .dtype = t->dtype,
                      .shape = t->shape};
    if ((rc = dcp_sharding_start(b->start, boxes, t->name, t->shape.rank, r->err)) != 0)
        return rc;
    if (t->n_frag)
        b->frag = *t->frag;
    b->frag.box = ckpt_fragment_box(&r->list->arena, t->shape.rank, b->start, t->shape.dim);
    if (!b->frag.box)
        return ckpt_nomem(r->err, sizeof *b->frag.box);
    b->name = ckpt_arena_strndup(&r->list->arena, t->name, b->name_len);
    if (!b->name)
        return ckpt_nomem(r->err, b->name_len);
    i = ckpt_map_get(r->by_name, b->name, b->name_len);
    if (i == CKPT_MAP_NONE) {
        i = r->n_tensor++;
        if ((rc = ckpt_map_add(r->by_name, b->name, b->name_len, i, r->err)) != 0)
            return rc;
    }
    b->tensor = i;
    r->n++;
    return 0;
}

static int read_shard(struct reader *r, const struct ckpt_place *p, const char *name)
{
    struct ckpt_tensors shard = {0};
    json_t *metadata = NULL, *boxes = NULL;
    struct ckpt_file **f = &r->h->file[r->h->n];
    int rc = ckpt_file_open_at(f, p->dir, name, r->err);

    if (rc)
        return rc;
    r->h->n++;
    rc = safetensors_read(&shard, *f, &metadata, r->err);
    if (rc == 0)
        rc = dcp_sharding_info(&boxes, metadata, r->err);
    if (rc == 0 && !boxes)
        rc = ckpt_fail_as(r->err, CKPT_EFORMAT, "missing",
                          "no DCP_SHARDING_INFO: where its boxes begin is not said");
    for (size_t i = 0; rc == 0 && i < shard.n; i++)
        rc = add_box(r, &shard.item[i], boxes);
    json_decref(metadata);
    json_decref(boxes);
    ckpt_tensors_release(&shard);
    return rc ? ckpt_err_in(r->err, "%s", name) : 0;
}

/* By tensor, then in the order of files. */
static int by_tensor(const void *a, const void *b)
{
    const struct box *x = a, *y = b;

    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

/* The tensor of boxes b[0..n). */
static int add_tensor(struct reader *r, const struct box *b, size_t n)
{
    struct ckpt_fragment *frag = ckpt_arena_alloc(&r->list->arena, n, sizeof *frag);
    struct ckpt_shape shape = b[0].shape;
    size_t used = 0;

    if (!frag)
        return ckpt_nomem(r->err, n * sizeof *frag);
    for (size_t i = 0; i < n; i++) {
        if (b[i].dtype != b[0].dtype || b[i].shape.rank != shape.rank)
            return ckpt_fail(r->err, CKPT_EFORMAT, "%s: shards disagree on its dtype or axes",
                             b->name);
        for (int d = 0; d < shape.rank; d++) {
            int64_t end;

            if (__builtin_add_overflow(b[i].start[d], b[i].shape.dim[d], &end))
                return ckpt_fail(r->err, CKPT_EFORMAT, "%s: its size overflows", b->name);
            if (end > shape.dim[d] || i == 0)
                shape.dim[d] = end;
        }
        if (b[i].frag.file)
            frag[used++] = b[i].frag;
    }
    return boxes_add(r->list, NULL, b->name, b->dtype, &shape, frag, used, true, r->err);
}

int dcp_hf_open(struct dcp_hf *h, struct ckpt_tensors *list, const struct ckpt_place *p,
                struct ckpt_err *err)
{
    struct reader r = {.h = h, .list = list, .err = err};
    int rc = ckpt_map_new(&r.by_name, 256, err);

    h->file = ckpt_alloc(p->n_entry, sizeof *h->file);
    if (rc == 0 && !h->file)
        rc = ckpt_nomem(err, p->n_entry * sizeof *h->file);
    for (size_t i = 0; rc == 0 && i < p->n_entry; i++)
        if (p->entry[i].is_file && fnmatch(DCP_HF_GLOB, p->entry[i].name, 0) == 0)
            rc = read_shard(&r, p, p->entry[i].name);
    if (rc == 0 && r.n)
        qsort(r.box, r.n, sizeof *r.box, by_tensor);
    for (size_t i = 0, k; rc == 0 && i < r.n; i = k) {
        for (k = i + 1; k < r.n && r.box[k].tensor == r.box[i].tensor;)
            k++;
        rc = add_tensor(&r, &r.box[i], k - i);
    }
    ckpt_map_free(r.by_name);
    ckpt_free(r.box);
    return rc;
}
