/* session - see session.h. */
#include "trainer/run/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "formats/peft/peft.h"
#include "formats/place.h"
#include "formats/quant/quant.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/view.h"
#include "libckpt/io/path.h"
#include "trainer/fp8_cache.h"
#include "formats/families/arch.h"
#include "formats/families/family.h"
#include "trainer/model/init.h"
#include "trainer/model/lora.h"
#include "trainer/checkpoint/weights.h"

static bool ends_in(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);

    return n >= k && strcmp(path + n - k, tail) == 0;
}

static bool is_weights_file(const char *name)
{
    static const char *const tails[] = {".safetensors", ".pt", ".pth", ".bin",
                                        ".index.json"};

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (ends_in(name, tails[i]))
            return true;
    return false;
}

/* The directory in an archive, or in one on standard input. */
static int open_packed(struct ckpt_dir **out, const char *path, struct ckpt_err *err)
{
    struct ckpt_arena arena = {0};
    struct ckpt_place p;
    bool entered;
    int rc = place_open(&p, path, &(struct ckpt_open_opts){.follow = true}, &arena, err);

    if (rc == 0 && p.dir && !place_has(&p, "config.json"))
        rc = place_enter(&p, &arena, &entered, err);
    if (rc == 0 && !p.dir)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no config.json lies beside it, which tells what "
                       "model its weights are of", path);
    if (rc == 0) {
        *out = p.dir;
        p.dir = NULL;
    }
    place_close(&p);
    ckpt_arena_release(&arena);
    return rc;
}

/* The directory of a model and the description's name in it: path itself, also of an archive, or
 * the directory of a config.json or of a file of weights; on this machine the description may have
 * another name. */
static int open_model_dir(struct ckpt_dir **out, const char **config, const char *path,
                          struct ckpt_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool described = ends_in(name, ".json") && !ends_in(name, ".index.json");
    char dir[4096];

    *config = "config.json";
    if (strcmp(name, *config) == 0 ||
        ((described || is_weights_file(name)) && ckpt_path_is_file(path))) {
        if (described)
            *config = name;
        snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
        path = dir;
    } else if (strcmp(path, "-") == 0 || ckpt_path_is_file(path)) {
        return open_packed(out, path, err);
    }
    return ckpt_path_dir(out, path, CKPT_FOLLOW | CKPT_PROVE, err);
}

int session_device(struct device_opts *opts, char name[32], const struct comm *c,
                   struct ckpt_err *err)
{
    bool any = !opts->name || strcmp(opts->name, "auto") == 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int64_t mine = c->local_rank, gpus;

    if (!any && strncmp(opts->name, "cuda", 4) != 0) {
        opts->threads = opts->threads ? opts->threads : 1;
        return 0;
    }
    if (!any && opts->name[4] == ':')
        return ckpt_fail(err, CKPT_ECONFIG, "`device %s` needs one rank, there are %d: `device "
                         "cuda` gives each a GPU of its own", opts->name, c->world_size);
    gpus = device_gpu_count();
    if (any && gpus == 0) {
        opts->name = "cpu";
        opts->threads = opts->threads ? opts->threads : 1;
        return 0;
    }
    if (gpus == 1 && visible)           /* the launcher shows each rank its own */
        mine = 0;
    if (mine >= gpus) {
        ckpt_fail(err, CKPT_ECONFIG, "rank %d is number %d on its host, which has %d GPU%s",
                  c->rank, c->local_rank, (int)gpus, gpus == 1 ? "" : "s");
        return ckpt_err_hint(err, "a rank needs a GPU of its own: fewer ranks, or `device cpu`");
    }
    snprintf(name, 32, "cuda:%d", (int)mine);
    opts->name = name;
    return 0;
}

static int open_device(struct session *s, const struct device_opts *wanted, struct ckpt_err *err)
{
    struct device_opts opts = *wanted;
    char name[32];
    bool started = s->comm->world_size > 1 && !s->simulate.node;
    int rc = started ? session_device(&opts, name, s->comm, err) : 0;

    if (rc == 0)
        rc = device_open(&s->dev, &opts, err);
    if ((rc = comm_agree(s->comm, rc, err)) != 0)
        return rc;
    return s->simulate.node ? device_simulate(s->dev, s->comm, &s->simulate, err)
                            : device_join(s->dev, s->comm, err);
}

int session_check_vocabulary(const struct session *s, struct ckpt_err *err)
{
    int32_t own = tokenizer_own_size(s->tokenizer), all = tokenizer_size(s->tokenizer);
    int64_t rows = s->arch->vocab_size;

    if (own > rows)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: the tokenizer has %d ids, the model %lld "
                         "(vocab_size)", ckpt_dir_path(s->tokenizer_dir), own, (long long)rows);
    if (all > rows && s->comm->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "%s: tokens were added up to id %d, the model has %lld "
                 "(vocab_size): texts that need them are refused",
                 ckpt_dir_path(s->tokenizer_dir), all - 1, (long long)rows);
    return 0;
}

static int open_parts(struct session *s, const char *model_dir, const char *tokenizer_dir,
                      const struct device_opts *device, struct ckpt_err *err)
{
    const char *config;
    int rc;

    if ((rc = open_device(s, device, err)) != 0 ||
        (rc = open_model_dir(&s->model_dir, &config, model_dir, err)) != 0 ||
        (rc = arch_read(&s->arch, s->model_dir, config, err)) != 0)
        return rc;
    if (tokenizer_dir) {
        if ((rc = ckpt_path_dir(&s->tokenizer_dir, tokenizer_dir, CKPT_FOLLOW | CKPT_PROVE,
                                err)) != 0)
            return rc;
    } else if (tokenizer_in_dir(s->model_dir)) {
        if ((rc = open_model_dir(&s->tokenizer_dir, &config, model_dir, err)) != 0)
            return rc;
    }
    if (!s->tokenizer_dir)
        return 0;
    rc = tokenizer_open_dir(&s->tokenizer, s->tokenizer_dir, err);
    return rc || s->folded ? rc : session_check_vocabulary(s, err);
}

int session_join(struct session *s, int ranks, int64_t timeout_s, struct ckpt_err *err)
{
    int rc;

    memset(s, 0, sizeof *s);
    rc = ranks ? comm_open_single(&s->comm, ranks, err)
               : comm_open(&s->comm, timeout_s * 1000, err);
    s->shard = s->comm;
    return rc;
}

int session_split(struct session *s, int size, int node, struct ckpt_err *err)
{
    struct comm *c = s->comm, *within, *across;
    bool by_node = size < 0;
    int rc = 0;

    if (size == 0)
        return 0;
    if (by_node && c->planned)
        size = node;
    else if (by_node)
        rc = comm_split_node(&size, c, err);
    if (rc)
        return rc;
    if (by_node && size == c->world_size && c->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "hybrid sharding: all ranks are on one node: weights are sharded "
                 "over all of them, as by `fsdp full_shard`");
    if (by_node && size == 1 && c->world_size > 1 && c->rank == 0)
        ckpt_log(CKPT_LOG_WARNING, "hybrid sharding: every node has one rank: nothing is sharded");
    if (size == c->world_size)
        return 0;
    if ((rc = comm_split(&within, c, COMM_WITHIN, size, err)) != 0 ||
        (rc = comm_split(&across, c, COMM_ACROSS, size, err)) != 0)
        return rc;
    s->shard = within;
    s->replicas = across;
    return 0;
}

int session_open(struct session *s, const char *model_dir, const char *tokenizer_dir,
                 const struct device_opts *device, int ranks, struct ckpt_err *err)
{
    int rc;

    if (!s->comm && (rc = session_join(s, ranks, 0, err)) != 0)
        return rc;
    rc = open_parts(s, model_dir, tokenizer_dir, device, err);
    return comm_agree(s->comm, rc, err);
}

/* Lay an adapter over weights, which are added to in 32 bits and rounded once, when stored. */
static int fold(struct ckpt_source **src, const char *dir, struct ckpt_err *err)
{
    const struct ckpt_cast_rule wide = {"*", CKPT_F32};
    struct peft_adapter a = {.name = dir, .weight = 1};
    struct ckpt_source *base = *src;
    int rc;

    *src = NULL;
    if ((rc = ckpt_view_cast(&base, base, &wide, 1, err)) != 0)
        return rc;
    rc = ckpt_open_as(&a.source, "peft", dir, NULL, err);
    if (rc)
        ckpt_source_close(base);
    else
        rc = peft_merge(src, base, &a, 1, err);
    return rc ? ckpt_err_in(err, "%s", dir) : 0;
}

/* Quantised weights are seen as their values.  Opening tells of a tag that picks nothing, once. */
static int open_values(struct ckpt_source **src, struct session *s, const char *path,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_open_opts own = *opts;
    struct ckpt_source *below;
    int rc;

    *src = NULL;
    own.tag = s->untagged ? NULL : opts->tag;
    if ((rc = ckpt_open(&below, path, &own, err)) != 0)
        return rc;
    s->untagged = strcmp(ckpt_source_format(below), "deepspeed") != 0;
    rc = quant_view(src, below, err);
    return rc == 0 && s->folded ? fold(src, s->folded, err) : rc;
}

int session_untie(struct session *s, const char *path, const char *tag, struct ckpt_err *err)
{
    const char *head = arch_tied_name(s->arch);
    struct ckpt_open_opts opts = {.tag = tag, .follow = true};
    struct ckpt_source *src = NULL;
    bool differs = false;
    int rc = head ? open_values(&src, s, path, &opts, err) : 0;

    if (rc == 0 && head)
        rc = weights_head_differs(&differs, src, head, s->arch->family->prefix,
                                  arch_tokens_name(s->arch), err);
    ckpt_source_close(src);
    if (rc)
        ckpt_err_in(err, "%s", path);
    else if (differs && (rc = arch_untie(s->arch, err)) == 0 && s->comm->rank == 0 && !s->folded)
        ckpt_log(CKPT_LOG_WARNING, "%s: %s differs from the embedding that config.json ties it to; "
                 "it is kept apart", path, head);
    return comm_agree(s->comm, rc, err);
}

/* Does a parameter belong to the module whose path ends with that name? */
static bool names_module(const char *param, const char *name)
{
    size_t n = (size_t)(strrchr(param, '.') - param), k = strlen(name);

    return n >= k && strncmp(param + n - k, name, k) == 0 && (n == k || param[n - k - 1] == '.');
}

static void module_of(char module[CKPT_MAX_NAME + 1], const char *param)
{
    snprintf(module, CKPT_MAX_NAME + 1, "%.*s", (int)(strrchr(param, '.') - param), param);
}

/* ensure_weight_tying changes nothing but what is tied, where that is trained; rows of the
 * embedding are tied without it. */
static int check_tying(const struct lora *l, const char *tied, const char *tokens,
                       struct ckpt_err *err)
{
    char module[CKPT_MAX_NAME + 1];
    struct lora_delta c;
    int rc;

    if (!tied || !json_is_true(json_object_get(lora_config(l), "ensure_weight_tying")))
        return 0;
    module_of(module, tokens);
    if ((rc = lora_delta(&c, l, module, LORA_EMBEDDING, err)) != 0)
        return rc;
    if (c.rank || lora_saves(l, tied) || lora_saves(l, tokens))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "ensure_weight_tying: %s is trained apart from "
                         "%s here", module, tied);
    return 0;
}

/*
 * trainable_token_indices trains rows of the embedding, and of the head where it is tied; of other
 * modules only what says the same.
 */
static int check_tokens(const struct lora *l, const char *tied, const char *tokens,
                        struct ckpt_err *err)
{
    const json_t *all = json_object_get(lora_config(l), "trainable_token_indices");
    char module[CKPT_MAX_NAME + 1];
    const json_t *mine;
    const char *key;
    json_t *v;

    module_of(module, tokens);
    mine = lora_tokens(l, module);
    json_object_foreach ((json_t *)(uintptr_t)all, key, v)
        if (v != mine && !(tied && mine && names_module(tied, key) && json_equal(v, mine)))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "trainable_token_indices: %s: rows of %s are "
                             "trained by themselves, of no other module", key, module);
    if (tied && mine && (lora_saves(l, tied) || lora_saves(l, tokens)))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "trainable_token_indices: %s or %s is trained "
                         "whole as well (modules_to_save)", module, tied);
    return 0;
}

int session_adapt(struct session *s, const json_t *config, struct ckpt_err *err)
{
    const char *tied = arch_tied_name(s->arch);
    char tokens[CKPT_MAX_NAME + 1];
    int rc;

    if ((rc = lora_new(&s->lora, config, err)) != 0)
        return rc;
    snprintf(tokens, sizeof tokens, "%s%s", s->arch->family->prefix, arch_tokens_name(s->arch));
    if ((rc = check_tying(s->lora, tied, tokens, err)) != 0 ||
        (rc = check_tokens(s->lora, tied, tokens, err)) != 0)
        return rc;
    if (!tied)
        return 0;
    if (!lora_saves(s->lora, tied) && !lora_saves(s->lora, tokens))
        return 0;
    s->head_lent = true;
    return arch_untie(s->arch, err);
}

/* Assumed size of the CUDA context, and of what NCCL takes for each communicator, for dry_run
 * without a GPU: 0.5 and 0.9 GiB were seen on H200. */
#define PAPER_CONTEXT ((uint64_t)1 << 30)

static uint64_t paper_context(const struct session *s)
{
    int n = s->shard->world_size > 1;   /* communicators */

    return (uint64_t)(1 + n + (s->replicas != NULL)) * PAPER_CONTEXT;
}

/* Choose how memory is used: what is asked for becomes what is done. */
static int plan_memory(struct session *s, struct model_opts *with, struct ckpt_err *err)
{
    struct fit_opts o = {.arch = s->arch, .dev = s->dev, .world_size = s->shard->world_size,
                         .model = *with, .choose = with->recompute == RECOMPUTE_AUTO,
                         .zero = s->zero_opts, .free_bytes = s->dev->ops->free_bytes(s->dev),
                         .keep = s->reshard && strcmp(s->reshard, "false") == 0,
                         .reshard = s->reshard && strcmp(s->reshard, "true") == 0,
                         .batch = s->batch, .batch_option = s->batch_option};
    enum ckpt_dtype act = s->dev->act;
    bool discrete = s->dev->discrete;
    int rc;

    if (o.choose)
        o.model.recompute = RECOMPUTE_NONE;
    if (s->paper_limit) {
        s->dev->act = s->dev->weight;
        s->dev->discrete = true;
        o.free_bytes = s->paper_limit > paper_context(s) ? s->paper_limit - paper_context(s) : 0;
    }
    rc = fit_find(&s->fit, &o, err);
    s->dev->act = act;
    s->dev->discrete = discrete;
    with->recompute = s->fit.recompute;
    s->zero_opts.paged = s->fit.paged;
    s->zero_opts.optim_on_device = s->fit.optim_on_device;
    s->zero_opts.keep_weights = s->fit.keep_weights;
    s->zero_opts.keep_grads = s->fit.keep_grads;
    s->zero_opts.few = s->fit.few;
    return comm_agree(s->comm, rc, err);
}

/* Whether weights stay where they are, for copies of them in 8 bits. */
static bool keeps_weights(const struct session *s)
{
    return s->shard->world_size == 1 || s->zero_opts.stage < 3 || s->zero_opts.keep_weights;
}

int session_plan(struct session *s, const struct model_opts *opts, const struct zero_opts *zero,
                 struct ckpt_err *err)
{
    struct model_opts with = *opts;
    int rc;

    with.lora = s->lora;
    with.ranks = zero->stage > 0 ? s->shard->world_size : 1;
    s->zero_opts = *zero;
    s->zero_opts.replicas = s->replicas;
    s->zero_opts.train = opts->train;
    if ((rc = plan_memory(s, &with, err)) != 0)
        return rc;
    rc = model_new(&s->model, s->arch, &with, s->dev, err);
    if (rc == 0 && !with.dry)
        rc = zero_new(&s->zero, model_params(s->model), &s->zero_opts, s->dev, s->shard, err);
    if (rc == 0 && s->dev->fp8 && !s->zero_opts.offload_param && keeps_weights(s))
        rc = fp8_cache_lend(s->dev, model_params(s->model), s->fit.free_bytes - s->fit.all,
                            with.dry, err);
    return comm_agree(s->comm, rc, err);
}

int session_load(struct session *s, const char *path, const char *tag, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(s->zero);
    struct ckpt_open_opts opts = {.tag = tag, .follow = true, .prove = true};
    size_t *index = ckpt_alloc(flat->params->n, sizeof *index);
    struct ckpt_source *src = NULL;
    int rc = index ? open_values(&src, s, path, &opts, err)
                   : ckpt_nomem(err, flat->params->n * sizeof *index);

    if (rc == 0)
        rc = weights_match(index, flat->params, src, NULL,
                           s->head_lent ? "lm_head.weight" : arch_tied_name(s->arch), true, err);
    if (rc == 0)
        rc = weights_load(s->zero, ZERO_MASTER, src, index, NULL, err);
    if (rc)
        ckpt_err_in(err, "%s", path);
    ckpt_source_close(src);
    ckpt_free(index);
    return comm_agree(s->comm, rc, err);
}

int session_init_weights(struct session *s, uint64_t seed, struct ckpt_err *err)
{
    struct init init = {.arch = s->arch, .params = model_params(s->model), .seed = seed,
                        .threads = s->dev->threads};

    return comm_agree(s->comm, zero_fill(s->zero, ZERO_MASTER, init_fill, &init, err), err);
}

struct sample_pair session_pair(const struct session *s)
{
    return (struct sample_pair){.wanted = s->arch->stack == ARCH_ENCODER_DECODER,
                                .start = (int32_t)s->arch->decoder_start_token_id,
                                .pad = (int32_t)s->arch->label_pad_token_id};
}

/* What stage 3 has memory to keep. */
static const char *kept(const struct session *s)
{
    bool weights = s->fit.keep_weights, grads = s->fit.keep_grads;

    return s->zero_opts.stage < 3 ? ""
           : weights && grads     ? "; gathered weights stay, gradients are reduced once a step"
           : weights              ? "; gathered weights stay"
           : grads                ? "; gradients are reduced once a step" : "";
}

void session_describe(const struct session *s, int64_t max_steps)
{
    const struct params *p = model_params(s->model);
    const struct zero_size *z = &s->fit.zero;
    const double mib = 1.0 / (1 << 20);
    double weights = (double)(z->weights + s->dev->fp8_cache_bytes);
    double all = (double)(s->fit.all + s->dev->fp8_cache_bytes);
    char of[64] = "", groups[64] = "";

    if (s->replicas)
        snprintf(groups, sizeof groups, " in groups of %d", s->shard->world_size);
    ckpt_log(CKPT_LOG_NOTE, "model: %.2f M parameters in %d blocks", (double)p->numel * 1e-6,
             p->n_layers - 2);
    if (p->adapted)
        ckpt_log(CKPT_LOG_NOTE, "adapter: %.3f M parameters are trained (%.3g %%), the rest is "
                 "frozen", (double)p->grad_numel * 1e-6,
                 100.0 * (double)p->grad_numel / (double)p->numel);
    if (s->paper_limit)
        ckpt_log(CKPT_LOG_NOTE, "device: a GPU of %.2f GiB that is not there, %s; workspace as the "
                 "CPU's", (double)s->paper_limit / (1 << 30), ckpt_dtype_name(s->dev->weight));
    else if (s->dev->discrete)
        ckpt_log(CKPT_LOG_NOTE, "device: %s, %s%s", s->dev->label, ckpt_dtype_name(s->dev->act),
                 s->dev->untimed ? "; products are timed as they are first met, once on this GPU: "
                                   "the first step takes longer" : "");
    if (!s->dev->discrete && !s->paper_limit)
        ckpt_log(CKPT_LOG_NOTE, "ranks: %d (%s), ZeRO stage %d%s, %d thread%s each",
                 s->comm->world_size, s->comm->ops->name, s->zero_opts.stage, groups,
                 s->dev->threads, s->dev->threads == 1 ? "" : "s");
    else if (s->comm->world_size > 1)
        ckpt_log(CKPT_LOG_NOTE, "ranks: %d (%s), ZeRO stage %d%s%s", s->comm->world_size,
                 comm_on_device(s->replicas ? s->replicas : s->comm)->ops->name,
                 s->zero_opts.stage, groups, kept(s));
    if (s->fit.free_bytes != UINT64_MAX)
        snprintf(of, sizeof of, " of %.1f", (double)s->fit.free_bytes * mib);
    ckpt_log(CKPT_LOG_NOTE,
             "memory of a rank: weights %.1f, gradients %.1f, optimizer %.1f, gathered %.1f, "
             "activations %.1f, workspace %.1f: %.1f%s MiB", weights * mib,
             (double)z->grads * mib, (double)(z->optim + z->ring) * mib,
             (double)z->gathered * mib, (double)s->fit.activations * mib,
             (double)s->fit.workspace * mib, all * mib, of);
    if (z->optim_host || z->weights_host)
        ckpt_log(CKPT_LOG_NOTE, "on the host: optimizer %.1f, weights %.1f, gradients %.1f: %.1f "
                 "MiB%s", (double)z->optim_host * mib, (double)z->weights_host * mib,
                 (double)z->grads_host * mib,
                 (double)(z->optim_host + z->weights_host + z->grads_host) * mib,
                 s->comm->world_size > 1 ? " of each rank" : "");
    if (s->fit.recompute == RECOMPUTE_NORMS)
        ckpt_log(CKPT_LOG_NOTE, "recomputing norms and activations in the backward pass");
    ckpt_log(CKPT_LOG_NOTE, "steps: %lld", (long long)max_steps);
}

void session_unplan(struct session *s)
{
    model_free(s->model);
    zero_free(s->zero);
    s->model = NULL;
    s->zero = NULL;
    s->comm->agreed = false;
}

void session_close(struct session *s, int rc, const struct ckpt_err *err)
{
    /* A rank that fails alone must not leave its peers waiting for it in a collective. */
    if (rc && s->comm && !s->comm->agreed && !s->comm->err.code)
        s->comm->err = *err;
    comm_leave_device(s->comm);
    model_free(s->model);
    zero_free(s->zero);
    tokenizer_close(s->tokenizer);
    lora_free(s->lora);
    arch_free(s->arch);
    ckpt_dir_close(s->tokenizer_dir);
    ckpt_dir_close(s->model_dir);
    device_close(s->dev);
    comm_close(s->comm);
    memset(s, 0, sizeof *s);
}
