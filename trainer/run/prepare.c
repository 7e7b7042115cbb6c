/* prepare - what a run does before its first step; see run_own.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/log.h"
#include "trainer/comm/report.h"
#include "trainer/checkpoint/changed.h"
#include "trainer/comm/same.h"
#include "trainer/plan/plan.h"
#include "trainer/run/run_own.h"
#include "trainer/run/trial.h"

/* The step of the data at which its epoch x begins, or goes on. */
static int steps_of(const struct run_job *r, double x, int64_t *steps, struct ckpt_err *err)
{
    int64_t per_epoch = loader_steps_per_epoch(r->data.train.loader);
    int rc = loader_steps_of(r->data.train.loader, (int64_t)floor(x), steps, err);

    if (rc == 0)
        *steps += (int64_t)ceil((x - floor(x)) * (double)per_epoch);
    return rc;
}

/* How many steps the run has, and the learning rate along them. */
static int set_schedule(struct run_job *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int64_t per_epoch = loader_steps_per_epoch(r->data.train.loader), total = s->max_steps;
    struct settings own = *s;
    int rc;

    if (total <= 0) {
        if ((rc = steps_of(r, s->num_train_epochs, &total, err)) != 0)
            return rc;
        total -= r->state.data_shift;
    }
    if (total < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "nothing to do: %g epochs of %lld steps",
                         s->num_train_epochs, (long long)per_epoch);
    r->state.max_steps = total;
    r->state.num_train_epochs = (total + per_epoch - 1) / per_epoch;
    own.learning_rate = isnan(r->state.base_lr) ? s->learning_rate : r->state.base_lr;
    rc = settings_schedule(&r->schedule, &own, err);
    schedule_span(&r->schedule,
                  s->warmup_steps > 0 ? s->warmup_steps
                                      : (int64_t)ceil(s->warmup_ratio * (double)total),
                  total);
    return rc;
}

/* Schedule and events of a run of as many steps. */
static int set_course(struct run_job *r, struct ckpt_err *err)
{
    int rc = comm_agree(r->session.comm, set_schedule(r, err), err);

    if (rc)
        return rc;
    course_init(&r->course, r->s, r->state.max_steps, r->data.eval.loader != NULL, r->started);
    r->state.logging_steps = r->course.log.every;
    r->state.eval_steps = r->course.eval.every > 0 ? r->course.eval.every : r->course.log.every;
    r->state.save_steps = r->course.save.every;
    return 0;
}

/* Where a run is that goes on from a file of weights: settings say it. */
static int set_initial(struct run_job *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int64_t at = s->initial_step > 0 ? s->initial_step : 0;
    int rc;

    if (s->initial_epoch > 0 && (rc = steps_of(r, s->initial_epoch, &at, err)) != 0)
        return rc;
    r->state.global_step = s->initial_step >= 0 ? s->initial_step : at;
    r->state.data_shift = at - r->state.global_step;
    r->state.epoch = s->initial_epoch > 0
        ? s->initial_epoch : (double)at / (double)loader_steps_per_epoch(r->data.train.loader);
    return 0;
}

/* Other data begin with an epoch of their own; the epoch that was under way counts as one. */
static int begin_data(struct run_job *r, struct ckpt_err *err)
{
    int64_t per_epoch = loader_steps_per_epoch(r->data.train.loader), at;
    double epoch = r->state.epoch > 0
        ? r->state.epoch : (double)r->state.global_step / (double)per_epoch;
    int rc = steps_of(r, ceil(epoch - 1e-6), &at, err);

    r->state.data_shift = at - r->state.global_step;
    if (rc == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "the data begin anew at step %lld, as epoch %g",
                 (long long)r->state.global_step, ceil(epoch - 1e-6));
    return rc;
}

/* What a checkpoint changes of the course that settings alone have set. */
static int go_on(struct run_job *r, struct ckpt_err *err)
{
    const double saved = r->state.base_lr;
    const struct schedule seen = r->schedule;
    bool anew = r->s->ignore_data_skip && !r->start.file && !r->state.same_data;
    int rc = anew ? begin_data(r, err) : 0;

    if (rc == 0 && !isnan(saved) && saved != r->s->learning_rate && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%s: its schedule goes on with its base learning rate, %g, not "
                 "with `learning_rate %g`", r->start.resume, saved, r->s->learning_rate);
    else if (rc == 0 && r->state.other_rates && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%s: its groups of parameters go on with their base learning "
                 "rates, not with those of the settings", r->start.resume);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 || (rc = set_course(r, err)) != 0)
        return rc;
    r->schedule.plateau = seen.plateau; /* what evaluations gave before */
    if (r->session.comm->rank == 0 && !r->start.file)
        changed_tell(r->start.resume, &r->session, &r->checkpoint);
    r->saved_step = r->start.file ? -1 : r->state.global_step;
    rc = loader_seek(r->data.train.loader, r->state.global_step + r->state.data_shift, err);
    return comm_agree(r->session.comm, rc, err);
}

struct run_output run_output_of(struct run_job *r)
{
    return (struct run_output){.settings = r->s, .dir = &r->dir, .step = r->start.step,
                               .own = r->start.own,
                               .state = &r->state, .session = &r->session};
}

/* The output, if it is there already, and where the run begins. */
static int find_start(struct run_job *r, struct ckpt_err *err)
{
    bool first = r->session.comm->rank == 0, dry = r->s->dry_run;
    struct run_output o;
    int rc = 0;

    if (settings_is_trial(r->s)) {
        if ((rc = trial_choose(r->trial, r->s, r->session.comm, err)) != 0)
            return rc;
        r->own.output_dir = r->trial;
    }
    r->dir.path = r->s->output_dir;
    if (first && (dry || settings_write(r->s)))
        rc = dry ? run_dir_lock_ready(&r->dir, err) : run_dir_lock(&r->dir, err);
    if (rc == 0 && first && (dry || settings_write(r->s)) && r->io->ready)
        rc = r->io->ready(r->io->ctx, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 ||
        (rc = run_start_find(&r->start, &r->session, r->s, &r->dir, err)) != 0)
        return rc;
    o = run_output_of(r);
    return run_output_check(&o, err);
}

/* A copy of the data on one host that is older than the others': ranks would take other steps. */
static int same_data(struct run_job *r, const unsigned char train[16], struct ckpt_err *err)
{
    const struct data_source *const source[] = {r->data.train.source, r->data.eval.source};
    char text[2][96];
    const char *const line[] = {text[0], text[1]};
    unsigned char print[16];
    size_t n = 0;
    int rc = 0;

    if (r->session.comm->world_size == 1)
        return 0;
    memcpy(print, train, sizeof print);
    for (; rc == 0 && n < 2 && source[n]; n++) {
        char hex[33];

        if (n == 1)
            rc = data_source_fingerprint(source[n], print, err);
        ckpt_digest_hex(hex, print, sizeof print);
        snprintf(text[n], sizeof text[n], "%s %lld samples, digest %s",
                 n == 0 ? "train_file" : "eval_file", (long long)data_source_count(source[n]),
                 hex);
    }
    rc = comm_agree(r->session.comm, rc, err);
    return rc ? rc : comm_same(r->session.comm, line, n, err);
}

int run_prepare(struct run_job *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int rc;

    if ((rc = session_join(&r->session, settings_planned(s), s->ddp_timeout, err)) != 0 ||
        (rc = comm_same(r->session.comm, s->shared, s->n_shared, err)) != 0 ||
        (rc = settings_batch(&r->own, r->session.comm->world_size, err)) != 0 ||
        (rc = session_split(&r->session, settings_hybrid(s), settings_node_ranks(s), err)) != 0 ||
        (rc = find_start(r, err)) != 0 ||
        (rc = run_start_open(&r->session, &r->start, s, err)) != 0)
        return rc;
    report_phase("load");
    if ((rc = plan_open(&r->data, &r->own, &r->session, r->start.base, r->io->stop,
                            err)) != 0)
        return rc;
    r->spare = plan_spare(&r->session);
    rc = run_optimizer_open(&r->optimizer, s, &r->session, err);
    if (rc == 0 && r->start.file)
        rc = set_initial(r, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 || (rc = set_course(r, err)) != 0)
        return rc;
    r->state.early_stopping_patience = s->early_stopping_patience;
    r->state.early_stopping_threshold = s->early_stopping_threshold;
    r->state.train_batch_size = s->per_device_train_batch_size;
    r->scaler.o = s->scaler;
    r->scaler.o.on = s->fp16;
    scaler_init(&r->scaler, &r->scaler.o);
    r->checkpoint = (struct checkpoint){.settings = s, .schedule = &r->schedule,
                                        .groups = &r->optimizer.groups, .state = &r->state,
                                        .scaler = &r->scaler,
                                        .base = s->model ? r->start.base : NULL,
                                        .side = &r->side, .folders = &r->folders};
    if (r->session.comm->rank == 0 && !s->init && (s->dry_run || settings_write(s)))
        rc = side_files_open(&r->side, r->session.model_dir, &r->arena, err);
    if (rc == 0)
        rc = data_source_fingerprint(r->data.train.source, r->checkpoint.data, err);
    if (rc == 0)
        rc = data_source_template(r->data.train.source, r->checkpoint.chat, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 ||
        (rc = same_data(r, r->checkpoint.data, err)) != 0)
        return rc;
    if (s->dry_run)
        return *r->start.resume ? run_start_check(&r->start, &r->session, &r->checkpoint, &r->state,
                                                  err) : 0;
    if ((rc = run_start_load(&r->start, &r->session, &r->checkpoint, &r->state, &r->dir,
                             err)) != 0)
        return rc;
    r->token_flos = 6.0 * (double)plan_numel(model_params(r->session.model));
    r->first_step = r->state.global_step;
    return *r->start.resume ? go_on(r, err) : 0;
}

int run_init_only(struct run_job *r, struct ckpt_err *err)
{
    const struct zero_opts zero = {.stage = settings_stage(r->s)};
    const struct model_opts small = {.max_tokens = 1, .max_docs = 1, .max_rows = 1,
                                     .max_enc = 1};
    const struct device_opts cpu = {.name = "cpu", .threads = (int)r->s->threads,
                                    .weights = CKPT_F32};
    int rc;

    if ((rc = session_open(&r->session, r->s->init, r->s->tokenizer, &cpu, 0, err)) != 0)
        return rc;
    if (r->session.comm->rank == 0)
        rc = run_dir_make_above(r->s->output_dir, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 ||
        (rc = session_plan(&r->session, &small, &zero, err)) != 0 ||
        (rc = session_init_weights(&r->session, r->s->seed, err)) != 0 ||
        (rc = checkpoint_save_bare(r->s->output_dir, &r->session, err)) != 0)
        return rc;
    return comm_agree(r->session.comm, run_tell_artifact(r, r->s->output_dir, err), err);
}
