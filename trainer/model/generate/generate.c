/* generate - see generate.h. */
#include "trainer/model/generate/generate.h"

#include <math.h>
#include <string.h>

#include "formats/families/arch.h"
#include "trainer/model/generate/slots.h"
#include "trainer/model/pass.h"

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
            return ckpt_fail(err, CKPT_ECONFIG, "prompt %lld has %lld tokens, which leave none to "
                             "come: max_length is %lld, and the model has positions for %lld",
                             (long long)i, (long long)seq[i].n_prompt, (long long)o->max_length,
                             (long long)arch_max_positions(arch));
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
    if (o->do_sample && (!(o->typical_p >= 0 && o->typical_p <= 1) ||
                         !(o->epsilon_cutoff >= 0 && o->epsilon_cutoff < 1) ||
                         !(o->eta_cutoff >= 0 && o->eta_cutoff < 1)))
        return ckpt_fail(err, CKPT_ECONFIG, "typical_p is %g, epsilon_cutoff %g, eta_cutoff %g: "
                         "wanted [0, 1], [0, 1) and [0, 1)", o->typical_p, o->epsilon_cutoff,
                         o->eta_cutoff);
    if (!isfinite(o->frequency_penalty) || !isfinite(o->presence_penalty) ||
        !(o->encoder_repetition_penalty >= 0))
        return ckpt_fail(err, CKPT_ECONFIG, "frequency_penalty is %g, presence_penalty %g, "
                         "encoder_repetition_penalty %g: not usable", o->frequency_penalty,
                         o->presence_penalty, o->encoder_repetition_penalty);
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
    int64_t fed = generate_fed(NULL, arch, o, q), left = o->max_length - fed;
    int64_t places = arch_max_positions(arch), most = o->max_new_tokens;

    if (o->max_length > 0 && left < most)
        most = left;
    if (places > 0 && places - fed + 1 < most)
        most = places - fed + 1;        /* the last token is not fed */
    return q->max_new > 0 && q->max_new < most ? q->max_new : most;
}

int generate_goes_on(const struct generate_opts *o, struct ckpt_err *err)
{
    return o->hooks && o->hooks->goes_on ? o->hooks->goes_on(o->hooks->ctx, err) : 0;
}

/* Searches have uniform places: as many prompts at once as fit. */
static int beams_in_groups(struct model *m, const struct model_weights *w,
                           const struct generate_opts *o, struct generate_seq *seq, int64_t n,
                           struct ckpt_err *err)
{
    struct generate_plan plan;
    int64_t each, at_once;
    int rc = generate_plan(&plan, m, o, seq, n, err);

    if (rc)
        return rc;
    each = o->num_beams * plan.longest;
    at_once = plan.rows / each < plan.slots / o->num_beams ? plan.rows / each
                                                            : plan.slots / o->num_beams;
    at_once = at_once < 1 ? 1 : at_once;
    for (int64_t i = 0; rc == 0 && i < n; i += at_once) {
        int64_t some = n - i < at_once ? n - i : at_once;

        rc = generate_beams(m, w, o, seq + i, some, err);
        for (int64_t k = i; rc == 0 && o->hooks && o->hooks->done && k < i + some; k++)
            rc = o->hooks->done(o->hooks->ctx, &seq[k], err);
    }
    return rc;
}

int generate_run(struct model *m, const struct model_weights *w,
                 const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                 struct ckpt_err *err)
{
    int rc;

    if (n == 0)
        return 0;
    for (int64_t i = 0; i < n; i++) {
        seq[i].n_out = 0;
        seq[i].stopped = seq[i].by_text = false;
    }
    if ((rc = check(opts, err)) != 0 || (rc = check_seq(m->arch, opts, seq, n, err)) != 0)
        return rc;
    if (opts->num_beams > 1)
        return beams_in_groups(m, w, opts, seq, n, err);
    return generate_slots(m, w, opts, seq, n, err);
}
