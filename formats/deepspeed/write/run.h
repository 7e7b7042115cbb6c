/*
 * write/run - a saved run at another ZeRO stage and number of ranks: the place of each parameter.
 *
 * The optimizer's groups, the order of parameters in them and the names of its moments are the
 * saved run's.  With round_robin_gradients DeepSpeed deals the parameters of a group out to the
 * ranks; that order depends on their number and is recomputed.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_RUN_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_RUN_H

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"

#define DS_MAX_WORLD 4096       /* most ranks of a run to be written: two open files each */

/* One trained parameter. */
struct ds_run_param {
    const char       *name;
    struct ckpt_shape shape;
    int64_t           numel;
    size_t            flat;             /* index of its flat tensor */
    int64_t           at;               /* stages 1, 2: offset in the group; 3: in a rank's part */
};

/* One flat tensor of every rank: a group's (stages 1 and 2) or a sub-group's (3). */
struct ds_run_flat {
    size_t  first, n;                   /* parameters */
    size_t  group;
    int64_t numel;                      /* stages 1, 2: of the group; 3: of a rank's part */
};

/* A group of the optimizer. */
struct ds_run_group {
    size_t              first;          /* its first parameter */
    const struct value *options;        /* hyper-parameters */
    const struct value *state;          /* saved optimizer state of its first flat tensor that
                                           has one; NULL */
};

/* A tensor that the optimizer keeps for every parameter, or for those of some groups. */
struct ds_run_moment {
    const char     *name;
    enum ckpt_dtype dtype;
};

struct ds_run {
    struct ckpt_arena      arena;
    const struct ds_files *f;           /* the saved run */
    int                    stage, world;        /* to write */
    struct ds_run_param   *param;       /* [n_param], flat by flat */
    size_t                 n_param;
    struct ds_run_flat    *flat;        /* [n_flat] */
    size_t                 n_flat;
    struct ds_run_group   *group;       /* [n_group] */
    size_t                 n_group;
    const struct torch_archive *state_file;     /* archive with the tensors of states */
    const struct torch_archive *options_file;   /* archive with the options */
    enum ckpt_dtype        dtype;       /* of the optimizer's own weights */
    struct ds_run_moment  *moment;      /* [n_moment] */
    size_t                 n_moment;
    struct ckpt_map       *by_name;     /* parameter -> its number */
};

/*
 * Plan.  CKPT_EUNSUPPORTED where the saved run lacks a fact that the new one needs:
 * elastic_checkpoint, aligned parameters, a stage 0 whose names are ambiguous.  Release it, after
 * a failure too.
 */
int ds_run_plan(struct ds_run *run, const struct ds_files *f, int stage, int world,
                struct ckpt_err *err);
void ds_run_release(struct ds_run *run);

/* The state of the group that flat tensor k belongs to; NULL. */
const struct value *ds_run_state(const struct ds_run *run, size_t flat);
/* Whether the optimizer keeps that moment for flat tensor k. */
bool ds_run_has(const struct ds_run *run, size_t flat, size_t moment);
/* The index of a moment by name, n_moment when there is none. */
size_t ds_run_moment_of(const struct ds_run *run, const char *name);
/* Elements of a rank's flat tensor, padding included; and how many of them are padding. */
int64_t ds_run_part(const struct ds_run *run, size_t flat);
int64_t ds_run_padding(const struct ds_run *run, size_t flat, int rank);
/* The piece of parameter i that rank holds. */
struct ds_piece ds_run_piece(const struct ds_run *run, size_t i, int rank);

#endif
