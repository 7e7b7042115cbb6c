/* safetensors - see safetensors.h. */
#include "formats/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/weights/safetensors_header.h"
#include "formats/weights/safetensors_out.h"
#include "libckpt/buf.h"

/* Product of dims and width without stopping at a zero, as the reference computes it. */
static int check_size(const struct safetensors_row *e, struct ckpt_err *err)
{
    uint64_t bits = ckpt_dtype_bits(e->dtype);
    char shape[256];

    for (int i = 0; i < e->shape.rank; i++)
        if (!ckpt_mul(&bits, bits, (uint64_t)e->shape.dim[i]))
            return ckpt_fail(err, CKPT_EFORMAT, "shape %s overflows",
                             ckpt_shape_text(shape, sizeof shape, &e->shape));
    if (bits % 8 != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "its elements do not fill whole bytes");
    if (e->end - e->begin != bits / 8)
        return ckpt_fail(err, CKPT_EFORMAT, "data_offsets give %llu bytes, %s %s has %llu",
                         (unsigned long long)(e->end - e->begin), ckpt_dtype_name(e->dtype),
                         ckpt_shape_text(shape, sizeof shape, &e->shape),
                         (unsigned long long)(bits / 8));
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_row *x = *(const struct safetensors_row *const *)a;
    const struct safetensors_row *y = *(const struct safetensors_row *const *)b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end ? 1 : 0;
}

/* Rows in offset order; most files have them so already. */
static const struct safetensors_row **in_order(const struct safetensors_header *h,
                                               struct ckpt_err *err)
{
    const struct safetensors_row **order = ckpt_alloc(h->n, sizeof *order);
    bool sorted = true;

    if (!order) {
        ckpt_nomem(err, h->n * sizeof *order);
        return NULL;
    }
    for (size_t i = 0; i < h->n; i++) {
        order[i] = &h->row[i];
        sorted = sorted && (i == 0 || by_offset(&order[i - 1], &order[i]) <= 0);
    }
    if (!sorted)
        qsort(order, h->n, sizeof *order, by_offset);
    return order;
}

/* Tensors in offset order must tile the data without gap or overlap, to the end of the file. */
static int check_tiling(const struct safetensors_header *h, uint64_t data_bytes,
                        struct ckpt_err *err)
{
    const struct safetensors_row **order = in_order(h, err);
    uint64_t at = 0;
    int rc = order ? 0 : err->code;

    for (size_t i = 0; rc == 0 && i < h->n; i++) {
        const struct safetensors_row *r = order[i];

        if (r->begin != at)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, r->begin < at ? "overlap" : "hole",
                              "begins at %llu, the one before it ends at %llu",
                              (unsigned long long)r->begin, (unsigned long long)at);
        else
            rc = check_size(r, err);
        if (rc)
            ckpt_err_in(err, "tensor %.*s", r->name_len < 200 ? (int)r->name_len : 200, r->name);
        at = r->end;
    }
    if (rc == 0 && at != data_bytes)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, at > data_bytes ? "truncated" : "trailing",
                          "tensors need %llu bytes of data, the file has %llu",
                          (unsigned long long)at, (unsigned long long)data_bytes);
    ckpt_free(order);
    return rc;
}

static int add_tensor(struct ckpt_tensors *list, const struct safetensors_row *e,
                      struct ckpt_file *file,
                      uint64_t data, struct ckpt_err *err)
{
    struct ckpt_fragment *f = NULL;

    if (e->end > e->begin) {
        f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);
        if (!f)
            return ckpt_nomem(err, sizeof *f);
        f->file = file;
        f->offset = data + e->begin;
    }
    return ckpt_tensors_add(list, NULL, e->name, e->name_len, e->dtype, &e->shape, f, f != NULL,
                            false, err);
}

/* The header's text in arena memory. */
static int load_header(char **text, uint64_t *n, struct ckpt_file *file, struct ckpt_arena *a,
                       struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    unsigned char head[8];
    struct ckpt_cursor c;

    if (size < 8)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%llu bytes, at least 8 wanted",
                            (unsigned long long)size);
    if (ckpt_file_read_at(file, head, sizeof head, 0, err))
        return err->code;
    ckpt_cursor_init(&c, head, sizeof head);
    *n = ckpt_get_u64le(&c);
    if (*n > SAFETENSORS_MAX_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT, "header says %llu bytes, %u at most",
                         (unsigned long long)*n, SAFETENSORS_MAX_HEADER);
    if (*n > size - 8)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "header says %llu bytes, the file has %llu after its first 8",
                            (unsigned long long)*n, (unsigned long long)(size - 8));
    *text = ckpt_arena_alloc(a, (size_t)*n + 1, 1);
    if (!*text)
        return ckpt_nomem(err, (size_t)*n + 1);
    if (ckpt_file_read_at(file, *text, (size_t)*n, 8, err))
        return err->code;
    if (*n > 0 && (*text)[*n - 1] == '\0')
        return ckpt_fail(err, CKPT_EFORMAT, "header is padded with NUL, blanks wanted");
    return 0;
}

int safetensors_read(struct ckpt_tensors *list, struct ckpt_file *file, json_t **metadata,
                     struct ckpt_err *err)
{
    struct safetensors_header h = {0};
    struct ckpt_arena a = {0};
    uint64_t n_header = 0;
    char *text = NULL;
    int rc;

    if (metadata)
        *metadata = NULL;
    rc = load_header(&text, &n_header, file, &a, err);
    if (rc == 0)
        rc = safetensors_header_parse(&h, &a, text, (size_t)n_header, err);
    /* Names first, so that one that repeats is called that and no overlap. */
    for (size_t i = 0; rc == 0 && i < h.n; i++)
        rc = add_tensor(list, &h.row[i], file, 8 + n_header, err);
    if (rc == 0)
        rc = check_tiling(&h, ckpt_file_size(file) - 8 - n_header, err);
    if (rc == 0 && metadata)
        *metadata = json_incref(h.metadata);
    safetensors_header_release(&h);
    ckpt_arena_release(&a);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}

static int bid(const struct ckpt_place *p)
{
    struct ckpt_cursor c;
    uint64_t n;

    if (!p->file || p->head_len < 9)
        return 0;
    ckpt_cursor_init(&c, p->head, p->head_len);
    n = ckpt_get_u64le(&c);
    for (size_t i = 8; i < p->head_len; i++) {
        if (p->head[i] == '{')
            return n >= 2 && n <= SAFETENSORS_MAX_HEADER ? 90 : 0;
        if (!strchr(" \t\r\n", p->head[i]) || !p->head[i])
            break;
    }
    return 0;
}

static void close_file(void *self) { ckpt_file_close(self); }

static const struct ckpt_source_ops ops = {.format = "safetensors", .close = close_file};

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    json_t *metadata, *info;

    (void)opts;
    *out = NULL;
    if (!place->file)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a directory, one safetensors file wanted",
                         place->path);
    if (safetensors_read(&list, place->file, &metadata, err)) {
        ckpt_tensors_release(&list);
        return err->code;
    }
    info = json_pack("{s:s}", "format", "safetensors");
    if (info && metadata)
        json_object_set(info, "metadata", metadata);
    json_decref(metadata);
    place->took = true;
    return ckpt_source_new(out, &ops, place->file, &list, NULL, 0, info, err);
}

const struct ckpt_format ckpt_format_safetensors = {
    .name = "safetensors", .title = "safetensors file", .bid = bid, .open = open_source,
    .create = safetensors_create,
};
