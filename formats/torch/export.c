/* torch/export - see torch/export.h. */
#include "formats/torch/export.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"

/* Folders of payloads, and the suffixes of the files that describe them. */
static const struct place {
    const char     *folder, *end;
    enum ckpt_kind  kind;               /* kind of tensors that are not parameters */
} places[] = {
    {"data/weights/", "_weights_config.json", CKPT_BUFFER},
    {"data/constants/", "_constants_config.json", CKPT_OTHER},
};

bool torch_export_is(const struct zip *z) { return zip_find(z, "archive_format") != NULL; }

/* torch's number of a dtype. */
static enum ckpt_dtype dtype_of(int64_t number)
{
    static const enum ckpt_dtype dtypes[] = {
        [1] = CKPT_U8, [2] = CKPT_I8, [3] = CKPT_I16, [4] = CKPT_I32, [5] = CKPT_I64,
        [6] = CKPT_F16, [7] = CKPT_F32, [8] = CKPT_F64, [9] = CKPT_C32, [10] = CKPT_C64,
        [11] = CKPT_C128, [12] = CKPT_BOOL, [13] = CKPT_BF16, [28] = CKPT_U16,
        [29] = CKPT_F8_E4M3, [30] = CKPT_F8_E5M2, [31] = CKPT_F8_E4M3FNUZ,
        [32] = CKPT_F8_E5M2FNUZ, [33] = CKPT_F8_E8M0, [34] = CKPT_U32, [35] = CKPT_U64,
    };

    return number > 0 && number < (int64_t)(sizeof dtypes / sizeof dtypes[0])
               ? dtypes[number] : CKPT_DTYPE_NONE;
}

/* {"as_int": 3} */
static int take_int(int64_t *out, const json_t *v, const char *what, struct ckpt_err *err)
{
    const json_t *i = json_object_get(v, "as_int");

    *out = json_integer_value(i);
    return json_is_integer(i) && *out >= 0
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "%s is no number >= 0", what);
}

static int take_ints(int64_t *out, int *n, const json_t *meta, const char *key,
                     struct ckpt_err *err)
{
    json_t *list;
    int rc;

    if ((rc = ckpt_json_get(&list, meta, key, JSON_ARRAY, err)) != 0)
        return rc;
    if (json_array_size(list) > CKPT_MAX_RANK)
        return ckpt_fail(err, CKPT_ELIMIT, "%zu axes, %d at most", json_array_size(list),
                         CKPT_MAX_RANK);
    *n = (int)json_array_size(list);
    for (int k = 0; k < *n; k++)
        if ((rc = take_int(&out[k], json_array_get(list, (size_t)k), key, err)) != 0)
            return rc;
    return 0;
}

/* The fragment of a tensor in its storage, which is e's bytes. */
static int make_fragment(struct ckpt_fragment **out, struct ckpt_tensors *list,
                         const struct zip *z, const struct zip_entry *e,
                         const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                         const json_t *meta, struct ckpt_err *err)
{
    struct ckpt_fragment *f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);
    int64_t *stride = ckpt_arena_alloc(&list->arena, CKPT_MAX_RANK, sizeof *stride), offset;
    int64_t last = 0, far;
    uint64_t end;
    int n;
    int rc;

    *out = f;
    if (!f || !stride)
        return ckpt_nomem(err, sizeof *f);
    if ((rc = take_ints(stride, &n, meta, "strides", err)) != 0 ||
        (rc = take_int(&offset, json_object_get(meta, "storage_offset"), "storage_offset",
                       err)) != 0)
        return rc;
    if (n != shape->rank)
        return ckpt_fail(err, CKPT_EFORMAT, "%d strides for %d axes", n, shape->rank);
    for (int k = 0; k < n; k++)
        if (__builtin_mul_overflow(stride[k], shape->dim[k] - 1, &far) ||
            __builtin_add_overflow(last, far, &last))
            return ckpt_fail(err, CKPT_EFORMAT, "strides beyond all sizes");
    if (__builtin_add_overflow(last, offset, &last) ||
        !ckpt_mul(&end, (uint64_t)last + 1, ckpt_dtype_size(dtype)) || end > e->size)
        return ckpt_fail_as(err, CKPT_EFORMAT, "bounds", "element %lld of %s lies outside of "
                            "%s, which has %llu bytes", (long long)last, ckpt_dtype_name(dtype),
                            e->name, (unsigned long long)e->size);
    f->file = z->file;
    f->offset = e->offset + (uint64_t)offset * ckpt_dtype_size(dtype);
    f->stride = stride;
    return 0;
}

/* Add one entry of a config. */
static int add(struct ckpt_tensors *list, const struct zip *z, const struct place *p,
               const char *name, const json_t *entry, struct ckpt_err *err)
{
    const json_t *meta = json_object_get(entry, "tensor_meta");
    bool pickled = json_is_true(json_object_get(entry, "use_pickle"));
    struct ckpt_fragment *f = NULL;
    struct ckpt_shape shape = {0};
    struct ckpt_tensor *added;
    const struct zip_entry *e;
    int64_t number, numel;
    enum ckpt_dtype dtype;
    const char *file;
    char path[256];
    int rc;

    if (!json_is_object(meta) && pickled)
        return 0;                       /* an object of a class, not a tensor */
    if ((rc = ckpt_json_str(&file, entry, "path_name", err)) != 0 ||
        (rc = ckpt_json_int(&number, meta, "dtype", err)) != 0 ||
        (rc = take_ints(shape.dim, &shape.rank, meta, "sizes", err)) != 0)
        return rc;
    dtype = dtype_of(number);
    if (dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "dtype %lld is not known", (long long)number);
    if (!ckpt_shape_numel(&numel, &shape))
        return ckpt_fail(err, CKPT_EFORMAT, "its size overflows");
    e = (size_t)snprintf(path, sizeof path, "%s%s", p->folder, file) < sizeof path
            ? zip_find(z, path) : NULL;
    if (!e && numel > 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s is not there", path);
    if (numel > 0 && !pickled && (rc = make_fragment(&f, list, z, e, &shape, dtype, meta,
                                                     err)) != 0)
        return rc;
    if ((rc = ckpt_tensors_add(list, &added, name, strlen(name), dtype, &shape, f, f != NULL,
                               false, err)) != 0)
        return rc;
    added->kind = json_is_true(json_object_get(entry, "is_param")) ? CKPT_WEIGHT : p->kind;
    added->unread = pickled ? "of a class of its own, in a pickle, which is not read" : NULL;
    return 0;
}

static int add_all(struct ckpt_tensors *list, const struct zip *z, const struct place *p,
                   const struct zip_entry *config, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    json_t *doc = NULL, *map, *entry;
    const char *name;
    char *text;
    int rc = zip_slurp(z, config, &a, CKPT_JSON_MAX_BYTES, &text, err);

    if (rc == 0)
        rc = ckpt_json_parse(&doc, text, (size_t)config->size, CKPT_JSON_PYTHON, err);
    if (rc == 0)
        rc = ckpt_json_get(&map, doc, "config", JSON_OBJECT, err);
    if (rc == 0)
        json_object_foreach (map, name, entry)
            if ((rc = add(list, z, p, name, entry, err)) != 0) {
                ckpt_err_in(err, "tensor %.256s", name);
                break;
            }
    json_decref(doc);
    ckpt_arena_release(&a);
    return rc ? ckpt_err_in(err, "%s", config->name) : 0;
}

/* torch has not written programs in another byte order so far. */
static int check_order(const struct zip *z, struct ckpt_err *err)
{
    const struct zip_entry *e = zip_find(z, "byteorder");
    struct ckpt_arena a = {0};
    char *order;
    int rc = e ? zip_slurp(z, e, &a, 64, &order, err) : 0;

    if (rc == 0 && e && strcmp(order, "little") != 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "byteorder is \"%s\", little is read", order);
    ckpt_arena_release(&a);
    return rc;
}

int torch_export_list(struct ckpt_tensors *list, const struct zip *z, struct ckpt_err *err)
{
    bool any = false, compiled = false;
    int rc;

    if ((rc = check_order(z, err)) != 0)
        return rc;
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++)
        for (size_t i = 0; i < z->n; i++) {
            const char *name = z->entry[i].name;
            size_t n = strlen(name), end = strlen(places[k].end), top = strlen(places[k].folder);

            compiled = compiled || strncmp(name, "data/aotinductor/", 17) == 0;
            if (strncmp(name, places[k].folder, top) != 0 || n < top + end ||
                strcmp(name + n - end, places[k].end) != 0)
                continue;
            any = true;
            if ((rc = add_all(list, z, &places[k], &z->entry[i], err)) != 0)
                return rc;
        }
    if (any)
        return 0;
    if (!compiled)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "is a .pt2 archive without weights that are "
                         "known");
    ckpt_fail_as(err, CKPT_EUNSUPPORTED, "foreign", "is a package of AOTInductor, compiled code "
                 "whose weights are not read");
    return ckpt_err_hint(err, "the program it was compiled from, or its state_dict, holds the "
                         "weights");
}
