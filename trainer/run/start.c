/* run/start - see run/start.h. */
#include "trainer/run/start.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libckpt/log.h"
#include "libckpt/io/path.h"
#include "trainer/comm/report.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/special.h"
#include "trainer/run/model_find.h"
#include "trainer/checkpoint/position.h"
#include "trainer/checkpoint/proof.h"
#include "trainer/checkpoint/resume.h"

/* Whether word is one of a list that ends in NULL. */
static bool is_one_of(const char *word, const char *const *of)
{
    for (; *of; of++)
        if (strcasecmp(word, *of) == 0)
            return true;
    return false;
}

static const char *const newest_words[] = {"latest", "auto", "true", NULL};
static const char *const fresh_words[] = {"none", "false", NULL};

/* The newest complete checkpoint of the output, or a fresh run where there is none yet. */
static int find_newest(struct run_start *start, struct run_dir *d, bool may_be_fresh,
                       struct ckpt_err *err)
{
    int rc = run_dir_newest(start->resume, &start->number, d, start->folder, RUN_DIR_ANY, err);

    if (rc == 0)
        start->step = start->number;
    else
        start->resume[0] = '\0';
    return rc && may_be_fresh && strcmp(err->reason, "none") == 0 ? 0 : rc;
}

/* A checkpoint that is named; a run's folder means the newest in it. */
static int find_named(struct run_start *start, const char *from, struct run_dir *d,
                      struct ckpt_err *err)
{
    int rc;

    if (ckpt_path_is_file(from)) {
        ckpt_fail(err, CKPT_ECONFIG, "%s: a file, not a checkpoint's folder", from);
        return ckpt_err_hint(err, "`resume_file` takes weights from a file");
    }
    if (!ckpt_path_is_dir(from))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such checkpoint", from);
    if (run_dir_is_run(from)) {
        snprintf(start->folder, sizeof start->folder, "%s", from);
        return find_newest(start, d, false, err);
    }
    snprintf(start->resume, sizeof start->resume, "%s", from);
    rc = proof_first(from, true, err);
    if (rc && strcmp(err->reason, "unproved") != 0)
        return rc;
    return position_step(&start->step, from, err);
}

/* The base that an adapter's configuration names. */
static int find_base(struct run_start *start, struct ckpt_err *err)
{
    json_t *config = NULL;
    int rc = adapter_config_read(&config, start->adapter, err);

    if (rc == 0)
        rc = adapter_base(start->base, config, start->adapter, err);
    json_decref(config);
    return rc;
}

/* Ranks that are started again go on from what earlier tries saved, whatever the settings say; a
 * checkpoint below those is another run's. */
static int find_saved(struct run_start *start, struct run_dir *d, struct ckpt_err *err)
{
    int64_t first = report_saved_before();
    int rc;

    if (first < 0)
        return 0;
    snprintf(start->folder, sizeof start->folder, "%s", d->path);
    if ((rc = find_newest(start, d, true, err)) == 0 && (!*start->resume || start->number < first))
        *start = (struct run_start){.step = -1};
    start->own = *start->resume;
    return rc;
}

/* A file of weights: where the run is with it, settings say. */
static int find_file(struct run_start *start, const char *path, struct ckpt_err *err)
{
    if (!ckpt_path_is_file(path))
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such file", path);
    snprintf(start->resume, sizeof start->resume, "%s", path);
    start->file = true;
    return 0;
}

/* A checkpoint without a description needs a model that has it. */
static int check_described(const struct run_start *start, const struct settings *set,
                           struct ckpt_err *err)
{
    char dir[4096], path[4200];

    model_dir(dir, start->resume);
    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!*start->resume || *start->base || *start->adapter || set->init || ckpt_path_is_file(path))
        return 0;
    ckpt_fail(err, CKPT_ECONFIG, "%s: no config.json tells what model its weights are of",
              start->resume);
    return ckpt_err_hint(err, "`model DIR` names a model of the same shape");
}

/* Rank 0's choice. */
static int find(struct run_start *start, const struct settings *set, struct run_dir *d,
                struct ckpt_err *err)
{
    const char *from = set->resume_from_checkpoint;
    bool adapted;
    int rc = find_saved(start, d, err);

    if (rc || *start->resume) {
        ;
    } else if (from && is_one_of(from, newest_words)) {
        snprintf(start->folder, sizeof start->folder, "%s", d->path);
        rc = find_newest(start, d, true, err);
        start->own = *start->resume;
    } else if (from && !is_one_of(from, fresh_words)) {
        rc = find_named(start, from, d, err);
    }
    if (rc == 0 && !*start->resume && set->resume_file)
        rc = find_file(start, set->resume_file, err);
    if (rc == 0 && set->model)
        rc = model_find(start->base, set->model, err);
    if (rc == 0 && set->adapter)
        rc = model_find(start->adapter, set->adapter, err);
    if (rc)
        return rc;
    adapted = *start->resume && adapter_lies_at(start->resume);
    if (*start->resume && !adapted && adapter_wanted(set))
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had no adapter, this one has",
                         start->resume);
    if (adapted)
        snprintf(start->adapter, sizeof start->adapter, "%s", start->resume);
    if (*start->adapter && !*start->base && (rc = find_base(start, err)) != 0)
        return rc;
    if (!*start->resume && !*start->base && !*start->adapter && !set->init)
        return ckpt_fail(err, CKPT_ECONFIG, "nothing to train: `model DIR` or `init CONFIG` "
                         "is missing");
    if ((rc = check_described(start, set, err)) != 0)
        return rc;
    if (!*start->resume && *start->folder)
        ckpt_log(CKPT_LOG_NOTE, "%s: no checkpoint to go on from yet: starting afresh",
                 start->folder);
    return 0;
}

/* Rank 0's choice, which came to rc, to all. */
static int share(struct run_start *start, struct session *s, const struct run_dir *d, int rc,
                 struct ckpt_err *err)
{
    char found[4096];

    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        return rc;
    comm_broadcast(s->comm, start, (int64_t)sizeof *start, CKPT_U8, 0);
    if ((rc = comm_error(s->comm, err)) != 0)
        return rc;
    if (!start->own || s->comm->rank == 0)
        return 0;
    /* On this node it may have another path. */
    snprintf(found, sizeof found, "%s", start->resume);
    snprintf(start->folder, sizeof start->folder, "%s", d->path);
    run_dir_path(start->resume, d->path, start->number);
    if (strcmp(start->adapter, found) == 0)
        snprintf(start->adapter, sizeof start->adapter, "%s", start->resume);
    return 0;
}

/* Whether the chosen checkpoint is in the folders of all ranks: on nodes' own disks a kill may have
 * come between the renames of one save.  Collective. */
static bool is_everywhere(const struct run_start *start, struct session *s)
{
    float absent = !ckpt_path_is_dir(start->resume);

    comm_all_reduce(s->comm, &absent, 1, CKPT_F32, COMM_MAX);
    return absent == 0;
}

/* The one before a checkpoint that some folder lacks. */
static int take_older(struct run_start *start, struct run_dir *d, struct ckpt_err *err)
{
    bool adapted = strcmp(start->adapter, start->resume) == 0;
    struct ckpt_err why = {0};
    int rc;

    ckpt_fail(&why, CKPT_EFORMAT, "it is not in the folders of all ranks: its save did not end");
    rc = run_dir_pass_over(d, start->folder, start->number, &why, err);
    if (rc == 0)
        rc = run_dir_newest(start->resume, &start->number, d, start->folder, start->number, err);
    start->step = start->number;
    if (adapted)
        snprintf(start->adapter, sizeof start->adapter, "%s", start->resume);
    return rc;
}

int run_start_find(struct run_start *start, struct session *s, const struct settings *set,
                   struct run_dir *d, struct ckpt_err *err)
{
    bool first = s->comm->rank == 0;
    int rc;

    *start = (struct run_start){.step = -1};
    rc = share(start, s, d, first ? find(start, set, d, err) : 0, err);
    while (rc == 0 && start->own && !is_everywhere(start, s) &&
           (rc = comm_error(s->comm, err)) == 0)
        rc = share(start, s, d, first ? take_older(start, d, err) : 0, err);
    return rc;
}

int run_start_open(struct session *s, const struct run_start *start, const struct settings *set,
                   struct ckpt_err *err)
{
    struct device_opts device = settings_device(set);
    json_t *config = NULL, *wanted = NULL;
    char dir[4096];
    int rc = *start->adapter ? adapter_config_read(&config, start->adapter, err) : 0;

    s->simulate = settings_net(set);
    model_dir(dir, *start->base ? start->base : start->resume);
    if (rc == 0)
        rc = session_open(s, set->init ? set->init : dir, set->tokenizer, &device, 0, err);
    if (rc == 0)
        rc = comm_agree(s->comm, special_use(s, set, err), err);
    if (rc == 0 && set->lora_rank > 0)
        rc = adapter_config_of(&wanted, set, s->arch, err);
    if (rc == 0 && config && wanted)
        rc = adapter_same(config, wanted, start->resume, err);
    if (rc == 0 && config && wanted && s->comm->rank == 0)
        adapter_tell_modules(config, wanted, set, start->resume);
    if (rc == 0 && (config || wanted) &&
        (rc = session_adapt(s, config ? config : wanted, err)) != 0 && config)
        ckpt_err_in(err, "%s", start->resume);
    json_decref(config);
    json_decref(wanted);
    return rc;
}

/* Weights, moments and counters of a checkpoint. */
static int load_checkpoint(struct run_start *start, struct session *s, struct checkpoint *c,
                           struct run_state *state, bool *damaged, struct ckpt_err *err)
{
    struct ckpt_lock *lease = ckpt_lock_reader(start->resume);
    int rc;

    json_array_clear(state->log_history);
    scaler_init(c->scaler, &c->scaler->o);
    if (!start->file)
        state->global_step = start->step;
    rc = resume_load(s, start->resume, c, state, damaged, err);
    ckpt_lock_release(lease);
    return rc;
}

/* The checkpoint before a damaged one.  Rank 0 looks and broadcasts it. */
static int fall_back(struct run_start *start, struct session *s, struct run_dir *d,
                     struct ckpt_err *err)
{
    struct ckpt_err why = *err;
    bool first = s->comm->rank == 0;
    int rc = first ? run_dir_pass_over(d, start->folder, start->number, &why, err) : 0;

    s->comm->agreed = false;
    if (first && rc == 0)
        rc = run_dir_newest(start->resume, &start->number, d, start->folder, start->number, err);
    if (first && rc == 0)
        start->step = start->number;
    return share(start, s, d, rc, err);
}

static int load_resumed(struct run_start *start, struct session *s, struct checkpoint *c,
                        struct run_state *state, struct run_dir *d, struct ckpt_err *err)
{
    bool damaged = false;
    int rc;

    while ((rc = load_checkpoint(start, s, c, state, &damaged, err)) != 0)
        if (!damaged || !*start->folder || (rc = fall_back(start, s, d, err)) != 0)
            return rc;
    if (!start->file)
        start->step = state->global_step;
    if (s->comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "resuming from %s, step %lld", start->resume,
                 (long long)state->global_step);
    return 0;
}

int run_start_check(const struct run_start *start, struct session *s, struct checkpoint *c,
                    struct run_state *state, struct ckpt_err *err)
{
    if (!start->file)
        state->global_step = start->step;
    return resume_check(s, start->resume, c, state, err);
}

int run_start_load(struct run_start *start, struct session *s, struct checkpoint *c,
                   struct run_state *state, struct run_dir *d, struct ckpt_err *err)
{
    const struct settings *set = c->settings;
    int rc;

    if (s->lora && (rc = session_load(s, start->base, NULL, err)) != 0)
        return rc;
    if (*start->resume)
        return load_resumed(start, s, c, state, d, err);
    if (s->lora)
        return *start->adapter ? adapter_load(s, start->adapter, err)
                               : adapter_init(s, set->seed, err);
    if (set->init)
        return session_init_weights(s, set->seed, err);
    return session_load(s, start->base, NULL, err);
}
