/* generate - see generate.h. */
#include "trainer/model/generate/generate.h"

#include <math.h>
#include <string.h>

#include "libckpt/log.h"
#include "formats/families/arch.h"
#include "trainer/model/generate/state.h"
#include "trainer/model/pass.h"
#include "trainer/rng.h"

static int check_seq(const struct arch *arch, const struct generate_opts *o,
                     const struct generate_seq *seq, int64_t n, struct ckpt_err *err)
{
    bool starts = arch->stack == ARCH_ENCODER_DECODER && o->start.n;
    int32_t start = starts ? o->start.id[0] : 0;

    if (start < 0 || start >= arch->vocab_size)
        return ckpt_fail(err, CKPT_ECONFIG, "decoder_start_token_id is %ld, wanted below %lld",
                         (long)start, (long long)arch->vocab_size);
    for (int64_t i = 0; i < n; i++) {
        if (seq[i].n_prompt < 1 || seq[i].n_prompt > 1 << 28)
            return ckpt_fail(err, CKPT_ECONFIG, "prompt %lld has %lld tokens, wanted 1 or more",
                             (long long)i, (long long)seq[i].n_prompt);
        if (generate_most(arch, o, &seq[i]) < 1)
            return ckpt_fail(err, CKPT_ECONFIG, "prompt %lld has %lld tokens, max_length %lld "
                             "leaves none to come", (long long)i, (long long)seq[i].n_prompt,
                             (long long)o->max_length);
    }
    return 0;
}

static int check(const struct generate_opts *o, struct ckpt_err *err)
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
    if (o->do_sample && (o->top_k < 0 || !(o->top_p > 0 && o->top_p <= 1) ||
                         !(o->min_p >= 0 && o->min_p <= 1)))
        return ckpt_fail(err, CKPT_ECONFIG, "top_k is %lld, top_p %g, min_p %g: wanted 0 or more, "
                         "(0, 1] and [0, 1]", (long long)o->top_k, o->top_p, o->min_p);
    if (o->max_length < 0 || o->min_length < 0 || o->min_new_tokens < 0 ||
        o->no_repeat_ngram_size < 0)
        return ckpt_fail(err, CKPT_ECONFIG, "max_length is %lld, min_length %lld, min_new_tokens "
                         "%lld, no_repeat_ngram_size %lld: wanted 0 or more",
                         (long long)o->max_length, (long long)o->min_length,
                         (long long)o->min_new_tokens, (long long)o->no_repeat_ngram_size);
    if (o->num_beams < 0 || o->num_beams > GENERATE_MAX_BEAMS || (o->num_beams > 1 && o->do_sample))
        return ckpt_fail(err, CKPT_ECONFIG, "num_beams is %lld%s: wanted 1 to %d, and no sampling",
                         (long long)o->num_beams, o->do_sample ? " with do_sample" : "",
                         GENERATE_MAX_BEAMS);
    if (!isfinite(o->length_penalty))
        return ckpt_fail(err, CKPT_ECONFIG, "length_penalty is not finite");
    return 0;
}

int64_t generate_fed(int32_t *ids, const struct arch *arch, const struct generate_opts *o,
                     const struct generate_seq *q)
{
    if (arch->stack == ARCH_ENCODER_DECODER) {
        if (ids)
            ids[0] = o->start.n ? o->start.id[0] : (int32_t)arch->decoder_start_token_id;
        return 1;
    }
    if (ids)
        memcpy(ids, q->prompt, (size_t)q->n_prompt * sizeof *ids);
    return q->n_prompt;
}

int64_t generate_most(const struct arch *arch, const struct generate_opts *o,
                      const struct generate_seq *q)
{
    int64_t left = o->max_length - generate_fed(NULL, arch, o, q);

    return o->max_length > 0 && left < o->max_new_tokens ? left : o->max_new_tokens;
}

/* Choose sequence i's next token from its logits. */
static int choose(struct generate_state *s, int64_t i, struct ckpt_err *err)
{
    struct generate_seq *q = &s->seq[i];
    int64_t fed = generate_fed(s->history, s->arch, s->opts, q), len = fed + q->n_out;
    struct generate_place at = {.history = s->history, .n = len, .n_fed = fed,
                                .most = generate_most(s->arch, s->opts, q)};
    double draw = rng_uniform(s->opts->seed, q->stream, (uint64_t)q->n_out);
    const struct decode_top *t = &s->top;
    struct generate_top top = {.k = t->k};
    float *logits = s->logits + (t->k ? 0 : i * s->vocab);
    int32_t id;
    int rc;

    memcpy(s->history + fed, q->out, (size_t)q->n_out * sizeof *s->history);
    if (t->k) {
        top.value = t->value + i * t->k;
        top.id = t->id + i * t->k;
        top.sum = t->sum[i];
    }
    if (!t->k || !generate_pick_top(&id, &top, s->vocab, &at, s->opts, draw)) {
        if (t->k && (rc = decode_row(s->decode, i, logits, err)) != 0)
            return rc;
        id = generate_pick(logits, s->vocab, &at, s->opts, draw, s->scratch);
    }
    if (id < 0)
        return ckpt_fail_as(err, CKPT_ENO, "non-finite",
                            "sequence %lld: logits after %lld tokens "
                            "are not finite",
                            (long long)i, (long long)len);
    q->out[q->n_out++] = id;
    q->stopped = generate_is_eos(s->opts, id);
    return 0;
}

static int run(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t fed = 1, step = 0;
    int rc = generate_start(s, w, err);

    while (rc == 0 && fed > 0) {
        if ((rc = generate_feed(s, w, err)) != 0)
            return rc;
        fed = 0;
        for (int64_t i = 0; i < s->n; i++) {
            struct generate_seq *q = &s->seq[i];

            if (s->n_new[i] == 0)
                continue;
            rc = choose(s, i, err);
            if (rc)
                return rc;
            s->n_new[i] = !q->stopped && q->n_out < generate_most(s->arch, s->opts, q);
            if (s->n_new[i])
                s->ids[fed++] = q->out[q->n_out - 1];
        }
        step = fed ? step + 1 : s->opts->max_new_tokens;
        ckpt_log_progress("generation", "tokens each", (uint64_t)step,
                          (uint64_t)s->opts->max_new_tokens);
    }
    return rc;
}

int generate_run(struct model *m, const struct model_weights *w,
                 const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err)
{
    int64_t vocab = m->arch->vocab_size;
    struct generate_state s;
    int rc;

    if (n == 0)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        seq[i].n_out = 0;
        seq[i].stopped = false;
    }
    if ((rc = check(opts, err)) != 0 || (rc = check_seq(m->arch, opts, seq, n, err)) != 0)
        return rc;
    if (opts->num_beams > 1)
        return generate_beams(m, w, opts, seq, n, err);
    rc = generate_open(&s, m, opts, seq, n, 1, generate_top_wanted(opts, vocab),
                       generate_top_temperature(opts, vocab), err);
    if (rc == 0)
        rc = run(&s, w, err);
    generate_release(&s);
    return rc;
}
