/* dcp - see dcp.h. */
#include "formats/dcp/dcp.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "formats/place.h"
#include "formats/dcp/boxes.h"
#include "formats/dcp/hf.h"
#include "formats/dcp/names.h"
#include "formats/dcp/out.h"
#include "formats/dcp/values.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/pool.h"

#define MIN_THREADED 256u       /* for fewer tensors, starting threads takes longer than the work */

#define INDEX       ".metadata"
#define RANK_INDEX  "__[0-9]*.metadata"
#define DATA        "__[0-9]*_[0-9]*.distcp"
#define MODEL_DIR   "pytorch_model_fsdp_0"
#define OPTIM_DIR   "optimizer_0"

/* A directory with an index: of everything, or of the model or optimizer alone. */
struct part {
    struct ckpt_dir  *dir;          /* NULL: the place's own directory */
    struct dcp_files  files;
};

struct dcp {
    struct ckpt_dir  *dir;
    struct part       part[2];
    struct dcp_hf     hf;
    struct side_files side;
};

struct reader {
    struct dcp          *d;
    struct ckpt_tensors *list;
    json_t              *info;
    bool                 optimizer;
    struct ckpt_err     *err;
};

static void close_dcp(void *self)
{
    struct dcp *d = self;

    for (size_t i = 0; i < 2; i++) {
        dcp_files_close(&d->part[i].files);
        ckpt_dir_close(d->part[i].dir);
    }
    dcp_hf_close(&d->hf);
    side_files_close(&d->side);
    ckpt_dir_close(d->dir);
    ckpt_free(d);
}

static const struct ckpt_source_ops ops = {.format = "dcp", .close = close_dcp};

/* A tensor to be listed. */
struct wanted {
    const struct dcp_entry *e;
    const struct dcp_item  *it;
    struct ckpt_fragment   *frag;       /* [e->n_chunk] */
};

/* Shared by the threads that locate boxes, which reads a little of each item. */
struct finder {
    struct wanted     *wanted;
    struct dcp_files  *files;
    struct ckpt_arena *arena;
};

static int find_boxes(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct finder *f = ctx;
    const struct wanted *w = &f->wanted[i];

    (void)worker;
    for (size_t k = 0; k < w->e->n_chunk; k++)
        if (dcp_files_tensor(f->files, &w->frag[k], w->e, &w->e->chunk[k], f->arena, err))
            return ckpt_err_in(err, "%s", w->e->fqn);
    return 0;
}

/* Open the files of all its boxes; offsets within them are found later. */
static int prepare(struct reader *r, struct dcp_files *files, struct wanted *w)
{
    w->frag = ckpt_arena_alloc(&r->list->arena, w->e->n_chunk, sizeof *w->frag);
    if (!w->frag)
        return ckpt_nomem(r->err, w->e->n_chunk * sizeof *w->frag);
    for (size_t k = 0; k < w->e->n_chunk; k++)
        if (dcp_files_prepare(files, &w->e->chunk[k].place, r->err))
            return ckpt_err_in(r->err, "%s", w->e->fqn);
    return 0;
}

/* Whether all boxes of two lie in the same places. */
static bool same_places(const struct dcp_entry *x, const struct dcp_entry *y)
{
    bool same = x->n_chunk == y->n_chunk && x->dtype == y->dtype &&
                ckpt_shape_equal(&x->shape, &y->shape);

    for (size_t k = 0; same && k < x->n_chunk; k++)
        same = x->chunk[k].place.offset == y->chunk[k].place.offset &&
               strcmp(x->chunk[k].place.file, y->chunk[k].place.file) == 0;
    return same;
}

/* Names that share their bytes are tied: w[i], tensor first + i of the list, to one before it. */
static int tie(struct reader *r, struct ckpt_map *places, const struct wanted *w, size_t i,
               size_t first)
{
    const struct dcp_place *at = w[i].e->n_chunk ? &w[i].e->chunk[0].place : NULL;
    char *key;
    size_t other;

    if (!at)
        return 0;
    key = ckpt_arena_printf(&r->list->arena, "%llu %s", (unsigned long long)at->offset, at->file);
    if (!key)
        return ckpt_nomem(r->err, strlen(at->file));
    other = ckpt_map_get(places, key, strlen(key));
    if (other == CKPT_MAP_NONE)
        return ckpt_map_add(places, key, strlen(key), i, r->err);
    if (same_places(w[i].e, w[other].e))
        r->list->item[first + i].alias_of = first + other;
    return 0;
}

static int add_wanted(struct reader *r, struct dcp_files *files, struct wanted *w, size_t n)
{
    struct finder f = {w, files, &r->list->arena};
    size_t first = r->list->n;
    struct ckpt_map *places = NULL;
    struct ckpt_tensor *added;
    int rc = ckpt_map_new(&places, n + 1, r->err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = prepare(r, files, &w[i]);
    if (rc == 0)
        rc = ckpt_pool_run(n < MIN_THREADED ? 1 : ckpt_pool_default(8), n, find_boxes, &f, r->err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = boxes_add(r->list, &added, w[i].it->name, w[i].e->dtype, &w[i].e->shape, w[i].frag,
                       w[i].e->n_chunk, false, r->err);
        if (rc == 0)
            added->kind = w[i].it->kind;
        else
            ckpt_err_in(r->err, "%s", w[i].e->fqn);
        if (rc == 0)
            rc = tie(r, places, w, i, first);
    }
    ckpt_map_free(places);
    return rc;
}

static int add_tensors(struct reader *r, struct dcp_files *files, const struct dcp_meta *m)
{
    struct ckpt_arena a = {0};
    struct dcp_item *item = ckpt_arena_alloc(&a, m->n, sizeof *item);
    struct wanted *wanted = ckpt_arena_alloc(&a, m->n, sizeof *wanted);
    size_t n = 0;
    int rc = item && wanted ? 0 : ckpt_nomem(r->err, m->n * sizeof *wanted);

    for (size_t i = 0; rc == 0 && i < m->n; i++)
        item[i] = (struct dcp_item){.part = m->entry[i].part, .n_part = m->entry[i].n_part,
                                    .tensor = !m->entry[i].bytes};
    if (rc == 0)
        rc = dcp_names_fill(item, m->n, &a, r->err);
    if (rc == 0 && !dcp_names_weights(item, m->n))
        r->optimizer = true;            /* there is nothing but the optimizer */
    for (size_t i = 0; rc == 0 && i < m->n; i++)
        if (item[i].tensor && (r->optimizer || item[i].kind == CKPT_WEIGHT))
            wanted[n++] = (struct wanted){.e = &m->entry[i], .it = &item[i]};
    if (rc == 0)
        rc = add_wanted(r, files, wanted, n);
    ckpt_arena_release(&a);
    return rc;
}

/* Number of ranks, from the data files' names. */
static json_int_t count_ranks(const struct dcp_meta *m)
{
    long most = 0;

    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < (m->entry[i].bytes ? 1 : m->entry[i].n_chunk); k++) {
            const char *name = m->entry[i].bytes ? m->entry[i].place.file
                                                 : m->entry[i].chunk[k].place.file;
            const char *at = strstr(name, "__");
            long n = at ? strtol(at + 2, NULL, 10) : 0;

            if (n > most && n < 1 << 24)
                most = n;
        }
    return (json_int_t)most + 1;
}

static int tell(struct reader *r, struct dcp_files *files, const struct dcp_meta *m)
{
    json_int_t ranks = count_ranks(m);

    if (json_integer_value(json_object_get(r->info, "world_size")) < ranks)
        json_object_set_new(r->info, "world_size", json_integer(ranks));
    if (m->version)
        json_object_set_new(r->info, "dcp_version", json_string(m->version));
    return dcp_values_tell(r->info, files, m, r->optimizer, r->err);
}

static int read_index(struct dcp_meta *m, struct ckpt_dir *dir, const char *name,
                      struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc = ckpt_file_open_at(&file, dir, name, err);

    if (rc)
        return rc;
    rc = dcp_meta_read(m, file, err);
    ckpt_file_close(file);
    return rc;
}

/* Read .metadata, or all ranks' own. */
static int read_indexes(struct dcp_meta *m, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n, found = 0;
    int rc;

    if (ckpt_dir_has(dir, INDEX))
        return read_index(m, dir, INDEX, err);
    rc = ckpt_dir_list(dir, &a, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entry[i].is_file && fnmatch(RANK_INDEX, entry[i].name, 0) == 0) {
            rc = read_index(m, dir, entry[i].name, err);
            found++;
        }
    if (rc == 0 && found == 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                          "%s: has no .metadata: it was never finished, or it was lost",
                          ckpt_dir_path(dir));
    ckpt_arena_release(&a);
    return rc;
}

static int open_part(struct reader *r, struct part *p)
{
    struct ckpt_dir *dir = p->dir ? p->dir : r->d->dir;
    struct dcp_meta m = {0};
    int rc = read_indexes(&m, dir, r->err);

    p->files.dir = dir;
    if (rc == 0)
        rc = add_tensors(r, &p->files, &m);
    if (rc == 0)
        rc = tell(r, &p->files, &m);
    dcp_meta_release(&m);
    return rc;
}

static bool has_folder(const struct ckpt_place *p, const char *name)
{
    for (size_t i = 0; i < p->n_entry; i++)
        if (p->entry[i].is_dir && strcmp(p->entry[i].name, name) == 0)
            return true;
    return false;
}

/* Trainer's folder: the model's directory, and the optimizer's if requested. */
static int open_folders(struct reader *r, const struct ckpt_place *p)
{
    static const char *const name[] = {MODEL_DIR, OPTIM_DIR};

    for (size_t i = 0; i < 2; i++) {
        struct part *part = &r->d->part[i];

        if (i == 1 && (!r->optimizer || !has_folder(p, name[i])))
            continue;
        if (ckpt_dir_open_at(&part->dir, r->d->dir, name[i], r->err) || open_part(r, part))
            return ckpt_err_in(r->err, "%s", name[i]);
    }
    return 0;
}

static bool is_indexed(const struct ckpt_place *p)
{
    return place_has(p, INDEX) || place_has_like(p, RANK_INDEX) || place_has_like(p, DATA);
}

static int bid(const struct ckpt_place *p)
{
    if (!p->dir)
        return 0;
    if (place_has_like(p, DATA))
        return 90;
    if (has_folder(p, MODEL_DIR))
        return 60;
    if (place_has_like(p, DCP_HF_GLOB))
        return 45;                       /* if merged shards are there too, their format must win */
    return is_indexed(p) ? 30 : 0;
}

static int open_all(struct reader *r, const struct ckpt_place *place)
{
    if (is_indexed(place))
        return open_part(r, &r->d->part[0]);
    if (has_folder(place, MODEL_DIR))
        return open_folders(r, place);
    if (place_has_like(place, DCP_HF_GLOB))
        return dcp_hf_open(&r->d->hf, r->list, place, r->err);
    return ckpt_fail(r->err, CKPT_ENOTFOUND, "no .metadata, and no shards of boxes");
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct reader r = {.list = &list, .optimizer = opts->optimizer, .err = err};
    int rc;

    *out = NULL;
    if (!place->dir)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: a directory of a distributed checkpoint wanted, "
                         "is a file", place->path);
    r.d = ckpt_alloc(1, sizeof *r.d);
    if (!r.d)
        return ckpt_nomem(err, sizeof *r.d);
    r.d->dir = place->dir;
    place->took = true;
    r.info = json_pack("{s:s}", "format", "dcp");
    rc = r.info ? open_all(&r, place) : ckpt_nomem(err, 64);
    if (rc == 0)
        rc = side_files_open(&r.d->side, r.d->dir, &list.arena, err);
    if (rc) {
        ckpt_err_in(err, "%s", place->path);
        json_decref(r.info);
        close_dcp(r.d);
        ckpt_tensors_release(&list);
        return rc;
    }
    return ckpt_source_new(out, &ops, r.d, &list, r.d->side.item, r.d->side.n, r.info, err);
}

const struct ckpt_format ckpt_format_dcp = {
    .name = "dcp", .title = "torch distributed checkpoint", .bid = bid, .open = open_source,
    .create = dcp_create,
};
