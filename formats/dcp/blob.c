/* dcp/blob - see dcp/blob.h. */
#include "formats/dcp/blob.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/pickle/out.h"
#include "formats/container/zip_out.h"
#include "libckpt/base/crc32.h"

enum { M_PICKLE, M_FORMAT, M_ALIGNMENT, M_BYTEORDER, M_DATA, M_VERSION, M_ID, M_COUNT };

#define ID_DIGITS 40

static const struct { const char *name, *text; } small[M_COUNT] = {
    [M_PICKLE] = {"archive/data.pkl", NULL},
    [M_FORMAT] = {"archive/.format_version", "1"},
    [M_ALIGNMENT] = {"archive/.storage_alignment", "64"},
    [M_BYTEORDER] = {"archive/byteorder", "little"},
    [M_DATA] = {"archive/data/0", NULL},
    [M_VERSION] = {"archive/version", "3\n"},
    [M_ID] = {"archive/.data/serialization_id", NULL},
};

/* Members of one blob and their positions, recomputed when needed: it is only arithmetic. */
struct layout {
    struct zip_member member[M_COUNT];
    size_t            n;
    int               what[M_COUNT];        /* of member[i] */
    uint64_t          directory;
};

static void lay_out(struct layout *l, const struct dcp_blob *b)
{
    memset(l, 0, sizeof *l);
    for (int k = 0; k < M_COUNT; k++) {
        struct zip_member *m = &l->member[l->n];

        if (k == M_DATA && !b->tensor)
            continue;
        m->name = small[k].name;
        m->size = k == M_PICKLE ? b->pickle : k == M_DATA ? b->bytes
                  : k == M_ID ? ID_DIGITS : strlen(small[k].text);
        l->what[l->n++] = k;
    }
    l->directory = zip_layout(l->member, l->n);
}

int dcp_blob_pickle(struct ckpt_buf *out, const struct value *v, struct ckpt_err *err)
{
    out->len = 0;
    return pickle_write(out, v, NULL, 0, err);
}

int dcp_blob_tensor_pickle(struct ckpt_buf *out, enum ckpt_dtype dtype,
                           const struct ckpt_shape *shape, struct ckpt_err *err)
{
    struct value_tensor t = {.dtype = dtype, .shape = *shape};
    struct value v = {.kind = VALUE_TENSOR, .u.tensor = &t};
    struct pickle_storage storage = {.dtype = dtype};

    if (!ckpt_shape_numel(&storage.numel, shape))
        return ckpt_fail(err, CKPT_EFORMAT, "its size overflows");
    value_tensor_pack(&t);
    out->len = 0;
    return pickle_write(out, &v, &storage, 1, err);
}

void dcp_blob_plan(struct dcp_blob *b, const struct ckpt_buf *pickle, bool tensor, uint64_t bytes)
{
    struct layout l;

    b->pickle = (uint32_t)pickle->len;
    b->pickle_crc = ckpt_crc32(0, pickle->data, pickle->len);
    b->tensor = tensor;
    b->bytes = bytes;
    lay_out(&l, b);
    b->length = zip_total(l.member, l.n, l.directory);
    b->payload = tensor ? l.member[M_DATA].data : 0;
}

int dcp_blob_begin(struct ckpt_out *out, const struct dcp_blob *b, const struct ckpt_buf *pickle,
                   struct ckpt_err *err)
{
    struct layout l;
    int rc;

    lay_out(&l, b);
    rc = zip_begin(out, b->base, l.member, l.n, err);
    for (size_t i = 0; rc == 0 && i < l.n; i++) {
        const void *bytes = l.what[i] == M_PICKLE ? (const void *)pickle->data
                                                  : small[l.what[i]].text;

        if (bytes)
            rc = ckpt_out_write_at(out, bytes, (size_t)l.member[i].size,
                                   b->base + l.member[i].data, err);
    }
    return rc;
}

int dcp_blob_finish(struct ckpt_out *out, const struct dcp_blob *b, struct ckpt_err *err)
{
    struct layout l;
    char id[ID_DIGITS + 1];
    uint32_t data;
    int rc;

    if (!crc_join_whole(&b->crc, b->bytes, &data))
        return ckpt_fail(err, CKPT_ESTATE, "the %llu bytes of an item were not all written",
                         (unsigned long long)b->bytes);
    lay_out(&l, b);
    /* torch's id is a hash of the members' names and checksums: only diagnostic, any 40 digits
     * will do. */
    snprintf(id, sizeof id, "%020llu%010u%010u", (unsigned long long)b->bytes, b->pickle_crc, data);
    for (size_t i = 0; i < l.n; i++) {
        int k = l.what[i];

        l.member[i].crc = k == M_PICKLE ? b->pickle_crc : k == M_DATA ? data
                          : k == M_ID ? ckpt_crc32(0, id, ID_DIGITS)
                          : ckpt_crc32(0, small[k].text, strlen(small[k].text));
    }
    rc = ckpt_out_write_at(out, id, ID_DIGITS, b->base + l.member[l.n - 1].data, err);
    return rc ? rc : zip_finish(out, b->base, l.member, l.n, l.directory, err);
}
