/* eval - see eval.h. */
#include "tools/eval/eval.h"

#include <math.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/eval/hidden.h"
#include "tools/eval/logits.h"
#include "tools/eval/opened.h"
#include "tools/eval/texts.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/run/evaluate.h"
#include "trainer/run/model_find.h"

int eval_run(struct eval_result *out, const struct eval_want *w, const char *model,
             const char *adapter, struct ckpt_err *err)
{
    struct eval_opened e = {.w = w};
    struct evaluate_result scored;
    char found[4096], beside[4096];
    int rc = model_find(found, model, err);

    out->model = model;
    if (rc == 0 && adapter)
        rc = model_find(beside, adapter, err);
    if (rc == 0)
        rc = eval_open(&e, found, adapter ? beside : adapter_lies_at(found) ? found : NULL, err);
    if (rc == 0 && e.loader) {
        rc = evaluate_run(&scored, e.s.model, zero_weights(e.s.zero), e.s.comm, e.loader, NULL,
                          err);
        if (rc == 0) {
            out->loss = scored.loss;
            out->perplexity = exp(scored.loss);
            out->n_targets = scored.n_targets;
            out->n_samples = scored.n_samples;
            out->seconds = scored.seconds;
        }
    }
    if (rc == 0 && w->logits)
        rc = logits_write(w->logits, w->overwrite, &e.s, e.source, out->loss, err);
    if (rc == 0 && w->hidden)
        rc = hidden_write(w->hidden, w->overwrite, &e.s, &w->prompt, w->rows.max_seq_length, err);
    else if (rc == 0 && (w->generate > 0 || w->prompt.n))
        rc = eval_texts(out, &e, err);
    eval_close(&e, rc, err);
    return rc;
}

void eval_release(struct eval_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        ckpt_free(r->prompt[i]);
        ckpt_free(r->reference[i]);
        ckpt_free(r->text[i]);
        ckpt_free(r->logprobs[i]);
    }
    ckpt_free(r->finish);
    ckpt_free(r->n_tokens);
    ckpt_free(r->logprobs);
    ckpt_free(r->prompt);
    ckpt_free(r->reference);
    ckpt_free(r->text);
    memset(r, 0, sizeof *r);
}
