/* eval - see eval.h. */
#include "tools/eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/eval/hidden.h"
#include "tools/eval/logits.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/data/loader.h"
#include "trainer/run/evaluate.h"
#include "formats/families/arch.h"
#include "trainer/model/generate/config.h"
#include "trainer/run/model_find.h"
#include "trainer/run/session.h"

/* Everything that is open while one model is evaluated. */
struct eval {
    const struct eval_want *w;
    struct session          s;
    struct records         *records;
    struct data_source     *source;
    struct loader          *loader;
};

static void close_eval(struct eval *e, int rc, const struct ckpt_err *err)
{
    loader_close(e->loader);
    data_source_close(e->source);
    records_close(e->records);
    session_close(&e->s, rc, err);
}

static int open_data(struct eval *e, struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    struct records_opts rows = w->rows.rows;
    struct data_opts opts = data_settings_opts(&w->rows);
    struct loader_opts lo = {.micro_batch = w->batch_size, .grad_accum = 1, .tail = SHUFFLE_MASK,
                             .rank = e->s.comm->rank, .world_size = e->s.comm->world_size};
    int rc;

    rows.split = w->eval_split;
    rows.stream_tokens = w->rows.max_seq_length;
    if ((rc = records_open_with(&e->records, w->data.item, w->data.n, &rows, err)) != 0)
        return rc;
    if (w->max_eval_samples > 0)
        records_slice(e->records, 0, w->max_eval_samples);
    opts.stop = &cli_stop;
    opts.pair = session_pair(&e->s);
    opts.chat_dir = e->s.tokenizer_dir;
    opts.vocab_size = e->s.arch->vocab_size;
    opts.max_positions = arch_max_positions(e->s.arch);
    if ((rc = data_source_open(&e->source, e->records, e->s.tokenizer, &opts, err)) != 0 ||
        (rc = data_settings_check_bad(&w->rows, e->source, err)) != 0)
        return rc;
    return loader_open(&e->loader, e->source, &lo, err);
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* Open a model; an adapter's directory means its base with the adapter. */
static int open_session(struct eval *e, char path[4096], const char *model, const char *adapter,
                        struct ckpt_err *err)
{
    struct device_opts device = {.name = e->w->device, .threads = (int)e->w->threads,
                                 .weights = e->w->dtype ? ckpt_dtype_parse(e->w->dtype)
                                                        : CKPT_F32};
    json_t *config = NULL;
    char dir[4096];
    int rc = 0;

    snprintf(path, 4096, "%s", model);
    if (adapter)
        rc = adapter_config_read(&config, adapter, err);
    if (rc == 0 && adapter == model)
        rc = adapter_base(path, config, adapter, err);
    model_dir(dir, path);
    if (rc == 0)
        rc = session_open(&e->s, dir, e->w->tokenizer, &device, 1, err);
    if (rc == 0 && adapter)
        rc = session_adapt(&e->s, config, err);
    json_decref(config);
    return rc;
}

static int open_eval(struct eval *e, const char *model, const char *adapter, struct ckpt_err *err)
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
    if (e->loader) {
        opts.max_tokens = larger(opts.max_tokens, loader_max_tokens(e->loader));
        opts.max_docs = larger(opts.max_docs, loader_max_docs(e->loader));
        opts.max_rows = larger(opts.max_rows, loader_max_rows(e->loader));
        opts.max_enc = larger(opts.max_enc, loader_max_enc(e->loader));
        e->s.batch = e->w->batch_size;
        e->s.batch_option = "batch_size";
    }
    if ((rc = session_untie(&e->s, path, e->w->tag, err)) != 0 ||
        (rc = session_plan(&e->s, &opts, &(struct zero_opts){.stage = 0}, err)) != 0 ||
        (rc = session_load(&e->s, path, e->w->tag, err)) != 0)
        return rc;
    return adapter ? adapter_load(&e->s, adapter, err) : 0;
}

/* -- continuations --------------------------------------------------------------------------- */

static int add_prompt(struct eval_result *r, char *prompt, char *reference, struct ckpt_err *err)
{
    if (!prompt || !reference) {
        ckpt_free(prompt);
        ckpt_free(reference);
        return ckpt_nomem(err, 64);
    }
    r->prompt[r->n] = prompt;
    r->reference[r->n++] = reference;
    return 0;
}

/* Collect prompts: those of the command line, then of the first rows. */
static int collect_prompts(struct eval *e, struct eval_result *r, struct ckpt_err *err)
{
    int64_t rows = e->source ? data_source_count(e->source) : 0;
    size_t most;
    int rc;

    rows = rows < e->w->generate ? rows : e->w->generate;
    most = e->w->prompt.n + (size_t)rows;
    r->prompt = ckpt_alloc(most, sizeof *r->prompt);
    r->reference = ckpt_alloc(most, sizeof *r->reference);
    r->text = ckpt_alloc(most, sizeof *r->text);
    if (!r->prompt || !r->reference || !r->text)
        return ckpt_nomem(err, most * sizeof *r->text);
    for (size_t i = 0; i < e->w->prompt.n; i++)
        if ((rc = add_prompt(r, ckpt_strdup(e->w->prompt.item[i]), ckpt_strdup(""), err)) != 0)
            return rc;
    for (int64_t i = 0; i < rows; i++) {
        char *prompt, *completion;

        if ((rc = data_source_text(e->source, i, &prompt, &completion, err)) != 0 ||
            (rc = add_prompt(r, prompt, completion, err)) != 0)
            return rc;
    }
    return 0;
}

/* An encoder's inputs end in eos, as in training. */
static int add_eos(struct encoding *enc, int32_t eos, struct ckpt_err *err)
{
    void *p;

    if (eos < 0 || enc->id[enc->n - 1] == eos)
        return 0;
    p = ckpt_grow(enc->id, enc->n + 1, sizeof *enc->id);
    if (!p)
        return ckpt_nomem(err, enc->n);
    enc->id = p;
    enc->id[enc->n++] = eos;
    return 0;
}

/* Refuse an option that this way of generating does not use. */
static int check_use(const struct generate_opts *o, const struct eval_want *w,
                     struct ckpt_err *err)
{
    const struct { const char *name, *option; bool used; const char *by; } of[] = {
        {"temperature", "temperature", o->do_sample, "do-sample"},
        {"top_k", "top-k", o->do_sample, "do-sample"},
        {"top_p", "top-p", o->do_sample, "do-sample"},
        {"min_p", "min-p", o->do_sample, "do-sample"},
        {"length_penalty", "length-penalty", o->num_beams > 1, "num-beams"},
        {"early_stopping", "early-stopping", o->num_beams > 1, "num-beams"},
    };

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (opt_has(&w->given, of[i].name) && !of[i].used)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect without --%s", of[i].option,
                             of[i].by);
    return 0;
}

/* Take the model's own choices, unless an option says otherwise. */
static int choices(struct generate_opts *o, const struct generate_config *c,
                   const struct eval_want *w, const int32_t *eos, struct ckpt_err *err)
{
#define FIELD(name) {#name, offsetof(struct generate_opts, name), sizeof o->name}
    static const struct { const char *name; size_t at, size; } of[] = {
        FIELD(max_new_tokens), FIELD(min_new_tokens), FIELD(top_k), FIELD(no_repeat_ngram_size),
        FIELD(num_beams), FIELD(temperature), FIELD(top_p), FIELD(min_p),
        FIELD(repetition_penalty), FIELD(length_penalty), FIELD(do_sample),
    };
#undef FIELD
    int rc;

    *o = c->opts;
    if (o->n_eos == 0 && *eos >= 0) {
        o->eos = eos;
        o->n_eos = 1;
    }
    o->seed = (uint64_t)w->seed;
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (opt_has(&w->given, of[i].name))
            memcpy((char *)o + of[i].at, (const char *)&w->gen + of[i].at, of[i].size);
    if (w->early_stopping)
        o->early_stopping = strcmp(w->early_stopping, "true") == 0    ? GENERATE_FULL
                            : strcmp(w->early_stopping, "never") == 0 ? GENERATE_NEVER
                                                                      : GENERATE_LIKELY;
    if (opt_has(&w->given, "max_new_tokens"))
        o->max_length = 0;              /* max_new_tokens has precedence, as in transformers */
    if (opt_has(&w->given, "min_new_tokens"))
        o->min_length = 0;
    if (o->max_new_tokens == 0)
        o->max_new_tokens = o->max_length > 0 ? o->max_length : EVAL_MAX_NEW_TOKENS;
    rc = check_use(o, w, err);
    return rc ? rc : generate_config_built(c, o, err);
}

/* Tokenise every prompt. */
static int encode_all(struct eval *e, struct eval_result *r, struct encoding *enc,
                      struct generate_seq *seq, struct ckpt_err *err)
{
    bool ends = e->s.arch->stack == ARCH_ENCODER_DECODER;
    int rc;

    for (size_t i = 0; i < r->n; i++) {
        /* a rendered chat contains its special tokens */
        bool special = i < e->w->prompt.n || data_source_kind(e->source) != DATA_CHAT;

        if ((rc = tokenizer_encode(e->s.tokenizer, &enc[i], r->prompt[i], strlen(r->prompt[i]),
                                   special, err)) != 0)
            return rc;
        if (enc[i].n == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "prompt %zu has no token", i + 1);
        if (ends && (rc = add_eos(&enc[i], tokenizer_eos(e->s.tokenizer), err)) != 0)
            return rc;
        seq[i] = (struct generate_seq){.prompt = enc[i].id, .n_prompt = (int64_t)enc[i].n,
                                       .stream = i};
    }
    return 0;
}

/* Drop ids without a text, as transformers does: padding rows of an embedding can be generated. */
static int64_t with_text(int32_t *id, int64_t n, const struct tokenizer *t)
{
    int64_t k = 0;

    for (int64_t i = 0; i < n; i++)
        if (tokenizer_token(t, id[i]))
            id[k++] = id[i];
    return k;
}

static int continue_all(struct eval *e, struct eval_result *r, struct encoding *enc,
                        struct generate_seq *seq, const struct generate_opts *opts,
                        struct ckpt_err *err)
{
    int64_t most = opts->max_new_tokens;
    int32_t *out;
    int rc = encode_all(e, r, enc, seq, err);

    if (rc)
        return rc;
    out = ckpt_alloc(r->n * (size_t)most, sizeof *out);
    if (!out)
        return ckpt_nomem(err, r->n * (size_t)most * sizeof *out);
    for (size_t i = 0; i < r->n; i++)
        seq[i].out = out + (int64_t)i * most;
    rc = generate_run(e->s.model, zero_weights(e->s.zero), opts, seq, (int64_t)r->n, err);
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        int64_t n = with_text(seq[i].out, seq[i].n_out, e->s.tokenizer);
        size_t len;

        rc = tokenizer_decode(e->s.tokenizer, &r->text[i], &len, seq[i].out, (size_t)n, true, err);
    }
    ckpt_free(out);
    return rc;
}

static int generate(struct eval *e, struct eval_result *r, struct ckpt_err *err)
{
    struct generate_config config = {0};
    struct generate_opts opts;
    struct generate_seq *seq = NULL;
    struct encoding *enc = NULL;
    int32_t eos;
    int rc;

    if (!e->s.tokenizer)
        return ckpt_fail(err, CKPT_EUSAGE, "generation needs a tokenizer: --tokenizer DIR");
    eos = tokenizer_eos(e->s.tokenizer);
    rc = collect_prompts(e, r, err);
    if (rc || r->n == 0)
        return rc;
    rc = generate_config_read(&config, e->s.model_dir, e->s.arch, err);
    if (rc == 0)
        rc = choices(&opts, &config, e->w, &eos, err);
    seq = ckpt_alloc(r->n, sizeof *seq);
    enc = ckpt_alloc(r->n, sizeof *enc);
    if (rc == 0)
        rc = seq && enc ? continue_all(e, r, enc, seq, &opts, err)
                        : ckpt_nomem(err, r->n * sizeof *seq);
    for (size_t i = 0; enc && i < r->n; i++)
        encoding_release(&enc[i]);
    ckpt_free(enc);
    ckpt_free(seq);
    generate_config_release(&config);
    return rc;
}

int eval_run(struct eval_result *out, const struct eval_want *w, const char *model,
             const char *adapter, struct ckpt_err *err)
{
    struct eval e = {.w = w};
    struct evaluate_result scored;
    char found[4096], beside[4096];
    int rc = model_find(found, model, err);

    out->model = model;
    if (rc == 0 && adapter)
        rc = model_find(beside, adapter, err);
    if (rc == 0)
        rc = open_eval(&e, found, adapter ? beside : adapter_lies_at(found) ? found : NULL, err);
    if (rc == 0 && e.loader) {
        rc = evaluate_run(&scored, e.s.model, zero_weights(e.s.zero), e.s.comm, e.loader, NULL,
                          err);
        if (rc == 0) {
            out->loss = scored.loss;
            out->perplexity = exp(scored.loss);
            out->n_targets = scored.n_targets;
            out->n_samples = scored.n_samples;
            out->seconds = scored.seconds;
        }
    }
    if (rc == 0 && w->logits)
        rc = logits_write(w->logits, w->overwrite, &e.s, e.source, out->loss, err);
    if (rc == 0 && w->hidden)
        rc = hidden_write(w->hidden, w->overwrite, &e.s, &w->prompt, w->rows.max_seq_length, err);
    else if (rc == 0 && (w->generate > 0 || w->prompt.n))
        rc = generate(&e, out, err);
    close_eval(&e, rc, err);
    return rc;
}

void eval_release(struct eval_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        ckpt_free(r->prompt[i]);
        ckpt_free(r->reference[i]);
        ckpt_free(r->text[i]);
    }
    ckpt_free(r->prompt);
    ckpt_free(r->reference);
    ckpt_free(r->text);
    memset(r, 0, sizeof *r);
}
