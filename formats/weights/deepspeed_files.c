/* deepspeed_files - see deepspeed_files.h. */
#include "formats/weights/deepspeed_files.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/weights/deepspeed_agree.h"
#include "formats/weights/deepspeed_experts.h"
#include "formats/weights/universal.h"

int ds_find_tag(char tag[DS_MAX_TAG], struct ckpt_dir *dir, const char *wanted,
                struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *f = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = 0;

    if (!wanted) {
        rc = ckpt_file_open_at(&f, dir, ckpt_dir_has(dir, "latest") ? "latest"
                                                                    : "latest_universal", err);
        if (rc == 0)
            rc = ckpt_file_slurp(f, &a, DS_MAX_TAG, &text, &n, err);
        ckpt_file_close(f);
        while (rc == 0 && n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
            text[--n] = '\0';
        wanted = text;
    }
    if (rc == 0 && (!ckpt_name_is_clean(wanted) || wanted[0] == '.' ||
                    strlen(wanted) >= DS_MAX_TAG || (text && strlen(text) != n)))
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: the tag \"%s\" is no clean name",
                          text ? "latest" : "--tag", wanted);
    if (rc == 0)
        snprintf(tag, DS_MAX_TAG, "%s", wanted);
    ckpt_arena_release(&a);
    return rc;
}

/* -- names ----------------------------------------------------------------------------------- */

/* The names found, by rank; NULL where there is none. */
struct names {
    const char **model, **optim;        /* [DS_MAX_RANKS] */
    const char  *single;                /* mp_rank_00_model_states.pt */
    bool         universal;             /* zero/ is there */
    size_t       end;                   /* one more than the highest rank seen */
};

/* The rank in "[bf16_]zero_pp_rank_R_mp_rank_00[_]<what>_states.pt", or -1. */
static long rank_of(const char *name, const char *what)
{
    char *end;
    long r;

    if (strncmp(name, "bf16_", 5) == 0)
        name += 5;
    if (strncmp(name, "zero_pp_rank_", 13) != 0)
        return -1;
    name += 13;
    if (*name < '0' || *name > '9' || (name[0] == '0' && name[1] >= '0' && name[1] <= '9'))
        return -1;
    r = strtol(name, &end, 10);
    if (strncmp(end, "_mp_rank_00", 11) != 0 || r >= DS_MAX_RANKS)
        return -1;
    end += 11;
    end += *end == '_';                 /* 0.3 left this one out */
    return strncmp(end, what, strlen(what)) == 0 && strcmp(end + strlen(what), "_states.pt") == 0
               ? r : -1;
}

/* What belongs to a kind of parallelism that is not read, by file name. */
static const struct { const char *glob, *what; } foreign[] = {
    {"*mp_rank_0[1-9]*_states.pt", "a tensor- or pipeline-parallel checkpoint"},
    {"*mp_rank_[1-9]*_states.pt", "a tensor- or pipeline-parallel checkpoint"},
    {"layer_*-model_states.pt", "a pipeline checkpoint"},
};

static int take(const char **slot, const char *name, struct ckpt_err *err)
{
    if (*slot)
        return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate",
                            "%s and %s: two files of one rank, of two saves", *slot, name);
    *slot = name;
    return 0;
}

static int collect(struct names *names, const struct ckpt_entry *entry, size_t n,
                   struct ckpt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = entry[i].name;
        long m = rank_of(name, "model"), o = rank_of(name, "optim"), r = m > o ? m : o;

        names->universal |= entry[i].is_dir && strcmp(name, "zero") == 0;
        if (!entry[i].is_file || ds_expert_file(name))
            continue;
        for (size_t k = 0; k < sizeof foreign / sizeof foreign[0]; k++)
            if (fnmatch(foreign[k].glob, name, 0) == 0)
                return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: of %s, which is not read", name,
                                 foreign[k].what);
        if (strcmp(name, "mp_rank_00_model_states.pt") == 0)
            names->single = name;
        if ((m >= 0 && take(&names->model[m], name, err)) ||
            (o >= 0 && take(&names->optim[o], name, err)))
            return err->code;
        if (r >= (long)names->end)
            names->end = (size_t)r + 1;
    }
    if (!names->single && names->end == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "no DeepSpeed files in it");
    if (names->single && names->model[0] && !names->universal)
        return ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                            "%s and %s: model files of two saves of different stages",
                            names->single, names->model[0]);
    return 0;
}

/* -- opening --------------------------------------------------------------------------------- */

static int open_optim(struct ds_rank *rank, struct ckpt_dir *dir, const char *name,
                      struct ckpt_err *err)
{
    if (ds_archive_open(&rank->optim, &rank->optim_file, dir, name, err))
        return err->code;
    rank->optim_root = value_get(rank->optim_file, "optimizer_state_dict");
    if (!value_is(rank->optim_root, VALUE_DICT))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no optimizer_state_dict in it", name);
    return 0;
}

/* Every rank's files are there, and no file is of a rank beyond the world. */
static int check_complete(const struct names *names, size_t world, bool sharded,
                          struct ckpt_err *err)
{
    for (size_t r = 0; r < world; r++) {
        const char *what = sharded && !names->model[r] ? "model" :
                           !names->optim[r] ? "optim" : NULL;

        if (what)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "rank %zu of %zu: its zero_pp_rank_%zu_mp_rank_00_%s_states.pt is "
                                "absent", r, world, r, what);
    }
    for (size_t r = world; r < names->end; r++)
        if (names->model[r] || names->optim[r])
            return ckpt_fail_as(err, CKPT_EFORMAT, "unexpected",
                                "%s: of a rank beyond the %zu that saved, left by another save",
                                names->optim[r] ? names->optim[r] : names->model[r], world);
    return 0;
}

/* The model files of a universal checkpoint: the one for all stages where there is one. */
static int open_universal(struct ds_files *f, struct ckpt_dir *dir, const struct names *names,
                          struct ckpt_err *err)
{
    f->sharded = names->single == NULL;
    f->n = f->sharded ? names->end : 1;
    f->rank = ckpt_alloc(f->n, sizeof *f->rank);
    if (!f->rank)
        return ckpt_nomem(err, f->n * sizeof *f->rank);
    for (size_t r = 0; r < f->n; r++) {
        const char *model = f->sharded ? names->model[r] : names->single;

        if (!model)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "rank %zu of %zu: its "
                                "zero_pp_rank_%zu_mp_rank_00_model_states.pt is absent", r, f->n,
                                r);
        if (ds_archive_open(&f->rank[r].model, &f->rank[r].model_root, dir, model, err))
            return err->code;
    }
    return universal_open(f, dir, err);
}

/* Rank 0 says how many there must be. */
static int open_ranks(struct ds_files *f, struct ckpt_dir *dir, const struct names *names,
                      struct ckpt_err *err)
{
    if (names->universal)
        return open_universal(f, dir, names, err);
    f->n = names->end > 0 ? names->end : 1;
    f->bf16_names = names->optim[0] && strncmp(names->optim[0], "bf16_", 5) == 0;
    f->sharded = names->single == NULL;
    f->rank = ckpt_alloc(f->n, sizeof *f->rank);
    if (!f->rank)
        return ckpt_nomem(err, f->n * sizeof *f->rank);
    if (names->end == 0)
        return ds_archive_open(&f->rank->model, &f->rank->model_root, dir, names->single, err);
    if (!names->optim[0])
        return check_complete(names, f->n, f->sharded, err);
    if (open_optim(&f->rank[0], dir, names->optim[0], err))
        return err->code;
    if (ds_partitions(f, 0) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no partition_count of 1 to %d",
                         names->optim[0], DS_MAX_RANKS);
    if (check_complete(names, ds_partitions(f, 0), f->sharded, err))
        return err->code;
    for (size_t r = 0; r < f->n; r++) {
        const char *model = f->sharded ? names->model[r] : names->single;

        if (r > 0 && open_optim(&f->rank[r], dir, names->optim[r], err))
            return err->code;
        if ((f->sharded || r == 0) &&
            ds_archive_open(&f->rank[r].model, &f->rank[r].model_root, dir, model, err))
            return err->code;
    }
    return 0;
}

int ds_files_open(struct ds_files *f, struct ckpt_dir *dir, const char *tag,
                  struct ckpt_err *err)
{
    struct names names = {0};
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
    names.model = rc ? NULL : ckpt_alloc(2 * DS_MAX_RANKS, sizeof *names.model);
    if (rc == 0 && !names.model)
        rc = ckpt_nomem(err, 2 * DS_MAX_RANKS * sizeof *names.model);
    if (rc == 0) {
        names.optim = names.model + DS_MAX_RANKS;
        rc = collect(&names, entry, n, err);
    }
    if (rc == 0)
        rc = open_ranks(f, sub ? sub : dir, &names, err);
    if (rc == 0 && f->rank[0].model_root && !f->sharded)
        rc = ds_experts_open(f, sub ? sub : dir, entry, n, err);
    if (rc == 0)
        rc = ds_agree(f, err);
    ckpt_free(names.model);
    ckpt_dir_close(sub);
    ckpt_arena_release(&a);
    if (rc) {
        ds_files_close(f);
        if (*tag)
            ckpt_err_in(err, "%s", tag);
    }
    return rc;
}

void ds_files_close(struct ds_files *f)
{
    for (size_t r = 0; f->rank && r < f->n; r++) {
        torch_archive_close(f->rank[r].model);
        torch_archive_close(f->rank[r].optim);
    }
    ds_experts_close(f->experts);
    universal_close(f->universal);
    ckpt_free(f->rank);
    memset(f, 0, sizeof *f);
}
