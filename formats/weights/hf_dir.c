/* hf_dir - see hf_dir.h. */
#include "formats/weights/hf_dir.h"

#include <string.h>

#include "formats/place.h"
#include "formats/weights/hf_dir_out.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/side_files.h"
#include "formats/weights/torch.h"
#include "libckpt/json.h"

#define MAX_SHARDS 100000

/* What a directory is recognised and opened by, the surest first. */
static const struct kind {
    const char               *file;         /* one file, or the index */
    bool                      index;
    const struct ckpt_format *format;
} kinds[] = {
    {"model.safetensors.index.json", true, &ckpt_format_safetensors},
    {"model.safetensors", false, &ckpt_format_safetensors},
    {"pytorch_model.bin.index.json", true, &ckpt_format_torch},
    {"pytorch_model.bin", false, &ckpt_format_torch},
};

struct hf {
    struct ckpt_dir     *dir;
    struct ckpt_source **shard;
    size_t               n_shard;
    struct side_files    side;
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

    for (size_t i = 0; i < h->n_shard; i++)
        ckpt_source_close(h->shard[i]);
    ckpt_free(h->shard);
    side_files_close(&h->side);
    ckpt_dir_close(h->dir);
    ckpt_free(h);
}

/* Only a read error of a shard that went away can come here: fragments do the work. */
static const struct ckpt_source_ops ops = {.format = "hf", .close = close_hf};

/* Open one shard and list its tensors as ours; their fragments stay the shard's. */
static int add_shard(struct hf *h, struct ckpt_tensors *list, const struct ckpt_format *format,
                     const char *name, struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    struct ckpt_place p;
    struct ckpt_source *s = NULL;
    struct ckpt_file *file;
    size_t first = list->n;
    int rc;

    if (!ckpt_name_is_clean(name))
        return ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "shard %s: no clean name", name);
    if (ckpt_file_open_at(&file, h->dir, name, err) || place_of_file(&p, file, err))
        return err->code;
    if (p.head_len > 23 && memcmp(p.head, "version https://git-lfs", 23) == 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED,
                       "%s: is a Git LFS pointer, the file itself was not fetched", p.path);
    else
        rc = format->open(&s, &p, &none, err);
    place_close(&p);
    if (rc)
        return rc;
    h->shard[h->n_shard++] = s;
    for (size_t i = 0; i < ckpt_source_count(s); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
        struct ckpt_tensor *added;

        if (ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape, t->frag,
                             t->n_frag, t->flat, err))
            return ckpt_err_in(err, "%s", name);
        added->alias_of = first + t->alias_of;
    }
    return 0;
}

/* Every mapped tensor is in its file; every tensor of a file is mapped. */
static int check_map(const struct hf *h, const json_t *map, const char *const *name,
                     struct ckpt_err *err)
{
    const char *tensor;
    size_t n = 0;
    json_t *v;

    json_object_foreach ((json_t *)map, tensor, v) {
        size_t s = 0;

        while (s < h->n_shard && strcmp(name[s], json_string_value(v)) != 0)
            s++;
        if (s == h->n_shard || ckpt_source_find(h->shard[s], tensor) == SIZE_MAX)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "the index maps %s to %s, which does not have it", tensor,
                                json_string_value(v));
        n++;
    }
    for (size_t s = 0; s < h->n_shard; s++)
        for (size_t i = 0; i < ckpt_source_count(h->shard[s]); i++) {
            tensor = ckpt_source_tensor(h->shard[s], i)->name;
            if (!json_object_get(map, tensor))
                return ckpt_fail_as(err, CKPT_EFORMAT, "unexpected",
                                    "%s has %s, which the index does not name", name[s], tensor);
        }
    return 0;
}

/* The distinct files of the map, in order of first mention. */
static int list_shards(const char ***out, size_t *n, struct ckpt_arena *a, const json_t *map,
                       struct ckpt_err *err)
{
    const char **name = ckpt_arena_alloc(a, json_object_size(map) + 1, sizeof *name), *tensor;
    json_t *seen = json_object(), *v;
    int rc = name && seen ? 0 : ckpt_nomem(err, json_object_size(map) * sizeof *name);

    *n = 0;
    json_object_foreach ((json_t *)map, tensor, v) {
        if (rc)
            break;
        if (!json_is_string(v)) {
            rc = ckpt_fail(err, CKPT_EFORMAT, "weight_map: %s is mapped to no file name", tensor);
        } else if (!json_object_get(seen, json_string_value(v))) {
            if (*n == MAX_SHARDS)
                rc = ckpt_fail(err, CKPT_ELIMIT, "weight_map: more than %d files", MAX_SHARDS);
            else if (json_object_set_new(seen, json_string_value(v), json_true()))
                rc = ckpt_nomem(err, 64);
            else
                name[(*n)++] = ckpt_arena_strndup(a, json_string_value(v), json_string_length(v));
        }
    }
    json_decref(seen);
    *out = name;
    return rc;
}

static int open_indexed(struct hf *h, struct ckpt_tensors *list, const struct kind *k,
                        struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *file = NULL;
    json_t *index = NULL, *map;
    const char **name;
    size_t n = 0, absent = 0;
    int rc = ckpt_file_open_at(&file, h->dir, k->file, err);

    if (rc == 0)
        rc = ckpt_json_read(&index, file, CKPT_JSON_MAX_BYTES, 0, err);
    if (rc == 0)
        rc = ckpt_json_get(&map, index, "weight_map", JSON_OBJECT, err);
    if (rc == 0)
        rc = list_shards(&name, &n, &a, map, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        absent += !ckpt_dir_has(h->dir, name[i]);
    if (rc == 0 && n > 0 && absent == n)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                          "stale index: none of the %zu files it names is there", n);
    if (rc == 0 && !(h->shard = ckpt_alloc(n, sizeof *h->shard)))
        rc = ckpt_nomem(err, n * sizeof *h->shard);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_shard(h, list, k->format, name[i], err);
    if (rc == 0)
        rc = check_map(h, map, name, err);
    ckpt_file_close(file);
    json_decref(index);
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
        const json_t *m = json_object_get(ckpt_source_info(h->shard[0]), "metadata");

        if (h->n_shard > 0 && m)
            json_object_set(info, "metadata", (json_t *)m);
        add_config(info, h);
    }
    return ckpt_source_new(out, &ops, h, &list, h->side.item, h->side.n, info, err);
}

const struct ckpt_format ckpt_format_hf = {
    .name = "hf", .title = "Hugging Face model directory", .bid = bid, .open = open_source,
    .create = hf_dir_create,
};
