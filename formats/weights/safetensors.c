/* safetensors - see safetensors.h. */
#include "formats/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "formats/weights/safetensors_out.h"
#include "libckpt/json.h"

/* A tensor as the header has it, before anything is believed. */
struct entry {
    const char       *name;
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    uint64_t          begin, end;
};

static int read_shape(struct entry *e, const json_t *shape, struct ckpt_err *err)
{
    size_t rank = json_array_size(shape);

    if (rank > CKPT_MAX_RANK)
        return ckpt_fail(err, CKPT_ELIMIT, "%zu axes, %d at most", rank, CKPT_MAX_RANK);
    e->shape.rank = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *d = json_array_get(shape, i);

        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return ckpt_fail(err, CKPT_EFORMAT, "axis %zu of its shape is no integer >= 0", i);
        e->shape.dim[i] = json_integer_value(d);
    }
    return 0;
}

static int read_entry(struct entry *e, const char *name, const json_t *v, struct ckpt_err *err)
{
    const json_t *begin, *end;
    json_t *shape, *offsets;
    const char *dtype;

    if (!json_is_object(v))
        return ckpt_fail(err, CKPT_EFORMAT, "its member is no object");
    if (ckpt_json_str(&dtype, v, "dtype", err) ||
        ckpt_json_get(&shape, v, "shape", JSON_ARRAY, err) ||
        ckpt_json_get(&offsets, v, "data_offsets", JSON_ARRAY, err))
        return err->code;
    e->name = name;
    e->dtype = ckpt_dtype_parse(dtype);
    if (e->dtype == CKPT_DTYPE_NONE || strcmp(ckpt_dtype_name(e->dtype), dtype) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "unknown dtype \"%s\"", dtype);
    begin = json_array_get(offsets, 0);
    end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return ckpt_fail(err, CKPT_EFORMAT, "data_offsets are no [begin, end]");
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    return read_shape(e, shape, err);
}

/* Product of dims and width without stopping at a zero, as the reference computes it. */
static int check_size(const struct entry *e, struct ckpt_err *err)
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
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end ? 1 : 0;
}

/* Tensors in offset order must tile the data without gap or overlap, to the end of the file. */
static int check_tiling(const struct entry *entry, size_t n, uint64_t data_bytes,
                        struct ckpt_err *err)
{
    const struct entry **order = ckpt_alloc(n, sizeof *order);
    uint64_t at = 0;
    int rc = 0;

    if (!order)
        return ckpt_nomem(err, n * sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = &entry[i];
    qsort(order, n, sizeof *order, by_offset);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (order[i]->begin != at)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, order[i]->begin < at ? "overlap" : "hole",
                              "tensor %s: begins at %llu, the one before it ends at %llu",
                              order[i]->name, (unsigned long long)order[i]->begin,
                              (unsigned long long)at);
        else if (check_size(order[i], err))
            rc = ckpt_err_in(err, "tensor %s", order[i]->name);
        at = order[i]->end;
    }
    if (rc == 0 && at != data_bytes)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, at > data_bytes ? "truncated" : "trailing",
                          "tensors need %llu bytes of data, the file has %llu",
                          (unsigned long long)at, (unsigned long long)data_bytes);
    ckpt_free(order);
    return rc;
}

static int check_metadata(const json_t *m, struct ckpt_err *err)
{
    const char *key;
    json_t *v;

    if (json_is_null(m))
        return 0;
    if (!json_is_object(m))
        return ckpt_fail(err, CKPT_EFORMAT, "__metadata__ is no object");
    json_object_foreach ((json_t *)m, key, v)
        if (!json_is_string(v))
            return ckpt_fail(err, CKPT_EFORMAT, "__metadata__: %s is no text", key);
    return 0;
}

/* Header members into entries; *n counts the tensors. */
static int read_entries(struct entry *entry, size_t *n, const json_t *header, json_t **metadata,
                        struct ckpt_err *err)
{
    const char *name;
    json_t *v;

    json_object_foreach ((json_t *)header, name, v) {
        if (strcmp(name, "__metadata__") == 0) {
            if (check_metadata(v, err))
                return err->code;
            if (metadata && json_is_object(v))
                *metadata = json_incref(v);
        } else if (read_entry(&entry[(*n)++], name, v, err)) {
            return ckpt_err_in(err, "tensor %s", name);
        }
    }
    return 0;
}

static int add_tensor(struct ckpt_tensors *list, const struct entry *e, struct ckpt_file *file,
                      uint64_t data, struct ckpt_err *err)
{
    struct ckpt_fragment *f = NULL;

    if (e->end > e->begin) {
        f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);
        if (!f)
            return ckpt_nomem(err, sizeof *f);
        memcpy(f->box.count, e->shape.dim, (size_t)e->shape.rank * sizeof *e->shape.dim);
        f->file = file;
        f->offset = data + e->begin;
    }
    return ckpt_tensors_add(list, NULL, e->name, strlen(e->name), e->dtype, &e->shape, f, f != NULL,
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
    struct ckpt_arena a = {0};
    struct entry *entry = NULL;
    json_t *header = NULL;
    uint64_t n_header = 0;
    size_t n = 0;
    char *text = NULL;
    int rc;

    if (metadata)
        *metadata = NULL;
    rc = load_header(&text, &n_header, file, &a, err);
    if (rc == 0)
        rc = ckpt_json_parse(&header, text, (size_t)n_header, 0, err);
    if (rc == 0 && !json_is_object(header))
        rc = ckpt_fail(err, CKPT_EFORMAT, "header is no object");
    if (rc == 0 && !(entry = ckpt_alloc(json_object_size(header), sizeof *entry)))
        rc = ckpt_nomem(err, json_object_size(header) * sizeof *entry);
    if (rc == 0)
        rc = read_entries(entry, &n, header, metadata, err);
    if (rc == 0)
        rc = check_tiling(entry, n, ckpt_file_size(file) - 8 - n_header, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_tensor(list, &entry[i], file, 8 + n_header, err);
    if (rc && metadata) {
        json_decref(*metadata);
        *metadata = NULL;
    }
    ckpt_free(entry);
    json_decref(header);
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
