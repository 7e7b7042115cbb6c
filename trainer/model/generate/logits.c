/* logits - see logits.h. */
#include "trainer/model/generate/logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops/ops.h"

/* Logits as the rules see them: all, or some with their ids. */
struct view {
    float                  *all;        /* [vocab]; NULL: */
    struct generate_choice *some;       /* [n] by rising id; p is free */
    struct generate_choice *scratch;    /* [vocab], with all */
    int64_t                 n;
    bool                    changed;    /* a rule changed a logit, or would change one that is
                                           absent */
    bool                    forced;     /* a rule needs all logits */
};

/* Position of a token's logit; -1: absent. */
static int64_t place_of(struct view *v, int32_t id)
{
    int64_t lo = 0, hi = v->n;

    v->changed = true;
    if (v->all)
        return id >= 0 && id < v->n ? id : -1;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;

        if (v->some[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < v->n && v->some[lo].id == id ? lo : -1;
}

/* Penalise every token of the history once. */
static void penalise(struct view *v, const struct generate_place *at, float penalty)
{
    /* From a copy of the values, so that a token that occurs twice is penalised once. */
    for (int64_t i = 0; i < at->n; i++) {
        int64_t j = place_of(v, at->history[i]);

        if (j >= 0 && v->all)
            v->scratch[j].logit = v->all[j];
        else if (j >= 0)
            v->some[j].p = v->some[j].logit;
    }
    for (int64_t i = 0; i < at->n; i++) {
        int64_t j = place_of(v, at->history[i]);
        float z;

        if (j < 0)
            continue;
        z = v->all ? v->scratch[j].logit : (float)v->some[j].p;
        *(v->all ? &v->all[j] : &v->some[j].logit) = z < 0 ? z * penalty : z / penalty;
    }
}

static void forbid_one(struct view *v, int32_t id)
{
    int64_t j = place_of(v, id);

    if (j >= 0)
        *(v->all ? &v->all[j] : &v->some[j].logit) = -INFINITY;
}

/* Forbid tokens that would complete an n-gram that occurred before. */
static void forbid_ngrams(struct view *v, const struct generate_place *at, int64_t size)
{
    int64_t k = size - 1;
    const int32_t *tail;

    if (at->n < size)
        return;
    tail = at->history + at->n - k;
    for (int64_t i = 0; i + k < at->n; i++)
        if (memcmp(at->history + i, tail, (size_t)k * sizeof *tail) == 0)
            forbid_one(v, at->history[i + k]);
}

static void forbid(struct view *v, struct generate_ids ids)
{
    for (size_t i = 0; i < ids.n; i++)
        forbid_one(v, ids.id[i]);
}

static void force(struct view *v, struct generate_ids ids)
{
    v->forced = true;
    for (int64_t i = 0; v->all && i < v->n; i++)
        v->all[i] = -INFINITY;
    for (size_t i = 0; v->all && i < ids.n; i++)
        if (ids.id[i] >= 0 && ids.id[i] < v->n)
            v->all[ids.id[i]] = 0;
}

bool generate_is_eos(const struct generate_opts *o, int32_t id)
{
    for (size_t i = 0; i < o->n_eos; i++)
        if (o->eos[i] == id)
            return true;
    return false;
}

static void rules(struct view *v, const struct generate_place *at, const struct generate_opts *o)
{
    int64_t chosen = at->n - at->n_fed;
    /* After a forced beginning, the first token counts from its end. */
    int64_t first = at->n_fed > 1 || o->forced_bos.n == 0 ? 0 : 1;

    if (o->repetition_penalty != 1)
        penalise(v, at, (float)o->repetition_penalty);
    if (o->no_repeat_ngram_size > 0)
        forbid_ngrams(v, at, o->no_repeat_ngram_size);
    if (at->n < o->min_length || chosen < o->min_new_tokens)
        forbid(v, (struct generate_ids){o->eos, o->n_eos});
    if (o->forced_bos.n && at->n == 1)
        force(v, o->forced_bos);
    if (o->forced_eos.n && chosen == at->most - 1)
        force(v, o->forced_eos);
    forbid(v, o->suppress);
    if (chosen == first)
        forbid(v, o->begin_suppress);
}

void generate_process(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *o, struct generate_choice *scratch)
{
    struct view v = {.all = logits, .scratch = scratch, .n = vocab};

    rules(&v, at, o);
}

bool generate_process_some(struct generate_choice *some, int64_t n,
                           const struct generate_place *at, const struct generate_opts *o,
                           bool *changed)
{
    struct view v = {.some = some, .n = n};

    rules(&v, at, o);
    *changed = v.changed;
    return !v.forced;
}

/* Id of the highest logit; the lowest id among equals.  -1 when there is none, or a NaN. */
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

/* The k most likely, and all equal to the last of them; gives how many. */
static int64_t top_k(struct generate_choice *c, const float *logits, int64_t vocab, int64_t k)
{
    float least = -INFINITY;
    int64_t n = 0;

    for (int64_t i = 0; k < vocab && i < vocab; i++) {
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
    if (n == k)
        least = c[0].logit;
    n = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] >= least && logits[i] > -INFINITY)
            c[n++] = (struct generate_choice){.logit = logits[i], .id = (int32_t)i};
    return n;
}

/*
 * The most likely of n whose probabilities (unnormalised; total includes all others) reach top_p,
 * sorted; gives how many, 0 when they do not reach it.  Tokens below an equal share, 1 / `of`, of
 * the part that may be left out are dropped without sorting.
 */
static int64_t nucleus(struct generate_choice *c, int64_t n, int64_t of, double top_p,
                       double *total)
{
    double least = (1.0 - top_p) * *total / (double)of, sum = 0;
    int64_t kept = 0, i;

    for (i = 0; i < n; i++)
        if (c[i].p >= least)
            c[kept++] = c[i];
    qsort(c, (size_t)kept, sizeof *c, likelier_first);
    for (i = 0; i < kept && sum < top_p * *total; i++)
        sum += c[i].p;
    if (sum < top_p * *total * (1 - 1e-9))
        return 0;
    *total = sum;
    return i;
}

/* Keep those whose p is at least min_p, relative to the likeliest, whose p is 1. */
static int64_t likely_enough(struct generate_choice *c, int64_t n, double min_p, double *total)
{
    int64_t kept = 0;

    *total = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p >= min_p) {
            *total += c[i].p;
            c[kept++] = c[i];
        }
    return kept;
}

/* Compute p relative to the likeliest; gives their sum. */
static double weigh(struct generate_choice *c, int64_t n, float top, double temperature)
{
    double total = 0;

    for (int64_t i = 0; i < n; i++) {
        c[i].p = exp((double)(c[i].logit - top) / temperature);
        total += c[i].p;
    }
    return total;
}

int64_t generate_candidates(struct generate_choice *c, double *total, const float *logits,
                            int64_t vocab, const struct generate_opts *o)
{
    bool few = o->top_k > 0 && o->top_k < vocab;
    int32_t top = best(logits, vocab);
    int64_t n;

    *total = 0;
    if (top < 0)
        return -1;
    n = top_k(c, logits, vocab, few ? o->top_k : vocab);
    *total = weigh(c, n, logits[top], o->temperature);
    if (o->top_p < 1)
        n = nucleus(c, n, n, o->top_p, total);
    else if (few)
        qsort(c, (size_t)n, sizeof *c, likelier_first);
    return o->min_p > 0 ? likely_enough(c, n, o->min_p, total) : n;
}

/* The token at the drawn point; -1: the point lies in the sum's rounding error. */
static int32_t drawn(const struct generate_choice *c, int64_t n, double total, double draw)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += c[i].p;
        if (draw * total < sum)
            return c[i].id;
    }
    return -1;
}

int32_t generate_pick(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *o, double draw, struct generate_choice *scratch)
{
    double total;
    int64_t n;
    int32_t id;

    generate_process(logits, vocab, at, o, scratch);
    if (!o->do_sample)
        return best(logits, vocab);
    n = generate_candidates(scratch, &total, logits, vocab, o);
    if (n < 0)
        return -1;
    id = drawn(scratch, n, total, draw);
    return id < 0 ? best(logits, vocab) : id;
}

/* -- from the largest logits alone ------------------------------------------------------------ */

int64_t generate_top_wanted(const struct generate_opts *o, int64_t vocab)
{
    enum { TIES = 8, RULED = 48 };              /* extra candidates: for ties, and for tokens
                                                   that rules may remove */
    bool few = o->top_k > 0 && o->top_k < vocab;
    int64_t k = 1;

    if (o->repetition_penalty < 1)              /* less likely tokens may rise */
        return 0;
    if (o->do_sample && few)
        k = o->top_k + TIES;
    else if (o->do_sample)
        k = o->top_p < 1 || o->min_p > 0 ? OP_TOP_MOST : vocab;
    k = k < vocab ? k : vocab;
    if (k > OP_TOP_MOST)
        return 0;
    k += (int64_t)(o->n_eos + o->suppress.n + o->begin_suppress.n);
    if (o->repetition_penalty > 1 || o->no_repeat_ngram_size > 0)
        k += RULED;
    k = k < OP_TOP_MOST ? k : OP_TOP_MOST;
    return k < vocab ? k : vocab;
}

double generate_top_temperature(const struct generate_opts *o, int64_t vocab)
{
    bool few = o->top_k > 0 && o->top_k < vocab;

    return o->do_sample && !few ? o->temperature : 0;
}

static int by_id(const void *a, const void *b)
{
    const struct generate_choice *x = a, *y = b;

    return (x->id > y->id) - (x->id < y->id);
}

int64_t generate_some(struct generate_choice *some, const struct generate_top *top)
{
    for (int64_t i = 0; i < top->k; i++)
        some[i] = (struct generate_choice){.logit = top->value[i], .id = top->id[i]};
    qsort(some, (size_t)top->k, sizeof *some, by_id);
    return top->k;
}

/* Apply top-k to c [n], in place; 0: tokens that are absent might belong to it. */
static int64_t some_top_k(struct generate_choice *c, int64_t n, int64_t k, float beyond)
{
    struct generate_choice sorted[OP_TOP_MOST];
    int64_t kept = 0;
    float least;

    if (k > n)
        return 0;
    memcpy(sorted, c, (size_t)n * sizeof *c);
    qsort(sorted, (size_t)n, sizeof *sorted, likelier_first);
    least = sorted[k - 1].logit;
    if (!(least > beyond))
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].logit >= least)
            c[kept++] = c[i];
    return kept;
}

/* The candidates among c [n], whose sum with all others is `all`; 0: absent tokens might belong
 * to them. */
static int64_t some_candidates(struct generate_choice *c, int64_t n, float top, float beyond,
                               double all, int64_t vocab, double *total,
                               const struct generate_opts *o)
{
    bool few = o->top_k > 0 && o->top_k < vocab;

    if (few) {
        n = some_top_k(c, n, o->top_k, beyond);
        *total = weigh(c, n, top, o->temperature);
        if (o->top_p < 1)
            n = n ? nucleus(c, n, n, o->top_p, total) : 0;
        else
            qsort(c, (size_t)n, sizeof *c, likelier_first);
        return n && o->min_p > 0 ? likely_enough(c, n, o->min_p, total) : n;
    }
    weigh(c, n, top, o->temperature);
    *total = all;
    if (o->top_p < 1) {
        n = nucleus(c, n, vocab, o->top_p, total);
        return n && o->min_p > 0 ? likely_enough(c, n, o->min_p, total) : n;
    }
    if (exp((double)(beyond - top) / o->temperature) >= o->min_p)
        return 0;
    return likely_enough(c, n, o->min_p, total);
}

bool generate_pick_top(int32_t *id, const struct generate_top *top, int64_t vocab,
                       const struct generate_place *at, const struct generate_opts *o, double draw)
{
    struct generate_choice c[OP_TOP_MOST];
    /* No absent logit is larger than this before the rules, nor after. */
    float beyond = top->k < vocab ? top->value[top->k - 1] : -INFINITY;
    int64_t n, first = -1;
    bool changed;
    double total;

    if (!isfinite(top->value[0]) || o->repetition_penalty < 1)
        return false;
    n = generate_some(c, top);
    if (!generate_process_some(c, n, at, o, &changed))
        return false;
    if (!changed && !o->do_sample) {
        *id = top->id[0];
        return true;
    }
    for (int64_t i = 0; i < n; i++)
        if (first < 0 || c[i].logit > c[first].logit)
            first = i;
    if (changed && !(c[first].logit > beyond))
        return false;
    *id = c[first].id;
    if (!o->do_sample)
        return true;
    if (generate_top_temperature(o, vocab) > 0 && (changed || !isfinite(top->sum)))
        return false;
    n = some_candidates(c, n, c[first].logit, beyond, top->sum, vocab, &total, o);
    *id = drawn(c, n, total, draw);
    return *id >= 0;
}
