/* checkpoint - see checkpoint.h. */
#include "trainer/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/deepspeed/write/out.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "libckpt/log.h"
#include "libckpt/io/follow.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/changed.h"
#include "trainer/checkpoint/dcp.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/naming.h"
#include "trainer/checkpoint/replicas.h"
#include "formats/families/arch.h"
#include "trainer/optim/order.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/shards.h"
#include "trainer/checkpoint/size.h"
#include "trainer/checkpoint/state_dict.h"
#include "trainer/checkpoint/weights.h"

/* Whether this rank's group writes to this rank's folder: of groups with the same, the first of
 * each folder. */
static bool writes(const struct session *s, const struct folders *f)
{
    int each = s->shard->world_size, first = f ? f->first : 0;

    return !s->replicas || first / each == s->comm->rank / each;
}

/* Write model.safetensors, or an adapter's file, where `here`; takers get the weights too.
 * Collective when weights are sharded. */
static int save_model(struct session *s, enum ckpt_dtype dtype, const struct folders *f,
                      const char *staging, bool here, const struct weights_taker *const *taker,
                      size_t n, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct ckpt_create_opts opts = {0};
    struct ckpt_sink *sink = NULL;
    char path[4200];
    int rc = 0;

    if (here) {
        snprintf(path, sizeof path, "%s/%s", staging,
                 s->lora ? "adapter_model.safetensors" : "model.safetensors");
        if (f)                          /* put_manifest takes the digest */
            opts.flags = FOLLOW_FILE;
        rc = weights_list(&list, zero_flat(s->zero)->params, dtype, err);
        if (rc == 0)
            rc = ckpt_create(&sink, "safetensors", path, &list, &opts, err);
    }
    if ((rc = comm_agree(s->comm, rc, err)) == 0 && writes(s, f))
        rc = weights_gather_to(s->zero, s->comm, sink, taker, n, err);
    if (sink && rc == 0)
        rc = ckpt_sink_commit(sink, err);
    else
        ckpt_sink_abort(sink);
    ckpt_tensors_release(&list);
    return rc;
}

int checkpoint_save_model(struct session *s, const struct settings *set, const char *staging,
                          struct ckpt_err *err)
{
    return save_model(s, checkpoint_model_dtype(s, set), NULL, staging, s->comm->rank == 0, NULL, 0,
                      err);
}

static int save_rng(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                    struct ckpt_err *err)
{
    struct rng_streams streams;
    struct ckpt_out *out;
    char name[64];
    int rc;

    if (s->comm->world_size > 1)
        snprintf(name, sizeof name, "rng_state_%d.pth", s->comm->rank);
    else
        snprintf(name, sizeof name, "rng_state.pth");
    hf_rng_seed(&streams, c->settings->seed);
    if ((rc = ckpt_outdir_file(&out, dir, name, err)) != 0)
        return rc;
    return hf_rng_write(out, &streams, err);
}

/* A value as the text of a file. */
static int json_text(struct ckpt_buf *b, const json_t *value, bool sort, struct ckpt_err *err)
{
    int rc = value ? ckpt_json_write(b, value, 2, sort, err) : ckpt_nomem(err, 64);

    ckpt_buf_put_u8(b, '\n');
    return rc == 0 && !ckpt_buf_ok(b) ? ckpt_nomem(err, b->len) : rc;
}

static int put_json(struct ckpt_outdir *dir, const char *name, json_t *value, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, (size_t)1 << 28);
    rc = json_text(&b, value, false, err);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, name, b.data, b.len, err);
    ckpt_buf_release(&b);
    json_decref(value);
    return rc;
}

static int save_scheduler(const struct checkpoint *c, struct ckpt_outdir *dir,
                          struct ckpt_err *err)
{
    size_t n = c->groups->n;
    double *base = ckpt_alloc(n, sizeof *base);
    struct ckpt_out *out;
    int rc = base ? ckpt_outdir_file(&out, dir, "scheduler.pt", err)
                  : ckpt_nomem(err, n * sizeof *base);

    for (size_t g = 0; rc == 0 && g < n; g++)
        base[g] = c->groups->peak[g].lr;
    if (rc == 0)
        rc = schedule_file_write(out, c->schedule, base, n, shards_done_steps(c), err);
    ckpt_free(base);
    return rc;
}

static int save_scaler(const struct checkpoint *c, struct ckpt_outdir *dir, struct ckpt_err *err)
{
    struct ckpt_out *out;
    int rc;

    if (!c->scaler->o.on && c->scaler->skipped == 0)
        return 0;
    rc = ckpt_outdir_file(&out, dir, "scaler.pt", err);
    return rc ? rc : scaler_file_write(out, c->scaler, err);
}

int checkpoint_describe(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                        bool card, struct ckpt_err *err)
{
    struct special special = special_of(s, c->settings);
    int rc = s->lora ? adapter_save_config(s, c->base, dir, err)
                     : put_json(dir, "config.json", json_incref(arch_config(s->arch)), err);

    if (rc == 0 && s->tokenizer_dir)
        rc = checkpoint_copy_tokenizer(dir, s->tokenizer_dir, c->settings->data.chat_template,
                                       &special, err);
    if (rc == 0)
        rc = checkpoint_copy_side_files(dir, c->side, s->tokenizer_dir, &special, s->lora, card,
                                        err);
    if (rc == 0 && s->comm->rank == 0)      /* it names this rank's paths */
        rc = checkpoint_save_training_args(c->settings, dir, err);
    return rc;
}

/* Write the files that one rank of a folder writes. */
static int save_common(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                       struct ckpt_err *err)
{
    int rc = checkpoint_describe(s, c, dir, true, err);

    if (rc == 0 && !c->settings->save_only_model)
        rc = save_scheduler(c, dir, err);
    if (rc == 0 && !c->settings->save_only_model)
        rc = save_scaler(c, dir, err);
    return rc;
}

/* Which of several folders this is; a reader that lacks the others' files says so. */
static int put_place(json_t *facts, const struct folders *f, struct ckpt_err *err)
{
    if (f->n > 1 && (json_object_set_new(facts, "folders", json_integer(f->n)) ||
                     json_object_set_new(facts, "folder", json_integer(f->mine))))
        return ckpt_nomem(err, sizeof *facts);
    return 0;
}

/* Write MANIFEST.json over all files of the folder. */
static int put_manifest(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                        struct ckpt_err *err)
{
    char data[33], *text = NULL;
    json_t *facts, *settings;
    int rc = changed_keep(&settings, s, c, err);

    if (rc)
        return rc;
    ckpt_digest_hex(data, c->data, sizeof c->data);
    facts = json_pack("{s:s,s:I,s:I,s:I,s:i,s:i,s:I,s:s,s:o}", "tool", "ckpt " CKPT_VERSION, "step",
                      (json_int_t)c->state->global_step, "data_position",
                      (json_int_t)(c->state->global_step + c->state->data_shift),
                      "seed", (json_int_t)c->settings->seed, "world_size",
                      s->comm->world_size, "shard_size",
                      s->zero_opts.stage > 0 ? s->shard->world_size : 1, "zero_stage",
                      (json_int_t)settings_stage(c->settings), "data", data, "settings", settings);
    rc = facts ? put_place(facts, c->folders, err) : ckpt_nomem(err, sizeof *facts);
    if (rc == 0 && c->settings->save_only_model &&
        json_object_set_new(facts, "save_only_model", json_true()))
        rc = ckpt_nomem(err, sizeof *facts);
    if (rc == 0)
        rc = manifest_make(&text, ckpt_outdir_staging(dir), facts, err);
    json_decref(facts);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, MANIFEST_NAME, text, strlen(text), err);
    ckpt_free(text);
    return rc;
}

/* trainer_state.json: rank 0's, since times and best checkpoints' paths differ by rank.
 * Collective. */
static int save_state(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                      struct ckpt_err *err)
{
    struct ckpt_buf b;
    json_t *state = s->comm->rank == 0 ? run_state_json(c->state) : NULL;
    int64_t n = 0;
    char *text = NULL;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)1 << 28);
    if (s->comm->rank == 0)
        rc = json_text(&b, state, true, err);
    json_decref(state);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto out;
    n = (int64_t)b.len;
    if (c->folders->n > 1) {
        comm_broadcast(s->comm, &n, 1, CKPT_I64, 0);
        text = s->comm->rank == 0 ? (char *)b.data : ckpt_alloc((size_t)n + 1, 1);
        if ((rc = comm_agree(s->comm, text ? 0 : ckpt_nomem(err, (size_t)n), err)) != 0)
            goto out;
        comm_broadcast(s->comm, text, n, CKPT_U8, 0);
        rc = comm_error(s->comm, err);
    }
    if (rc == 0 && c->folders->leads)
        rc = ckpt_outdir_put(dir, "trainer_state.json", text ? text : (char *)b.data, (size_t)n,
                             err);
    rc = comm_agree(s->comm, rc, err);
out:
    if (s->comm->rank != 0)
        ckpt_free(text);
    ckpt_buf_release(&b);
    return rc;
}

/* Write what this rank has of the optimizer, in a distributed checkpoint also of the model. */
static int save_own(struct shards **shards, struct session *s, const struct checkpoint *c,
                    struct ckpt_outdir *dir, const char *tag, struct ckpt_err *err)
{
    bool sharded = settings_stage(c->settings) > 0, leads = c->folders->leads;
    int rc = save_rng(s, c, dir, err);

    if (rc || !(sharded ? writes(s, c->folders) : leads))
        return rc;
    if (settings_is_dcp(c->settings))
        return dcp_save(s, c, dir, leads, err);
    return sharded ? shards_begin(shards, s, c, dir, tag, leads, err)
                   : shards_save_whole(s, c, dir, err);
}

/* Write this rank's files, before the vote. */
static int save_parts(struct shards **shards, struct state_dict **file, char path[4096],
                      struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                      const char *tag, struct ckpt_err *err)
{
    int rc = c->settings->save_only_model ? 0 : save_own(shards, s, c, dir, tag, err);

    if (rc == 0 && c->folders->leads)
        rc = save_common(s, c, dir, err);
    if (rc == 0 && s->comm->rank == 0 && c->settings->state_dict_file)
        rc = state_dict_begin(file, path, s, c, err);
    return rc;
}

/* Write what ranks have together: optimizers divided otherwise than memory, and the model.
 * Collective. */
static int save_gathered(struct shards *shards, struct state_dict *file, struct session *s,
                         const struct checkpoint *c, const char *staging, struct ckpt_err *err)
{
    const struct weights_taker *taker[] = {shards_taker(shards), state_dict_taker(file)};
    int64_t stage = settings_stage(c->settings);
    bool model = s->lora || (stage < 3 && !settings_is_dcp(c->settings)) ||
                 c->settings->save_only_model ||
                 c->settings->stage3_gather_16bit_weights_on_model_save;
    int rc = comm_agree(s->comm, shards_exchange(shards, err), err);

    if (rc)
        return rc;
    if (model || c->settings->state_dict_file)
        rc = save_model(s, checkpoint_model_dtype(s, c->settings), c->folders, staging,
                        model && c->folders->leads, taker, 2, err);
    if (rc == 0)
        rc = shards_commit(shards, err);
    return comm_agree(s->comm, rc, err);
}

int checkpoint_save_bare(const char *path, struct session *s, struct ckpt_err *err)
{
    struct ckpt_outdir *dir = NULL;
    char staging[4096] = "";
    int rc = s->comm->rank == 0 ? ckpt_outdir_create(&dir, path, err) : 0;

    if (dir) {
        snprintf(staging, sizeof staging, "%s", ckpt_outdir_staging(dir));
        rc = put_json(dir, "config.json", json_incref(arch_config(s->arch)), err);
        if (rc == 0 && s->tokenizer_dir)
            rc = checkpoint_copy_tokenizer(dir, s->tokenizer_dir, NULL, &(struct special){0}, err);
    }
    if ((rc = comm_agree(s->comm, rc, err)) == 0)
        rc = save_model(s, CKPT_F32, NULL, staging, s->comm->rank == 0, NULL, 0, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        ckpt_outdir_abort(dir);
    else if (dir)
        rc = ckpt_outdir_commit(dir, err);
    return comm_agree(s->comm, rc, err);
}

/* Complete this folder's files, once all ranks' are written: `latest`, and the manifest. */
static int complete(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                    const char *tag, struct ckpt_err *err)
{
    bool sharded = settings_stage(c->settings) > 0 && !settings_is_dcp(c->settings) &&
                   !c->settings->save_only_model;
    int rc = sharded ? ds_write_script(dir, err) : 0;

    if (rc == 0 && sharded)
        rc = ds_write_latest(dir, tag, err);
    return rc ? rc : put_manifest(s, c, dir, err);
}

int checkpoint_save(char path[4096], char state_dict[4096], struct session *s,
                    const struct checkpoint *c, struct ckpt_err *err)
{
    struct state_dict *file = NULL;
    struct ckpt_outdir *dir = NULL;
    struct shards *shards = NULL;
    char staging[4096] = "", tag[64];
    bool leads = c->folders->leads;
    int rc = 0;

    state_dict[0] = '\0';
    snprintf(tag, sizeof tag, "global_step%lld", (long long)c->state->global_step);
    naming_path(path, c->settings->output_dir, c->state->global_step);
    if ((rc = replicas_check(s, err)) != 0)
        ckpt_err_in(err, "%s", path);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        return rc;
    if (leads)
        rc = (c->replace ? ckpt_outdir_create_over : ckpt_outdir_create)(&dir, path, err);
    if (dir)
        snprintf(staging, sizeof staging, "%s", ckpt_outdir_staging(dir));
    if ((rc = comm_agree(s->comm, rc, err)) != 0 ||
        (rc = folders_share(c->folders, s->comm, staging, sizeof staging, err)) != 0)
        goto fail;
    if (!leads)
        rc = ckpt_outdir_join(&dir, staging, err);
    if (dir)
        follow_outdir(dir, FOLLOW_LEAST);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto fail;
    if ((rc = save_parts(&shards, &file, state_dict, s, c, dir, tag, err)) != 0)
        ckpt_err_in(err, "%s", path);
    if ((rc = comm_agree(s->comm, rc, err)) != 0 ||
        (rc = save_state(s, c, dir, err)) != 0 ||
        (rc = save_gathered(shards, file, s, c, staging, err)) != 0)
        goto fail;
    if (leads)
        rc = complete(s, c, dir, tag, err);
    if (c->folders->n > 1)              /* no folder's checkpoint before all are complete */
        rc = comm_agree(s->comm, rc, err);
    if (leads && rc == 0) {
        rc = ckpt_outdir_commit(dir, err);
        dir = NULL;
    }
    if (file && rc == 0)
        rc = state_dict_commit(file, err);
    rc = comm_agree(s->comm, rc, err);
fail:
    state_dict_close(file);
    shards_close(shards);
    ckpt_outdir_abort(dir);             /* only releases a directory that was joined */
    return rc;
}
