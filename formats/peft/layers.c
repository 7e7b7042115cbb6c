/* peft/layers - see peft/layers.h. */
#include "formats/peft/layers.h"

#include <stdlib.h>
#include <string.h>

#include "formats/families/family.h"
#include "libckpt/views/views.h"

#define MAX_LAYERS 10000

/* The number of the layer in a name, and its position; false for none. */
static bool layer_of(size_t *layer, const char **digits, const char **rest, const char *name)
{
    char *end;

    *digits = family_block_number(name);
    while (!*digits && strncmp(name, "model.", 6) == 0) {
        name += 6;
        *digits = family_block_number(name);
    }
    if (!*digits)
        return false;
    *layer = strtoul(*digits, &end, 10);
    *rest = end;
    return *end == '.' && *layer < MAX_LAYERS;
}

static size_t count_layers(const struct ckpt_source *base)
{
    const char *digits, *rest;
    size_t n = 0, layer;

    for (size_t i = 0; i < ckpt_source_count(base); i++)
        if (layer_of(&layer, &digits, &rest, ckpt_source_tensor(base, i)->name) && layer >= n)
            n = layer + 1;
    return n;
}

/* [[first, end], ...] as a list of layers. */
static int read_map(struct peft_layers *l, const json_t *map, struct ckpt_arena *a,
                    struct ckpt_err *err)
{
    l->from = ckpt_arena_alloc(a, MAX_LAYERS, sizeof *l->from);
    if (!l->from)
        return ckpt_nomem(err, MAX_LAYERS * sizeof *l->from);
    for (size_t i = 0; i < json_array_size(map); i++) {
        const json_t *range = json_array_get(map, i);
        json_int_t first = json_integer_value(json_array_get(range, 0));
        json_int_t end = json_integer_value(json_array_get(range, 1));

        if (json_array_size(range) != 2 || !json_is_integer(json_array_get(range, 0)) ||
            !json_is_integer(json_array_get(range, 1)) || first < 0 || end <= first)
            return ckpt_fail(err, CKPT_EFORMAT, "layer_replication: entry %zu is no range", i);
        if ((uint64_t)end > l->n_base)
            return ckpt_fail(err, CKPT_EMISMATCH, "layer_replication: layers %lld to %lld, "
                             "the base has %zu", (long long)first, (long long)end, l->n_base);
        if ((uint64_t)(end - first) > MAX_LAYERS - l->n)
            return ckpt_fail(err, CKPT_ELIMIT, "layer_replication: more than %d layers",
                             MAX_LAYERS);
        for (json_int_t k = first; k < end; k++)
            l->from[l->n++] = (size_t)k;
    }
    return l->n ? 0 : ckpt_fail(err, CKPT_EFORMAT, "layer_replication: no range");
}

/* Add tensor i once for each use of its layer, with the number of that use. */
static int add_uses(struct view *v, struct ckpt_tensors *list, const struct peft_layers *l,
                    size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(v->below, i);
    const char *digits, *rest;
    struct ckpt_arena a = {0};
    size_t layer;
    int rc = 0;

    if (!layer_of(&layer, &digits, &rest, t->name))
        return view_add(v, list, i, t->name, t->dtype, err);
    for (size_t k = 0; rc == 0 && k < l->n; k++) {
        char *name = l->from[k] == layer
                         ? ckpt_arena_printf(&a, "%.*s%zu%s", (int)(digits - t->name), t->name, k,
                                             rest) : NULL;

        if (name)
            rc = view_add(v, list, i, name, t->dtype, err);
        else if (l->from[k] == layer)
            rc = ckpt_nomem(err, strlen(t->name));
    }
    ckpt_arena_release(&a);
    return rc;
}

/* How many tensors there will be. */
static size_t count_uses(const struct ckpt_source *base, const struct peft_layers *l)
{
    const char *digits, *rest;
    size_t n = 0, layer;

    for (size_t i = 0; i < ckpt_source_count(base); i++) {
        bool in_layer = layer_of(&layer, &digits, &rest, ckpt_source_tensor(base, i)->name);

        n += !in_layer;
        for (size_t k = 0; in_layer && k < l->n; k++)
            n += l->from[k] == layer;
    }
    return n;
}

static int replicate(struct ckpt_source **out, struct ckpt_source *base,
                     const struct peft_layers *l, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(base), uses = count_uses(base, l), layer;
    struct ckpt_tensors list = {0};
    const char *digits, *rest;
    struct view *v;
    int rc;

    if (uses > CKPT_MAX_TENSORS) {
        ckpt_source_close(base);
        return ckpt_fail(err, CKPT_ELIMIT, "layer_replication: %zu tensors", uses);
    }
    if ((rc = view_new(&v, sizeof *v, base, uses, err)) != 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_uses(v, &list, l, i, err);
    if (rc == 0)
        rc = view_tie(v, &list, err);
    for (size_t i = 0; rc == 0 && i < list.n; i++)
        if (layer_of(&layer, &digits, &rest, list.item[i].name))
            list.item[i].alias_of = i;          /* copies are independent */
    return view_finish(out, &view_plain_ops, v, &list, rc, err);
}

int peft_replicate(struct ckpt_source **out, struct peft_layers *layers, struct ckpt_source *base,
                   const json_t *map, struct ckpt_arena *a, struct ckpt_err *err)
{
    *layers = (struct peft_layers){.n_base = count_layers(base)};
    *out = NULL;
    if (!map || json_is_null(map)) {
        *out = base;
        return 0;
    }
    if (!json_is_array(map))
        ckpt_fail(err, CKPT_EFORMAT, "layer_replication is no list");
    else if (layers->n_base == 0)
        ckpt_fail(err, CKPT_EMISMATCH,
                  "layer_replication: the base has no layers of a known name");
    else if (read_map(layers, map, a, err) == 0)
        return replicate(out, base, layers, err);
    ckpt_source_close(base);
    return ckpt_err_in(err, "adapter_config.json");
}
