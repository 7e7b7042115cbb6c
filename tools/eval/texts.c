/* texts - see texts.h. */
#include "tools/eval/texts.h"

#include <math.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"
#include "tools/eval/rows_out.h"
#include "tools/eval/split/rows.h"
#include "tools/eval/text_of.h"
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

/* Answers of a row as JSON. */
static int put_answers(char **out, const struct score_row *row, struct ckpt_err *err)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, SIZE_MAX);
    for (size_t k = 0; k < row->n_references; k++) {
        ckpt_buf_put_str(&b, k ? ", " : "[");
        ckpt_json_put_string(&b, row->reference[k], strlen(row->reference[k]));
    }
    ckpt_buf_put_str(&b, "]");
    *out = ckpt_buf_ok(&b) ? ckpt_strdup(ckpt_buf_str(&b)) : NULL;
    ckpt_buf_release(&b);
    return *out ? 0 : ckpt_nomem(err, 64);
}

/* The answers that row i names, if any: those that a metric takes, as the same texts. */
static int collect_answers(char **out, struct eval_opened *e, int64_t i, struct ckpt_err *err)
{
    struct answers one = {0};
    json_t *record = NULL;
    const json_t *v;
    int rc = data_source_record(e->source, i, &record, err);

    v = rc || e->w->rows.completion_template ? NULL : answers_named(record);
    rc = rc || !v ? rc : answers_init(&one, 1, err);
    if (rc == 0 && v) {
        struct ckpt_err no_text = {0};

        rc = answers_references(&one, 0, v, &no_text);
        if (rc == 0)
            rc = put_answers(out, &one.row[0], err);
        else if (e->w->metric.n) {
            *err = no_text;
            rc = data_source_err_in(e->source, i, err);
        } else
            rc = 0;                     /* the completion is the reference */
    }
    answers_release(&one);
    json_decref(record);
    return rc;
}

/* Collect row i of the data. */
static int collect_row(struct eval_opened *e, struct eval_result *r, int64_t i,
                       struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    char *prompt, *completion;
    int rc = data_source_text(e->source, i, &prompt, &completion, err);

    rc = rc ? rc : add_prompt(r, prompt, completion, err);
    if (rc == 0 && (w->predictions_out || w->metric.n || w->html))
        rc = collect_answers(&r->answers_json[r->n - 1], e, i, err);
    if (rc || !w->metric.n || !r->open_chats || r->reference[r->n - 1][0])
        return rc;
    ckpt_fail(err, CKPT_EFORMAT, "the chat does not end with an answer of the assistant, which "
              "--metric compares continuations with");
    return data_source_err_in(e->source, i, err);
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
    r->finish = ckpt_alloc(most, sizeof *r->finish);
    r->n_tokens = ckpt_alloc(most, sizeof *r->n_tokens);
    r->logprobs = ckpt_alloc(most, sizeof *r->logprobs);
    r->answers_json = ckpt_alloc(most, sizeof *r->answers_json);
    if (!r->prompt || !r->reference || !r->text || !r->finish || !r->n_tokens || !r->logprobs ||
        !r->answers_json)
        return ckpt_nomem(err, most * sizeof *r->text);
    r->open_chats = e->source && data_source_kind(e->source) == DATA_CHAT;
    r->first_answered = r->open_chats || (e->source && data_source_kind(e->source) == DATA_PROMPT)
                            ? e->w->prompt.n : most;
    for (size_t i = 0; i < e->w->prompt.n; i++)
        if ((rc = add_prompt(r, ckpt_strdup(e->w->prompt.item[i]), ckpt_strdup(""), err)) != 0)
            return rc;
    for (int64_t i = 0; i < rows; i++)
        if ((rc = collect_row(e, r, i, err)) != 0)
            return rc;
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
        {"typical_p", "typical-p", o->do_sample, "do-sample"},
        {"epsilon_cutoff", "epsilon-cutoff", o->do_sample, "do-sample"},
        {"eta_cutoff", "eta-cutoff", o->do_sample, "do-sample"},
        {"length_penalty", "length-penalty", o->num_beams > 1, "num-beams"},
        {"early_stopping", "early-stopping", o->num_beams > 1, "num-beams"},
    };
    static const char *const alone[] = {"stop", "logprobs"};

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        if (opt_has(&w->given, of[i].name) && !of[i].used)
            return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect without --%s", of[i].option,
                             of[i].by);
    for (size_t i = 0; o->num_beams > 1 && i < sizeof alone / sizeof alone[0]; i++)
        if (opt_has(&w->given, alone[i]))
            return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect with --num-beams", alone[i]);
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
        FIELD(frequency_penalty), FIELD(presence_penalty), FIELD(typical_p),
        FIELD(epsilon_cutoff), FIELD(eta_cutoff),
    };
#undef FIELD
    int rc;

    *o = c->opts;
    if (o->n_eos == 0 && *eos >= 0) {
        o->eos = eos;
        o->n_eos = 1;
    }
    o->seed = (uint64_t)w->seed;
    o->max_batch = opt_has(&w->given, "batch_size") ? w->batch_size : 0;
    o->n_logprobs = w->gen.n_logprobs;
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

/* What continuing needs besides the model. */
struct texts {
    struct eval_opened    *e;
    struct eval_result    *r;
    struct generate_opts   opts;
    struct generate_hooks  hooks;
    struct encoding       *enc;         /* [r->n] */
    struct generate_seq   *seq;         /* [n] this rank's rows; stream: the number of the row */
    size_t                 n;
    struct text_stops      stops;
    struct rows_out       *rows;        /* NULL: not wanted, or not by this rank */
    struct split_rows     *others;      /* rows of other ranks, or to the first; NULL: one rank */
    struct ckpt_arena      arena;       /* of what is generated */
};

/* What nothing can continue: the i-th text of --prompt, or of a row after these. */
static int no_token(const struct eval_opened *e, size_t i, struct ckpt_err *err)
{
    if (i < e->w->prompt.n)
        return ckpt_fail(err, CKPT_EUSAGE, "--prompt: the text has no token");
    ckpt_fail(err, CKPT_EFORMAT, "the prompt has no token that could be continued");
    return data_source_err_in(e->source, (int64_t)(i - e->w->prompt.n), err);
}

/* The i-th prompt leaves no place for a token: said before any is generated. */
static int check_most(const struct texts *x, size_t i, const struct generate_seq *q,
                      struct ckpt_err *err)
{
    const struct eval_opened *e = x->e;
    int64_t places = arch_max_positions(e->s.arch);

    if (generate_most(e->s.arch, &x->opts, q) >= 1)
        return 0;
    if (places > 0 && q->n_prompt > places)
        ckpt_fail(err, CKPT_EFORMAT, "the prompt has %lld tokens, the model has positions for "
                  "%lld", (long long)q->n_prompt, (long long)places);
    else {
        ckpt_fail(err, CKPT_ECONFIG, "max_length %lld of the model leaves no token to generate "
                  "after the first %lld", (long long)x->opts.max_length,
                  (long long)generate_fed(NULL, e->s.arch, &x->opts, q));
        ckpt_err_hint(err, "--max-new-tokens takes its place");
    }
    return i < e->w->prompt.n
               ? ckpt_err_in(err, "--prompt")
               : data_source_err_in(e->source, (int64_t)(i - e->w->prompt.n), err);
}

/* Tokenise the prompts of this rank. */
static int encode_all(struct texts *x, struct ckpt_err *err)
{
    struct eval_opened *e = x->e;
    bool ends = e->s.arch->stack == ARCH_ENCODER_DECODER;
    int rc;

    for (size_t i = 0; i < x->r->n; i++) {
        /* a rendered chat contains its special tokens */
        bool special = i < e->w->prompt.n || data_source_kind(e->source) != DATA_CHAT;
        const char *prompt = x->r->prompt[i];
        struct encoding *enc = &x->enc[x->n];

        if (!split_mine(e->w->split, (int64_t)i))
            continue;
        if ((rc = tokenizer_encode(e->s.tokenizer, enc, prompt, strlen(prompt), special, err)) != 0)
            return rc;
        if (enc->n == 0)
            return no_token(e, i, err);
        if (ends && (rc = add_eos(enc, tokenizer_eos(e->s.tokenizer), err)) != 0)
            return rc;
        x->seq[x->n] = (struct generate_seq){.prompt = enc->id, .n_prompt = (int64_t)enc->n,
                                             .stream = i};
        if ((rc = check_most(x, i, &x->seq[x->n++], err)) != 0)
            return rc;
    }
    return 0;
}

/* One token of a position, with its text alone. */
static int put_token(struct ckpt_buf *b, const struct tokenizer *t, int32_t id, float logprob,
                     struct ckpt_err *err)
{
    char *text = NULL;
    int rc = text_of(t, &text, &id, 1, err);

    if (rc)
        return rc;
    ckpt_buf_put_str(b, "{\"token\": ");
    ckpt_json_put_string(b, text, strlen(text));
    ckpt_buf_printf(b, ", \"id\": %ld, \"logprob\": ", (long)id);
    ckpt_buf_printf(b, isfinite(logprob) ? "%.9g" : "null", (double)logprob);
    ckpt_free(text);
    return 0;
}

/* Positions of a sequence as JSON. */
static int note_logprobs(struct texts *x, size_t i, const struct generate_seq *q,
                         struct ckpt_err *err)
{
    const struct tokenizer *t = x->e->s.tokenizer;
    int64_t N = x->opts.n_logprobs;
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)1 << 30);
    for (int64_t k = 0; rc == 0 && k < q->n_out; k++) {
        ckpt_buf_put_str(&b, k ? ", " : "[");
        rc = put_token(&b, t, q->out[k], q->logprob[k], err);
        ckpt_buf_put_str(&b, ", \"top\": [");
        for (int64_t j = 0; rc == 0 && j < N; j++) {
            if (j)
                ckpt_buf_put_str(&b, ", ");
            rc = put_token(&b, t, q->top_id[k * N + j], q->top_logprob[k * N + j], err);
            ckpt_buf_put_str(&b, "}");
        }
        ckpt_buf_put_str(&b, "]}");
    }
    ckpt_buf_put_str(&b, q->n_out ? "]" : "[]");
    x->r->logprobs[i] = rc == 0 && ckpt_buf_ok(&b) ? ckpt_strdup(ckpt_buf_str(&b)) : NULL;
    ckpt_buf_release(&b);
    return rc || x->r->logprobs[i] ? rc : ckpt_nomem(err, (size_t)q->n_out);
}

static bool stops_here(void *ctx, const struct generate_seq *q)
{
    const struct texts *x = ctx;

    return text_ends(x->e->s.tokenizer, q->out, (size_t)q->n_out, &x->stops);
}

/* A row of another rank. */
static int take(void *ctx, const struct split_row *row, struct ckpt_err *err)
{
    struct texts *x = ctx;
    struct eval_result *r = x->r;
    size_t i = row->index;

    if (i >= r->n || r->text[i])
        return ckpt_fail(err, CKPT_ECOMM, "another rank sent row %zu, which is not its own", i + 1);
    r->finish[i] = row->stopped ? "stop" : "length";
    r->n_tokens[i] = row->n_tokens;
    if (row->logprobs && !(r->logprobs[i] = ckpt_strdup(row->logprobs)))
        return ckpt_nomem(err, strlen(row->logprobs));
    if (!(r->text[i] = ckpt_strdup(row->text)))
        return ckpt_nomem(err, strlen(row->text));
    return x->rows ? rows_out_put(x->rows, r, i, x->e->w->beside, err) : 0;
}

/* This rank's row i is told to the first one, which looks for others' when it has one itself. */
static int tell(struct texts *x, size_t i, struct ckpt_err *err)
{
    const struct eval_result *r = x->r;
    struct split_row row = {.index = i, .n_tokens = r->n_tokens[i], .text = r->text[i],
                            .stopped = strcmp(r->finish[i], "stop") == 0,
                            .logprobs = r->logprobs[i]};

    return split_first(x->e->w->split) ? split_rows_take(x->others, false, take, x, err)
                                       : split_rows_put(x->others, &row, err);
}

/* A sequence has ended: its text, and its row. */
static int finished(void *ctx, const struct generate_seq *q, struct ckpt_err *err)
{
    struct texts *x = ctx;
    struct eval_result *r = x->r;
    size_t i = (size_t)q->stream;
    char *text;
    bool cut;
    int rc = text_of(x->e->s.tokenizer, &text, q->out, (size_t)q->n_out, err);

    if (rc)
        return rc;
    cut = text_cut(text, &x->stops);
    r->finish[i] = q->stopped || cut ? "stop" : "length";
    r->n_tokens[i] = q->n_out;
    if (q->logprob)
        rc = note_logprobs(x, i, q, err);
    r->text[i] = text;
    if (rc == 0 && x->rows)
        rc = rows_out_put(x->rows, r, i, x->e->w->beside, err);
    if (rc == 0 && x->others)
        rc = tell(x, i, err);
    return rc;
}

/* A signal ends it at the next token. */
static int goes_on(void *ctx, struct ckpt_err *err)
{
    (void)ctx;
    return cli_stop ? cli_stopped(err) : 0;
}

/* Memory for what is generated. */
static int give_space(struct texts *x, struct ckpt_err *err)
{
    int64_t N = x->opts.n_logprobs;
    bool probs = opt_has(&x->e->w->given, "logprobs");

    for (size_t i = 0; i < x->n; i++) {
        struct generate_seq *q = &x->seq[i];
        int64_t most = generate_most(x->e->s.arch, &x->opts, q);
        size_t n = most > 0 ? (size_t)most : 1;

        q->out = ckpt_arena_alloc(&x->arena, n, sizeof *q->out);
        if (probs) {
            q->logprob = ckpt_arena_alloc(&x->arena, n, sizeof *q->logprob);
            q->top_id = ckpt_arena_alloc(&x->arena, n * (size_t)N + 1, sizeof *q->top_id);
            q->top_logprob = ckpt_arena_alloc(&x->arena, n * (size_t)N + 1, sizeof *q->top_logprob);
        }
        if (!q->out || (probs && (!q->logprob || !q->top_id || !q->top_logprob)))
            return ckpt_nomem(err, n * (size_t)(N + 1) * sizeof *q->out);
    }
    return 0;
}

/* Texts of --stop and of the model's stop_strings. */
static int collect_stops(struct texts *x, const struct generate_config *c, struct ckpt_err *err)
{
    const struct opt_list *own = &x->e->w->stop;
    size_t n = own->n + c->n_stop;

    x->stops.text = ckpt_arena_alloc(&x->arena, n + 1, sizeof *x->stops.text);
    if (!x->stops.text)
        return ckpt_nomem(err, n * sizeof *x->stops.text);
    for (size_t i = 0; i < n; i++) {
        const char *text = i < own->n ? own->item[i] : c->stop[i - own->n];
        size_t len = strlen(text);

        if (len == 0)
            return ckpt_fail(err, CKPT_EUSAGE, "--stop: the text is empty");
        x->stops.longest = len > x->stops.longest ? len : x->stops.longest;
        x->stops.text[x->stops.n++] = text;
    }
    return 0;
}

static int continue_all(struct texts *x, struct ckpt_err *err)
{
    const struct eval_want *w = x->e->w;
    int rc = encode_all(x, err);

    if (rc == 0)
        rc = give_space(x, err);
    if (rc == 0 && w->predictions_out && split_first(w->split))
        rc = rows_out_open(&x->rows, w->predictions_out, w->in_order || w->split, w->overwrite,
                           err);
    if ((rc = split_agree(w->split, rc, err)) == 0 && w->split)
        rc = split_rows_open(&x->others, w->split, err);
    if (rc)
        return rc;
    x->hooks = (struct generate_hooks){.ctx = x, .goes_on = goes_on, .done = finished,
                                       .stops = x->stops.n ? stops_here : NULL};
    x->opts.hooks = &x->hooks;
    rc = generate_run(x->e->s.model, zero_weights(x->e->s.zero), &x->opts, x->seq, (int64_t)x->n,
                      err);
    if (rc == CKPT_ENO) {               /* damaged weights: status 1 tells of figures alone */
        struct ckpt_err why = *err;

        ckpt_fail_as(err, CKPT_EFORMAT, "not-finite", "%s", why.text);
        rc = ckpt_err_hint(err, "`ckpt-inspect --stats` names tensors with NaN or infinite values");
    }
    if (rc == 0 && x->others && split_first(w->split))
        rc = split_rows_take(x->others, true, take, x, err);
    split_rows_close(x->others);        /* which ends this rank's rows */
    x->others = NULL;
    if ((rc = split_agree(w->split, rc, err)) != 0)
        return rc;
    return x->rows ? rows_out_commit(x->rows, err) : 0;
}

int eval_texts(struct eval_result *r, struct eval_opened *e, struct ckpt_err *err)
{
    struct texts x = {.e = e, .r = r};
    struct generate_config config = {0};
    int32_t eos;
    int rc;

    if (!e->s.tokenizer)
        return ckpt_fail(err, CKPT_EUSAGE, "generation needs a tokenizer: --tokenizer DIR");
    eos = tokenizer_eos(e->s.tokenizer);
    if ((rc = split_agree(e->w->split, collect_prompts(e, r, err), err)) != 0 || r->n == 0)
        return rc;
    rc = generate_config_read(&config, e->s.model_dir, e->s.arch, err);
    if (rc == 0)
        rc = choices(&x.opts, &config, e->w, &eos, err);
    if (rc == 0)
        rc = collect_stops(&x, &config, err);
    x.seq = ckpt_alloc(r->n, sizeof *x.seq);
    x.enc = ckpt_alloc(r->n, sizeof *x.enc);
    if (rc == 0 && (!x.seq || !x.enc))
        rc = ckpt_nomem(err, r->n * sizeof *x.seq);
    if ((rc = split_agree(e->w->split, rc, err)) == 0)
        rc = continue_all(&x, err);
    split_rows_close(x.others);
    for (size_t i = 0; x.enc && i < r->n; i++)
        encoding_release(&x.enc[i]);
    ckpt_free(x.enc);
    ckpt_free(x.seq);
    rows_out_close(x.rows);
    ckpt_arena_release(&x.arena);
    generate_config_release(&config);
    return rc;
}
