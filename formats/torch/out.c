/* torch/out - see torch/out.h. */
#include "formats/torch/out.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/container/crc_join.h"
#include "formats/container/pickle/out.h"
#include "formats/container/zip_out.h"
#include "libckpt/base/crc32.h"

/* Members before and after the storages, in torch 2.7's order. */
enum { M_PICKLE, M_FORMAT, M_ALIGNMENT, M_BYTEORDER, M_BEFORE, M_VERSION = 0, M_ID, M_BEHIND };

struct storage {
    size_t          width;
    uint64_t        bytes;
    struct crc_join crc;
};

struct torch_writer {
    struct ckpt_out   *out;
    struct ckpt_arena  arena;
    struct zip_member *member;
    size_t             n_member, n_storage;
    struct storage    *storage;
    uint64_t           directory;
    const char        *record;          /* see create's opts: the member after the storages, or
                                           NULL */
    pthread_mutex_t    lock;            /* of the pieces */
};

static void free_writer(struct torch_writer *w)
{
    for (size_t i = 0; w->storage && i < w->n_storage; i++)
        crc_join_release(&w->storage[i].crc);
    ckpt_arena_release(&w->arena);
    pthread_mutex_destroy(&w->lock);
    ckpt_free(w);
}

/* Set a small member whose content is known. */
static int put_small(struct torch_writer *w, size_t i, const void *bytes, struct ckpt_err *err)
{
    struct zip_member *m = &w->member[i];

    int rc;

    m->crc = ckpt_crc32(0, bytes, m->size);
    rc = ckpt_out_write_at(w->out, bytes, (size_t)m->size, m->data, err);
    return rc ? rc : zip_end_member(w->out, 0, m, err);
}

struct small { const char *name, *text; };
static const struct small before[] = {
    [M_PICKLE] = {"data.pkl", NULL}, [M_FORMAT] = {".format_version", "1"},
    [M_ALIGNMENT] = {".storage_alignment", "64"}, [M_BYTEORDER] = {"byteorder", "little"},
};
static const struct small after[] = {
    [M_VERSION] = {"version", "3\n"},
    [M_ID] = {".data/serialization_id", NULL},
};

/* Offset of the members after the storages. */
static size_t first_after(const struct torch_writer *w)
{
    return M_BEFORE + w->n_storage + (w->record != NULL);
}

/* Names and sizes of all members. */
static int list_members(struct torch_writer *w, const char *top,
                        const struct torch_storage *storage, size_t pickle_bytes,
                        struct ckpt_err *err)
{
    struct zip_member *m;

    w->n_member = first_after(w) + M_BEHIND;
    m = w->member = ckpt_arena_alloc(&w->arena, w->n_member, sizeof *w->member);
    w->storage = ckpt_arena_alloc(&w->arena, w->n_storage, sizeof *w->storage);
    if (!w->member || !w->storage)
        return ckpt_nomem(err, w->n_member * sizeof *w->member);
    for (size_t i = 0; i < M_BEFORE; i++, m++) {
        m->name = ckpt_arena_printf(&w->arena, "%s/%s", top, before[i].name);
        m->size = before[i].text ? strlen(before[i].text) : pickle_bytes;
    }
    for (size_t i = 0; i < w->n_storage; i++, m++) {
        struct ckpt_shape shape = ckpt_shape_1d(storage[i].numel);

        m->name = ckpt_arena_printf(&w->arena, "%s/data/%zu", top, i);
        w->storage[i].width = ckpt_dtype_size(storage[i].dtype);
        if (!ckpt_shape_bytes(&m->size, &shape, storage[i].dtype) || !w->storage[i].width)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "storage %zu: %s cannot be written", i,
                             ckpt_dtype_name(storage[i].dtype));
        w->storage[i].bytes = m->size;
    }
    if (w->record) {
        m->name = ckpt_arena_printf(&w->arena, "%s/" CKPT_RECORD_FILE, top);
        m->size = strlen(w->record);
        m++;
    }
    for (size_t i = 0; i < M_BEHIND; i++, m++) {
        m->name = ckpt_arena_printf(&w->arena, "%s/%s", top, after[i].name);
        m->size = i == M_ID ? 40 : strlen(after[i].text);
    }
    for (size_t i = 0; i < w->n_member; i++)
        if (!w->member[i].name)
            return ckpt_nomem(err, 64);
    return 0;
}

static int begin(struct torch_writer *w, const char *top, const struct value *root,
                 const struct torch_storage *storage, struct ckpt_err *err)
{
    struct pickle_storage *ps = ckpt_arena_alloc(&w->arena, w->n_storage, sizeof *ps);
    struct ckpt_buf pickle;
    int rc = ps ? 0 : ckpt_nomem(err, w->n_storage * sizeof *ps);

    ckpt_buf_init(&pickle, (size_t)1 << 30);
    for (size_t i = 0; rc == 0 && i < w->n_storage; i++)
        ps[i] = (struct pickle_storage){storage[i].dtype, storage[i].numel};
    if (rc == 0)
        rc = pickle_write(&pickle, root, ps, w->n_storage, err);
    if (rc == 0)
        rc = list_members(w, top, storage, pickle.len, err);
    if (rc == 0) {
        w->directory = zip_layout(w->member, w->n_member);
        rc = ckpt_out_reserve(w->out, zip_total(w->member, w->n_member, w->directory), err);
    }
    if (rc == 0)
        rc = zip_begin(w->out, 0, w->member, w->n_member, err);
    if (rc == 0)
        rc = put_small(w, M_PICKLE, pickle.data, err);
    for (size_t i = M_FORMAT; rc == 0 && i < M_BEFORE; i++)
        rc = put_small(w, i, before[i].text, err);
    if (rc == 0)
        rc = put_small(w, first_after(w) + M_VERSION, after[M_VERSION].text, err);
    ckpt_buf_release(&pickle);
    return rc;
}

int torch_writer_new(struct torch_writer **w, struct ckpt_out *out, const char *top,
                     const struct value *root, const struct torch_storage *storage,
                     size_t n_storage, const char *record, struct ckpt_err *err)
{
    struct torch_writer *t = ckpt_alloc(1, sizeof *t);
    int rc;

    *w = NULL;
    if (!t) {
        ckpt_out_abort(out);
        return ckpt_nomem(err, sizeof *t);
    }
    pthread_mutex_init(&t->lock, NULL);
    t->out = out;
    t->n_storage = n_storage;
    t->record = record;
    rc = begin(t, top, root, storage, err);
    if (rc) {
        torch_writer_abort(t);
        return rc;
    }
    *w = t;
    return 0;
}

int torch_writer_put(struct torch_writer *w, size_t i, int64_t start, int64_t count,
                     const void *src, struct ckpt_err *err)
{
    struct storage *s = i < w->n_storage ? &w->storage[i] : NULL;
    struct zip_member *m = w->member + M_BEFORE + i;
    uint64_t at, bytes;
    uint32_t crc;
    bool whole;
    int rc;

    if (!s || start < 0 || count < 0 || !ckpt_mul(&at, (uint64_t)start, s->width) ||
        !ckpt_mul(&bytes, (uint64_t)count, s->width) || at > s->bytes || bytes > s->bytes - at)
        return ckpt_fail(err, CKPT_ESTATE, "storage %zu: elements [%lld, +%lld) have no place", i,
                         (long long)start, (long long)count);
    if (bytes == 0)
        return 0;
    crc = ckpt_crc32(0, src, (size_t)bytes);
    pthread_mutex_lock(&w->lock);
    rc = crc_join_add(&s->crc, at, bytes, crc, err);
    whole = rc == 0 && crc_join_whole(&s->crc, s->bytes, &m->crc);
    pthread_mutex_unlock(&w->lock);
    if (rc)
        return ckpt_err_in(err, "storage %zu", i);
    rc = ckpt_out_write_at(w->out, src, (size_t)bytes, m->data + at, err);
    return rc == 0 && whole ? zip_end_member(w->out, 0, m, err) : rc;
}

void torch_writer_place(const struct torch_writer *w, size_t i, int64_t start,
                        struct ckpt_out **out, uint64_t *offset)
{
    *out = w->out;
    *offset = w->member[M_BEFORE + i].data + (uint64_t)start * w->storage[i].width;
}

/*
 * torch's id is 20 digits of a hash of the members' names and 20 of their checksums: only
 * diagnostic, so any hash that differs from archive to archive will do.
 */
static int put_id(struct torch_writer *w, struct ckpt_err *err)
{
    uint64_t names = UINT64_C(14695981039346656037), sums = names;      /* FNV-1a */
    char id[41];

    for (size_t i = 0; i + 1 < w->n_member; i++) {
        for (const char *p = w->member[i].name; *p; p++)
            names = (names ^ (unsigned char)*p) * UINT64_C(1099511628211);
        sums = (sums ^ w->member[i].crc) * UINT64_C(1099511628211);
    }
    snprintf(id, sizeof id, "%020llu%020llu", (unsigned long long)names, (unsigned long long)sums);
    return put_small(w, w->n_member - 1, id, err);
}

int torch_writer_commit(struct torch_writer *w, struct ckpt_err *err)
{
    struct ckpt_out *out = w->out;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->n_storage; i++)
        if (!crc_join_whole(&w->storage[i].crc, w->storage[i].bytes, &w->member[M_BEFORE + i].crc))
            rc = ckpt_fail(err, CKPT_ESTATE, "storage %zu: its %llu bytes were not all written", i,
                           (unsigned long long)w->storage[i].bytes);
    if (rc == 0 && w->record && strlen(w->record) != w->member[M_BEFORE + w->n_storage].size)
        rc = ckpt_fail(err, CKPT_ESTATE, "the record's length changed while it was written");
    if (rc == 0 && w->record)
        rc = put_small(w, M_BEFORE + w->n_storage, w->record, err);
    if (rc == 0)
        rc = put_id(w, err);
    if (rc == 0)
        rc = zip_finish(out, 0, w->member, w->n_member, w->directory, err);
    free_writer(w);
    if (rc)
        ckpt_out_abort(out);
    else
        rc = ckpt_out_commit(out, err);
    return rc;
}

void torch_writer_abort(struct torch_writer *w)
{
    if (!w)
        return;
    ckpt_out_abort(w->out);
    free_writer(w);
}

int torch_write(struct ckpt_out *out, const char *top, const struct value *root,
                const struct torch_storage *storage, const void *const *data, size_t n_storage,
                struct ckpt_err *err)
{
    struct torch_writer *w;
    int rc;

    if ((rc = torch_writer_new(&w, out, top, root, storage, n_storage, NULL, err)) != 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n_storage; i++)
        if (storage[i].numel)
            rc = torch_writer_put(w, i, 0, storage[i].numel, data[i], err);
    if (rc == 0)
        return torch_writer_commit(w, err);
    torch_writer_abort(w);
    return rc;
}
