/* estimate - see estimate.h. */
#include "trainer/plan/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "formats/families/arch.h"
#include "formats/families/role.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/plan/plan.h"
#include "trainer/plan/product.h"

#define SAMPLED 2000            /* rows that are tokenised to estimate the length of all */
#define WALKED  50000000        /* micro-batches of all ranks that are added up; else the mean */

/* -- rows ------------------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* As fill_micro counts them: a decoder is not fed its last target. */
static int64_t tokens_of(const struct sample *s) { return s->n_enc ? s->n - 1 + s->n_enc : s->n; }

/* Lengths of all rows, or of some that lie evenly; token[sampled]. */
static int read_rows(struct estimate *e, int32_t *token, const struct data_source *source,
                     struct ckpt_err *err)
{
    int64_t targets = 0, cut = 0, sum = 0;
    struct sample sample = {0};
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < e->sampled; i++) {
        int64_t at = e->sampled < e->rows
            ? (int64_t)((double)i * (double)e->rows / (double)e->sampled) : i;

        if ((rc = data_source_sample(source, at, &sample, err)) != 0)
            break;
        token[i] = (int32_t)tokens_of(&sample);
        sum += token[i];
        cut += sample.cut;
        targets += sample_targets(&sample);
    }
    sample_release(&sample);
    e->mean = (double)sum / (double)e->sampled;
    e->truncated = (double)cut / (double)e->sampled;
    e->supervised = sum ? (double)targets / (double)sum : 0;
    return rc;
}

/* Shortest, longest, and the length that 95 % of the rows do not exceed. */
static void spread(struct estimate *e, int32_t *token)
{
    qsort(token, (size_t)e->sampled, sizeof *token, ascending);
    e->shortest = token[0];
    e->longest = token[e->sampled - 1];
    e->p95 = token[(e->sampled * 95 + 99) / 100 - 1];
}

/* Tokens of the whole run: added up where all rows are known, else by the mean. */
static int count_tokens(struct estimate *e, const struct estimate_of *of, const int32_t *token,
                        struct ckpt_err *err)
{
    const struct settings *s = of->settings;
    int64_t batch = s->per_device_train_batch_size * s->gradient_accumulation_steps;
    struct loader_tokens t = {0};
    int rc = 0;

    e->tokens = e->mean * (double)(batch * e->world_size) * (double)of->steps;
    e->efficiency = NAN;
    if (e->sampled == e->rows &&
        of->steps <= WALKED / s->gradient_accumulation_steps / e->world_size) {
        rc = loader_count(of->data->train.loader, token, of->steps, &t, err);
        e->tokens = (double)t.tokens;
    } else if (s->packing) {
        rc = loader_count(of->data->train.loader, data_source_lengths(of->data->train.source),
                          of->steps, &t, err);
        e->tokens = (double)t.tokens;
    }
    if (rc == 0 && s->packing)
        e->efficiency = (double)t.tokens / (double)t.capacity;
    return rc;
}

static int look_at_data(struct estimate *e, const struct estimate_of *of, struct ckpt_err *err)
{
    const struct data_source *source = of->data->train.source;
    int64_t per_epoch = loader_steps_per_epoch(of->data->train.loader);
    int32_t *token;
    int rc;

    e->rows = data_source_count(source);
    e->dropped = data_source_dropped(source);
    e->sampled = e->rows < SAMPLED ? e->rows : SAMPLED;
    e->steps = of->steps;
    e->first_step = of->first_step;
    e->steps_per_epoch = per_epoch;
    e->epochs = (double)of->steps / (double)(per_epoch ? per_epoch : 1);
    token = ckpt_alloc((size_t)e->sampled, sizeof *token);
    if (!token)
        return ckpt_nomem(err, (size_t)e->sampled * sizeof *token);
    rc = read_rows(e, token, source, err);
    if (rc == 0)
        rc = count_tokens(e, of, token, err);
    if (rc == 0)
        spread(e, token);
    ckpt_free(token);
    return rc;
}

/* -- disk ------------------------------------------------------------------------------------- */

/* Free bytes of the disk where the folder is, or will be. */
static uint64_t disk_free(const char *path)
{
    char at[4200];
    struct statvfs v;

    for (snprintf(at, sizeof at, "%s", path); *at;) {
        char *slash = strrchr(at, '/');

        if (statvfs(at, &v) == 0)
            return v.f_blocks ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
        if (!slash)
            break;
        slash[slash == at] = '\0';
        if (slash == at && statvfs(at, &v))
            return UINT64_MAX;
    }
    return statvfs(".", &v) == 0 && v.f_blocks ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
}

static void look_at_disk(struct estimate *e, const struct estimate_of *of)
{
    int64_t limit = of->settings->save_total_limit;

    e->kept = limit > 0 && of->saves > limit ? limit + 1 : of->saves;
    e->disk = (uint64_t)e->kept * e->checkpoint.all + e->checkpoint.final_model +
              (uint64_t)of->saves * e->checkpoint.state_dict;
    e->disk_free = disk_free(of->settings->output_dir);
}

/* -- FLOPs and time --------------------------------------------------------------------------- */

/* FLOPs of products for a token: forward 2 an element, backward 2 for the input and 2 for weights
 * that are trained, and the blocks' forward again where all of it is recomputed.  The head sees
 * supervised rows alone; of experts a token passes some. */
static double product_flops(const struct estimate *e, const struct session *s)
{
    const struct params *p = model_params(s->model);
    const struct arch *a = s->arch;
    double some = a->num_experts > 0
        ? (double)a->num_experts_per_tok / (double)a->num_experts : 1, sum = 0;
    bool head = false;

    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];
        bool expert = q->role == ROLE_EXPERT_GATE || q->role == ROLE_EXPERT_UP ||
                      q->role == ROLE_EXPERT_DOWN, is_head = q->role == ROLE_HEAD_W;
        bool tied = q->role == ROLE_TOKENS && a->tie_word_embeddings && q->kind == PARAM_BASE;
        double n = (double)q->numel * (expert ? some : 1), times = 4 + (q->trainable ? 2 : 0);

        if (q->shape.rank < 2 || (!tied && q->kind == PARAM_BASE &&
            (q->role == ROLE_TOKENS || q->role == ROLE_POS || q->role == ROLE_TOKEN_TYPE ||
             q->role == ROLE_REL_BIAS)))
            continue;
        head |= tied || is_head;
        times += !tied && !is_head && s->fit.recompute == RECOMPUTE_FULL ? 2 : 0;
        sum += n * times * (tied || is_head ? e->supervised : 1);
    }
    return sum;
}

static int look_at_time(struct estimate *e, const struct estimate_of *of, struct ckpt_err *err)
{
    const struct session *s = of->session;
    double mean = e->tokens / (double)e->steps;
    int rc = 0;

    e->flos = 6.0 * (double)plan_numel(model_params(s->model)) * e->tokens;
    e->flos_step = e->flos / (double)e->steps;
    e->seconds = e->seconds_step = NAN;
    if (s->paper_limit == 0)
        rc = product_rate(&e->rate, s->dev, s->arch,
                          mean / e->world_size / (double)of->settings->gradient_accumulation_steps,
                          err);
    if (rc || e->rate <= 0)
        return rc;
    e->seconds_step = product_flops(e, s) * mean / e->world_size / e->rate;
    e->seconds = e->seconds_step * (double)(e->steps - e->first_step);
    return 0;
}

int estimate_make(struct estimate *out, const struct estimate_of *of, struct ckpt_err *err)
{
    const struct session *s = of->session;
    const struct params *p = model_params(s->model);
    int rc;

    *out = (struct estimate){
        .world_size = s->comm->world_size, .zero_stage = s->zero_opts.stage,
        .parameters = p->numel, .trained = p->grad_numel, .fit = s->fit,
        .host = plan_host(s), .snapshot = of->snapshot, .saves = of->how,
    };
    if ((rc = look_at_data(out, of, err)) != 0 ||
        (rc = checkpoint_size(&out->checkpoint, s, of->settings, err)) != 0)
        return rc;
    look_at_disk(out, of);
    return look_at_time(out, of, err);
}

/* -- telling ---------------------------------------------------------------------------------- */

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

static void duration(char text[48], double s)
{
    if (s < 100)
        snprintf(text, 48, "%.3g s", s);
    else if (s < 7200)
        snprintf(text, 48, "%.0f min", s / 60);
    else if (s < 48 * 3600)
        snprintf(text, 48, "%.1f h", s / 3600);
    else
        snprintf(text, 48, "%.1f days", s / 86400);
}

static void tell_data(const struct estimate *e)
{
    const char *about = e->sampled < e->rows ? "about " : "";
    char packed[64] = "", dropped[64] = "";

    if (e->dropped > 0)
        snprintf(dropped, sizeof dropped, " (%lld longer ones are dropped)",
                 (long long)e->dropped);
    if (!isnan(e->efficiency))
        snprintf(packed, sizeof packed, "; packed batches are %.1f %% full", 100 * e->efficiency);
    ckpt_log(CKPT_LOG_NOTE, "data: %lld rows%s, %s%.0f tokens in %lld steps; %.3g epochs of "
             "%lld steps", (long long)e->rows, dropped, about, e->tokens, (long long)e->steps,
             e->epochs, (long long)e->steps_per_epoch);
    ckpt_log(CKPT_LOG_NOTE, "lengths: %lld to %lld tokens, mean %.1f, 95 %% up to %lld; %s%.1f %% "
             "of rows are cut, %.1f %% of tokens have a loss%s", (long long)e->shortest,
             (long long)e->longest, e->mean, (long long)e->p95, about, 100 * e->truncated,
             100 * e->supervised, packed);
}

static void tell_disk(const struct estimate *e, const char *output_dir)
{
    const struct checkpoint_size *c = &e->checkpoint;
    char there[48] = "";

    if (e->disk_free != UINT64_MAX)
        snprintf(there, sizeof there, ", %.3f are free", gib(e->disk_free));
    ckpt_log(CKPT_LOG_NOTE, "disk: a checkpoint of %.3f GiB (model %.3f, states %.3f, optimizer "
             "%.3f, others %.3f); %lld at once and a final model of %.3f: %.3f%s", gib(c->all),
             gib(c->model), gib(c->states), gib(c->optimizer), gib(c->others), (long long)e->kept,
             gib(c->final_model), gib(e->disk), there);
    if (e->disk > e->disk_free)
        ckpt_log(CKPT_LOG_WARNING, "%s: %.3f GiB are needed, the disk has %.3f free: fewer "
                 "checkpoints with `save_total_limit`, or smaller ones", output_dir, gib(e->disk),
                 gib(e->disk_free));
}

void estimate_tell(const struct estimate *e, const char *output_dir)
{
    char step[48], all[48];

    ckpt_log(CKPT_LOG_NOTE, "memory of the host: %.3f GiB for each rank, %.3f for a checkpoint's "
             "copy (saves: %s)", gib(e->host), gib(e->snapshot), e->saves);
    tell_data(e);
    tell_disk(e, output_dir);
    ckpt_log(CKPT_LOG_NOTE, "FLOPs: %.4g a step, %.4g in all", e->flos_step, e->flos);
    if (isnan(e->seconds)) {
        ckpt_log(CKPT_LOG_NOTE, "time: not known, the device is not there");
        return;
    }
    duration(step, e->seconds_step);
    duration(all, e->seconds);
    ckpt_log(CKPT_LOG_NOTE, "time: at least %s a step, %s in all: matrix products alone, at the "
             "%.4g GFLOP/s of one timed on this device by one rank", step, all, 1e-9 * e->rate);
}
