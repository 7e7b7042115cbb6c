/* peft - see peft.h.  Folding one into its base is in peft/merge.c. */
#include "formats/peft/peft.h"

#include <string.h>

#include "formats/place.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/peft/live.h"
#include "formats/peft/out.h"
#include "formats/hf/safetensors.h"
#include "formats/torch/torch.h"
#include "libckpt/base/json.h"

static const struct kind { const char *file; const struct ckpt_format *format; } kinds[] = {
    {"adapter_model.safetensors", &ckpt_format_safetensors},
    {"adapter_model.bin", &ckpt_format_torch},
};

/* Shards, if any, and files saved by PEFT: at least one of both. */
struct peft {
    struct ckpt_dir      *dir;          /* NULL: the shards own it */
    struct ckpt_source   *part[2];
    size_t                n;
    struct peft_live_list list;         /* tensor -> part and index there */
    struct ckpt_arena     arena;
};

static void close_peft(void *self)
{
    struct peft *p = self;

    for (size_t i = 0; i < p->n; i++)
        ckpt_source_close(p->part[i]);
    ckpt_dir_close(p->dir);
    ckpt_arena_release(&p->arena);
    ckpt_free(p);
}

static int read_peft(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    const struct peft *p = self;
    const struct peft_live_item *it = &p->list.item[i];

    return ckpt_source_read(p->part[it->source], it->index, start, count, dst, err);
}

static bool locate_peft(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    const struct peft *p = self;
    const struct peft_live_item *it = &p->list.item[i];

    return ckpt_source_locate(p->part[it->source], it->index, start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "peft", .read = read_peft, .locate = locate_peft, .close = close_peft,
};

struct ckpt_dir *peft_source_dir(const struct ckpt_source *src)
{
    const struct peft *p = src ? ckpt_source_self(src, &ops) : NULL;

    return p ? p->dir : NULL;
}

static const struct kind *kind_of(const struct ckpt_place *p)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (place_has(p, kinds[i].file))
            return &kinds[i];
    return NULL;
}

/*
 * Shards that are used: a DeepSpeed run has its 32-bit weights there, while adapter_model has at
 * most rounded ones; for other programs both are equal.
 */
static const struct ckpt_format *shards_of(const struct ckpt_place *p)
{
    const struct ckpt_format *f = peft_live_shards(p);

    return f == &ckpt_format_deepspeed || !kind_of(p) ? f : NULL;
}

static int bid(const struct ckpt_place *p)
{
    if (!p->dir || !place_has(p, "adapter_config.json"))
        return 0;
    return shards_of(p) ? 95 : !kind_of(p) ? 0 : peft_live_shards(p) ? 95 : 60;
}

/* Open the files that PEFT saved, in place's directory. */
static int open_saved(struct peft *p, const struct ckpt_place *place, const struct kind *k,
                      struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    struct ckpt_place inner;
    struct ckpt_file *file;
    int rc;

    if ((rc = ckpt_file_open_at(&file, place->dir, k->file, err)) != 0 ||
        (rc = place_of_file(&inner, file, err)) != 0)
        return rc;
    rc = k->format->open(&p->part[p->n], &inner, &none, err);
    if (rc)
        place_close(&inner);
    p->n += rc == 0;
    return rc;
}

/* List everything in the only part, in its order and under its names. */
static int list_saved(struct peft *p, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(p->part[0]);

    p->list.item = ckpt_arena_alloc(&p->arena, n + 1, sizeof *p->list.item);
    if (!p->list.item)
        return ckpt_nomem(err, n * sizeof *p->list.item);
    for (; p->list.n < n; p->list.n++)
        p->list.item[p->list.n] = (struct peft_live_item){
            .name = ckpt_source_tensor(p->part[0], p->list.n)->name, .index = p->list.n};
    return 0;
}

static int fill_list(struct ckpt_tensors *list, const struct peft *p, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < p->list.n; i++) {
        const struct peft_live_item *it = &p->list.item[i];
        const struct ckpt_tensor *t = ckpt_source_tensor(p->part[it->source], it->index);
        struct ckpt_tensor *added;

        if ((rc = ckpt_tensors_add(list, &added, it->name, strlen(it->name), t->dtype, &t->shape,
                                   t->frag, t->n_frag, t->flat, err)) != 0)
            return rc;
        added->kind = t->kind;
        added->unread = t->unread;
    }
    return 0;
}

/* The facts of the shards, and the adapter's name. */
static json_t *facts(const struct peft *p, const struct ckpt_format *shards, json_t *config)
{
    json_t *info = shards ? json_copy((json_t *)ckpt_source_info(p->part[0])) : json_object();

    if (shards) {
        json_object_set_new(info, "shards", json_string(shards->name));
        json_object_set_new(info, "metadata", json_pack("{s:s}", "format", "pt"));
    }
    json_object_set_new(info, "format", json_string("peft"));
    json_object_set(info, "adapter_config", config);
    return info;
}

static int read_config(json_t **config, const struct ckpt_place *place, struct ckpt_err *err)
{
    struct ckpt_file *file = NULL;
    int rc = ckpt_file_open_at(&file, place->dir, "adapter_config.json", err);

    if (rc == 0)
        rc = ckpt_json_read(config, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    return rc;
}

static int open_parts(struct peft *p, struct ckpt_place *place, const struct ckpt_open_opts *opts,
                      const struct ckpt_format *shards, const json_t *config,
                      struct ckpt_err *err)
{
    const struct kind *k = kind_of(place);
    const char *path = place->path;
    int rc;

    if (shards && (rc = shards->open(&p->part[0], place, opts, err)) != 0)
        return rc;
    p->n += shards != NULL;
    p->dir = shards ? NULL : place->dir;
    place->took = true;
    if (k && (rc = open_saved(p, place, k, err)) != 0)
        return rc;
    if (!shards)
        return list_saved(p, err);
    rc = peft_live_find(&p->list, p->part, p->n, config, &p->arena, err);
    return rc ? ckpt_err_in(err, "%s", path) : 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    const struct ckpt_format *shards = place->dir ? shards_of(place) : NULL;
    struct ckpt_tensors list = {0};
    json_t *config = NULL, *info;
    struct peft *p;
    int rc;

    *out = NULL;
    if (!place->dir || (!shards && !kind_of(place)))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no adapter_model.safetensors or .bin in it",
                         place->path);
    if (shards && opts->shards)
        return shards->open(out, place, opts, err);
    p = ckpt_alloc(1, sizeof *p);
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    rc = read_config(&config, place, err);
    if (rc == 0)
        rc = open_parts(p, place, opts, shards, config, err);
    if (rc == 0)
        rc = fill_list(&list, p, err);
    info = rc ? NULL : facts(p, shards, config);
    json_decref(config);
    if (rc) {
        ckpt_tensors_release(&list);
        close_peft(p);
        return rc;
    }
    return ckpt_source_new(out, &ops, p, &list, NULL, 0, info, err);
}

const struct ckpt_format ckpt_format_peft = {
    .name = "peft", .title = "LoRA adapter", .bid = bid, .open = open_source,
    .create = peft_create,
};
