/* npy - see npy.h. */
#include "formats/weights/npy.h"

#include <stdio.h>
#include <string.h>

#include "formats/place.h"
#include "libckpt/buf.h"

#define MAGIC       "\x93NUMPY"
#define MAX_HEADER  ((uint64_t)1 << 20) /* numpy's own limit is 10,000 */
#define MAX_FOLDERS 8

/* -- the header: a dictionary of literals ---------------------------------------------------- */

struct header {
    enum ckpt_dtype   dtype;
    bool              swapped, fortran;
    struct ckpt_shape shape;
    unsigned          seen;             /* a bit for each key */
};

struct text {
    const char *at, *end;
};

static void blanks(struct text *t)
{
    while (t->at < t->end && strchr(" \t\r\n", *t->at) && *t->at)
        t->at++;
}

static bool take(struct text *t, const char *word)
{
    size_t n = strlen(word);

    blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* A string without escapes, in either kind of quotes. */
static bool take_string(char *dst, size_t size, struct text *t)
{
    const char *stop;
    char quote;

    blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at++;
    stop = memchr(t->at, quote, (size_t)(t->end - t->at));
    if (!stop || (size_t)(stop - t->at) >= size || memchr(t->at, '\\', (size_t)(stop - t->at)))
        return false;
    memcpy(dst, t->at, (size_t)(stop - t->at));
    dst[stop - t->at] = '\0';
    t->at = stop + 1;
    return true;
}

/* Digits, and the L that Python 2 wrote. */
static bool take_number(int64_t *out, struct text *t)
{
    const char *begin;

    blanks(t);
    begin = t->at;
    for (*out = 0; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *t->at - '0', out))
            return false;
    if (t->at == begin)
        return false;
    if (t->at < t->end && *t->at == 'L')
        t->at++;
    return true;
}

static int take_shape(struct header *h, struct text *t, struct ckpt_err *err)
{
    bool good = take(t, "("), more = true;

    while (good && !take(t, ")")) {
        if (h->shape.rank == CKPT_MAX_RANK)
            return ckpt_fail(err, CKPT_ELIMIT, "more than %d axes", CKPT_MAX_RANK);
        good = more && take_number(&h->shape.dim[h->shape.rank++], t);
        more = take(t, ",");
    }
    return good ? 0 : ckpt_fail(err, CKPT_EFORMAT, "shape is no tuple of whole numbers");
}

static int take_descr(struct header *h, struct text *t, struct ckpt_err *err)
{
    static const struct { char kind, size; enum ckpt_dtype dtype; } kinds[] = {
        {'f', 2, CKPT_F16}, {'f', 4, CKPT_F32}, {'f', 8, CKPT_F64}, {'b', 1, CKPT_BOOL},
        {'i', 1, CKPT_I8},  {'i', 2, CKPT_I16}, {'i', 4, CKPT_I32}, {'i', 8, CKPT_I64},
        {'u', 1, CKPT_U8},  {'u', 2, CKPT_U16}, {'u', 4, CKPT_U32}, {'u', 8, CKPT_U64},
        {'c', 8, CKPT_C64}, {'c', 16, CKPT_C128},
    };
    char descr[64], shown[200];
    const char *s = descr;
    int size = 0, used = 0;

    if (take(t, "["))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "is an array of records, which is not read");
    if (!take_string(descr, sizeof descr, t))
        return ckpt_fail(err, CKPT_EFORMAT, "descr is no string");
    h->swapped = *s == '>';
    s += *s && strchr("<>|=", *s);
    if (*s == 'O')
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-global", "is an array of Python objects, "
                            "a pickle that numpy would execute");
    if (*s && sscanf(s + 1, "%3d%n", &size, &used) == 1 && s[1 + used] == '\0')
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (kinds[k].kind == *s && kinds[k].size == size)
                h->dtype = kinds[k].dtype;
    if (h->dtype != CKPT_DTYPE_NONE)
        return 0;
    ckpt_fail(err, CKPT_EUNSUPPORTED, "elements of %s are not read",
              ckpt_escape(shown, sizeof shown, descr, strlen(descr)));
    if (*s == 'V')
        ckpt_err_hint(err, "numpy forgets what bfloat16 and float8 are: save them as float32, or as "
                      "safetensors");
    return err->code;
}

/* One key and its value. */
static int take_entry(struct header *h, struct text *t, struct ckpt_err *err)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[64], shown[200];
    unsigned k = 0;

    if (!take_string(key, sizeof key, t) || !take(t, ":"))
        return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3 || h->seen >> k & 1)
        return ckpt_fail(err, CKPT_EFORMAT, "the header's key %s is %s",
                         ckpt_escape(shown, sizeof shown, key, strlen(key)),
                         k == 3 ? "not known" : "there twice");
    h->seen |= 1u << k;
    if (k == 0)
        return take_descr(h, t, err);
    if (k == 2)
        return take_shape(h, t, err);
    h->fortran = take(t, "True");
    return h->fortran || take(t, "False")
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "fortran_order is neither True nor False");
}

static int parse(struct header *h, const char *text, size_t n, struct ckpt_err *err)
{
    struct text t = {text, text + n};
    bool more = true;

    if (!take(&t, "{"))
        return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
    while (!take(&t, "}")) {
        if (!more)
            return ckpt_fail(err, CKPT_EFORMAT, "the header is no dictionary");
        if (take_entry(h, &t, err))
            return err->code;
        more = take(&t, ",");
    }
    blanks(&t);
    if (h->seen != 7 || t.at != t.end)
        return ckpt_fail(err, CKPT_EFORMAT, h->seen != 7
                         ? "the header lacks descr, fortran_order or shape"
                         : "more than a dictionary in the header");
    return 0;
}

/* -- the array ------------------------------------------------------------------------------- */

/* The header, and where the elements begin. */
static int read_header(struct header *h, uint64_t *data, struct ckpt_file *file,
                       struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file), n, first;
    struct ckpt_arena a = {0};
    unsigned char head[12] = {0};
    struct ckpt_cursor c;
    char *text;
    int rc;

    if (size < 10 ||
        ckpt_file_read_at(file, head, size < sizeof head ? (size_t)size : sizeof head, 0, err) ||
        memcmp(head, MAGIC, 6) != 0)
        return err->code ? err->code : ckpt_fail(err, CKPT_EFORMAT, "does not begin as an array");
    if (head[6] < 1 || head[6] > 3)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "version %u, 1 to 3 are read", head[6]);
    ckpt_cursor_init(&c, head + 8, 4);
    first = head[6] == 1 ? 10 : 12;
    n = head[6] == 1 ? ckpt_get_u16le(&c) : ckpt_get_u32le(&c);
    if (n > MAX_HEADER)
        return ckpt_fail(err, CKPT_ELIMIT, "a header of %llu bytes", (unsigned long long)n);
    if (first + n > size)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "a header of %llu bytes, the file has "
                            "%llu", (unsigned long long)n, (unsigned long long)size);
    text = ckpt_arena_alloc(&a, (size_t)n + 1, 1);
    rc = text ? ckpt_file_read_at(file, text, (size_t)n, first, err)
              : ckpt_nomem(err, (size_t)n + 1);
    if (rc == 0)
        rc = parse(h, text, (size_t)n, err);
    ckpt_arena_release(&a);
    *data = first + n;
    return rc;
}

/* Elements of which each axis is further apart than those before it. */
static int column_major(const int64_t **out, const struct ckpt_shape *s, struct ckpt_arena *a,
                        struct ckpt_err *err)
{
    int64_t *stride = ckpt_arena_alloc(a, CKPT_MAX_RANK, sizeof *stride), step = 1;

    if (!stride)
        return ckpt_nomem(err, CKPT_MAX_RANK * sizeof *stride);
    for (int k = 0; k < s->rank; k++) {
        stride[k] = step;
        step *= s->dim[k];              /* the product of all was checked */
    }
    *out = stride;
    return 0;
}

static int add(struct ckpt_tensors *list, const struct header *h, struct ckpt_file *file,
               uint64_t data, const char *name, struct ckpt_err *err)
{
    uint64_t bytes, left = ckpt_file_size(file) - data;
    struct ckpt_fragment *f = NULL;

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
        memcpy(f->box.count, h->shape.dim, (size_t)h->shape.rank * sizeof *h->shape.dim);
        f->file = file;
        f->offset = data;
        f->swapped = h->swapped && ckpt_dtype_size(h->dtype) > 1;
        if (h->fortran && h->shape.rank > 1 &&
            column_major(&f->stride, &h->shape, &list->arena, err))
            return err->code;
    }
    return ckpt_tensors_add(list, NULL, name, strlen(name), h->dtype, &h->shape, f, f != NULL,
                            false, err);
}

int npy_read(struct ckpt_tensors *list, struct ckpt_file *file, const char *name,
             struct ckpt_err *err)
{
    struct header h = {.dtype = CKPT_DTYPE_NONE};
    uint64_t data = 0;
    int rc = read_header(&h, &data, file, err);

    if (rc == 0)
        rc = add(list, &h, file, data, name, err);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}

bool npy_is_ids(const unsigned char *head, size_t n)
{
    struct header h = {.dtype = CKPT_DTYPE_NONE};
    struct ckpt_err ignored = {0};
    size_t first = n > 6 && head[6] > 1 ? 12 : 10, len;

    if (n < 12 || memcmp(head, MAGIC, 6) != 0)
        return false;
    len = (size_t)head[8] | (size_t)head[9] << 8;       /* one that is longer is none of a list */
    return len <= n - first && parse(&h, (const char *)head + first, len, &ignored) == 0 &&
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

/* Fragments do the work. */
static const struct ckpt_source_ops ops = {.format = "numpy", .close = close_arrays};

/* The length of "NAME.npy" without its end, or 0. */
static size_t stem(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, ".npy") == 0 ? n - 4 : 0;
}

/* Whether an archive holds arrays and nothing else. */
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
        return p->head_len >= 6 && memcmp(p->head, MAGIC, 6) == 0 ? 95 : 0;
    return p->packed && p->dir && holds_arrays(p->dir, 0) ? 60 : 0;
}

/* Takes file. */
static int keep(struct arrays *a, struct ckpt_file *file, struct ckpt_err *err)
{
    if (a->n == a->cap) {
        size_t cap = a->cap ? 2 * a->cap : 16;
        struct ckpt_file **more = ckpt_grow(a->file, cap, sizeof *more);

        if (!more) {
            ckpt_file_close(file);
            return ckpt_nomem(err, cap * sizeof *more);
        }
        a->file = more;
        a->cap = cap;
    }
    a->file[a->n++] = file;
    return 0;
}

/* The arrays of a folder of the archive; prefix ends in / or is empty. */
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

    path = slash ? slash + 1 : path;
    snprintf(name, sizeof name, "%.*s", (int)(stem(path) ? stem(path) : strlen(path)), path);
    return keep(a, file, err) ? err->code : npy_read(list, file, name, err);
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
