/* checkpoint - see checkpoint.h. */
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/formats.h"
#include "formats/bnb/optim.h"
#include "formats/deepspeed/write/out.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/manifest.h"
#include "formats/families/arch.h"
#include "trainer/optim/order.h"
#include "trainer/checkpoint/files.h"
#include "trainer/checkpoint/weights.h"

/* Steps of optimizer and schedule: those that were not skipped. */
static int64_t done_steps(const struct checkpoint *c)
{
    return c->state->global_step - c->scaler->skipped;
}

static struct adamw_group group_options(const struct checkpoint *c, int group)
{
    const struct settings *s = c->settings;

    return (struct adamw_group){
        .lr = schedule_lr(c->schedule, done_steps(c)), .initial_lr = s->learning_rate,
        .beta1 = s->adam_beta1, .beta2 = s->adam_beta2, .eps = s->adam_epsilon,
        .weight_decay = group == 0 ? s->weight_decay : 0.0,
    };
}

/* Argument of a reader: the writer asks for slots of the optimizer's order. */
struct reading {
    struct zero             *zero;
    const struct optim_slot *slot;
    bool                     floats;    /* moments as f32, however they are stored */
};

/* Read elements of slot n, assembled from its parts; where it is sharded, of the rank's share. */
static int read_slot(void *ctx, size_t n, enum adamw_array of, int64_t start, int64_t count,
                     void *to, struct ckpt_err *err)
{
    static const enum optim_state_array array[ADAMW_ARRAYS] = {
        [ADAMW_MASTER] = OPTIM_STATE_MASTER,
        [ADAMW_EXP_AVG] = OPTIM_STATE_AVG, [ADAMW_EXP_AVG_SQ] = OPTIM_STATE_AVG_SQ,
        [ADAMW_ABSMAX] = OPTIM_STATE_ABSMAX, [ADAMW_ABSMAX_SQ] = OPTIM_STATE_ABSMAX_SQ};
    static const enum zero_array floats[ADAMW_ARRAYS] = {
        [ADAMW_MASTER] = ZERO_MASTER, [ADAMW_EXP_AVG] = ZERO_EXP_AVG,
        [ADAMW_EXP_AVG_SQ] = ZERO_EXP_AVG_SQ};
    const struct reading *r = ctx;
    const struct optim_slot *slot = &r->slot[n];
    unsigned char *bytes = to;
    int rc;

    for (size_t k = 0; k < slot->n_part; k++) {
        size_t i = slot->part[k].param;
        int64_t at = slot->part[k].at, own = flat_part(zero_flat(r->zero), i);
        int64_t from = start > at ? start : at;
        int64_t end = start + count < at + own ? start + count : at + own;
        unsigned char *here;

        if (from >= end)
            continue;
        here = bytes + (r->floats ? (size_t)(from - start) * sizeof(float)
                                  : optim_state_bytes(array[of], zero_moments(r->zero, i),
                                                      from - start));
        rc = r->floats || of == ADAMW_MASTER
                 ? zero_read(r->zero, floats[of], i, from - at, end - from, (float *)(void *)here,
                             err)
                 : zero_read_stored(r->zero, array[of], i, from - at, end - from, here, err);
        if (rc)
            return rc;
    }
    return 0;
}

/* Write this rank's shards in DeepSpeed's files. */
static int save_deepspeed(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                          const char *tag, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(s->zero);
    const struct params *p = flat->params;
    struct ckpt_arena a = {0};
    struct optim_order order = {0};
    struct ds_param *param = ckpt_arena_alloc(&a, p->n, sizeof *param);
    struct adamw_group group[OPTIM_GROUPS] = {group_options(c, 0), group_options(c, 1)};
    const char *tied = p->adapted ? NULL : arch_tied_name(s->arch);
    struct ds_alias alias = {.name = tied, .kept = p->item[0].name};
    struct ds_rank_state state;
    struct reading reading;
    json_t *config = json_pack(
        "{s:I,s:I,s:f,s:{s:i}}", "train_micro_batch_size_per_gpu",
        (json_int_t)c->settings->per_device_train_batch_size, "gradient_accumulation_steps",
        (json_int_t)c->settings->gradient_accumulation_steps, "gradient_clipping",
        c->settings->max_grad_norm, "zero_optimization", "stage", 3);
    int rc = param && config ? optim_order(&order, &a, p, s->arch, false, err)
                             : ckpt_nomem(err, (size_t)a.used);

    for (size_t n = 0; rc == 0 && n < order.n; n++) {
        size_t i = order.slot[n].part[0].param;
        const struct param *q = &p->item[i];
        char name[CKPT_MAX_NAME + 1];

        params_saved_name(name, sizeof name, p, i, true);
        param[n] = (struct ds_param){.name = ckpt_arena_printf(&a, "%s", name), .shape = q->shape,
                                     .group = q->decay ? 0 : 1, .trainable = true};
        if (!param[n].name)
            rc = ckpt_nomem(err, sizeof name);
    }
    reading = (struct reading){s->zero, order.slot, true};
    state = (struct ds_rank_state){
        .rank = flat->rank, .world_size = flat->world_size,
        .param = param, .n_param = order.n, .alias = &alias, .n_alias = tied ? 1 : 0,
        .group = group, .n_group = OPTIM_GROUPS, .model_dtype = CKPT_F32,
        .reader = {read_slot, &reading},
        .optimizer_step = done_steps(c), .global_steps = c->state->global_step,
        .global_samples = c->state->global_step * c->settings->per_device_train_batch_size *
                          c->settings->gradient_accumulation_steps * flat->world_size,
        .ds_config = config,
    };
    if (rc == 0)
        rc = ds_write_rank(dir, tag, &state, err);
    json_decref(config);
    ckpt_arena_release(&a);
    return rc;
}

/* Write complete moments of a stage-0 rank, as torch's optimizer stores them, or bitsandbytes'
 * in 8 bits. */
static int save_optimizer(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                          struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct optim_order order = {0};
    static const enum adamw_kind kind[] = {[OP_MOMENTS_F32] = ADAMW_F32,
                                           [OP_MOMENTS_BF16] = ADAMW_BF16,
                                           [OP_MOMENTS_8BIT] = ADAMW_8BIT};
    struct adamw_group group[OPTIM_GROUPS] = {group_options(c, 0), group_options(c, 1)};
    struct adamw_param *param = NULL;
    struct reading reading;
    struct ckpt_out *out;
    int rc = optim_order(&order, &a, zero_flat(s->zero)->params, s->arch, true, err);

    if (rc == 0 && !(param = ckpt_arena_alloc(&a, order.n + 1, sizeof *param)))
        rc = ckpt_nomem(err, order.n * sizeof *param);
    for (size_t n = 0; rc == 0 && n < order.n; n++)
        param[n] = (struct adamw_param){
            .shape = order.slot[n].shape, .group = order.slot[n].group,
            .kind = kind[zero_moments(s->zero, order.slot[n].part[0].param)]};
    reading = (struct reading){s->zero, order.slot, false};
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, "optimizer.pt", err);
    if (rc == 0)
        rc = (settings_moments(c->settings) == OP_MOMENTS_8BIT
                  ? bnb_optimizer_file_write : hf_optimizer_write)(
            out, param, order.n, group, OPTIM_GROUPS, done_steps(c),
            &(struct adamw_reader){read_slot, &reading}, err);
    ckpt_arena_release(&a);
    return rc;
}

/* Write model.safetensors, or an adapter's file; collective when weights are sharded. */
static int save_model(struct session *s, const char *staging, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    struct ckpt_create_opts opts = {0};
    struct ckpt_sink *sink = NULL;
    char path[4200];
    int rc = 0;

    if (s->comm->rank == 0) {
        snprintf(path, sizeof path, "%s/%s", staging,
                 s->lora ? "adapter_model.safetensors" : "model.safetensors");
        rc = weights_list(&list, zero_flat(s->zero)->params, CKPT_F32, err);
        if (rc == 0)
            rc = ckpt_create(&sink, "safetensors", path, &list, &opts, err);
    }
    if ((rc = comm_agree(s->comm, rc, err)) == 0)
        rc = weights_gather(s->zero, s->comm, sink, err);
    if (sink && rc == 0)
        rc = ckpt_sink_commit(sink, err);
    else
        ckpt_sink_abort(sink);
    ckpt_tensors_release(&list);
    return rc;
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

static int put_json(struct ckpt_outdir *dir, const char *name, json_t *value, bool sort,
                    struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = value ? 0 : ckpt_nomem(err, 64);

    ckpt_buf_init(&b, (size_t)1 << 28);
    if (rc == 0)
        rc = ckpt_json_write(&b, value, 2, sort, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, name, b.data, b.len, err);
    ckpt_buf_release(&b);
    json_decref(value);
    return rc;
}

static int save_scheduler(const struct checkpoint *c, struct ckpt_outdir *dir,
                          struct ckpt_err *err)
{
    double base[OPTIM_GROUPS], last[OPTIM_GROUPS];
    struct ckpt_out *out;
    int rc;

    for (int g = 0; g < OPTIM_GROUPS; g++) {
        base[g] = c->settings->learning_rate;
        last[g] = schedule_lr(c->schedule, done_steps(c));
    }
    if ((rc = ckpt_outdir_file(&out, dir, "scheduler.pt", err)) != 0)
        return rc;
    return hf_scheduler_write(out, &(struct scheduler_state){
        .base_lr = base, .last_lr = last, .n_group = OPTIM_GROUPS,
        .last_epoch = done_steps(c)}, err);
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

/* Write the files that only rank 0 writes. */
static int save_common(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                       struct ckpt_err *err)
{
    int rc = s->lora ? adapter_save_config(s, c->base, dir, err)
                     : put_json(dir, "config.json", json_incref(arch_config(s->arch)), false, err);

    if (rc == 0 && s->tokenizer_dir)
        rc = checkpoint_copy_tokenizer(dir, s->tokenizer_dir, c->settings->data.chat_template, err);
    if (rc == 0)
        rc = checkpoint_copy_side_files(dir, c->side, s->tokenizer_dir, s->lora, err);
    if (rc == 0)
        rc = save_scheduler(c, dir, err);
    if (rc == 0)
        rc = save_scaler(c, dir, err);
    if (rc == 0)
        rc = checkpoint_save_training_args(c->settings, dir, err);
    if (rc == 0)
        rc = put_json(dir, "trainer_state.json", run_state_json(c->state), true, err);
    return rc;
}

/* Write MANIFEST.json over all files, then do the one rename that makes it a checkpoint. */
static int publish(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                   struct ckpt_err *err)
{
    char data[33], *text = NULL;
    json_t *facts;
    int rc;

    ckpt_digest_hex(data, c->data, sizeof c->data);
    facts = json_pack("{s:s,s:I,s:I,s:I,s:i,s:I,s:s}", "tool", "ckpt " CKPT_VERSION, "step",
                      (json_int_t)c->state->global_step, "data_position",
                      (json_int_t)c->state->global_step, "seed", (json_int_t)c->settings->seed,
                      "world_size", s->comm->world_size, "zero_stage",
                      (json_int_t)settings_stage(c->settings), "data", data);
    rc = facts ? manifest_make(&text, ckpt_outdir_staging(dir), facts, err)
               : ckpt_nomem(err, sizeof *facts);
    json_decref(facts);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, MANIFEST_NAME, text, strlen(text), err);
    ckpt_free(text);
    if (rc) {
        ckpt_outdir_abort(dir);
        return rc;
    }
    return ckpt_outdir_commit(dir, err);
}

/* Write all of this rank's files, before the vote. */
static int save_parts(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                      const char *tag, struct ckpt_err *err)
{
    int rc = save_rng(s, c, dir, err);

    if (rc == 0 && settings_stage(c->settings) > 0)
        rc = save_deepspeed(s, c, dir, tag, err);
    if (rc == 0 && s->comm->rank == 0 && settings_stage(c->settings) == 0)
        rc = save_optimizer(s, c, dir, err);
    if (rc == 0 && s->comm->rank == 0)
        rc = save_common(s, c, dir, err);
    return rc;
}

int checkpoint_try(const char *output_dir, struct session *s, struct ckpt_err *err)
{
    char path[4200], host[65] = "";
    bool known = gethostname(host, sizeof host - 1) == 0;
    int fd, why = 0, rc = 0;

    snprintf(path, sizeof path, "%s/.try-%s-%ld-%d", output_dir, host, (long)getpid(),
             s->comm->rank);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, "", 1) != 1)
        why = errno;
    if (fd >= 0 && close(fd) && !why)
        why = errno;
    if (fd >= 0)
        unlink(path);
    if (why) {
        rc = ckpt_fail_errno(err, CKPT_ECREATE, why, "%s: cannot write a file here", output_dir);
        if (known && s->comm->world_size > 1)
            ckpt_err_in(err, "rank %d on %s", s->comm->rank, host);
    }
    return comm_agree(s->comm, rc, err);
}

int checkpoint_save_bare(const char *path, struct session *s, struct ckpt_err *err)
{
    struct ckpt_outdir *dir = NULL;
    char staging[4096] = "";
    int rc = s->comm->rank == 0 ? ckpt_outdir_create(&dir, path, err) : 0;

    if (dir) {
        snprintf(staging, sizeof staging, "%s", ckpt_outdir_staging(dir));
        rc = put_json(dir, "config.json", json_incref(arch_config(s->arch)), false, err);
        if (rc == 0 && s->tokenizer_dir)
            rc = checkpoint_copy_tokenizer(dir, s->tokenizer_dir, NULL, err);
    }
    if ((rc = comm_agree(s->comm, rc, err)) == 0)
        rc = save_model(s, staging, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        ckpt_outdir_abort(dir);
    else if (dir)
        rc = ckpt_outdir_commit(dir, err);
    return comm_agree(s->comm, rc, err);
}

int checkpoint_save(char path[4096], struct session *s, const struct checkpoint *c,
                    struct ckpt_err *err)
{
    struct ckpt_outdir *dir = NULL;
    char staging[4096] = "", tag[64];
    bool first = s->comm->rank == 0;
    int rc = 0;

    snprintf(tag, sizeof tag, "global_step%lld", (long long)c->state->global_step);
    snprintf(path, 4096, "%s/checkpoint-%lld", c->settings->output_dir,
             (long long)c->state->global_step);
    if (first)
        rc = (c->replace ? ckpt_outdir_create_over : ckpt_outdir_create)(&dir, path, err);
    if (dir)
        snprintf(staging, sizeof staging, "%s", ckpt_outdir_staging(dir));
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto fail;
    comm_broadcast(s->comm, staging, sizeof staging, CKPT_U8, 0);
    if (!first)
        rc = ckpt_outdir_join(&dir, staging, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto fail;
    if ((rc = save_parts(s, c, dir, tag, err)) != 0)
        ckpt_err_in(err, "%s", path);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto fail;
    if (s->lora || settings_stage(c->settings) < 3 ||
        c->settings->stage3_gather_16bit_weights_on_model_save)
        rc = save_model(s, staging, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        goto fail;
    if (first && settings_stage(c->settings) > 0)
        rc = ds_write_latest(dir, tag, err);
    if (first && rc == 0) {
        rc = publish(s, c, dir, err);
        dir = NULL;
    }
    rc = comm_agree(s->comm, rc, err);
fail:
    ckpt_outdir_abort(dir);             /* only releases a directory that was joined */
    return rc;
}
