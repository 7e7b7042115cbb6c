/*
 * write/universal - see write/universal.h.  Source: DeepSpeed 0.19.8 checkpoint/ds_to_universal.py,
 * checkpoint/universal_checkpoint.py, runtime/base_optimizer.py, runtime/zero/stage3.py
 * (load_hp_checkpoint_state_from_checkpoint_dir and its stage-3 namesake).
 */
#include "formats/deepspeed/write/universal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/write/states.h"
#include "formats/deepspeed/write/values.h"
#include "formats/dir_sink.h"
#include "formats/hf/side_files.h"

#define SUFFIX  "_universal"
#define VERSION 0.2             /* version of the layout: no parameter is split over ranks */

/* The file of one parameter's state. */
struct one {
    struct ds_file file;
    int64_t        left;        /* elements not written yet */
    bool           begun;
};

struct sink {
    struct dir_sink base;
    struct ds_cut   whole;      /* stages 1 and 2: mp_rank_00_model_states.pt */
    struct ds_cut   parts;      /* stage 3 on one rank: zero_pp_rank_0_mp_rank_00_... */
    struct ds_file  whole_file, parts_file;
    struct one     *one;        /* [list->n] of trained parameters and moments */
    pthread_mutex_t lock;       /* of one[] */
    char            tag[2 * DS_MAX_TAG];
};

/* -- files of states ------------------------------------------------------------------------- */

static bool is_state(const struct sink *s, size_t i)
{
    return s->whole.target[i].kind == DS_TRAINED || s->whole.target[i].kind == DS_MOMENT;
}

/* <tag>/zero/<parameter>/<state>.pt with root; the file is begun. */
static int begin_state(struct sink *s, struct ds_file *file, size_t param, const char *state,
                       const struct value *root, struct ckpt_err *err)
{
    const char *name = s->whole.run.param[param].name;
    const char *path = ckpt_arena_printf(&file->arena, "%s/zero/%s/%s.pt", s->tag, name, state);

    if (!path || !root)
        return ckpt_nomem(err, strlen(name));
    return ds_file_begin(file, s->base.dir, path, root, err);
}

/* {"cat_dim": 0, "param": tensor}: cat_dim says how tensor-parallel ranks would cut it. */
static int begin_one(struct sink *s, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = &s->base.list->item[i];
    const struct ds_target *to = &s->whole.target[i];
    struct one *o = &s->one[i];
    struct value *root, *v;
    size_t storage;

    o->begun = true;
    o->left = t->numel;
    root = value_dict(&o->file.arena, false);
    v = ds_file_new_tensor(&o->file, &storage, t->dtype, &t->shape, err);
    if (!v || value_set_str(&o->file.arena, root, "cat_dim", value_int(&o->file.arena, 0)) ||
        value_set_str(&o->file.arena, root, "param", v))
        return ds_file_check(&o->file, true, err);
    v->u.tensor->requires_grad = to->kind == DS_TRAINED;
    return begin_state(s, &o->file, to->param,
                       to->kind == DS_TRAINED ? "fp32" : s->whole.run.moment[to->moment].name,
                       root, err);
}

static int end_one(struct one *o, struct ckpt_err *err)
{
    int rc = ds_file_commit(&o->file, err);

    ds_file_close(&o->file);
    return rc;
}

/* The first writer begins the file, the writer of the last element commits it. */
static int put_state(struct sink *s, size_t i, int64_t start, int64_t count, const void *src,
                     struct ckpt_err *err)
{
    struct one *o = &s->one[i];
    bool last;
    int rc;

    pthread_mutex_lock(&s->lock);
    rc = o->begun ? 0 : begin_one(s, i, err);
    pthread_mutex_unlock(&s->lock);
    if (rc == 0 && !o->file.w)
        rc = ckpt_fail(err, CKPT_ESTATE, "its file could not be begun");
    if (rc == 0)
        rc = ds_file_put(&o->file, 0, start, count, src, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&s->lock);
    o->left -= count;
    last = o->left == 0;
    pthread_mutex_unlock(&s->lock);
    return last ? end_one(o, err) : 0;
}

/* -- writing --------------------------------------------------------------------------------- */

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;
    const struct ds_target *to = &s->whole.target[i];
    int rc = is_state(s, i) ? put_state(s, i, start, count, src, err) : 0;

    if (rc || to->kind == DS_ALIAS || to->kind == DS_MOMENT)
        return rc;
    if (to->kind == DS_TRAINED)         /* the model's copy, in the dtype it computes in */
        return ds_file_put_rounded(&s->whole_file, to->storage, start, count, src,
                                   s->base.list->item[i].dtype, err);
    rc = ds_file_put(&s->whole_file, to->storage, start, count, src, err);
    return rc ? rc : ds_file_put(&s->parts_file, s->parts.target[i].storage, start, count, src,
                                 err);
}

/* -- files without parallel writers ---------------------------------------------------------- */

/* Begin the model file of a cut's first rank, with the version that loading requires. */
static int begin_model(struct sink *s, struct ds_cut *cut, struct ds_file *file, const char *name,
                       struct ckpt_err *err)
{
    static const char key[] = "universal_checkpoint_info";
    struct value *root, *info;
    char path[3 * DS_MAX_TAG];
    int rc;

    if ((rc = ds_model_states(&root, file, cut, 0, err)) != 0)
        return rc;
    if (!value_get(root, key)) {
        info = value_dict(&file->arena, false);
        if (value_set_str(&file->arena, info, "universal_checkpoint_version",
                          value_float(&file->arena, VERSION)) ||
            value_set_str(&file->arena, root, key, info))
            return ckpt_nomem(err, sizeof *info);
    }
    snprintf(path, sizeof path, "%s/%s", s->tag, name);
    return ds_file_begin(file, s->base.dir, path, root, err);
}

/* Write the optimizer's step beside every parameter. */
static int write_steps(struct sink *s, struct ckpt_err *err)
{
    const struct ds_run *run = &s->whole.run;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < run->n_param; i++) {
        const struct value *step = value_get(ds_run_state(run, run->param[i].flat), "step");
        struct ds_file file = {0};
        struct value *root;

        if (!step)
            continue;
        root = ds_file_take(&file, run->state_file, step, err);
        rc = root ? begin_state(s, &file, i, "step", root, err) : file.rc;
        if (rc == 0)
            rc = ds_file_commit(&file, err);
        ds_file_close(&file);
    }
    return rc;
}

/* The options of the groups, and the step in a state, in the place where stage 3 looks for them. */
static struct value *nested(struct ds_file *file, const struct ds_run *run, struct value *groups,
                            struct ckpt_err *err)
{
    struct ckpt_arena *a = &file->arena;
    struct value *d = value_dict(a, false), *state = value_dict(a, false);
    const struct value *step = run->n_group ? value_get(run->group[0].state, "step") : NULL;
    struct value *one = value_dict(a, false);

    if (step &&
        (value_set_str(a, one, "step", ds_file_take(file, run->state_file, step, err)) ||
         value_set(a, state, value_int(a, 0), one)))
        return NULL;
    return value_set_str(a, d, "state", state) || value_set_str(a, d, "param_groups", groups)
               ? NULL : d;
}

/* Copy every key of the saved optim file except tensors that are partitioned. */
static int take_facts(struct ds_file *file, struct value *root, const struct ds_run *run,
                      struct ckpt_err *err)
{
    static const char *const cut[] = {
        "base_optimizer_state", "param_slice_mappings", "single_partition_of_fp32_groups",
        "optimizer_state_dict", "fp32_flat_groups", "param_groups", "group_paddings",
        "param_alignment_paddings", "zero_stage"};
    const struct value *saved = run->f->rank[0].optim_root;

    for (size_t i = 0; saved && i < saved->u.dict.n; i++) {
        const char *key = value_as_str(saved->u.dict.key[i]);
        size_t k = 0;

        while (key && k < sizeof cut / sizeof cut[0] && strcmp(cut[k], key) != 0)
            k++;
        if ((!key || k == sizeof cut / sizeof cut[0]) &&
            value_set(&file->arena, root, saved->u.dict.key[i],
                      ds_file_take(file, run->f->rank[0].optim, saved->u.dict.val[i], err)))
            return CKPT_ENOMEM;
    }
    return 0;
}

/* Put the dictionary of optimizer_state.pt into root.  ds_file_check has the code. */
static int optimizer_states(struct value *root, struct ds_file *file, const struct sink *s,
                            struct ckpt_err *err)
{
    const struct ds_run *run = &s->whole.run;
    const char *version = value_as_str(value_get(run->f->rank[0].model_root, "ds_version"));
    struct ckpt_arena *a = &file->arena;
    struct value *groups = value_list(a);
    int rc = take_facts(file, root, run, err);

    if (rc == 0 && run->f->stage == 0)
        rc = ds_put_scaling(root, file, &s->whole, err);
    for (size_t g = 0; rc == 0 && g < run->n_group; g++)
        rc = value_append(a, groups, ds_file_take(file, run->options_file,
                                                  run->group[g].options, err));
    if (rc == 0 && !run->f->bf16 && !value_get(root, "zero_stage"))
        rc = value_set_str(a, root, "zero_stage", ds_value_stage(a, run->stage));
    if (rc == 0 && !value_get(root, "ds_version"))
        rc = value_set_str(a, root, "ds_version", value_str(a, version ? version : DS_VERSION));
    if (rc == 0)
        rc = value_set_str(a, root, "param_groups", groups);
    return rc ? rc : value_set_str(a, root, "optimizer_state_dict",
                                   nested(file, run, groups, err));
}

static int write_optimizer(struct sink *s, struct ckpt_err *err)
{
    struct ds_file file = {0};
    struct value *root = value_dict(&file.arena, false);
    char path[3 * DS_MAX_TAG];
    int rc = ds_file_check(&file, optimizer_states(root, &file, s, err) != 0, err);

    snprintf(path, sizeof path, "%s/zero/optimizer_state.pt", s->tag);
    if (rc == 0)
        rc = ds_file_begin(&file, s->base.dir, path, root, err);
    if (rc == 0)
        rc = ds_file_commit(&file, err);
    ds_file_close(&file);
    return rc;
}

/* -- beginning and end ----------------------------------------------------------------------- */

static void sink_release(void *self)
{
    struct sink *s = self;

    for (size_t i = 0; s->one && i < s->base.list->n; i++)
        ds_file_close(&s->one[i].file);
    ckpt_free(s->one);
    ds_file_close(&s->whole_file);
    ds_file_close(&s->parts_file);
    ds_cut_release(&s->whole);
    ds_cut_release(&s->parts);
    pthread_mutex_destroy(&s->lock);
}

static int sink_finish(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = 0;

    /* Nothing is ever put for a tensor without elements: begin its file here. */
    for (size_t i = 0; rc == 0 && i < s->base.list->n; i++)
        if (is_state(s, i) && !s->one[i].begun) {
            rc = begin_one(s, i, err);
            if (rc == 0)
                rc = end_one(&s->one[i], err);
        }
    if (rc == 0)
        rc = ds_file_commit(&s->whole_file, err);
    if (rc == 0)
        rc = ds_file_commit(&s->parts_file, err);
    return rc;
}

static int sink_put_index(void *self, struct ckpt_err *err)
{
    const struct sink *s = self;

    return ckpt_outdir_put(s->base.dir, "latest_universal", s->tag, strlen(s->tag), err);
}

/* "<tag>_universal", the usual name. */
static int name_tag(struct sink *s, struct ckpt_err *err)
{
    char tag[DS_MAX_TAG];
    size_t n, k = strlen(SUFFIX);

    ds_cut_tag(tag, &s->whole);
    n = strlen(tag);
    snprintf(s->tag, sizeof s->tag, "%s%s", tag,
             n > k && strcmp(tag + n - k, SUFFIX) == 0 ? "" : SUFFIX);
    return strlen(s->tag) < DS_MAX_TAG ? 0 : ckpt_fail(err, CKPT_ELIMIT, "the tag %s is longer "
                                                       "than %d bytes", s->tag, DS_MAX_TAG - 1);
}

/* DeepSpeed loads the same states for every parameter. */
static int check_alike(const struct ds_run *run, struct ckpt_err *err)
{
    for (size_t k = 0; k < run->n_flat; k++)
        for (size_t m = 0; m < run->n_moment; m++)
            if (!ds_run_has(run, k, m))
                return ckpt_fail(err, CKPT_EUNSUPPORTED, "optimizer: keeps %s for some groups "
                                 "alone (Muon), a universal checkpoint has the same for all: "
                                 "`to deepspeed`, or `to dcp`", run->moment[m].name);
    return 0;
}

static int sink_plan(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    const struct ckpt_tensors *list = s->base.list;
    int rc;

    pthread_mutex_init(&s->lock, NULL);
    rc = ds_cut_plan(&s->parts, list, opts->origin, 3, 1, err);
    if (rc == 0)
        rc = ds_cut_plan(&s->whole, list, opts->origin, s->parts.run.f->stage == 1 ? 1 : 2, 0,
                         err);
    if (rc == 0)
        rc = check_alike(&s->whole.run, err);
    if (rc)
        return rc;
    s->one = ckpt_alloc(list->n, sizeof *s->one);
    return s->one ? name_tag(s, err) : ckpt_nomem(err, list->n * sizeof *s->one);
}

static int sink_begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_dir *from = ds_source_dir(opts->origin);
    int rc = begin_model(s, &s->whole, &s->whole_file, "mp_rank_00_model_states.pt", err);

    if (rc == 0)
        rc = begin_model(s, &s->parts, &s->parts_file,
                         "zero_pp_rank_0_mp_rank_00_model_states.pt", err);
    if (rc == 0)
        rc = write_optimizer(s, err);
    if (rc == 0)
        rc = write_steps(s, err);
    return rc || !from ? rc : side_files_put_run(s->base.dir, from, (int)s->whole.run.f->world,
                                                 err);
}

static const struct dir_sink_ops dir_ops = {
    .title = "a universal checkpoint", .size = sizeof(struct sink), .plan = sink_plan,
    .begin = sink_begin, .write = sink_write, .finish = sink_finish,
    .put_index = sink_put_index, .release = sink_release,
};

int universal_create(struct ckpt_sink **out, const char *path,
                     const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                     struct ckpt_err *err)
{
    return dir_sink_create(out, &dir_ops, path, tensors, opts, err);
}
