/* run/plan - see run/plan.h. */
#include "trainer/run/plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "libckpt/log.h"
#include "formats/families/role.h"

#define SAMPLED 2000            /* rows that are tokenised to estimate the length of all */

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

static int refuse(const struct session *s, int64_t ranks, uint64_t total, struct ckpt_err *err)
{
    const struct fit *f = &s->fit;
    uint64_t work = f->activations + f->workspace;
    char of[64] = "";

    if (ranks > 1)                      /* the total is of all, its parts are of one */
        snprintf(of, sizeof of, "by %lld ranks on it, %.2f by each ", (long long)ranks,
                 gib(f->all));
    ckpt_fail(err, CKPT_ENOMEM, "this host has %.2f GiB, %.2f are needed %s(weights %.2f, "
              "gradients %.2f, optimizer %.2f, gathered %.2f, activations %.2f, workspace %.2f)",
              gib(total), gib(f->all) * (double)ranks, of, gib(f->zero.weights),
              gib(f->zero.grads), gib(f->zero.optim + f->zero.ring), gib(f->zero.gathered),
              gib(f->activations), gib(f->workspace));
    if (work > f->all / 2)
        return ckpt_err_hint(err, "less is worked on at once with a smaller `max_seq_length` or "
                             "`per_device_train_batch_size`, or `gradient_checkpointing`");
    return ckpt_err_hint(err, "the model takes most of it: `lora_rank` trains an adapter beside "
                         "it, `optim adamw_8bit` keeps smaller moments");
}

int run_plan_check(struct session *s, struct ckpt_err *err)
{
    bool here = !s->dev->discrete && !s->paper_limit;
    int64_t ranks = ranks_here(s->comm);
    uint64_t need = s->fit.all * (uint64_t)ranks, total = host_total(), left = fit_host_free();
    int rc = here && need > total ? refuse(s, ranks, total, err) : 0;

    if (rc == 0 && here && need > left && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%.2f GiB are needed, this host has %.2f free", gib(need),
                 gib(left));
    return comm_agree(s->comm, rc, err);
}

int64_t run_plan_numel(const struct params *p)
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

int run_plan_tell(const struct run_data *data, int64_t max_steps, struct ckpt_err *err)
{
    const struct data_source *source = data->train.source;
    int64_t n = data_source_count(source), taken = n < SAMPLED ? n : SAMPLED, tokens = 0;
    int64_t per_epoch = loader_steps_per_epoch(data->train.loader);
    struct sample sample = {0};
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < taken; i++) {
        int64_t at = taken < n ? (int64_t)((double)i * (double)n / (double)taken) : i;

        rc = data_source_sample(source, at, &sample, err);
        tokens += sample.n + sample.n_enc;
    }
    sample_release(&sample);
    if (rc == 0)
        ckpt_log(CKPT_LOG_NOTE, "data: %lld rows, %s%lld tokens; %.3g epochs of %lld steps",
                 (long long)n, taken < n ? "about " : "",
                 (long long)((double)tokens * (double)n / (double)(taken ? taken : 1)),
                 (double)max_steps / (double)(per_epoch ? per_epoch : 1), (long long)per_epoch);
    return rc;
}
