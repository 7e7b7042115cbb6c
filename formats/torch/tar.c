/* torch/tar - see torch/tar.h. */
#include "formats/torch/tar.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "libckpt/io/archive.h"
#include "libckpt/base/map.h"

#define FIRST_READ ((uint64_t)4096)
#define MAX_READ   ((uint64_t)64 << 20)
#define MAX_TENSOR (24 + 16 * CKPT_MAX_RANK)    /* bytes after a tensor's pickle, at most */

/* A key of the storages member: a storage, or a view of one. */
struct window { size_t storage; int64_t offset, numel; };

struct tar {
    struct ckpt_dir       *dir;
    struct ckpt_file      *member;      /* that is read */
    uint64_t               at;          /* in it */
    uint64_t               base;        /* offset of the archive in its descriptor */
    struct ckpt_arena     *arena;
    struct torch_storages *storages;
    struct value_seq       names;
    struct ckpt_map       *by_key;      /* -> window */
    struct window         *window;
    size_t                 n, cap;
};

bool torch_tar_is(const unsigned char *head, size_t n) { return ckpt_archive_is_tar(head, n); }

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "torch's tar: %s", what);
}

static int enter(struct tar *t, const char *name, struct ckpt_err *err)
{
    ckpt_file_close(t->member);
    t->member = NULL;
    t->at = 0;
    return ckpt_file_open_at(&t->member, t->dir, name, err);
}

/* Read the next pickle of the member; its length is known after running it. */
static int next_pickle(struct tar *t, struct value **v, struct ckpt_err *err)
{
    uint64_t left = ckpt_file_size(t->member) - t->at, n = FIRST_READ;
    size_t names = t->names.n;

    for (;; n *= 16) {
        struct ckpt_arena scratch = {0};
        struct ckpt_cursor c;
        unsigned char *bytes;
        int rc;

        n = n < left ? n : left;
        bytes = ckpt_arena_alloc(&scratch, (size_t)n + 1, 1);
        rc = bytes ? ckpt_file_read_at(t->member, bytes, (size_t)n, t->at, err)
                   : ckpt_nomem(err, (size_t)n);
        ckpt_cursor_init(&c, bytes, (size_t)n);
        t->names.n = names;
        if (rc == 0)
            rc = pickle_read(v, &c, t->arena, &t->names, err);
        ckpt_arena_release(&scratch);
        if (rc && bytes && c.failed && n < left && n < MAX_READ) {
            ckpt_err_clear(err);
            continue;
        }
        t->at += c.pos;
        return rc;
    }
}

static int next_count(struct tar *t, int64_t *n, struct ckpt_err *err)
{
    struct value *v;
    int rc;

    if ((rc = next_pickle(t, &v, err)) != 0)
        return rc;
    return value_as_int(v, n) && *n >= 0 && (uint64_t)*n <= ckpt_file_size(t->member)
               ? 0 : bad(err, "a number of storages or tensors is none");
}

/* Item i of n. */
static const struct value *item(const struct value *v, size_t i, size_t n)
{
    return value_count(v) == n ? value_item(v, i) : NULL;
}

/* A key as text, in the arena. */
static char *key_of(struct tar *t, const struct value *v)
{
    int64_t key;

    return value_as_int(v, &key) ? ckpt_arena_printf(t->arena, "%lld", (long long)key) : NULL;
}

static int add_window(struct tar *t, const char *key, struct window w, struct ckpt_err *err)
{
    if (ckpt_reserve(&t->window, t->n, &t->cap, sizeof *t->window, err))
        return CKPT_ENOMEM;
    t->window[t->n] = w;
    return ckpt_map_add(t->by_key, key, strlen(key), t->n++, err);
}

static const struct window *find_window(const struct tar *t, const char *key)
{
    size_t i = key ? ckpt_map_get(t->by_key, key, strlen(key)) : CKPT_MAP_NONE;

    return i == CKPT_MAP_NONE ? NULL : &t->window[i];
}

static int read_storage(struct tar *t, struct ckpt_err *err)
{
    enum ckpt_dtype dtype;
    unsigned char raw[8];
    struct ckpt_cursor c;
    struct value *v;
    uint64_t numel, bytes, base;
    struct window w = {0};
    char *key;
    int rc;

    if ((rc = next_pickle(t, &v, err)) != 0 ||
        (rc = ckpt_file_read_at(t->member, raw, sizeof raw, t->at, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, sizeof raw);
    numel = ckpt_cursor_u64le(&c);
    t->at += sizeof raw;
    key = key_of(t, item(v, 0, 3));
    dtype = torch_storage_dtype(item(v, 2, 3));
    if (!key || dtype == CKPT_DTYPE_NONE)
        return bad(err, "a storage has no key, or is of an unknown class");
    if (numel > INT64_MAX || !ckpt_mul(&bytes, numel, ckpt_dtype_size(dtype)) ||
        bytes > ckpt_file_size(t->member) - t->at)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "storage %s: %llu elements of %s pass the end of its member", key,
                            (unsigned long long)numel, ckpt_dtype_name(dtype));
    w.numel = (int64_t)numel;
    if ((rc = torch_storages_add(t->storages, &w.storage, key, dtype, w.numel, err)) != 0)
        return rc;
    (void)ckpt_file_fd(t->member, &base);
    t->storages->item[w.storage].offset = base - t->base + t->at;
    t->at += bytes;
    return add_window(t, key, w, err);
}

static int read_views(struct tar *t, struct ckpt_err *err)
{
    struct value *list;
    int rc;

    if ((rc = next_pickle(t, &list, err)) != 0)
        return rc;
    if (!value_is(list, VALUE_LIST))
        return bad(err, "no list of views after the storages");
    for (size_t i = 0; i < list->u.seq.n; i++) {
        const struct value *v = list->u.seq.item[i];
        const struct window *root = find_window(t, key_of(t, item(v, 1, 4)));
        char *key = key_of(t, item(v, 0, 4));
        int64_t offset, numel;
        struct window w;

        if (!key || !root || !value_as_int(item(v, 2, 4), &offset) ||
            !value_as_int(item(v, 3, 4), &numel) || offset < 0 || numel < 0 ||
            offset > root->numel || numel > root->numel - offset)
            return bad(err, "a view does not lie in its storage");
        w = (struct window){root->storage, root->offset + offset, numel};
        if ((rc = add_window(t, key, w, err)) != 0)
            return rc;
    }
    return 0;
}

static int read_tensor(struct tar *t, struct ckpt_err *err)
{
    struct value_tensor *tensor = ckpt_arena_alloc(t->arena, 1, sizeof *tensor);
    uint64_t left = ckpt_file_size(t->member);
    unsigned char raw[MAX_TENSOR];
    const struct window *w;
    struct ckpt_cursor c;
    struct value *v;
    uint32_t rank;
    char *key;
    int rc;

    if (!tensor)
        return ckpt_nomem(err, sizeof *tensor);
    if ((rc = next_pickle(t, &v, err)) != 0)
        return rc;
    left -= t->at;
    left = left < sizeof raw ? left : sizeof raw;
    if ((rc = ckpt_file_read_at(t->member, raw, (size_t)left, t->at, err)) != 0)
        return rc;
    ckpt_cursor_init(&c, raw, (size_t)left);
    rank = ckpt_cursor_u32le(&c);
    ckpt_cursor_skip(&c, 4);
    if (rank > CKPT_MAX_RANK)
        return ckpt_fail(err, CKPT_ELIMIT, "a tensor of %u axes, %d at most", rank, CKPT_MAX_RANK);
    tensor->shape.rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++)
        tensor->shape.dim[i] = (int64_t)ckpt_cursor_u64le(&c);
    for (uint32_t i = 0; i < rank; i++)
        tensor->stride[i] = (int64_t)ckpt_cursor_u64le(&c);
    tensor->offset = (int64_t)ckpt_cursor_u64le(&c);
    key = key_of(t, item(v, 0, 3));
    w = find_window(t, key_of(t, item(v, 1, 3)));
    if (c.failed || !key || !w || tensor->offset < 0)
        return bad(err, "a tensor has no key or no storage, or ends early");
    for (uint32_t i = 0; i < rank; i++)
        if (tensor->shape.dim[i] < 0 || tensor->stride[i] < 0)
            return bad(err, "a tensor's size or stride is below 0");
    t->at += c.pos;
    tensor->storage = w->storage;
    tensor->dtype = t->storages->item[w->storage].dtype;
    if ((rc = torch_storages_fit(t->storages, tensor, w->numel, err)) != 0)
        return rc;
    tensor->offset += w->offset;  /* cannot overflow: both below 2^63, the sum inside the storage */
    return torch_storages_name(t->storages, key, tensor, err);
}

/* Check that the member was read to its end. */
static int leave(const struct tar *t, const char *what, struct ckpt_err *err)
{
    return t->at == ckpt_file_size(t->member)
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "torch's tar: bytes after the %s", what);
}

/* Read a member that is a number, and that many items read by `one`. */
static int read_member(struct tar *t, const char *name,
                       int (*one)(struct tar *t, struct ckpt_err *err), struct ckpt_err *err)
{
    int64_t n = 0;
    int rc;

    if ((rc = enter(t, name, err)) != 0 || (rc = next_count(t, &n, err)) != 0)
        return rc;
    for (int64_t i = 0; rc == 0 && i < n; i++)
        rc = one(t, err);
    return rc;
}

/* Read all members, in the order of their references. */
static int read_members(struct tar *t, struct value **root, struct ckpt_err *err)
{
    int rc;

    if ((rc = read_member(t, "storages", read_storage, err)) != 0 ||
        (rc = read_views(t, err)) != 0 || (rc = leave(t, "storages", err)) != 0 ||
        (rc = read_member(t, "tensors", read_tensor, err)) != 0 ||
        (rc = leave(t, "tensors", err)) != 0 || (rc = enter(t, "pickle", err)) != 0 ||
        (rc = next_pickle(t, root, err)) != 0)
        return rc;
    return leave(t, "object", err);
}

int torch_tar_read(struct value **root, struct torch_storages *storages, struct ckpt_file *file,
                   struct ckpt_arena *arena, bool strict, struct ckpt_err *err)
{
    struct tar t = {.arena = arena, .storages = storages};
    struct ckpt_file *window;
    int rc = ckpt_file_window(&window, file, 0, ckpt_file_size(file), ckpt_file_name(file), err);
    int refused;

    arena->limit = ((uint64_t)16 << 20) + 256 * ckpt_file_size(file);
    (void)ckpt_file_fd(file, &t.base);
    if (rc == 0)
        rc = ckpt_archive_open(&t.dir, window, NULL, err);
    if (rc == 0)
        rc = ckpt_map_new(&t.by_key, 64, err);
    if (rc == 0)
        rc = read_members(&t, root, err);
    refused = strict ? torch_names_check(&t.names, rc != 0, err) : 0;
    rc = refused ? refused : rc;
    if (rc == 0)
        rc = torch_value_resolve(*root, storages, arena, strict, err);
    ckpt_map_free(t.by_key);
    ckpt_free(t.window);
    ckpt_file_close(t.member);
    ckpt_dir_close(t.dir);
    return rc;
}
