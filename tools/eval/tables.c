/* tables - see tables.h. */
#include "tools/eval/tables.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "tools/out.h"

static void table_of_losses(struct out *o, const struct eval_result *const *r, size_t n)
{
    static const struct out_column columns[] = {
        {"model", "model", OUT_LEFT},       {"loss", "loss", OUT_RIGHT},
        {"perplexity", "perplexity", OUT_RIGHT}, {"tokens", "tokens", OUT_RIGHT},
        {"samples", "samples", OUT_RIGHT},  {"seconds", "seconds", OUT_RIGHT},
    };

    out_table(o, "scores", columns, 6);
    for (size_t i = 0; i < n; i++) {
        out_cell_str(o, r[i]->model);
        out_cell_real(o, r[i]->loss);
        out_cell_real(o, r[i]->perplexity);
        out_cell_int(o, r[i]->n_targets);
        out_cell_int(o, r[i]->n_samples);
        out_cell_real(o, r[i]->seconds);
    }
    out_table_end(o);
}

/* A text; r is the model whose continuation it is, or NULL. */
static void continuation(struct out *o, size_t i, const char *who, const char *text,
                         const struct eval_result *r)
{
    out_cell_int(o, (int64_t)i + 1);
    out_cell_str(o, who);
    out_cell_str(o, text);
    if (r)
        out_cell_str(o, r->finish[i]);
    else
        out_cell_none(o);
    if (r && r->logprobs[i])
        out_cell_json(o, r->logprobs[i]);
    else
        out_cell_none(o);
}

static void table_of_texts(struct out *o, const struct eval_result *const *r, size_t n)
{
    static const struct out_column columns[] = {
        {"sample", "#", OUT_RIGHT}, {"who", "who", OUT_LEFT}, {"text", "text", OUT_WRAP},
        {"finish_reason", NULL, OUT_LEFT}, {"logprobs", NULL, OUT_LEFT},
    };

    out_table(o, "generations", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r[0]->n_shown; i++) {
        continuation(o, i, "prompt", r[0]->prompt[i], NULL);
        if (r[0]->reference[i][0])
            continuation(o, i, "reference", r[0]->reference[i], NULL);
        for (size_t k = 0; k < n; k++)
            continuation(o, i, r[k]->model, r[k]->text[i], r[k]);
    }
    out_table_end(o);
}

static void table_of_differences(struct out *o, const struct eval_result *r)
{
    static const struct out_column columns[] = {
        {"row", "row", OUT_RIGHT}, {"loss", "loss", OUT_RIGHT}, {"base", "base", OUT_RIGHT},
        {"difference", "difference", OUT_RIGHT}, {"text", "text", OUT_LEFT},
    };

    out_table(o, "differences", columns, 5);
    for (size_t i = 0; i < r->n_differences; i++) {
        const struct eval_difference *d = &r->difference[i];

        out_cell_int(o, d->row + 1);
        out_cell_real(o, d->loss);
        out_cell_real(o, d->base);
        out_cell_real(o, d->loss - d->base);
        out_cell_str(o, d->text);
    }
    out_table_end(o);
}

/* Print to stdout, or to stderr where that is for paths. */
static int print(struct out *o, bool to_stderr, struct ckpt_err *err)
{
    struct ckpt_buf text;
    int rc;

    if (!to_stderr)
        return out_end(o, err);
    if ((rc = out_take(o, &text, err)) == 0)
        fwrite(text.data, 1, text.len, stderr);
    ckpt_buf_release(&text);
    return rc;
}

int tables_print(const struct eval_want *w, const struct cli *cli,
                 const struct eval_result *model, const struct eval_result *base,
                 const struct figures *figures, struct ckpt_err *err)
{
    bool lines = w->predictions_out && strcmp(w->predictions_out, "-") == 0;
    const struct eval_result *both[2] = {base ? base : model, model};
    size_t n = base ? 2 : 1;
    struct out *o;
    int rc;

    if (lines && ((!model->n_targets && !figures->n) || cli->quiet))
        return 0;
    if ((rc = out_new(&o, cli->json, err)) != 0)
        return rc;
    /* its tables name it, but for that of figures */
    out_str(o, "model", model->n_targets || model->n_shown ? NULL : "model", model->model);
    if (model->n_targets)
        table_of_losses(o, both, n);
    if (figures->n)
        figures_put(figures, o);
    if (model->n_differences)
        table_of_differences(o, model);
    if (model->n_shown && !lines)
        table_of_texts(o, both, n);
    return print(o, lines || w->pass_through, err);
}
