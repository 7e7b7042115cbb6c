/* deepspeed/agree - see deepspeed/agree.h. */
#include "formats/deepspeed/agree.h"

#include <string.h>

#include "formats/deepspeed/universal.h"
#include "libckpt/convert.h"

#define FACT 5000              /* most values of a fact that are compared */

static int differ(struct ckpt_err *err, size_t rank, const char *what, long long found,
                  long long wanted)
{
    return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                        "rank %zu: %s is %lld, rank 0 has %lld: files of two saves", rank, what,
                        found, wanted);
}

/* A number, or a tensor of one element, which is stored in the file. */
static int number(double *out, const struct torch_archive *a, const struct value *v,
                  struct ckpt_err *err)
{
    const struct value_tensor *t = value_is(v, VALUE_TENSOR) ? v->u.tensor : NULL;
    unsigned char bytes[16];
    int64_t numel;
    int rc;

    *out = -1;
    if (value_as_float(v, out) || !t || !ckpt_shape_numel(&numel, &t->shape) || numel != 1 ||
        !ckpt_convert_can(CKPT_F64, t->dtype))
        return 0;
    if ((rc = torch_archive_read(bytes, a, t, 0, 1, err)) == 0)
        ckpt_convert(out, CKPT_F64, bytes, t->dtype, 1);
    return rc;
}

/* The optimizer's count of applied steps: from the first group's state, or from the group. */
static int optimizer_step(double *out, const struct ds_files *f, size_t rank,
                          struct ckpt_err *err)
{
    const struct ds_rank *r = &f->rank[rank];
    const struct value *v = value_get(ds_state(f, rank, 0), "step");

    if (!v)
        v = value_get(value_item(ds_param_groups(f, rank), 0), "step");
    if (!v)
        v = value_get(r->optim_root, "base_optimizer_state_step");
    return number(out, f->stage > 0 ? r->optim : r->model, v, err);
}

/* Check stage and partitions of one rank's optim file. */
static int check_stage(struct ds_files *f, size_t r, struct ckpt_err *err)
{
    const struct value *o = f->rank[r].optim_root;
    bool bf16 = !value_get(o, "zero_stage") && value_get(o, "single_partition_of_fp32_groups");
    int stage = bf16 ? 1 : ds_stage(f, r);

    if (stage < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "rank %zu: its zero_stage is none of 1 to 3", r);
    if (r == 0) {
        f->stage = stage;
        f->bf16 = bf16;
    }
    if (stage != f->stage || bf16 != f->bf16)
        return differ(err, r, "the ZeRO stage", stage, f->stage);
    if (ds_partitions(f, r) != f->n)
        return differ(err, r, "the number of partitions", (long long)ds_partitions(f, r),
                      (long long)f->n);
    if (value_get(o, "ds_zero_partition_groups"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "rank %zu: expert groups of their own (AutoEP) are not read", r);
    return 0;
}

/* Check number of ranks and step in the model file. */
static int check_counters(const struct ds_files *f, size_t r, struct ckpt_err *err)
{
    static const char *const same[] = {"global_steps", "skipped_steps", "global_samples"};
    const struct value *m = f->rank[r].model_root;
    int64_t a, b, mics = 0;

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (value_as_int(value_get(m, same[i]), &a) &&
            value_as_int(value_get(f->rank[0].model_root, same[i]), &b) && a != b)
            return differ(err, r, same[i], a, b);
    if (value_as_int(value_get(m, "mp_world_size"), &a) && a > 1 && !f->layers && !f->universal)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "saved with %lld model-parallel ranks, which is not read", (long long)a);
    /* With MiCS the world is larger than the group that partitions, and only that group writes. */
    value_as_int(ds_zero_option(f, "mics_shard_size"), &mics);
    if (f->stage > 0 && mics <= 0 && !f->universal &&
        value_as_int(value_get(m, "dp_world_size"), &a) && a != (int64_t)f->n)
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                            "rank %zu: its model file is of %lld ranks, its optim file of %zu", r,
                            (long long)a, f->n);
    return 0;
}

static int check_version(const struct ds_files *f, size_t r, struct ckpt_err *err)
{
    const struct ds_rank *a = &f->rank[r], *b = &f->rank[0];
    const char *wanted = value_as_str(value_get(b->model_root, "ds_version"));
    const struct value *in[] = {a->model_root, a->optim_file};

    for (size_t i = 0; wanted && i < 2; i++) {
        const char *found = value_as_str(value_get(in[i], "ds_version"));

        if (found && strcmp(found, wanted) != 0)
            return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: written by DeepSpeed %s, rank 0 by %s: files of two "
                                "saves", r, found, wanted);
    }
    return 0;
}

/* Whether two dictionaries of shapes are equal and in the same order. */
static int same_shapes(const struct value *a, const struct value *b, size_t r,
                       const char *what, struct ckpt_err *err)
{
    size_t n = value_is(a, VALUE_DICT) ? a->u.dict.n : 0;
    size_t wanted = value_is(b, VALUE_DICT) ? b->u.dict.n : 0;
    int rc;

    if (n != wanted)
        return differ(err, r, what, (long long)n, (long long)wanted);
    for (size_t i = 0; i < n; i++) {
        struct ds_listed x, y;
        char s[96], t[96];

        if ((rc = ds_shape_at(&x, a, i, what, err)) != 0 ||
            (rc = ds_shape_at(&y, b, i, what, err)) != 0)
            return rc;
        if (strcmp(x.name, y.name) != 0 || !ckpt_shape_equal(&x.shape, &y.shape))
            return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: parameter %zu of %s is %s %s, rank 0 has %s %s", r, i,
                                what, x.name, ckpt_shape_text(s, sizeof s, &x.shape), y.name,
                                ckpt_shape_text(t, sizeof t, &y.shape));
    }
    return 0;
}

/* In stage 3 every rank lists the parameters; all lists must agree. */
static int check_shapes(const struct ds_files *f, size_t r, struct ckpt_err *err)
{
    size_t n = ds_shape_groups(f, r), wanted = ds_shape_groups(f, 0);
    int rc;

    if (n != wanted)
        return differ(err, r, "the number of parameter groups", (long long)n,
                      (long long)wanted);
    for (size_t g = 0; g < n; g++)
        if ((rc = same_shapes(ds_shapes(f, r, g), ds_shapes(f, 0, g), r, "param_shapes",
                              err)) != 0)
            return rc;
    return same_shapes(value_get(f->rank[r].model_root, "frozen_param_shapes"),
                       value_get(f->rank[0].model_root, "frozen_param_shapes"), r,
                       "frozen_param_shapes", err);
}

/* The number of saving ranks, where the number of files does not tell. */
static void saved_world(struct ds_files *f)
{
    int64_t world;

    if (value_as_int(value_get(f->rank[0].model_root, "dp_world_size"), &world) && world >= 1 &&
        world <= DS_MAX_RANKS)
        f->world = (size_t)world;
}

/* Whether the model computes in bf16, judged by its first trained parameter. */
static bool computes_in_bf16(const struct ds_files *f)
{
    struct value *v = NULL;
    const char *name;
    size_t first = 0;

    if (value_next(ds_shapes(f, 0, 0), &first, &name, &v))
        v = value_get(value_get(f->rank[0].model_root, "module"), name);
    return value_is(v, VALUE_TENSOR) && v->u.tensor->dtype == CKPT_BF16;
}

/* Check a universal checkpoint: its model files agree; they have the original run's stage. */
static int agree_universal(struct ds_files *f, struct ckpt_err *err)
{
    int stage = ds_stage(f, 0);
    int rc;

    f->bf16 = stage < 0 && !f->sharded;
    f->bf16_names = computes_in_bf16(f);
    f->stage = f->sharded ? 3 : stage < 1 ? 1 : stage > 2 ? 2 : stage;
    saved_world(f);
    for (size_t r = 0; r < f->n; r++)
        if ((rc = check_counters(f, r, err)) != 0 || (rc = check_version(f, r, err)) != 0 ||
            (r > 0 && (rc = check_shapes(f, r, err)) != 0))
            return rc;
    return number(&f->step, f->universal->step_file, f->universal->step, err);
}

/* Check a value that all ranks must share; budgeted, since it is walked once per rank. */
static int check_fact(const char *what, size_t r, const struct value *a, const struct value *b,
                      struct ckpt_err *err)
{
    json_t *x, *y;
    bool same;

    if (!a || !b)
        return 0;
    x = value_to_json(a, FACT);
    y = value_to_json(b, FACT);
    same = !x || !y || json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "rank %zu: its %s is not that of "
                                   "rank 0: files of two runs", r, what);
}

/* Check facts in which two runs of the same model differ even at the same step. */
static int check_facts(const struct ds_files *f, size_t r, struct ckpt_err *err)
{
    enum { MODEL, OPTIM, OPTIM_FILE };
    static const struct { int in; const char *key; } rows[] = {
        {MODEL, "ds_config"}, {MODEL, "lr_scheduler"}, {OPTIM, "loss_scaler"},
        {OPTIM, "dynamic_loss_scale"}, {OPTIM, "overflow"}, {OPTIM, "clip_grad"},
        {OPTIM_FILE, "ds_config"},
    };
    const struct ds_rank *a = &f->rank[r], *b = &f->rank[0];
    const struct value *const of_a[] = {a->model_root, a->optim_root, a->optim_file};
    const struct value *const of_b[] = {b->model_root, b->optim_root, b->optim_file};
    int rc;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rc = check_fact(rows[i].key, r, value_get(of_a[rows[i].in], rows[i].key),
                             value_get(of_b[rows[i].in], rows[i].key), err)) != 0)
            return rc;
    /* The order of groups of experts differs from process to process: see ds_expert_group. */
    return !a->optim || f->experts
               ? 0 : check_fact("param_groups", r, ds_param_groups(f, r), ds_param_groups(f, 0),
                                err);
}

int ds_agree(struct ds_files *f, struct ckpt_err *err)
{
    int rc;

    f->world = f->n;
    if (f->universal)
        return agree_universal(f, err);
    if (!f->rank[0].optim)
        saved_world(f);
    f->stage = 0;
    f->step = -1;
    for (size_t r = 0; r < f->n; r++) {
        const struct ds_rank *rank = &f->rank[r];
        double step = -1;

        if (rank->optim && (rc = check_stage(f, r, err)) != 0)
            return rc;
        if ((rc = check_version(f, r, err)) != 0)
            return rc;
        if (rank->model && ((rc = check_counters(f, r, err)) != 0 ||
                            (r > 0 && (rc = check_shapes(f, r, err)) != 0)))
            return rc;
        if ((rc = optimizer_step(&step, f, r, err)) != 0 ||
            (r > 0 && (rc = check_facts(f, r, err)) != 0))
            return rc;
        if (r == 0)
            f->step = step;
        if (step != f->step)
            return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                                "rank %zu: its optimizer is at step %g, that of rank 0 at %g: "
                                "files of two saves", r, step, f->step);
    }
    if (f->rank[0].optim && f->sharded != (f->stage == 3))
        return ckpt_fail(err, CKPT_EFORMAT, "of stage %d, yet %s", f->stage,
                         f->sharded ? "every rank has a model file"
                                    : "there is one model file for all ranks");
    return 0;
}

static int stages_differ(struct ckpt_err *err, const struct ds_files *other, const char *what,
                         double found, double wanted)
{
    return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "mp_rank_%02zu: %s is %g, mp_rank_00 has "
                        "%g: files of two saves", other->mp, what, found, wanted);
}

int ds_agree_stages(const struct ds_files *first, const struct ds_files *other,
                    struct ckpt_err *err)
{
    static const char *const same[] = {"global_steps", "skipped_steps", "global_samples",
                                       "dp_world_size", "mp_world_size"};
    const struct value *m = other->rank[0].model_root, *n = first->rank[0].model_root;
    const char *found = value_as_str(value_get(m, "ds_version"));
    const char *wanted = value_as_str(value_get(n, "ds_version"));
    int64_t a, b;

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (value_as_int(value_get(m, same[i]), &a) && value_as_int(value_get(n, same[i]), &b) &&
            a != b)
            return stages_differ(err, other, same[i], (double)a, (double)b);
    if (found && wanted && strcmp(found, wanted) != 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch", "mp_rank_%02zu: written by DeepSpeed "
                            "%s, mp_rank_00 by %s: files of two saves", other->mp, found, wanted);
    if (other->stage != first->stage)
        return stages_differ(err, other, "the ZeRO stage", other->stage, first->stage);
    if (other->n != first->n)
        return stages_differ(err, other, "the number of ranks", (double)other->n,
                             (double)first->n);
    return other->step == first->step
               ? 0 : stages_differ(err, other, "the optimizer's step", other->step, first->step);
}
