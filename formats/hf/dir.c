/* hf/dir - see hf/dir.h. */
#include "formats/hf/dir.h"

#include <assert.h>
#include <string.h>

#include "formats/place.h"
#include "formats/hf/dir_out.h"
#include "formats/hf/safetensors.h"
#include "formats/hf/side_files.h"
#include "formats/torch/torch.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"

#define MAX_SHARDS 100000

/*
 * How a directory is recognised and opened, in transformers' order: a single file has precedence
 * over an index, which then is a leftover of another save.
 */
static const struct kind {
    const char               *file;         /* one file, or the index */
    bool                      index;
    const struct ckpt_format *format;
} kinds[] = {
    {"model.safetensors", false, &ckpt_format_safetensors},
    {"model.safetensors.index.json", true, &ckpt_format_safetensors},
    {"pytorch_model.bin", false, &ckpt_format_torch},
    {"pytorch_model.bin.index.json", true, &ckpt_format_torch},
};

/* A file of tensors: entries [first, end) of the list. */
struct shard {
    struct ckpt_file   *file;               /* safetensors */
    struct ckpt_source *source;             /* for any other format */
    size_t              first, end;
};

struct hf {
    struct ckpt_dir  *dir;
    struct shard     *shard;
    size_t            n_shard;
    json_t           *metadata;             /* of the first shard, or NULL */
    const struct ckpt_tensors *list;        /* the source's */
    struct side_files side;
};

static const struct kind *kind_of(const struct ckpt_place *p)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (place_has(p, kinds[i].file))
            return &kinds[i];
    return NULL;
}

static int bid(const struct ckpt_place *p)
{
    if (!p->dir || !kind_of(p))
        return 0;
    return place_has(p, "config.json") ? 70 : 50;
}

static void close_hf(void *self)
{
    struct hf *h = self;

    for (size_t i = 0; i < h->n_shard; i++) {
        ckpt_source_close(h->shard[i].source);
        ckpt_file_close(h->shard[i].file);
    }
    ckpt_free(h->shard);
    json_decref(h->metadata);
    side_files_close(&h->side);
    ckpt_dir_close(h->dir);
    ckpt_free(h);
}

/* Tensors are read by their fragments; one without is read by its shard: an array inside a
 * pickle. */
static int read_hf(void *self, size_t i, int64_t start, int64_t count, void *dst,
                   struct ckpt_err *err)
{
    const struct hf *h = self;
    const struct ckpt_tensor *t = &h->list->item[i];
    struct ckpt_shape flat = ckpt_shape_1d(t->numel);

    for (size_t k = 0; t->n_frag == 0 && k < h->n_shard; k++)
        if (h->shard[k].source && i >= h->shard[k].first && i < h->shard[k].end)
            return ckpt_source_read(h->shard[k].source, i - h->shard[k].first, start, count, dst,
                                    err);
    return ckpt_fragment_gather(dst, t->flat ? &flat : &t->shape, t->dtype, t->frag, t->n_frag,
                                start, count, err);
}

static const struct ckpt_source_ops ops = {.format = "hf", .read = read_hf, .close = close_hf};

struct ckpt_dir *hf_source_dir(const struct ckpt_source *src)
{
    const struct hf *h = src ? ckpt_source_self(src, &ops) : NULL;

    return h ? h->dir : NULL;
}

/* Add a shard of another format: its tensors are listed as ours; it owns their fragments. */
static int add_source(struct shard *s, struct ckpt_tensors *list, struct ckpt_place *p,
                      const struct ckpt_format *format, struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    int rc;

    if ((rc = format->open(&s->source, p, &none, err)) != 0)
        return rc;
    for (size_t i = 0; i < ckpt_source_count(s->source); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s->source, i);
        struct ckpt_tensor *added;

        if ((rc = ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape,
                                   t->frag, t->n_frag, t->flat, err)) != 0)
            return rc;
        added->kind = t->kind;
        added->alias_of = s->first + t->alias_of;
        added->unread = t->unread;
        added->stored = t->stored;
        added->stored_bytes = t->stored_bytes;
    }
    return 0;
}

static int add_shard(struct hf *h, struct ckpt_tensors *list, const struct ckpt_format *format,
                     const char *name, struct ckpt_err *err)
{
    struct shard *s = &h->shard[h->n_shard];
    struct ckpt_file *file;
    struct ckpt_place p;
    int rc;

    if (!ckpt_file_name_is_clean(name))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "shard %s: no clean name", name);
    if ((rc = ckpt_file_open_at(&file, h->dir, name, err)) != 0 ||
        (rc = place_of_file(&p, file, err)) != 0)
        return rc;
    h->n_shard++;
    s->first = list->n;
    if (p.head_len > 23 && memcmp(p.head, "version https://git-lfs", 23) == 0) {
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: is a Git LFS pointer, the file itself was not fetched", p.path);
    } else if (place_is_html(&p)) {
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is an HTML page", p.path);
    } else if (format == &ckpt_format_safetensors) {
        s->file = p.file;
        p.took = true;
        rc = safetensors_read(list, s->file, h->n_shard == 1 ? &h->metadata : NULL, err);
    } else {
        rc = add_source(s, list, &p, format, err);
    }
    s->end = list->n;
    place_close(&p);
    return rc;
}

/* The distinct files of the map, in order of first mention. */
struct files {
    const char **name;
    size_t       n;
    json_t      *number;        /* name -> index */
};

static int list_files(struct files *f, struct ckpt_arena *a, const json_t *map,
                      struct ckpt_err *err)
{
    const char *tensor;
    json_t *v;

    f->name = ckpt_arena_alloc(a, json_object_size(map) + 1, sizeof *f->name);
    f->number = json_object();
    if (!f->name || !f->number)
        return ckpt_nomem(err, json_object_size(map) * sizeof *f->name);
    json_object_foreach ((json_t *)map, tensor, v) {
        const char *name = json_string_value(v);

        if (!name)
            return ckpt_fail(err, CKPT_EFORMAT, "weight_map: %s is mapped to no file name", tensor);
        if (json_object_get(f->number, name))
            continue;
        if (f->n == MAX_SHARDS)
            return ckpt_fail(err, CKPT_ELIMIT, "weight_map: more than %d files", MAX_SHARDS);
        f->name[f->n] = ckpt_arena_strndup(a, name, json_string_length(v));
        if (!f->name[f->n] ||
            json_object_set_new(f->number, name, json_integer((json_int_t)f->n)))
            return ckpt_nomem(err, json_string_length(v));
        f->n++;
    }
    return 0;
}

/* Report at once all files that a download or a copy lacks. */
static int check_files(const struct hf *h, const struct files *f, struct ckpt_err *err)
{
    size_t absent = 0, first = 0;

    for (size_t i = f->n; i-- > 0;)
        if (ckpt_file_name_is_clean(f->name[i]) && !ckpt_dir_has(h->dir, f->name[i])) {
            absent++;
            first = i;
        }
    if (absent == 0)
        return 0;
    if (absent == f->n)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                            "stale index: none of the %zu files it names is there", f->n);
    return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                        "%s is not there: %zu of %zu files are absent", f->name[first],
                        absent, f->n);
}

/* Check that every mapped tensor is in its file, and that every tensor of a file is mapped. */
static int check_map(const struct hf *h, const struct ckpt_tensors *list, const json_t *map,
                     const struct files *f, struct ckpt_err *err)
{
    const char *tensor;
    json_t *v;

    assert(h->shard);
    json_object_foreach ((json_t *)map, tensor, v) {
        size_t i = ckpt_tensors_find(list, tensor);
        size_t s = (size_t)json_integer_value(json_object_get(f->number, json_string_value(v)));

        if (i == SIZE_MAX || i < h->shard[s].first || i >= h->shard[s].end)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "the index maps %s to %s, which does not have it", tensor,
                                json_string_value(v));
    }
    if (list->n == json_object_size(map))
        return 0;
    for (size_t s = 0; s < h->n_shard; s++)
        for (size_t i = h->shard[s].first; i < h->shard[s].end; i++) {
            assert(list->item);
            if (!json_object_get(map, list->item[i].name))
                return ckpt_fail_as(err, CKPT_EFORMAT, "unexpected",
                                    "%s has %s, which the index does not name", f->name[s],
                                    list->item[i].name);
        }
    return 0;
}

static int open_indexed(struct hf *h, struct ckpt_tensors *list, const struct kind *k,
                        struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *file = NULL;
    json_t *index = NULL, *map;
    struct files f = {0};
    int rc = ckpt_file_open_at(&file, h->dir, k->file, err);

    if (rc == 0)
        rc = ckpt_json_read(&index, file, CKPT_JSON_MAX_BYTES, 0, err);
    if (rc == 0)
        rc = ckpt_json_get(&map, index, "weight_map", JSON_OBJECT, err);
    if (rc == 0)
        rc = list_files(&f, &a, map, err);
    if (rc == 0)
        rc = check_files(h, &f, err);
    if (rc == 0)
        rc = ckpt_dir_expect(h->dir, f.name, f.n, err);
    if (rc == 0 && !(h->shard = ckpt_alloc(f.n, sizeof *h->shard)))
        rc = ckpt_nomem(err, f.n * sizeof *h->shard);
    for (size_t i = 0; rc == 0 && i < f.n; i++)
        rc = add_shard(h, list, k->format, f.name[i], err);
    if (rc == 0)
        rc = check_map(h, list, map, &f, err);
    ckpt_file_close(file);
    json_decref(index);
    json_decref(f.number);
    ckpt_arena_release(&a);
    return rc ? ckpt_err_in(err, "%s", k->file) : 0;
}

static int open_single(struct hf *h, struct ckpt_tensors *list, const struct kind *k,
                       struct ckpt_err *err)
{
    h->shard = ckpt_alloc(1, sizeof *h->shard);
    return h->shard ? add_shard(h, list, k->format, k->file, err)
                    : ckpt_nomem(err, sizeof *h->shard);
}

/* config.json, when there, becomes a fact. */
static void add_config(json_t *info, const struct hf *h)
{
    for (size_t i = 0; i < h->side.n; i++) {
        struct ckpt_err ignored = {0};
        json_t *config;

        if (strcmp(h->side.item[i].name, "config.json") == 0 &&
            ckpt_json_read(&config, h->side.item[i].file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON,
                           &ignored) == 0)
            json_object_set_new(info, "config", config);
    }
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    const struct kind *k = place->dir ? kind_of(place) : NULL;
    struct ckpt_tensors list = {0};
    struct hf *h;
    json_t *info;
    int rc;

    (void)opts;
    *out = NULL;
    if (!k)
        return ckpt_fail(err, CKPT_ENOTFOUND,
                         "%s: no model.safetensors or pytorch_model.bin, whole or sharded",
                         place->path);
    h = ckpt_alloc(1, sizeof *h);
    if (!h)
        return ckpt_nomem(err, sizeof *h);
    h->dir = place->dir;
    place->took = true;
    if (place_has(place, "adapter_config.json") &&
        (place_has(place, "adapter_model.safetensors") || place_has(place, "adapter_model.bin")))
        ckpt_log(CKPT_LOG_NOTE, "%s: holds an adapter beside the model, which is not applied: "
                                "--adapter folds it in", place->path);
    rc = k->index ? open_indexed(h, &list, k, err) : open_single(h, &list, k, err);
    if (rc == 0)
        rc = side_files_open(&h->side, h->dir, &list.arena, err);
    if (rc) {
        close_hf(h);
        ckpt_tensors_release(&list);
        return rc;
    }
    info = json_pack("{s:s,s:I,s:s}", "format", "hf", "shards", (json_int_t)h->n_shard,
                     "weights", k->format->name);
    if (info) {
        if (h->metadata)
            json_object_set(info, "metadata", h->metadata);
        add_config(info, h);
    }
    rc = ckpt_source_new(out, &ops, h, &list, h->side.item, h->side.n, info, err);
    if (rc == 0)
        h->list = ckpt_source_tensors(*out);
    return rc;
}

const struct ckpt_format ckpt_format_hf = {
    .name = "hf", .title = "Hugging Face model directory", .bid = bid, .open = open_source,
    .create = hf_dir_create,
};
