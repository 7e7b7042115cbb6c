/* texts - see texts.h. */
#include "tools/eval/texts.h"

#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/mem.h"
#include "trainer/model/generate/config.h"

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
static int collect_prompts(struct eval_opened *e, struct eval_result *r, struct ckpt_err *err)
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
static int encode_all(struct eval_opened *e, struct eval_result *r, struct encoding *enc,
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

static int continue_all(struct eval_opened *e, struct eval_result *r, struct encoding *enc,
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

int eval_texts(struct eval_result *r, struct eval_opened *e, struct ckpt_err *err)
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
