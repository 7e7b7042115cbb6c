/* deepspeed_files - see deepspeed_files.h. */
#include "formats/weights/deepspeed_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ds_find_tag(char tag[256], struct ckpt_dir *dir, const char *wanted, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *f = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = 0;

    if (!wanted) {
        rc = ckpt_file_open_at(&f, dir, "latest", err);
        if (rc == 0)
            rc = ckpt_file_slurp(f, &a, 256, &text, &n, err);
        ckpt_file_close(f);
        while (rc == 0 && n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
            text[--n] = '\0';
        wanted = text;
    }
    if (rc == 0 && (!ckpt_name_is_clean(wanted) || wanted[0] == '.' ||
                    (text && strlen(text) != n)))
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: the tag \"%s\" is no clean name",
                          text ? "latest" : "--tag", wanted);
    if (rc == 0)
        snprintf(tag, 256, "%s", wanted);
    ckpt_arena_release(&a);
    return rc;
}

/* The rank in "[bf16_]zero_pp_rank_R_mp_rank_00_<what>_states.pt", or -1. */
static long rank_of(const char *name, const char *what)
{
    char tail[64];
    const char *digits;
    char *end;
    long r;

    if (strncmp(name, "bf16_", 5) == 0)
        name += 5;
    if (strncmp(name, "zero_pp_rank_", 13) != 0)
        return -1;
    digits = name + 13;
    if (*digits < '0' || *digits > '9')
        return -1;
    r = strtol(digits, &end, 10);
    snprintf(tail, sizeof tail, "_mp_rank_00_%s_states.pt", what);
    return strcmp(end, tail) == 0 && r < DS_MAX_RANKS ? r : -1;
}

static int open_one(struct torch_archive **out, const struct value **root, struct ckpt_dir *dir,
                    const char *name, struct ckpt_err *err)
{
    struct ckpt_file *file;

    if (ckpt_file_open_at(&file, dir, name, err) || torch_archive_open(out, file, err))
        return err->code;
    *root = torch_archive_root(*out);
    if (!value_is(*root, VALUE_DICT))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: holds no dictionary", name);
    return 0;
}

/* Names of the rank files into slots; the model file of stages 0 to 2 serves all ranks. */
static int collect(struct ds_files *f, const char **model, const char **optim,
                   const char **single, const struct ckpt_entry *entry, size_t n,
                   struct ckpt_err *err)
{
    long most = -1;

    for (size_t i = 0; i < n; i++) {
        long m = rank_of(entry[i].name, "model"), o = rank_of(entry[i].name, "optim");

        if (!entry[i].is_file)
            continue;
        if (strcmp(entry[i].name, "mp_rank_00_model_states.pt") == 0)
            *single = entry[i].name;
        if (strncmp(entry[i].name, "mp_rank_01", 10) == 0)
            return ckpt_fail(err, CKPT_EUNSUPPORTED,
                             "%s: tensor-parallel checkpoints are not read", entry[i].name);
        if (m >= 0)
            model[m] = entry[i].name;
        if (o >= 0)
            optim[o] = entry[i].name;
        most = m > most ? m : most;
        most = o > most ? o : most;
    }
    f->n = most < 0 ? 1 : (size_t)most + 1;
    return 0;
}

static int open_ranks(struct ds_files *f, struct ckpt_dir *dir, const char **model,
                      const char **optim, const char *single, struct ckpt_err *err)
{
    bool sharded = single == NULL;

    for (size_t r = 0; r < f->n; r++) {
        if (sharded && !model[r])
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "rank %zu of %zu: its "
                                "zero_pp_rank_%zu_mp_rank_00_model_states.pt is absent",
                                r, f->n, r);
        if ((sharded || optim[0] || f->n > 1) && !optim[r])
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "rank %zu of %zu: its "
                                "zero_pp_rank_%zu_mp_rank_00_optim_states.pt is absent",
                                r, f->n, r);
        if ((sharded || r == 0) &&
            open_one(&f->rank[r].model, &f->rank[r].model_root, dir, sharded ? model[r] : single,
                     err))
            return err->code;
        if (optim[r]) {
            if (open_one(&f->rank[r].optim, &f->rank[r].optim_root, dir, optim[r], err))
                return err->code;
            f->rank[r].optim_root = value_get(f->rank[r].optim_root, "optimizer_state_dict");
            if (!value_is(f->rank[r].optim_root, VALUE_DICT))
                return ckpt_fail(err, CKPT_EFORMAT, "%s: no optimizer_state_dict", optim[r]);
        }
    }
    return 0;
}

/* ZeroStageEnum(n), or a plain int of before 0.7. */
static int64_t stage_of(const struct value *v)
{
    int64_t stage = -1;

    if (value_is(v, VALUE_OBJECT) && v->u.obj.args && v->u.obj.args->u.seq.n == 1)
        v = v->u.obj.args->u.seq.item[0];
    return value_as_int(v, &stage) ? stage : -1;
}

/* partition_count: one number, or one per group. */
static int64_t partitions_of(const struct value *v)
{
    int64_t most = -1, n;

    if (value_as_int(v, &n))
        return n;
    for (size_t i = 0; value_is(v, VALUE_LIST) && i < v->u.seq.n; i++)
        if (value_as_int(v->u.seq.item[i], &n) && n > most)
            most = n;
    return most;
}

/* All ranks tell of the same step, stage and world. */
static int agree(struct ds_files *f, struct ckpt_err *err)
{
    int64_t step = -1, s;

    f->stage = 0;
    for (size_t r = 0; r < f->n; r++) {
        const struct value *o = f->rank[r].optim_root, *m = f->rank[r].model_root;

        if (o) {
            int64_t stage = stage_of(value_get(o, "zero_stage"));
            int64_t parts = partitions_of(value_get(o, "partition_count"));

            f->bf16 = stage < 0 && value_get(o, "single_partition_of_fp32_groups");
            if (f->bf16)
                stage = 1;
            if (stage < 1 || stage > 3)
                return ckpt_fail(err, CKPT_EFORMAT, "rank %zu: no zero_stage of 1 to 3", r);
            if (r > 0 && stage != f->stage)
                return ckpt_fail(err, CKPT_EFORMAT, "rank %zu: stage %lld, rank 0 has %d", r,
                                 (long long)stage, f->stage);
            if (parts != (int64_t)f->n)
                return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                    "rank %zu: of %lld partitions, %zu rank files are there", r,
                                    (long long)parts, f->n);
            f->stage = (int)stage;
        }
        if (m && value_as_int(value_get(m, "global_steps"), &s)) {
            if (step >= 0 && s != step)
                return ckpt_fail(err, CKPT_EFORMAT, "rank %zu: is of step %lld, rank 0 of step "
                                 "%lld", r, (long long)s, (long long)step);
            step = s;
        }
    }
    if ((f->stage == 3) != (f->n > 1 ? f->rank[1].model != NULL : f->stage == 3))
        return ckpt_fail(err, CKPT_EFORMAT, "model files do not go with stage %d", f->stage);
    return 0;
}

int ds_files_open(struct ds_files *f, struct ckpt_dir *dir, const char *tag,
                  struct ckpt_err *err)
{
    const char **model = NULL, **optim, *single = NULL;
    struct ckpt_arena a = {0};
    struct ckpt_dir *sub = NULL;
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc;

    memset(f, 0, sizeof *f);
    snprintf(f->tag, sizeof f->tag, "%s", tag);
    rc = *tag ? ckpt_dir_open_at(&sub, dir, tag, err) : 0;
    if (rc == 0)
        rc = ckpt_dir_list(sub ? sub : dir, &a, &entry, &n, err);
    if (rc == 0 && !(model = ckpt_alloc(2 * DS_MAX_RANKS, sizeof *model)))
        rc = ckpt_nomem(err, 2 * DS_MAX_RANKS * sizeof *model);
    optim = model + DS_MAX_RANKS;
    if (rc == 0)
        rc = collect(f, model, optim, &single, entry, n, err);
    if (rc == 0 && !single && !model[0] && !optim[0])
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no DeepSpeed files in it", tag);
    if (rc == 0 && !(f->rank = ckpt_alloc(f->n, sizeof *f->rank)))
        rc = ckpt_nomem(err, f->n * sizeof *f->rank);
    if (rc == 0)
        rc = open_ranks(f, sub ? sub : dir, model, optim, single, err);
    if (rc == 0)
        rc = agree(f, err);
    ckpt_free(model);
    ckpt_dir_close(sub);
    ckpt_arena_release(&a);
    if (rc)
        ds_files_close(f);
    return rc;
}

void ds_files_close(struct ds_files *f)
{
    for (size_t r = 0; f->rank && r < f->n; r++) {
        torch_archive_close(f->rank[r].model);
        torch_archive_close(f->rank[r].optim);
    }
    ckpt_free(f->rank);
    memset(f, 0, sizeof *f);
}
