/* dcp/files - see dcp/files.h. */
#include "formats/dcp/files.h"

#include <string.h>

#include "formats/hf/safetensors.h"
#include "libckpt/base/json.h"

#define SMALL_BYTES 8192u

void dcp_files_close(struct dcp_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        ckpt_tensors_release(&f->item[i]->image);
        json_decref(f->item[i]->boxes);
        ckpt_file_close(f->item[i]->file);
    }
    if (f->has_lock)
        pthread_mutex_destroy(&f->lock);
    ckpt_free(f->item);
    ckpt_map_free(f->by_name);
    ckpt_arena_release(&f->arena);
    memset(f, 0, sizeof *f);
}

static int open_file(struct dcp_files *f, struct dcp_file **out, const char *name,
                     struct ckpt_err *err)
{
    struct dcp_file *d = ckpt_arena_alloc(&f->arena, 1, sizeof *d);
    int rc;

    *out = d;
    if (!d || !(d->name = ckpt_arena_strndup(&f->arena, name, strlen(name))))
        return ckpt_nomem(err, sizeof *d);
    if (ckpt_reserve(&f->item, f->n, &f->cap, sizeof *f->item, err))
        return CKPT_ENOMEM;
    rc = ckpt_file_open_at(&d->file, f->dir, name, err);
    /* The index names it, so a missing file is damage, not a wrong path. */
    if (rc == CKPT_ENOTFOUND)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s is not there", name);
    if (rc)
        return rc;
    f->item[f->n++] = d;
    return ckpt_map_add(f->by_name, d->name, strlen(name), f->n - 1, err);
}

/* The open file of a prepared place, or NULL. */
static struct dcp_file *file_of(const struct dcp_files *f, const struct dcp_place *p)
{
    size_t i = f->by_name ? ckpt_map_get(f->by_name, p->file, strlen(p->file)) : CKPT_MAP_NONE;

    return i == CKPT_MAP_NONE ? NULL : f->item[i];
}

int dcp_files_prepare(struct dcp_files *f, const struct dcp_place *p, struct ckpt_err *err)
{
    struct dcp_file *d;
    uint64_t end;
    int rc;

    if (!f->by_name && (rc = ckpt_map_new(&f->by_name, 16, err)) != 0)
        return rc;
    if (!f->has_lock) {
        pthread_mutex_init(&f->lock, NULL);
        f->has_lock = true;
    }
    d = file_of(f, p);
    if (!d && (rc = open_file(f, &d, p->file, err)) != 0)
        return rc;
    if (!ckpt_add(&end, p->offset, p->length) || end > ckpt_file_size(d->file))
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: the item at %llu has %llu bytes, the file ends at %llu", p->file,
                            (unsigned long long)p->offset, (unsigned long long)p->length,
                            (unsigned long long)ckpt_file_size(d->file));
    return 0;
}

static int open_archive(struct torch_archive **out, struct ckpt_file *file,
                        const struct dcp_place *p, struct ckpt_err *err)
{
    if (torch_archive_open(out, file, err) == 0)
        return 0;
    return ckpt_err_in(err, "item at %llu", (unsigned long long)p->offset);
}

/* Open the archive in [offset, offset + length); the archive closes its window. */
static int open_window(struct torch_archive **out, const struct dcp_file *d,
                       const struct dcp_place *p, struct ckpt_err *err)
{
    struct ckpt_file *window;
    int rc;

    if ((rc = ckpt_file_window(&window, d->file, p->offset, p->length, d->name, err)) != 0)
        return rc;
    return open_archive(out, window, p, err);
}

/* The same through memory, for many small ones: one read instead of one per record. */
static int open_small(struct torch_archive **out, const struct dcp_file *d,
                      const struct dcp_place *p, unsigned char small[SMALL_BYTES],
                      struct ckpt_err *err)
{
    struct ckpt_file *memory;
    int rc;

    if (p->length > SMALL_BYTES)
        return open_window(out, d, p, err);
    if ((rc = ckpt_file_read_at(d->file, small, (size_t)p->length, p->offset, err)) != 0 ||
        (rc = ckpt_file_memory(&memory, small, (size_t)p->length, d->name, err)) != 0)
        return rc;
    return open_archive(out, memory, p, err);
}

int dcp_files_value(struct dcp_files *files, struct torch_archive **out,
                    const struct dcp_place *place, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    if ((rc = dcp_files_prepare(files, place, err)) != 0)
        return rc;
    return open_window(out, file_of(files, place), place, err);
}

static bool same_shape(const struct ckpt_shape *found, const struct dcp_entry *e,
                       const struct dcp_chunk *c)
{
    return found->rank == e->shape.rank &&
           memcmp(found->dim, c->count, (size_t)found->rank * sizeof *c->count) == 0;
}

static int misfit(struct ckpt_err *err, const struct dcp_file *d, enum ckpt_dtype dtype,
                  const struct ckpt_shape *found, const struct dcp_entry *e,
                  const struct dcp_chunk *c)
{
    struct ckpt_shape wanted = ckpt_shape_of(e->shape.rank, c->count);
    char a[128], b[128];

    return ckpt_fail(err, CKPT_EFORMAT, "%s: holds %s %s at %llu, the metadata says %s %s", d->name,
                     ckpt_dtype_name(dtype), ckpt_shape_text(a, sizeof a, found),
                     (unsigned long long)c->place.offset, ckpt_dtype_name(e->dtype),
                     ckpt_shape_text(b, sizeof b, &wanted));
}

/* Locate an archive with a single tensor. */
static int in_archive(struct dcp_files *files, struct ckpt_fragment *f,
                      const struct dcp_file *d, const struct dcp_entry *e,
                      const struct dcp_chunk *c, struct ckpt_arena *arena, struct ckpt_err *err)
{
    CKPT_UNSET unsigned char small[SMALL_BYTES];
    const struct value_tensor *t;
    struct ckpt_arena scratch = {0};
    struct ckpt_fragment *found;
    struct torch_archive *a;
    int64_t *stride;
    int rc;

    if ((rc = open_small(&a, d, &c->place, small, err)) != 0)
        return rc;
    t = value_is(torch_archive_root(a), VALUE_TENSOR) ? torch_archive_root(a)->u.tensor : NULL;
    if (!t)
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: the item at %llu is no tensor", d->name,
                       (unsigned long long)c->place.offset);
    else if (t->dtype != e->dtype || !same_shape(&t->shape, e, c))
        rc = misfit(err, d, t->dtype, &t->shape, e, c);
    else
        rc = torch_archive_fragment(&found, &scratch, a, t, err);
    if (rc == 0) {
        *f = *found;
        f->offset += c->place.offset;       /* from the window to the file */
    }
    if (rc == 0 && f->stride) {
        pthread_mutex_lock(&files->lock);
        stride = ckpt_arena_alloc(arena, CKPT_MAX_RANK, sizeof *stride);
        pthread_mutex_unlock(&files->lock);
        if (stride)
            memcpy(stride, f->stride, CKPT_MAX_RANK * sizeof *stride);
        else
            rc = ckpt_nomem(err, CKPT_MAX_RANK * sizeof *stride);
        f->stride = stride;
    }
    ckpt_arena_release(&scratch);
    torch_archive_close(a);
    return rc;
}

/* -- safetensors ----------------------------------------------------------------------------- */

/* Read the image from offset to the file's end, once per file. */
static int load_image(struct dcp_file *d, uint64_t offset, struct ckpt_err *err)
{
    struct ckpt_file *window;
    json_t *metadata;
    int rc;

    if (d->has_image)
        return 0;
    if ((rc = ckpt_file_window(&window, d->file, offset, ckpt_file_size(d->file) - offset,
                               d->name, err)) != 0)
        return rc;
    rc = safetensors_read(&d->image, window, &metadata, err);
    if (rc == 0)
        rc = dcp_sharding_info(&d->boxes, metadata, err);
    json_decref(metadata);
    ckpt_file_close(window);
    d->has_image = rc == 0;
    return rc;
}

int dcp_sharding_info(json_t **out, const json_t *metadata, struct ckpt_err *err)
{
    const json_t *text = json_object_get(metadata, "DCP_SHARDING_INFO");

    *out = NULL;
    if (!json_is_string(text))
        return 0;
    if (ckpt_json_parse(out, json_string_value(text), json_string_length(text), 0, err))
        return ckpt_err_in(err, "DCP_SHARDING_INFO");
    return 0;
}

int dcp_sharding_start(int64_t start[CKPT_MAX_RANK], const json_t *boxes, const char *fqn,
                       int rank, struct ckpt_err *err)
{
    const json_t *at = json_object_get(json_object_get(boxes, fqn), "saved_offsets");

    memset(start, 0, CKPT_MAX_RANK * sizeof *start);
    if (!at)
        return 0;
    if (json_array_size(at) != (size_t)rank)
        return ckpt_fail(err, CKPT_EFORMAT, "DCP_SHARDING_INFO: %s has %zu offsets and %d axes",
                         fqn, json_array_size(at), rank);
    for (int i = 0; i < rank; i++) {
        const json_t *n = json_array_get(at, (size_t)i);

        start[i] = json_integer_value(n);
        if (!json_is_integer(n) || start[i] < 0)
            return ckpt_fail(err, CKPT_EFORMAT, "DCP_SHARDING_INFO: %s: an offset is no number "
                             ">= 0", fqn);
    }
    return 0;
}

/* Check which box the image contains: of two with one name, a file keeps only the last. */
static int check_start(const struct dcp_file *d, const struct dcp_entry *e,
                       const struct dcp_chunk *c, struct ckpt_err *err)
{
    int64_t start[CKPT_MAX_RANK];

    if (!d->boxes)
        return 0;
    if (dcp_sharding_start(start, d->boxes, e->fqn, e->shape.rank, err))
        return ckpt_err_in(err, "%s", d->name);
    return memcmp(start, c->start, (size_t)e->shape.rank * sizeof *start) == 0
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "%s: holds another box of it than the metadata "
                               "says", d->name);
}

static int in_image(struct ckpt_fragment *f, struct dcp_file *d, const struct dcp_entry *e,
                    const struct dcp_chunk *c, struct ckpt_err *err)
{
    const struct ckpt_tensor *t;
    size_t i;
    int rc;

    if ((rc = load_image(d, c->place.offset, err)) != 0)
        return rc;
    i = ckpt_tensors_find(&d->image, e->fqn);
    if (i == SIZE_MAX)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: does not hold it", d->name);
    t = &d->image.item[i];
    if (t->dtype != e->dtype || !same_shape(&t->shape, e, c))
        return misfit(err, d, t->dtype, &t->shape, e, c);
    *f = *t->frag;
    f->offset += c->place.offset;
    return check_start(d, e, c, err);
}

int dcp_files_tensor(struct dcp_files *files, struct ckpt_fragment *f, const struct dcp_entry *e,
                     const struct dcp_chunk *c, struct ckpt_arena *arena, struct ckpt_err *err)
{
    struct dcp_file *d = file_of(files, &c->place);
    unsigned char head[4] = {0};
    uint64_t left;
    int rc;

    left = ckpt_file_size(d->file) - c->place.offset;
    if ((rc = ckpt_file_read_at(d->file, head, left < 4 ? (size_t)left : 4, c->place.offset,
                                err)) != 0)
        return rc;
    if (memcmp(head, "PK\3\4", 4) == 0) {
        rc = in_archive(files, f, d, e, c, arena, err);
    } else {
        pthread_mutex_lock(&files->lock);
        rc = in_image(f, d, e, c, err);
        pthread_mutex_unlock(&files->lock);
    }
    if (rc)
        return rc;
    f->file = d->file;
    pthread_mutex_lock(&files->lock);
    f->box = ckpt_fragment_box(arena, e->shape.rank, c->start, c->count);
    pthread_mutex_unlock(&files->lock);
    return f->box ? 0 : ckpt_nomem(err, sizeof *f->box);
}
