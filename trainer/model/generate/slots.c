/* generate/slots - see generate/slots.h. */
#include "trainer/model/generate/slots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/log.h"
#include "trainer/model/generate/logits.h"
#include "trainer/model/host.h"
#include "trainer/model/pass.h"
#include "trainer/model/rope.h"
#include "trainer/rng.h"

enum {
    LEAST_PREFIX = 64,                  /* tokens that are worth a copy */
    MOST_SLOTS = OP_FORBID_ROWS,
    MOST_PASSED = 64,                   /* shorter prompts that may pass one that does not fit */
};

struct slots {
    const struct generate_opts *opts;
    const struct arch          *arch;
    struct generate_seq        *seq;            /* [n] */
    int64_t                     n, vocab;
    struct generate_plan        plan;
    struct decode              *decode;
    struct decode_top           top;            /* k 0: fetch all logits */
    struct op_forbid            forbid;         /* eos ids that the device forbids where they come
                                                   too early; n_ids 0: that is done here */
    int64_t                     active;         /* slots in use: the first ones */
    int64_t                    *of;             /* [slots] the sequence of a slot */
    bool                       *entered;        /* [n] */
    int64_t                     next;           /* sequences before it have entered */
    int64_t                     passed, ended;
    float                      *logits;         /* [slots][vocab]; with top: of one sequence */
    float                      *raw;            /* [vocab] logits before any rule */
    int32_t                    *ids, *n_new;    /* fed next: n_new[slots] ids of each */
    int32_t                    *enc_ids, *enc_n;
    int64_t                    *enc_slot;
    int32_t                    *history;        /* [longest] of the current sequence */
    struct generate_choice     *scratch;        /* [vocab] */
    struct ckpt_arena           arena;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static bool encodes(const struct arch *a) { return a->stack == ARCH_ENCODER_DECODER; }

/* -- the plan --------------------------------------------------------------------------------- */

uint64_t generate_row_bytes(const struct model *m)
{
    const struct arch *a = m->arch;
    int64_t layers = a->num_hidden_layers - arch_stack_first(a, a->num_hidden_layers - 1);

    return 2 * (uint64_t)(layers * a->num_key_value_heads * a->head_dim) *
           ckpt_dtype_size(m->dev->act);
}

uint64_t generate_enc_row_bytes(const struct model *m)
{
    const struct arch *a = m->arch;
    int64_t layers = a->num_hidden_layers - arch_stack_first(a, a->num_hidden_layers - 1);

    return encodes(a) ? 2 * (uint64_t)(layers * a->num_attention_heads * a->head_dim) *
                            ckpt_dtype_size(m->dev->act) : 0;
}

/* Rows of the cache that a sequence may need; the last token that is chosen is not fed. */
static int64_t rows_of(const struct arch *a, const struct generate_opts *o,
                       const struct generate_seq *q)
{
    int64_t rows = generate_fed(NULL, a, o, q) + generate_most(a, o, q) - 1;

    return rows > 1 ? rows : 1;
}

static int larger_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x < y) - (x > y);
}

/* Sum of the largest `most` of n sizes, which become sorted. */
static int64_t sum_of_largest(int64_t *size, int64_t n, int64_t most)
{
    int64_t sum = 0;

    qsort(size, (size_t)n, sizeof *size, larger_first);
    for (int64_t i = 0; i < least(n, most); i++)
        sum += size[i];
    return sum;
}

/* How many tokens all prompts begin with, if enough, in whole blocks of the attention; one token
 * of each prompt is left to be fed. */
static int64_t common_prefix(const struct generate_seq *seq, int64_t n)
{
    int64_t same = seq[0].n_prompt - 1;

    for (int64_t i = 1; i < n; i++) {
        int64_t k = 0, most = least(same, seq[i].n_prompt - 1);

        while (k < most && seq[i].prompt[k] == seq[0].prompt[k])
            k++;
        same = k;
    }
    return n < 2 ? 0 : same / LEAST_PREFIX * LEAST_PREFIX;
}

static uint64_t cache_bytes(const struct model *m, const struct generate_opts *o)
{
    uint64_t left;

    if (o->cache_bytes)
        return o->cache_bytes;
    left = m->dev->ops->free_bytes(m->dev);
    return left == UINT64_MAX ? GENERATE_CACHE_BYTES : left / 2;
}

int generate_plan(struct generate_plan *out, const struct model *m,
                  const struct generate_opts *o, const struct generate_seq *seq, int64_t n,
                  struct ckpt_err *err)
{
    const struct arch *a = m->arch;
    int64_t *size = ckpt_alloc((size_t)n, sizeof *size);
    int64_t longest, most = least(o->max_batch ? o->max_batch : GENERATE_BATCH, MOST_SLOTS), rows;
    uint64_t each = generate_row_bytes(m), enc_each = generate_enc_row_bytes(m), bytes;

    *out = (struct generate_plan){0};
    if (!size)
        return ckpt_nomem(err, (size_t)n * sizeof *size);
    for (int64_t i = 0; i < n; i++)
        size[i] = rows_of(a, o, &seq[i]);
    out->slots = least(n, most);
    rows = sum_of_largest(size, n, out->slots);
    out->longest = longest = size[0];
    /* Where angles depend on the length of the longest sequence of a batch, each is alone. */
    if (a->pos == ARCH_POS_ROPE && rope_regime(a, longest) != 0)
        out->slots = 1;
    else if (!encodes(a))
        out->prefix = common_prefix(seq, n);
    bytes = cache_bytes(m, o);
    if (encodes(a)) {
        int64_t enc;

        for (int64_t i = 0; i < n; i++)
            size[i] = seq[i].n_prompt;
        enc = sum_of_largest(size, n, out->slots);
        /* The two caches share the bytes as the sequences need them. */
        if ((uint64_t)rows * each + (uint64_t)enc * enc_each > bytes) {
            double part = (double)bytes / ((double)rows * (double)each +
                                           (double)enc * (double)enc_each);

            rows = (int64_t)((double)rows * part);
            enc = (int64_t)((double)enc * part);
        }
        out->enc_rows = enc > size[0] ? enc : size[0];
        out->longest = longest > size[0] ? longest : size[0];
    }
    rows = out->slots == 1 ? longest : least(rows, (int64_t)(bytes / each));
    rows = least(rows, INT32_MAX / a->num_key_value_heads - out->prefix);
    out->rows = (rows > longest ? rows : longest) + out->prefix;
    ckpt_free(size);
    return 0;
}

/* -- the batch -------------------------------------------------------------------------------- */

static bool wants_logprobs(const struct slots *s) { return s->seq[0].logprob != NULL; }

/*
 * A sum over all logits counts an eos that comes too early: it is forbidden before the sum, or else
 * the sum would be of no use.  Log-probabilities are those before any rule.
 */
static void plan_forbid(struct slots *s)
{
    const struct generate_opts *o = s->opts;
    struct op_forbid *f = &s->forbid;
    bool able = s->top.k && s->top.temperature > 0 && o->n_eos <= OP_FORBID_IDS &&
                !wants_logprobs(s) && (o->min_length > 0 || o->min_new_tokens > 0);

    for (size_t i = 0; able && i < o->n_eos; i++)
        if (o->eos[i] >= 0 && o->eos[i] < s->vocab)
            f->id[f->n_ids++] = o->eos[i];
}

/* Sequences of the session: the slots, and one that is never continued: the common prefix. */
static int64_t n_docs(const struct slots *s) { return s->plan.slots + (s->plan.prefix > 0); }

/* How many of the largest logits are fetched, and with which sum. */
static void plan_top(struct slots *s)
{
    const struct generate_opts *o = s->opts;
    int64_t k = generate_top_wanted(o, s->vocab);
    double temperature = generate_top_temperature(o, s->vocab);

    if (k && wants_logprobs(s)) {       /* these need the sum at temperature 1 */
        k = k > o->n_logprobs + 1 ? k : least(o->n_logprobs + 1, s->vocab);
        if ((temperature > 0 && temperature != 1) || k > OP_TOP_MOST)
            k = 0;
        temperature = 1;
    }
    s->top.k = n_docs(s) <= decode_top_docs(s->decode) ? k : 0;
    s->top.temperature = temperature;
    plan_forbid(s);
}

static int open_slots(struct slots *s, struct model *m, struct ckpt_err *err)
{
    int64_t S;
    int rc = generate_plan(&s->plan, m, s->opts, s->seq, s->n, err);

    if (rc)
        return rc;
    S = s->plan.slots;
    const struct decode_size size = {.docs = n_docs(s), .len = s->plan.longest,
                                     .rows = s->plan.rows, .enc_rows = s->plan.enc_rows};

    if ((rc = decode_open(&s->decode, m, &size, err)) != 0)
        return rc;
    plan_top(s);
    const struct host_array arrays[] = {
        HOST_ARRAY(s->of, S), HOST_ARRAY(s->entered, s->n), HOST_ARRAY(s->n_new, S + 1),
        HOST_ARRAY(s->ids, s->plan.rows + S), HOST_ARRAY(s->history, s->plan.longest + 1),
        HOST_ARRAY(s->enc_ids, s->plan.enc_rows), HOST_ARRAY(s->enc_n, S),
        HOST_ARRAY(s->enc_slot, S), HOST_ARRAY(s->scratch, s->vocab),
        HOST_ARRAY(s->raw, wants_logprobs(s) ? s->vocab : 0),
        HOST_ARRAY(s->logits, (s->top.k ? 1 : n_docs(s)) * s->vocab),
    };

    return host_arrays(&s->arena, arrays, sizeof arrays / sizeof arrays[0], err);
}

/* Feed what all prompts begin with, as the sequence after the slots. */
static int feed_prefix(struct slots *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t at = s->plan.slots;
    int rc;

    if (s->plan.prefix == 0)
        return 0;
    if (!decode_place(s->decode, at, s->plan.prefix, 0))
        return ckpt_fail(err, CKPT_ESTATE, "no rows for the common prefix");
    memset(s->n_new, 0, (size_t)(at + 1) * sizeof *s->n_new);
    s->n_new[at] = (int32_t)s->plan.prefix;
    rc = s->top.k ? decode_top(s->decode, w, s->seq[0].prompt, s->n_new, at + 1, &s->top, err)
                  : decode_step(s->decode, w, s->seq[0].prompt, s->n_new, at + 1, s->logits, err);
    s->n_new[at] = 0;
    return rc;
}

/* Let sequence i enter, if there are rows for it now. */
static bool enter(struct slots *s, int64_t i)
{
    const struct generate_seq *q = &s->seq[i];
    bool enc = encodes(s->arch);

    if (!decode_place(s->decode, s->active, rows_of(s->arch, s->opts, q), enc ? q->n_prompt : 0))
        return false;
    s->of[s->active++] = i;
    s->entered[i] = true;
    return true;
}

/* Fill the slots from the queue.  A prompt that has no place now may be passed by shorter ones,
 * but not for ever. */
static void fill(struct slots *s)
{
    while (s->next < s->n && s->entered[s->next]) {
        s->next++;
        s->passed = 0;
    }
    for (int64_t i = s->next; i < s->n && s->active < s->plan.slots; i++) {
        if (s->entered[i])
            continue;
        if (i > s->next && !s->entered[s->next] && s->passed >= MOST_PASSED)
            return;
        if (enter(s, i) && i > s->next && !s->entered[s->next])
            s->passed++;
    }
}

/* Begin the sequences of slots from `from` on: the encoder reads their prompts, or they take over
 * the common prefix. */
static int begin(struct slots *s, const struct model_weights *w, int64_t from, struct ckpt_err *err)
{
    int64_t n = 0, at = 0;
    int rc = 0;

    for (int64_t k = from; rc == 0 && k < s->active; k++) {
        const struct generate_seq *q = &s->seq[s->of[k]];

        if (encodes(s->arch)) {
            memcpy(s->enc_ids + at, q->prompt, (size_t)q->n_prompt * sizeof *s->enc_ids);
            s->enc_n[n] = (int32_t)q->n_prompt;
            s->enc_slot[n++] = k;
            at += q->n_prompt;
        } else if (s->plan.prefix) {
            rc = decode_share(s->decode, k, s->plan.slots, s->plan.prefix, err);
        }
    }
    return rc || n == 0 ? rc : decode_encode_at(s->decode, w, s->enc_slot, s->enc_ids, s->enc_n, n,
                                                err);
}

/* Set ids and n_new: the prompt of a sequence that has just entered, else its last token. */
static void next_tokens(struct slots *s)
{
    int64_t at = 0;

    for (int64_t k = 0; k < s->active; k++) {
        const struct generate_seq *q = &s->seq[s->of[k]];
        int64_t fed;

        if (q->n_out > 0) {
            s->ids[at++] = q->out[q->n_out - 1];
            s->n_new[k] = 1;
            continue;
        }
        fed = generate_fed(s->history, s->arch, s->opts, q);
        memcpy(s->ids + at, s->history + s->plan.prefix,
               (size_t)(fed - s->plan.prefix) * sizeof *s->ids);
        s->n_new[k] = (int32_t)(fed - s->plan.prefix);
        at += s->n_new[k];
    }
}

static bool is_forbidden(const struct slots *s, int64_t k)
{
    return s->top.forbid && (s->forbid.rows[k / 32] >> (k % 32) & 1);
}

/* Mark the slots whose sequences are too short for an eos. */
static void forbid_early(struct slots *s)
{
    struct op_forbid *f = &s->forbid;

    s->top.forbid = NULL;
    memset(f->rows, 0, sizeof f->rows);
    for (int64_t k = 0; f->n_ids && k < s->active; k++) {
        const struct generate_seq *q = &s->seq[s->of[k]];
        int64_t fed = generate_fed(NULL, s->arch, s->opts, q);

        if (!generate_too_short(s->opts, fed + q->n_out, fed))
            continue;
        f->rows[k / 32] |= 1u << (k % 32);
        s->top.forbid = f;
    }
}

/* -- a token ---------------------------------------------------------------------------------- */

/* Record the likeliest tokens of a position from the logits raw [vocab]; gives the logarithm of
 * the sum of all. */
static double note_top(struct slots *s, struct generate_seq *q, const float *raw)
{
    int64_t N = s->opts->n_logprobs, n = 0;
    int32_t *id = q->top_id + q->n_out * N;
    float *z = q->top_logprob + q->n_out * N, max = -INFINITY;
    double sum = 0;

    for (int64_t i = 0; i < s->vocab; i++) {
        int64_t at;

        max = raw[i] > max ? raw[i] : max;
        if (N == 0 || (n == N && !(raw[i] > z[N - 1])))
            continue;
        for (at = n < N ? n++ : N - 1; at > 0 && z[at - 1] < raw[i]; at--) {
            z[at] = z[at - 1];
            id[at] = id[at - 1];
        }
        z[at] = raw[i];
        id[at] = (int32_t)i;
    }
    for (int64_t i = 0; i < s->vocab; i++)
        sum += exp((double)(raw[i] - max));
    return (double)max + log(sum);
}

/* The same from the largest logits. */
static double note_some(struct slots *s, struct generate_seq *q, const struct generate_top *top)
{
    int64_t N = s->opts->n_logprobs;

    for (int64_t i = 0; i < N; i++) {
        q->top_id[q->n_out * N + i] = top->id[i];
        q->top_logprob[q->n_out * N + i] = top->value[i];
    }
    return (double)top->value[0] + log(top->sum);
}

/* Turn the recorded logits of the position into logarithms of probabilities. */
static void norm_top(struct slots *s, struct generate_seq *q, double all)
{
    float *z = q->top_logprob + q->n_out * s->opts->n_logprobs;

    for (int64_t i = 0; i < s->opts->n_logprobs; i++)
        z[i] = (float)((double)z[i] - all);
}

/* Fetch the logits of slot k into s->logits; NULL with err. */
static float *row_of(struct slots *s, int64_t k, struct ckpt_err *err)
{
    float *z = s->logits + (s->top.k ? 0 : k * s->vocab);

    return s->top.k && decode_row(s->decode, k, z, err) ? NULL : z;
}

/* Record the logarithms of probabilities of the position of which token id was chosen. */
static int note(struct slots *s, struct generate_seq *q, int64_t k, int32_t id,
                const struct generate_top *top, struct ckpt_err *err)
{
    const float *raw = s->raw;
    double all, z = NAN;

    if (top && isfinite(top->sum)) {
        all = note_some(s, q, top);
        for (int64_t i = 0; i < top->k; i++)
            z = top->id[i] == id ? (double)top->value[i] : z;
    } else {
        all = note_top(s, q, raw);
    }
    if (isnan(z) && top) {              /* a rule chose an unlikely one */
        if (!(raw = row_of(s, k, err)))
            return ckpt_err_code(err);
    }
    q->logprob[q->n_out] = (float)((isnan(z) ? (double)raw[id] : z) - all);
    norm_top(s, q, all);
    return 0;
}

/* Choose the next token of slot k from its logits. */
static int choose(struct slots *s, int64_t k, struct ckpt_err *err)
{
    struct generate_seq *q = &s->seq[s->of[k]];
    int64_t fed = generate_fed(s->history, s->arch, s->opts, q), len = fed + q->n_out;
    struct generate_place at = {.history = s->history, .n = len, .n_fed = fed,
                                .most = generate_most(s->arch, s->opts, q),
                                .prompt = q->prompt, .n_prompt = q->n_prompt,
                                .no_eos = is_forbidden(s, k)};
    double draw = rng_uniform(s->opts->seed, q->stream, (uint64_t)q->n_out);
    struct generate_top top = {.k = s->top.k};
    bool sure = false;
    int32_t id = -1;
    int rc = 0;

    memcpy(s->history + fed, q->out, (size_t)q->n_out * sizeof *s->history);
    if (top.k) {
        top.value = s->top.value + k * top.k;
        top.id = s->top.id + k * top.k;
        top.sum = s->top.sum[k];
        sure = generate_pick_top(&id, &top, s->vocab, &at, s->opts, draw);
    }
    if (!sure) {
        float *z = row_of(s, k, err);

        if (!z)
            return ckpt_err_code(err);
        if (q->logprob)
            memcpy(s->raw, z, (size_t)s->vocab * sizeof *z);
        id = generate_pick(z, s->vocab, &at, s->opts, draw, s->scratch);
    }
    if (id < 0)
        return ckpt_fail_as(err, CKPT_ENO, "non-finite",
                            "sequence %lld: logits after %lld tokens are not finite",
                            (long long)s->of[k], (long long)len);
    if (q->logprob)
        rc = note(s, q, k, id, sure ? &top : NULL, err);
    q->out[q->n_out++] = id;
    q->stopped = generate_is_eos(s->opts, id);
    if (!q->stopped && s->opts->hooks && s->opts->hooks->stops)
        q->by_text = s->opts->hooks->stops(s->opts->hooks->ctx, q);
    return rc;
}

/* Sequences that have ended leave; the last slot takes the place of one, so that the slots in use
 * stay the first ones and their logits one product. */
static int leave(struct slots *s, struct ckpt_err *err)
{
    const struct generate_hooks *h = s->opts->hooks;
    int rc = 0;

    for (int64_t k = s->active; rc == 0 && k-- > 0;) {
        struct generate_seq *q = &s->seq[s->of[k]];

        if (!q->stopped && !q->by_text && q->n_out < generate_most(s->arch, s->opts, q))
            continue;
        decode_drop(s->decode, k);
        s->active--;
        if (k < s->active) {
            decode_swap(s->decode, k, s->active);
            s->of[k] = s->of[s->active];
        }
        s->ended++;
        if (h && h->done)
            rc = h->done(h->ctx, q, err);
    }
    return rc;
}

static int run(struct slots *s, const struct model_weights *w, struct ckpt_err *err)
{
    int rc = feed_prefix(s, w, err);

    while (rc == 0 && s->ended < s->n) {
        int64_t from = s->active;

        if ((rc = generate_goes_on(s->opts, err)) != 0)
            return rc;
        fill(s);
        if (s->active == 0)
            return ckpt_fail(err, CKPT_ESTATE, "no sequence fits the cache");
        if ((rc = begin(s, w, from, err)) != 0)
            return rc;
        next_tokens(s);
        forbid_early(s);
        rc = s->top.k ? decode_top(s->decode, w, s->ids, s->n_new, s->active, &s->top, err)
                      : decode_step(s->decode, w, s->ids, s->n_new, s->active, s->logits, err);
        for (int64_t k = 0; rc == 0 && k < s->active; k++)
            rc = choose(s, k, err);
        if (rc == 0)
            rc = leave(s, err);
        ckpt_log_progress("generation", "continuations", (uint64_t)s->ended, (uint64_t)s->n);
    }
    return rc;
}

int generate_slots(struct model *m, const struct model_weights *w,
                   const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                   struct ckpt_err *err)
{
    struct slots s = {.opts = opts, .arch = m->arch, .seq = seq, .n = n,
                      .vocab = m->arch->vocab_size};
    int rc = open_slots(&s, m, err);

    if (rc == 0)
        rc = run(&s, w, err);
    decode_free(s.decode);
    ckpt_arena_release(&s.arena);
    return rc;
}
