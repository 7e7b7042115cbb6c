/* run/output - see run/output.h. */
#include "trainer/run/output.h"

#include "libckpt/commit.h"
#include "libckpt/io/path.h"
#include "trainer/checkpoint/state_dict.h"
#include "trainer/tell/memory_log.h"
#include "trainer/tell/metrics.h"

int run_output_check(const struct run_output *o, struct ckpt_err *err)
{
    const struct settings *s = o->settings;
    struct comm *c = o->session->comm;
    bool looks = c->rank == 0 && !s->overwrite_output_dir && s->simulate_world == 0;
    int rc = looks ? run_dir_check_free(o->dir, o->step, err) : 0;

    return comm_agree(c, rc, err);
}

/* Whether the file beside checkpoints can be written, and has a name. */
static int check_state_dict(const struct run_output *o, struct ckpt_err *err)
{
    char name[STATE_DICT_NAME];

    if (!o->settings->state_dict_file)
        return 0;
    if (o->session->lora)
        return ckpt_fail(err, CKPT_ECONFIG, "`state_dict_file` has whole models: an adapter is "
                         "trained");
    return state_dict_name(name, o->settings, o->state, err);
}

int run_output_ready(const struct run_output *o, struct ckpt_err *err)
{
    const struct settings *s = o->settings;
    char first[4096];
    int rc = check_state_dict(o, err);

    if (rc == 0)
        rc = ckpt_path_dirs_ready(first, sizeof first, o->dir->path, err);
    if (rc == 0)
        rc = metrics_ready(s, err);
    return rc || s->memory_log <= 0 ? rc : memory_log_ready(s->output_dir, err);
}

/* Another folder than rank 0's, which rank 0 does not see. */
static int take_other(const struct run_output *o, struct ckpt_err *err)
{
    int rc = run_dir_lock(o->dir, err);

    if (rc == 0)
        ckpt_outdir_sweep(o->dir->path);
    if (rc == 0 && o->own)
        rc = run_dir_pass_newer(o->dir, o->step, err);
    if (rc == 0)
        rc = o->settings->overwrite_output_dir ? run_dir_clear(o->dir, o->step, err)
                                               : run_dir_check_free(o->dir, o->step, err);
    return rc;
}

int run_output_take(struct folders *f, const struct run_output *o, struct ckpt_err *err)
{
    struct comm *c = o->session->comm;
    bool first = c->rank == 0;
    int rc = first ? check_state_dict(o, err) : 0;

    if (first && rc == 0)
        rc = run_dir_make(o->dir, err);
    if ((rc = comm_agree(c, rc, err)) != 0 || (rc = run_output_check(o, err)) != 0)
        return rc;
    if (first)
        ckpt_outdir_sweep(o->dir->path);
    if (first && o->settings->overwrite_output_dir)
        rc = run_dir_clear(o->dir, o->step, err);
    if ((rc = comm_agree(c, rc, err)) != 0 ||
        (rc = folders_find(f, o->settings->output_dir, c, err)) != 0)
        return rc;
    if (f->leads && !first)
        rc = take_other(o, err);
    return comm_agree(c, rc, err);
}
