/* deepspeed/files - see deepspeed/files.h. */
#include "formats/deepspeed/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/agree.h"
#include "formats/deepspeed/experts.h"
#include "formats/deepspeed/mappings.h"
#include "formats/deepspeed/pipe.h"
#include "formats/deepspeed/swap.h"
#include "formats/deepspeed/universal.h"

#define MAX_MP 4096             /* mp_rank: pipeline stages */

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
    if (rc == 0 && (!ckpt_file_name_is_clean(wanted) || wanted[0] == '.' ||
                    strlen(wanted) >= DS_MAX_TAG || (text && strlen(text) != n)))
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: the tag \"%s\" is no clean name",
                          text ? "latest" : "--tag", wanted);
    if (rc == 0)
        snprintf(tag, DS_MAX_TAG, "%s", wanted);
    ckpt_arena_release(&a);
    return rc;
}

/* -- names ----------------------------------------------------------------------------------- */

/* The file names of one mp_rank, by rank; NULL where one is absent. */
struct names {
    const char **model, **optim;        /* [DS_MAX_RANKS] */
    const char  *single;                /* mp_rank_MM_model_states.pt */
    size_t       end;                   /* one more than the highest rank seen */
    /* Of all: */
    bool         universal;             /* zero/ is there */
    bool         swapped;               /* offloaded_tensors/ is there */
    bool         pipeline;              /* layers' files are there */
    size_t       n_mp;                  /* one more than the highest mp_rank seen */
    const char  *last_mp;               /* a file of that */
};

/* Parse "mp_rank_MM": the number, and the text after it; or NULL. */
static const char *mp_of(size_t *mp, const char *s)
{
    char *end;

    if (strncmp(s, "mp_rank_", 8) != 0 || s[8] < '0' || s[8] > '9')
        return NULL;
    *mp = strtoul(s + 8, &end, 10);
    return end - (s + 8) >= 2 && *mp < MAX_MP ? end : NULL;
}

/* The rank in "[bf16_]zero_pp_rank_R_mp_rank_MM[_]<what>_states.pt", or -1. */
static long rank_of(size_t *mp, const char *name, const char *what)
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
    if (*end != '_' || r >= DS_MAX_RANKS || !(name = mp_of(mp, end + 1)))
        return -1;
    name += *name == '_';               /* version 0.3 omitted this one */
    return strncmp(name, what, strlen(what)) == 0 && strcmp(name + strlen(what), "_states.pt") == 0
               ? r : -1;
}

static int take(const char **slot, const char *name, struct ckpt_err *err)
{
    if (*slot)
        return ckpt_fail_as(err, CKPT_EFORMAT, "duplicate",
                            "%s and %s: two files of one rank, of two saves", *slot, name);
    *slot = name;
    return 0;
}

/* Record a file of some mp_rank, if it is the wanted one. */
static int collect_one(struct names *names, size_t wanted, const char *name, struct ckpt_err *err)
{
    size_t mp = 0;
    long m = rank_of(&mp, name, "model"), o = m < 0 ? rank_of(&mp, name, "optim") : -1;
    const char *rest = m < 0 && o < 0 ? mp_of(&mp, name) : NULL;
    bool single = rest && strcmp(rest, "_model_states.pt") == 0;
    int rc;

    if (m < 0 && o < 0 && !single)
        return 0;
    if (mp >= names->n_mp) {
        names->n_mp = mp + 1;
        names->last_mp = name;
    }
    if (mp != wanted)
        return 0;
    if (single)
        names->single = name;
    if ((m >= 0 && (rc = take(&names->model[m], name, err)) != 0) ||
        (o >= 0 && (rc = take(&names->optim[o], name, err)) != 0))
        return rc;
    if ((m > o ? m : o) >= (long)names->end)
        names->end = (size_t)(m > o ? m : o) + 1;
    return 0;
}

static int collect(struct names *names, size_t wanted, const struct ckpt_entry *entry, size_t n,
                   struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < n; i++) {
        const char *name = entry[i].name;
        bool sliced;
        size_t layer;

        names->universal |= entry[i].is_dir && strcmp(name, "zero") == 0;
        names->swapped |= entry[i].is_dir && strcmp(name, "offloaded_tensors") == 0;
        if (!entry[i].is_file || ds_expert_file(name))
            continue;
        names->pipeline |= ds_layer_file(&layer, &sliced, name);
        if ((rc = collect_one(names, wanted, name, err)) != 0)
            return rc;
    }
    if (!names->single && names->end == 0 && wanted > 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "missing", "mp_rank_%02zu_model_states.pt: is "
                            "absent, %s is there", wanted, names->last_mp);
    if (!names->single && names->end == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "no DeepSpeed files in it");
    if (names->n_mp > 1 && !names->pipeline && !names->universal)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: of a tensor-parallel checkpoint: how slices "
                         "go together is not in it", names->last_mp);
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
    int rc;

    if ((rc = ds_archive_open(&rank->optim, &rank->optim_file, dir, name, err)) != 0)
        return rc;
    rank->optim_root = value_get(rank->optim_file, "optimizer_state_dict");
    if (!value_is(rank->optim_root, VALUE_DICT))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no optimizer_state_dict in it", name);
    return 0;
}

/* Check that every rank's files are there, and none of a rank beyond the world. */
static int check_complete(const struct names *names, size_t mp, size_t world, bool sharded,
                          struct ckpt_err *err)
{
    for (size_t r = 0; r < world; r++) {
        const char *what = sharded && !names->model[r] ? "model" :
                           !names->optim[r] ? "optim" : NULL;

        if (what)
            return ckpt_fail_as(err, CKPT_EFORMAT, "missing",
                                "rank %zu of %zu: its zero_pp_rank_%zu_mp_rank_%02zu_%s_states.pt "
                                "is absent", r, world, r, mp, what);
    }
    for (size_t r = world; r < names->end; r++)
        if (names->model[r] || names->optim[r])
            return ckpt_fail_as(err, CKPT_EFORMAT, "unexpected",
                                "%s: of a rank beyond the %zu that saved, left by another save",
                                names->optim[r] ? names->optim[r] : names->model[r], world);
    return 0;
}

/* Open the model files of a universal checkpoint: the one for all stages if there is one. */
static int open_universal(struct ds_files *f, struct ckpt_dir *dir, const struct names *names,
                          struct ckpt_err *err)
{
    int rc;

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
        if ((rc = ds_archive_open(&f->rank[r].model, &f->rank[r].model_root, dir, model,
                                  err)) != 0)
            return rc;
    }
    return universal_open(f, dir, names->n_mp > 1, err);
}

/* Open the ranks' files: rank 0 says how many there must be. */
static int open_ranks(struct ds_files *f, struct ckpt_dir *dir, const struct names *names,
                      struct ckpt_err *err)
{
    int rc;

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
        return check_complete(names, f->mp, f->n, f->sharded, err);
    if ((rc = open_optim(&f->rank[0], dir, names->optim[0], err)) != 0)
        return rc;
    if (ds_partitions(f, 0) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no partition_count of 1 to %d",
                         names->optim[0], DS_MAX_RANKS);
    if ((rc = check_complete(names, f->mp, ds_partitions(f, 0), f->sharded, err)) != 0)
        return rc;
    for (size_t r = 0; r < f->n; r++) {
        const char *model = f->sharded ? names->model[r] : names->single;

        if (r > 0 && (rc = open_optim(&f->rank[r], dir, names->optim[r], err)) != 0)
            return rc;
        if (f->sharded || r == 0)
            rc = ds_archive_open(&f->rank[r].model, &f->rank[r].model_root, dir, model, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Open the files of one mp_rank; for the first one also the folder's other files. */
static int open_stage(struct ds_files *f, struct names *names, struct ckpt_dir *dir,
                      const struct ckpt_entry *entry, size_t n, struct ckpt_err *err)
{
    int rc;

    memset(names, 0, sizeof *names);
    names->model = ckpt_alloc(2 * DS_MAX_RANKS, sizeof *names->model);
    if (!names->model)
        return ckpt_nomem(err, 2 * DS_MAX_RANKS * sizeof *names->model);
    names->optim = names->model + DS_MAX_RANKS;
    rc = collect(names, f->mp, entry, n, err);
    if (rc == 0)
        rc = open_ranks(f, dir, names, err);
    if (rc == 0 && names->swapped && f->mp == 0)
        rc = ds_swap_open(f, dir, err);
    if (rc == 0 && names->pipeline && !names->universal && f->mp == 0)
        rc = ds_layers_open(&f->layers, dir, entry, n, err);
    if (rc == 0 && f->rank[0].model_root && !f->sharded && !names->pipeline)
        rc = ds_experts_open(f, dir, entry, n, err);
    ckpt_free(names->model);
    if (rc == 0)
        rc = ds_shapes_of_mappings(f, err);
    return rc ? rc : ds_agree(f, err);
}

/* Open all stages of a pipeline. */
static int open_stages(struct ds_files **out, size_t *n, struct ckpt_dir *dir, const char *tag,
                       const struct ckpt_entry *entry, size_t n_entry, struct ckpt_err *err)
{
    struct names names;
    size_t n_stage = 1;
    int64_t saved = 0;
    int rc;

    for (size_t i = 0; i < n_stage; i++) {
        struct ds_files *more = ckpt_grow(*out, i + 1, sizeof *more), *f;

        if (!more)
            return ckpt_nomem(err, (i + 1) * sizeof *more);
        *out = more;
        f = &more[(*n)++];
        memset(f, 0, sizeof *f);
        snprintf(f->tag, sizeof f->tag, "%s", tag);
        f->mp = i;
        f->layers = more[0].layers;
        if ((rc = open_stage(f, &names, dir, entry, n_entry, err)) != 0 ||
            (i > 0 && (rc = ds_agree_stages(&more[0], f, err)) != 0))
            return rc;
        n_stage = names.pipeline && !names.universal ? names.n_mp : 1;
    }
    if (n_stage > 1 || (*out)->layers)
        value_as_int(value_get((*out)->rank[0].model_root, "mp_world_size"), &saved);
    return saved <= (int64_t)n_stage
               ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "missing", "mp_rank_%02zu_model_states.pt: is "
                                  "absent, %lld stages saved it", n_stage, (long long)saved);
}

int ds_files_open(struct ds_files **out, size_t *n, struct ckpt_dir *dir, const char *tag,
                  struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_dir *sub = NULL;
    struct ckpt_entry *entry;
    size_t n_entry = 0;
    int rc;

    *out = NULL;
    *n = 0;
    rc = *tag ? ckpt_dir_open_at(&sub, dir, tag, err) : 0;
    if (rc == 0)
        rc = ckpt_dir_list(sub ? sub : dir, &a, &entry, &n_entry, err);
    if (rc == 0)
        rc = open_stages(out, n, sub ? sub : dir, tag, entry, n_entry, err);
    ckpt_dir_close(sub);
    ckpt_arena_release(&a);
    if (rc) {
        ds_files_close(*out, *n);
        *out = NULL;
        *n = 0;
        if (*tag)
            ckpt_err_in(err, "%s", tag);
    }
    return rc;
}

static void close_one(struct ds_files *f)
{
    for (size_t r = 0; f->rank && r < f->n; r++) {
        torch_archive_close(f->rank[r].model);
        torch_archive_close(f->rank[r].optim);
    }
    ds_experts_close(f->experts);
    ds_swap_close(f->swap);
    universal_close(f->universal);
    ckpt_arena_release(&f->arena);
    ckpt_free(f->rank);
}

void ds_files_close(struct ds_files *f, size_t n)
{
    if (n > 0)
        ds_layers_close(f[0].layers);
    for (size_t i = 0; i < n; i++)
        close_one(&f[i]);
    ckpt_free(f);
}
