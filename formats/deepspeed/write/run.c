/* write/run - see write/run.h.  Source: DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py
 * (_round_robin_reorder) and stage3.py (_create_fp16_sub_groups). */
#include "formats/deepspeed/write/run.h"

#include <string.h>

#include "formats/deepspeed/stage0.h"
#include "formats/deepspeed/universal.h"

static bool round_robin(const struct ds_run *run, int stage)
{
    const struct value *v = ds_zero_option(run->f, "round_robin_gradients");
    int64_t on = 0;

    return (stage == 1 || stage == 2) && !run->f->bf16 && value_as_int(v, &on) && on != 0;
}

/* -- what was saved -------------------------------------------------------------------------- */

/* Flat tensor number `key` of the saved run belongs to group g: add its parameters. */
static int add_saved(struct ds_run *run, size_t g, size_t key, struct ckpt_err *err)
{
    const struct value *shapes = ds_shapes(run->f, 0, key);
    size_t n = value_is(shapes, VALUE_DICT) ? shapes->u.dict.n : 0;
    struct ds_run_param *more;
    int rc;

    if (!shapes)
        return ckpt_fail(err, CKPT_EFORMAT, "optimizer: group %zu names number %zu, of %zu", g, key,
                         ds_shape_groups(run->f, 0));
    more = ckpt_grow(run->param, run->n_param + n + 1, sizeof *more);
    if (!more)
        return ckpt_nomem(err, (run->n_param + n) * sizeof *more);
    run->param = more;
    for (size_t i = 0; i < n; i++) {
        struct ds_listed p;

        if ((rc = ds_shape_at(&p, shapes, i, "param_shapes", err)) != 0)
            return rc;
        run->param[run->n_param++] =
            (struct ds_run_param){.name = p.name, .shape = p.shape, .numel = p.numel};
    }
    return 0;
}

/* Deal n parameters out to ranks in turn; back: the inverse. */
static int deal(struct ds_run_param *param, size_t n, size_t ranks, bool back,
                struct ckpt_err *err)
{
    struct ds_run_param *was = ckpt_alloc(n, sizeof *was);
    size_t k = 0;

    if (!was)
        return ckpt_nomem(err, n * sizeof *was);
    memcpy(was, param, n * sizeof *was);
    for (size_t r = 0; r < ranks; r++)
        for (size_t i = r; i < n; i += ranks, k++)
            param[back ? i : k] = was[back ? k : i];
    ckpt_free(was);
    return 0;
}

/* Take group g of the optimizer: its options, its state, its parameters in their original order. */
static int take_group(struct ds_run *run, size_t g, struct ckpt_err *err)
{
    struct ds_run_group *group = &run->group[g];
    const struct value *keys = value_get(group->options, "params");
    size_t before = group->first = run->n_param;
    int64_t key;
    int rc;

    if (!value_is(group->options, VALUE_DICT) || !value_is(keys, VALUE_LIST))
        return ckpt_fail(err, CKPT_EFORMAT, "optimizer: group %zu lists no parameters", g);
    for (size_t i = 0; i < keys->u.seq.n; i++) {
        if (!value_as_int(keys->u.seq.item[i], &key) || key < 0)
            return ckpt_fail(err, CKPT_EFORMAT, "optimizer: group %zu names no number", g);
        if (i == 0 && !run->f->universal)
            group->state = ds_state(run->f, 0, (size_t)key);
        if ((rc = add_saved(run, g, (size_t)key, err)) != 0)
            return rc;
    }
    return round_robin(run, run->f->stage)
               ? deal(run->param + before, run->n_param - before, run->f->world, true, err) : 0;
}

/* Take the moments of a universal checkpoint as a state that all groups share. */
static int take_universal(struct ds_run *run, struct ckpt_err *err)
{
    const struct ds_universal *u = run->f->universal;
    struct value *state = value_dict(&run->arena, false);
    int rc;

    run->state_file = u->step_file;
    run->n_moment = u->n_state;
    run->moment = ckpt_arena_alloc(&run->arena, u->n_state, sizeof *run->moment);
    if (!state || !run->moment ||
        (u->step && value_set_str(&run->arena, state, "step", (struct value *)u->step)))
        return ckpt_nomem(err, sizeof *state);
    for (size_t i = 0; i < u->n_state; i++) {
        run->moment[i].name = u->state[i];
        if (value_set_str(&run->arena, state, u->state[i], value_none(&run->arena)))
            return ckpt_nomem(err, sizeof *state);
        if ((rc = universal_dtype(&run->moment[i].dtype, run->f, u->state[i], err)) != 0)
            return rc;
    }
    for (size_t g = 0; g < run->n_group; g++)
        run->group[g].state = state;
    return universal_dtype(&run->dtype, run->f, NULL, err);
}

/* Take the names of the tensors that the optimizer keeps per element: groups that Muon steps have
 * others than AdamW's. */
static int take_moments(struct ds_run *run, struct ckpt_err *err)
{
    size_t most = 1;
    const char *name;
    struct value *v;

    for (size_t g = 0; g < run->n_group; g++)
        most += value_is(run->group[g].state, VALUE_DICT) ? run->group[g].state->u.dict.n : 0;
    run->state_file = run->f->stage == 0 ? run->f->rank[0].model : run->f->rank[0].optim;
    run->moment = ckpt_arena_alloc(&run->arena, most, sizeof *run->moment);
    if (!run->moment)
        return ckpt_nomem(err, most * sizeof *run->moment);
    for (size_t g = 0; g < run->n_group; g++)
        for (size_t i = 0; value_next(run->group[g].state, &i, &name, &v);)
            if (value_is(v, VALUE_TENSOR) && v->u.tensor->shape.rank > 0 &&  /* step has no axes */
                ds_run_moment_of(run, name) == run->n_moment)
                run->moment[run->n_moment++] = (struct ds_run_moment){name, v->u.tensor->dtype};
    return 0;
}

/* Without ZeRO each number of the optimizer is one parameter. */
static int take_stage0(struct ds_run *run, struct ckpt_err *err)
{
    struct ds_numbered *number;
    size_t n;
    int rc;

    if ((rc = ds_stage0_names(&number, &n, &run->arena, run->f, err)) != 0)
        return rc;
    run->param = ckpt_alloc(n, sizeof *run->param);
    if (!run->param)
        return ckpt_nomem(err, n * sizeof *run->param);
    run->options_file = run->f->rank[0].model;
    for (size_t g = 0; g < run->n_group; g++) {
        run->group[g].first = run->n_param;
        for (size_t i = 0; i < n; i++) {
            struct ds_run_param *p = &run->param[run->n_param];

            if (number[i].group != g)
                continue;
            *p = (struct ds_run_param){.name = number[i].name, .shape = number[i].shape};
            if (!ckpt_shape_numel(&p->numel, &p->shape))
                return ckpt_fail(err, CKPT_EFORMAT, "%s: its shape has no count", p->name);
            if (run->n_param > 0 && number[i].dtype != run->dtype)
                return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the optimizer has it as %s, others "
                                 "as %s", p->name, ckpt_dtype_name(number[i].dtype),
                                 ckpt_dtype_name(run->dtype));
            run->dtype = number[i].dtype;
            if (run->group[g].first == run->n_param)
                run->group[g].state = number[i].state;
            run->n_param++;
        }
    }
    return 0;
}

/* The dtype of the optimizer's own weights: F32, or the one in data_types. */
static int take_dtype(struct ds_run *run, struct ckpt_err *err)
{
    const struct value *o = run->f->rank[0].optim_root;
    const struct value *v = value_item(value_get(o, run->f->stage == 3
                                                     ? "fp32_flat_groups"
                                                     : "single_partition_of_fp32_groups"), 0);

    if (!value_is(v, VALUE_TENSOR))
        return ckpt_fail(err, CKPT_EFORMAT, "no weights of the optimizer's in its file");
    run->dtype = v->u.tensor->dtype;
    return 0;
}

static bool has_fillers(const struct value *v)
{
    int64_t n;

    for (size_t g = 0; g < value_count(v); g++)
        for (size_t i = 0; i < value_count(value_item(v, g)); i++)
            if (value_as_int(value_item(value_item(v, g), i), &n) && n != 0)
                return true;
    return false;
}

static int refuse(const struct ds_run *run, struct ckpt_err *err)
{
    const struct value *o = run->f->rank[0].optim_root;
    const struct { bool is; const char *why; } rows[] = {
        {run->f->universal && run->f->universal->sliced,
         "made of a run of several mp_ranks, whose model files have slices"},
        {run->f->layers, "a pipeline, which is not written at another stage"},
        {run->f->experts, "a run with experts, which is not written at another stage"},
        {value_is(value_get(o, "base_optimizer_state"), VALUE_LIST),
         "saved with elastic_checkpoint: the optimizer's learning rate and betas are not in it"},
        {has_fillers(value_get(o, "param_alignment_paddings")),
         "saved with zero_optimization.parameter_alignment, which is not written"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].is)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s", rows[i].why);
    return 0;
}

/* -- the new cut ----------------------------------------------------------------------------- */

static int add_flat(struct ds_run *run, size_t first, size_t group, struct ckpt_err *err)
{
    struct ds_run_flat *more = ckpt_grow(run->flat, run->n_flat + 1, sizeof *more);

    if (!more)
        return ckpt_nomem(err, (run->n_flat + 1) * sizeof *more);
    run->flat = more;
    run->flat[run->n_flat++] = (struct ds_run_flat){.first = first, .group = group};
    return 0;
}

/* Lay out parameters [first, end) of a group; in stage 3 in sub-groups of about `limit`
 * elements. */
static int cut_group(struct ds_run *run, size_t g, size_t first, size_t end, int64_t limit,
                     struct ckpt_err *err)
{
    bool open = false;
    int rc;

    if (run->stage < 3 && (rc = add_flat(run, first, g, err)) != 0)
        return rc;
    for (size_t i = first; i < end; i++) {
        struct ds_run_param *p = &run->param[i];
        struct ds_run_flat *flat;

        if (run->stage == 3 && !open && (rc = add_flat(run, i, g, err)) != 0)
            return rc;
        flat = &run->flat[run->n_flat - 1];
        p->flat = run->n_flat - 1;
        p->at = flat->numel;
        flat->n++;
        if (__builtin_add_overflow(flat->numel, run->stage == 3 ? ds3_part(p->numel, run->world)
                                                                : p->numel, &flat->numel) ||
            flat->numel > INT64_MAX / 4)
            return ckpt_fail(err, CKPT_EFORMAT, "group %zu has more elements than can be", g);
        open = flat->numel < limit;
    }
    return 0;
}

static int cut(struct ds_run *run, struct ckpt_err *err)
{
    double limit;
    int rc;

    if (!value_as_float(ds_zero_option(run->f, "sub_group_size"), &limit) ||
        !(limit >= 1 && limit <= 1e18))
        limit = DS_SUB_GROUP_SIZE;
    for (size_t g = 0; g < run->n_group; g++) {
        size_t first = run->group[g].first;
        size_t end = g + 1 < run->n_group ? run->group[g + 1].first : run->n_param;

        if (round_robin(run, run->stage) &&
            (rc = deal(run->param + first, end - first, (size_t)run->world, false, err)) != 0)
            return rc;
        if ((rc = cut_group(run, g, first, end, (int64_t)limit, err)) != 0)
            return rc;
    }
    return 0;
}

int ds_run_plan(struct ds_run *run, const struct ds_files *f, int stage, int world,
                struct ckpt_err *err)
{
    const struct value *groups = ds_param_groups(f, 0);
    int rc;

    *run = (struct ds_run){.f = f, .stage = stage, .world = world};
    if (stage < 1 || stage > 3 || world < 1 || world > DS_MAX_WORLD)
        return ckpt_fail(err, CKPT_EUSAGE, "stage %d on %d ranks: stages 1 to 3 on 1 to %d ranks "
                         "are written", stage, world, DS_MAX_WORLD);
    if ((rc = refuse(run, err)) != 0)
        return rc;
    run->n_group = value_count(groups);
    run->group = ckpt_arena_alloc(&run->arena, run->n_group, sizeof *run->group);
    if (!run->group)
        return ckpt_nomem(err, run->n_group * sizeof *run->group);
    run->options_file = f->rank[0].optim;
    for (size_t g = 0; rc == 0 && g < run->n_group; g++) {
        run->group[g].options = value_item(groups, g);
        rc = f->stage > 0 ? take_group(run, g, err) : 0;
    }
    if (rc == 0)
        rc = f->stage == 0 ? take_stage0(run, err) : f->universal ? 0 : take_dtype(run, err);
    if (rc == 0)
        rc = f->universal ? take_universal(run, err) : take_moments(run, err);
    if (rc == 0)
        rc = cut(run, err);
    if (rc == 0)
        rc = ckpt_map_new(&run->by_name, run->n_param, err);
    for (size_t i = 0; rc == 0 && i < run->n_param; i++)
        rc = ckpt_map_add(run->by_name, run->param[i].name, strlen(run->param[i].name), i, err);
    return rc;
}

void ds_run_release(struct ds_run *run)
{
    ckpt_map_free(run->by_name);
    ckpt_free(run->param);
    ckpt_free(run->flat);
    ckpt_arena_release(&run->arena);
}

const struct value *ds_run_state(const struct ds_run *run, size_t flat)
{
    return run->group[run->flat[flat].group].state;
}

bool ds_run_has(const struct ds_run *run, size_t flat, size_t moment)
{
    const struct value *state = ds_run_state(run, flat);

    return !value_is(state, VALUE_DICT) || value_get(state, run->moment[moment].name);
}

size_t ds_run_moment_of(const struct ds_run *run, const char *name)
{
    size_t i = 0;

    while (i < run->n_moment && strcmp(run->moment[i].name, name) != 0)
        i++;
    return i;
}

int64_t ds_run_part(const struct ds_run *run, size_t flat)
{
    int64_t numel = run->flat[flat].numel;

    return run->stage == 3 ? numel : ds12_part(numel, run->world, DS_ALIGN);
}

int64_t ds_run_padding(const struct ds_run *run, size_t flat, int rank)
{
    return run->stage == 3 ? 0 : ds12_padding(run->flat[flat].numel, rank, run->world,
                                                DS_ALIGN);
}

struct ds_piece ds_run_piece(const struct ds_run *run, size_t i, int rank)
{
    const struct ds_run_param *p = &run->param[i];

    return run->stage == 3 ? ds3_piece(p->numel, p->at, rank, run->world)
                           : ds12_piece(p->at, p->numel, run->flat[p->flat].numel, rank,
                                        run->world, DS_ALIGN);
}
