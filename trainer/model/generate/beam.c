/*
 * beam - generation by beam search: the likeliest whole continuations instead of the likeliest
 * next token.
 *
 * Each prompt has B running beams, which are B sequences of the session, and up to B finished
 * hypotheses.  A step takes the K likeliest continuations of all beams, K = max(2, 1 + eos ids) *
 * B: the first B of them that do not end continue, and those among the first B that end are
 * finished, with score / length^length_penalty.  Scores are f32 as the reference's.  Source:
 * transformers 5.17, generation/utils.py, _beam_search.
 */
#include <math.h>
#include <string.h>

#include "formats/families/arch.h"
#include "trainer/model/generate/state.h"
#include "trainer/model/host.h"
#include "trainer/model/pass.h"         /* for the model's description */

#define NO_SCORE (-1e9f)

/* A continuation: a beam and its next token. */
struct next {
    float   score;
    int32_t id;
    int64_t beam;
};

/* One prompt's search. */
struct search {
    float    score[GENERATE_MAX_BEAMS];         /* of running beams: sums of log-probabilities */
    float    end_score[GENERATE_MAX_BEAMS];     /* falling; NO_SCORE: no hypothesis there */
    int64_t  end_len[GENERATE_MAX_BEAMS];
    int32_t *out;                               /* [B][max_new] of running beams */
    int32_t *end;                               /* [B][max_new] */
    int64_t  n_end;
    int64_t  most;                              /* tokens of a continuation */
    bool     done;
};

struct beams {
    struct generate_state g;                    /* each: B */
    int64_t               B, K, max_new;
    struct search        *search;               /* [n] */
    int32_t              *tokens;               /* [n][2][B][max_new] */
    int32_t              *from;                 /* [n B] */
    int32_t              *kept;                 /* [B][max_new] */
    struct next          *best;                 /* [K] falling */
    int64_t               n_best;
};

/* The position of a beam's next token, with its history assembled. */
static struct generate_place place_of(struct beams *s, const struct search *q,
                                      const struct generate_seq *seq, int64_t beam, int64_t len)
{
    struct generate_place at = {.history = s->g.history, .most = q->most, .prompt = seq->prompt,
                                .n_prompt = seq->n_prompt};

    at.n_fed = generate_fed(s->g.history, s->g.arch, s->g.opts, seq);
    at.n = at.n_fed + len;
    memcpy(s->g.history + at.n_fed, q->out + beam * s->max_new, (size_t)len * sizeof *s->g.history);
    return at;
}

/* Turn logits into log-probabilities, and process them. */
static int log_probs(struct beams *s, const struct generate_place *at, int64_t len, float *z,
                     struct ckpt_err *err)
{
    float max = -INFINITY;
    double sum = 0;

    for (int64_t i = 0; i < s->g.vocab; i++)
        max = z[i] > max || isnan(z[i]) ? z[i] : max;
    if (!isfinite(max))
        return ckpt_fail_as(err, CKPT_ENO, "non-finite", "logits after %lld tokens are not finite",
                            (long long)len);
    for (int64_t i = 0; i < s->g.vocab; i++)
        sum += exp((double)(z[i] - max));
    for (int64_t i = 0; i < s->g.vocab; i++)
        z[i] = z[i] - max - (float)log(sum);
    generate_process(z, s->g.vocab, at, s->g.opts, s->g.scratch);
    return 0;
}

/* Keep a continuation if it is among the K best; the earlier one among equals. */
static void offer(struct beams *s, struct next next)
{
    int64_t at;

    if (s->n_best == s->K && next.score <= s->best[s->K - 1].score)
        return;
    at = s->n_best < s->K ? s->n_best++ : s->K - 1;
    for (; at > 0 && s->best[at - 1].score < next.score; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = next;
}

/* Insert a finished hypothesis, if it is good enough. */
static void add_end(struct beams *s, struct search *q, const struct next *next, int64_t len)
{
    float score = (float)((double)next->score / pow((double)(len + 1), s->g.opts->length_penalty));
    int64_t at = q->n_end < s->B ? q->n_end : s->B - 1;

    if (q->n_end == s->B && score <= q->end_score[at])
        return;
    q->n_end += q->n_end < s->B;
    for (; at > 0 && q->end_score[at - 1] < score; at--) {
        q->end_score[at] = q->end_score[at - 1];
        q->end_len[at] = q->end_len[at - 1];
        memcpy(q->end + at * s->max_new, q->end + (at - 1) * s->max_new,
               (size_t)s->max_new * sizeof *q->end);
    }
    q->end_score[at] = score;
    q->end_len[at] = len + 1;
    memcpy(q->end + at * s->max_new, q->out + next->beam * s->max_new,
           (size_t)len * sizeof *q->end);
    q->end[at * s->max_new + len] = next->id;
}

/* Whether a running beam could still beat the worst finished hypothesis. */
static bool hopeful(const struct beams *s, const struct search *q, int64_t len)
{
    bool far = s->g.opts->early_stopping == GENERATE_NEVER && s->g.opts->length_penalty > 0;
    double most = pow((double)(far ? q->most : len), s->g.opts->length_penalty);

    return q->n_end < s->B || (float)((double)q->score[0] / most) > q->end_score[s->B - 1];
}

/* Choose the beams that continue: the first B of the best that do not end. */
static void run_on(struct beams *s, struct search *q, int64_t i, int64_t len, bool last)
{
    int64_t b = 0;

    memcpy(s->kept, q->out, (size_t)(s->B * s->max_new) * sizeof *s->kept);
    for (int64_t k = 0; k < s->n_best && b < s->B; k++) {
        const struct next *next = &s->best[k];

        if (last || generate_is_eos(s->g.opts, next->id))
            continue;
        memcpy(q->out + b * s->max_new, s->kept + next->beam * s->max_new,
               (size_t)len * sizeof *q->out);
        q->out[b * s->max_new + len] = next->id;
        q->score[b] = next->score;
        s->from[i * s->B + b++] = (int32_t)(i * s->B + next->beam);
    }
    q->done |= b < s->B;                /* the last token, or too few beams to continue */
}

/* Offer a beam's continuations from its likeliest tokens alone; false: these do not suffice. */
static bool offer_some(struct beams *s, const struct generate_place *at, int64_t row, int64_t beam,
                       float score)
{
    const struct decode_top *t = &s->g.top;
    struct generate_top top = {t->value + row * t->k, t->id + row * t->k, t->k, t->sum[row]};
    struct generate_choice c[OP_TOP_MOST];
    float max = top.value[0], by = (float)log(top.sum), beyond;
    int64_t n, sure = 0;
    bool changed;

    if (!isfinite(max) || !isfinite(top.sum))
        return false;
    n = generate_some(c, &top);
    for (int64_t i = 0; i < n; i++)
        c[i].logit = c[i].logit - max - by;
    if (!generate_process_some(c, n, at, s->g.opts, &changed))
        return false;
    beyond = top.k < s->g.vocab ? top.value[top.k - 1] - max - by + score : -INFINITY;
    for (int64_t i = 0; i < n; i++)
        sure += c[i].logit + score > beyond;
    if (top.k < s->g.vocab && sure < s->K)
        return false;
    for (int64_t i = 0; i < n; i++)
        offer(s, (struct next){.score = c[i].logit + score, .id = c[i].id, .beam = beam});
    return true;
}

/* Offer all continuations of beam b of prompt i. */
static int offer_all(struct beams *s, int64_t i, int64_t b, int64_t len, struct ckpt_err *err)
{
    const struct search *q = &s->search[i];
    struct generate_place at = place_of(s, q, &s->g.seq[i], b, len);
    int64_t row = i * s->B + b;
    float *z = s->g.logits + (s->g.top.k ? 0 : row * s->g.vocab);

    if (s->g.top.k && offer_some(s, &at, row, b, q->score[b]))
        return 0;
    if ((s->g.top.k && decode_row(s->g.decode, row, z, err)) || log_probs(s, &at, len, z, err))
        return ckpt_err_in(err, "sequence %lld", (long long)i);
    for (int64_t t = 0; t < s->g.vocab; t++)
        offer(s, (struct next){.score = z[t] + q->score[b], .id = (int32_t)t, .beam = b});
    return 0;
}

/* Advance prompt i's beams, which have len tokens each. */
static int advance(struct beams *s, int64_t i, int64_t len, struct ckpt_err *err)
{
    struct search *q = &s->search[i];
    bool last = len + 1 == q->most;
    bool full = s->g.opts->early_stopping == GENERATE_FULL && q->n_end == s->B;
    int rc;

    s->n_best = 0;
    for (int64_t b = 0; b < (len ? s->B : 1); b++)
        if ((rc = offer_all(s, i, b, len, err)) != 0)
            return rc;
    for (int64_t k = 0; !full && k < s->B && k < s->n_best; k++)
        if (last || generate_is_eos(s->g.opts, s->best[k].id))
            add_end(s, q, &s->best[k], len);
    run_on(s, q, i, len, last);
    if (!hopeful(s, q, len + 1) || (s->g.opts->early_stopping == GENERATE_FULL && q->n_end == s->B))
        q->done = true;
    return 0;
}

static int run(struct beams *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t fed = 1;
    int rc = generate_start(&s->g, w, err);

    if (rc)
        return rc;
    for (int64_t len = 0; fed > 0; len++) {
        if ((rc = generate_goes_on(s->g.opts, err)) != 0 ||
            (rc = generate_feed(&s->g, w, err)) != 0)
            return rc;
        for (int64_t i = 0; i < s->g.n * s->B; i++)
            s->from[i] = (int32_t)i;
        fed = 0;
        for (int64_t i = 0; i < s->g.n; i++) {
            struct search *q = &s->search[i];

            if (!q->done && (rc = advance(s, i, len, err)) != 0)
                return rc;
            for (int64_t b = 0; b < s->B; b++) {
                s->g.n_new[i * s->B + b] = !q->done;
                if (!q->done)
                    s->g.ids[fed++] = q->out[b * s->max_new + len];
            }
        }
        if (fed > 0 && (rc = decode_reorder(s->g.decode, s->from, err)) != 0)
            return rc;
    }
    for (int64_t i = 0; i < s->g.n; i++) {
        const struct search *q = &s->search[i];

        s->g.seq[i].n_out = q->n_end ? q->end_len[0] : 0;
        memcpy(s->g.seq[i].out, q->end, (size_t)s->g.seq[i].n_out * sizeof *q->end);
        s->g.seq[i].stopped = q->n_end && generate_is_eos(s->g.opts, q->end[q->end_len[0] - 1]);
    }
    return 0;
}

/* K of each beam, plus as many as the rules may remove. */
static int64_t top_wanted(const struct generate_opts *opts, int64_t K, int64_t vocab)
{
    struct generate_opts as = *opts;

    as.do_sample = true;
    as.top_k = K;
    return generate_top_wanted(&as, vocab);
}

static int allocate(struct beams *s, struct ckpt_err *err)
{
    int64_t n = s->g.n, row = s->B * s->max_new;
    const struct host_array arrays[] = {
        HOST_ARRAY(s->search, n), HOST_ARRAY(s->tokens, 2 * n * row), HOST_ARRAY(s->kept, row),
        HOST_ARRAY(s->from, n * s->B), HOST_ARRAY(s->best, s->K),
    };
    int rc = host_arrays(&s->g.arena, arrays, sizeof arrays / sizeof arrays[0], err);

    for (int64_t i = 0; rc == 0 && i < n; i++) {
        s->search[i].most = generate_most(s->g.arch, s->g.opts, &s->g.seq[i]);
        s->search[i].out = s->tokens + 2 * i * row;
        s->search[i].end = s->tokens + (2 * i + 1) * row;
        for (int64_t b = 0; b < s->B; b++)
            s->search[i].end_score[b] = NO_SCORE;
    }
    return rc;
}

int generate_beams(struct model *m, const struct model_weights *w,
                   const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                   struct ckpt_err *err)
{
    int64_t B = opts->num_beams, eos = (int64_t)opts->n_eos;
    struct beams s = {.B = B, .K = (eos > 1 ? 1 + eos : 2) * B, .max_new = opts->max_new_tokens};
    int rc = generate_open(&s.g, m, opts, seq, n, B,
                           top_wanted(opts, s.K, m->arch->vocab_size), 1, err);

    if (rc == 0)
        rc = allocate(&s, err);
    if (rc == 0)
        rc = run(&s, w, err);
    generate_release(&s.g);
    return rc;
}
