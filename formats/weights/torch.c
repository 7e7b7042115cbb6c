/* torch - see torch.h. */
#include "formats/weights/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/pickle.h"
#include "formats/container/zip.h"
#include "formats/weights/torch_sink.h"
#include "formats/weights/torch_value.h"
#include "libckpt/buf.h"
#include "libckpt/map.h"

#define MAX_PICKLE ((uint64_t)256 << 20)

struct torch_archive {
    struct ckpt_file      *file;
    struct zip             zip;
    struct ckpt_arena      arena;       /* of the values */
    struct value          *root;
    struct torch_storages  storages;
    bool                   big_endian;
};

void torch_archive_close(struct torch_archive *a)
{
    if (!a)
        return;
    torch_storages_release(&a->storages);
    zip_release(&a->zip);
    ckpt_arena_release(&a->arena);
    ckpt_file_close(a->file);
    ckpt_free(a);
}

const struct value *torch_archive_root(const struct torch_archive *a) { return a->root; }
struct ckpt_file *torch_archive_file(const struct torch_archive *a) { return a->file; }
bool torch_archive_big_endian(const struct torch_archive *a) { return a->big_endian; }

size_t torch_archive_storages(const struct torch_archive *a, const struct torch_storage **out)
{
    *out = a->storages.item;
    return a->storages.n;
}

/* A small text member, or "" when it is absent. */
static int small(struct torch_archive *a, const char *name, char **out, struct ckpt_err *err)
{
    static char none[1];
    const struct zip_entry *e = zip_find(&a->zip, name);

    *out = none;
    return e ? zip_slurp(&a->zip, e, &a->arena, 64, out, err) : 0;
}

static int read_facts(struct torch_archive *a, struct ckpt_err *err)
{
    char *version, *order, *end;
    long n;

    if (zip_find(&a->zip, "constants.pkl") || zip_find(&a->zip, "code/"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a TorchScript archive, which holds code");
    if (small(a, zip_find(&a->zip, "version") ? "version" : ".data/version", &version, err) ||
        small(a, "byteorder", &order, err))
        return err->code;
    if (!*version)
        return ckpt_fail(err, CKPT_EFORMAT, "no version member: not what torch writes");
    n = strtol(version, &end, 10);
    if (end == version || (*end && *end != '\n') || n < 1 || n > 10)
        return ckpt_fail(err, CKPT_EFORMAT, "version is \"%.20s\", 1 to 10 wanted", version);
    if (*order && strcmp(order, "little") != 0 && strcmp(order, "big") != 0)
        return ckpt_fail(err, CKPT_EFORMAT, "byteorder is \"%s\", little or big wanted", order);
    a->big_endian = strcmp(order, "big") == 0;
    return 0;
}

/* Where each storage lies, and that its record has the size the pickle says. */
static int place_storages(struct torch_archive *a, struct ckpt_err *err)
{
    for (size_t i = 0; i < a->storages.n; i++) {
        struct torch_storage *s = &a->storages.item[i];
        const struct zip_entry *e;
        uint64_t bytes;
        char name[80];

        snprintf(name, sizeof name, "data/%s", s->key);
        e = zip_find(&a->zip, name);
        if (!e)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "storage %s: no record %s", s->key,
                                name);
        if (!ckpt_mul(&bytes, (uint64_t)s->numel, ckpt_dtype_size(s->dtype)) || bytes != e->size)
            return ckpt_fail(err, CKPT_EFORMAT,
                             "storage %s: the pickle says %lld elements of %s, its record has %llu "
                             "bytes", s->key, (long long)s->numel, ckpt_dtype_name(s->dtype),
                             (unsigned long long)e->size);
        s->offset = e->offset;
    }
    return 0;
}

static int open_archive(struct torch_archive *a, bool strict, struct ckpt_err *err)
{
    const struct zip_entry *e;
    struct value_seq names = {0};
    struct ckpt_cursor c;
    char *pickle;
    int rc;

    if (zip_open(&a->zip, a->file, err) || read_facts(a, err))
        return err->code;
    e = zip_find(&a->zip, "data.pkl");
    if (!e)
        return ckpt_fail(err, CKPT_EFORMAT, "no data.pkl: not what torch writes");
    if (zip_slurp(&a->zip, e, &a->arena, MAX_PICKLE, &pickle, err))
        return err->code;
    ckpt_cursor_init(&c, pickle, (size_t)e->size);
    rc = pickle_read(&a->root, &c, &a->arena, &names, err);
    if (strict && torch_names_check(&names, rc != 0, err))
        return err->code;
    if (rc)
        return rc;
    if (ckpt_cursor_left(&c) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "trailing", "data.pkl: %zu bytes behind the pickle",
                            ckpt_cursor_left(&c));
    if (torch_value_resolve(a->root, &a->storages, &a->arena, strict, err))
        return err->code;
    return place_storages(a, err);
}

static int open_as(struct torch_archive **out, struct ckpt_file *file, bool strict,
                   struct ckpt_err *err)
{
    struct torch_archive *a = ckpt_alloc(1, sizeof *a);

    *out = NULL;
    if (!a) {
        ckpt_file_close(file);
        return ckpt_nomem(err, sizeof *a);
    }
    a->file = file;
    a->arena.limit = (uint64_t)4 << 30;
    if (open_archive(a, strict, err)) {
        ckpt_err_in(err, "%s", ckpt_file_name(file));
        torch_archive_close(a);
        return err->code;
    }
    *out = a;
    return 0;
}

int torch_archive_open(struct torch_archive **out, struct ckpt_file *file, struct ckpt_err *err)
{
    return open_as(out, file, true, err);
}

int torch_archive_open_any(struct torch_archive **out, struct ckpt_file *file,
                           struct ckpt_err *err)
{
    return open_as(out, file, false, err);
}

static bool contiguous(const struct value_tensor *t)
{
    int64_t want = 1;

    for (int i = t->shape.rank; i-- > 0;) {
        if (t->shape.dim[i] != 1 && t->stride[i] != want)
            return false;
        want *= t->shape.dim[i];
    }
    return true;
}

int torch_archive_fragment(struct ckpt_fragment **out, struct ckpt_arena *arena,
                           const struct torch_archive *a, const struct value_tensor *t,
                           struct ckpt_err *err)
{
    const struct torch_storage *s = &a->storages.item[t->storage];
    struct ckpt_fragment *f = ckpt_arena_alloc(arena, 1, sizeof *f);
    int64_t *stride;

    *out = f;
    if (!f)
        return ckpt_nomem(err, sizeof *f);
    memcpy(f->box.count, t->shape.dim, (size_t)t->shape.rank * sizeof *t->shape.dim);
    f->file = a->file;
    f->offset = s->offset + (uint64_t)t->offset * ckpt_dtype_size(t->dtype);
    f->swapped = a->big_endian && ckpt_dtype_size(t->dtype) > 1;
    if (contiguous(t))
        return 0;
    stride = ckpt_arena_alloc(arena, CKPT_MAX_RANK, sizeof *stride);
    if (!stride)
        return ckpt_nomem(err, CKPT_MAX_RANK * sizeof *stride);
    memcpy(stride, t->stride, sizeof t->stride);
    f->stride = stride;
    return 0;
}

/* -- the format row -------------------------------------------------------------------------- */

/* A value to visit, and the path that leads to it. */
struct visit {
    const struct value *v;
    const char         *path;
};

struct lister {
    struct torch_archive *a;
    struct ckpt_tensors  *list;
    struct visit         *stack;
    size_t                n, cap;
    struct ckpt_map      *seen;         /* storage, offset, shape -> index: tied tensors */
    struct ckpt_err      *err;
};

static int push_visit(struct lister *l, const struct value *v, const char *path)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        void *grown = ckpt_grow(l->stack, cap, sizeof *l->stack);

        if (!grown)
            return ckpt_nomem(l->err, cap * sizeof *l->stack);
        l->stack = grown;
        l->cap = cap;
    }
    l->stack[l->n++] = (struct visit){v, path};
    return 0;
}

/* path.key, or path.i; keys that are numbers are spelt in digits. */
static char *join(struct lister *l, const char *path, const struct value *key, size_t i)
{
    struct ckpt_arena *a = &l->list->arena;
    const char *dot = *path ? "." : "", *k = value_as_str(key);
    int64_t n = (int64_t)i;

    if (k)
        return ckpt_arena_printf(a, "%s%s%s", path, dot, k);
    if (key && !value_as_int(key, &n))
        n = (int64_t)i;
    return ckpt_arena_printf(a, "%s%s%lld", path, dot, (long long)n);
}

static int add_tensor(struct lister *l, const struct value_tensor *t, const char *path)
{
    struct ckpt_tensor *added;
    struct ckpt_fragment *f = NULL;
    size_t before;
    int64_t numel;
    char *key;

    if (!*path)
        path = "tensor";
    ckpt_shape_numel(&numel, &t->shape);
    if (numel > 0 && torch_archive_fragment(&f, &l->list->arena, l->a, t, l->err))
        return l->err->code;
    if (ckpt_tensors_add(l->list, &added, path, strlen(path), t->dtype, &t->shape, f, f != NULL,
                         false, l->err))
        return l->err->code;
    if (numel == 0)
        return 0;
    key = ckpt_arena_alloc(&l->list->arena, sizeof *t, 1);
    if (!key)
        return ckpt_nomem(l->err, sizeof *t);
    /* Two windows that are the same bytes of the same storage are one tensor. */
    struct value_tensor same = *t;
    same.requires_grad = same.parameter = false;
    memcpy(key, &same, sizeof same);
    before = ckpt_map_get(l->seen, key, sizeof same);
    if (before != CKPT_MAP_NONE) {
        added->alias_of = before;
        return 0;
    }
    return ckpt_map_add(l->seen, key, sizeof same, l->list->n - 1, l->err);
}

static int visit(struct lister *l, struct visit x)
{
    const struct value *v = x.v;

    if (value_is(v, VALUE_TENSOR))
        return add_tensor(l, v->u.tensor, x.path);
    if (value_is(v, VALUE_DICT)) {
        for (size_t i = v->u.dict.n; i-- > 0;)
            if (v->u.dict.val[i]->mark != 2 &&
                push_visit(l, v->u.dict.val[i], join(l, x.path, v->u.dict.key[i], i)))
                return l->err->code;
    } else if (value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE)) {
        for (size_t i = v->u.seq.n; i-- > 0;)
            if (push_visit(l, v->u.seq.item[i], join(l, x.path, NULL, i)))
                return l->err->code;
    }
    return 0;
}

/* Containers are visited once: a second mark tells those seen. */
static int list_all(struct lister *l, const struct value *root, const char *path)
{
    int rc = push_visit(l, root, path);

    while (rc == 0 && l->n > 0) {
        struct visit x = l->stack[--l->n];

        if (!x.path)
            return ckpt_nomem(l->err, 64);
        if (x.v->kind != VALUE_TENSOR && x.v->mark == 2)
            continue;
        if (x.v->kind != VALUE_TENSOR)
            ((struct value *)x.v)->mark = 2;
        rc = visit(l, x);
    }
    return rc;
}

/* The state dict inside {"model": ...} and the like, or NULL. */
static const struct value *unwrap(const struct value *root)
{
    static const char *const wrappers[] = {"model", "state_dict", "module"};

    for (size_t i = 0; i < 3; i++) {
        const struct value *v = value_get(root, wrappers[i]);

        for (size_t k = 0; value_is(v, VALUE_DICT) && k < v->u.dict.n; k++)
            if (value_is(v->u.dict.val[k], VALUE_TENSOR))
                return v;
    }
    return NULL;
}

static int list_tensors(struct torch_archive *a, struct ckpt_tensors *list, struct ckpt_err *err)
{
    struct lister l = {.a = a, .list = list, .err = err};
    const struct value *inner = unwrap(a->root);
    int rc = ckpt_map_new(&l.seen, 64, err);
    size_t n;

    if (rc == 0 && inner)
        rc = list_all(&l, inner, "");
    n = list->n;
    if (rc == 0)
        rc = list_all(&l, a->root, "");
    for (size_t i = inner ? n : list->n; rc == 0 && i < list->n; i++)
        list->item[i].kind = CKPT_OTHER;
    ckpt_map_free(l.seen);
    ckpt_free(l.stack);
    return rc;
}

static int bid(const struct ckpt_place *p)
{
    static const unsigned char legacy[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46};

    if (!p->file || p->head_len < 30)
        return 0;
    if (memcmp(p->head, "PK\3\4", 4) == 0)
        return 80;
    if (memcmp(p->head, legacy, sizeof legacy) == 0)
        return 80;
    return p->head_len > 262 && memcmp(p->head + 257, "ustar", 5) == 0 ? 40 : 0;
}

static void close_source(void *self) { torch_archive_close(self); }

static const struct ckpt_source_ops ops = {.format = "torch", .close = close_source};

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct torch_archive *a;
    json_t *info;

    (void)opts;
    *out = NULL;
    if (!place->file)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is a directory, one torch file wanted",
                         place->path);
    if (place->head_len >= 4 && memcmp(place->head, "PK\3\4", 4) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "%s: not a zip archive: torch's formats before 1.6 are not read",
                         place->path);
    place->took = true;
    if (torch_archive_open(&a, place->file, err))
        return err->code;
    if (list_tensors(a, &list, err)) {
        ckpt_err_in(err, "%s", place->path);
        ckpt_tensors_release(&list);
        torch_archive_close(a);
        return err->code;
    }
    info = json_pack("{s:s,s:o}", "format", "torch", "value", value_to_json(a->root, 10000));
    return ckpt_source_new(out, &ops, a, &list, NULL, 0, info, err);
}

const struct ckpt_format ckpt_format_torch = {
    .name = "torch", .title = "torch archive", .bid = bid, .open = open_source,
    .create = torch_create,
};
