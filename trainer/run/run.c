/* run - see run.h. */
#include "trainer/run/run_own.h"
#include "trainer/run/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/report.h"
#include "trainer/tell/histograms.h"
#include "trainer/plan/estimate.h"
#include "trainer/run/results.h"
#include "trainer/run/step.h"

/* *better: no evaluation before was as good; *ends: too many were no better. */
static int evaluate(struct run_job *r, bool *better, bool *ends, struct ckpt_err *err)
{
    bool last = r->state.global_step >= r->state.max_steps;     /* no checkpoint would follow it */
    struct evaluate_result e;
    int rc;

    *better = *ends = false;
    report_phase("evaluation after step %lld", (long long)r->state.global_step);
    if ((rc = evaluate_run(&e, r->session.model, zero_weights(r->session.zero), r->session.comm,
                           r->data.eval.loader, last ? NULL : r->io->stop, err)) != 0)
        return rc;
    if ((r->state.eval_due = e.stopped))
        return 0;
    rc = metrics_eval(r->metrics, &e, err);
    if (!isfinite(e.loss) && r->n_lost++ == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "step %lld: the loss on held-out data is %g: it makes no "
                 "checkpoint the best", (long long)r->state.global_step, e.loss);
    if (rc == 0 && r->state.global_step > 0 &&      /* the Trainer's begins with the first step */
        schedule_measure(&r->schedule, course_metric(&r->course, &e)) && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "step %lld: the evaluations no longer improve: the learning rate "
                 "is %.3g now", (long long)r->state.global_step,
                 schedule_lr(&r->schedule, r->schedule.lr, 0));
    course_judge(&r->course, &r->state, &e, better, ends);
    return rc;
}

int run_tell_artifact(const struct run_job *r, const char *path, struct ckpt_err *err)
{
    return r->session.comm->rank == 0 && r->io->artifact
               ? r->io->artifact(r->io->ctx, path, err) : 0;
}

enum stop_why { STOP_NOT, STOP_TIME, STOP_SIGNAL };

/* Whether any rank is to stop, or the time is up: all leave at the same step.  *busy: some rank
 * still writes beside the steps. */
static enum stop_why stop_wanted(struct run_job *r, bool *busy)
{
    bool late = r->session.comm->rank == 0 && clock_now() >= r->course.deadline &&
                r->state.global_step < r->state.max_steps;
    int64_t any[] = {r->io->stop && *r->io->stop ? STOP_SIGNAL : late ? STOP_TIME : STOP_NOT,
                     save_busy(r)};

    comm_all_reduce(r->session.comm, any, 2, CKPT_I64, COMM_MAX);
    *busy = any[1];
    return (enum stop_why)any[0];
}

/* Steps without a supervised token teach nothing: the first is a warning, an epoch or a run of them
 * is refused, unless earlier steps were resumed from: the last one alone may have none.  The counts
 * are of all ranks, so all know. */
static int check_targets(struct run_job *r, const struct step_result *res, struct ckpt_err *err)
{
    int64_t done = r->state.global_step - r->first_step;

    r->learned |= res->n_targets > 0;
    if (res->n_targets > 0)
        return 0;
    if (r->n_empty++ == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "step %lld: none of its %lld tokens is supervised: nothing is "
                 "learned from it", (long long)r->state.global_step, (long long)res->n_tokens);
    if (r->learned || r->first_step > 0 ||
        (done < loader_steps_per_epoch(r->data.train.loader) &&
         r->state.global_step < r->state.max_steps))
        return 0;
    r->session.comm->agreed = true;
    ckpt_fail(err, CKPT_EFORMAT, "training data: no supervised token in %lld steps",
              (long long)done);
    return ckpt_err_hint(err, "labels of -100, and prompts without a completion, carry no loss");
}

/* Before each step and after the last, rank 0's profile. */
static int watch_profile(struct run_job *r, struct ckpt_err *err)
{
    if (!r->s->profile || r->session.comm->rank != 0)
        return 0;
    return profile_advance(&r->profile, r->session.dev, r->state.global_step - r->first_step,
                               r->state.max_steps - r->first_step, err);
}

/* What a finished step changes. */
static void count_step(struct run_job *r, const struct step_result *res, double lr)
{
    r->state.global_step++;
    r->state.epoch = res->epoch;
    r->state.num_input_tokens_seen += res->n_tokens;
    r->n_samples += res->n_samples;
    r->state.total_flos += r->token_flos * (double)res->n_tokens;
    if (!res->skipped) {
        r->loss_sum += res->loss;
        r->n_updates++;
    }
    metrics_count(r->metrics, res, lr);
    if (r->session.comm->rank == 0)
        ckpt_log_progress("training", "steps", (uint64_t)r->state.global_step,
                          (uint64_t)r->state.max_steps);
}

static struct step_opts opts_of(struct run_job *r)
{
    const struct settings *s = r->s;
    struct step_opts opts = {
        .optim = run_optimizer_opts(&r->optimizer, s, &r->schedule),
        .scaler = &r->scaler, .seed = s->seed, .max_skipped = s->max_skipped_steps,
        .dump_grads = s->dump_grads, .dump_step = r->state.global_step + 1, .look_at = r,
    };

    opts.optim.lag = r->state.optim_lag;
    return opts;
}

/* In the midst of a step whose histograms are asked for. */
static int look(void *ctx, double scale, struct ckpt_err *err)
{
    struct run_job *r = ctx;

    return histograms_gather(r->session.zero, r->session.comm, scale, metrics_histogram,
                             r->metrics, err);
}

static bool wants_histograms(const struct run_job *r, int64_t step)
{
    return r->s->histogram_steps > 0 && step % r->s->histogram_steps == 0;
}

/* What a finished step is followed by; *ends: the run needs no further one. */
static int after_step(struct run_job *r, bool epoch_ends, bool *ends, struct ckpt_err *err)
{
    const struct course *c = &r->course;
    bool better = false;
    int rc = 0;

    *ends = false;
    if (course_due(c, &c->log, &r->state, epoch_ends))
        rc = metrics_step(r->metrics, err);
    if (rc == 0 && course_due(c, &c->eval, &r->state, epoch_ends))
        rc = evaluate(r, &better, ends, err);
    if (rc == 0 && (course_due(c, &c->save, &r->state, epoch_ends) ||
                    (better && c->save.when == COURSE_BEST)))
        rc = save_begin(r, r->state.global_step < r->state.max_steps && !*ends, err);
    return rc;
}

/* Stop before the run's last step, with a checkpoint. */
static int stop(struct run_job *r, const char *why, struct ckpt_err *err)
{
    long long step = (long long)r->state.global_step;
    int rc = save_wait(r, err);

    if (rc == 0 && r->saved_step != step)
        rc = save_begin(r, false, err);
    if (rc)
        return rc;
    r->session.comm->agreed = true;
    if (r->saved_step != step)
        return ckpt_fail(err, CKPT_EIO, "stopped%s at step %lld, which could not be saved", why,
                         step);
    return ckpt_fail(err, CKPT_ESTOPPED, "stopped%s at step %lld, saved: go on with "
                     "`resume_from_checkpoint latest`", why, step);
}

/* The evaluation before the first step, or that of the step that the run was stopped at. */
static int evaluate_first(struct run_job *r, bool *ends, struct ckpt_err *err)
{
    bool fresh = r->state.global_step == 0, better;
    int rc;

    *ends = false;
    if (!(fresh ? r->s->eval_on_start : r->state.eval_due && r->course.eval.when != COURSE_NO)) {
        r->state.eval_due = false;
        return 0;
    }
    if ((rc = evaluate(r, &better, ends, err)) != 0)
        return rc;
    if (better && !fresh)
        snprintf(r->state.best_model_checkpoint, sizeof r->state.best_model_checkpoint, "%s",
                 r->start.resume);
    *ends &= !fresh;
    if (!r->state.eval_due)
        return 0;
    r->session.comm->agreed = true;
    return ckpt_fail(err, CKPT_ESTOPPED, "stopped in the evaluation before step %lld: nothing is "
                     "lost", (long long)r->state.global_step + 1);
}

static int loop(struct run_job *r, struct ckpt_err *err)
{
    struct step_opts opts = opts_of(r);
    bool ends, busy;
    int rc = evaluate_first(r, &ends, err);

    while (rc == 0 && !ends && r->state.global_step < r->state.max_steps) {
        double lr = schedule_lr(&r->schedule, r->schedule.lr,
                                r->state.global_step - r->scaler.skipped);
        struct step_result res;
        enum stop_why why;

        report_step(CONTROL_TRAIN, r->state.global_step + 1);
        opts.look = wants_histograms(r, r->state.global_step + 1) ? look : NULL;
        if ((rc = watch_profile(r, err)) != 0 ||
            (rc = step_run(&res, &r->session, r->data.train.loader, &opts, lr,
                           r->state.global_step + 1, err)) != 0)
            return rc;
        count_step(r, &res, lr);
        if ((rc = check_targets(r, &res, err)) != 0 || (rc = save_go(r, err)) != 0 ||
            (rc = after_step(r, res.epoch_ends, &ends, err)) != 0)
            return rc;
        why = stop_wanted(r, &busy);
        if (!busy && (rc = save_wait(r, err)) != 0)
            return rc;
        if (why && r->state.global_step < r->state.max_steps)
            return stop(r, why == STOP_TIME ? " by `max_wall_time`" : "", err);
    }
    if (rc == 0 && ends && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "%6lld/%-5lld ends early: no progress in %lld evaluations",
                 (long long)r->state.global_step, (long long)r->state.max_steps,
                 (long long)r->state.evals_without_progress);
    if (rc == 0)
        rc = save_wait(r, err);
    return rc ? rc : watch_profile(r, err);
}

/* A run that went wrong may end with status 0, but not without a word. */
static void warn_lost(const struct run_job *r)
{
    if (r->n_lost)
        ckpt_log(CKPT_LOG_WARNING, "%lld evaluations gave no finite loss", (long long)r->n_lost);
    metrics_warn(r->metrics);
}

/* The Trainer's closing row, the run's figures and its model. */
static int finish(struct run_job *r, struct ckpt_err *err)
{
    double seconds = clock_now() - r->began;
    struct memory_figures memory = memory_log_figures(r->memory);
    json_t *row = results_of(r, seconds);
    bool first = r->session.comm->rank == 0;
    int rc;

    rc = row ? metrics_closing(r->metrics, row, r->state.global_step - r->first_step, seconds,
                               &memory, err)
             : ckpt_nomem(err, sizeof *row);
    if (rc == 0 && first)
        results_tell(r);
    if ((rc = comm_agree(r->session.comm, rc, err)) == 0)
        rc = results_model(r, err);
    if (rc == 0 && first)
        rc = results_write(r, row, err);
    json_decref(row);
    if (rc == 0 && first)
        warn_lost(r);
    return comm_agree(r->session.comm, rc, err);
}

static int open_metrics(struct run_job *r, struct ckpt_err *err)
{
    const struct metrics_opts opts = {
        .settings = r->s, .session = &r->session, .state = &r->state,
        .resumed_from = r->start.resume,
        .continues = run_dir_holds(r->s->output_dir, r->start.resume),
        .event = r->io->event, .ctx = r->io->ctx,
    };

    return metrics_open(&r->metrics, &opts, err);
}

/* Who reports the failure: rank 0 when all know of it, else the rank that failed; now, since its
 * peers, or mpirun when one of them has left, may end this process while it closes its session. */
static void end_of_ranks(struct run_job *r, struct ckpt_err *err)
{
    const struct comm *c = r->session.comm;

    if (!c || !r->io->fail)
        return;
    r->io->told = comm_alone(c, err) || c->agreed;
    if (r->io->told && (!c->agreed || c->rank == 0))
        r->io->fail(r->io->ctx, err, c->agreed);
}

/* Steps of a world that is not there. */
static int simulate(struct run_job *r, struct ckpt_err *err)
{
    struct step_opts opts = opts_of(r);
    struct run_simulated out;
    int rc = run_simulate(&out, &r->session, &r->data, &opts, r->s->max_steps, r->io->stop, err);

    if (rc == 0 && r->io->simulated)
        rc = r->io->simulated(r->io->ctx, &out, err);
    return comm_agree(r->session.comm, rc, err);
}

/* The figures and the model of a run that was stopped after its last checkpoint. */
static int end_late(struct run_job *r, struct ckpt_err *err)
{
    json_t *row = results_of(r, clock_now() - r->started);
    bool first = r->session.comm->rank == 0;
    int rc = comm_agree(r->session.comm, row ? 0 : ckpt_nomem(err, sizeof *row), err);

    if (rc == 0 && first)
        results_tell(r);
    if (rc == 0)
        rc = results_model(r, err);
    if (rc == 0 && first)
        rc = results_write(r, row, err);
    json_decref(row);
    return comm_agree(r->session.comm, rc, err);
}

/* A run that has all its steps: a kill may have come between its last checkpoint and its end. */
static int complete(struct run_job *r, struct ckpt_err *err)
{
    int64_t missing = r->session.comm->rank == 0 && results_missing(r);
    struct run_output o = run_output_of(r);
    int rc;

    comm_broadcast(r->session.comm, &missing, 1, CKPT_I64, 0);
    rc = run_output_take(&r->folders, &o, err);
    if (rc && !missing && rc != CKPT_ECOMM) {   /* a folder that may only be read, say */
        r->session.comm->agreed = false;
        ckpt_err_clear(err);
        return 0;
    }
    if (rc == 0)
        rc = save_prune(r, 0, err);
    return rc == 0 && missing ? end_late(r, err) : rc;
}

/* What the run would take. */
static int plan(struct run_job *r, struct ckpt_err *err)
{
    struct estimate_of of = {
        .settings = r->s, .session = &r->session, .data = &r->data, .steps = r->state.max_steps,
        .first_step = r->start.step > 0 && r->start.step < r->state.max_steps ? r->start.step : 0,
    };
    struct run_output o = run_output_of(r);
    struct estimate e;
    int rc = run_output_ready(&o, err);

    if (rc == 0)
        rc = save_plan(r, &of.snapshot, &of.how, err);

    of.saves = course_saves(&r->course, of.steps, loader_steps_per_epoch(r->data.train.loader));
    if (rc == 0)
        rc = estimate_make(&e, &of, err);
    if (rc)
        return rc;
    estimate_tell(&e, r->s->output_dir);
    return r->io->planned ? r->io->planned(r->io->ctx, &e, err) : 0;
}

/* From a plan that is made to the last checkpoint. */
static int train(struct run_job *r, struct ckpt_err *err)
{
    bool speak = r->session.comm->rank == 0;
    struct run_output o;
    int rc;

    if (speak)
        session_describe(&r->session, r->state.max_steps);
    if (r->s->dry_run)
        return comm_agree(r->session.comm, speak ? plan(r, err) : 0, err);
    if (r->s->simulate_world > 0)
        return simulate(r, err);
    if (r->state.global_step >= r->state.max_steps) {
        if (speak)
            ckpt_log(CKPT_LOG_NOTE, "nothing to do: %s is at step %lld, the run is to have %lld",
                     r->start.resume, (long long)r->state.global_step,
                     (long long)r->state.max_steps);
        return complete(r, err);
    }
    o = run_output_of(r);
    if ((rc = run_output_take(&r->folders, &o, err)) != 0)
        return rc;
    rc = comm_agree(r->session.comm,
                    speak && settings_is_trial(r->s) ? trial_begin(r->s, err) : 0, err);
    if (rc == 0)
        rc = open_metrics(r, err);
    if (rc == 0 && r->s->memory_log > 0)
        rc = memory_log_open(&r->memory, r->s->output_dir, r->session.comm->rank, r->session.dev,
                             r->s->memory_log, err);
    rc = comm_agree(r->session.comm, rc, err);
    if (rc == 0)
        rc = save_open(r, err);
    r->began = clock_now();
    if (rc == 0)
        rc = loop(r, err);
    return rc ? rc : finish(r, err);
}

int run_train(const struct settings *s, struct run_io *io, struct ckpt_err *err)
{
    struct run_job r = {.own = *s, .io = io, .started = clock_now(), .saved_step = -1};
    int rc = run_state_init(&r.state, err);

    r.s = &r.own;
    if (rc == 0)
        rc = s->init_only ? run_init_only(&r, err) : run_prepare(&r, err);
    if (rc == 0 && !s->init_only)
        rc = train(&r, err);
    save_close(&r);
    profile_end(&r.profile);
    memory_log_close(r.memory);
    metrics_close(r.metrics, ckpt_err_status(rc));
    run_data_close(&r.data);
    run_state_release(&r.state);
    run_dir_close(&r.dir);
    side_files_close(&r.side);
    run_optimizer_close(&r.optimizer);
    ckpt_arena_release(&r.arena);
    if (rc) {
        end_of_ranks(&r, err);
        rc = ckpt_err_code(err);        /* that of a peer, where one said why it failed */
    }
    session_close(&r.session, rc, err);
    return rc;
}
