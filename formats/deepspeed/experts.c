/* deepspeed/experts - see deepspeed/experts.h. */
#include "formats/deepspeed/experts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/module.h"

#define MARK       ".deepspeed_experts."
#define MAX_EXPERT 1000000

/* -- names ----------------------------------------------------------------------------------- */

/* A decimal number without leading zeros; the character after it, or NULL. */
static const char *read_number(size_t *out, const char *s)
{
    char *end;
    unsigned long n;

    if (*s < '0' || *s > '9' || (s[0] == '0' && s[1] >= '0' && s[1] <= '9'))
        return NULL;
    n = strtoul(s, &end, 10);
    *out = n;
    return n < MAX_EXPERT ? end : NULL;
}

/* Layer and expert in a name; old files have no layer: SIZE_MAX. */
static bool expert_of(size_t *layer, size_t *expert, const char *name)
{
    *layer = SIZE_MAX;
    if (strncmp(name, "layer_", 6) == 0) {
        name = read_number(layer, name + 6);
        if (!name || *name++ != '_')
            return false;
    }
    if (strncmp(name, "expert_", 7) != 0)
        return false;
    name = read_number(expert, name + 7);
    return name && strcmp(name, "_mp_rank_00_model_states.pt") == 0;
}

static bool optim_of(size_t *p, const char *name)
{
    if (strncmp(name, "expp_rank_", 10) != 0)
        return false;
    name = read_number(p, name + 10);
    return name && strcmp(name, "_mp_rank_00_optim_states.pt") == 0;
}

bool ds_expert_file(const char *name)
{
    size_t a, b;

    return expert_of(&a, &b, name) || optim_of(&a, name);
}

/* Split "<layer's prefix, with mark><number><rest>". */
static bool split(size_t *prefix, size_t *number, const char **rest, const char *name)
{
    const char *at = strstr(name, MARK);

    if (!at)
        return false;
    *prefix = (size_t)(at - name) + strlen(MARK);
    *rest = read_number(number, name + *prefix);
    return *rest && **rest == '.';
}

/* -- opening --------------------------------------------------------------------------------- */

/* Number of experts of MoE layer L in the model file: one per layer, or in old files one for
 * all. */
static size_t n_experts(const struct ds_files *f, size_t layer)
{
    const struct value *v = value_get(f->rank[0].model_root, "num_experts");
    int64_t n = 0;

    if (layer == SIZE_MAX && (value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE)))
        layer = 0;
    if (!value_as_int(v, &n))
        value_as_int(value_item(v, layer), &n);
    return n > 0 && n < MAX_EXPERT ? (size_t)n : 0;
}

/* Number of layers in num_experts; 1 when it is one number. */
static size_t layers(const struct ds_files *f)
{
    const struct value *v = value_get(f->rank[0].model_root, "num_experts");

    return value_is(v, VALUE_LIST) || value_is(v, VALUE_TUPLE) ? v->u.seq.n
                                                               : n_experts(f, 0) > 0;
}

static int add_tensor(struct ds_experts *x, const struct ds_expert *e, size_t prefix,
                      struct ckpt_err *err)
{
    size_t of;
    int rc;

    if (ckpt_reserve(&x->item, x->n, &x->cap, sizeof *x->item, err))
        return CKPT_ENOMEM;
    of = ckpt_map_get(x->layer, e->name, prefix);
    if (of == CKPT_MAP_NONE && (rc = ckpt_map_add(x->layer, e->name, prefix, e->of, err)) != 0)
        return rc;
    if (of != CKPT_MAP_NONE && of != e->of)
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "%s: of a layer of %zu experts and of "
                            "one of %zu", e->name, of, e->of);
    x->item[x->n] = *e;
    return ckpt_map_add(x->by_name, e->name, strlen(e->name), x->n++, err);
}

/* Check that every tensor in the file belongs to its expert. */
static int take_expert(struct ds_experts *x, const struct torch_archive *a, const char *file,
                       size_t expert, size_t of, struct ckpt_err *err)
{
    const struct value *root = torch_archive_root(a);
    int rc;

    for (size_t i = 0; i < root->u.dict.n; i++) {
        const char *name = value_as_str(root->u.dict.key[i]), *rest;
        const struct value *v = root->u.dict.val[i];
        size_t prefix, number;

        if (!value_is(v, VALUE_TENSOR))
            continue;
        if (!name || !split(&prefix, &number, &rest, name) || number != expert)
            return ckpt_fail(err, CKPT_EFORMAT, "%s: %s is no tensor of expert %zu", file,
                             name ? name : "an entry", expert);
        if ((rc = add_tensor(x, &(struct ds_expert){.name = name, .number = number, .of = of,
                             .t = v->u.tensor, .archive = a}, prefix, err)) != 0)
            return rc;
    }
    return 0;
}

static int open_expert(struct ds_files *f, struct ckpt_dir *dir, size_t layer, size_t expert,
                       size_t of, struct ckpt_err *err)
{
    struct ds_experts *x = f->experts;
    const struct value *root;
    char file[96];
    int rc;

    if (layer == SIZE_MAX)
        snprintf(file, sizeof file, "expert_%zu_mp_rank_00_model_states.pt", expert);
    else
        snprintf(file, sizeof file, "layer_%zu_expert_%zu_mp_rank_00_model_states.pt", layer,
                 expert);
    if (x->n_file == x->max_file || !ckpt_dir_has(dir, file))
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: is absent, the layer has %zu "
                            "experts", file, of);
    if ((rc = ds_archive_open(&x->file[x->n_file], &root, dir, file, err)) != 0)
        return rc;
    return take_expert(x, x->file[x->n_file++], file, expert, of, err);
}

/* Ranks of the largest expert-parallel group named in the optimizer's groups. */
static size_t group_size(const struct value *optimizer)
{
    const struct value *o = value_get(optimizer, "optimizer_state_dict");
    const struct value *groups = value_get(o ? o : optimizer, "param_groups");
    size_t most = 0, n;

    for (size_t g = 0; value_is(groups, VALUE_LIST) && g < groups->u.seq.n; g++) {
        const char *name = value_as_str(value_get(groups->u.seq.item[g], "name"));

        if (name && strncmp(name, "ep_size_", 8) == 0 && read_number(&n, name + 8) && n > most)
            most = n;
    }
    return most;
}

/* Open the optimizers of stage 0: one for each rank of the largest group. */
static int open_optim(struct ds_experts *x, struct ckpt_dir *dir, size_t n, struct ckpt_err *err)
{
    int rc;

    x->optim = ckpt_arena_alloc(&x->arena, n, sizeof *x->optim);
    if (!x->optim)
        return ckpt_nomem(err, n * sizeof *x->optim);
    for (size_t p = 0; p < n; p++) {
        const struct value *root;
        char file[96];

        snprintf(file, sizeof file, "expp_rank_%zu_mp_rank_00_optim_states.pt", p);
        if (!ckpt_dir_has(dir, file))
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: is absent, others are there",
                                file);
        if ((rc = ds_archive_open(&x->optim[x->n_optim], &root, dir, file, err)) != 0)
            return rc;
        x->n_optim++;
        if (!value_is(value_get(root, "optimizer"), VALUE_DICT))
            return ckpt_fail(err, CKPT_EFORMAT, "%s: no optimizer in it", file);
        if (group_size(value_get(root, "optimizer")) > n)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "expp_rank_%zu_mp_rank_00_optim_"
                                "states.pt: is absent, groups of experts are of %zu ranks", n,
                                group_size(value_get(root, "optimizer")));
    }
    return 0;
}

/* Experts and optimizers found in the folder. */
struct found {
    size_t n, n_optim;
    bool   old;
};

static int look(struct found *have, const struct ds_files *f, const struct ckpt_entry *entry,
                size_t n, struct ckpt_err *err)
{
    *have = (struct found){0};
    for (size_t i = 0; i < n; i++) {
        size_t layer, expert, p;

        if (entry[i].is_file && optim_of(&p, entry[i].name) && p >= have->n_optim)
            have->n_optim = p + 1;
        if (!entry[i].is_file || !expert_of(&layer, &expert, entry[i].name))
            continue;
        have->n++;
        have->old |= layer == SIZE_MAX;
        if (expert >= n_experts(f, layer))
            return ckpt_fail_as(err, CKPT_EFORMAT, "unexpected", "%s: of an expert beyond the %zu "
                                "of num_experts", entry[i].name, n_experts(f, layer));
    }
    return have->n_optim <= DS_MAX_RANKS
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "expp_rank_%zu: more than %d ranks",
                               have->n_optim - 1, DS_MAX_RANKS);
}

static bool data_first(const struct ds_files *f)
{
    const struct value *config = value_get(f->rank[0].model_root, "ds_config");
    int64_t on = 0;

    return value_as_int(value_get(config, "use_data_before_expert_parallelism"), &on) && on;
}

int ds_experts_open(struct ds_files *f, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                    size_t n, struct ckpt_err *err)
{
    const struct value *auto_ep = value_get(f->rank[0].model_root, "ds_autoep_layers");
    struct found have;
    struct ds_experts *x;
    int rc;

    if ((rc = look(&have, f, entry, n, err)) != 0)
        return rc;
    if (auto_ep && !value_is(auto_ep, VALUE_NONE))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "ds_autoep_layers: experts that AutoEP cut out of "
                         "a model's own are not read");
    if (have.n == 0 && have.n_optim == 0 && layers(f) == 0)
        return 0;
    x = f->experts = ckpt_alloc(1, sizeof *x);
    if (!x)
        return ckpt_nomem(err, sizeof *x);
    x->data_first = data_first(f);
    x->max_file = have.n;
    x->file = ckpt_arena_alloc(&x->arena, have.n, sizeof *x->file);
    if (!x->file)
        return ckpt_nomem(err, have.n * sizeof *x->file);
    if ((rc = ckpt_map_new(&x->by_name, have.n, err)) != 0 ||
        (rc = ckpt_map_new(&x->layer, 16, err)) != 0)
        return rc;
    for (size_t l = 0; l < (have.old ? 1 : layers(f)); l++) {
        size_t layer = have.old ? SIZE_MAX : l, of = n_experts(f, layer);

        for (size_t e = 0; e < of; e++)
            if ((rc = open_expert(f, dir, layer, e, of, err)) != 0)
                return rc;
    }
    return open_optim(x, dir, have.n_optim, err);
}

void ds_experts_close(struct ds_experts *x)
{
    if (!x)
        return;
    for (size_t i = 0; i < x->n_file; i++)
        torch_archive_close(x->file[i]);
    for (size_t i = 0; i < x->n_optim; i++)
        torch_archive_close(x->optim[i]);
    ckpt_map_free(x->by_name);
    ckpt_map_free(x->layer);
    ckpt_free(x->item);
    ckpt_arena_release(&x->arena);
    ckpt_free(x);
}

/* -- questions ------------------------------------------------------------------------------- */

const struct value *ds_expert_optim(const struct ds_experts *x, size_t p)
{
    return x && p < x->n_optim ? value_get(torch_archive_root(x->optim[p]), "optimizer") : NULL;
}

size_t ds_expert_rank(const struct ds_files *f, size_t size, size_t p, size_t k)
{
    return f->experts && f->experts->data_first ? p * (f->world / size) + k : p + k * size;
}

static const char *group_name(const struct ds_files *f, size_t rank, size_t g)
{
    return value_as_str(value_get(value_item(ds_param_groups(f, rank), g), "name"));
}

size_t ds_expert_group(const struct ds_files *f, size_t rank, size_t g)
{
    const struct value *groups = ds_param_groups(f, rank);
    const char *name = f->experts ? group_name(f, 0, g) : NULL, *other;
    size_t before = 0;

    if (!name || rank == 0)
        return g;
    for (size_t i = 0; i < g; i++)
        before += group_name(f, 0, i) && strcmp(group_name(f, 0, i), name) == 0;
    for (size_t i = 0; value_is(groups, VALUE_LIST) && i < groups->u.seq.n; i++)
        if ((other = group_name(f, rank, i)) && strcmp(other, name) == 0 && before-- == 0)
            return i;
    return SIZE_MAX;
}

int ds_expert_find(const struct ds_expert **out, const struct ds_experts *x, const char *name,
                   size_t size, size_t p, struct ckpt_err *err)
{
    size_t prefix, number, of, at;
    char full[CKPT_MAX_NAME];
    const char *rest;

    *out = NULL;
    if (!x || !split(&prefix, &number, &rest, name))
        return 0;
    of = ckpt_map_get(x->layer, name, prefix);
    if (of == CKPT_MAP_NONE)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no file is of an expert of its layer", name);
    if (of % size != 0 || number >= of / size)
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "%s: each of %zu ranks has %zu of its "
                            "layer's %zu experts", name, size, of / size, of);
    number += p * (of / size);
    if ((size_t)snprintf(full, sizeof full, "%.*s%zu%s", (int)prefix, name, number, rest) >=
        sizeof full)
        return ckpt_fail(err, CKPT_EFORMAT, "a name of %zu bytes", strlen(name));
    at = ckpt_map_get(x->by_name, full, strlen(full));
    if (at == CKPT_MAP_NONE)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "%s: is in no expert's file", full);
    *out = &x->item[at];
    return 0;
}

int ds_expert_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    const struct ds_experts *x = f->experts;
    int rc;

    for (size_t i = 0; x && i < x->n; i++) {
        const struct ds_expert *e = &x->item[i];

        if (ckpt_tensors_find(list, e->name) == SIZE_MAX &&
            (rc = ds_tensor_add(list, e->archive, e->name, e->t, CKPT_WEIGHT, err)) != 0)
            return rc;
    }
    return 0;
}
