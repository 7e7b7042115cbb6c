/* generate/state - see generate/state.h. */
#include "trainer/model/generate/state.h"

#include <string.h>

#include "formats/families/arch.h"
#include "trainer/model/host.h"
#include "trainer/model/pass.h"

int generate_open(struct generate_state *s, struct model *m, const struct generate_opts *opts,
                  struct generate_seq *seq, int64_t n, int64_t each, int64_t k, double temperature,
                  struct ckpt_err *err)
{
    int64_t longest = 0, all = 0, V = m->arch->vocab_size;
    int rc;

    *s = (struct generate_state){.opts = opts, .arch = m->arch, .seq = seq, .n = n, .each = each,
                                 .vocab = V, .top.temperature = temperature};
    for (int64_t i = 0; i < n; i++) {
        longest = seq[i].n_prompt > longest ? seq[i].n_prompt : longest;
        all += seq[i].n_prompt;
    }
    longest += opts->max_new_tokens;
    if ((rc = decode_new(&s->decode, m, n * each, longest, err)) != 0)
        return rc;
    s->top.k = n * each <= decode_top_docs(s->decode) ? k : 0;
    const struct host_array arrays[] = {
        HOST_ARRAY(s->ids, all + n * each), HOST_ARRAY(s->n_new, n * each),
        HOST_ARRAY(s->history, longest), HOST_ARRAY(s->scratch, V),
        HOST_ARRAY(s->logits, (s->top.k ? 1 : n * each) * V),
    };

    return host_arrays(&s->arena, arrays, sizeof arrays / sizeof arrays[0], err);
}

int generate_start(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t at = 0;
    int rc;

    if (s->arch->stack == ARCH_ENCODER_DECODER) {
        for (int64_t i = 0; i < s->n; i++) {
            memcpy(s->ids + at, s->seq[i].prompt, (size_t)s->seq[i].n_prompt * sizeof *s->ids);
            s->n_new[i] = (int32_t)s->seq[i].n_prompt;
            at += s->seq[i].n_prompt;
        }
        if ((rc = decode_encode(s->decode, w, s->ids, s->n_new, s->n, s->each, err)) != 0)
            return rc;
    }
    memset(s->n_new, 0, (size_t)(s->n * s->each) * sizeof *s->n_new);
    at = 0;
    for (int64_t i = 0; i < s->n; i++) {
        int64_t fed = generate_fed(s->ids + at, s->arch, s->opts, &s->seq[i]);

        s->n_new[i * s->each] = (int32_t)fed;
        at += fed;
    }
    return 0;
}

int generate_feed(struct generate_state *s, const struct model_weights *w, struct ckpt_err *err)
{
    int64_t n = s->n * s->each;

    return s->top.k ? decode_top(s->decode, w, s->ids, s->n_new, n, &s->top, err)
                    : decode_step(s->decode, w, s->ids, s->n_new, n, s->logits, err);
}

void generate_release(struct generate_state *s)
{
    decode_free(s->decode);
    ckpt_arena_release(&s->arena);
}
