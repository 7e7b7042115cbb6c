/* resume - see resume.h. */
#include "trainer/checkpoint/resume.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/changed.h"
#include "trainer/checkpoint/dcp.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/factors.h"
#include "trainer/checkpoint/kind.h"
#include "trainer/optim/load.h"
#include "trainer/checkpoint/position.h"
#include "trainer/checkpoint/proof.h"
#include "trainer/checkpoint/weights.h"

/* Read the weights of the rank from a source.  live: an adapter's tensors, under the wrapped
 * model's names. */
static int read_weights(struct session *s, struct ckpt_source *src, size_t *index, bool live,
                        struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc = s->lora ? weights_match_saved(index, p, src, NULL, live, err)
                     : weights_match(index, p, src, NULL, NULL, false, err);

    return rc ? rc : weights_load(s->zero, ZERO_MASTER, src, index, NULL, err);
}

/* Of a load: what is wanted of it, and what the optimizer said. */
struct load {
    struct session *s;
    const char     *path;
    const char     *base;       /* model that has the shapes of FSDP's local shards, or NULL */
    const struct optim_row *row;    /* whose moments are loaded beside weights; NULL: none */
    bool            prove;      /* verify the archives' checksums: there is no manifest */
    size_t         *index;      /* [n params] */
    const char    **moment;     /* [n params] its name of the moment that is read; NULL: none */
    int64_t         updates;    /* that the optimizer has counted; -1: it does not say */
    int64_t         skipped;    /* steps that the engine skipped; -1: it does not say */
    bool            fresh;      /* there are no moments: the optimizer starts anew */
};

/* How many moments are wanted. */
static int n_moments(const struct load *l) { return l->row ? 2 - l->s->zero_opts.fewer : 0; }

/* Whether a source has moments of that name, under the names of parameters. */
static bool has_moment(const struct ckpt_source *src, const char *moment)
{
    size_t tail = strlen(moment);

    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        const char *name = ckpt_source_tensor(src, t)->name;
        size_t n = strlen(name);

        if (n > tail + 1 && name[n - tail - 1] == '|' && strcmp(name + n - tail, moment) == 0)
            return true;
    }
    return false;
}

/* Whether an adapter's tensors have the wrapped model's names there, not those of its own file. */
static bool is_live(const struct session *s, const struct ckpt_source *src)
{
    const struct params *p = zero_flat(s->zero)->params;
    char name[CKPT_MAX_NAME + 1], live[CKPT_MAX_NAME + 1];

    for (size_t i = 0; i < p->n; i++) {
        params_saved_name(name, sizeof name, p, i, false);
        params_saved_name(live, sizeof live, p, i, true);
        if (p->item[i].trainable && strcmp(name, live) != 0)    /* a bias has one name */
            return ckpt_source_find(src, name) == SIZE_MAX;
    }
    return true;
}

/* Load Adafactor's numbers, which lie beside what was loaded. */
static int load_factors(struct load *l, struct ckpt_err *err)
{
    char file[4200];

    snprintf(file, sizeof file, "%s/optimizer.pt", l->path);
    return factors_load(l->s, file, l->prove, err);
}

/* Load moment k from a source of everything. */
static int read_moment(struct load *l, struct ckpt_source *src, int k, struct ckpt_err *err)
{
    const struct params *p = zero_flat(l->s->zero)->params;
    int rc;

    for (size_t i = 0; i < p->n; i++)
        l->moment[i] = optim_moment_name(l->row, &p->item[i], k);
    rc = l->s->lora ? weights_match_saved(l->index, p, src, l->moment, true, err)
                    : weights_match(l->index, p, src, l->moment, NULL, false, err);
    return rc ? rc : weights_load(l->s->zero, k ? ZERO_EXP_AVG_SQ : ZERO_EXP_AVG, src, l->index,
                                  NULL, err);
}

/* Load weights and moments that lie in one source. */
static int load_source(struct load *l, struct ckpt_source *src, struct ckpt_err *err)
{
    const json_t *skipped = json_object_get(ckpt_source_info(src), "skipped_steps");
    int rc = read_weights(l->s, src, l->index, is_live(l->s, src), err);

    if (rc || !l->row)
        return rc;
    if (n_moments(l) < 2 && has_moment(src, "exp_avg_sq"))
        return ckpt_fail(err, CKPT_EMISMATCH, "has AdamW's moments: `optim %s` cannot go on from "
                         "them", l->row->name);
    for (int k = 0; k < n_moments(l); k++)
        if ((rc = read_moment(l, src, k, err)) != 0)
            return rc;
    if ((rc = position_updates(&l->updates, src, err)) != 0)
        return rc;
    if (json_is_integer(skipped))
        l->skipped = json_integer_value(skipped);
    if (l->row->rule == OP_RULE_ADAFACTOR)
        return load_factors(l, err);
    if (n_moments(l) > 0)
        optim_tell_change(l->s, l->path, OP_MOMENTS_F32);
    return 0;
}

/* Load weights and moments that lie in one format: DeepSpeed's shards, or our own distributed
 * checkpoint. */
static int load_as(struct load *l, const char *format, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.optimizer = true, .prove = l->prove};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open_as(&src, format, l->path, &opts, err);

    if (rc == 0)
        rc = load_source(l, src, err);
    ckpt_source_close(src);
    return rc;
}

/* An optimizer's file, whatever is in it, before anything is taken from it. */
static int check_kind(struct load *l, const char *file, struct ckpt_err *err)
{
    struct ckpt_source *src = NULL;
    int rc;

    if (!ckpt_path_is_file(file))
        return 0;                       /* what reads it says what it wants there */
    rc = ckpt_open_as(&src, "torch", file, NULL, err);
    if (rc == 0)
        rc = kind_check(src, l->row, n_moments(l) > 0, err);
    ckpt_source_close(src);
    return rc;
}

/* Load moments from the file that the Trainer (optimizer.pt) or accelerate (optimizer.bin) names
 * so; strict: it must be there. */
static int load_optimizer(struct load *l, bool strict, struct ckpt_err *err)
{
    char file[4200];
    int rc;

    snprintf(file, sizeof file, "%s/optimizer.bin", l->path);
    if (!ckpt_path_is_file(file))
        snprintf(file, sizeof file, "%s/optimizer.pt", l->path);
    if (!strict && !ckpt_path_is_file(file)) {
        l->fresh = n_moments(l) > 0 || l->row->rule == OP_RULE_ADAFACTOR;
        return 0;
    }
    if ((rc = check_kind(l, file, err)) != 0)
        return rc;
    if (l->row->rule == OP_RULE_ADAFACTOR && (rc = factors_load(l->s, file, l->prove, err)) != 0)
        return rc;
    return optim_load(l->s, file, l->row, l->prove, &l->updates, err);
}

/* Load weights from the model's or the adapter's own files, moments from the optimizer's. */
static int load_plain(struct load *l, bool strict, struct ckpt_err *err)
{
    const struct ckpt_open_opts opts = {.prove = l->prove};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open_as(&src, l->s->lora ? "peft" : "hf", l->path, &opts, err);

    if (rc == 0)
        rc = read_weights(l->s, src, l->index, false, err);
    ckpt_source_close(src);
    return rc || !l->row ? rc : load_optimizer(l, strict, err);
}

/* Load what any format joins: torch's distributed checkpoints, FSDP's state dicts, one file. */
static int load_joined(struct load *l, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.optimizer = true, .prove = l->prove, .base = l->base};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open(&src, l->path, &opts, err);

    if (rc == 0 && l->row &&
        (has_moment(src, "exp_avg") || has_moment(src, "momentum_buffer"))) {
        rc = load_source(l, src, err);
    } else if (rc == 0) {
        rc = read_weights(l->s, src, l->index, is_live(l->s, src), err);
        if (rc == 0 && l->row)
            rc = load_optimizer(l, false, err);
    }
    ckpt_source_close(src);
    return rc;
}

/* By what lies there; a checkpoint with a manifest is one of ours, and whole. */
static int load_any(struct load *l, const json_t *manifest, struct ckpt_err *err)
{
    bool only = json_is_true(json_object_get(manifest, "save_only_model"));
    const struct ckpt_format *format = NULL;
    char file[4200];
    int rc;

    snprintf(file, sizeof file, "%s/latest", l->path);
    if (ckpt_path_is_file(file))
        return load_as(l, "deepspeed", err);
    snprintf(file, sizeof file, "%s/%s", l->path, DCP_MODEL_FOLDER);
    if (manifest && ckpt_path_is_dir(file))
        return load_as(l, "dcp", err);
    if (manifest)
        return load_plain(l, !only, err);
    if ((rc = ckpt_recognise(&format, l->path, true, err)) != 0)
        return rc;
    return ckpt_path_is_dir(l->path) && (strcmp(format->name, "hf") == 0 ||
                                         strcmp(format->name, "peft") == 0)
               ? load_plain(l, false, err) : load_joined(l, err);
}

/* Our own manifest names data and seed of the run, which determine the order of samples, and how
 * far it came in the data. *out is NULL when there is none. */
static int check_manifest(json_t **out, struct session *s, struct ckpt_dir *dir, const char *path,
                          const struct checkpoint *c, struct run_state *state,
                          struct ckpt_err *err)
{
    const char *data;
    char own[33], which[400];
    int64_t seed, at, step;
    json_t *m;
    int rc;

    *out = NULL;
    if (!ckpt_dir_has(dir, MANIFEST_NAME)) {
        if (s->comm->rank == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: no manifest: written by another program", path);
        return 0;
    }
    if ((rc = manifest_read(out, dir, err)) != 0)
        return rc;
    m = *out;
    ckpt_digest_hex(own, c->data, sizeof c->data);
    if ((rc = ckpt_json_int(&seed, m, "seed", err)) != 0 ||
        (rc = ckpt_json_str(&data, m, "data", err)) != 0 ||
        (rc = ckpt_json_int_or(&step, m, "step", 0, err)) != 0 ||
        (rc = ckpt_json_int_or(&at, m, "data_position", step, err)) != 0)
        return rc;
    if (at < 0 || step < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: %s: `data_position` %lld of step %lld", path,
                         MANIFEST_NAME, (long long)at, (long long)step);
    state->data_shift = at - step;
    if (seed != (int64_t)c->settings->seed)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had `seed %lld`, this one has %llu",
                         path, (long long)seed, (unsigned long long)c->settings->seed);
    state->same_data = strcmp(data, own) == 0;
    if (state->same_data || c->settings->ignore_data_skip)
        return 0;
    changed_samples(which, sizeof which, m, s, c);
    ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had other training data (or data settings) than "
              "this one%s", path, which);
    return ckpt_err_hint(err, "`ignore_data_skip` goes on with other data, from its beginning");
}

/* Load the loss scaler; the count of skipped steps is used without scaling too. */
static int load_scaler(struct scaler *s, struct ckpt_dir *dir, bool tell, struct ckpt_err *err)
{
    struct ckpt_file *f;

    if (!ckpt_dir_has(dir, "scaler.pt")) {
        if (s->o.on && tell)
            ckpt_log(CKPT_LOG_NOTE, "no scaler.pt: the loss scale starts at %g", s->scale);
        return 0;
    }
    if (ckpt_file_open_at(&f, dir, "scaler.pt", err) || scaler_file_read(s, f, err))
        return ckpt_err_in(err, "scaler.pt");
    return 0;
}

/* Load what a schedule has seen of the run, where it looks. */
static int load_schedule(struct schedule *s, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f;

    if (s->kind != SCHEDULE_REDUCE_ON_PLATEAU)
        return 0;
    if (ckpt_file_open_at(&f, dir, "scheduler.pt", err) || schedule_file_read(s, f, err))
        return ckpt_err_in(err, "scheduler.pt");
    return 0;
}

/* Load where the run was: state->global_step is known already where no file says it. */
static int load_state(struct run_state *state, const struct checkpoint *c, struct ckpt_dir *dir,
                      bool tell, struct ckpt_err *err)
{
    int64_t done;
    bool found;
    int rc;

    if (position_read(state, &found, dir, err))
        return ckpt_err_in(err, "trainer_state.json");
    if ((rc = load_scaler(c->scaler, dir, tell, err)) != 0 ||
        (rc = load_schedule(c->schedule, dir, err)) != 0 ||
        (rc = position_schedule(state, c->groups, &done, dir, err)) != 0)
        return rc;
    if (done >= 0)
        c->scaler->skipped = state->global_step - done;
    return 0;
}

/* A checkpoint that lies in several folders is loaded from one that has the files of all. */
static void hint_of_folders(const json_t *manifest, struct ckpt_err *err)
{
    json_int_t n = json_integer_value(json_object_get(manifest, "folders"));

    if (n > 1 && strcmp(err->reason, "missing") == 0)
        ckpt_err_hint(err, "it is one of %lld folders that nodes wrote on their own disks: copy "
                      "the ranks' files of all into each", (long long)n);
}

/* Load weights, and moments of an optimizer if there is one (row), and verify all files they are
 * read from meanwhile: by the manifest, or if there is none by the archives' checksums. */
static int load_proved(struct load *l, const json_t *manifest, bool *damaged, struct ckpt_err *err)
{
    const struct comm *comm = l->s->comm;
    size_t n = zero_flat(l->s->zero)->params->n;
    struct ckpt_err why = {0};
    struct proof *proof = NULL;
    int rc, proved;

    l->updates = l->skipped = -1;
    l->index = ckpt_alloc(n, sizeof *l->index);
    l->moment = ckpt_alloc(n, sizeof *l->moment);
    l->prove = !manifest;
    rc = l->index && l->moment ? 0 : ckpt_nomem(err, n * sizeof *l->index);
    if (rc == 0 && manifest)
        rc = proof_begin(&proof, l->path, manifest, comm->rank, comm->world_size, err);
    if (rc == 0)
        rc = load_any(l, manifest, err);
    if (rc)
        hint_of_folders(manifest, err);
    proved = proof_end(proof, &why);
    *damaged |= proved == CKPT_EFORMAT; /* damage explains the load's own error */
    if (proved == CKPT_EFORMAT || (rc == 0 && proved)) {
        *err = why;
        rc = proved;
    }
    ckpt_free(l->index);
    ckpt_free(l->moment);
    return rc;
}

/* How far the optimizer is behind the run. */
static void count_updates(const struct load *l, struct run_state *state, struct scaler *scaler)
{
    int64_t done;

    if (l->skipped >= 0 && l->skipped <= state->global_step && isnan(state->base_lr))
        scaler->skipped = l->skipped;   /* DeepSpeed's engine alone: no scheduler's file says it */
    done = state->global_step - scaler->skipped;
    state->optim_lag = l->fresh ? done : l->updates >= 0 ? done - l->updates : 0;
    if (l->fresh && l->s->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%s: it has no optimizer state: the optimizer starts anew at "
                 "step %lld", l->path, (long long)state->global_step);
}

/* What a checkpoint says of the run, before anything large is read.  *manifest: NULL, there is
 * none. */
static int load_facts(json_t **manifest, struct session *s, const char *path,
                      const struct checkpoint *c, struct run_state *state, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    int rc;

    *manifest = NULL;
    if (ckpt_path_is_file(path))
        return 0;
    rc = ckpt_dir_open(&dir, path, 0, err);
    if (rc == 0)
        rc = check_manifest(manifest, s, dir, path, c, state, err);
    if (rc == 0)
        rc = load_state(state, c, dir, s->comm->rank == 0, err);
    ckpt_dir_close(dir);
    return rc;
}

int resume_check(struct session *s, const char *path, const struct checkpoint *c,
                 struct run_state *state, struct ckpt_err *err)
{
    const struct ckpt_format *format = NULL;
    json_t *manifest = NULL;
    int rc = load_facts(&manifest, s, path, c, state, err);

    if (rc == 0 && !manifest)
        rc = ckpt_recognise(&format, path, true, err);
    if (rc)
        ckpt_err_in(err, "%s", path);
    json_decref(manifest);
    return comm_agree(s->comm, rc, err);
}

int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, bool *damaged, struct ckpt_err *err)
{
    struct load l = {.s = s, .path = path, .base = c->base,
                     .row = optim_find(c->settings->optim)};
    json_t *manifest;
    int64_t any;
    int rc = load_facts(&manifest, s, path, c, state, err);

    *damaged = false;
    if (rc == 0)
        rc = load_proved(&l, manifest, damaged, err);
    if (rc == 0)
        count_updates(&l, state, c->scaler);
    json_decref(manifest);
    if (rc)
        ckpt_err_in(err, "%s", path);
    any = *damaged;
    comm_all_reduce(s->comm, &any, 1, CKPT_I64, COMM_MAX);
    if (any && !*damaged)
        rc = 0;                         /* the rank that found the damage reports it */
    *damaged = any != 0;
    return comm_agree(s->comm, rc, err);
}

int resume_weights(struct session *s, const char *path, struct ckpt_err *err)
{
    struct load l = {.s = s, .path = path};
    struct ckpt_dir *dir = NULL;
    json_t *manifest = NULL;
    bool damaged = false;
    int rc = ckpt_dir_open(&dir, path, 0, err);

    if (rc == 0)
        rc = manifest_read(&manifest, dir, err);
    if (rc == 0)
        rc = load_proved(&l, manifest, &damaged, err);
    json_decref(manifest);
    ckpt_dir_close(dir);
    if (rc)
        ckpt_err_in(err, "%s", path);
    return comm_agree(s->comm, rc, err);
}
