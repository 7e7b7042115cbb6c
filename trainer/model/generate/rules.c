/* rules - what is done to all logits before a token is chosen; see logits.h. */
#include <math.h>
#include <string.h>

#include "trainer/model/generate/logits.h"

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

bool generate_too_short(const struct generate_opts *o, int64_t n, int64_t n_fed)
{
    return n < o->min_length || n - n_fed < o->min_new_tokens;
}

bool generate_has_id(const struct generate_ids *ids, int32_t id)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->id[i] == id)
            return true;
    return false;
}

bool generate_is_eos(const struct generate_opts *o, int32_t id)
{
    return generate_has_id(&(struct generate_ids){o->eos, o->n_eos}, id);
}

/* Generated tokens become less likely: by `presence` once, and by `frequency` each time. */
static void penalise_again(struct view *v, const struct generate_place *at, double frequency,
                           double presence)
{
    for (int64_t i = at->n_fed; i < at->n; i++) {
        int64_t count = 0, j;
        bool first = true;

        for (int64_t k = at->n_fed; first && k < at->n; k++) {
            count += at->history[k] == at->history[i];
            first = k >= i || at->history[k] != at->history[i];
        }
        if (first && (j = place_of(v, at->history[i])) >= 0)
            *(v->all ? &v->all[j] : &v->some[j].logit) -=
                (float)(frequency * (double)count + presence);
    }
}

/* Tokens of the prompt become likelier: an encoder's penalty below 1 by another name. */
static void favour_prompt(struct view *v, const struct generate_place *at, double penalty)
{
    struct generate_place prompt = {.history = at->prompt, .n = at->n_prompt};

    penalise(v, &prompt, (float)(1 / penalty));
}

/* Add biases to tokens that would complete one of n texts of ids. */
static void bias_words(struct view *v, const struct generate_place *at,
                       const struct generate_words *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t k = (int64_t)w[i].n - 1, j;

        if (k < 0 || k > at->n ||
            memcmp(at->history + at->n - k, w[i].id, (size_t)k * sizeof *w[i].id) != 0)
            continue;
        if ((j = place_of(v, w[i].id[k])) >= 0)
            *(v->all ? &v->all[j] : &v->some[j].logit) += (float)w[i].bias;
    }
}

/* Forbid what would complete an n-gram of the prompt. */
static void forbid_prompts_ngrams(struct view *v, const struct generate_place *at, int64_t size)
{
    int64_t k = size - 1;

    for (int64_t i = 0; at->n >= k && i + k < at->n_prompt; i++)
        if (memcmp(at->prompt + i, at->history + at->n - k, (size_t)k * sizeof *at->prompt) == 0)
            forbid_one(v, at->prompt[i + k]);
}

/* From decay_start tokens on, eos becomes likelier with each. */
static void decay(struct view *v, const struct generate_place *at, const struct generate_opts *o)
{
    int64_t over = at->n - at->n_fed - o->decay_start;

    for (size_t i = 0; over > 0 && i < o->n_eos; i++) {
        struct generate_ids before = {o->eos, i};
        int64_t j = place_of(v, o->eos[i]);

        /* An id that is named twice rises once. */
        if (j >= 0 && v->all && isfinite(v->all[j]) && !generate_has_id(&before, o->eos[i]))
            v->all[j] += fabsf(v->all[j]) * ((float)pow(o->decay_factor, (double)over) - 1);
    }
}

static void rules(struct view *v, const struct generate_place *at, const struct generate_opts *o)
{
    int64_t chosen = at->n - at->n_fed;
    /* After a forced beginning, the first token counts from its end. */
    int64_t first = at->n_fed > 1 || o->forced_bos.n == 0 ? 0 : 1;

    bias_words(v, at, o->bias, o->n_bias);
    if (o->encoder_repetition_penalty > 0 && o->encoder_repetition_penalty != 1)
        favour_prompt(v, at, o->encoder_repetition_penalty);
    if (o->repetition_penalty != 1)
        penalise(v, at, (float)o->repetition_penalty);
    if (o->frequency_penalty != 0 || o->presence_penalty != 0)
        penalise_again(v, at, o->frequency_penalty, o->presence_penalty);
    if (o->no_repeat_ngram_size > 0)
        forbid_ngrams(v, at, o->no_repeat_ngram_size);
    if (o->encoder_no_repeat_ngram_size > 0)
        forbid_prompts_ngrams(v, at, o->encoder_no_repeat_ngram_size);
    bias_words(v, at, o->bad, o->n_bad);
    if (!at->no_eos && generate_too_short(o, at->n, at->n_fed))
        forbid(v, (struct generate_ids){o->eos, o->n_eos});
    if (o->forced_bos.n && at->n == 1)
        force(v, o->forced_bos);
    if (o->forced_eos.n && chosen == at->most - 1)
        force(v, o->forced_eos);
    if (o->decay_factor > 0)
        decay(v, at, o);
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
