/* universal - see universal.h. */
#include "formats/deepspeed/universal.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/log.h"

/* Open one file of zero/; u keeps it. */
static int open_file(struct torch_archive **out, struct ds_universal *u, const char *path,
                     struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc;

    if (ckpt_reserve(&u->open, u->n, &u->cap, sizeof *u->open, err))
        return CKPT_ENOMEM;
    if ((rc = ckpt_file_open_at(&file, u->dir, path, err)) != 0 ||
        (rc = torch_archive_open(out, file, err)) != 0)
        return rc;
    u->open[u->n++] = *out;
    return 0;
}

static int open_state(struct torch_archive **out, struct ds_universal *u, const char *name,
                      const char *state, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    const char *path = ckpt_arena_printf(&a, "%s/%s.pt", name, state);
    int rc = path ? open_file(out, u, path, err) : ckpt_nomem(err, strlen(name));

    ckpt_arena_release(&a);
    return rc;
}

/* Find the states of a parameter: the files in its folder. */
static int find_states(struct ds_universal *u, const char *name, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    struct ckpt_entry *entry;
    size_t n = 0;
    bool step = false;
    int rc = ckpt_dir_open_at(&dir, u->dir, name, err);

    if (rc == 0)
        rc = ckpt_dir_list(dir, &u->arena, &entry, &n, err);
    ckpt_dir_close(dir);
    if (rc == 0 && !(u->state = ckpt_arena_alloc(&u->arena, n, sizeof *u->state)))
        rc = ckpt_nomem(err, n * sizeof *u->state);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *file = entry[i].name;
        size_t len = strlen(file);

        if (!entry[i].is_file || len < 4 || strcmp(file + len - 3, ".pt") != 0 ||
            strcmp(file, "fp32.pt") == 0)
            continue;
        if (strcmp(file, "step.pt") == 0)
            step = true;
        else if (!(u->state[u->n_state++] = ckpt_arena_strndup(&u->arena, file, len - 3)))
            rc = ckpt_nomem(err, len);
    }
    if (rc == 0 && step) {
        rc = open_state(&u->step_file, u, name, "step", err);
        u->step = rc ? NULL : torch_archive_root(u->step_file);
    }
    return rc;
}

/* Find the parameters: the folders of zero/. */
static int find_params(struct ds_universal *u, struct ckpt_err *err)
{
    struct ckpt_entry *entry;
    size_t n;
    int rc;

    if ((rc = ckpt_dir_list(u->dir, &u->arena, &entry, &n, err)) != 0)
        return rc;
    u->param = ckpt_arena_alloc(&u->arena, n, sizeof *u->param);
    if (!u->param)
        return ckpt_nomem(err, n * sizeof *u->param);
    for (size_t i = 0; i < n; i++)
        if (entry[i].is_dir)
            u->param[u->n_param++] = entry[i].name;
    return 0;
}

int universal_open(struct ds_files *f, struct ckpt_dir *dir, bool sliced, struct ckpt_err *err)
{
    struct ds_universal *u = ckpt_alloc(1, sizeof *u);
    const struct value *shapes = ds_shapes(f, 0, 0);
    struct ds_listed first;
    int rc;

    if (!u)
        return ckpt_nomem(err, sizeof *u);
    f->universal = u;
    u->sliced = sliced;
    if ((rc = ckpt_dir_open_at(&u->dir, dir, "zero", err)) != 0 ||
        (rc = ds_archive_open(&f->rank[0].optim, &f->rank[0].optim_file, u->dir,
                              "optimizer_state.pt", err)) != 0)
        return rc;
    f->rank[0].optim_root = f->rank[0].optim_file;
    if (!value_is(shapes, VALUE_DICT) || shapes->u.dict.n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "param_shapes of the model file is empty");
    if ((rc = ds_shape_at(&first, shapes, 0, "param_shapes", err)) != 0 ||
        (rc = find_states(u, first.name, err)) != 0)
        return rc;
    if (sliced && (rc = find_params(u, err)) != 0)
        return rc;
    if (!u->step) {          /* converted from stage 3: the step is only in the optimizer's state */
        u->step = value_get(ds_numbered(value_get(value_get(f->rank[0].optim_root,
                                                            "optimizer_state_dict"), "state"),
                                        0), "step");
        u->step_file = f->rank[0].optim;
    }
    return 0;
}

void universal_close(struct ds_universal *u)
{
    if (!u)
        return;
    for (size_t i = 0; i < u->n; i++)
        torch_archive_close(u->open[i]);
    ckpt_free(u->open);
    ckpt_dir_close(u->dir);
    ckpt_arena_release(&u->arena);
    ckpt_free(u);
}

/* The tensor in a state's file. */
static int find_tensor(struct torch_archive **a, const struct value_tensor **t,
                       const struct ds_files *f, const char *name, const char *state,
                       struct ckpt_err *err)
{
    const struct value *v;
    int rc;

    if ((rc = open_state(a, f->universal, name, state ? state : "fp32", err)) != 0)
        return rc;
    v = torch_archive_root(*a);
    if (value_is(v, VALUE_DICT))
        v = value_get(v, "param");
    if (!value_is(v, VALUE_TENSOR))
        return ckpt_fail(err, CKPT_EFORMAT, "zero/%s/%s.pt: no tensor in it", name,
                         state ? state : "fp32");
    *t = v->u.tensor;
    return 0;
}

static int add_parameter(struct ckpt_tensors *list, const struct ds_files *f,
                         const struct ds_listed *p, const char *state, struct ckpt_err *err)
{
    const char *full = state ? ckpt_arena_printf(&list->arena, "%s|%s", p->name, state) : p->name;
    const struct value_tensor *t;
    struct torch_archive *a;
    struct ckpt_fragment *frag = NULL;
    struct ckpt_tensor *added;
    char found[96], wanted[96];
    int64_t have;
    bool flat;
    int rc;

    if (!full)
        return ckpt_nomem(err, 64);
    if ((rc = find_tensor(&a, &t, f, p->name, state, err)) != 0)
        return rc;
    flat = t->shape.rank == 1;
    if (!ckpt_shape_numel(&have, &t->shape) || have != p->numel ||
        (!flat && !ckpt_shape_equal(&t->shape, &p->shape)))
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                            "zero/%s: its %s is %s, the model file says %s", p->name,
                            state ? state : "weight",
                            ckpt_shape_text(found, sizeof found, &t->shape),
                            ckpt_shape_text(wanted, sizeof wanted, &p->shape));
    if (have > 0 && (rc = torch_archive_fragment(&frag, &list->arena, a, t, err)) != 0)
        return rc;
    if ((rc = ckpt_tensors_add(list, &added, full, strlen(full), t->dtype, &p->shape, frag,
                               frag != NULL, flat, err)) != 0)
        return rc;
    added->kind = state ? CKPT_OPTIM : CKPT_WEIGHT;
    return 0;
}

/* The shape in a state's file; flat ones of stage 3 do not have it. */
static int own_shape(struct ds_listed *p, const struct ds_files *f, const char *state,
                     struct ckpt_err *err)
{
    const struct value_tensor *t;
    struct torch_archive *a;
    int rc;

    if ((rc = find_tensor(&a, &t, f, p->name, state, err)) != 0)
        return rc;
    if (!value_is(torch_archive_root(a), VALUE_DICT))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "zero/%s: its shape is in no file, the model "
                         "files have slices", p->name);
    p->shape = t->shape;
    return ckpt_shape_numel(&p->numel, &p->shape)
               ? 0 : ckpt_fail(err, CKPT_EFORMAT, "zero/%s: its shape has no count", p->name);
}

/* Tied names have weights only. */
static int list_sliced(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                       struct ckpt_err *err)
{
    const struct ds_universal *u = f->universal;
    int rc;

    for (size_t i = 0; i < u->n_param; i++) {
        struct ds_listed p = {.name = u->param[i]};
        char path[CKPT_MAX_NAME + 64];

        snprintf(path, sizeof path, "%s/%s.pt", u->param[i], state ? state : "fp32");
        if (state && !ckpt_dir_has(u->dir, path))
            continue;
        if ((rc = own_shape(&p, f, state, err)) != 0 ||
            (rc = add_parameter(list, f, &p, state, err)) != 0)
            return rc;
    }
    return 0;
}

void universal_tell_rest(const struct ckpt_tensors *list, const struct ds_files *f)
{
    const char *name, *first = NULL;
    struct value *v;
    size_t n = 0;

    for (size_t i = 0; value_next(value_get(f->rank[0].model_root, "module"), &i, &name, &v);)
        if (value_is(v, VALUE_TENSOR) && ckpt_tensors_find(list, name) == SIZE_MAX)
            first = n++ == 0 ? name : first;
    if (n > 0)
        ckpt_log(CKPT_LOG_WARNING, "%zu of the model file's tensors (the first: %s) were not "
                 "trained and are left out: files of several mp_ranks have slices of them", n,
                 first);
}

int universal_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err)
{
    int rc;

    if (f->universal->sliced)
        return list_sliced(list, f, state, err);
    for (size_t g = 0; g < ds_shape_groups(f, 0); g++) {
        const struct value *shapes = ds_shapes(f, 0, g);

        if (!value_is(shapes, VALUE_DICT))
            return ckpt_fail(err, CKPT_EFORMAT, "param_shapes: group %zu is no dictionary", g);
        for (size_t i = 0; i < shapes->u.dict.n; i++) {
            struct ds_listed p;

            if ((rc = ds_shape_at(&p, shapes, i, "param_shapes", err)) != 0 ||
                (rc = add_parameter(list, f, &p, state, err)) != 0)
                return rc;
        }
    }
    return 0;
}

int universal_dtype(enum ckpt_dtype *dtype, const struct ds_files *f, const char *state,
                    struct ckpt_err *err)
{
    const struct value *shapes = ds_shapes(f, 0, 0);
    const struct value_tensor *t;
    struct torch_archive *a;
    struct ds_listed p;
    int rc;

    if ((rc = ds_shape_at(&p, shapes, 0, "param_shapes", err)) != 0 ||
        (rc = find_tensor(&a, &t, f, p.name, state, err)) != 0)
        return rc;
    *dtype = t->dtype;
    return 0;
}
