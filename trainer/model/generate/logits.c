/* logits - see logits.h. */
#include "trainer/model/generate/logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ops/ops.h"

#define BLOCK 32                /* logits that are looked at together */

/* Id of the highest logit; the lowest id among equals.  -1 when there is none, or a NaN. */
static int32_t best(const float *logits, int64_t vocab)
{
    float most = -INFINITY;
    int nan = 0;
    int64_t at = 0;

#pragma omp simd reduction(max : most) reduction(| : nan)
    for (int64_t i = 0; i < vocab; i++) {
        most = logits[i] > most ? logits[i] : most;
        nan |= logits[i] != logits[i];
    }
    if (nan || !(most > -INFINITY))
        return -1;
    while (logits[at] != most)
        at++;
    return (int32_t)at;
}

/* The first from `at` whose logit is above `least`, or equals it with `or_equal`; vocab when there
 * is none.  Most are far below: whole blocks are passed over. */
static int64_t next_above(const float *logits, int64_t vocab, int64_t at, float least,
                          bool or_equal)
{
    for (;; at += BLOCK) {
        int64_t end = at + BLOCK < vocab ? at + BLOCK : vocab;
        int any = 0;

        if (at >= vocab)
            return vocab;
#pragma omp simd reduction(| : any)
        for (int64_t i = at; i < end; i++)
            any |= logits[i] >= least;
        for (int64_t i = at; any && i < end; i++)
            if (logits[i] > least || (or_equal && logits[i] == least))
                return i;
    }
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

    if (k < vocab) {
        for (int64_t i = 0; i < k; i++)
            c[i] = (struct generate_choice){.logit = logits[i], .id = (int32_t)i};
        for (int64_t at = k / 2 - 1; at >= 0; at--)
            sink(c, k, at);
        /* Of equals the first ones stay. */
        for (int64_t i = k; (i = next_above(logits, vocab, i, c[0].logit, false)) < vocab; i++) {
            c[0] = (struct generate_choice){.logit = logits[i], .id = (int32_t)i};
            sink(c, k, 0);
        }
        least = c[0].logit;
    }
    for (int64_t i = 0; (i = next_above(logits, vocab, i, least, true)) < vocab; i++)
        if (logits[i] > -INFINITY)
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

/*
 * Where nothing is cut off: the likeliest first, as many as a device gives, then the others by id.
 * What is drawn is then mostly among the largest logits, which tell it alone.
 */
static void likeliest_to_front(struct generate_choice *c, int64_t n)
{
    struct generate_choice heap[OP_TOP_MOST];
    int64_t k = n < OP_TOP_MOST ? n : OP_TOP_MOST, to = n;

    memcpy(heap, c, (size_t)k * sizeof *c);
    for (int64_t at = k / 2 - 1; at >= 0; at--)
        sink(heap, k, at);
    for (int64_t i = k; i < n; i++)
        if (likelier_first(&c[i], &heap[0]) < 0) {
            heap[0] = c[i];
            sink(heap, k, 0);
        }
    for (int64_t i = n; i-- > 0;)
        if (likelier_first(&c[i], &heap[0]) > 0)
            c[--to] = c[i];
    qsort(heap, (size_t)k, sizeof *heap, likelier_first);
    memcpy(c, heap, (size_t)k * sizeof *c);
}

static double entropy(const struct generate_choice *c, int64_t n, double total)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        if (c[i].p > 0)
            sum -= c[i].p / total * log(c[i].p / total);
    return sum;
}

/* Keep those of at least this probability, and the likeliest. */
static int64_t at_least(struct generate_choice *c, int64_t n, double least, double *total)
{
    double most = 0, all = *total;
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        most = c[i].p > most ? c[i].p : most;
    *total = 0;
    for (int64_t i = 0; i < n; i++)
        if (c[i].p / all >= least || c[i].p == most) {
            *total += c[i].p;
            c[kept++] = c[i];
        }
    return kept;
}

static int lower_first(const void *a, const void *b)
{
    const struct generate_choice *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Keep those whose information is nearest to the entropy, until their probability reaches mass,
 * and all as near as the last of them.  They become sorted by that distance, in place of logit.
 * Source: Meister et al. 2022 (locally typical sampling). */
static int64_t typical(struct generate_choice *c, int64_t n, double mass, double *total)
{
    double mean = entropy(c, n, *total), sum = 0, all = *total;
    int64_t last = 0, kept = 0;

    for (int64_t i = 0; i < n; i++)
        c[i].logit = (float)fabs(-log(c[i].p / all) - mean);
    qsort(c, (size_t)n, sizeof *c, lower_first);
    for (; last < n - 1 && (sum += c[last].p / all) < mass; last++)
        ;
    *total = 0;
    for (int64_t i = 0; i < n && c[i].logit <= c[last].logit; i++) {
        *total += c[i].p;
        kept++;
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
    bool cuts = few || o->top_p < 1 || o->min_p > 0 || (o->typical_p > 0 && o->typical_p < 1) ||
                o->epsilon_cutoff > 0 || o->eta_cutoff > 0;
    int32_t top = best(logits, vocab);
    int64_t n;

    *total = 0;
    if (top < 0)
        return -1;
    n = top_k(c, logits, vocab, few ? o->top_k : vocab);
    *total = weigh(c, n, logits[top], o->temperature);
    if (!cuts)
        likeliest_to_front(c, n);
    if (o->top_p < 1)
        n = nucleus(c, n, n, o->top_p, total);
    else if (few)
        qsort(c, (size_t)n, sizeof *c, likelier_first);
    if (o->min_p > 0)
        n = likely_enough(c, n, o->min_p, total);
    if (o->typical_p > 0 && o->typical_p < 1)
        n = typical(c, n, o->typical_p, total);
    if (o->epsilon_cutoff > 0)
        n = at_least(c, n, o->epsilon_cutoff, total);
    if (o->eta_cutoff > 0)
        n = at_least(c, n, fmin(o->eta_cutoff, sqrt(o->eta_cutoff) * exp(-entropy(c, n, *total))),
                     total);
    return n;
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

    /* Less likely tokens may rise, or all probabilities are needed. */
    if (o->repetition_penalty < 1 || o->frequency_penalty < 0 || o->presence_penalty < 0 ||
        o->n_bias || o->decay_factor > 0 ||
        (o->encoder_repetition_penalty > 0 && o->encoder_repetition_penalty != 1))
        return 0;
    if (o->do_sample && ((o->typical_p > 0 && o->typical_p < 1) || o->epsilon_cutoff > 0 ||
                         o->eta_cutoff > 0))
        return 0;
    if (o->do_sample && few)
        k = o->top_k + TIES;
    else if (o->do_sample)
        k = OP_TOP_MOST;
    k = k < vocab ? k : vocab;
    if (k > OP_TOP_MOST)
        return 0;
    k += (int64_t)(o->n_eos + o->suppress.n + o->begin_suppress.n);
    if (o->repetition_penalty > 1 || o->no_repeat_ngram_size > 0 || o->frequency_penalty > 0 ||
        o->presence_penalty > 0 || o->encoder_no_repeat_ngram_size > 0 || o->n_bad)
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
    if (!(o->min_p > 0)) {
        qsort(c, (size_t)n, sizeof *c, likelier_first);
        return n;
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
