/* run - see run.h. */
#include "trainer/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf/side_files.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/report.h"
#include "trainer/comm/same.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/memory_log.h"
#include "trainer/run/metrics.h"
#include "trainer/run/data.h"
#include "trainer/run/dir.h"
#include "trainer/run/plan.h"
#include "trainer/run/profile.h"
#include "trainer/run/start.h"
#include "trainer/run/step.h"

#define DIVERGED 10.0           /* times its first value is a loss that learns nothing any more */

struct run {
    const struct settings *s;
    struct run_io         *io;
    struct session         session;
    struct run_data        data;
    struct schedule        schedule;
    struct run_state       state;
    struct scaler          scaler;
    struct checkpoint      checkpoint;
    struct side_files      side;        /* rank 0's, opened before they can have gone away */
    struct ckpt_arena      arena;       /* of their names */
    struct metrics        *metrics;
    struct memory_log     *memory;      /* NULL: not asked for */
    struct run_dir         dir;         /* rank 0's */
    struct run_start       start;
    char                   saved[4096]; /* newest checkpoint of this run */
    int64_t                saved_step;
    int64_t                first_step;  /* done before this run */
    double                 first_loss, last_loss;  /* logged; NaN: none yet */
    int64_t                n_lost;      /* evaluations whose loss was not finite */
    int64_t                n_empty;     /* steps without a supervised token */
    bool                   learned;     /* some step had one */
    double                 token_flos;  /* of training on a token */
    double                 started;
    struct run_profile     profile;
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Batches decide how much the model must hold. */
static int plan(struct run *r, struct ckpt_err *err)
{
    struct loader *t = r->data.train.loader, *e = r->data.eval.loader;
    struct model_opts opts = {
        .max_tokens = larger(loader_max_tokens(t), e ? loader_max_tokens(e) : 0),
        .max_docs = larger(loader_max_docs(t), e ? loader_max_docs(e) : 0),
        .max_rows = larger(loader_max_rows(t), e ? loader_max_rows(e) : 0),
        .max_enc = larger(loader_max_enc(t), e ? loader_max_enc(e) : 0),
        .train = true, .recompute = settings_recompute(r->s), .dry = r->s->dry_run,
    };
    struct zero_opts zero = {.stage = settings_stage(r->s), .moments = settings_moments(r->s),
                             .reduce = settings_reduce(r->s), .paged = settings_paged(r->s),
                             .offload = strcmp(r->s->offload_optimizer, "cpu") == 0,
                             .offload_param = strcmp(r->s->offload_param, "cpu") == 0};
    int rc;

    if (zero.offload_param && r->session.comm->world_size > 1) {
        rc = ckpt_fail(err, CKPT_ECONFIG, "`offload_param cpu` needs one rank, there are %d",
                       r->session.comm->world_size);
        return comm_agree(r->session.comm, rc, err);
    }
    if (*r->start.base && (rc = session_untie(&r->session, r->start.base, NULL, err)) != 0)
        return rc;
    r->session.paper_limit = r->s->device_memory_limit;
    r->session.reshard = r->s->reshard_after_forward;
    r->session.batch = r->s->per_device_train_batch_size;
    r->session.batch_option = "per_device_train_batch_size";
    if (e && loader_max_tokens(e) > loader_max_tokens(t)) {
        r->session.batch = r->s->per_device_eval_batch_size;
        r->session.batch_option = "per_device_eval_batch_size";
    }
    return session_plan(&r->session, &opts, &zero, err);
}

/* How many steps the run has, and the learning rate along them. */
static int set_schedule(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int64_t per_epoch = loader_steps_per_epoch(r->data.train.loader), total = s->max_steps;
    int rc;

    if (total <= 0) {
        double whole = floor(s->num_train_epochs);

        if ((rc = loader_steps_of(r->data.train.loader, (int64_t)whole, &total, err)) != 0)
            return rc;
        total += (int64_t)ceil((s->num_train_epochs - whole) * (double)per_epoch);
    }
    if (total < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "nothing to do: %g epochs of %lld steps",
                         s->num_train_epochs, (long long)per_epoch);
    r->state.max_steps = total;
    r->state.num_train_epochs = (total + per_epoch - 1) / per_epoch;
    r->schedule = (struct schedule){
        .lr = s->learning_rate, .num_cycles = 0.5, .power = 1.0,
        .warmup_steps = s->warmup_steps > 0 ? s->warmup_steps
                                            : (int64_t)ceil(s->warmup_ratio * (double)total),
        .total_steps = total,
    };
    schedule_parse(&r->schedule.kind, s->lr_scheduler_type);
    r->schedule.min_lr = schedule_end(r->schedule.kind, s->min_lr);
    if (r->schedule.kind == SCHEDULE_COSINE_WITH_RESTARTS)
        r->schedule.num_cycles = 1.0;
    return 0;
}

static int evaluate(struct run *r, struct ckpt_err *err)
{
    struct evaluate_result e;
    char line[256], loss[32], perplexity[32];
    json_t *row;
    int rc;

    report_phase("evaluation after step %lld", (long long)r->state.global_step);
    if ((rc = evaluate_run(&e, r->session.model, zero_weights(r->session.zero), r->session.comm,
                           r->data.eval.loader, err)) != 0)
        return rc;
    row = json_pack("{s:f,s:o,s:f,s:f,s:I}", "epoch", r->state.epoch, "eval_loss",
                    metrics_number(e.loss),
                    "eval_runtime", e.seconds, "eval_samples_per_second",
                    (double)e.n_samples / fmax(e.seconds, 1e-9), "step",
                    (json_int_t)r->state.global_step);
    snprintf(line, sizeof line, "%6lld/%-5lld eval loss %s, perplexity %s over %lld tokens",
             (long long)r->state.global_step, (long long)r->state.max_steps,
             metrics_text(loss, e.loss, 5), metrics_text(perplexity, exp(e.loss), 3),
             (long long)e.n_targets);
    rc = row ? metrics_row(r->metrics, row, line, err) : ckpt_nomem(err, sizeof line);
    if (rc == 0)
        rc = run_state_log(&r->state, json_incref(row), err);
    json_decref(row);
    if (!isfinite(e.loss) && r->n_lost++ == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "step %lld: the loss on held-out data is %g: it makes no "
                 "checkpoint the best", (long long)r->state.global_step, e.loss);
    if (rc == 0 && isfinite(e.loss) && !(e.loss >= r->state.best_metric)) {
        r->state.best_metric = e.loss;
        r->state.best_global_step = r->state.global_step;
    }
    return rc;
}

/* Report a finished checkpoint or model to the caller.  Rank 0. */
static int tell_artifact(const struct run *r, const char *path, struct ckpt_err *err)
{
    return r->session.comm->rank == 0 && r->io->artifact
               ? r->io->artifact(r->io->ctx, path, err) : 0;
}

/* After a save, on rank 0: nothing here takes the checkpoint back. */
static int tell_saved(struct run *r, double seconds, struct ckpt_err *err)
{
    int rc;

    ckpt_log(CKPT_LOG_NOTE, "%6lld/%-5lld saved %s in %.2f s", (long long)r->state.global_step,
             (long long)r->state.max_steps, r->saved, seconds);
    rc = tell_artifact(r, r->saved, err);
    if (r->s->save_total_limit > 0)
        run_dir_prune(&r->dir, r->s->save_total_limit, r->state.best_model_checkpoint,
                      r->state.global_step == r->state.max_steps);
    return rc;
}

static int save(struct run *r, struct ckpt_err *err)
{
    double start = clock_now();
    int rc;

    report_step(CONTROL_SAVE, r->state.global_step);
    if (r->state.best_global_step == r->state.global_step)
        snprintf(r->state.best_model_checkpoint, sizeof r->state.best_model_checkpoint,
                 "%s/checkpoint-%lld", r->s->output_dir, (long long)r->state.global_step);
    r->checkpoint.replace = run_dir_may_replace(&r->dir, r->state.global_step);
    if ((rc = checkpoint_save(r->saved, &r->session, &r->checkpoint, err)) != 0)
        return rc;
    r->saved_step = r->state.global_step;
    report_step(CONTROL_SAVED, r->saved_step);
    if (r->session.comm->rank == 0)
        rc = tell_saved(r, clock_now() - start, err);
    return comm_agree(r->session.comm, rc, err);
}

/* Whether any rank is to stop: all leave at the same step. */
static bool stop_wanted(struct run *r)
{
    int64_t stop = r->io->stop && *r->io->stop;

    comm_all_reduce(r->session.comm, &stop, 1, CKPT_I64, COMM_MAX);
    return stop != 0;
}

/* Sums since the last log line. */
struct window {
    double  loss, grad_norm, start;     /* the norm is the last step's */
    int64_t steps, tokens;              /* steps that were not skipped */
};

static int log_step(struct run *r, double lr, struct window *w, struct ckpt_err *err)
{
    struct metrics_step m = {
        .step = r->state.global_step, .max_steps = r->state.max_steps, .epoch = r->state.epoch,
        .loss = w->loss / (double)w->steps, .grad_norm = w->grad_norm, .learning_rate = lr,
        .tokens = w->tokens, .seconds = clock_now() - w->start,
    };
    json_t *row;
    int rc;

    if (w->steps == 0)                  /* all were skipped: each has a line in the log */
        return 0;
    if ((rc = metrics_step(r->metrics, &m, &row, err)) != 0 ||
        (rc = run_state_log(&r->state, row, err)) != 0)
        return rc;
    r->last_loss = m.loss;
    if (isnan(r->first_loss))
        r->first_loss = m.loss;
    *w = (struct window){.start = clock_now()};
    return 0;
}

/* Steps without a supervised token teach nothing: the first is a warning, an epoch or a run of them
 * is refused, unless earlier steps were resumed from: the last one alone may have none.  The counts
 * are of all ranks, so all know. */
static int check_targets(struct run *r, const struct step_result *res, struct ckpt_err *err)
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

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

/* Before each step and after the last, rank 0's profile. */
static int watch_profile(struct run *r, struct ckpt_err *err)
{
    if (!r->s->profile || r->session.comm->rank != 0)
        return 0;
    return run_profile_advance(&r->profile, r->session.dev, r->state.global_step - r->first_step,
                               r->state.max_steps - r->first_step, err);
}

/* What a finished step changes. */
static void count_step(struct run *r, struct window *w, const struct step_result *res)
{
    r->state.global_step++;
    if (r->session.comm->rank == 0)
        ckpt_log_progress("training", "steps", (uint64_t)r->state.global_step,
                          (uint64_t)r->state.max_steps);
    r->state.epoch = res->epoch;
    r->state.num_input_tokens_seen += res->n_tokens;
    r->state.total_flos += r->token_flos * (double)res->n_tokens;
    w->tokens += res->n_tokens;
    if (res->skipped)
        return;
    w->loss += res->loss;
    w->grad_norm = res->grad_norm;
    w->steps++;
}

static struct step_opts opts_of(struct run *r)
{
    const struct settings *s = r->s;

    return (struct step_opts){
        .optim = {.beta1 = s->adam_beta1, .beta2 = s->adam_beta2, .eps = s->adam_epsilon,
                  .weight_decay = s->weight_decay, .max_grad_norm = s->max_grad_norm,
                  .seed = s->seed},
        .scaler = &r->scaler, .seed = s->seed,
        .dump_grads = s->dump_grads, .dump_step = r->state.global_step + 1,
    };
}

static int loop(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    struct step_opts opts = opts_of(r);
    struct window w = {.start = clock_now()};
    int rc;

    while (r->state.global_step < r->state.max_steps) {
        double lr = schedule_lr(&r->schedule, r->state.global_step - r->scaler.skipped);
        struct step_result res;

        report_step(CONTROL_TRAIN, r->state.global_step + 1);
        if ((rc = watch_profile(r, err)) != 0 ||
            (rc = step_run(&res, &r->session, r->data.train.loader, &opts, lr,
                           r->state.global_step + 1, err)) != 0)
            return rc;
        count_step(r, &w, &res);
        if ((rc = check_targets(r, &res, err)) != 0)
            return rc;
        if (due(s->logging_steps, r->state.global_step) ||
            r->state.global_step == r->state.max_steps)
            if ((rc = log_step(r, lr, &w, err)) != 0)
                return rc;
        if (due(s->eval_steps, r->state.global_step) && (rc = evaluate(r, err)) != 0)
            return rc;
        if (due(s->save_steps, r->state.global_step) && (rc = save(r, err)) != 0)
            return rc;
        if (stop_wanted(r)) {
            if (r->saved_step != r->state.global_step && (rc = save(r, err)) != 0)
                return rc;
            r->session.comm->agreed = true;
            return ckpt_fail(err, CKPT_ESTOPPED, "stopped at step %lld, saved: go on with "
                             "`resume_from_checkpoint latest`", (long long)r->state.global_step);
        }
    }
    return watch_profile(r, err);
}

/* The figures of memory_log.h to the closing row and line; a row without them is as good. */
static void tell_memory(struct run *r, json_t *row, char *line, size_t size)
{
    struct memory_figures f = memory_log_figures(r->memory);
    size_t n = strlen(line);

    if (f.n == 0)
        return;
    json_object_set_new(row, "device_memory_peak", json_real(f.peak));
    json_object_set_new(row, "device_memory_mean", json_real(f.mean));
    json_object_set_new(row, "device_memory_least", json_real(f.least));
    snprintf(line + n, size - n, "; memory: peak %.0f, mean %.0f, least %.0f MiB", f.peak, f.mean,
             f.least);
}

/* A run that went wrong may end with status 0, but not without a word. */
static void warn_lost(const struct run *r)
{
    if (r->n_lost)
        ckpt_log(CKPT_LOG_WARNING, "%lld evaluations gave no finite loss", (long long)r->n_lost);
    if (r->last_loss > DIVERGED * r->first_loss)
        ckpt_log(CKPT_LOG_WARNING, "the loss began at %g and ended at %g: the run diverged, a "
                 "smaller `learning_rate` may help", r->first_loss, r->last_loss);
}

/* The Trainer's closing row, a last evaluation and a last checkpoint. */
static int finish(struct run *r, struct ckpt_err *err)
{
    double seconds = clock_now() - r->started;
    int64_t steps = r->state.global_step - r->first_step;
    char line[256];
    json_t *row;
    int rc = 0;

    if (r->data.eval.loader && !due(r->s->eval_steps, r->state.global_step))
        rc = evaluate(r, err);
    row = json_pack("{s:f,s:I,s:f,s:f}", "epoch", r->state.epoch, "step",
                    (json_int_t)r->state.global_step, "train_runtime", seconds,
                    "train_steps_per_second", (double)steps / fmax(seconds, 1e-9));
    snprintf(line, sizeof line, "trained %lld steps in %.1f s", (long long)steps, seconds);
    if (row)
        tell_memory(r, row, line, sizeof line);
    if (rc == 0)
        rc = row ? metrics_row(r->metrics, row, line, err) : ckpt_nomem(err, sizeof line);
    if (rc == 0)
        rc = run_state_log(&r->state, json_incref(row), err);
    json_decref(row);
    if (rc == 0 && r->saved_step != r->state.global_step)
        rc = save(r, err);
    if (rc == 0 && r->session.comm->rank == 0)
        warn_lost(r);
    return rc;
}

/* Whether checkpoints are in the way of this run's own; a dry run only warns. */
static int check_free(struct run *r, struct ckpt_err *err)
{
    bool looks = r->session.comm->rank == 0 && !r->s->overwrite_output_dir &&
                 r->s->simulate_world == 0;
    int rc = looks ? run_dir_check_free(&r->dir, r->start.step, err) : 0;

    if (rc && r->s->dry_run) {
        ckpt_log(CKPT_LOG_WARNING, "the run would be refused: %s", err->text);
        rc = 0;
    }
    return comm_agree(r->session.comm, rc, err);
}

/* The output, if it is there already, and where the run begins. */
static int find_start(struct run *r, struct ckpt_err *err)
{
    int rc = 0;

    r->dir.path = r->s->output_dir;
    if (r->session.comm->rank == 0 && settings_write(r->s))
        rc = run_dir_lock(&r->dir, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 ||
        (rc = run_start_find(&r->start, &r->session, r->s, &r->dir, err)) != 0)
        return rc;
    return check_free(r, err);
}

/* The output as the run's own: made, locked, free of what is in its way. */
static int take_output(struct run *r, struct ckpt_err *err)
{
    bool first = r->session.comm->rank == 0;
    int rc = first ? run_dir_make(&r->dir, err) : 0;

    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 || (rc = check_free(r, err)) != 0)
        return rc;
    if (first && r->s->overwrite_output_dir)
        rc = run_dir_clear(&r->dir, r->start.step, err);
    return comm_agree(r->session.comm, rc, err);
}

/* Everything before the first step. */
static int prepare(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int rc;

    if ((rc = session_join(&r->session, settings_planned(s), s->ddp_timeout, err)) != 0 ||
        (rc = comm_same(r->session.comm, s->shared, s->n_shared, err)) != 0 ||
        (rc = find_start(r, err)) != 0 ||
        (rc = run_start_open(&r->session, &r->start, s, err)) != 0)
        return rc;
    report_phase("load");
    rc = run_data_open(&r->data, s, &r->session, r->io->stop, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 || (rc = plan(r, err)) != 0 ||
        (rc = run_plan_check(&r->session, err)) != 0)
        return rc;
    rc = set_schedule(r, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0)
        return rc;
    r->state.logging_steps = s->logging_steps;
    r->state.eval_steps = s->eval_steps > 0 ? s->eval_steps : s->logging_steps;
    r->state.save_steps = s->save_steps;
    r->state.train_batch_size = s->per_device_train_batch_size;
    r->scaler.o = s->scaler;
    r->scaler.o.on = s->fp16;
    scaler_init(&r->scaler, &r->scaler.o);
    r->checkpoint = (struct checkpoint){.settings = s, .schedule = &r->schedule,
                                        .state = &r->state, .scaler = &r->scaler,
                                        .base = s->model ? r->start.base : NULL,
                                        .side = &r->side};
    if (r->session.comm->rank == 0 && !s->init && settings_write(s))
        rc = side_files_open(&r->side, r->session.model_dir, &r->arena, err);
    if (rc == 0)
        rc = data_source_fingerprint(r->data.train.source, r->checkpoint.data, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0 || s->dry_run)
        return rc;
    if ((rc = run_start_load(&r->start, &r->session, &r->checkpoint, &r->state, &r->dir,
                             err)) != 0)
        return rc;
    r->token_flos = 6.0 * (double)run_plan_numel(model_params(r->session.model));
    r->first_step = r->state.global_step;
    if (!*r->start.resume)
        return 0;
    r->saved_step = r->state.global_step;
    rc = loader_seek(r->data.train.loader, r->state.global_step, err);
    return comm_agree(r->session.comm, rc, err);
}

/* A fresh model as a directory, to start from or to compare with. */
static int init_only(struct run *r, struct ckpt_err *err)
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
    return comm_agree(r->session.comm, tell_artifact(r, r->s->output_dir, err), err);
}

static int open_metrics(struct run *r, struct ckpt_err *err)
{
    const struct metrics_start start = {
        .step = r->state.global_step, .max_steps = r->state.max_steps,
        .resumed_from = r->start.resume,
        .continues = run_dir_holds(r->s->output_dir, r->start.resume),
    };

    return metrics_open(&r->metrics, r->s->output_dir, r->session.comm->rank == 0, &start, err);
}

/* Who reports the failure: rank 0 when all know of it, else the rank that failed, now: its peers
 * are ended before this process comes back from closing its session. */
static void end_of_ranks(struct run *r, struct ckpt_err *err)
{
    const struct comm *c = r->session.comm;

    if (!c)
        return;
    r->io->agreed = c->agreed;
    r->io->told = c->agreed && c->rank != 0;
    if (comm_alone(c, err) && r->io->fail) {
        r->io->fail(r->io->ctx, err);
        r->io->told = true;
    }
}

/* Steps of a world that is not there. */
static int simulate(struct run *r, struct ckpt_err *err)
{
    struct step_opts opts = opts_of(r);
    struct run_simulated out;
    int rc = run_simulate(&out, &r->session, &r->data, &opts, r->s->max_steps, r->io->stop, err);

    if (rc == 0 && r->io->simulated)
        rc = r->io->simulated(r->io->ctx, &out, err);
    return comm_agree(r->session.comm, rc, err);
}

/* From a plan that is made to the last checkpoint. */
static int train(struct run *r, struct ckpt_err *err)
{
    bool speak = r->session.comm->rank == 0;
    int rc;

    if (speak)
        session_describe(&r->session, r->state.max_steps);
    if (r->s->dry_run) {
        if (speak)
            run_plan_tell(&r->data, r->state.max_steps, &(struct ckpt_err){0});
        return 0;
    }
    if (r->s->simulate_world > 0)
        return simulate(r, err);
    if (r->state.global_step >= r->state.max_steps) {
        if (speak)
            ckpt_log(CKPT_LOG_NOTE, "nothing to do: %s is at step %lld, the run is to have %lld",
                     r->start.resume, (long long)r->state.global_step,
                     (long long)r->state.max_steps);
        return 0;
    }
    if ((rc = take_output(r, err)) != 0 ||
        (rc = checkpoint_try(r->s->output_dir, &r->session, err)) != 0)
        return rc;
    rc = open_metrics(r, err);
    if (rc == 0 && r->s->memory_log > 0)
        rc = memory_log_open(&r->memory, r->s->output_dir, r->session.comm->rank, r->session.dev,
                             r->s->memory_log, err);
    rc = comm_agree(r->session.comm, rc, err);
    if (rc == 0)
        rc = loop(r, err);
    return rc ? rc : finish(r, err);
}

int run_train(const struct settings *s, struct run_io *io, struct ckpt_err *err)
{
    struct run r = {.s = s, .io = io, .started = clock_now(), .saved_step = -1,
                    .first_loss = NAN, .last_loss = NAN};
    int rc = run_state_init(&r.state, err);

    if (rc == 0)
        rc = s->init_only ? init_only(&r, err) : prepare(&r, err);
    if (rc == 0 && !s->init_only)
        rc = train(&r, err);
    run_profile_end(&r.profile);
    memory_log_close(r.memory);
    metrics_close(r.metrics);
    run_data_close(&r.data);
    run_state_release(&r.state);
    run_dir_close(&r.dir);
    side_files_close(&r.side);
    ckpt_arena_release(&r.arena);
    if (rc)
        end_of_ranks(&r, err);
    session_close(&r.session, rc, err);
    return rc;
}
