/* run - see run.h. */
#include "trainer/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/adapter.h"
#include "trainer/data/loader.h"
#include "trainer/data/prepare.h"
#include "trainer/evaluate.h"
#include "trainer/metrics.h"
#include "trainer/resume.h"
#include "trainer/run_profile.h"
#include "trainer/step.h"

/* One data set, from files to batches. */
struct data {
    struct records     *records;
    struct data_source *source;
    struct loader      *loader;
    bool                prepared;       /* of the folder that cut_data made */
};

struct run {
    const struct settings *s;
    struct run_io         *io;
    struct session         session;
    struct data            train, eval;
    struct schedule        schedule;
    struct run_state       state;
    struct checkpoint      checkpoint;
    struct metrics        *metrics;
    char                   resume[4096];/* checkpoint to go on from; "": none */
    char                   base[4096];  /* the model that is started from; "": fresh or resumed */
    char                   saved[4096]; /* newest checkpoint of this run */
    int64_t                saved_step;
    double                 started;
    struct run_profile     profile;
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void data_close(struct data *d)
{
    loader_close(d->loader);
    data_source_close(d->source);
    records_close(d->records);
}

/* The records that are meant. */
static int open_records(struct data *d, const struct settings *s, const char *const *path,
                        size_t n, bool train, struct ckpt_err *err)
{
    struct records_opts opts = s->data.rows;
    int64_t most = train ? s->max_train_samples : s->max_eval_samples;

    opts.split = s->train_split_ratio > 0 && d->prepared ? NULL
                 : train ? s->train_split : s->eval_split;
    opts.stream_tokens = s->data.max_seq_length;
    opts.identity = strcmp(s->data_cache, "off") != 0;
    if (records_open_with(&d->records, path, n, &opts, err))
        return err->code;
    if (train && !d->prepared)
        records_slice(d->records, s->start_idx, s->end_idx > 0 ? s->end_idx : INT64_MAX);
    if (train && !d->prepared && s->num_shards > 0 &&
        records_shard(d->records, s->num_shards, s->shard_index, s->shard_strided, err))
        return err->code;
    if (most > 0)
        records_slice(d->records, 0, most);
    return 0;
}

/* The last part of a path or URL, as the name of a folder. */
static void name_of(char name[256], const char *path)
{
    size_t n = strlen(path), from;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--)
        ;
    snprintf(name, 256, "%.*s", (int)(n - from > 200 ? 200 : n - from), path + from);
    for (char *c = name; *c; c++)
        if (strchr("*?[]", *c))
            *c = '_';
}

/* The folder that holds the data cut by --train-split-ratio; the first rank makes it. */
static int cut_data(struct run *r, char *dir, size_t size, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    struct data all = {0};
    char name[256];
    bool ready = false;
    struct prepare_opts o = {
        .dir = s->data_dir, .name = name, .seed = s->seed,
        .train_ratio = s->train_split_ratio, .val_test_ratio = s->val_test_split_ratio,
    };

    o.config = s->data.rows.config ? s->data.rows.config : "default";
    name_of(name, s->dataset_name ? s->dataset_name : s->train[0]);
    if (prepare_path(dir, size, &o, err) == 0 && r->session.comm->rank == 0 &&
        open_records(&all, s, s->train, s->n_train, true, err) == 0 &&
        prepare_ready(&ready, dir, &o, records_count(all.records), err) == 0 && !ready)
        prepare_make(dir, &o, all.records, err);
    records_close(all.records);
    return comm_agree(r->session.comm, err);
}

static bool by_length(const struct settings *s)
{
    return strcmp(s->train_sampling_strategy, "group_by_length") == 0;
}

/* How often each of n records will be asked for, about. */
static int64_t passes(const struct run *r, int64_t n, bool train)
{
    const struct settings *s = r->s;
    double steps = (double)s->max_steps, whole;

    if (!train)
        return s->eval_steps > 0 ? 2 : 1;
    whole = s->max_steps <= 0 ? s->num_train_epochs
            : steps * (double)(s->per_device_train_batch_size * s->gradient_accumulation_steps *
                               r->session.comm->world_size) / (double)(n > 0 ? n : 1);
    return (int64_t)ceil(whole) + (s->packing || by_length(s));
}

static int data_open(struct data *d, struct run *r, const char *const *path, size_t n, bool train,
                     struct ckpt_err *err)
{
    const struct settings *s = r->s;
    struct data_opts opts = data_settings_opts(&s->data);
    struct loader_opts lo = {
        .micro_batch = train ? s->per_device_train_batch_size : s->per_device_eval_batch_size,
        .packing = train && s->packing,
        .max_tokens = s->per_device_train_batch_size * s->data.max_seq_length,
        .grad_accum = train ? s->gradient_accumulation_steps : 1,
        .seed = s->data_seed >= 0 ? (uint64_t)s->data_seed : s->seed,
        .shuffle = train && strcmp(s->train_sampling_strategy, "sequential") != 0,
        .tail = !train ? SHUFFLE_MASK : s->dataloader_drop_last ? SHUFFLE_DROP : SHUFFLE_WRAP,
        .distributed = train && strcmp(s->train_sampling_strategy, "distributed") == 0,
        .by_length = train && by_length(s),
        .rank = r->session.comm->rank, .world_size = r->session.comm->world_size,
    };

    opts.stop = r->io->stop;
    opts.pair = session_pair(&r->session);
    opts.kept = strcmp(s->data_cache, "off") == 0 ? DATA_KEPT_OFF
                : strcmp(s->data_cache, "on") == 0 ? DATA_KEPT_ON : DATA_KEPT_AUTO;
    opts.chat_dir = r->session.tokenizer_dir;
    if (open_records(d, s, path, n, train, err))
        return err->code;
    opts.passes = passes(r, records_count(d->records), train);
    if (data_source_open(&d->source, d->records, r->session.tokenizer, &opts, err) ||
        data_settings_check_bad(&s->data, d->source, err))
        return err->code;
    return loader_open(&d->loader, d->source, &lo, err);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Batches decide how much the model must hold. */
static int plan(struct run *r, struct ckpt_err *err)
{
    struct loader *t = r->train.loader, *e = r->eval.loader;
    struct model_opts opts = {
        .max_tokens = larger(loader_max_tokens(t), e ? loader_max_tokens(e) : 0),
        .max_docs = larger(loader_max_docs(t), e ? loader_max_docs(e) : 0),
        .max_rows = larger(loader_max_rows(t), e ? loader_max_rows(e) : 0),
        .max_enc = larger(loader_max_enc(t), e ? loader_max_enc(e) : 0),
        .train = true, .recompute = settings_recompute(r->s),
    };

    if (*r->base && session_untie(&r->session, r->base, NULL, err))
        return err->code;
    return session_plan(&r->session, &opts, (int)r->s->zero_stage, err);
}

/* How many steps the run has, and the learning rate along them. */
static int set_schedule(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    int64_t per_epoch = loader_steps_per_epoch(r->train.loader), total = s->max_steps;

    if (total <= 0) {
        double whole = floor(s->num_train_epochs);

        if (loader_steps_of(r->train.loader, (int64_t)whole, &total, err))
            return err->code;
        total += (int64_t)ceil((s->num_train_epochs - whole) * (double)per_epoch);
    }
    if (total < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "nothing to do: %g epochs of %lld steps",
                         s->num_train_epochs, (long long)per_epoch);
    r->state.max_steps = total;
    r->state.num_train_epochs = (total + per_epoch - 1) / per_epoch;
    r->schedule = (struct schedule){
        .lr = s->learning_rate, .min_lr = s->min_lr, .num_cycles = 0.5, .power = 1.0,
        .warmup_steps = s->warmup_steps > 0 ? s->warmup_steps
                                            : (int64_t)ceil(s->warmup_ratio * (double)total),
        .total_steps = total,
    };
    schedule_parse(&r->schedule.kind, s->lr_scheduler_type);
    if (r->schedule.kind == SCHEDULE_COSINE_WITH_RESTARTS)
        r->schedule.num_cycles = 1.0;
    return 0;
}

/* Where weights come from: an earlier checkpoint of the run, a model with or without an adapter,
 * or nothing. */
static int start_weights(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;

    if (r->session.lora && session_load(&r->session, r->base, NULL, err))
        return err->code;
    if (*r->resume) {
        if (resume_load(&r->session, r->resume, &r->checkpoint, &r->state, err))
            return err->code;
        r->saved_step = r->state.global_step;
        ckpt_log(CKPT_LOG_NOTE, "resuming from %s, step %lld", r->resume,
                 (long long)r->state.global_step);
        return loader_seek(r->train.loader, r->state.global_step, err);
    }
    if (r->session.lora)
        return s->adapter ? adapter_load(&r->session, s->adapter, err)
                          : adapter_init(&r->session, s->seed, err);
    if (s->init)
        return session_init_weights(&r->session, s->seed, err);
    return session_load(&r->session, s->model, NULL, err);
}

static int evaluate(struct run *r, struct ckpt_err *err)
{
    struct evaluate_result e;
    char line[256];
    json_t *row;
    int rc;

    if (evaluate_run(&e, r->session.model, zero_weights(r->session.zero), r->session.comm,
                     r->eval.loader, err))
        return err->code;
    row = json_pack("{s:f,s:f,s:f,s:f,s:I}", "epoch", r->state.epoch, "eval_loss", e.loss,
                    "eval_runtime", e.seconds, "eval_samples_per_second",
                    (double)e.n_samples / fmax(e.seconds, 1e-9), "step",
                    (json_int_t)r->state.global_step);
    snprintf(line, sizeof line, "%6lld/%-5lld eval loss %.5f, perplexity %.3f over %lld tokens",
             (long long)r->state.global_step, (long long)r->state.max_steps, e.loss, exp(e.loss),
             (long long)e.n_targets);
    rc = row ? metrics_row(r->metrics, row, line, err) : ckpt_nomem(err, sizeof line);
    if (rc == 0)
        rc = run_state_log(&r->state, json_incref(row), err);
    json_decref(row);
    if (rc == 0 && !(e.loss >= r->state.best_metric)) {
        r->state.best_metric = e.loss;
        r->state.best_global_step = r->state.global_step;
    }
    return rc;
}

static int save(struct run *r, struct ckpt_err *err)
{
    double start = now();

    if (r->state.best_global_step == r->state.global_step)
        snprintf(r->state.best_model_checkpoint, sizeof r->state.best_model_checkpoint,
                 "%s/checkpoint-%lld", r->s->output_dir, (long long)r->state.global_step);
    if (checkpoint_save(r->saved, &r->session, &r->checkpoint, err))
        return err->code;
    r->saved_step = r->state.global_step;
    if (r->session.comm->rank == 0) {
        ckpt_log(CKPT_LOG_NOTE, "%6lld/%-5lld saved %s in %.2f s",
                 (long long)r->state.global_step, (long long)r->state.max_steps, r->saved,
                 now() - start);
        if (r->s->save_total_limit > 0)
            resume_prune(r->s->output_dir, r->s->save_total_limit,
                         r->state.best_model_checkpoint, err);
        if (err->code == 0 && r->io->artifact)
            r->io->artifact(r->io->ctx, r->saved, err);
    }
    return comm_agree(r->session.comm, err);
}

/* Whether any rank has been told to stop: all leave at the same step. */
static bool stop_wanted(struct run *r)
{
    int64_t stop = r->io->stop && *r->io->stop;

    comm_all_reduce(r->session.comm, &stop, 1, CKPT_I64, COMM_MAX);
    return stop != 0;
}

/* Sums since the last log line. */
struct window {
    double  loss, start;
    int64_t steps, tokens;
};

static int log_step(struct run *r, const struct step_result *res, double lr, struct window *w,
                    struct ckpt_err *err)
{
    struct metrics_step m = {
        .step = r->state.global_step, .max_steps = r->state.max_steps, .epoch = r->state.epoch,
        .loss = w->loss / (double)w->steps, .grad_norm = res->grad_norm, .learning_rate = lr,
        .tokens = w->tokens, .seconds = now() - w->start,
    };
    json_t *row;

    if (metrics_step(r->metrics, &m, &row, err) || run_state_log(&r->state, row, err))
        return err->code;
    *w = (struct window){.start = now()};
    return 0;
}

static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

static int loop(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    struct step_opts opts = {
        .optim = {.beta1 = s->adam_beta1, .beta2 = s->adam_beta2, .eps = s->adam_epsilon,
                  .weight_decay = s->weight_decay, .max_grad_norm = s->max_grad_norm},
        .seed = s->seed, .dump_grads = s->dump_grads, .dump_step = r->state.global_step + 1,
    };
    struct window w = {.start = now()};
    int64_t first = r->state.global_step;
    bool watch = s->profile && r->session.comm->rank == 0;

    while (r->state.global_step < r->state.max_steps) {
        double lr = schedule_lr(&r->schedule, r->state.global_step);
        struct step_result res;

        if (watch && run_profile_turn(&r->profile, r->session.dev, r->state.global_step - first,
                                      r->state.max_steps - first, err))
            return err->code;
        if (step_run(&res, r->session.model, r->session.zero, r->session.dev, r->session.comm,
                     r->train.loader, &opts, lr, r->state.global_step + 1, err))
            return err->code;
        r->state.global_step++;
        r->state.epoch = res.epoch;
        r->state.num_input_tokens_seen += res.n_tokens;
        w.loss += res.loss;
        w.tokens += res.n_tokens;
        w.steps++;
        if (due(s->logging_steps, r->state.global_step) ||
            r->state.global_step == r->state.max_steps)
            if (log_step(r, &res, lr, &w, err))
                return err->code;
        if (due(s->eval_steps, r->state.global_step) && evaluate(r, err))
            return err->code;
        if (due(s->save_steps, r->state.global_step) && save(r, err))
            return err->code;
        if (stop_wanted(r)) {
            if (r->saved_step != r->state.global_step && save(r, err))
                return err->code;
            r->session.comm->agreed = true;
            return ckpt_fail(err, CKPT_ESTOPPED, "stopped at step %lld, saved: go on with "
                             "--resume-from-checkpoint latest", (long long)r->state.global_step);
        }
    }
    return watch ? run_profile_turn(&r->profile, r->session.dev, r->state.global_step - first,
                                    r->state.max_steps - first, err)
                 : 0;
}

/* The Trainer's closing row, a last evaluation and a last checkpoint. */
static int finish(struct run *r, struct ckpt_err *err)
{
    double seconds = now() - r->started;
    char line[256];
    json_t *row;
    int rc = 0;

    if (r->eval.loader && !due(r->s->eval_steps, r->state.global_step))
        rc = evaluate(r, err);
    row = json_pack("{s:f,s:I,s:f,s:f}", "epoch", r->state.epoch, "step",
                    (json_int_t)r->state.global_step, "train_runtime", seconds,
                    "train_steps_per_second", (double)r->state.max_steps / fmax(seconds, 1e-9));
    snprintf(line, sizeof line, "trained %lld steps in %.1f s", (long long)r->state.global_step,
             seconds);
    if (rc == 0)
        rc = row ? metrics_row(r->metrics, row, line, err) : ckpt_nomem(err, sizeof line);
    if (rc == 0)
        rc = run_state_log(&r->state, json_incref(row), err);
    json_decref(row);
    if (rc == 0 && r->saved_step != r->state.global_step)
        rc = save(r, err);
    return rc;
}

static int make_output_dir(const char *path, struct ckpt_err *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
}

static int open_given(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    bool same = s->n_eval == 0 && s->eval_split;

    if (data_open(&r->train, r, s->train, s->n_train, true, err))
        return err->code;
    if (!same && s->n_eval == 0)
        return 0;
    return data_open(&r->eval, r, same ? s->train : s->eval, same ? s->n_train : s->n_eval, false,
                     err);
}

static int open_cut(struct run *r, struct ckpt_err *err)
{
    char dir[4096], train[4160], eval[4160];
    const char *path = train;

    if (cut_data(r, dir, sizeof dir, err))
        return err->code;
    snprintf(train, sizeof train, "%s/training.jsonl", dir);
    snprintf(eval, sizeof eval, "%s/validation.jsonl", dir);
    r->train.prepared = r->eval.prepared = true;
    if (data_open(&r->train, r, &path, 1, true, err) || r->s->val_test_split_ratio <= 0)
        return err->code;
    path = eval;
    return data_open(&r->eval, r, &path, 1, false, err);
}

/* Which checkpoint is gone on from, which model is started from, and with which adapter. */
static int find_start(struct run *r, json_t **config, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    const char *from = s->resume_from_checkpoint, *adapter = s->adapter;

    if (from && strcmp(from, "latest") == 0) {
        if (resume_latest(r->resume, s->output_dir, err))
            return err->code;
    } else if (from) {
        snprintf(r->resume, sizeof r->resume, "%s", from);
    }
    if (s->model)
        snprintf(r->base, sizeof r->base, "%s", s->model);
    if (*r->resume && adapter_lies_at(r->resume))
        adapter = r->resume;
    else if (*r->resume && adapter_wanted(s))
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had no adapter, this one has",
                         r->resume);
    if (!adapter)
        return 0;
    if (adapter_config_read(config, adapter, err))
        return err->code;
    return *r->base ? 0 : adapter_base(r->base, *config, adapter, err);
}

/* The model, and beside it the adapter that was found or that options describe. */
static int open_model(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;
    struct device_opts device = settings_device(s);
    json_t *config = NULL, *wanted = NULL;
    int rc = find_start(r, &config, err);

    if (rc == 0)
        rc = session_open(&r->session, s->init ? s->init : *r->base ? r->base : r->resume,
                          s->tokenizer, &device, err);
    if (rc == 0 && s->lora_rank > 0)
        rc = adapter_config_of(&wanted, s, r->session.arch, err);
    if (rc == 0 && config && wanted)
        rc = adapter_same(config, wanted, r->resume, err);
    if (rc == 0 && (config || wanted))
        rc = session_adapt(&r->session, config ? config : wanted, err);
    json_decref(config);
    json_decref(wanted);
    return rc;
}

/* Everything before the first step. */
static int prepare(struct run *r, struct ckpt_err *err)
{
    const struct settings *s = r->s;

    if (open_model(r, err))
        return err->code;
    if (s->train_split_ratio > 0)
        open_cut(r, err);
    else
        open_given(r, err);
    if (comm_agree(r->session.comm, err) || plan(r, err) || set_schedule(r, err))
        return err->code;
    r->state.logging_steps = s->logging_steps;
    r->state.eval_steps = s->eval_steps > 0 ? s->eval_steps : s->logging_steps;
    r->state.save_steps = s->save_steps;
    r->state.train_batch_size = s->per_device_train_batch_size;
    r->checkpoint = (struct checkpoint){.settings = s, .schedule = &r->schedule,
                                        .state = &r->state};
    if (data_source_fingerprint(r->train.source, r->checkpoint.data, err))
        return err->code;
    return s->dry_run ? 0 : start_weights(r, err);
}

/* A fresh model as a directory, to start from or to compare with. */
static int init_only(struct run *r, struct ckpt_err *err)
{
    const struct model_opts small = {.max_tokens = 1, .max_docs = 1, .max_rows = 1,
                                     .max_enc = 1};
    const struct device_opts cpu = {.name = "cpu", .threads = (int)r->s->threads,
                                    .weights = CKPT_F32};

    if (session_open(&r->session, r->s->init, r->s->tokenizer, &cpu, err) ||
        session_plan(&r->session, &small, (int)r->s->zero_stage, err) ||
        session_init_weights(&r->session, r->s->seed, err) ||
        checkpoint_save_bare(r->s->output_dir, &r->session, err))
        return err->code;
    if (r->session.comm->rank == 0 && r->io->artifact)
        r->io->artifact(r->io->ctx, r->s->output_dir, err);
    return comm_agree(r->session.comm, err);
}

int run_train(const struct settings *s, struct run_io *io, struct ckpt_err *err)
{
    struct run r = {.s = s, .io = io, .started = now(), .saved_step = -1};
    bool speak;

    if (run_state_init(&r.state, err) || (s->init_only ? init_only(&r, err) : prepare(&r, err)) ||
        s->init_only)
        goto out;
    speak = r.session.comm->rank == 0;
    if (speak)
        session_describe(&r.session, r.state.max_steps);
    if (s->dry_run)
        goto out;
    if (speak)
        make_output_dir(s->output_dir, err);
    if (comm_agree(r.session.comm, err))
        goto out;
    metrics_open(&r.metrics, s->output_dir, speak, err);
    if (comm_agree(r.session.comm, err) == 0 && loop(&r, err) == 0)
        finish(&r, err);
out:
    run_profile_end(&r.profile);
    metrics_close(r.metrics);
    data_close(&r.train);
    data_close(&r.eval);
    run_state_release(&r.state);
    io->told_elsewhere = err->code && r.session.comm && r.session.comm->agreed &&
                         r.session.comm->rank != 0;
    session_close(&r.session, err);
    return err->code;
}
