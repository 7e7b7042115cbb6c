/* opened - see opened.h. */
#include "tools/eval/opened.h"

#include <stdio.h>
#include <string.h>

#include "formats/families/arch.h"
#include "formats/place.h"
#include "libckpt/io/path.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/model/rope.h"
#include "trainer/run/model_find.h"

void eval_close(struct eval_opened *e, int rc, const struct ckpt_err *err)
{
    choices_close(e->choices);
    loader_close(e->loader);
    data_source_close(e->source);
    records_close(e->records);
    session_close(&e->s, rc, err);
}

/* Whether windows are possible. */
static int check_stride(const struct eval_opened *e, struct ckpt_err *err)
{
    int64_t window = e->w->rows.max_seq_length, most = arch_max_positions(e->s.arch);

    if (e->s.arch->stack != ARCH_DECODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--stride is for models with a decoder alone");
    if (e->w->stride > window)
        return ckpt_fail(err, CKPT_EUSAGE, "--stride %lld is more than --max-seq-length %lld: "
                         "tokens would be left out", (long long)e->w->stride, (long long)window);
    if (most > 0 && window > most)
        return ckpt_fail(err, CKPT_EUSAGE, "--max-seq-length %lld: the model has positions for "
                         "%lld", (long long)window, (long long)most);
    return 0;
}

static int open_choices(struct eval_opened *e, struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    bool limited = opt_has(&w->given, "max_seq_length");
    struct choices_opts opts = {.prompt_template = w->rows.prompt_template, .words = w->choice,
                                .max_length = limited ? w->rows.max_seq_length : 0,
                                .batch = w->batch_size, .split = w->split};

    return choices_open(&e->choices, e->records, &e->s, &opts, err);
}

static int open_data(struct eval_opened *e, struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    struct records_opts rows = w->rows.rows;
    struct data_opts opts = data_settings_opts(&w->rows);
    struct loader_opts lo = {.grad_accum = 1, .tail = SHUFFLE_MASK,
                             .world_size = 1};
    int rc;

    lo.micro_batch = rope_batch(e->s.arch, w->batch_size, w->rows.max_seq_length);
    rows.split = w->eval_split;
    rows.stream_tokens = w->rows.max_seq_length;
    if ((rc = records_open_with(&e->records, w->data.item, w->data.n, &rows, err)) != 0)
        return rc;
    if (records_count(e->records) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no records%s%s", w->data.item[0],
                         w->eval_split ? " in " : "", w->eval_split ? w->eval_split : "");
    if (w->max_eval_samples > 0)
        records_slice(e->records, 0, w->max_eval_samples);
    if (w->task)
        return open_choices(e, err);
    opts.stop = &cli_stop;
    opts.pair = session_pair(&e->s);
    if ((rc = data_settings_pair(&opts.pair, &w->rows, err)) != 0)
        return rc;
    opts.chat_dir = e->s.tokenizer_dir;
    opts.vocab_size = e->s.arch->vocab_size;
    opts.max_positions = arch_max_positions(e->s.arch);
    if (w->stride) {
        if ((rc = check_stride(e, err)) != 0)
            return rc;
        opts.max_seq_length = INT32_MAX - 1;
        opts.max_positions = 0;         /* windows fit them */
    }
    if ((rc = data_source_open(&e->source, e->records, e->s.tokenizer, &opts, err)) != 0 ||
        (rc = data_settings_check_bad(&w->rows, e->source, err)) != 0)
        return rc;
    if (w->stride)
        return 0;
    return loader_open(&e->loader, e->source, &lo, err);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_described(const char *path)
{
    struct ckpt_arena arena = {0};
    struct ckpt_err ignored = {0};
    struct ckpt_place p;
    bool entered, is = false;

    if (place_open(&p, path, &(struct ckpt_open_opts){.follow = true}, &arena, &ignored) == 0) {
        is = p.dir && (place_has(&p, "config.json") ||
                       (place_enter(&p, &arena, &entered, &ignored) == 0 && entered && p.dir &&
                        place_has(&p, "config.json")));
        place_close(&p);
    }
    ckpt_arena_release(&arena);
    return is;
}

/*
 * Where the description of weights lies: with them; else, for checkpoints of shards alone and for a
 * stream, in the folder around them, the tokenizer's or the base's.
 */
static void find_description(char dir[4096], const struct eval_want *w, const char *path)
{
    const char *elsewhere[] = {w->tokenizer, w->base};
    struct ckpt_err ignored = {0};
    char around[4096], found[4096];
    size_t n;

    model_dir(dir, path);
    if (ckpt_path_is_remote(path) || is_described(dir))
        return;
    snprintf(around, sizeof around, "%s", dir);
    for (n = strlen(around); n > 1 && around[n - 1] == '/';)
        around[--n] = '\0';
    if (strrchr(around, '/') && strrchr(around, '/') != around) {
        *strrchr(around, '/') = '\0';
        if (is_described(around)) {
            snprintf(dir, 4096, "%s", around);
            return;
        }
    }
    for (size_t i = 0; i < 2; i++)
        if (elsewhere[i] && model_find(found, elsewhere[i], &ignored) == 0) {
            model_dir(around, found);
            if (is_described(around)) {
                snprintf(dir, 4096, "%s", around);
                return;
            }
        }
}

/* What a folder or a stream without a description wants. */
static void hint_description(int rc, const char *dir, struct ckpt_err *err)
{
    if (rc != CKPT_ENOTFOUND || err->hint[0] || ckpt_path_is_remote(dir) || is_described(dir))
        return;
    if (ckpt_path_is_dir(dir))
        ckpt_err_hint(err, "weights without a config.json: --tokenizer DIR or --base MODEL may "
                      "have it; --results DIR finds the newest checkpoint of runs in a folder");
    else
        ckpt_err_hint(err, "--tokenizer DIR or --base MODEL may have it; of ckpt-merge, "
                      "`--to hf -o -` sends it too");
}

/* The base that an adapter names. */
static int find_base(char path[4096], const json_t *config, const char *adapter,
                     struct ckpt_err *err)
{
    const char *name = json_string_value(json_object_get(config, "base_model_name_or_path"));
    int rc = name && *name ? adapter_base(path, config, adapter, err) : 0;

    if (rc)
        return rc;
    if (!name || !*name)
        ckpt_fail(err, CKPT_ENOTFOUND,
                  "%s: an adapter, and its adapter_config.json names no base model", adapter);
    else if (ckpt_path_is_remote(path) || ckpt_path_is_dir(path) || ckpt_path_is_file(path))
        return 0;
    else
        ckpt_fail(err, CKPT_ENOTFOUND, "%s: an adapter, its base model %s is no directory here",
                  adapter, name);
    return ckpt_err_hint(err, "`--adapter %s MODEL` applies it to a model that is elsewhere",
                         adapter);
}

static int adapt(struct session *s, const json_t *config, const char *adapter, const char *model,
                 struct ckpt_err *err)
{
    int rc = session_adapt(s, config, err);

    return rc != CKPT_EUNSUPPORTED || !json_array_size(json_object_get(config, "layer_replication"))
               ? rc : ckpt_err_hint(err, "`ckpt-merge --adapter %s --to hf -o - %s | ckpt-eval -` "
                                    "evaluates the merged model", adapter, model);
}

/* Open a model; an adapter's directory means its base with the adapter. */
static int open_session(struct eval_opened *e, char path[4096], const char *model,
                        const char *adapter, struct ckpt_err *err)
{
    struct device_opts device = {.name = e->w->device, .threads = (int)e->w->threads,
                                 .weights = e->w->dtype ? ckpt_dtype_parse(e->w->dtype)
                                                        : CKPT_F32};
    json_t *config = NULL;
    char dir[4096];
    bool must = false;
    int64_t vocab;
    int rc = 0;

    snprintf(path, 4096, "%s", model);
    if (adapter)
        rc = adapter_config_read(&config, adapter, err);
    if (rc == 0 && adapter == model)
        rc = find_base(path, config, adapter, err);
    else if (rc == 0 && adapter_lies_at(model) && !is_described(model))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: an adapter itself, and --adapter %s needs a model",
                       model, adapter);
    e->s.folded = adapter;              /* unless it is found that it need not be */
    find_description(dir, e->w, path);
    if (rc == 0 && (rc = session_open(&e->s, dir, e->w->tokenizer, &device, 1, err)) != 0)
        hint_description(rc, dir, err);
    if (rc == 0)
        e->s.dev->stop = &cli_stop;
    if (rc == 0 && adapter)
        rc = adapter_must_fold(&must, &vocab, config, adapter, e->s.arch, err);
    if (rc == 0 && adapter) {
        e->s.folded = must ? adapter : NULL;
        e->s.arch->vocab_size = vocab;
        if (e->s.tokenizer)
            rc = session_check_vocabulary(&e->s, err);
    }
    if (rc == 0 && adapter && !must && adapt(&e->s, config, adapter, path, err))
        rc = ckpt_err_in(err, "%s", adapter);
    json_decref(config);
    return rc;
}

int eval_open(struct eval_opened *e, const char *model, const char *adapter, struct ckpt_err *err)
{
    int64_t most = e->w->rows.max_seq_length;
    struct model_opts opts = {.max_tokens = most, .max_docs = 1, .max_rows = most,
                              .max_enc = most};
    char path[4096];
    int rc;

    if ((rc = open_session(e, path, model, adapter, err)) != 0)
        return rc;
    if (e->w->data.n && (rc = open_data(e, err)) != 0)
        return rc;
    if (e->choices)
        opts = choices_plan(e->choices);
    if (e->choices || e->loader) {
        e->s.batch = e->w->batch_size;
        e->s.batch_option = "batch_size";
    }
    if (e->loader) {
        opts.max_tokens = larger(opts.max_tokens, loader_max_tokens(e->loader));
        opts.max_docs = larger(opts.max_docs, loader_max_docs(e->loader));
        opts.max_rows = larger(opts.max_rows, loader_max_rows(e->loader));
        opts.max_enc = larger(opts.max_enc, loader_max_enc(e->loader));
    }
    if ((rc = session_untie(&e->s, path, e->w->tag, err)) != 0 ||
        (rc = session_plan(&e->s, &opts, &(struct zero_opts){.stage = 0}, err)) != 0 ||
        (rc = session_load(&e->s, path, e->w->tag, err)) != 0)
        return rc;
    return e->s.lora ? adapter_load(&e->s, adapter, err) : 0;
}
