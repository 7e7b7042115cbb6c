/* dcp/meta - see dcp/meta.h. */
#include "formats/dcp/meta.h"

#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "formats/torch/value.h"

#define MAX_BYTES ((uint64_t)512 << 20)

/* Memory for values, by the pickle's size: as for the pickle of a torch archive. */
#define VALUE_BYTES_MIN ((uint64_t)16 << 20)
#define VALUE_BYTES_PER 256

struct reader {
    struct dcp_meta    *m;
    struct ckpt_map    *index;      /* key of an item -> index in storage_data */
    const struct value *storage;    /* its dictionary */
    size_t              n_before;   /* entries of earlier files */
    struct ckpt_err    *err;
};

static int bad(struct reader *r, const char *what)
{
    return ckpt_fail(r->err, CKPT_EFORMAT, "%s", what);
}

void dcp_meta_release(struct dcp_meta *m)
{
    ckpt_map_free(m->by_name);
    ckpt_free(m->entry);
    ckpt_arena_release(&m->arena);
    memset(m, 0, sizeof *m);
}

static bool is_object(const struct value *v, const char *name)
{
    return value_is(v, VALUE_OBJECT) && strcmp(v->u.obj.name, name) == 0;
}

/* *n becomes the length. */
static int read_numbers(struct reader *r, int64_t out[CKPT_MAX_RANK], int *n,
                        const struct value *v, const char *what)
{
    *n = value_dims(v, out, CKPT_MAX_RANK);
    if (*n == VALUE_MANY_DIMS)
        return ckpt_fail(r->err, CKPT_ELIMIT, "%s has more than %d axes", what, CKPT_MAX_RANK);
    return *n < 0 ? ckpt_fail(r->err, CKPT_EFORMAT, "%s is no tuple of numbers >= 0", what) : 0;
}

/* -- where items lie ------------------------------------------------------------------------- */

/* The key of an item: its name, and for a tensor's box the offsets after a NUL. */
static char *item_key(struct ckpt_arena *a, size_t *len, const char *fqn, const int64_t *offset,
                      int n)
{
    size_t name = strlen(fqn), numbers = offset ? (size_t)n * sizeof *offset : 0;
    char *key = ckpt_arena_alloc(a, name + 1 + numbers, 1);

    if (!key)
        return NULL;
    memcpy(key, fqn, name);
    if (numbers)
        memcpy(key + name + 1, offset, numbers);
    *len = name + (offset ? 1 : 0) + numbers;
    return key;
}

/* Index {MetadataIndex: _StorageInfo} by key. */
static int index_storage(struct reader *r)
{
    const struct value_pairs *d = &r->storage->u.dict;
    int rc;

    if ((rc = ckpt_map_new(&r->index, d->n, r->err)) != 0)
        return rc;
    for (size_t i = 0; i < d->n; i++) {
        const struct value *state = is_object(d->key[i], "MetadataIndex")
                                        ? d->key[i]->u.obj.state : NULL;
        const char *fqn = value_as_str(value_get(state, "fqn"));
        const struct value *at = value_get(state, "offset");
        int64_t offset[CKPT_MAX_RANK];
        bool box = at && !value_is(at, VALUE_NONE);
        size_t len;
        char *key;
        int n = 0;

        if (!fqn)
            return bad(r, "storage_data: a key is no MetadataIndex with a name");
        if (box && read_numbers(r, offset, &n, at, "storage_data: an offset"))
            return ckpt_err_in(r->err, "%s", fqn);
        key = item_key(&r->m->arena, &len, fqn, box ? offset : NULL, n);
        if (!key)
            return ckpt_nomem(r->err, strlen(fqn));
        if ((rc = ckpt_map_add(r->index, key, len, i, r->err)) != 0)
            return rc == CKPT_EFORMAT
                       ? ckpt_fail_as(r->err, CKPT_EFORMAT, "ambiguous",
                                      "storage_data: %s is placed twice", fqn) : rc;
    }
    return 0;
}

static int read_place(struct reader *r, struct dcp_place *p, const struct value *info)
{
    const struct value *state = is_object(info, "_StorageInfo") ? info->u.obj.state : NULL;
    const struct value *how = value_get(state, "transform_descriptors");
    int64_t offset, length;

    p->file = value_as_str(value_get(state, "relative_path"));
    if (!p->file || !value_as_int(value_get(state, "offset"), &offset) || offset < 0 ||
        !value_as_int(value_get(state, "length"), &length) || length < 0)
        return bad(r, "storage_data: no _StorageInfo with a path, an offset and a length");
    if (!ckpt_file_path_is_clean(p->file))
        return ckpt_fail_as(r->err, CKPT_EREFUSED, "refused-path",
                            "storage_data: %s is no clean relative path", p->file);
    if (how && !value_is(how, VALUE_NONE) && !(value_is(how, VALUE_LIST) && how->u.seq.n == 0))
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "stored through a transform, which is not "
                         "read");
    p->offset = (uint64_t)offset;
    p->length = (uint64_t)length;
    return 0;
}

/* Find the place of an item; for a tensor of one box, an entry without offsets will do. */
static int find_place(struct reader *r, struct dcp_place *p, const char *fqn,
                      const int64_t *offset, int n, bool whole)
{
    size_t len, i = CKPT_MAP_NONE;
    char *key = item_key(&r->m->arena, &len, fqn, offset, n);

    if (!key)
        return ckpt_nomem(r->err, strlen(fqn));
    i = ckpt_map_get(r->index, key, len);
    if (i == CKPT_MAP_NONE && whole)
        i = ckpt_map_get(r->index, fqn, strlen(fqn));
    if (i == CKPT_MAP_NONE)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "missing",
                            "storage_data has no place for %s", offset ? "one of its boxes"
                                                                       : "its bytes");
    return read_place(r, p, r->storage->u.dict.val[i]);
}

/* -- entries --------------------------------------------------------------------------------- */

/* The dtype: the first of the properties, or the one of that name. */
static enum ckpt_dtype read_dtype(const struct value *properties)
{
    const struct value *s = is_object(properties, "TensorProperties") ? properties->u.obj.state
                                                                      : NULL;

    s = value_is(s, VALUE_TUPLE) ? value_item(s, 0) : value_get(s, "dtype");
    return value_is(s, VALUE_GLOBAL) && strcmp(s->u.obj.module, "torch") == 0
               ? ckpt_dtype_parse(s->u.obj.name) : CKPT_DTYPE_NONE;
}

static bool has_chunk(const struct dcp_entry *e, const int64_t *start)
{
    for (size_t i = 0; i < e->n_chunk; i++)
        if (memcmp(e->chunk[i].start, start, (size_t)e->shape.rank * sizeof *start) == 0)
            return true;
    return false;
}

/* Add one box: inside the tensor, and with a place.  known: an earlier file had some boxes. */
static int add_chunk(struct reader *r, struct dcp_entry *e, const struct value *v, bool known,
                     bool whole)
{
    const struct value *state = is_object(v, "ChunkStorageMetadata") ? v->u.obj.state : NULL;
    int64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK], *kept;
    struct dcp_chunk *c = &e->chunk[e->n_chunk];
    size_t bytes = (size_t)e->shape.rank * sizeof *kept;
    bool empty = false;
    int n_start, n_count;
    int rc;

    if ((rc = read_numbers(r, start, &n_start, value_get(state, "offsets"),
                           "a box's offsets")) != 0 ||
        (rc = read_numbers(r, count, &n_count, value_get(state, "sizes"),
                           "a box's sizes")) != 0)
        return rc;
    if (n_start != e->shape.rank || n_count != e->shape.rank)
        return bad(r, "a box has other axes than its tensor");
    for (int d = 0; d < e->shape.rank; d++) {
        if (start[d] > e->shape.dim[d] || count[d] > e->shape.dim[d] - start[d])
            return ckpt_fail_as(r->err, CKPT_EFORMAT, "bounds",
                                "a box covers [%lld, +%lld) of axis %d, which has %lld",
                                (long long)start[d], (long long)count[d], d,
                                (long long)e->shape.dim[d]);
        empty = empty || count[d] == 0;
    }
    if (empty || (known && has_chunk(e, start)))
        return 0;
    if ((rc = find_place(r, &c->place, e->fqn, start, e->shape.rank, whole)) != 0)
        return rc;
    kept = ckpt_arena_alloc(&r->m->arena, 2, bytes ? bytes : 1);
    if (!kept)
        return ckpt_nomem(r->err, 2 * bytes);
    memcpy(kept, start, bytes);
    memcpy(kept + e->shape.rank, count, bytes);
    c->start = kept;
    c->count = kept + e->shape.rank;
    e->n_chunk++;
    return 0;
}

static int read_tensor(struct reader *r, struct dcp_entry *e, const struct value *v, bool known)
{
    const struct value *state = v->u.obj.state, *chunks = value_get(state, "chunks");
    enum ckpt_dtype dtype = read_dtype(value_get(state, "properties"));
    struct dcp_chunk *all;
    struct ckpt_shape s = {0};
    int rc;

    if (dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(r->err, CKPT_EUNSUPPORTED, "of no known dtype");
    if ((rc = read_numbers(r, s.dim, &s.rank, value_get(state, "size"), "its size")) != 0)
        return rc;
    if (!value_is(chunks, VALUE_LIST))
        return bad(r, "its chunks are no list");
    if (known && (e->bytes || dtype != e->dtype || !ckpt_shape_equal(&s, &e->shape)))
        return bad(r, "another rank says another size or dtype");
    e->dtype = dtype;
    e->shape = s;
    all = ckpt_arena_alloc(&r->m->arena, e->n_chunk + chunks->u.seq.n, sizeof *all);
    if (!all)
        return ckpt_nomem(r->err, chunks->u.seq.n * sizeof *all);
    if (e->n_chunk)
        memcpy(all, e->chunk, e->n_chunk * sizeof *all);
    e->chunk = all;
    for (size_t i = 0; i < chunks->u.seq.n; i++)
        if ((rc = add_chunk(r, e, chunks->u.seq.item[i], known, chunks->u.seq.n == 1)) != 0)
            return rc;
    return 0;
}

/* The entry of that name, created when it is new. */
static int entry_of(struct reader *r, struct dcp_entry **out, const char *fqn, bool *known)
{
    struct dcp_meta *m = r->m;
    size_t i = ckpt_map_get(m->by_name, fqn, strlen(fqn));
    const char **part;

    *known = i != CKPT_MAP_NONE;
    if (*known && i >= r->n_before)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "duplicate",
                            "state_dict_metadata: %s appears twice", fqn);
    if (*known) {
        *out = &m->entry[i];
        return 0;
    }
    if (ckpt_reserve(&m->entry, m->n, &m->cap, sizeof *m->entry, r->err))
        return CKPT_ENOMEM;
    part = ckpt_arena_alloc(&m->arena, 1, sizeof *part);
    if (!part)
        return ckpt_nomem(r->err, sizeof *part);
    part[0] = fqn;
    m->entry[m->n] = (struct dcp_entry){.fqn = fqn, .part = part, .n_part = 1};
    *out = &m->entry[m->n];
    return ckpt_map_add(m->by_name, fqn, strlen(fqn), m->n++, r->err);
}

static int read_entries(struct reader *r, const struct value *dict)
{
    for (size_t i = 0; i < dict->u.dict.n; i++) {
        const char *fqn = value_as_str(dict->u.dict.key[i]);
        const struct value *v = dict->u.dict.val[i];
        struct dcp_entry *e = NULL;
        bool known;
        int rc;

        if (!fqn)
            return bad(r, "state_dict_metadata: a key is no text");
        if ((rc = entry_of(r, &e, fqn, &known)) != 0)
            return rc;
        if (is_object(v, "TensorStorageMetadata")) {
            rc = read_tensor(r, e, v, known);
        } else if (is_object(v, "BytesStorageMetadata")) {
            if (known && !e->bytes)
                return ckpt_fail(r->err, CKPT_EFORMAT, "%s: a tensor for one rank and a value "
                                 "for another", fqn);
            e->bytes = true;
            rc = known ? 0 : find_place(r, &e->place, fqn, NULL, 0, false);
        } else {
            rc = bad(r, "neither a tensor's metadata nor a value's");
        }
        if (rc)
            return ckpt_err_in(r->err, "%s", fqn);
    }
    return 0;
}

/* planner_data: paths of entries in the state dict.  Names without an entry are skipped. */
static int read_paths(struct reader *r, const struct value *dict)
{
    struct dcp_meta *m = r->m;
    struct value *path;
    const char *fqn;

    for (size_t i = 0; value_next(dict, &i, &fqn, &path);) {
        size_t k = ckpt_map_get(m->by_name, fqn, strlen(fqn));
        const char **part;

        if (k == CKPT_MAP_NONE)
            continue;
        if (!value_is(path, VALUE_TUPLE) || path->u.seq.n == 0 || path->u.seq.n > PICKLE_MAX_DEPTH)
            return ckpt_fail(r->err, CKPT_EFORMAT, "planner_data: %s has no path", fqn);
        part = ckpt_arena_alloc(&m->arena, path->u.seq.n, sizeof *part);
        for (size_t j = 0; part && j < path->u.seq.n; j++) {
            int64_t number;

            part[j] = value_as_str(path->u.seq.item[j]);
            if (!part[j] && value_as_int(path->u.seq.item[j], &number))
                part[j] = ckpt_arena_printf(&m->arena, "%lld", (long long)number);
            if (!part[j])
                return ckpt_fail(r->err, CKPT_EFORMAT, "planner_data: the path of %s is not of "
                                 "texts and numbers", fqn);
        }
        if (!part)
            return ckpt_nomem(r->err, path->u.seq.n * sizeof *part);
        m->entry[k].part = part;
        m->entry[k].n_part = path->u.seq.n;
    }
    return 0;
}

/* -- the pickle ------------------------------------------------------------------------------ */

/* Run the pickle: every name must be in the table, and there must be no tensor. */
static int load(struct reader *r, struct value **root, struct ckpt_file *file)
{
    struct ckpt_arena *a = &r->m->arena;
    struct torch_storages storages = {0};
    struct value_seq names = {0};
    struct ckpt_cursor c;
    char *bytes;
    size_t len;
    int rc, refused;

    a->limit = 0;
    if ((rc = ckpt_file_slurp(file, a, MAX_BYTES, &bytes, &len, r->err)) != 0)
        return rc;
    a->limit = a->used + VALUE_BYTES_MIN + VALUE_BYTES_PER * (uint64_t)len;
    ckpt_cursor_init(&c, bytes, len);
    rc = pickle_read(root, &c, a, &names, r->err);
    refused = torch_names_check(&names, rc != 0, r->err);
    if (refused || rc)
        return refused ? refused : rc;
    if (ckpt_cursor_left(&c) != 0)
        return ckpt_fail_as(r->err, CKPT_EFORMAT, "trailing", "%zu bytes after the pickle",
                            ckpt_cursor_left(&c));
    rc = torch_value_resolve(*root, &storages, a, true, r->err);
    if (rc == 0 && storages.n)
        rc = bad(r, "tensors are in the pickle, which cannot hold their storages");
    torch_storages_release(&storages);
    a->limit = 0;                    /* allocations from here on are smaller than the values were */
    return rc;
}

static int read_root(struct reader *r, const struct value *root)
{
    const struct value *state, *entries;
    int rc;

    if (!is_object(root, "Metadata") && !is_object(root, "MCoreMetadata"))
        return bad(r, "no torch.distributed.checkpoint Metadata");
    state = root->u.obj.state;
    entries = value_get(state, "state_dict_metadata");
    r->storage = value_get(state, "storage_data");
    if (!value_is(entries, VALUE_DICT) || !value_is(r->storage, VALUE_DICT))
        return bad(r, "Metadata without state_dict_metadata and storage_data");
    r->m->version = value_as_str(value_get(state, "version"));
    rc = index_storage(r);
    if (rc == 0)
        rc = read_entries(r, entries);
    return rc ? rc : read_paths(r, value_get(state, "planner_data"));
}

int dcp_meta_read(struct dcp_meta *m, struct ckpt_file *file, struct ckpt_err *err)
{
    struct reader r = {.m = m, .n_before = m->n, .err = err};
    struct value *root;
    int rc = m->by_name ? 0 : ckpt_map_new(&m->by_name, 256, err);

    if (rc == 0)
        rc = load(&r, &root, file);
    if (rc == 0)
        rc = read_root(&r, root);
    ckpt_map_free(r.index);
    return rc ? ckpt_err_in(err, "%s", ckpt_file_name(file)) : 0;
}
