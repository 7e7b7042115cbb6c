/* logits - see logits.h. */
#include "trainer/model/logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every token of the history once: towards less likely. */
static void penalise(float *logits, const struct generate_place *at, float penalty,
                     struct generate_choice *scratch)
{
    /* From a copy of the values, so that a token that occurs twice is changed once. */
    for (int64_t i = 0; i < at->n; i++)
        scratch[at->history[i]].logit = logits[at->history[i]];
    for (int64_t i = 0; i < at->n; i++) {
        float z = scratch[at->history[i]].logit;

        logits[at->history[i]] = z < 0 ? z * penalty : z / penalty;
    }
}

/* What would end a run of so many tokens that was there before. */
static void forbid_ngrams(float *logits, const struct generate_place *at, int64_t size)
{
    int64_t k = size - 1;
    const int32_t *tail;

    if (at->n < size)
        return;
    tail = at->history + at->n - k;
    for (int64_t i = 0; i + k < at->n; i++)
        if (memcmp(at->history + i, tail, (size_t)k * sizeof *tail) == 0)
            logits[at->history[i + k]] = -INFINITY;
}

static void forbid(float *logits, int64_t vocab, struct generate_ids ids)
{
    for (size_t i = 0; i < ids.n; i++)
        if (ids.id[i] >= 0 && ids.id[i] < vocab)
            logits[ids.id[i]] = -INFINITY;
}

static void force(float *logits, int64_t vocab, struct generate_ids ids)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] = -INFINITY;
    for (size_t i = 0; i < ids.n; i++)
        if (ids.id[i] >= 0 && ids.id[i] < vocab)
            logits[ids.id[i]] = 0;
}

bool generate_is_eos(const struct generate_opts *o, int32_t id)
{
    for (size_t i = 0; i < o->n_eos; i++)
        if (o->eos[i] == id)
            return true;
    return false;
}

void generate_process(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *o, struct generate_choice *scratch)
{
    int64_t chosen = at->n - at->n_fed;
    /* A forced beginning moves what counts as the first token behind it. */
    int64_t first = at->n_fed > 1 || o->forced_bos.n == 0 ? 0 : 1;

    if (o->repetition_penalty != 1)
        penalise(logits, at, (float)o->repetition_penalty, scratch);
    if (o->no_repeat_ngram_size > 0)
        forbid_ngrams(logits, at, o->no_repeat_ngram_size);
    if (at->n < o->min_length || chosen < o->min_new_tokens)
        forbid(logits, vocab, (struct generate_ids){o->eos, o->n_eos});
    if (o->forced_bos.n && at->n == 1)
        force(logits, vocab, o->forced_bos);
    if (o->forced_eos.n && chosen == at->most - 1)
        force(logits, vocab, o->forced_eos);
    forbid(logits, vocab, o->suppress);
    if (chosen == first)
        forbid(logits, vocab, o->begin_suppress);
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

/* The k most likely and all that are as likely as the last of them; gives how many. */
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

/* Those that are at least so likely beside the likeliest, whose p is 1. */
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
    for (int64_t i = 0; i < n; i++) {
        c[i].p = exp((double)(c[i].logit - logits[top]) / o->temperature);
        *total += c[i].p;
    }
    if (o->top_p < 1)
        n = nucleus(c, n, o->top_p, total);
    else if (few)
        qsort(c, (size_t)n, sizeof *c, likelier_first);
    return o->min_p > 0 ? likely_enough(c, n, o->min_p, total) : n;
}

int32_t generate_pick(float *logits, int64_t vocab, const struct generate_place *at,
                      const struct generate_opts *o, double draw, struct generate_choice *scratch)
{
    double total, sum = 0;
    int64_t n;

    generate_process(logits, vocab, at, o, scratch);
    if (!o->do_sample)
        return best(logits, vocab);
    n = generate_candidates(scratch, &total, logits, vocab, o);
    for (int64_t i = 0; i < n; i++) {
        sum += scratch[i].p;
        if (draw * total < sum)
            return scratch[i].id;
    }
    /* draw * total met the sum's last rounding */
    return n < 0 ? -1 : best(logits, vocab);
}
