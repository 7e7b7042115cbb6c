/* run/save - see run/save.h. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/checkpoint/naming.h"
#include "trainer/comm/report.h"
#include "trainer/run/run_own.h"
#include "trainer/run/trial.h"
#include "trainer/shard/zero_copy.h"

#define NICE 10                         /* threads of steps come first */

enum saving { SAVING_NOT, SAVING_COPIED, SAVING_WRITTEN };      /* is begun */

struct saver {
    enum saving       at;
    struct zero_copy *copy;
    struct session    session;          /* the run's, but for the copy and communicators */
    struct run_state  state;            /* the run's when it was copied, and so on */
    struct scaler     scaler;
    struct checkpoint checkpoint;
    char              path[4096], state_dict[4096];
    char              best[4096];       /* the run's best checkpoint before this one */
    double            start, held;      /* when it began, and seconds that steps waited for it */
    pthread_t         thread;
    bool              threaded;
    bool              done;             /* atomic */
    int               rc;
    struct ckpt_err   err;
};

/* -- what follows a save ----------------------------------------------------------------------- */

/* On rank 0: nothing here takes the checkpoint back.  held: seconds that steps waited; negative:
 * all the time. */
static int tell_saved(struct run_job *r, double seconds, double held, struct ckpt_err *err)
{
    bool parts = r->folders.n > 1 && settings_stage(r->s) > 0;
    int rc;

    if (settings_is_trial(r->s))
        trial_saved(r->s, &r->state, r->saved, r->saved_step, clock_now() - r->began);
    metrics_saved(r->metrics, &(struct metrics_save){
        .path = r->saved, .step = r->saved_step, .seconds = seconds, .held = held,
        .folders = parts ? r->folders.n : 1});
    rc = parts ? 0 : run_tell_artifact(r, r->saved, err);   /* a part is no artifact */
    return rc || !*r->state_dict ? rc : run_tell_artifact(r, r->state_dict, err);
}

/* A checkpoint is complete: the step that it is of is known to be saved from here on. */
static int complete(struct run_job *r, int64_t step, double seconds, double held,
                    struct ckpt_err *err)
{
    r->saved_step = step;
    report_step(CONTROL_SAVED, step);
    return r->session.comm->rank == 0 ? tell_saved(r, seconds, held, err) : 0;
}

int save_prune(struct run_job *r, int rc, struct ckpt_err *err)
{
    if (rc == 0 && r->folders.leads && r->s->save_total_limit > 0)
        run_dir_prune(&r->dir, r->s->save_total_limit,
                      course_keeps_best(r->s) ? r->state.best_model_checkpoint : "",
                      r->saved_step == r->state.max_steps);
    return comm_agree(r->session.comm, rc, err);
}

/* A save failed on all ranks: whether the run does.  best: its best checkpoint before. */
static int failed(struct run_job *r, const char *path, const char *best, int rc,
                  struct ckpt_err *err)
{
    struct comm *c = r->session.comm;

    if (strcmp(r->state.best_model_checkpoint, path) == 0)
        memmove(r->state.best_model_checkpoint, best, strlen(best) + 1);
    if (strcmp(r->s->on_save_error, "continue") != 0 || rc == CKPT_ECOMM || rc == CKPT_EDEVICE ||
        !(c->agreed || c->world_size == 1) || r->session.dev->err.code)
        return rc;
    c->agreed = false;                  /* they stay */
    if (c->rank == 0)
        ckpt_log(CKPT_LOG_ERROR, "%s is not saved, the run continues: %s", path, err->text);
    return 0;
}

/* -- beside the steps -------------------------------------------------------------------------- */

static void *write_beside(void *arg)
{
    struct saver *v = arg;

    ckpt_log_progress_mute();           /* the steps tell theirs */
    setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);    /* refused: as fast as the others */
    v->rc = checkpoint_save(v->path, v->state_dict, &v->session, &v->checkpoint, &v->err);
    __atomic_store_n(&v->done, true, __ATOMIC_RELEASE);
    return NULL;
}

/* Begin to write what was copied.  Signals are the main thread's. */
static void start_thread(struct saver *v)
{
    sigset_t all, was;

    v->at = SAVING_WRITTEN;
    v->done = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    v->threaded = pthread_create(&v->thread, NULL, write_beside, v) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (!v->threaded)                   /* the other ranks' threads wait for this one */
        write_beside(v);
}

/* What was copied is there after it; a device that failed meanwhile has copied nothing. */
static int go(struct saver *v, struct ckpt_err *err)
{
    int rc;

    if (v->at != SAVING_COPIED)
        return 0;
    if ((rc = zero_copy_wait(v->copy, err)) != 0)
        v->at = SAVING_NOT;
    else
        start_thread(v);
    return rc;
}

int save_go(struct run_job *r, struct ckpt_err *err) { return r->saver ? go(r->saver, err) : 0; }

bool save_busy(const struct run_job *r)
{
    return r->saver && r->saver->at != SAVING_NOT &&
           !__atomic_load_n(&r->saver->done, __ATOMIC_ACQUIRE);
}

/* Until the thread has ended. */
static void join(struct saver *v)
{
    if (v->threaded)
        pthread_join(v->thread, NULL);
    v->threaded = false;
    v->at = SAVING_NOT;
    json_decref(v->state.log_history);
    v->state.log_history = NULL;
}

int save_wait(struct run_job *r, struct ckpt_err *err)
{
    struct saver *v = r->saver;
    double begun = clock_now();
    int rc;

    if (!v || v->at == SAVING_NOT)
        return 0;
    if ((rc = go(v, err)) != 0)
        return rc;
    join(v);
    v->held += clock_now() - begun;
    if (v->rc) {
        *err = v->err;
        r->session.comm->agreed |= v->session.comm->agreed;
        v->session.comm->agreed = false;
        return failed(r, v->path, v->best, v->rc, err);
    }
    snprintf(r->saved, sizeof r->saved, "%s", v->path);
    snprintf(r->state_dict, sizeof r->state_dict, "%s", v->state_dict);
    rc = complete(r, v->state.global_step, clock_now() - v->start, v->held, err);
    return save_prune(r, rc, err);
}

/* Copy all that the thread reads and steps change. */
static int copy(struct run_job *r, const char *best, struct ckpt_err *err)
{
    struct saver *v = r->saver;
    int rc;

    v->start = clock_now();
    v->state = r->state;
    v->scaler = r->scaler;
    v->checkpoint = r->checkpoint;
    v->checkpoint.state = &v->state;
    v->checkpoint.scaler = &v->scaler;
    naming_path(v->path, r->s->output_dir, r->state.global_step);
    snprintf(v->best, sizeof v->best, "%s", best);
    v->state.log_history = json_deep_copy(r->state.log_history);
    rc = v->state.log_history ? 0 : ckpt_nomem(err, sizeof *v);
    if ((rc = comm_agree(r->session.comm, rc, err)) != 0)
        return rc;
    zero_copy_take(v->copy);
    v->at = SAVING_COPIED;
    v->done = false;
    rc = r->session.dev->discrete ? 0 : go(v, err);
    v->held = clock_now() - v->start;
    return rc;
}

static int save_now(struct run_job *r, const char *best, struct ckpt_err *err)
{
    double start = clock_now();
    int rc = checkpoint_save(r->saved, r->state_dict, &r->session, &r->checkpoint, err);

    if (rc)
        return failed(r, r->saved, best, rc, err);
    rc = complete(r, r->state.global_step, clock_now() - start, -1, err);
    return save_prune(r, rc, err);
}

int save_begin(struct run_job *r, bool steps_follow, struct ckpt_err *err)
{
    struct run_state *s = &r->state;
    char best[sizeof s->best_model_checkpoint];
    int rc = save_wait(r, err);

    if (rc)
        return rc;
    report_step(CONTROL_SAVE, s->global_step);
    memcpy(best, s->best_model_checkpoint, sizeof best);
    if (s->best_global_step == s->global_step)
        naming_path(s->best_model_checkpoint, r->s->output_dir, s->global_step);
    r->checkpoint.replace = run_dir_may_replace(&r->dir, s->global_step);
    return r->saver && steps_follow ? copy(r, best, err) : save_now(r, best, err);
}

/* -- opening and closing ----------------------------------------------------------------------- */

/* Whether a checkpoint may come before the last step. */
static bool saves_before_end(const struct run_job *r)
{
    const struct course_event *e = &r->course.save;
    int64_t left = r->state.max_steps - r->state.global_step;

    if (e->when == COURSE_STEPS)
        return e->every > 0 && e->every - r->state.global_step % e->every < left;
    return e->when == COURSE_BEST || (e->when == COURSE_EPOCH && r->state.num_train_epochs > 1);
}

/* Communicators of the threads; *able: there are such. */
static int open_comms(struct saver *v, const struct session *s, bool *able, struct ckpt_err *err)
{
    int rc = comm_twin(&v->session.comm, s->comm, err), size = s->shard->world_size;

    *able = rc == 0 && v->session.comm;
    v->session.shard = v->session.comm;
    if (!*able || !s->replicas)
        return rc;
    rc = comm_twin_split(&v->session.shard, s->comm, COMM_WITHIN, size, err);
    return rc ? rc : comm_twin_split(&v->session.replicas, s->comm, COMM_ACROSS, size, err);
}

/* Memory on every rank or on none; of auto a lack of it is no failure. */
static int open_copy(struct saver *v, struct run_job *r, struct ckpt_err *err)
{
    const struct session *s = &r->session;
    bool holds = s->zero_opts.stage > 0 || r->folders.leads || s->replicas;
    struct ckpt_err why = {0};
    int64_t lacks = zero_copy_new(&v->copy, s->zero, v->session.shard, holds, &why) != 0;

    comm_all_reduce(s->comm, &lacks, 1, CKPT_I64, COMM_MAX);
    if (!lacks) {
        v->session.zero = zero_copy_zero(v->copy);
        return 0;
    }
    zero_copy_free(v->copy);
    v->copy = NULL;
    return comm_error(s->comm, err);
}

/* Why saves are at once: a note, or the run's refusal with this code. */
static int without(struct run_job *r, int code, struct ckpt_err *err, const char *why)
{
    if (strcmp(r->s->async_save, "true") == 0) {
        r->session.comm->agreed = true; /* the same on every rank */
        ckpt_fail(err, code, "`async_save true`: %s", why);
        return ckpt_err_hint(err, "`async_save auto` then saves while steps wait");
    }
    if (r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "steps wait for checkpoints: %s", why);
    return 0;
}

/* On CPUs the steps and a thread that writes share what computes: nothing is gained by itself. */
static bool wanted(const struct run_job *r)
{
    return strcmp(r->s->async_save, "true") == 0 ||
           (strcmp(r->s->async_save, "auto") == 0 &&
            (r->session.dev->discrete || r->session.paper_limit > 0));
}

/* Of the host's memory that the plan leaves to a rank. */
static uint64_t most_of(const struct run_job *r) { return r->spare / 4 * 3; }

int save_plan(const struct run_job *r, uint64_t *bytes, const char **why, struct ckpt_err *err)
{
    const struct session *s = &r->session;
    int rc = 0;

    *bytes = 0;
    *why = !saves_before_end(r) ? "none before the end"
           : strcmp(r->s->async_save, "false") == 0 ? "while steps wait, as asked for"
           : !wanted(r) ? "while steps wait, by default on CPUs" : "asynchronous";
    if (!wanted(r) || !saves_before_end(r))
        return 0;
    rc = zero_copy_plan(bytes, model_params(s->model), &s->zero_opts, s->shard->world_size, s->dev,
                        err);
    if (!s->paper_limit && *bytes > most_of(r)) {
        *why = "while steps wait: their copy does not fit this host";
        *bytes = 0;
    }
    return rc;
}

int save_open(struct run_job *r, struct ckpt_err *err)
{
    uint64_t bytes = zero_copy_bytes(r->session.zero), most = most_of(r);
    bool able = false;
    char why[128];
    struct saver *v;
    int rc;

    if (!wanted(r) || !saves_before_end(r))
        return 0;
    snprintf(why, sizeof why, "a copy of %.2f GiB for each rank does not fit this host, which has "
             "%.2f left", (double)bytes / (1 << 30), (double)r->spare / (1 << 30));
    if (bytes > most)
        return without(r, CKPT_ENOMEM, err, why);
    v = ckpt_alloc(1, sizeof *v);
    rc = comm_agree(r->session.comm, v ? 0 : ckpt_nomem(err, sizeof *v), err);
    if (rc || !v) {
        ckpt_free(v);
        return rc;
    }
    v->session = r->session;
    rc = open_comms(v, &r->session, &able, err);
    if (rc == 0 && able)
        rc = open_copy(v, r, err);
    if (rc == 0 && v->copy) {
        r->saver = v;
        return 0;
    }
    ckpt_free(v);
    if (rc)
        return rc;
    return able ? without(r, CKPT_ENOMEM, err, why)
                : without(r, CKPT_ECONFIG, err, "ranks talk through MPI in one thread alone");
}

void save_close(struct run_job *r)
{
    struct ckpt_err ignored = {0};
    struct saver *v = r->saver;

    if (!v)
        return;
    if (go(v, &ignored) == 0 && v->at == SAVING_WRITTEN) {
        join(v);
        if (v->rc == 0) {
            snprintf(r->saved, sizeof r->saved, "%s", v->path);
            snprintf(r->state_dict, sizeof r->state_dict, "%s", v->state_dict);
            complete(r, v->state.global_step, clock_now() - v->start, 0, &ignored);
        }
    }
    json_decref(v->state.log_history);
    zero_copy_free(v->copy);
    ckpt_free(v);
    r->saver = NULL;
}
