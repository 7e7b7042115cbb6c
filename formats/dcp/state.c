/* dcp/state - see dcp/state.h. */
#include "formats/dcp/state.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/log.h"

static const struct ckpt_shape scalar = {0};

struct filler {
    struct dcp_index          *x;
    const struct ckpt_tensors *tensors;
    const json_t              *info;
    struct ckpt_err           *err;
};

/* Length of the parameter's name in the name of its state, or 0. */
static size_t param_len(const struct ckpt_tensor *t)
{
    const char *bar = t->kind == CKPT_OPTIM ? strrchr(t->name, '|') : NULL;

    return bar && bar[1] ? (size_t)(bar - t->name) : 0;
}

/* -- values ---------------------------------------------------------------------------------- */

static int add_value(struct filler *f, struct value *path, struct value *v)
{
    struct dcp_out_item *it;
    int rc;

    if (!v)
        return ckpt_nomem(f->err, 64);
    if ((rc = dcp_index_add(f->x, &it, path, f->err)) != 0)
        return rc;
    it->value = v;
    return 0;
}

/* Plain top-level values: "step", "note".  The paths of deeper ones are lost. */
static int add_values(struct filler *f)
{
    struct ckpt_arena *a = &f->x->arena;
    const char *key;
    json_t *v;
    int rc;

    json_object_foreach (json_object_get(f->info, "values"), key, v)
        if (!strchr(key, '.') && !json_is_object(v) && !json_is_array(v) &&
            (rc = add_value(f, dcp_index_path(f->x, (const char *const[]){key, NULL}),
                            value_of_json(a, v))) != 0)
            return rc;
    return 0;
}

/* The names of a group's parameters: its own, or those that the facts give besides; NULL:
 * unknown. */
static const json_t *group_names(const struct filler *f, size_t number)
{
    const json_t *groups = json_object_get(f->info, "param_groups");
    const json_t *own = json_object_get(json_array_get(groups, number), "params");
    const json_t *beside = json_object_get(f->info, "group_params");

    if (json_is_string(json_array_get(own, 0)))
        return own;
    return json_array_size(beside) == json_array_size(groups) ? json_array_get(beside, number)
                                                              : NULL;
}

/* All parameters that have state, each once, in the list's order; *seen maps their names. */
static int stateful(struct filler *f, struct value **list, struct ckpt_map **seen)
{
    struct ckpt_arena *a = &f->x->arena;
    int rc;

    *list = value_list(a);
    if ((rc = ckpt_map_new(seen, 256, f->err)) != 0)
        return rc;
    for (size_t i = 0; i < f->tensors->n; i++) {
        const struct ckpt_tensor *t = &f->tensors->item[i];
        size_t len = param_len(t);
        char *name;

        if (len == 0 || ckpt_map_get(*seen, t->name, len) != CKPT_MAP_NONE)
            continue;
        name = ckpt_arena_strndup(a, t->name, len);
        if (!name || value_append(a, *list, value_str(a, name)))
            return ckpt_nomem(f->err, len);
        if ((rc = ckpt_map_add(*seen, t->name, len, i, f->err)) != 0)
            return rc;
    }
    return 0;
}

/* Whether each parameter with state is in one of the groups, under its current name. */
static bool groups_cover(const struct filler *f, const struct ckpt_map *seen)
{
    size_t groups = json_array_size(json_object_get(f->info, "param_groups")), found = 0;

    for (size_t g = 0; g < groups; g++) {
        const json_t *names = group_names(f, g), *v;
        size_t i;

        json_array_foreach (names, i, v)
            found += json_is_string(v) && ckpt_map_get(seen, json_string_value(v),
                                                       json_string_length(v)) != CKPT_MAP_NONE;
    }
    return found == ckpt_map_count(seen);
}

/* A hyper-parameter in torch's form: betas are a tuple. */
static struct value *hyper_value(struct ckpt_arena *a, const char *key, const json_t *v)
{
    struct value *made = value_of_json(a, v);

    if (made && made->kind == VALUE_LIST && strcmp(key, "betas") == 0)
        made->kind = VALUE_TUPLE;
    return made;
}

/* Add a group; names: of its parameters. */
static int add_group(struct filler *f, size_t number, struct value *names)
{
    const json_t *group = json_array_get(json_object_get(f->info, "param_groups"), number);
    struct ckpt_arena *a = &f->x->arena;
    const char *key;
    json_t *v;
    int rc;

    json_object_foreach ((json_t *)group, key, v) {
        struct value *made = strcmp(key, "params") == 0 ? names : hyper_value(a, key, v);

        if ((rc = add_value(f, dcp_index_group_path(f->x, number, key), made)) != 0)
            return rc;
    }
    return 0;
}

static int add_groups(struct filler *f)
{
    size_t n = json_array_size(json_object_get(f->info, "param_groups"));
    struct ckpt_map *seen = NULL;
    struct value *all;
    int rc = stateful(f, &all, &seen);
    bool cover = rc == 0 && groups_cover(f, seen);

    if (rc == 0 && ckpt_map_count(seen) > 0 && !cover && n != 1) {
        ckpt_log(CKPT_LOG_WARNING, "no param_groups are written: which group a parameter is in is "
                 "not said");
        n = 0;
    }
    if (rc == 0 && ckpt_map_count(seen) == 0)
        n = 0;
    for (size_t g = 0; rc == 0 && g < n; g++)
        rc = add_group(f, g, cover ? value_of_json(&f->x->arena, group_names(f, g)) : all);
    ckpt_map_free(seen);
    return rc;
}

/* -- tensors --------------------------------------------------------------------------------- */

/* The path of tensor t. */
static struct value *tensor_path(struct filler *f, const struct ckpt_tensor *t)
{
    struct ckpt_arena *a = &f->x->arena;
    size_t len = param_len(t);
    const char *param = len ? ckpt_arena_strndup(a, t->name, len) : NULL;

    if (t->kind == CKPT_WEIGHT || t->kind == CKPT_BUFFER)
        return dcp_index_path(f->x, (const char *const[]){"model", t->name, NULL});
    if (len == 0)
        return dcp_index_path(f->x, (const char *const[]){t->name, NULL});
    return param ? dcp_index_path(f->x, (const char *const[]){"optimizer", "state", param,
                                                              t->name + len + 1, NULL}) : NULL;
}

static int add_tensors(struct filler *f, size_t *item_of)
{
    int rc;

    for (size_t i = 0; i < f->tensors->n; i++) {
        const struct ckpt_tensor *t = &f->tensors->item[i];
        struct dcp_out_item *it;

        if (!ckpt_dtype_torch_name(t->dtype) || ckpt_dtype_size(t->dtype) == 0)
            return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "tensor %s: torch has no %s", t->name,
                             ckpt_dtype_name(t->dtype));
        item_of[i] = f->x->n;
        if ((rc = dcp_index_add(f->x, &it, tensor_path(f, t), f->err)) != 0)
            return rc;
        it->dtype = t->dtype;
        it->shape = &t->shape;
    }
    return 0;
}

/* How many steps the optimizer has done, if that is known. */
static bool steps_done(const json_t *info, float *step)
{
    static const char *const names[] = {"optimizer_step", "step", "global_steps"};

    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_object_get(info, names[i]);

        if (json_is_number(v)) {
            *step = (float)json_number_value(v);
            return true;
        }
    }
    return false;
}

/* torch's optimizers count steps per parameter: add one to exp_avg without |step. */
static int add_steps(struct filler *f, float *step)
{
    struct ckpt_arena *a = &f->x->arena;
    int rc;

    if (!steps_done(f->info, step))
        return 0;
    for (size_t i = 0; i < f->tensors->n; i++) {
        const struct ckpt_tensor *t = &f->tensors->item[i];
        size_t len = param_len(t);
        struct dcp_out_item *it;
        struct value *path;
        char *param, *other;

        if (len == 0 || strcmp(t->name + len, "|exp_avg") != 0)
            continue;
        param = ckpt_arena_strndup(a, t->name, len);
        other = ckpt_arena_printf(a, "%s|step", param ? param : "");
        if (!param || !other)
            return ckpt_nomem(f->err, len);
        if (ckpt_tensors_find(f->tensors, other) != SIZE_MAX)
            continue;
        path = dcp_index_path(f->x,
                              (const char *const[]){"optimizer", "state", param, "step", NULL});
        if ((rc = dcp_index_add(f->x, &it, path, f->err)) != 0)
            return rc;
        it->dtype = CKPT_F32;
        it->shape = &scalar;
    }
    return 0;
}

int dcp_state_fill(struct dcp_index *x, size_t *item_of, const struct ckpt_tensors *tensors,
                   const json_t *info, float *step, struct ckpt_err *err)
{
    struct filler f = {.x = x, .tensors = tensors, .info = info, .err = err};
    int rc;

    *step = 0;
    if ((rc = add_values(&f)) != 0 || (rc = add_groups(&f)) != 0 ||
        (rc = add_steps(&f, step)) != 0)
        return rc;
    return add_tensors(&f, item_of);
}
