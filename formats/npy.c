/* npy - see npy.h. */
#include "formats/npy.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/npy.h"
#include "formats/place.h"
#include "libckpt/err.h"

#define MAX_FOLDERS 8

/* -- the array ------------------------------------------------------------------------------- */

/* Check that elements are numbers of a type that tensors have. */
static int check_elements(const struct npy *h, struct ckpt_err *err)
{
    char shown[200];

    if (h->object)
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-global", "is an array of Python objects, "
                            "a pickle that numpy would execute");
    if (h->record)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "is an array of records, which is not read");
    if (h->dtype != CKPT_DTYPE_NONE)
        return 0;
    ckpt_fail(err, CKPT_EUNSUPPORTED, "elements of %s are not read",
              ckpt_err_escape(shown, sizeof shown, h->descr, strlen(h->descr)));
    if (strchr(h->descr, 'V'))
        ckpt_err_hint(err, "numpy forgets what bfloat16 and float8 are: save them as float32, or "
                      "as safetensors");
    return CKPT_EUNSUPPORTED;
}

/* Strides of column-major order: each is the product of the preceding dims. */
static int column_major(const int64_t **out, const struct ckpt_shape *s, struct ckpt_arena *a,
                        struct ckpt_err *err)
{
    int64_t *stride = ckpt_arena_alloc(a, CKPT_MAX_RANK, sizeof *stride), step = 1;

    if (!stride)
        return ckpt_nomem(err, CKPT_MAX_RANK * sizeof *stride);
    for (int k = 0; k < s->rank; k++) {
        stride[k] = step;
        step *= s->dim[k];              /* cannot overflow: the product of all was checked */
    }
    *out = stride;
    return 0;
}

static int add(struct ckpt_tensors *list, const struct npy *h, struct ckpt_file *file,
               const char *name, struct ckpt_err *err)
{
    uint64_t bytes, left = ckpt_file_size(file) - h->data;
    struct ckpt_fragment *f = NULL;
    int rc;

    if (!ckpt_shape_bytes(&bytes, &h->shape, h->dtype))
        return ckpt_fail(err, CKPT_EFORMAT, "a shape beyond all sizes");
    if (bytes != left)
        return ckpt_fail_as(err, CKPT_EFORMAT, bytes > left ? "truncated" : "trailing",
                            "its shape needs %llu bytes of data, the file has %llu",
                            (unsigned long long)bytes, (unsigned long long)left);
    if (bytes > 0) {
        f = ckpt_arena_alloc(&list->arena, 1, sizeof *f);
        if (!f)
            return ckpt_nomem(err, sizeof *f);
        f->file = file;
        f->offset = h->data;
        f->swapped = h->swapped && ckpt_dtype_size(h->dtype) > 1;
        if (h->fortran && h->shape.rank > 1 &&
            (rc = column_major(&f->stride, &h->shape, &list->arena, err)) != 0)
            return rc;
    }
    return ckpt_tensors_add(list, NULL, name, strlen(name), h->dtype, &h->shape, f, f != NULL,
                            false, err);
}

int npy_read(struct ckpt_tensors *list, struct ckpt_file *file, const char *name,
             struct ckpt_err *err)
{
    struct npy h;
    int rc = npy_header(&h, file, err);

    if (rc == 0)
        rc = check_elements(&h, err);
    if (rc == 0)
        rc = add(list, &h, file, name, err);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}

bool npy_is_ids(const unsigned char *head, size_t n)
{
    struct npy h;
    struct ckpt_err ignored = {0};
    size_t first = n > 6 && head[6] > 1 ? 12 : 10, len;

    if (n < 12 || memcmp(head, NPY_MAGIC, 6) != 0)
        return false;
    len = (size_t)head[8] | (size_t)head[9] << 8;       /* a longer header is not that of a list */
    return len <= n - first && npy_parse(&h, (const char *)head + first, len, &ignored) == 0 &&
           ckpt_dtype_class(h.dtype) == CKPT_CLASS_INT && h.dtype != CKPT_BOOL && !h.swapped &&
           !h.fortran && h.shape.rank >= 1 && h.shape.rank <= 2;
}

/* -- the format ------------------------------------------------------------------------------ */

struct arrays {
    struct ckpt_dir   *dir;             /* of an archive, or NULL */
    struct ckpt_file **file;
    size_t             n, cap;
};

static void close_arrays(void *self)
{
    struct arrays *a = self;

    for (size_t i = 0; i < a->n; i++)
        ckpt_file_close(a->file[i]);
    ckpt_free(a->file);
    ckpt_dir_close(a->dir);
    ckpt_free(a);
}

/* Tensors are read by their fragments. */
static const struct ckpt_source_ops ops = {.format = "numpy", .close = close_arrays};

/* The length of "NAME.npy" without the suffix, or 0. */
static size_t stem(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, ".npy") == 0 ? n - 4 : 0;
}

/* Whether an archive contains arrays and nothing else. */
static bool holds_arrays(struct ckpt_dir *dir, int depth)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    bool all = depth < MAX_FOLDERS && ckpt_dir_list(dir, &arena, &entry, &n, &ignored) == 0 && n;

    for (size_t i = 0; all && i < n; i++) {
        struct ckpt_dir *sub = NULL;

        all = entry[i].is_file ? stem(entry[i].name) > 0
                               : entry[i].is_dir &&
                                     ckpt_dir_open_at(&sub, dir, entry[i].name, &ignored) == 0 &&
                                     holds_arrays(sub, depth + 1);
        ckpt_dir_close(sub);
    }
    ckpt_arena_release(&arena);
    return all;
}

static int bid(const struct ckpt_place *p)
{
    if (p->file)
        return p->head_len >= 6 && memcmp(p->head, NPY_MAGIC, 6) == 0 ? 95 : 0;
    return p->packed && p->dir && holds_arrays(p->dir, 0) ? 60 : 0;
}

/* Takes file. */
static int keep(struct arrays *a, struct ckpt_file *file, struct ckpt_err *err)
{
    if (ckpt_reserve(&a->file, a->n, &a->cap, sizeof *a->file, err)) {
        ckpt_file_close(file);
        return CKPT_ENOMEM;
    }
    a->file[a->n++] = file;
    return 0;
}

/* Add the arrays in a folder of the archive; prefix ends in / or is empty. */
static int add_folder(struct arrays *a, struct ckpt_tensors *list, struct ckpt_dir *dir,
                      const char *prefix, int depth, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = depth < MAX_FOLDERS ? ckpt_dir_list(dir, &arena, &entry, &n, err)
                                 : ckpt_fail(err, CKPT_ELIMIT, "more than %d folders deep",
                                             MAX_FOLDERS);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *name = entry[i].name;
        struct ckpt_file *file;
        struct ckpt_dir *sub = NULL;
        char *full = entry[i].is_dir
                         ? ckpt_arena_printf(&arena, "%s%s/", prefix, name)
                         : ckpt_arena_printf(&arena, "%s%.*s", prefix, (int)stem(name), name);

        if (!full) {
            rc = ckpt_nomem(err, strlen(name));
        } else if (entry[i].is_dir) {
            rc = ckpt_dir_open_at(&sub, dir, name, err);
            if (rc == 0)
                rc = add_folder(a, list, sub, full, depth + 1, err);
            ckpt_dir_close(sub);
        } else {
            rc = ckpt_file_open_at(&file, dir, name, err);
            if (rc == 0)
                rc = keep(a, file, err);
            if (rc == 0)
                rc = npy_read(list, file, full, err);
        }
    }
    ckpt_arena_release(&arena);
    return rc;
}

static int add_file(struct arrays *a, struct ckpt_tensors *list, struct ckpt_file *file,
                    struct ckpt_err *err)
{
    const char *path = ckpt_file_name(file), *slash = strrchr(path, '/');
    char name[CKPT_MAX_NAME + 1];
    int rc;

    path = slash ? slash + 1 : path;
    snprintf(name, sizeof name, "%.*s", (int)(stem(path) ? stem(path) : strlen(path)), path);
    rc = keep(a, file, err);
    return rc ? rc : npy_read(list, file, name, err);
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct arrays *a = ckpt_alloc(1, sizeof *a);
    struct ckpt_tensors list = {0};
    int rc;

    (void)opts;
    *out = NULL;
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    place->took = true;
    if (place->file) {
        rc = add_file(a, &list, place->file, err);
    } else {
        a->dir = place->dir;
        rc = add_folder(a, &list, a->dir, "", 0, err);
    }
    if (rc) {
        close_arrays(a);
        ckpt_tensors_release(&list);
        return rc;
    }
    return ckpt_source_new(out, &ops, a, &list, NULL, 0, json_pack("{s:s}", "format", "numpy"),
                           err);
}

const struct ckpt_format ckpt_format_numpy = {
    .name = "numpy", .title = "numpy array or archive", .bid = bid, .open = open_source,
};
