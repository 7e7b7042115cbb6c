/* checkpoint/dcp - see checkpoint/dcp.h. */
#include "trainer/checkpoint/dcp.h"

#include <string.h>

#include "formats/dcp/ranks_out.h"
#include "formats/families/arch.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/optim/order.h"
#include "trainer/optim/table.h"

#define PIECE ((int64_t)1 << 20)        /* elements that leave the device at once */

/* Array `of` of parameter i, which is tensor `number` of the files. */
struct dcp_tensor {
    size_t          param, number;
    enum zero_array of;
};

struct dcp_saving {
    struct session          *s;
    const struct checkpoint *c;
    struct dcp_ranks        *out;
    struct ckpt_arena        arena;
    int                      rank, world_size;      /* of those that share the state */
    struct dcp_run          *run;                   /* [world_size] */
    struct dcp_tensor       *tensor;                /* [n] */
    size_t                   n, cap;
    size_t                  *step;                  /* [n_step] numbers of tensors */
    size_t                   n_step, step_cap;
};

static int list_tensor(struct dcp_saving *d, struct value *path, size_t i, enum zero_array of,
                       struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(d->s->zero);
    struct dcp_tensor *t;
    int rc;

    for (int r = 0; r < d->world_size; r++) {
        struct flat_piece piece = flat_piece(flat, i, r);

        d->run[r] = (struct dcp_run){piece.start, piece.count};
    }
    if (ckpt_reserve(&d->tensor, d->n, &d->cap, sizeof *d->tensor, err))
        return CKPT_ENOMEM;
    t = &d->tensor[d->n];
    *t = (struct dcp_tensor){.param = i, .of = of};
    rc = dcp_ranks_tensor(d->out, &t->number, path, CKPT_F32, &flat->params->item[i].shape, d->run,
                          err);
    d->n += rc == 0;
    return rc;
}

/* The weights; a tied head is there under its name too, as in torch's state dicts. */
static int list_model(struct dcp_saving *d, struct ckpt_err *err)
{
    const struct params *p = zero_flat(d->s->zero)->params;
    const char *tied = p->adapted ? NULL : arch_tied_name(d->s->arch);
    struct dcp_index *x = dcp_ranks_index(d->out);
    char name[CKPT_MAX_NAME + 1];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        if (!params_is_saved(p, i))
            continue;
        params_saved_name(name, sizeof name, p, i, false);
        rc = list_tensor(d, dcp_index_path(x, (const char *const[]){"model", name, NULL}), i,
                         ZERO_MASTER, err);
        if (rc == 0 && tied && i == 0)
            rc = dcp_ranks_alias(d->out, dcp_index_path(x, (const char *const[]){"model", tied,
                                                                                 NULL}), err);
    }
    return rc;
}

/* One key of a parameter's state. */
static struct value *state_path(struct dcp_index *x, const char *name, const char *key)
{
    return dcp_index_path(x, (const char *const[]){"optimizer", "state", name, key, NULL});
}

/* A parameter's states: its count, which torch's SGD and Muon have not, and moments. */
static int list_state(struct dcp_saving *d, const char *name, size_t i, struct ckpt_err *err)
{
    static const struct ckpt_shape scalar = {0};
    const struct optim_row *row = optim_find(d->c->settings->optim);
    struct dcp_index *x = dcp_ranks_index(d->out);
    const struct param *p = &zero_flat(d->s->zero)->params->item[i];
    int n_moments = 2 - zero_fewer(&d->s->zero_opts, zero_flat(d->s->zero)->params, i), rc = 0;
    bool counts = n_moments > 0 && strcmp(optim_moment_name(row, p, 0), "exp_avg") == 0;

    if (counts) {
        if (ckpt_reserve(&d->step, d->n_step, &d->step_cap, sizeof *d->step, err))
            return CKPT_ENOMEM;
        rc = dcp_ranks_tensor(d->out, &d->step[d->n_step], state_path(x, name, "step"), CKPT_F32,
                              &scalar, NULL, err);
        d->n_step += rc == 0;
    }
    for (int k = 0; rc == 0 && k < n_moments; k++)
        rc = list_tensor(d, state_path(x, name, optim_moment_name(row, p, k)), i,
                         k ? ZERO_EXP_AVG_SQ : ZERO_EXP_AVG, err);
    return rc;
}

/* Hyper-parameters of the groups, and the names of each one's parameters. */
static int list_groups(struct dcp_saving *d, const struct adamw_group *group,
                       struct value *const *names, struct ckpt_err *err)
{
    struct dcp_index *x = dcp_ranks_index(d->out);
    size_t n = d->c->groups->n;
    int64_t *none = ckpt_arena_alloc(&d->arena, 2 * n, sizeof *none);
    struct value *groups = none ? hf_adamw_groups(&x->arena, group, n, none, none + n) : NULL;
    int rc = groups ? 0 : ckpt_nomem(err, 2 * n * sizeof *none);

    for (size_t g = 0; rc == 0 && g < n; g++) {
        const char *key;
        struct value *v;

        for (size_t i = 0; rc == 0 && value_next(value_item(groups, g), &i, &key, &v);)
            rc = dcp_ranks_value(d->out, dcp_index_group_path(x, g, key),
                                 strcmp(key, "params") == 0 ? names[g] : v, err);
    }
    return rc;
}

static int list_optimizer(struct dcp_saving *d, struct ckpt_err *err)
{
    const struct params *p = zero_flat(d->s->zero)->params;
    struct dcp_index *x = dcp_ranks_index(d->out);
    struct optim_order order = {0};
    struct adamw_group *group = NULL;
    struct value **names = ckpt_arena_alloc(&d->arena, d->c->groups->n, sizeof *names);
    char name[CKPT_MAX_NAME + 1];
    int rc = names ? 0 : ckpt_nomem(err, d->c->groups->n * sizeof *names);

    for (size_t g = 0; rc == 0 && g < d->c->groups->n; g++)
        names[g] = value_list(&x->arena);
    if (rc == 0)
        rc = optim_order(&order, &d->arena, p, d->s->arch, false, err);
    if (rc == 0)
        rc = shards_groups(&group, &d->arena, d->c, err);
    for (size_t n = 0; rc == 0 && n < order.n; n++) {
        size_t i = order.slot[n].part[0].param;

        params_saved_name(name, sizeof name, p, i, true);
        rc = value_append(&x->arena, names[order.slot[n].group], value_str(&x->arena, name))
                 ? ckpt_nomem(err, sizeof name) : list_state(d, name, i, err);
    }
    return rc ? rc : list_groups(d, group, names, err);
}

/* Write this rank's part of what was listed. */
static int put_all(struct dcp_saving *d, const char *what, float *piece, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(d->s->zero);
    float step = (float)shards_optim_steps(d->c);
    int rc = 0;

    for (size_t k = 0; rc == 0 && d->rank == 0 && k < d->n_step; k++)
        rc = dcp_ranks_put(d->out, d->step[k], 0, 1, &step, err);
    for (size_t k = 0; rc == 0 && k < d->n; k++) {
        const struct dcp_tensor *t = &d->tensor[k];
        struct flat_piece own = flat_piece(flat, t->param, d->rank);

        ckpt_log_progress(what, "tensors", k, d->n);
        for (int64_t at = 0; rc == 0 && at < own.count; at += PIECE) {
            int64_t n = own.count - at < PIECE ? own.count - at : PIECE;

            rc = zero_read(d->s->zero, t->of, t->param, at, n, piece, err);
            if (rc == 0)
                rc = dcp_ranks_put(d->out, t->number, own.start + at, n, piece, err);
        }
    }
    ckpt_log_progress(what, "tensors", d->n, d->n);
    return rc;
}

static const struct {
    const char *folder, *what;
    int       (*list)(struct dcp_saving *d, struct ckpt_err *err);
} parts[] = {
    {DCP_MODEL_FOLDER, "saving the model", list_model},
    {DCP_OPTIM_FOLDER, "saving the optimizer", list_optimizer},
};

/* One of the folders. */
static int save_part(struct session *s, const struct checkpoint *c, size_t part,
                     struct ckpt_outdir *dir, bool index, float *piece, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(s->zero);
    bool sharded = settings_stage(c->settings) > 0;
    struct dcp_saving d = {.s = s, .c = c, .rank = sharded ? flat->rank : 0,
                           .world_size = sharded ? flat->world_size : 1};
    int rc = dcp_ranks_new(&d.out, d.rank, d.world_size, index, err);

    d.run = ckpt_arena_alloc(&d.arena, (size_t)d.world_size, sizeof *d.run);
    if (rc == 0 && !d.run)
        rc = ckpt_nomem(err, (size_t)d.world_size * sizeof *d.run);
    if (rc == 0)
        rc = parts[part].list(&d, err);
    if (rc == 0)
        rc = dcp_ranks_begin(d.out, dir, parts[part].folder, err);
    if (rc == 0)
        rc = put_all(&d, parts[part].what, piece, err);
    if (rc == 0)
        rc = dcp_ranks_commit(d.out, err);
    dcp_ranks_close(d.out);
    ckpt_free(d.tensor);
    ckpt_free(d.step);
    ckpt_arena_release(&d.arena);
    return rc;
}

int dcp_save(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir, bool index,
             struct ckpt_err *err)
{
    float *piece = ckpt_alloc_buffer((size_t)PIECE * sizeof *piece);
    int rc = piece ? 0 : ckpt_nomem(err, (size_t)PIECE * sizeof *piece);

    for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof parts[0]; i++)
        rc = save_part(s, c, i, dir, index, piece, err);
    ckpt_free(piece);
    return rc;
}
