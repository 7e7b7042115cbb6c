/* deepspeed/pipe - see deepspeed/pipe.h. */
#include "formats/deepspeed/pipe.h"

#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/module.h"
#include "libckpt/convert.h"

#define MAX_LAYER 100000
#define CHUNK     2048          /* elements compared at once */

bool ds_layer_file(size_t *layer, bool *tensor_parallel, const char *name)
{
    char *end;

    *tensor_parallel = false;
    if (strncmp(name, "layer_", 6) != 0 || name[6] < '0' || name[6] > '9')
        return false;
    *layer = strtoul(name + 6, &end, 10);
    if (strncmp(end, "-model_", 7) == 0 && end[7] >= '0' && end[7] <= '9') {
        *tensor_parallel = true;
        strtoul(end + 7, &end, 10);
    }
    return *layer < MAX_LAYER && strcmp(end, "-model_states.pt") == 0;
}

/* -- opening --------------------------------------------------------------------------------- */

static int add_tensor(struct ds_layers *l, size_t layer, const char *name,
                      const struct value_tensor *t, const struct torch_archive *a,
                      struct ckpt_err *err)
{
    const char *full = ckpt_arena_printf(&l->arena, "%zu.%s", layer, name);

    if (ckpt_reserve(&l->item, l->n, &l->cap, sizeof *l->item, err))
        return CKPT_ENOMEM;
    if (!full)
        return ckpt_nomem(err, strlen(name));
    l->item[l->n++] = (struct ds_layer_tensor){.name = full, .t = t, .archive = a};
    return 0;
}

static int open_layer(struct ds_layers *l, struct ckpt_dir *dir, size_t layer, const char *file,
                      struct ckpt_err *err)
{
    const struct value *root;
    struct torch_archive **a = &l->file[l->n_file];
    int rc;

    if (l->n_file > 0 && l->number[l->n_file - 1] == layer)
        return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate", "%s: another file is of that layer",
                            file);
    if ((rc = ds_archive_open(a, &root, dir, file, err)) != 0)
        return rc;
    l->number[l->n_file++] = layer;
    for (size_t i = 0; i < root->u.dict.n; i++) {
        const char *name = value_as_str(root->u.dict.key[i]);
        const struct value *v = root->u.dict.val[i];

        if (name && value_is(v, VALUE_TENSOR) &&
            (rc = add_tensor(l, layer, name, v->u.tensor, *a, err)) != 0)
            return rc;
    }
    return 0;
}

struct found { size_t layer; const char *name; };

static int by_layer(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

int ds_layers_open(struct ds_layers **out, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                   size_t n, struct ckpt_err *err)
{
    struct ds_layers *l = *out = ckpt_alloc(1, sizeof *l);
    struct found *found;
    size_t k = 0;
    bool sliced;
    int rc;

    if (!l)
        return ckpt_nomem(err, sizeof *l);
    found = ckpt_arena_alloc(&l->arena, n, sizeof *found);
    l->file = ckpt_arena_alloc(&l->arena, n, sizeof *l->file);
    l->number = ckpt_arena_alloc(&l->arena, n, sizeof *l->number);
    if (!found || !l->file || !l->number)
        return ckpt_nomem(err, n * sizeof *found);
    for (size_t i = 0; i < n; i++) {
        if (!entry[i].is_file || !ds_layer_file(&found[k].layer, &sliced, entry[i].name))
            continue;
        if (sliced)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: a slice of a layer, of a tensor-parallel "
                             "checkpoint: how slices go together is not in it", entry[i].name);
        found[k++].name = entry[i].name;
    }
    qsort(found, k, sizeof *found, by_layer);
    for (size_t i = 0; i < k; i++)
        if ((rc = open_layer(l, dir, found[i].layer, found[i].name, err)) != 0)
            return rc;
    return 0;
}

void ds_layers_close(struct ds_layers *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n_file; i++)
        torch_archive_close(l->file[i]);
    ckpt_free(l->item);
    ckpt_arena_release(&l->arena);
    ckpt_free(l);
}

/* -- listing --------------------------------------------------------------------------------- */

/* Whether a listed tensor, rounded to the layer's dtype, equals the layer's. */
static int rounds_to(bool *same, const struct ckpt_tensor *listed, const struct ds_layer_tensor *l,
                     struct ckpt_err *err)
{
    unsigned char wide[CHUNK * 8], rounded[CHUNK * 8], found[CHUNK * 8];
    const struct ckpt_shape flat = ckpt_shape_1d(listed->numel);
    int rc = 0;

    *same = ckpt_shape_equal(&listed->shape, &l->t->shape) && listed->numel > 0 &&
            ckpt_convert_can(l->t->dtype, listed->dtype) && ckpt_dtype_size(l->t->dtype) <= 8 &&
            ckpt_dtype_size(listed->dtype) <= 8;
    for (int64_t at = 0; rc == 0 && *same && at < listed->numel; at += CHUNK) {
        int64_t n = listed->numel - at < CHUNK ? listed->numel - at : CHUNK;

        rc = ckpt_fragment_gather(wide, listed->flat ? &flat : &listed->shape, listed->dtype,
                                  listed->frag, listed->n_frag, at, n, err);
        if (rc == 0)
            rc = torch_archive_read(found, l->archive, l->t, at, n, err);
        ckpt_convert(rounded, l->t->dtype, wide, listed->dtype, rc ? 0 : (size_t)n);
        *same = rc == 0 && memcmp(rounded, found, (size_t)n * ckpt_dtype_size(l->t->dtype)) == 0;
    }
    return rc;
}

bool ds_layer_may_be_tied(const char *tied, const char *name)
{
    const char *rest = strchr(name, '.'), *of;

    if (strncmp(tied, "tied_modules.", 13) != 0)
        return false;
    of = strchr(tied + 13, '.');
    return of && strcmp(of, rest) == 0;
}

static int list_one(struct ckpt_tensors *list, const struct ds_layer_tensor *l, bool buffer,
                    struct ckpt_err *err)
{
    size_t n = list->n;
    bool same = false;
    int rc;

    for (size_t k = 0; k < n; k++) {
        if (list->item[k].kind != CKPT_WEIGHT || !ds_layer_may_be_tied(list->item[k].name, l->name))
            continue;
        if ((rc = rounds_to(&same, &list->item[k], l, err)) != 0)
            return rc;
        if (same)
            return ds_alias_add(list, l->name, k, err);
    }
    return ds_tensor_add(list, l->archive, l->name, l->t, buffer ? CKPT_BUFFER : CKPT_WEIGHT, err);
}

bool ds_layer_buffer(const struct ds_files *f, const char *name)
{
    const struct value *v = value_get(f->rank[0].model_root, "buffer_names");

    for (size_t i = 0; value_is(v, VALUE_LIST) && i < v->u.seq.n; i++)
        if (value_as_str(v->u.seq.item[i]) && strcmp(value_as_str(v->u.seq.item[i]), name) == 0)
            return true;
    return false;
}

static bool is_buffer(const struct ds_files *f, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (ds_layer_buffer(&f[i], name))
            return true;
    return false;
}

static bool has_layer(const struct ds_layers *l, size_t layer)
{
    for (size_t i = 0; i < l->n_file; i++)
        if (l->number[i] == layer)
            return true;
    return false;
}

int ds_layers_list(struct ckpt_tensors *list, const struct ds_files *f, size_t n,
                   struct ckpt_err *err)
{
    const struct ds_layers *l = f[0].layers;
    int rc;

    for (size_t i = 0; i < list->n; i++) {
        char *end;
        size_t layer = strtoul(list->item[i].name, &end, 10);

        if (end != list->item[i].name && *end == '.' && !has_layer(l, layer))
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "layer_%02zu-model_states.pt: is "
                                "absent, the optimizer has %s", layer, list->item[i].name);
    }
    for (size_t i = 0; i < l->n; i++)
        if (ckpt_tensors_find(list, l->item[i].name) == SIZE_MAX &&
            (rc = list_one(list, &l->item[i], is_buffer(f, n, l->item[i].name), err)) != 0)
            return rc;
    return 0;
}
