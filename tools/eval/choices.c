/* choices - see choices.h. */
#include "tools/eval/choices.h"

#include <math.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/log.h"
#include "tools/cli.h"
#include "trainer/model/rope.h"

#define DEFAULT_LENGTH 2048     /* of models that have no limit, as the source has it */

/* A context and one continuation. */
struct request {
    int32_t *id;                /* [n_context + n]; of a pair the encoder's ids, then the target */
    int64_t  n_context, n;
    double   likelihood;
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

/* Keep the last ids of a context that fit, and the continuation's. */
static int keep(struct choices *c, struct request *r, const int32_t *context, size_t n_context,
                const int32_t *target, size_t n_target, int64_t vocab, struct ckpt_err *err)
{
    int64_t most = c->o.max_length, room = c->pairs ? most : most + 1 - (int64_t)n_target;
    int64_t n = (int64_t)n_context < room ? (int64_t)n_context : room;

    if (n_target == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "a choice has no token");
    if ((int64_t)n_target > most || n < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "a choice has %zu tokens, of at most %lld", n_target,
                         (long long)most);
    r->id = ckpt_arena_alloc(&c->arena, (size_t)n + n_target, sizeof *r->id);
    if (!r->id)
        return ckpt_nomem(err, n_target * sizeof *r->id);
    memcpy(r->id, context + n_context - (size_t)n, (size_t)n * sizeof *r->id);
    memcpy(r->id + n, target, n_target * sizeof *r->id);
    r->n_context = n;
    r->n = (int64_t)n_target;
    for (int64_t i = 0; i < n + r->n; i++)
        if (r->id[i] < 0 || r->id[i] >= vocab)
            return ckpt_fail(err, CKPT_EMISMATCH, "token %d, the model has %lld (vocab_size)",
                             r->id[i], (long long)vocab);
    n = c->pairs ? n : n + r->n - 1;
    c->longest = n > c->longest ? n : c->longest;
    c->longest_target = r->n > c->longest_target ? r->n : c->longest_target;
    return 0;
}

static int add_request(struct choices *c, const struct session *s, const char *context,
                       const char *continuation, struct ckpt_err *err)
{
    int32_t bos = tokenizer_bos(s->tokenizer);
    int32_t prefix = bos >= 0 ? bos : tokenizer_eos(s->tokenizer);
    char *joined = ckpt_arena_printf(&c->arena, "%s%s", context, continuation);
    bool special = !has_prefix(s->tokenizer, prefix, context);
    struct encoding a = {0}, b = {0};
    struct request *r;
    int rc = ckpt_arena_reserve(&c->arena, &c->request, c->n, &c->cap, sizeof *c->request, err);

    if (rc || !joined)
        return rc ? rc : ckpt_nomem(err, strlen(context));
    r = &c->request[c->n++];
    *r = (struct request){0};
    if (!*context && prefix < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "the context is empty, and the tokenizer has neither "
                         "bos nor eos");
    if (*context)
        rc = encode(&a, s, context, special, err);
    rc = rc ? rc : encode(&b, s, *context && !c->pairs ? joined : continuation,
                          *context && !c->pairs && special, err);
    if (rc == 0 && !*context) {
        bool there = b.n > 0 && b.id[0] == prefix;

        rc = keep(c, r, &prefix, 1, b.id + there, b.n - there, s->arch->vocab_size, err);
    } else if (rc == 0) {
        size_t skip = c->pairs ? 0 : a.n < b.n ? a.n : b.n;

        rc = keep(c, r, c->pairs ? a.id : b.id, c->pairs ? a.n : skip, b.id + skip, b.n - skip,
                  s->arch->vocab_size, err);
    }
    encoding_release(&a);
    encoding_release(&b);
    return rc;
}

static int read_row(struct choices *c, size_t i, const json_t *record,
                    const struct choice_opts *opts, const struct session *s, struct ckpt_err *err)
{
    struct choice_row *row = &c->row[i];
    int rc = choice_row_read(row, record, opts, &c->arena, err);

    c->first[i] = c->n;
    for (size_t k = 0; rc == 0 && k < row->n; k++)
        rc = add_request(c, s, row->context, row->continuation[k], err);
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
        if (rc)
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
        p->ids[b->n_tokens + i] = !pair ? r->id[i] : i ? r->id[r->n_context + i - 1] : start;
        p->positions[b->n_tokens + i] = (int32_t)i;
    }
    for (int64_t i = 0; i < r->n; i++) {
        p->rows[b->n_rows + i] = (int32_t)(b->n_tokens + first + i);
        p->targets[b->n_rows + i] = r->id[r->n_context + i];
    }
    if (pair) {
        memcpy(p->enc_ids + b->n_enc, r->id, (size_t)r->n_context * sizeof *r->id);
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
