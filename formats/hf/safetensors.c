/* safetensors - see safetensors.h. */
#include "formats/hf/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/hf/safetensors_header.h"
#include "formats/hf/safetensors_out.h"
#include "formats/place.h"
#include "libckpt/base/buf.h"

/* Product of dims and width, not cut short by a zero, as the reference computes it. */
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

/* The position of a listed tensor in the data; its size follows from its shape. */
struct span {
    uint64_t begin;
    size_t   i;
};

struct reading {
    struct ckpt_tensors *list;
    struct ckpt_file    *file;
    uint64_t             data;          /* offset of the data in the file */
    struct span         *span;
    size_t               n, cap;
};

static uint64_t end_of(const struct ckpt_tensors *list, const struct span *s)
{
    return s->begin + ckpt_tensor_bytes(&list->item[s->i]);
}

static int by_offset(const void *a, const void *b, void *list)
{
    const struct span *x = a, *y = b;
    uint64_t x_end, y_end;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    x_end = end_of(list, x);
    y_end = end_of(list, y);
    return x_end < y_end ? -1 : x_end > y_end ? 1 : 0;
}

/* Tensors, in offset order in most files, must tile the data to the end of the file, without gap
 * or overlap. */
static int check_tiling(struct reading *r, uint64_t data_bytes, struct ckpt_err *err)
{
    bool sorted = true;
    uint64_t at = 0;

    for (size_t i = 1; i < r->n && sorted; i++)
        sorted = by_offset(&r->span[i - 1], &r->span[i], r->list) <= 0;
    if (!sorted)
        qsort_r(r->span, r->n, sizeof *r->span, by_offset, r->list);
    for (size_t i = 0; i < r->n; i++) {
        const struct span *s = &r->span[i];

        if (s->begin != at)
            return ckpt_fail_as(err, CKPT_EFORMAT, s->begin < at ? "overlap" : "hole",
                                "tensor %.200s: begins at %llu, the one before it ends at %llu",
                                r->list->item[s->i].name, (unsigned long long)s->begin,
                                (unsigned long long)at);
        at = end_of(r->list, s);
    }
    if (at != data_bytes)
        return ckpt_fail_as(err, CKPT_EFORMAT, at > data_bytes ? "truncated" : "trailing",
                            "tensors need %llu bytes of data, the file has %llu",
                            (unsigned long long)at, (unsigned long long)data_bytes);
    return 0;
}

static int add_span(struct reading *r, uint64_t begin, struct ckpt_err *err)
{
    int rc = ckpt_reserve(&r->span, r->n, &r->cap, sizeof *r->span, err);

    if (rc == 0)
        r->span[r->n++] = (struct span){begin, r->list->n - 1};
    return rc;
}

static int add_tensor(void *ctx, const struct safetensors_row *e, struct ckpt_err *err)
{
    struct reading *r = ctx;
    struct ckpt_fragment *f = NULL;
    int rc;

    if (e->end > e->begin) {
        f = ckpt_arena_alloc(&r->list->arena, 1, sizeof *f);
        if (!f)
            return ckpt_nomem(err, sizeof *f);
        f->file = r->file;
        f->offset = r->data + e->begin;
    }
    if ((rc = ckpt_tensors_add(r->list, NULL, e->name, e->name_len, e->dtype, &e->shape, f,
                               f != NULL, false, err)) != 0)
        return rc;
    if (check_size(e, err))
        return ckpt_err_in(err, "tensor %.*s", e->name_len < 200 ? (int)e->name_len : 200, e->name);
    return add_span(r, e->begin, err);
}

/* Bytes of the header. */
static int header_size(uint64_t *n, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    unsigned char head[8], last = ' ';
    struct ckpt_cursor c;
    int rc;

    if (size < 8)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%llu bytes, at least 8 wanted",
                            (unsigned long long)size);
    if ((rc = ckpt_file_read_at(file, head, sizeof head, 0, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, head, sizeof head);
    *n = ckpt_cursor_u64le(&c);
    if (*n > SAFETENSORS_MAX_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT, "header says %llu bytes, %u at most",
                         (unsigned long long)*n, SAFETENSORS_MAX_HEADER);
    if (*n > size - 8)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "header says %llu bytes, the file has %llu after its first 8",
                            (unsigned long long)*n, (unsigned long long)(size - 8));
    if (*n > 0 && (rc = ckpt_file_read_at(file, &last, 1, 8 + *n - 1, err)) != 0)
        return rc;
    if (last == '\0')
        return ckpt_fail(err, CKPT_EFORMAT, "header is padded with NUL, blanks wanted");
    return 0;
}

int safetensors_read(struct ckpt_tensors *list, struct ckpt_file *file, json_t **metadata,
                     struct ckpt_err *err)
{
    struct reading r = {.list = list, .file = file};
    json_t *found = NULL;
    uint64_t n = 0;
    int rc = header_size(&n, file, err);

    r.data = 8 + n;
    if (rc == 0)
        rc = safetensors_header_read(&found, file, n, add_tensor, &r, err);
    if (rc == 0)
        rc = check_tiling(&r, ckpt_file_size(file) - r.data, err);
    if (metadata)
        *metadata = rc == 0 ? json_incref(found) : NULL;
    json_decref(found);
    ckpt_free(r.span);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}

static int bid(const struct ckpt_place *p)
{
    struct ckpt_cursor c;
    uint64_t n;

    if (!p->file || p->head_len < 9)
        return 0;
    ckpt_cursor_init(&c, p->head, p->head_len);
    n = ckpt_cursor_u64le(&c);
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
    int rc;

    (void)opts;
    *out = NULL;
    if (!place->file)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a directory, one safetensors file wanted",
                         place->path);
    if ((rc = safetensors_read(&list, place->file, &metadata, err)) != 0) {
        ckpt_tensors_release(&list);
        return rc;
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
