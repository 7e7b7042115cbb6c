/* fit - see fit.h. */
#include "trainer/plan/fit.h"

#include <stdio.h>
#include <string.h>

static uint64_t sum_of(const struct fit *f)
{
    return f->zero.weights + f->zero.grads + f->zero.optim + f->zero.ring + f->zero.gathered +
           f->activations + f->workspace;
}

/* What stage 3 keeps beside the layers in work, where memory allows: what costs least first. */
static const struct keep {
    bool weights, grads, few;
} keeps[] = {{true, true, false}, {true, false, false}, {false, true, false},
             {false, false, false}, {false, false, true}};
enum { KEEPS = sizeof keeps / sizeof keeps[0], KEEP_NONE = KEEPS - 2, KEEP_FEW };

/* A way to use memory: more of it first. */
struct choice {
    enum recompute level;
    bool           paged;
    int            keep;
};

/* Bytes of zero's arrays with so much of the states on the device. */
static int measure_zero(struct fit *f, const struct fit_opts *o, const struct params *p,
                        uint64_t on_device, struct ckpt_err *err)
{
    struct zero_opts zero = o->zero;
    int rc;

    zero.train = o->model.train;
    zero.offload = false;
    zero.paged = f->paged;
    zero.optim_on_device = f->optim_on_device = on_device;
    zero.keep_weights = f->keep_weights;
    zero.keep_grads = f->keep_grads;
    zero.few = f->few;
    rc = zero_size(&f->zero, p, &zero, o->world_size, o->dev, err);
    f->all = sum_of(f);
    return rc;
}

/* Activations at a level of recompute, and the parameters' sizes for what is asked of zero. */
static int measure(struct fit *f, const struct fit_opts *o, struct ckpt_err *err)
{
    struct model_opts with = o->model;
    struct model *m;
    int rc;

    with.dry = true;
    with.recompute = f->recompute;
    if ((rc = model_new(&m, o->arch, &with, o->dev, err)) != 0)
        return rc;
    f->workspace = model_work_bytes(m);
    f->activations = model_arena_bytes(m) - f->workspace;
    rc = measure_zero(f, o, model_params(m), 0, err);
    if (rc == 0 && f->paged && !o->zero.offload && f->all < f->free_bytes)
        rc = measure_zero(f, o, model_params(m), f->free_bytes - f->all, err);
    model_free(m);
    return rc;
}

static int try_way(struct fit *f, const struct fit_opts *o, const struct choice *c,
                   struct ckpt_err *err)
{
    *f = (struct fit){.free_bytes = o->free_bytes, .recompute = c->level, .paged = c->paged,
                      .keep_weights = keeps[c->keep].weights, .keep_grads = keeps[c->keep].grads,
                      .few = keeps[c->keep].few};
    return measure(f, o, err);
}

/* Whether a way fits, for a hint: one that cannot be measured does not. */
static bool fits(struct fit *f, const struct fit_opts *o, enum recompute level, bool paged)
{
    struct choice c = {level, paged, KEEP_FEW};
    struct ckpt_err unused;

    return try_way(f, o, &c, &unused) == 0 && f->all <= f->free_bytes;
}

/* -- what would fit --------------------------------------------------------------------------- */

/* Ways that cost little before those that cost much. */
static const struct way {
    const char     *words;
    enum recompute  level;
    bool            coded, paged, streamed;
} ways[] = {
    {"`recompute norms`", RECOMPUTE_NORMS, false, false, false},
    {"`gradient_checkpointing`", RECOMPUTE_FULL, false, false, false},
    {"`optim adamw_8bit`", RECOMPUTE_NONE, true, false, false},
    {"`gradient_checkpointing` `optim adamw_8bit`", RECOMPUTE_FULL, true, false, false},
    {"`optim paged_adamw_8bit`", RECOMPUTE_NONE, true, true, false},
    {"`gradient_checkpointing` `optim paged_adamw_8bit`", RECOMPUTE_FULL, true, true, false},
    {"`offload_param cpu`", RECOMPUTE_NONE, false, true, true},
    {"`gradient_checkpointing` `offload_param cpu`", RECOMPUTE_FULL, false, true, true},
};

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

/* Another level of recompute, moments or place. */
static bool hint_way(const struct fit_opts *o, struct ckpt_err *err)
{
    for (size_t i = 0; o->model.train && i < sizeof ways / sizeof ways[0]; i++) {
        struct fit_opts with = *o;
        struct fit f;

        if (ways[i].level < o->model.recompute ||
            (ways[i].streamed && (o->zero.replicas || (o->world_size > 1 && o->zero.stage == 0))) ||
            (ways[i].streamed && o->dev->weight == CKPT_F32))
            continue;
        with.zero.offload_param |= ways[i].streamed;
        with.zero.moments = ways[i].coded ? OP_MOMENTS_8BIT : o->zero.moments;
        if (fits(&f, &with, ways[i].level, ways[i].paged || o->zero.offload)) {
            ckpt_err_hint(err, "%s makes it %.2f GiB", ways[i].words, gib(f.all));
            return true;
        }
    }
    return false;
}

static int64_t part(int64_t n, int64_t of, int64_t all)
{
    int64_t k = n / all * of + (n % all * of + all - 1) / all;

    return n > 0 && k < 1 ? 1 : k;
}

/* Whether it fits with of/all of what is worked on at once. */
static bool fits_part(struct fit *f, const struct fit_opts *o, enum recompute level, int64_t of,
                      int64_t all, bool docs_too)
{
    struct fit_opts with = *o;

    with.model.max_tokens = part(o->model.max_tokens, of, all);
    with.model.max_rows = part(o->model.max_rows, of, all);
    with.model.max_enc = part(o->model.max_enc, of, all);
    if (docs_too)
        with.model.max_docs = part(o->model.max_docs, of, all);
    return fits(f, &with, level, o->zero.offload && o->model.train);
}

/* Fewer samples at once, where there are several, or shorter ones. */
static bool hint_less(const struct fit_opts *o, struct ckpt_err *err)
{
    enum recompute level = o->model.recompute;
    struct fit f;

    for (int pass = 0; pass < (o->model.train && level < RECOMPUTE_FULL ? 2 : 1); pass++) {
        const char *also = pass ? "`gradient_checkpointing` " : "";

        for (int64_t b = o->batch / 2; b >= 1 && o->batch_option; b /= 2)
            if (fits_part(&f, o, pass ? RECOMPUTE_FULL : level, b, o->batch, true)) {
                ckpt_err_hint(err, "%s`%s %lld` makes it %.2f GiB", also, o->batch_option,
                              (long long)b, gib(f.all));
                return true;
            }
    }
    for (int64_t by = 2; by <= 16 && o->model.max_tokens / by >= 16; by *= 2)
        if (fits_part(&f, o, level, 1, by, false)) {
            ckpt_err_hint(err, "samples of 1/%lld of the length make it %.2f GiB: "
                          "`max_seq_length`", (long long)by, gib(f.all));
            return true;
        }
    return false;
}

static int refuse(const struct fit *f, const struct fit_opts *o, struct ckpt_err *err)
{
    uint64_t fixed = f->all - f->activations - f->workspace;

    int rc = ckpt_fail(
        err, CKPT_ENOMEM, "%s: %.2f GiB are needed (weights %.2f, gradients %.2f, optimizer "
        "%.2f, gathered %.2f, activations %.2f, workspace %.2f), %.2f may be taken",
        o->dev->discrete && o->dev->label[0] ? o->dev->label : "the limit", gib(f->all),
        gib(f->zero.weights), gib(f->zero.grads), gib(f->zero.optim + f->zero.ring),
        gib(f->zero.gathered), gib(f->activations), gib(f->workspace), gib(f->free_bytes));

    if (!hint_way(o, err) && !hint_less(o, err) && fixed > f->free_bytes)
        ckpt_err_hint(err, "the model takes %.2f GiB without any data: more memory, a smaller "
                      "model%s", gib(fixed), o->model.train ? ", or an adapter (`lora_rank`)" : "");
    return rc;
}

/* Whether so much of what is gathered may be kept.  Unless they are asked to, ranks on CPUs keep
 * nothing: their memory is not theirs alone. */
static bool may_keep(const struct fit_opts *o, int k)
{
    bool streamed = o->zero.offload_param && o->zero.stage > 0 && o->world_size > 1;
    bool gathers = o->zero.stage == 3 && o->world_size > 1;

    if (streamed)
        return k == KEEP_NONE || (k == KEEP_FEW && o->dev->discrete);
    if (!gathers || k == KEEP_NONE)
        return k == KEEP_NONE && !(gathers && o->keep);
    if (o->keep)
        return keeps[k].weights && (o->model.train || !keeps[k].grads);
    return o->dev->discrete && !(o->reshard && keeps[k].weights) &&
           (o->model.train || !keeps[k].grads);
}

/* All ways in the order of their cost; returns how many. */
static int choices(struct choice c[2 * KEEPS + 1], const struct fit_opts *o)
{
    enum recompute level = o->model.recompute;
    bool train = o->model.train, must = o->zero.offload && train;
    enum recompute norms = o->choose && train && level < RECOMPUTE_NORMS ? RECOMPUTE_NORMS : level;
    int n = 0, least = KEEP_NONE;

    for (int k = 0; k < KEEPS; k++) {
        if (!may_keep(o, k))
            continue;
        least = k;
        c[n++] = (struct choice){level, must, k};
        if (norms != level)
            c[n++] = (struct choice){norms, must, k};
    }
    if (o->zero.paged && train && !must)
        c[n++] = (struct choice){norms, true, least};
    return n;
}

int fit_find(struct fit *out, const struct fit_opts *o, struct ckpt_err *err)
{
    struct choice c[2 * KEEPS + 1];
    uint64_t host = fit_host_free(), there;
    int n = choices(c, o), rc = 0;
    bool found = false;

    for (int i = 0; i < n && rc == 0 && !found; i++) {
        rc = try_way(out, o, &c[i], err);
        found = rc == 0 && out->all <= out->free_bytes;
    }
    if (rc == 0 && !found) {
        c[n - 1].level = o->model.recompute;
        if ((rc = try_way(out, o, &c[n - 1], err)) == 0)
            rc = refuse(out, o, err);
    }
    if (rc)
        return rc;
    there = out->zero.optim_host + out->zero.weights_host + out->zero.grads_host;
    return there > host ? ckpt_fail(err, CKPT_ENOMEM, "%.2f GiB are to lie on the host, which has "
                                    "%.2f left", (double)there / (1 << 30),
                                    (double)host / (1 << 30)) : 0;
}

/* The number that a file of the system begins with; UINT64_MAX: none ("max"). */
static uint64_t number_in(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long long n = 0;
    bool found = f && fscanf(f, "%llu", &n) == 1;

    if (f)
        fclose(f);
    return found ? n : UINT64_MAX;
}

/* The number after a word of such a file; 0: none. */
static uint64_t number_of(const char *path, const char *word)
{
    FILE *f = fopen(path, "r");
    unsigned long long n = 0;
    size_t k = strlen(word);
    char line[256];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, word, k) == 0 && sscanf(line + k, " %llu", &n) == 1;
    if (f)
        fclose(f);
    return found ? n : 0;
}

/* Free bytes of the container, by version 2 of control groups or version 1: cached files count as
 * free. */
static uint64_t group_free(void)
{
    static const char *const files[][3] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
         "/sys/fs/cgroup/memory.stat"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat"},
    };

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        uint64_t most = number_in(files[i][0]), used = number_in(files[i][1]);
        uint64_t kept = number_of(files[i][2], "inactive_file ") +
                        number_of(files[i][2], "active_file ");

        if (most == UINT64_MAX || used == UINT64_MAX)
            continue;
        used -= kept < used ? kept : used;
        return most > used ? most - used : 0;
    }
    return UINT64_MAX;
}

uint64_t fit_host_free(void)
{
    uint64_t kib = number_of("/proc/meminfo", "MemAvailable:"), group = group_free();
    uint64_t host = kib ? kib * 1024 : UINT64_MAX;

    return host < group ? host : group;
}
