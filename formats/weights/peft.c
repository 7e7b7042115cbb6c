/* peft - see peft.h.  Folding one into its base is in peft_merge.c. */
#include "formats/weights/peft.h"

#include <string.h>

#include "formats/place.h"
#include "formats/weights/peft_out.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/torch.h"
#include "libckpt/json.h"

static const struct kind { const char *file; const struct ckpt_format *format; } kinds[] = {
    {"adapter_model.safetensors", &ckpt_format_safetensors},
    {"adapter_model.bin", &ckpt_format_torch},
};

struct peft {
    struct ckpt_dir    *dir;
    struct ckpt_source *weights;
};

static void close_peft(void *self)
{
    struct peft *p = self;

    ckpt_source_close(p->weights);
    ckpt_dir_close(p->dir);
    ckpt_free(p);
}

static const struct ckpt_source_ops ops = {.format = "peft", .close = close_peft};

static const struct kind *kind_of(const struct ckpt_place *p)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (place_has(p, kinds[i].file))
            return &kinds[i];
    return NULL;
}

static int bid(const struct ckpt_place *p)
{
    return p->dir && place_has(p, "adapter_config.json") && kind_of(p) ? 60 : 0;
}

static int open_weights(struct peft *p, struct ckpt_tensors *list, const struct kind *k,
                        struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_open_at(&file, p->dir, k->file, err) || place_of_file(&place, file, err))
        return err->code;
    if (k->format->open(&p->weights, &place, &none, err)) {
        place_close(&place);
        return err->code;
    }
    for (size_t i = 0; i < ckpt_source_count(p->weights); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(p->weights, i);

        if (ckpt_tensors_add(list, NULL, t->name, strlen(t->name), t->dtype, &t->shape, t->frag,
                             t->n_frag, t->flat, err))
            return err->code;
    }
    return 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    const struct kind *k = place->dir ? kind_of(place) : NULL;
    struct ckpt_tensors list = {0};
    struct ckpt_file *file = NULL;
    json_t *config = NULL;
    struct peft *p;
    int rc;

    (void)opts;
    *out = NULL;
    if (!k)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no adapter_model.safetensors or .bin in it",
                         place->path);
    p = ckpt_alloc(1, sizeof *p);
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    p->dir = place->dir;
    place->took = true;
    rc = ckpt_file_open_at(&file, p->dir, "adapter_config.json", err);
    if (rc == 0)
        rc = ckpt_json_read(&config, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    if (rc == 0)
        rc = open_weights(p, &list, k, err);
    if (rc) {
        json_decref(config);
        ckpt_tensors_release(&list);
        close_peft(p);
        return rc;
    }
    return ckpt_source_new(out, &ops, p, &list, NULL, 0,
                           json_pack("{s:s,s:o}", "format", "peft", "adapter_config", config), err);
}

const struct ckpt_format ckpt_format_peft = {
    .name = "peft", .title = "LoRA adapter", .bid = bid, .open = open_source,
    .create = peft_create,
};
