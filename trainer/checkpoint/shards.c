/* checkpoint/shards - see checkpoint/shards.h. */
#include "trainer/checkpoint/shards.h"

#include <string.h>

#include "formats/bnb/optim.h"
#include "formats/hf/adafactor.h"
#include "formats/deepspeed/write/flat_out.h"
#include "formats/families/arch.h"
#include "formats/hf/trainer_files.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/optim/order.h"
#include "trainer/checkpoint/factors.h"
#include "trainer/shard/regroup.h"

int64_t shards_done_steps(const struct checkpoint *c)
{
    return c->state->global_step - c->scaler->skipped;
}

int64_t shards_optim_steps(const struct checkpoint *c)
{
    return shards_done_steps(c) - c->state->optim_lag;
}

static int muon_of(struct muon_group **out, struct ckpt_arena *a, const struct op_muon *o,
                   struct ckpt_err *err)
{
    static const char *const adjust[] = {
        [OP_MUON_ORIGINAL] = "original", [OP_MUON_MATCH_RMS_ADAMW] = "match_rms_adamw",
        [OP_MUON_SPECTRAL_UNCLAMPED] = "spectral_unclamped"};

    if (!(*out = ckpt_arena_alloc(a, 1, sizeof **out)))
        return ckpt_nomem(err, sizeof **out);
    **out = (struct muon_group){.momentum = o->momentum, .eps = o->eps, .a = o->a, .b = o->b,
                                .c = o->c, .nesterov = o->nesterov, .ns_steps = o->ns_steps,
                                .adjust_lr_fn = adjust[o->adjust]};
    return 0;
}

int shards_groups(struct adamw_group **out, struct ckpt_arena *a, const struct checkpoint *c,
                  struct ckpt_err *err)
{
    const struct settings *s = c->settings;
    const struct optim_row *row = optim_find(s->optim);
    struct adafactor_group *adafactor = NULL;
    struct muon_group *muon = NULL;
    struct optim_keys keys;
    int rc = optim_keys(&keys, row, s->optim_args, err);

    if (rc == 0 && row->rule == OP_RULE_MUON && (rc = muon_of(&muon, a, &keys.muon, err)) != 0)
        return rc;
    if (rc == 0 && row->rule == OP_RULE_ADAFACTOR) {
        const struct op_adafactor *o = &keys.adafactor;

        if (!(adafactor = ckpt_arena_alloc(a, 1, sizeof *adafactor)))
            return ckpt_nomem(err, sizeof *adafactor);
        *adafactor = (struct adafactor_group){
            .eps = o->eps, .eps_rms = o->eps_rms, .clip_threshold = o->clip_threshold,
            .decay_rate = o->decay_rate, .beta1 = o->beta1, .scale_parameter = o->scale_parameter,
            .relative_step = o->relative_step, .warmup_init = o->warmup_init};
    }
    *out = ckpt_arena_alloc(a, c->groups->n, sizeof **out);
    if (rc == 0 && !*out)
        rc = ckpt_nomem(err, c->groups->n * sizeof **out);
    for (size_t g = 0; rc == 0 && g < c->groups->n; g++) {
        const struct optim_group *peak = &c->groups->peak[g];
        struct adamw_group *to = &(*out)[g];

        *to = (struct adamw_group){
            .lr = schedule_lr(c->schedule, peak->lr, shards_done_steps(c)), .initial_lr = peak->lr,
            .beta1 = s->adam_beta1, .beta2 = s->adam_beta2, .eps = s->adam_epsilon,
            .weight_decay = peak->weight_decay, .sgd = row->rule == OP_RULE_SGD,
            .momentum = keys.momentum, .dampening = keys.dampening, .nesterov = keys.nesterov,
            .adafactor = adafactor, .muon = peak->muon ? muon : NULL};
        schedule_betas(c->schedule, shards_done_steps(c), &to->beta1, &to->beta2);
    }
    return rc;
}

/* Argument of a reader: the writer asks for slots of the optimizer's order. */
struct reading {
    struct zero             *zero;
    const struct optim_slot *slot;
    size_t                   n_slots;
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

    ckpt_log_progress("saving the optimizer", "tensors", n, r->n_slots);
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

struct shards {
    struct session           *s;
    const struct checkpoint  *c;
    struct ckpt_arena         arena;
    struct optim_order        order;
    struct reading            reading;
    struct ds_alias           alias;
    struct adamw_group       *group;        /* [checkpoint's groups] */
    struct ds_scaling         scaling;
    struct ds_rank_state      state;
    json_t                   *config;       /* as DeepSpeed's user would have it */
    struct ds_flat_out       *flat;         /* files of stages 1 and 2; NULL: none begun */
    size_t                   *slot_of;      /* [params] parameter -> slot; SIZE_MAX */
    struct weights_taker      taker;        /* of the model; take NULL: not here */
    enum adamw_array          of;           /* what is exchanged, and of which group */
    size_t                    at_group;
    const struct ds_flat_group *members;
};

static json_t *config_of(const struct session *s, const struct checkpoint *c)
{
    const struct settings *set = c->settings;
    const struct scaler_opts *o = &c->scaler->o;
    enum ckpt_dtype dtype = s->dev->weight;
    json_t *d = json_pack(
        "{s:I,s:I,s:f,s:{s:I}}", "train_micro_batch_size_per_gpu",
        (json_int_t)set->per_device_train_batch_size, "gradient_accumulation_steps",
        (json_int_t)set->gradient_accumulation_steps, "gradient_clipping", set->max_grad_norm,
        "zero_optimization", "stage", (json_int_t)settings_stage(set));
    json_t *half = NULL;

    if (dtype == CKPT_BF16)
        half = json_pack("{s:b}", "enabled", 1);
    else if (dtype == CKPT_F16)
        half = json_pack("{s:b,s:f,s:I,s:I,s:I,s:f}", "enabled", 1, "loss_scale", o->loss_scale,
                         "initial_scale_power", (json_int_t)o->initial_scale_power,
                         "loss_scale_window", (json_int_t)o->loss_scale_window, "hysteresis",
                         (json_int_t)o->hysteresis, "min_loss_scale", o->min_loss_scale);
    else
        return d;
    if (json_object_set_new(d, dtype == CKPT_BF16 ? "bf16" : "fp16", half)) {
        json_decref(d);
        return NULL;
    }
    return d;
}

/* The parameters as DeepSpeed lists them, and where each of ours is among them. */
static int list_params(struct shards *h, struct ckpt_err *err)
{
    const struct params *p = zero_flat(h->s->zero)->params;
    struct ds_param *param = ckpt_arena_alloc(&h->arena, p->n + 1, sizeof *param);
    int rc = optim_order(&h->order, &h->arena, p, h->s->arch, false, err);

    h->slot_of = ckpt_arena_alloc(&h->arena, p->n + 1, sizeof *h->slot_of);
    if (rc)
        return rc;
    if (!param || !h->slot_of)
        return ckpt_nomem(err, (size_t)h->arena.used);
    for (size_t i = 0; i < p->n; i++)
        h->slot_of[i] = SIZE_MAX;
    for (size_t n = 0; n < h->order.n; n++) {
        size_t i = h->order.slot[n].part[0].param;
        const struct param *q = &p->item[i];
        char name[CKPT_MAX_NAME + 1];

        params_saved_name(name, sizeof name, p, i, true);
        h->slot_of[i] = n;
        param[n] = (struct ds_param){.name = ckpt_arena_printf(&h->arena, "%s", name),
                                     .shape = q->shape, .group = q->group,
                                     .trainable = true};
        if (!param[n].name)
            return ckpt_nomem(err, sizeof name);
    }
    h->state.param = param;
    h->state.n_param = h->order.n;
    return 0;
}

/* The run's state as a rank's files have it. */
static int describe(struct shards *h, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(h->s->zero);
    const struct checkpoint *c = h->c;
    const struct settings *set = c->settings;
    const struct scaler *scaler = c->scaler;
    const char *tied = flat->params->adapted ? NULL : arch_tied_name(h->s->arch);
    int rc = shards_groups(&h->group, &h->arena, c, err);

    if (rc)
        return rc;
    h->alias = (struct ds_alias){.name = tied, .kept = flat->params->item[0].name};
    h->scaling = (struct ds_scaling){
        .dynamic = scaler->o.loss_scale == 0, .scale = scaler->scale,
        .min_scale = scaler->o.min_loss_scale, .iter = scaler->iter,
        .last_overflow = scaler->last_overflow, .window = scaler->o.loss_scale_window,
        .hysteresis = scaler->o.hysteresis, .patience = scaler->patience};
    h->reading = (struct reading){h->s->zero, NULL, 0, true};
    h->state = (struct ds_rank_state){
        .rank = flat->rank, .world_size = flat->world_size, .stage = (int)settings_stage(set),
        .scaling = scaler->o.on ? &h->scaling : NULL, .alias = &h->alias,
        .n_alias = tied ? 1 : 0, .group = h->group, .n_group = c->groups->n,
        .model_dtype = h->s->dev->weight, .reader = {read_slot, &h->reading},
        .fewer = h->s->zero_opts.fewer,
        .moment = optim_find(set->optim)->rule == OP_RULE_SGD ? "momentum_buffer" : "exp_avg",
        .optimizer_step = shards_optim_steps(c), .global_steps = c->state->global_step,
        .skipped_steps = scaler->skipped,
        .global_samples = c->state->global_step * set->per_device_train_batch_size *
                          set->gradient_accumulation_steps * h->s->comm->world_size,
        .ds_config = h->config = config_of(h->s, c),
    };
    if (!h->config)
        return ckpt_nomem(err, sizeof *h->config);
    return list_params(h, err);
}

/* Gathered weights to the model's file; those that are not trained are not in it. */
static int take_weights(void *ctx, size_t i, int64_t start, int64_t n, const float *from,
                        struct ckpt_err *err)
{
    const struct shards *h = ctx;

    return h->slot_of[i] == SIZE_MAX
               ? 0 : ds_flat_out_put_weight(h->flat, h->slot_of[i], start, n, from, err);
}

/* Adafactor's numbers, by the tensors of transformers. */
static int save_factors(struct shards *h, struct ckpt_outdir *dir, struct ckpt_err *err)
{
    struct optim_order order;
    int rc = optim_order(&order, &h->arena, zero_flat(h->s->zero)->params, h->s->arch, true, err);

    return rc ? rc : factors_save(h->s, h->c, dir, &order, NULL, err);
}

int shards_begin(struct shards **out, struct session *s, const struct checkpoint *c,
                 struct ckpt_outdir *dir, const char *tag, bool model, struct ckpt_err *err)
{
    struct shards *h = ckpt_alloc(1, sizeof *h);
    int rc;

    *out = h;
    if (!h)
        return ckpt_nomem(err, sizeof *h);
    h->s = s;
    h->c = c;
    rc = describe(h, err);
    h->reading.slot = h->order.slot;
    h->reading.n_slots = h->order.n;
    if (rc == 0 && h->state.stage == 3)
        rc = ds_write_rank(dir, tag, &h->state, err);
    else if (rc == 0)
        rc = ds_flat_out_begin(&h->flat, dir, tag, &h->state, model, err);
    if (rc == 0 && model && zero_factors(s->zero, h->order.slot[0].part[0].param).row)
        rc = save_factors(h, dir, err);
    if (rc == 0 && h->flat && model)
        h->taker = (struct weights_taker){take_weights, h};
    return rc;
}

/* Elements of this rank's part of a member of the group.  Coded moments are read in whole blocks:
 * what precedes the first element asked for is read and dropped. */
static int give(void *ctx, size_t i, int64_t start, int64_t count, float *to, struct ckpt_err *err)
{
    struct shards *h = ctx;
    size_t slot = h->members->param[i];
    float block[OP_MOMENTS_BLOCK];
    int64_t in = h->of == ADAMW_MASTER ? 0 : start % OP_MOMENTS_BLOCK, some = 0;
    int rc = 0;

    if (in > 0) {
        some = OP_MOMENTS_BLOCK - in < count ? OP_MOMENTS_BLOCK - in : count;
        rc = read_slot(&h->reading, slot, h->of, start - in, in + some, block, err);
        memcpy(to, block + in, (size_t)some * sizeof *to);
    }
    return rc || some == count ? rc : read_slot(&h->reading, slot, h->of, start + some,
                                                count - some, to + some, err);
}

static int take(void *ctx, int64_t at, int64_t n, const float *from, struct ckpt_err *err)
{
    struct shards *h = ctx;

    return ds_flat_out_put(h->flat, h->at_group, h->of, at, n, from, err);
}

/* One array of one group. */
static int exchange(struct shards *h, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    int64_t *numel = ckpt_arena_alloc(&a, h->members->n + 1, sizeof *numel);
    struct regroup g = {.numel = numel, .n = h->members->n, .part = h->members->part,
                        .rank = h->state.rank, .world_size = h->state.world_size};
    int rc = comm_agree(h->s->shard, numel ? 0 : ckpt_nomem(err, h->members->n * sizeof *numel),
                        err);

    for (size_t k = 0; rc == 0 && k < g.n; k++)
        ckpt_shape_numel(&numel[k], &h->state.param[h->members->param[k]].shape);
    if (rc == 0)
        rc = regroup(h->s->shard, &g, &(struct regroup_ends){give, take, h}, err);
    ckpt_arena_release(&a);
    return rc;
}

int shards_exchange(struct shards *h, struct ckpt_err *err)
{
    static const enum adamw_array arrays[] = {ADAMW_MASTER, ADAMW_EXP_AVG, ADAMW_EXP_AVG_SQ};
    const struct ds_flat_group *group;
    size_t n = 0;
    int rc;

    if (!h || !h->flat)
        return 0;
    group = ds_flat_out_groups(h->flat, &n);
    for (size_t k = 0; k < n; k++)
        for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++) {
            h->at_group = k;
            h->members = &group[k];
            h->of = arrays[a];
            if (!ds_keeps(&h->state, &h->group[h->state.param[group[k].param[0]].group], h->of))
                continue;
            rc = comm_agree(h->s->shard, exchange(h, err), err);
            if (rc)
                return rc;
        }
    return 0;
}

const struct weights_taker *shards_taker(const struct shards *h)
{
    return h && h->taker.take ? &h->taker : NULL;
}

int shards_commit(struct shards *h, struct ckpt_err *err)
{
    if (h)
        ckpt_log_progress("saving the optimizer", "tensors", h->order.n, h->order.n);
    return h && h->flat ? ds_flat_out_commit(h->flat, err) : 0;
}

void shards_close(struct shards *h)
{
    if (!h)
        return;
    ds_flat_out_close(h->flat);
    json_decref(h->config);
    ckpt_arena_release(&h->arena);
    ckpt_free(h);
}

int shards_save_whole(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                      struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct optim_order order = {0};
    static const enum adamw_kind kind[] = {[OP_MOMENTS_F32] = ADAMW_F32,
                                           [OP_MOMENTS_BF16] = ADAMW_BF16,
                                           [OP_MOMENTS_8BIT] = ADAMW_8BIT};
    const struct optim_row *row = optim_find(c->settings->optim);
    struct adamw_group *group = NULL;
    struct adamw_param *param = NULL;
    struct reading reading;
    struct ckpt_out *out;
    int rc = optim_order(&order, &a, zero_flat(s->zero)->params, s->arch, true, err);

    if (rc == 0)
        rc = shards_groups(&group, &a, c, err);
    if (rc == 0 && !(param = ckpt_arena_alloc(&a, order.n + 1, sizeof *param)))
        rc = ckpt_nomem(err, order.n * sizeof *param);
    for (size_t n = 0; rc == 0 && n < order.n; n++)
        param[n] = (struct adamw_param){
            .shape = order.slot[n].shape, .group = order.slot[n].group,
            .kind = kind[zero_moments(s->zero, order.slot[n].part[0].param)]};
    reading = (struct reading){s->zero, order.slot, order.n, false};
    if (rc == 0 && row->rule == OP_RULE_ADAFACTOR) {
        rc = factors_save(s, c, dir, &order, s->zero_opts.fewer < 2
                          ? &(struct adamw_reader){read_slot, &reading} : NULL, err);
        ckpt_arena_release(&a);
        return rc;
    }
    if (rc == 0)
        rc = ckpt_outdir_file(&out, dir, "optimizer.pt", err);
    if (rc == 0 && row->bnb)
        rc = bnb_optimizer_file_write(out, param, order.n, group, c->groups->n, row->n_moments,
                                      shards_optim_steps(c),
                                      &(struct adamw_reader){read_slot, &reading}, err);
    else if (rc == 0)
        rc = hf_optimizer_write(out, param, order.n, group, c->groups->n, shards_optim_steps(c),
                                &(struct adamw_reader){read_slot, &reading}, err);
    ckpt_log_progress("saving the optimizer", "tensors", order.n, order.n);
    ckpt_arena_release(&a);
    return rc;
}
