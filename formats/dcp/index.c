/* dcp/index - see dcp/index.h. */
#include "formats/dcp/index.h"

#include <stdio.h>
#include <string.h>

#include "formats/container/pickle/out.h"

#define METADATA   "torch.distributed.checkpoint.metadata"
#define FILESYSTEM "torch.distributed.checkpoint.filesystem"

void dcp_index_release(struct dcp_index *x)
{
    for (size_t i = 0; i < x->n; i++)
        crc_join_release(&x->item[i].blob.crc);
    ckpt_free(x->item);
    ckpt_map_free(x->by_name);
    ckpt_arena_release(&x->arena);
    memset(x, 0, sizeof *x);
}

/* The path's parts joined by dots. */
static char *flat_name(struct dcp_index *x, const struct value *path)
{
    char *name = NULL;

    for (size_t i = 0; i < path->u.seq.n; i++) {
        const char *part = value_as_str(path->u.seq.item[i]);
        int64_t n = 0;

        if (!part && value_as_int(path->u.seq.item[i], &n))
            part = ckpt_arena_printf(&x->arena, "%lld", (long long)n);
        if (!part)
            return NULL;
        name = name ? ckpt_arena_printf(&x->arena, "%s.%s", name, part)
                    : ckpt_arena_strndup(&x->arena, part, strlen(part));
        if (!name)
            return NULL;
    }
    return name;
}

int dcp_index_add(struct dcp_index *x, struct dcp_out_item **out, struct value *path,
                  struct ckpt_err *err)
{
    char *fqn = path ? flat_name(x, path) : NULL;
    int rc;

    if (!fqn)
        return ckpt_nomem(err, 64);
    if (!x->by_name && (rc = ckpt_map_new(&x->by_name, 256, err)) != 0)
        return rc;
    if (ckpt_reserve(&x->item, x->n, &x->cap, sizeof *x->item, err))
        return CKPT_ENOMEM;
    if ((rc = ckpt_map_add(x->by_name, fqn, strlen(fqn), x->n, err)) != 0)
        return rc == CKPT_EFORMAT
                   ? ckpt_fail(err, CKPT_EMISMATCH, "two items would be called %s", fqn) : rc;
    x->item[x->n] = (struct dcp_out_item){.fqn = fqn, .path = path};
    if (out)
        *out = &x->item[x->n];
    x->n++;
    return 0;
}

int dcp_index_add_box(struct dcp_index *x, struct dcp_out_item **out, struct ckpt_err *err)
{
    const struct dcp_out_item *last;

    if (ckpt_reserve(&x->item, x->n, &x->cap, sizeof *x->item, err))
        return CKPT_ENOMEM;
    last = &x->item[x->n - 1];
    x->item[x->n] = (struct dcp_out_item){.fqn = last->fqn, .path = last->path,
                                          .dtype = last->dtype, .full = last->full,
                                          .box = last->box + 1};
    *out = &x->item[x->n++];
    return 0;
}

struct value *dcp_index_path(struct dcp_index *x, const char *const *part)
{
    struct value *path = value_tuple(&x->arena);

    for (; *part; part++)
        if (value_append(&x->arena, path, value_str(&x->arena, *part)))
            return NULL;
    return path;
}

struct value *dcp_index_group_path(struct dcp_index *x, size_t number, const char *key)
{
    struct value *path = dcp_index_path(x, (const char *const[]){"optimizer", "param_groups",
                                                                 NULL});

    return value_append(&x->arena, path, value_int(&x->arena, (int64_t)number)) ||
                   value_append(&x->arena, path, value_str(&x->arena, key))
               ? NULL : path;
}

void dcp_index_file_name(char name[64], int rank, size_t file)
{
    snprintf(name, 64, "__%d_%zu.distcp", rank, file);
}

int dcp_index_blob_pickle(struct ckpt_buf *out, const struct dcp_out_item *it,
                          struct ckpt_err *err)
{
    int rc = it->value ? dcp_blob_pickle(out, it->value, err)
                       : dcp_blob_tensor_pickle(out, it->dtype, it->shape, err);

    return rc ? ckpt_err_in(err, "%s", it->fqn) : 0;
}

int dcp_index_place(struct dcp_out_item *it, uint64_t *size, struct ckpt_buf *scratch,
                    struct ckpt_err *err)
{
    uint64_t bytes = 0;
    char name[64];
    int rc = dcp_index_blob_pickle(scratch, it, err);

    if (rc)
        return rc;
    if (!it->value && !ckpt_shape_bytes(&bytes, it->shape, it->dtype))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: its size overflows", it->fqn);
    dcp_blob_plan(&it->blob, scratch, !it->value, bytes);
    it->blob.base = *size;
    dcp_index_file_name(name, it->rank, it->file);
    if (!ckpt_add(size, it->blob.base, it->blob.length) || *size > INT64_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: its size overflows", name);
    return 0;
}

/* -- the metadata's values ------------------------------------------------------------------- */

/* Parts shared by all entries: pickled once, through the memo. */
struct shared {
    struct value *strided, *memory_format, *no, *none;
};

static struct value *tuple1(struct ckpt_arena *a, struct value *v)
{
    struct value *t = value_tuple(a);

    return value_append(a, t, v) ? NULL : t;
}

/* torch.Size: the start of a box. */
static struct value *start_of(struct ckpt_arena *a, const struct dcp_out_item *it)
{
    struct ckpt_shape start = {.rank = it->shape->rank};

    if (it->start)
        memcpy(start.dim, it->start, (size_t)start.rank * sizeof *start.dim);
    return value_size(a, &start);
}

/* An instance of a class with this state, as copyreg makes one. */
static struct value *instance(struct ckpt_arena *a, const char *module, const char *name,
                              struct value *state)
{
    return value_object(a, module, name, value_tuple(a), state, true);
}

/* TensorProperties: dtype, layout, requires_grad, memory format, pin_memory. */
static struct value *properties(struct ckpt_arena *a, const struct shared *s,
                                enum ckpt_dtype dtype)
{
    struct value *t = value_tuple(a);

    if (value_append(a, t, value_global(a, "torch", ckpt_dtype_torch_name(dtype))) ||
        value_append(a, t, s->strided) || value_append(a, t, s->no) ||
        value_append(a, t, s->memory_format) || value_append(a, t, s->no))
        return NULL;
    return instance(a, METADATA, "TensorProperties", t);
}

/* TensorStorageMetadata with the boxes from it on, of n items that follow. */
static struct value *tensor_entry(struct ckpt_arena *a, const struct shared *s,
                                  const struct dcp_out_item *it, size_t n)
{
    struct value *state = value_dict(a, false), *chunks = value_list(a);
    struct value *size = value_size(a, it->full ? it->full : it->shape);

    for (size_t k = 0; k < n && it[k].box == k; k++) {
        struct value *chunk = value_dict(a, false);

        if (value_set_str(a, chunk, "offsets", start_of(a, &it[k])) ||
            value_set_str(a, chunk, "sizes",
                          it->full ? value_size(a, it[k].shape) : size) ||
            value_append(a, chunks, instance(a, METADATA, "ChunkStorageMetadata", chunk)))
            return NULL;
    }
    if (value_set_str(a, state, "properties", properties(a, s, it->dtype)) ||
        value_set_str(a, state, "size", size) || value_set_str(a, state, "chunks", chunks))
        return NULL;
    return instance(a, METADATA, "TensorStorageMetadata", state);
}

/* MetadataIndex: with the box's start for a tensor, without for a value. */
static struct value *index_key(struct ckpt_arena *a, const struct shared *s,
                               const struct dcp_out_item *it)
{
    struct value *state = value_dict(a, false);

    if (value_set_str(a, state, "fqn", value_str(a, it->fqn)) ||
        value_set_str(a, state, "offset", it->value ? s->none : start_of(a, it)) ||
        value_set_str(a, state, "index",
                      it->value ? s->none : value_int(a, (int64_t)it->box)))
        return NULL;
    return instance(a, METADATA, "MetadataIndex", state);
}

static struct value *storage_info(struct ckpt_arena *a, const struct dcp_out_item *it)
{
    struct value *state = value_dict(a, false);
    char name[64];

    dcp_index_file_name(name, it->rank, it->file);
    if (value_set_str(a, state, "relative_path", value_str(a, name)) ||
        value_set_str(a, state, "offset", value_int(a, (int64_t)it->blob.base)) ||
        value_set_str(a, state, "length", value_int(a, (int64_t)it->blob.length)))
        return NULL;
    return instance(a, FILESYSTEM, "_StorageInfo", state);
}

static int shared_parts(struct ckpt_arena *a, struct shared *s)
{
    s->strided = value_object(a, "torch.serialization", "_get_layout",
                              tuple1(a, value_str(a, "torch.strided")), NULL, false);
    s->memory_format = value_object(a, METADATA, "_MEM_FORMAT_ENCODING", tuple1(a, value_int(a, 0)),
                                    NULL, false);
    s->no = value_bool(a, false);
    s->none = value_none(a);
    return s->strided && s->memory_format && s->no && s->none ? 0 : CKPT_ENOMEM;
}

static struct value *metadata(struct ckpt_arena *a, const struct dcp_index *x)
{
    struct value *entries = value_dict(a, false), *planner = value_dict(a, false);
    struct value *storage = value_dict(a, false), *state = value_dict(a, false);
    struct shared s;

    if (shared_parts(a, &s))
        return NULL;
    for (size_t i = 0; i < x->n; i++) {
        const struct dcp_out_item *it = &x->item[i];
        struct value *entry = it->value ? instance(a, METADATA, "BytesStorageMetadata", NULL)
                              : it->box == 0 ? tensor_entry(a, &s, it, x->n - i) : NULL;

        if (it->box == 0 && (value_set_str(a, entries, it->fqn, entry) ||
                             value_set_str(a, planner, it->fqn, (struct value *)it->path)))
            return NULL;
        if (value_set(a, storage, index_key(a, &s, it), storage_info(a, it)))
            return NULL;
    }
    if (value_set_str(a, state, "state_dict_metadata", entries) ||
        value_set_str(a, state, "planner_data", planner) ||
        value_set_str(a, state, "storage_data", storage) ||
        value_set_str(a, state, "storage_meta", value_none(a)) ||
        value_set_str(a, state, "version", value_str(a, "1.0.0")))
        return NULL;
    return instance(a, METADATA, "Metadata", state);
}

int dcp_index_pickle(struct ckpt_buf *out, struct dcp_index *x, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct value *root = metadata(&a, x);
    int rc = root ? pickle_write(out, root, NULL, 0, err) : ckpt_nomem(err, (size_t)a.used);

    ckpt_arena_release(&a);
    return rc;
}
