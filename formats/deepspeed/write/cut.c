/* write/cut - see write/cut.h. */
#include "formats/deepspeed/write/cut.h"

#include <stdio.h>
#include <string.h>

#include "formats/deepspeed/deepspeed.h"
#include "formats/deepspeed/module.h"
#include "libckpt/convert.h"

/* The dtype of a parameter in the model, from its tensor or placeholder in `module`. */
static enum ckpt_dtype model_dtype(const struct ds_module *module, const char *name,
                                   enum ckpt_dtype otherwise)
{
    size_t i = ckpt_map_get(module->names, name, strlen(name));
    const struct value *v = i == CKPT_MAP_NONE ? NULL : module->dict->u.dict.val[i];

    return value_is(v, VALUE_TENSOR) ? v->u.tensor->dtype : otherwise;
}

static int check_form(const struct ckpt_tensor *t, enum ckpt_dtype dtype,
                      const struct ckpt_shape *shape, struct ckpt_err *err)
{
    char a[96], b[96];

    if (t->dtype == dtype && ckpt_shape_equal(&t->shape, shape))
        return 0;
    return ckpt_fail(err, CKPT_EMISMATCH, "%s is %s %s, the saved run has it as %s %s", t->name,
                     ckpt_dtype_name(t->dtype), ckpt_shape_text(a, sizeof a, &t->shape),
                     ckpt_dtype_name(dtype), ckpt_shape_text(b, sizeof b, shape));
}

/* "<parameter>|<moment>" */
static bool find_moment(const struct ds_run *run, const char *name, size_t *param, size_t *moment)
{
    const char *bar = strrchr(name, '|');

    *param = bar ? ckpt_map_get(run->by_name, name, (size_t)(bar - name)) : CKPT_MAP_NONE;
    *moment = bar ? ds_run_moment_of(run, bar + 1) : run->n_moment;
    return *param != CKPT_MAP_NONE && *moment < run->n_moment &&
           ds_run_has(run, run->param[*param].flat, *moment);
}

static int find_target(struct ds_cut *cut, const struct ds_module *module, size_t i,
                       struct ckpt_err *err)
{
    const struct ckpt_tensor *t = &cut->list->item[i];
    struct ds_target *to = &cut->target[i];
    size_t saved = ckpt_tensors_find(cut->saved, t->name);
    const struct ckpt_tensor *was = saved == SIZE_MAX ? NULL : &cut->saved->item[saved];

    *to = (struct ds_target){.storage = SIZE_MAX, .model_dtype = t->dtype};
    to->param = ckpt_map_get(cut->run.by_name, t->name, strlen(t->name));
    if (to->param != CKPT_MAP_NONE) {
        to->kind = DS_TRAINED;
        to->model_dtype = model_dtype(module, t->name, t->dtype);
        if (!ckpt_convert_can(to->model_dtype, t->dtype))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the model has it as %s, which %s does "
                             "not become", t->name, ckpt_dtype_name(to->model_dtype),
                             ckpt_dtype_name(t->dtype));
        return check_form(t, cut->run.dtype, &cut->run.param[to->param].shape, err);
    }
    if (find_moment(&cut->run, t->name, &to->param, &to->moment)) {
        to->kind = DS_MOMENT;
        return check_form(t, cut->run.moment[to->moment].dtype,
                          &cut->run.param[to->param].shape, err);
    }
    if (!was || was->kind == CKPT_OPTIM)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: is no tensor of the saved run", t->name);
    to->kind = was->alias_of != saved ? DS_ALIAS
               : was->kind == CKPT_BUFFER ? DS_BUFFER : DS_FROZEN;
    if (to->kind == DS_ALIAS && t->alias_of == i)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: is tied to %s, which is left out", t->name,
                         cut->saved->item[was->alias_of].name);
    return check_form(t, was->dtype, &was->shape, err);
}

/* Check that every saved tensor is written; second names of tied ones may be left out. */
static int check_all_there(const struct ds_cut *cut, struct ckpt_err *err)
{
    const struct ds_run *run = &cut->run;

    for (size_t i = 0; i < cut->saved->n; i++)
        if (cut->saved->item[i].alias_of == i &&
            ckpt_tensors_find(cut->list, cut->saved->item[i].name) == SIZE_MAX)
            return ckpt_fail_as(err, CKPT_EMISMATCH, "missing", "%s: is left out, a run is "
                                "written with all its tensors", cut->saved->item[i].name);
    for (size_t i = 0; i < run->n_param; i++)
        for (size_t k = 0; k < run->n_moment; k++) {
            char name[CKPT_MAX_NAME + 64];

            if (!ds_run_has(run, run->param[i].flat, k))
                continue;
            snprintf(name, sizeof name, "%s|%s", run->param[i].name, run->moment[k].name);
            if (ckpt_tensors_find(cut->list, name) == SIZE_MAX)
                return ckpt_fail_as(err, CKPT_EMISMATCH, "missing", "%s: is left out, a run is "
                                    "written with its optimizer", name);
        }
    return 0;
}

int ds_cut_plan(struct ds_cut *cut, const struct ckpt_tensors *tensors,
                const struct ckpt_source *origin, int stage, int world, struct ckpt_err *err)
{
    const struct ds_files *f = ds_source_files(origin);
    struct ds_module module;
    int rc;

    if (!f)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a DeepSpeed checkpoint is written from another "
                         "DeepSpeed checkpoint alone: the input lacks optimizer and schedule");
    cut->list = tensors;
    cut->saved = ckpt_source_tensors(origin);
    rc = ds_run_plan(&cut->run, f, stage ? stage : f->stage, world ? world : (int)f->world, err);
    if (rc)
        return rc;
    cut->target = ckpt_alloc(tensors->n, sizeof *cut->target);
    rc = cut->target ? ds_module_open(&module, f, err)
                     : ckpt_nomem(err, tensors->n * sizeof *cut->target);
    if (!cut->target)
        return rc;
    for (size_t i = 0; rc == 0 && i < tensors->n; i++)
        rc = find_target(cut, &module, i, err);
    ds_module_close(&module);
    cut->bf16_names = f->bf16_names;
    for (size_t i = 0; rc == 0 && f->stage == 0 && i < tensors->n; i++)
        cut->bf16_names |= cut->target[i].kind == DS_TRAINED &&
                           cut->target[i].model_dtype == CKPT_BF16;
    return rc ? rc : check_all_there(cut, err);
}

void ds_cut_release(struct ds_cut *cut)
{
    ckpt_free(cut->target);
    ds_run_release(&cut->run);
}

void ds_cut_tag(char tag[DS_MAX_TAG], const struct ds_cut *cut)
{
    const struct ds_files *f = cut->run.f;
    int64_t step = 0;

    value_as_int(value_get(f->rank[0].model_root, "global_steps"), &step);
    if (*f->tag)
        snprintf(tag, DS_MAX_TAG, "%s", f->tag);
    else
        snprintf(tag, DS_MAX_TAG, "global_step%lld", (long long)step);
}
