/* eval - see eval.h. */
#include "tools/eval/eval.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/io/path.h"
#include "libckpt/mem.h"
#include "tools/eval/gate.h"
#include "tools/eval/hidden.h"
#include "tools/eval/logits.h"
#include "tools/eval/losses.h"
#include "tools/eval/opened.h"
#include "tools/eval/texts.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/run/model_find.h"

static int add_score(struct eval_result *out, struct score *s, int rc, struct ckpt_err *err)
{
    if (rc)
        return rc;
    if (out->n_scores == EVAL_SCORES) {
        score_free(s);
        return ckpt_fail(err, CKPT_EUSAGE, "more than %d metrics", EVAL_SCORES);
    }
    out->score[out->n_scores++] = s;
    return 0;
}

static int score_losses(struct eval_result *out, struct eval_opened *e, struct ckpt_err *err)
{
    struct losses l = {0};
    struct score *s = NULL;
    int rc = e->w->stride ? losses_strided(&l, e, err) : losses_run(&l, e, err);

    if (rc == 0) {
        out->loss = l.sum.nats / l.sum.tokens;
        out->perplexity = exp(out->loss);
        out->n_targets = (int64_t)l.sum.tokens;
        out->n_samples = (int64_t)l.n;
        out->seconds = l.seconds;
        rc = losses_score(&s, &l, err);
        rc = add_score(out, s, rc, err);
    }
    out->row = l.row;
    out->n_rows = l.n;
    return rc;
}

/* -- continuations ---------------------------------------------------------------------------- */

/* The references of a row: its answers, unless a template says what a completion is. */
static int take_references(struct eval_result *out, const struct eval_opened *e, size_t i,
                           const char *completion, struct ckpt_err *err)
{
    struct answers *a = &out->answers;
    json_t *record = NULL, *plain = NULL;
    const json_t *v;
    int rc = data_source_record(e->source, (int64_t)i, &record, err);

    if (rc)
        return rc;
    v = e->w->rows.completion_template ? NULL : answers_named(record);
    if (!v)
        v = plain = json_string(completion);
    rc = v ? answers_references(a, i, v, err) : ckpt_nomem(err, 64);
    if (rc)
        data_source_err_in(e->source, (int64_t)i, err);
    json_decref(plain);
    json_decref(record);
    return rc;
}

/* Compare the answers by every metric. */
static int score_answers(struct eval_result *out, const struct eval_want *w, struct ckpt_err *err)
{
    struct score *s = NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->metric.n; i++) {
        rc = answers_score(&s, w->metric.item[i], &out->answers, &w->encoder, err);
        rc = add_score(out, s, rc, err);
    }
    return rc;
}

/* Compare the continuations of the data's rows with their references. */
static int score_texts(struct eval_result *out, const struct eval_opened *e, struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    size_t first = w->prompt.n;
    int rc = answers_init(&out->answers, out->n - first, err);

    for (size_t i = 0; rc == 0 && i < out->answers.n; i++) {
        out->answers.row[i].prediction = out->text[first + i];
        rc = take_references(out, e, i, out->reference[first + i], err);
    }
    return rc ? rc : score_answers(out, w, err);
}

/* Whether all rows are continued, not the first of them only. */
static bool continues_all(const struct eval_want *w)
{
    return !w->task && (w->metric.n || (w->predictions_out && !w->generate && !w->prompt.n));
}

int eval_check_gate(const struct eval_want *w, struct ckpt_err *err)
{
    const char **name = ckpt_alloc(w->metric.n + 2, sizeof *name);
    size_t n = 0;
    int rc;

    if (!name)
        return ckpt_nomem(err, (w->metric.n + 2) * sizeof *name);
    if (!w->predictions.file.n)
        name[n++] = w->task ? "choices" : "loss";
    if (w->choice.n && w->metric.n == 0)
        name[n++] = "labels";
    for (size_t i = 0; i < w->metric.n; i++)
        name[n++] = w->metric.item[i];
    rc = gate_check_figures(&w->gate, &(struct opt_list){name, n}, err);
    ckpt_free(name);
    return rc;
}

/* -- choices ---------------------------------------------------------------------------------- */

static int score_choices(struct eval_result *out, struct eval_opened *e, struct ckpt_err *err)
{
    static const char *const labels[] = {"labels"};
    struct eval_want w = *e->w;
    const char **prompts = NULL;
    struct score *s = NULL;
    int rc = choices_run(e->choices, &e->s, err);

    if (rc == 0 && !split_first(w.split))
        return 0;
    rc = rc ? rc : choices_score(&s, e->choices, err);
    rc = add_score(out, s, rc, err);
    if (w.choice.n && w.metric.n == 0)
        w.metric = (struct opt_list){labels, 1};
    rc = rc ? rc : choices_answers(&out->answers, &prompts, e->choices, err);
    if (rc == 0 && w.predictions_out)
        rc = answers_write(&out->answers, prompts, w.predictions_out, w.overwrite, err);
    rc = rc ? rc : score_answers(out, &w, err);
    answers_release(&out->answers);     /* its texts are the choices', which are closed */
    return rc;
}

static int check_rows(const struct eval_opened *e, struct ckpt_err *err)
{
    if (!continues_all(e->w) || (data_source_kind(e->source) != DATA_TEXT &&
                                 data_source_kind(e->source) != DATA_IDS))
        return 0;
    ckpt_fail(err, CKPT_EFORMAT, "the records have no completion, which --metric compares "
              "continuations with");
    return ckpt_err_hint(err, "say with --prompt-template and --completion-template what it is");
}

/* -- beside the base -------------------------------------------------------------------------- */

static double mean(const struct row_loss *r) { return r->nats / r->tokens; }

/* Insert a row into the list, which is sorted by size and keeps the largest. */
static void keep_largest(struct eval_result *out, size_t most, const struct eval_difference *d)
{
    struct eval_difference *list = out->difference;
    double size = fabs(d->loss - d->base);
    size_t at = out->n_differences;

    while (at > 0 && fabs(list[at - 1].loss - list[at - 1].base) < size)
        at--;
    if (at >= most)
        return;
    if (out->n_differences < most)
        out->n_differences++;
    memmove(list + at + 1, list + at, (out->n_differences - 1 - at) * sizeof *list);
    list[at] = *d;
}

static int find_differences(struct eval_result *out, const struct eval_result *base,
                            const struct eval_opened *e, struct ckpt_err *err)
{
    size_t most = (size_t)e->w->differences;
    int rc = 0;

    if (out->n_rows != base->n_rows)
        return ckpt_fail(err, CKPT_EMISMATCH, "%zu rows, of which the base has %zu", out->n_rows,
                         base->n_rows);
    out->difference = ckpt_alloc(most + 1, sizeof *out->difference);
    if (!out->difference)
        return ckpt_nomem(err, most * sizeof *out->difference);
    for (size_t i = 0; most > 0 && i < out->n_rows; i++)
        if (out->row[i].tokens > 0 && base->row[i].tokens > 0)
            keep_largest(out, most, &(struct eval_difference){
                .row = (int64_t)i, .loss = mean(&out->row[i]), .base = mean(&base->row[i])});
    for (size_t k = 0; rc == 0 && k < out->n_differences; k++) {
        char *prompt = NULL, *completion = NULL;
        struct ckpt_buf text;

        ckpt_buf_init(&text, SIZE_MAX);
        if (data_source_kind(e->source) != DATA_IDS)
            rc = data_source_text(e->source, out->difference[k].row, &prompt, &completion, err);
        ckpt_buf_printf(&text, "%s%s", prompt ? prompt : "", completion ? completion : "");
        out->difference[k].text = ckpt_buf_ok(&text) ? ckpt_strdup(ckpt_buf_str(&text)) : NULL;
        if (rc == 0 && !out->difference[k].text)
            rc = ckpt_nomem(err, 64);
        ckpt_buf_release(&text);
        ckpt_free(prompt);
        ckpt_free(completion);
    }
    return rc;
}

/* -- one model -------------------------------------------------------------------------------- */

static int work(struct eval_result *out, struct eval_opened *e, const struct eval_result *base,
                struct ckpt_err *err)
{
    const struct eval_want *w = e->w;
    int rc = 0;

    if (e->choices)
        return score_choices(out, e, err);
    if (e->source)
        rc = score_losses(out, e, err);
    if (rc == 0 && e->source && base && split_first(w->split))
        rc = find_differences(out, base, e, err);
    if (rc == 0 && w->logits)
        rc = logits_write(w->logits, w->overwrite, &e->s, e->source, out->loss, err);
    if (rc == 0 && w->hidden)
        return hidden_write(w->hidden, w->overwrite, &e->s, &w->prompt, w->rows.max_seq_length,
                            err);
    if (rc == 0 && (w->generate > 0 || w->prompt.n))
        rc = eval_texts(out, e, err);
    if (rc || w->task || w->metric.n == 0 || !split_first(w->split))
        return rc;
    return score_texts(out, e, err);
}

/* As model_find; a file of weights alone may be described by the tokenizer's folder or the base. */
static int find_model(char found[4096], const struct eval_want *w, const char *model,
                      struct ckpt_err *err)
{
    int rc = model_find(found, model, err);

    if (rc != CKPT_ENOTFOUND || !ckpt_path_is_file(model))
        return rc;
    if (!w->tokenizer && (!w->base || w->base == model))
        return ckpt_err_hint(err, "--tokenizer DIR or --base MODEL may have it");
    ckpt_err_clear(err);
    snprintf(found, 4096, "%s", model);
    return 0;
}

int eval_run(struct eval_result *out, const struct eval_want *wanted, const char *model,
             const char *adapter, const struct eval_result *base, struct ckpt_err *err)
{
    struct eval_want w = *wanted;
    struct eval_opened e = {.w = &w};
    char found[4096], beside[4096];
    int rc = find_model(found, &w, model, err);

    if (continues_all(&w))
        w.generate = INT64_MAX;
    out->model = model;
    if (rc == 0 && adapter)
        rc = model_find(beside, adapter, err);
    if (rc == 0)
        rc = eval_open(&e, found, adapter ? beside : adapter_lies_at(found) ? found : NULL, err);
    if (rc == 0 && e.source)
        rc = check_rows(&e, err);
    rc = cli_told_stop(rc, err);
    if ((rc = split_agree(w.split, rc, err)) == 0)
        rc = cli_told_stop(work(out, &e, base, err), err);
    out->n_shown = w.prompt.n + (size_t)wanted->generate;
    out->n_shown = out->n_shown < out->n ? out->n_shown : out->n;
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
        ckpt_free(r->answers_json[i]);
    }
    ckpt_free(r->finish);
    ckpt_free(r->n_tokens);
    ckpt_free(r->logprobs);
    ckpt_free(r->answers_json);
    ckpt_free(r->prompt);
    ckpt_free(r->reference);
    ckpt_free(r->text);
    ckpt_free(r->row);
    answers_release(&r->answers);
    for (size_t i = 0; i < r->n_scores; i++)
        score_free(r->score[i]);
    for (size_t k = 0; k < r->n_differences; k++)
        ckpt_free(r->difference[k].text);
    ckpt_free(r->difference);
    memset(r, 0, sizeof *r);
}
