/*
 * token_ids - texts that were tokenised before, as records {"input_ids": [...]}.
 *
 * Megatron's indexed data set (Megatron-LM core/datasets/indexed_dataset.py, version 1): NAME.idx
 *
 *   "MMIDIDX\0\0"  u64 version = 1  u8 kind  u64 sequences  u64 documents
 *   i32 length[sequences]  i64 offset[sequences]  i64 document[documents]
 *
 * with the ids themselves in NAME.bin; one record a sequence.
 *
 * NumPy's .npy (container/npy.h): a list of ids is a stream, cut into records of
 * records_opts.stream_tokens (the last may be shorter); a table has one record a line.
 *
 * Ids are read on request, so files may be larger than memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/npy.h"
#include "formats/records/record.h"
#include "formats/records/rows.h"
#include "libckpt/base/buf.h"
#include "libckpt/io/path.h"

#define IDX_HEAD    34          /* bytes before the lengths */
#define MAX_IDS     ((int64_t)1 << 24)
#define STREAM      1024

/* Where the ids of records are in the data. */
struct ids {
    struct ckpt_file *file;     /* of the ids */
    struct ckpt_file *index;    /* Megatron's index; or NULL */
    unsigned          width;    /* bytes per id */
    bool              is_signed;
    uint64_t          first;    /* without an index: offset of the first id */
    int64_t           n_ids, row;   /* number of all ids; of those in a record */
    int64_t           n;        /* records */
};

static const char megatron[9] = "MMIDIDX\0";

static int bid(const char *path, const unsigned char *head, size_t len)
{
    (void)path;
    return (len >= 9 && memcmp(head, megatron, 9) == 0) ||
           (len >= 6 && memcmp(head, NPY_MAGIC, 6) == 0) ? 100 : 0;
}

static void ids_close(void *self)
{
    struct ids *d = self;

    ckpt_file_close(d->file);
    ckpt_file_close(d->index);
}

/* -- Megatron -------------------------------------------------------------------------------- */

static int open_idx(struct ids *d, struct ckpt_err *err)
{
    static const struct { unsigned width; bool is_signed; } kind[] = {
        {0, false}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {0, false}, {0, false},
        {2, false},
    };
    unsigned char head[IDX_HEAD];
    struct ckpt_cursor c;
    const char *name = ckpt_file_name(d->index);
    size_t n_name = strlen(name);
    uint64_t version, n, documents, wanted, size = ckpt_file_size(d->index);
    uint8_t code;
    char *path;
    int rc;

    if ((rc = ckpt_file_read_at(d->index, head, IDX_HEAD, 0, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, head, sizeof head);
    ckpt_cursor_skip(&c, 9);
    version = ckpt_cursor_u64le(&c);
    code = ckpt_cursor_u8(&c);
    n = ckpt_cursor_u64le(&c);
    documents = ckpt_cursor_u64le(&c);
    if (version != 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "index of version %" PRIu64 ", 1 is known",
                         version);
    if (code >= sizeof kind / sizeof *kind || !kind[code].width)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "ids of kind %u; whole numbers are known", code);
    if (!ckpt_mul(&wanted, n, 12) || !ckpt_add(&wanted, wanted, IDX_HEAD) || documents > size / 8 ||
        wanted > size - 8 * documents)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%" PRIu64 " sequences and %" PRIu64 " documents do not fit into "
                            "%" PRIu64 " bytes", n, documents, size);
    d->n = (int64_t)n;
    d->width = kind[code].width;
    d->is_signed = kind[code].is_signed;
    if (n_name < 5 || strcmp(name + n_name - 4, ".idx") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "is an index; it must be named NAME.idx, "
                         "beside NAME.bin");
    path = ckpt_strdup(name);
    if (!path)
        return ckpt_nomem(err, n_name);
    memcpy(path + n_name - 4, ".bin", 4);
    rc = ckpt_path_file(&d->file, path, CKPT_FOLLOW | CKPT_PROVE, err);
    ckpt_free(path);
    return rc;
}

static int span_idx(const struct ids *d, int64_t i, uint64_t *at, int64_t *n, struct ckpt_err *err)
{
    unsigned char len[4], off[8];
    struct ckpt_cursor c;
    int32_t count;
    int rc;

    if ((rc = ckpt_file_read_at(d->index, len, 4, IDX_HEAD + 4 * (uint64_t)i, err)) != 0 ||
        (rc = ckpt_file_read_at(d->index, off, 8,
                                IDX_HEAD + 4 * (uint64_t)d->n + 8 * (uint64_t)i, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, len, 4);
    count = (int32_t)ckpt_cursor_u32le(&c);
    ckpt_cursor_init(&c, off, 8);
    *at = ckpt_cursor_u64le(&c);
    if (count < 0 || count > MAX_IDS)
        return ckpt_fail(err, CKPT_EFORMAT, "a sequence of %d ids", count);
    *n = count;
    return 0;
}

/* -- NumPy ----------------------------------------------------------------------------------- */

static int open_npy(struct ids *d, int64_t stream, struct ckpt_err *err)
{
    struct npy npy;
    int64_t each;
    uint64_t bytes, left;
    int rc;

    if ((rc = npy_header(&npy, d->file, err)) != 0)
        return rc;
    if (npy.dtype == CKPT_DTYPE_NONE || ckpt_dtype_class(npy.dtype) != CKPT_CLASS_INT ||
        npy.dtype == CKPT_BOOL || npy.swapped || npy.fortran)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "not whole numbers, little end first, line by "
                         "line: %s%s", npy.record ? "records" : npy.descr,
                         npy.fortran ? ", column-major" : "");
    if (npy.shape.rank < 1 || npy.shape.rank > 2)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "neither a list nor a table of ids");
    d->is_signed = npy.dtype == CKPT_I8 || npy.dtype == CKPT_I16 || npy.dtype == CKPT_I32 ||
                   npy.dtype == CKPT_I64;
    d->width = (unsigned)ckpt_dtype_size(npy.dtype);
    d->first = npy.data;
    each = npy.shape.rank == 2 ? npy.shape.dim[1] : 1;
    left = ckpt_file_size(d->file) - d->first;
    if (!ckpt_mul(&bytes, (uint64_t)npy.shape.dim[0], (uint64_t)each) ||
        !ckpt_mul(&bytes, bytes, d->width) || bytes > left)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%lld x %lld ids of %u bytes, the file "
                            "has %llu bytes", (long long)npy.shape.dim[0], (long long)each,
                            d->width, (unsigned long long)left);
    d->n_ids = npy.shape.dim[0] * each;
    d->row = npy.shape.rank == 2 ? each : stream;
    if (d->row > MAX_IDS)
        return ckpt_fail(err, CKPT_ELIMIT, "lines of %lld ids", (long long)d->row);
    d->n = npy.shape.rank == 2 ? npy.shape.dim[0] : (d->n_ids + d->row - 1) / d->row;
    return 0;
}

/* -- the reader ------------------------------------------------------------------------------ */

static int ids_open(void *self, struct ckpt_file *file, const struct records_opts *opts,
                    struct ckpt_err *err)
{
    struct ids *d = self;
    unsigned char first = 0;
    int rc = ckpt_file_read_at(file, &first, 1, 0, err);

    if (rc == 0 && first == (unsigned char)megatron[0]) {
        d->index = file;
        return open_idx(d, err);
    }
    d->file = file;
    return rc ? rc : open_npy(d, opts->stream_tokens > 0 ? opts->stream_tokens : STREAM, err);
}

static int64_t ids_count(void *self) { return ((struct ids *)self)->n; }

static int ids_get(void *self, int64_t i, json_t **out, struct ckpt_err *err)
{
    const struct ids *d = self;
    uint64_t at = d->first + (uint64_t)i * (uint64_t)d->row * d->width;
    int64_t n = d->row < d->n_ids - i * d->row ? d->row : d->n_ids - i * d->row;
    unsigned char *bytes;
    json_t *list = NULL;
    int rc;

    *out = NULL;
    if (d->index && (rc = span_idx(d, i, &at, &n, err)) != 0)
        return rc;
    bytes = ckpt_alloc_buffer((size_t)n * d->width + 1);
    list = json_array();
    rc = bytes && list ? 0 : ckpt_nomem(err, (size_t)n * d->width);
    if (rc == 0 && n > 0)
        rc = ckpt_file_read_at(d->file, bytes, (size_t)n * d->width, at, err);
    for (int64_t k = 0; rc == 0 && k < n; k++)
        if (json_array_append_new(list, json_integer(records_int(bytes + k * d->width, d->width,
                                                                d->is_signed))))
            rc = ckpt_nomem(err, (size_t)n);
    ckpt_free(bytes);
    if (rc == 0) {
        *out = json_pack("{s:O}", "input_ids", list);
        rc = *out ? 0 : ckpt_nomem(err, (size_t)n);
    }
    json_decref(list);
    return rc;
}

const struct record_ops record_token_ids = {
    .name = "token ids", .size = sizeof(struct ids), .bid = bid, .open = ids_open,
    .count = ids_count, .get = ids_get, .close = ids_close,
};
