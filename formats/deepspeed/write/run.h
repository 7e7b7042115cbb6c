/*
 * write/run - a saved run cut anew: which parameters lie where, at another stage and number
 * of ranks.
 *
 * The optimizer's groups, the order of parameters in them and the names of its moments are the
 * saved run's.  With round_robin_gradients DeepSpeed deals the parameters of a group out to the
 * ranks; that order hangs on their number and is made for the new one.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_RUN_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_RUN_H

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"

#define DS_MAX_WORLD 4096       /* of what is written: two files a rank are open at once */

/* One trained parameter. */
struct ds_run_param {
    const char       *name;
    struct ckpt_shape shape;
    int64_t           numel;
    size_t            flat;             /* which flat tensor it lies in */
    int64_t           at;               /* stages 1, 2: offset in the group; 3: in a rank's part */
};

/* One flat tensor of every rank: a group's (stages 1 and 2) or a sub-group's (3). */
struct ds_run_flat {
    size_t  first, n;                   /* parameters */
    size_t  group;
    int64_t numel;                      /* stages 1, 2: of the group; 3: of a rank's part */
};

struct ds_run {
    struct ckpt_arena      arena;
    const struct ds_files *f;           /* the saved run */
    int                    stage, world;        /* of what is written */
    struct ds_run_param   *param;       /* [n_param], flat by flat */
    size_t                 n_param;
    struct ds_run_flat    *flat;        /* [n_flat] */
    size_t                 n_flat;
    size_t                 n_group;
    size_t                *first;       /* [n_group] parameter that the group begins with */
    const struct value   **options;     /* [n_group] what the optimizer is told of the group */
    const struct value   **state;       /* [n_group] the optimizer's state, of the first flat
                                           tensor that was saved of the group; NULL */
    const struct torch_archive *state_file;     /* whose tensors the state has */
    const struct torch_archive *options_file;   /* and the options */
    enum ckpt_dtype        dtype;       /* of the optimizer's own weights */
    const char           **moment;      /* [n_moment] tensors that the optimizer keeps */
    enum ckpt_dtype       *moment_dtype;
    size_t                 n_moment;
    struct ckpt_map       *by_name;     /* parameter -> its number */
};

/*
 * Plan.  CKPT_EUNSUPPORTED where the saved run does not tell what the new one needs:
 * elastic_checkpoint, aligned parameters, a stage 0 whose numbers have no certain names.
 * Release it, after a failure too.
 */
int ds_run_plan(struct ds_run *run, const struct ds_files *f, int stage, int world,
                struct ckpt_err *err);
void ds_run_release(struct ds_run *run);

/* Elements of a rank's flat tensor, padding included; and how many of them are padding. */
int64_t ds_run_part(const struct ds_run *run, size_t flat);
int64_t ds_run_padding(const struct ds_run *run, size_t flat, int rank);
/* The piece of parameter i that rank holds. */
struct ds_piece ds_run_piece(const struct ds_run *run, size_t i, int rank);

#endif
