/* plan - see plan.h. */
#include "trainer/plan/plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "libckpt/log.h"
#include "formats/families/role.h"
#include "trainer/run/optimizer.h"

/* Memory of this host and its swap, or what a container may have of it. */
static uint64_t host_total(void)
{
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    struct sysinfo info;
    uint64_t total = UINT64_MAX;

    if (sysinfo(&info) == 0)
        total = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        FILE *f = fopen(limits[i], "re");
        unsigned long long n;

        if (f && fscanf(f, "%llu", &n) == 1 && n < total)
            total = n;
        if (f)
            fclose(f);
    }
    return total;
}

/* Ranks that share this host, whose numbers on it count from 0; planned ones share it all. */
static int64_t ranks_here(struct comm *c)
{
    int64_t most = c->local_rank;

    if (strcmp(c->ops->name, "planned") == 0)
        return c->world_size;
    comm_all_reduce(c, &most, 1, CKPT_I64, COMM_MAX);
    return most + 1;
}

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

/* What a rank takes of this host: what is to lie there, and on CPUs all the rest. */
static struct fit on_host(const struct session *s)
{
    struct fit f = {.zero = {.weights = s->fit.zero.weights_host,
                             .grads = s->fit.zero.grads_host,
                             .optim = s->fit.zero.optim_host}};

    f.all = f.zero.weights + f.zero.grads + f.zero.optim;
    if (s->dev->discrete || s->paper_limit)
        return f;
    f.zero.weights += s->fit.zero.weights;
    f.zero.grads += s->fit.zero.grads;
    f.zero.optim += s->fit.zero.optim + s->fit.zero.ring;
    f.zero.gathered = s->fit.zero.gathered;
    f.activations = s->fit.activations;
    f.workspace = s->fit.workspace;
    f.all += s->fit.all;
    return f;
}

uint64_t plan_host(const struct session *s) { return on_host(s).all; }

static int refuse(const struct fit *f, int64_t ranks, uint64_t total, struct ckpt_err *err)
{
    uint64_t work = f->activations + f->workspace;
    char of[64] = "";

    if (ranks > 1)                      /* the total is of all, its parts are of one */
        snprintf(of, sizeof of, "by %lld ranks on it, %.2f by each ", (long long)ranks,
                 gib(f->all));
    ckpt_fail(err, CKPT_ENOMEM, "this host has %.2f GiB, %.2f are needed %s(weights %.2f, "
              "gradients %.2f, optimizer %.2f, gathered %.2f, activations %.2f, workspace %.2f)",
              gib(total), gib(f->all) * (double)ranks, of, gib(f->zero.weights),
              gib(f->zero.grads), gib(f->zero.optim), gib(f->zero.gathered),
              gib(f->activations), gib(f->workspace));
    if (work > f->all / 2)
        return ckpt_err_hint(err, "less is worked on at once with a smaller `max_seq_length` or "
                             "`per_device_train_batch_size`, or `gradient_checkpointing`");
    return ckpt_err_hint(err, "the model takes most of it: `lora_rank` trains an adapter beside "
                         "it, `optim adamw_8bit` keeps smaller moments");
}

int plan_check(struct session *s, struct ckpt_err *err)
{
    int64_t ranks = s->simulate.node ? 1 : ranks_here(s->comm);
    struct fit f = on_host(s);
    uint64_t need = f.all * (uint64_t)ranks, total = host_total(), left = fit_host_free();
    int rc = !s->paper_limit && need > total ? refuse(&f, ranks, total, err) : 0;

    if (rc == 0 && !s->paper_limit && need > left && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%.2f GiB are needed, this host has %.2f free", gib(need),
                 gib(left));
    return comm_agree(s->comm, rc, err);
}

uint64_t plan_spare(struct session *s)
{
    uint64_t ranks = (uint64_t)ranks_here(s->comm), left = fit_host_free(), total = host_total();
    uint64_t need = on_host(s).all * ranks;
    int64_t spare;

    left = left < total ? left : total;
    if (!s->dev->discrete && !s->paper_limit)   /* memory that nobody has touched yet */
        left = left > need ? left - need : 0;
    left /= ranks;
    spare = left < INT64_MAX ? (int64_t)left : INT64_MAX;
    comm_all_reduce(s->comm, &spare, 1, CKPT_I64, COMM_MIN);
    return (uint64_t)spare;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Batches decide how much the model must hold. */
static int plan_batches(const struct run_data *data, const struct settings *set,
                        struct session *s, struct ckpt_err *err)
{
    struct loader *t = data->train.loader, *e = data->eval.loader;
    struct model_opts opts = {
        .max_tokens = larger(loader_max_tokens(t), e ? loader_max_tokens(e) : 0),
        .max_docs = larger(loader_max_docs(t), e ? loader_max_docs(e) : 0),
        .max_rows = larger(loader_max_rows(t), e ? loader_max_rows(e) : 0),
        .max_enc = larger(loader_max_enc(t), e ? loader_max_enc(e) : 0),
        .train = true, .padding = set->loss_on_padding,
        .recompute = settings_recompute(set), .dry = set->dry_run,
        .label_smoothing = set->label_smoothing_factor, .z_loss = set->z_loss,
        .neftune_alpha = set->neftune_noise_alpha,
    };
    struct zero_opts zero = run_optimizer_zero(set);
    int rc;

    if (zero.offload_param && zero.stage == 0 && s->comm->world_size > 1) {
        rc = ckpt_fail(err, CKPT_ECONFIG, "`offload_param cpu` of %d ranks needs `zero_stage` 1, 2 "
                       "or 3", s->comm->world_size);
        return comm_agree(s->comm, rc, err);
    }
    s->paper_limit = set->dry_run && !s->dev->discrete ? set->device_memory_limit : 0;
    s->reshard = set->reshard_after_forward;
    s->batch = set->per_device_train_batch_size;
    s->batch_option = "per_device_train_batch_size";
    if (e && loader_max_tokens(e) > loader_max_tokens(t)) {
        s->batch = set->per_device_eval_batch_size;
        s->batch_option = "per_device_eval_batch_size";
    }
    rc = session_plan(s, &opts, &zero, err);
    return rc ? rc : plan_check(s, err);
}

int plan_open(struct run_data *data, struct settings *set, struct session *s,
                  const char *base, const volatile int *stop, struct ckpt_err *err)
{
    int64_t asked = set->per_device_train_batch_size;
    int rc = *base ? session_untie(s, base, NULL, err) : 0;

    if (rc)
        return rc;
    for (;;) {
        rc = run_data_open(data, set, s, stop, err);
        if ((rc = comm_agree(s->comm, rc, err)) != 0)
            return rc;
        rc = plan_batches(data, set, s, err);
        if (rc != CKPT_ENOMEM || !set->auto_find_batch_size ||
            !settings_smaller_batch(set, s->comm->world_size))
            break;
        session_unplan(s);
        run_data_close(data);
        *data = (struct run_data){0};
        ckpt_err_clear(err);
    }
    if (rc == 0 && set->per_device_train_batch_size != asked && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "memory holds a micro-batch of %lld: "
                 "--per-device-train-batch-size %lld, --gradient-accumulation-steps %lld",
                 (long long)set->per_device_train_batch_size,
                 (long long)set->per_device_train_batch_size,
                 (long long)set->gradient_accumulation_steps);
    return rc;
}

int64_t plan_numel(const struct params *p)
{
    int64_t n = 0;

    for (size_t i = 0; i < p->n; i++) {
        int role = p->item[i].role;

        if (p->item[i].kind != PARAM_BASE || (role != ROLE_TOKENS && role != ROLE_POS &&
                                              role != ROLE_TOKEN_TYPE && role != ROLE_REL_BIAS))
            n += p->item[i].numel;
    }
    return n;
}
