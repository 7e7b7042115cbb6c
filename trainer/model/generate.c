/* generate - see generate.h. */
#include "trainer/model/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "trainer/model/arch.h"
#include "trainer/model/pass.h"
#include "trainer/rng.h"

/* Every token of the history once: towards less likely. */
void generate_penalise(float *logits, const int32_t *history, int64_t n, float penalty,
                       struct generate_choice *scratch)
{
    /* From a copy of the values, so that a token that occurs twice is changed once. */
    for (int64_t i = 0; i < n; i++)
        scratch[history[i]].logit = logits[history[i]];
    for (int64_t i = 0; i < n; i++) {
        float z = scratch[history[i]].logit;

        logits[history[i]] = z < 0 ? z * penalty : z / penalty;
    }
}

/* Highest logit; of equals the lowest id.  -1 when there is none, or a NaN. */
static int32_t best(const float *logits, int64_t vocab)
{
    int32_t at = -1;

    for (int64_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] > (at < 0 ? -INFINITY : logits[at]))
            at = (int32_t)i;
    }
    return at;
}

static int likelier_first(const void *a, const void *b)
{
    const struct generate_choice *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Restore a heap whose root is the least likely of n. */
static void sink(struct generate_choice *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        struct generate_choice held = heap[at];

        if (child + 1 < n && likelier_first(&heap[child + 1], &heap[child]) > 0)
            child++;
        if (likelier_first(&held, &heap[child]) >= 0)
            return;
        heap[at] = heap[child];
        heap[child] = held;
    }
}

/* The k most likely, in any order; gives how many. */
static int64_t top_k(struct generate_choice *c, const float *logits, int64_t vocab, int64_t k)
{
    int64_t n = 0;

    for (int64_t i = 0; i < vocab; i++) {
        struct generate_choice one = {.logit = logits[i], .id = (int32_t)i};

        if (n < k) {
            c[n++] = one;
            for (int64_t at = n / 2 - 1; n == k && at >= 0; at--)
                sink(c, n, at);
        } else if (likelier_first(&one, &c[0]) < 0) {
            c[0] = one;
            sink(c, n, 0);
        }
    }
    return n;
}

/*
 * The most likely of n whose probabilities (unnormalised, their sum is total) reach top_p,
 * sorted; gives how many.  Whatever is below an equal share of what may be left out is left out
 * unsorted.
 */
static int64_t nucleus(struct generate_choice *c, int64_t n, double top_p, double *total)
{
    double least = (1.0 - top_p) * *total / (double)n, sum = 0;
    int64_t kept = 0, i;

    for (i = 0; i < n; i++)
        if (c[i].p >= least)
            c[kept++] = c[i];
    qsort(c, (size_t)kept, sizeof *c, likelier_first);
    for (i = 0; i < kept && sum < top_p * *total; i++)
        sum += c[i].p;
    *total = sum;
    return i;
}

int32_t generate_pick(float *logits, int64_t vocab, const int32_t *history, int64_t n,
                      const struct generate_opts *opts, double draw,
                      struct generate_choice *scratch)
{
    double total = 0, sum = 0;
    int32_t top;
    int64_t kept;
    float max;

    if (opts->repetition_penalty != 1)
        generate_penalise(logits, history, n, (float)opts->repetition_penalty, scratch);
    top = best(logits, vocab);
    if (!opts->do_sample || top < 0)
        return top;
    max = logits[top];
    kept = top_k(scratch, logits, vocab, opts->top_k > 0 && opts->top_k < vocab ? opts->top_k
                                                                                 : vocab);
    for (int64_t i = 0; i < kept; i++) {
        scratch[i].p = exp((double)(scratch[i].logit - max) / opts->temperature);
        total += scratch[i].p;
    }
    if (opts->top_p < 1)
        kept = nucleus(scratch, kept, opts->top_p, &total);
    else if (opts->top_k > 0)
        qsort(scratch, (size_t)kept, sizeof *scratch, likelier_first);
    for (int64_t i = 0; i < kept; i++) {
        sum += scratch[i].p;
        if (draw * total < sum)
            return scratch[i].id;
    }
    return top;                         /* draw * total met the sum's last rounding */
}

/* A run in work. */
struct state {
    const struct generate_opts *opts;
    struct generate_seq        *seq;
    int64_t                     n, vocab;
    const struct arch          *arch;
    struct decode              *decode;
    float                      *logits;         /* [n][vocab] */
    int32_t                    *ids, *n_new;    /* what is fed next */
    int32_t                    *history;        /* [longest] of the sequence in work */
    struct generate_choice     *scratch;
};

static int check(const struct generate_opts *o, const struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err)
{
    if (o->max_new_tokens < 1 || o->max_new_tokens > 1 << 28)
        return ckpt_fail(err, CKPT_ECONFIG, "max_new_tokens is %lld, wanted 1 to %d",
                         (long long)o->max_new_tokens, 1 << 28);
    if (!(o->repetition_penalty > 0))
        return ckpt_fail(err, CKPT_ECONFIG, "repetition_penalty is %g, wanted above 0",
                         o->repetition_penalty);
    if (o->do_sample && !(o->temperature > 0))
        return ckpt_fail(err, CKPT_ECONFIG, "temperature is %g, wanted above 0",
                         o->temperature);
    if (o->do_sample && (o->top_k < 0 || !(o->top_p > 0 && o->top_p <= 1)))
        return ckpt_fail(err, CKPT_ECONFIG,
                         "top_k is %lld, top_p %g: wanted 0 or more, and (0, 1]",
                         (long long)o->top_k, o->top_p);
    if (o->num_beams < 0 || o->num_beams > GENERATE_MAX_BEAMS || (o->num_beams > 1 && o->do_sample))
        return ckpt_fail(err, CKPT_ECONFIG, "num_beams is %lld%s: wanted 1 to %d, and no sampling",
                         (long long)o->num_beams, o->do_sample ? " with do_sample" : "",
                         GENERATE_MAX_BEAMS);
    if (!isfinite(o->length_penalty))
        return ckpt_fail(err, CKPT_ECONFIG, "length_penalty is not finite");
    for (int64_t i = 0; i < n; i++)
        if (seq[i].n_prompt < 1 || seq[i].n_prompt > 1 << 28)
            return ckpt_fail(err, CKPT_ECONFIG, "prompt %lld has %lld tokens, wanted 1 or more",
                             (long long)i, (long long)seq[i].n_prompt);
    return 0;
}

static int allocate(struct state *s, struct model *m, struct ckpt_err *err)
{
    int64_t longest = 0, all = 0;
    size_t n = (size_t)s->n;

    for (int64_t i = 0; i < s->n; i++) {
        longest = s->seq[i].n_prompt > longest ? s->seq[i].n_prompt : longest;
        all += s->seq[i].n_prompt;
    }
    longest += s->opts->max_new_tokens;
    s->ids = ckpt_alloc((size_t)all, sizeof *s->ids);
    s->n_new = ckpt_alloc(n, sizeof *s->n_new);
    s->history = ckpt_alloc((size_t)longest, sizeof *s->history);
    s->scratch = ckpt_alloc((size_t)s->vocab, sizeof *s->scratch);
    s->logits = ckpt_alloc(n * (size_t)s->vocab, sizeof *s->logits);
    if (!s->ids || !s->n_new || !s->history || !s->scratch || !s->logits)
        return ckpt_nomem(err, n * (size_t)s->vocab * sizeof *s->logits);
    return decode_new(&s->decode, m, s->n, longest, err);
}

bool generate_is_eos(const struct generate_opts *o, int32_t id)
{
    for (size_t i = 0; i < o->n_eos; i++)
        if (o->eos[i] == id)
            return true;
    return false;
}

/* What the decoder is fed before anything of its own, to ids; gives how much. */
static int64_t fed_first(const struct state *s, const struct generate_seq *q, int32_t *ids)
{
    if (s->arch->stack == ARCH_ENCODER_DECODER) {
        ids[0] = (int32_t)s->arch->decoder_start_token_id;
        return 1;
    }
    memcpy(ids, q->prompt, (size_t)q->n_prompt * sizeof *ids);
    return q->n_prompt;
}

/* Prompts to the encoder, `each` sequences of the session from one. */
static int encode(struct state *s, const struct model_weights *w, int64_t each,
                  struct ckpt_err *err)
{
    int64_t at = 0;

    if (s->arch->stack != ARCH_ENCODER_DECODER)
        return 0;
    for (int64_t i = 0; i < s->n; i++) {
        memcpy(s->ids + at, s->seq[i].prompt, (size_t)s->seq[i].n_prompt * sizeof *s->ids);
        s->n_new[i] = (int32_t)s->seq[i].n_prompt;
        at += s->seq[i].n_prompt;
    }
    return decode_encode(s->decode, w, s->ids, s->n_new, s->n, each, err);
}

/* Choose sequence i's next token from its logits. */
static int choose(struct state *s, int64_t i, struct ckpt_err *err)
{
    struct generate_seq *q = &s->seq[i];
    int64_t len = fed_first(s, q, s->history) + q->n_out;
    int32_t id;

    memcpy(s->history + len - q->n_out, q->out, (size_t)q->n_out * sizeof *s->history);
    id = generate_pick(s->logits + i * s->vocab, s->vocab, s->history, len, s->opts,
                       rng_uniform(s->opts->seed, q->stream, (uint64_t)q->n_out), s->scratch);
    if (id < 0)
        return ckpt_fail_as(err, CKPT_ENO, "non-finite",
                            "sequence %lld: logits after %lld tokens "
                            "are not finite",
                            (long long)i, (long long)len);
    q->out[q->n_out++] = id;
    q->stopped = generate_is_eos(s->opts, id);
    return 0;
}

static int run(struct state *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t fed = 0;

    if (encode(s, w, 1, err))
        return err->code;
    for (int64_t i = 0; i < s->n; i++) {
        s->n_new[i] = (int32_t)fed_first(s, &s->seq[i], s->ids + fed);
        fed += s->n_new[i];
    }
    while (fed > 0) {
        if (decode_step(s->decode, w, s->ids, s->n_new, s->n, s->logits, err))
            return err->code;
        fed = 0;
        for (int64_t i = 0; i < s->n; i++) {
            struct generate_seq *q = &s->seq[i];

            if (s->n_new[i] == 0)
                continue;
            if (choose(s, i, err))
                return err->code;
            s->n_new[i] = !q->stopped && q->n_out < s->opts->max_new_tokens;
            if (s->n_new[i])
                s->ids[fed++] = q->out[q->n_out - 1];
        }
    }
    return 0;
}

int generate_run(struct model *m, const struct model_weights *w,
                 const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err)
{
    struct state s = {.opts = opts, .seq = seq, .n = n, .vocab = m->arch->vocab_size,
                      .arch = m->arch};
    int rc;

    if (n == 0)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        seq[i].n_out = 0;
        seq[i].stopped = false;
    }
    rc = check(opts, seq, n, err);
    if (rc == 0 && opts->num_beams > 1)
        return generate_beams(m, w, opts, seq, n, err);
    if (rc == 0)
        rc = allocate(&s, m, err);
    if (rc == 0)
        rc = run(&s, w, err);
    decode_free(s.decode);
    ckpt_free(s.ids);
    ckpt_free(s.n_new);
    ckpt_free(s.history);
    ckpt_free(s.scratch);
    ckpt_free(s.logits);
    return rc;
}
