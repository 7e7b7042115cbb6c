/* choices - see choices.h. */
#include "tools/eval/tasks/choices.h"

#include <math.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/base/buf.h"
#include "libckpt/log.h"
#include "tools/cli.h"
#include "trainer/model/rope.h"

#define DEFAULT_LENGTH 2048     /* of models that have no limit, as the source has it */

/* A context and one continuation. */
struct request {
    const int32_t *context;     /* [n_context] of a pair the encoder's; requests of a row share it
                                   where it is the same */
    int32_t       *target;      /* [n] */
    int64_t        n_context, n;
    double         likelihood;
};

/* For all choices of a row. */
struct together {
    const char     *context;
    int32_t         prefix;     /* what stands before an empty context; -1: there is none */
    bool            special;    /* the tokenizer adds the tokens that it adds to a text */
    struct encoding alone;      /* the context */
    struct encoding both;       /* the context with one continuation, or that alone */
    struct ckpt_buf text;       /* likewise */
};

struct choices {
    struct ckpt_arena   arena;
    struct choices_opts o;
    struct choice_row  *row;            /* [n_rows] */
    size_t             *first;          /* [n_rows + 1] request of each row's first choice */
    struct request     *request;        /* [n] */
    size_t              n_rows, n, cap;
    int64_t             longest, longest_target;
    bool                pairs;          /* the model has an encoder beside its decoder */
};

/* -- requests --------------------------------------------------------------------------------- */

/* Whether the text begins with the token that the tokenizer would put before it. */
static bool has_prefix(const struct tokenizer *t, int32_t prefix, const char *text)
{
    const char *token = prefix >= 0 ? tokenizer_token(t, prefix) : NULL;

    return token && *token && strncmp(text, token, strlen(token)) == 0;
}

static int encode(struct encoding *enc, const struct session *s, const char *text, bool special,
                  struct ckpt_err *err)
{
    return tokenizer_encode(s->tokenizer, enc, text, strlen(text), special, err);
}

/* The ids of the request before, where they are the same; else a copy. */
static const int32_t *keep_context(struct choices *c, const int32_t *id, size_t n)
{
    const struct request *before = c->n > 1 ? &c->request[c->n - 2] : NULL;
    int32_t *copy;

    if (before && before->n_context == (int64_t)n &&
        memcmp(before->context, id, n * sizeof *id) == 0)
        return before->context;
    copy = ckpt_arena_alloc(&c->arena, n, sizeof *copy);
    return copy ? memcpy(copy, id, n * sizeof *id) : NULL;
}

static int check_ids(const int32_t *id, int64_t n, int64_t vocab, struct ckpt_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (id[i] < 0 || id[i] >= vocab)
            return ckpt_fail(err, CKPT_EMISMATCH, "token %d, the model has %lld (vocab_size)",
                             id[i], (long long)vocab);
    return 0;
}

/* Keep the last ids of a context that fit, and the continuation's. */
static int keep(struct choices *c, struct request *r, const int32_t *context, size_t n_context,
                const int32_t *target, size_t n_target, int64_t vocab, struct ckpt_err *err)
{
    int64_t most = c->o.max_length, room = c->pairs ? most : most + 1 - (int64_t)n_target;
    int64_t n = (int64_t)n_context < room ? (int64_t)n_context : room;
    int rc;

    if (n_target == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "a choice has no token");
    if ((int64_t)n_target > most || n < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "a choice has %zu tokens, of at most %lld", n_target,
                         (long long)most);
    context += n_context - (size_t)n;
    if ((rc = check_ids(context, n, vocab, err)) != 0 ||
        (rc = check_ids(target, (int64_t)n_target, vocab, err)) != 0)
        return rc;
    r->context = keep_context(c, context, (size_t)n);
    r->target = ckpt_arena_alloc(&c->arena, n_target, sizeof *r->target);
    if (!r->context || !r->target)
        return ckpt_nomem(err, ((size_t)n + n_target) * sizeof *r->target);
    memcpy(r->target, target, n_target * sizeof *r->target);
    r->n_context = n;
    r->n = (int64_t)n_target;
    n = c->pairs ? n : n + r->n - 1;
    c->longest = n > c->longest ? n : c->longest;
    c->longest_target = r->n > c->longest_target ? r->n : c->longest_target;
    return 0;
}

/* The ids of a context, which are the same beside each of its continuations. */
static int begin_row(struct together *t, const char *context, const struct session *s,
                     struct ckpt_err *err)
{
    int32_t bos = tokenizer_bos(s->tokenizer);

    *t = (struct together){.context = context};
    t->prefix = bos >= 0 ? bos : tokenizer_eos(s->tokenizer);
    t->special = !has_prefix(s->tokenizer, t->prefix, context);
    ckpt_buf_init(&t->text, SIZE_MAX);
    if (*context)
        return encode(&t->alone, s, context, t->special, err);
    if (t->prefix < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the context is empty, and the tokenizer has neither "
                         "bos nor eos");
    return 0;
}

static void end_row(struct together *t)
{
    encoding_release(&t->alone);
    encoding_release(&t->both);
    ckpt_buf_release(&t->text);
}

/*
 * The continuation's ids follow from the whole text, of which any part may be one token:
 * normalizers join characters, regular expressions look ahead, models without words weigh all of
 * it.  So the context is encoded again beside each continuation; its words are in the tokenizer's
 * cache by then, and 12,000 texts of 250 words take 3 to 7 s on one core.
 */
static int add_request(struct choices *c, struct together *t, const struct session *s,
                       const char *continuation, struct ckpt_err *err)
{
    bool joined = *t->context && !c->pairs;
    const struct encoding *a = &t->alone, *b = &t->both;
    int64_t vocab = s->arch->vocab_size;
    struct request *r;
    const char *text;
    size_t skip;
    int rc = ckpt_arena_reserve(&c->arena, &c->request, c->n, &c->cap, sizeof *c->request, err);

    if (rc)
        return rc;
    r = &c->request[c->n++];
    *r = (struct request){0};
    t->text.len = t->both.n = 0;
    if (joined)
        ckpt_buf_put_str(&t->text, t->context);
    ckpt_buf_put_str(&t->text, continuation);
    if (!(text = ckpt_buf_str(&t->text)))
        return ckpt_nomem(err, t->text.len);
    if ((rc = encode(&t->both, s, text, joined && t->special, err)) != 0)
        return rc;
    if (!*t->context) {
        bool there = b->n > 0 && b->id[0] == t->prefix;

        return keep(c, r, &t->prefix, 1, b->id + there, b->n - there, vocab, err);
    }
    if (c->pairs)
        return keep(c, r, a->id, a->n, b->id, b->n, vocab, err);
    skip = a->n < b->n ? a->n : b->n;
    return keep(c, r, b->id, skip, b->id + skip, b->n - skip, vocab, err);
}

static int read_row(struct choices *c, size_t i, const json_t *record,
                    const struct choice_opts *opts, const struct session *s, struct ckpt_err *err)
{
    struct choice_row *row = &c->row[i];
    struct together t;
    int rc = choice_row_read(row, record, opts, &c->arena, err);

    c->first[i] = c->n;
    if (rc)
        return rc;
    rc = begin_row(&t, row->context, s, err);
    for (size_t k = 0; rc == 0 && k < row->n; k++)
        rc = cli_stop ? cli_stopped(err) : add_request(c, &t, s, row->continuation[k], err);
    end_row(&t);
    return rc;
}

static int read_all(struct choices *c, struct records *records, const struct session *s,
                    struct ckpt_err *err)
{
    struct template *prompt = NULL;
    struct choice_opts opts = {.words = c->o.words};
    int rc = c->o.prompt_template ? template_parse(&prompt, c->o.prompt_template, err) : 0;

    opts.prompt = prompt;
    c->row = ckpt_arena_alloc(&c->arena, c->n_rows, sizeof *c->row);
    c->first = ckpt_arena_alloc(&c->arena, c->n_rows + 1, sizeof *c->first);
    if (rc == 0 && (!c->row || !c->first))
        rc = ckpt_nomem(err, c->n_rows * sizeof *c->row);
    for (size_t i = 0; rc == 0 && i < c->n_rows; i++) {
        json_t *record;

        rc = cli_stop ? cli_stopped(err) : records_get(records, (int64_t)i, &record, err);
        if (rc)
            break;
        rc = read_row(c, i, record, &opts, s, err);
        json_decref(record);
        if (rc && rc != CKPT_ESTOPPED)
            records_err_in(records, (int64_t)i, err);
    }
    if (rc == 0)
        c->first[c->n_rows] = c->n;
    template_free(prompt);
    return rc;
}

int choices_open(struct choices **out, struct records *records, const struct session *s,
                 const struct choices_opts *o, struct ckpt_err *err)
{
    int64_t positions = arch_max_positions(s->arch);
    struct choices *c;
    int rc;

    *out = NULL;
    if (!s->tokenizer)
        return ckpt_fail(err, CKPT_EUSAGE, "--task needs a tokenizer: --tokenizer DIR");
    if (s->arch->stack == ARCH_ENCODER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "--task is for models that generate");
    if (records_count(records) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "there is no record");
    c = ckpt_alloc(1, sizeof *c);
    if (!c)
        return ckpt_nomem(err, sizeof *c);
    c->o = *o;
    c->n_rows = (size_t)records_count(records);
    c->pairs = s->arch->stack == ARCH_ENCODER_DECODER;
    if (c->o.max_length == 0 || (positions > 0 && c->o.max_length > positions))
        c->o.max_length = positions > 0 ? positions : DEFAULT_LENGTH;
    rc = read_all(c, records, s, err);
    c->o.batch = rope_batch(s->arch, c->o.batch, c->longest);
    if (rc)
        choices_close(c);
    else
        *out = c;
    return rc;
}

void choices_close(struct choices *c)
{
    if (!c)
        return;
    ckpt_arena_release(&c->arena);
    ckpt_free(c);
}

/* -- passes ----------------------------------------------------------------------------------- */

struct model_opts choices_plan(const struct choices *c)
{
    int64_t docs = c->o.batch, own = c->pairs ? c->longest_target : c->longest;

    return (struct model_opts){.max_tokens = docs * own, .max_docs = docs,
                               .max_rows = docs * c->longest_target,
                               .max_enc = c->pairs ? docs * c->longest : 0};
}

/* Memory of one batch. */
struct pass {
    struct batch b;
    int32_t     *ids, *positions, *start, *rows, *targets, *enc_ids, *enc_start;
    float       *nll;
};

static int init_pass(struct pass *p, const struct choices *c, struct ckpt_arena *a,
                     struct ckpt_err *err)
{
    struct model_opts most = choices_plan(c);
    size_t tokens = (size_t)most.max_tokens, docs = (size_t)most.max_docs,
           rows = (size_t)most.max_rows;

    p->ids = ckpt_arena_alloc(a, tokens, sizeof *p->ids);
    p->positions = ckpt_arena_alloc(a, tokens, sizeof *p->positions);
    p->start = ckpt_arena_alloc(a, docs + 1, sizeof *p->start);
    p->rows = ckpt_arena_alloc(a, rows, sizeof *p->rows);
    p->targets = ckpt_arena_alloc(a, rows, sizeof *p->targets);
    p->enc_ids = ckpt_arena_alloc(a, (size_t)most.max_enc + 1, sizeof *p->enc_ids);
    p->enc_start = ckpt_arena_alloc(a, docs + 1, sizeof *p->enc_start);
    p->nll = ckpt_arena_alloc(a, rows, sizeof *p->nll);
    if (!p->ids || !p->positions || !p->start || !p->rows || !p->targets || !p->enc_ids ||
        !p->enc_start || !p->nll)
        return ckpt_nomem(err, tokens * sizeof *p->ids);
    p->b = (struct batch){.ids = p->ids, .positions = p->positions, .doc_start = p->start,
                          .rows = p->rows, .targets = p->targets};
    if (c->pairs) {
        p->b.enc_ids = p->enc_ids;
        p->b.enc_start = p->enc_start;
    }
    return 0;
}

/* Append a document: what the decoder is fed, and the rows that must predict the continuation. */
static void add_doc(struct pass *p, const struct request *r, bool pair, int32_t start)
{
    struct batch *b = &p->b;
    int64_t n = pair ? r->n : r->n_context + r->n - 1, first = pair ? 0 : r->n_context - 1;

    for (int64_t i = 0; i < n; i++) {
        int64_t at = pair ? i - 1 : i - r->n_context;   /* in the continuation */

        p->ids[b->n_tokens + i] = at >= 0 ? r->target[at] : pair ? start : r->context[i];
        p->positions[b->n_tokens + i] = (int32_t)i;
    }
    for (int64_t i = 0; i < r->n; i++) {
        p->rows[b->n_rows + i] = (int32_t)(b->n_tokens + first + i);
        p->targets[b->n_rows + i] = r->target[i];
    }
    if (pair) {
        memcpy(p->enc_ids + b->n_enc, r->context, (size_t)r->n_context * sizeof *r->context);
        b->n_enc += r->n_context;
    }
    b->n_tokens += n;
    b->n_rows += r->n;
    b->n_docs++;
    p->start[b->n_docs] = (int32_t)b->n_tokens;
    p->enc_start[b->n_docs] = (int32_t)b->n_enc;
}

static int run_batch(struct choices *c, struct session *s, struct pass *p, size_t from, size_t n,
                     struct ckpt_err *err)
{
    const float *nll = p->nll;
    double sum;
    int rc;

    p->b.n_tokens = p->b.n_rows = p->b.n_docs = p->b.n_enc = 0;
    for (size_t i = 0; i < n; i++)
        add_doc(p, &c->request[from + i], c->pairs, session_pair(s).start);
    rc = model_loss(s->model, zero_weights(s->zero), &p->b, &sum, p->nll, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct request *r = &c->request[from + i];

        r->likelihood = 0;
        for (int64_t k = 0; k < r->n; k++)
            r->likelihood -= (double)*nll++;
    }
    return rc;
}

/* The likelihoods of all ranks. */
static int gather(struct choices *c, int rc, struct ckpt_err *err)
{
    double *all = ckpt_alloc(c->n + 1, sizeof *all);

    if (rc == 0 && !all)
        rc = ckpt_nomem(err, c->n * sizeof *all);
    rc = split_agree(c->o.split, rc, err);
    for (size_t i = 0; rc == 0 && i < c->n; i++)
        all[i] = c->request[i].likelihood;
    rc = rc ? rc : split_sum(c->o.split, all, c->n, err);
    for (size_t i = 0; rc == 0 && i < c->n; i++)
        c->request[i].likelihood = all[i];
    ckpt_free(all);
    return rc;
}

int choices_run(struct choices *c, struct session *s, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct pass p;
    size_t batch = (size_t)c->o.batch;
    int rc = init_pass(&p, c, &a, err);

    for (size_t i = 0; rc == 0 && i < c->n; i += batch) {
        if (!split_mine(c->o.split, (int64_t)(i / batch)))
            continue;
        rc = cli_stop ? cli_stopped(err)
                      : run_batch(c, s, &p, i, c->n - i < batch ? c->n - i : batch, err);
        ckpt_log_progress("evaluation", "choices", (uint64_t)i, (uint64_t)c->n);
    }
    ckpt_arena_release(&a);
    if (c->o.split)
        rc = gather(c, rc, err);
    for (size_t i = 0; rc == 0 && i < c->n_rows; i++)
        for (size_t k = c->first[i]; rc == 0 && k < c->first[i + 1]; k++)
            if (!isfinite(c->request[k].likelihood)) {
                ckpt_fail_as(err, CKPT_EFORMAT, "not-finite", "row %zu: the likelihood is not a "
                             "number", i + 1);
                rc = ckpt_err_hint(err, "`ckpt-inspect --stats` names tensors with NaN or "
                                   "infinite values");
            }
    return rc;
}

/* -- results ---------------------------------------------------------------------------------- */

static double characters(const char *s)
{
    double n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

/* The choice of row i with the largest likelihood, or likelihood over length in characters. */
static size_t best(const struct choices *c, size_t i, bool by_length)
{
    double most = 0;
    size_t at = 0;

    for (size_t k = 0; k < c->row[i].n; k++) {
        double v = c->request[c->first[i] + k].likelihood;

        if (by_length)
            v /= characters(c->row[i].choice[k]);
        if (k == 0 || v > most) {
            most = v;
            at = k;
        }
    }
    return at;
}

int choices_score(struct score **out, const struct choices *c, struct ckpt_err *err)
{
    double *stat = ckpt_alloc(c->n_rows, 2 * sizeof *stat);
    int rc = stat ? 0 : ckpt_nomem(err, c->n_rows * sizeof *stat);

    for (size_t i = 0; rc == 0 && i < c->n_rows; i++) {
        stat[2 * i] = best(c, i, false) == c->row[i].right;
        stat[2 * i + 1] = best(c, i, true) == c->row[i].right;
    }
    rc = rc ? rc : score_of(out, "choices", stat, c->n_rows, err);
    ckpt_free(stat);
    return rc;
}

int choices_answers(struct answers *a, const char ***prompts, const struct choices *c,
                    struct ckpt_err *err)
{
    int rc = answers_init(a, c->n_rows, err);

    *prompts = ckpt_arena_alloc(&a->arena, c->n_rows, sizeof **prompts);
    if (rc || !*prompts)
        return rc ? rc : ckpt_nomem(err, c->n_rows * sizeof **prompts);
    for (size_t i = 0; i < c->n_rows; i++) {
        (*prompts)[i] = c->row[i].context;
        a->row[i] = (struct score_row){.prediction = c->row[i].choice[best(c, i, false)],
                                       .reference = &c->row[i].choice[c->row[i].right],
                                       .n_references = 1};
    }
    return 0;
}
