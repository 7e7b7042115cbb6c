/* resume - see resume.h. */
#include "trainer/checkpoint/resume.h"

#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/optim/load.h"
#include "trainer/checkpoint/proof.h"
#include "trainer/checkpoint/weights.h"

/*
 * Read one array of the rank from a source: weights, or a moment named by suffix.  live: an
 * adapter's tensors, under the wrapped model's names.
 */
static int read_array(enum zero_array of, struct session *s, struct ckpt_source *src,
                      size_t *index, const char *suffix, bool live, struct ckpt_err *err)
{
    const struct params *p = zero_flat(s->zero)->params;
    int rc = s->lora ? weights_match_saved(index, p, src, suffix, live, err)
                     : weights_match(index, p, src, suffix, NULL, false, err);

    return rc ? rc : weights_load(s->zero, of, src, index, NULL, err);
}

/* Load weights and moments from DeepSpeed's shards. */
static int load_deepspeed(struct session *s, const char *path, bool prove, size_t *index,
                          struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.optimizer = true, .prove = prove};
    struct ckpt_source *src = NULL;
    int rc = ckpt_open_as(&src, "deepspeed", path, &opts, err);

    if (rc == 0)
        rc = read_array(ZERO_MASTER, s, src, index, "", true, err);
    if (rc == 0)
        rc = read_array(ZERO_EXP_AVG, s, src, index, "|exp_avg", true, err);
    if (rc == 0)
        rc = read_array(ZERO_EXP_AVG_SQ, s, src, index, "|exp_avg_sq", true, err);
    if (rc == 0)
        optim_tell_change(s, path, OP_MOMENTS_F32);
    ckpt_source_close(src);
    return rc;
}

/* Load weights from the model's or the adapter's own files, moments from optimizer.pt. */
static int load_plain(struct session *s, const char *path, bool prove, size_t *index,
                      struct ckpt_err *err)
{
    const struct ckpt_open_opts opts = {.prove = prove};
    struct ckpt_source *src = NULL;
    char file[4200];
    int rc = ckpt_open_as(&src, s->lora ? "peft" : "hf", path, &opts, err);

    snprintf(file, sizeof file, "%s/optimizer.pt", path);
    if (rc == 0)
        rc = read_array(ZERO_MASTER, s, src, index, "", false, err);
    ckpt_source_close(src);
    return rc ? rc : optim_load(s, file, prove, err);
}

/* Our own manifest names data and seed of the run, which determine the order of samples. *out is
 * NULL when there is none. */
static int check_manifest(json_t **out, struct session *s, struct ckpt_dir *dir, const char *path,
                          const struct checkpoint *c, struct ckpt_err *err)
{
    const char *data;
    char own[33];
    int64_t seed;
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
        (rc = ckpt_json_str(&data, m, "data", err)) != 0)
        return rc;
    if (seed != (int64_t)c->settings->seed)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had `seed %lld`, this one has %llu",
                         path, (long long)seed, (unsigned long long)c->settings->seed);
    if (strcmp(data, own) != 0)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the run had other training data (or data "
                         "settings) than this one", path);
    return 0;
}

/* Load the loss scaler; the count of skipped steps is used without scaling too. */
static int load_scaler(struct scaler *s, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f;

    if (!ckpt_dir_has(dir, "scaler.pt")) {
        if (s->o.on)
            ckpt_log(CKPT_LOG_NOTE, "no scaler.pt: the loss scale starts at %g", s->scale);
        return 0;
    }
    if (ckpt_file_open_at(&f, dir, "scaler.pt", err) || scaler_file_read(s, f, err))
        return ckpt_err_in(err, "scaler.pt");
    return 0;
}

/* Load the state of the run: its position. */
static int load_state(struct run_state *state, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_file *f = NULL;
    json_t *json = NULL;
    int rc = ckpt_file_open_at(&f, dir, "trainer_state.json", err);

    if (rc == 0)
        rc = ckpt_json_read(&json, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0)
        rc = run_state_read(state, json, err);
    json_decref(json);
    ckpt_file_close(f);
    return rc;
}

int resume_step(int64_t *step, const char *path, struct ckpt_err *err)
{
    struct run_state state;
    struct ckpt_dir *dir = NULL;
    int rc = run_state_init(&state, err);

    if (rc == 0)
        rc = ckpt_dir_open(&dir, path, 0, err);
    if (rc == 0 && load_state(&state, dir, err))
        rc = ckpt_err_in(err, "%s", path);
    *step = state.global_step;
    run_state_release(&state);
    ckpt_dir_close(dir);
    return rc;
}

/* Load weights and moments, and verify all files they are read from meanwhile: by the manifest,
 * or if there is none by the archives' checksums. */
static int load_proved(struct session *s, struct ckpt_dir *dir, const char *path,
                       const json_t *manifest, bool *damaged, struct ckpt_err *err)
{
    size_t n = zero_flat(s->zero)->params->n, *index = ckpt_alloc(n, sizeof *index);
    struct ckpt_err why = {0};
    struct proof *proof = NULL;
    int rc = index ? 0 : ckpt_nomem(err, n * sizeof *index);
    int proved;

    if (rc == 0 && manifest)
        rc = proof_begin(&proof, path, manifest, s->comm->rank, s->comm->world_size, err);
    if (rc == 0)
        rc = ckpt_dir_has(dir, "latest") ? load_deepspeed(s, path, !manifest, index, err)
                                         : load_plain(s, path, !manifest, index, err);
    proved = proof_end(proof, &why);
    *damaged |= proved == CKPT_EFORMAT; /* damage explains the load's own error */
    if (proved == CKPT_EFORMAT || (rc == 0 && proved)) {
        *err = why;
        rc = proved;
    }
    ckpt_free(index);
    return rc;
}

int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, bool *damaged, struct ckpt_err *err)
{
    struct ckpt_dir *dir = NULL;
    json_t *manifest = NULL;
    int64_t any;
    int rc = ckpt_dir_open(&dir, path, 0, err);

    *damaged = false;
    if (rc == 0)
        rc = check_manifest(&manifest, s, dir, path, c, err);
    if (rc == 0)
        rc = load_state(state, dir, err);
    if (rc == 0)
        rc = load_scaler(c->scaler, dir, err);
    if (rc == 0)
        rc = load_proved(s, dir, path, manifest, damaged, err);
    json_decref(manifest);
    ckpt_dir_close(dir);
    if (rc)
        ckpt_err_in(err, "%s", path);
    any = *damaged;
    comm_all_reduce(s->comm, &any, 1, CKPT_I64, COMM_MAX);
    if (any && !*damaged)
        rc = 0;                         /* the rank that found the damage reports it */
    *damaged = any != 0;
    return comm_agree(s->comm, rc, err);
}
