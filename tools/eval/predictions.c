/* predictions - see predictions.h. */
#include "tools/eval/predictions.h"

#include "formats/records/record.h"
#include "libckpt/log.h"
#include "tools/eval/row_keys.h"
#include "tools/out.h"

/* The first of these fields, NULL-terminated, that a record has. */
static const json_t *field_of(const json_t *record, const char *const *name)
{
    const json_t *v = NULL;

    for (; !v && *name; name++)
        v = json_object_get(record, *name);
    return v;
}

static int take_record(struct answers *a, size_t i, const json_t *record, struct ckpt_err *err)
{
    static const char *const predictions[] = {"prediction", "predict", "prediction_text",
                                              "generated_text", NULL};
    static const char *const references[] = {"references", "reference", "answers", "label",
                                             "target", NULL};
    const json_t *p = field_of(record, predictions), *r = field_of(record, references);

    a->row[i].prediction = answers_text(a, p);
    if (!a->row[i].prediction)
        return ckpt_fail(err, CKPT_EFORMAT, "no text in a field prediction, predict, "
                         "prediction_text or generated_text");
    return r ? answers_references(a, i, r, err)
             : ckpt_fail(err, CKPT_EFORMAT, "no field references, reference, answers, label or "
                         "target");
}

/* Rows that are there twice are told, unless they are those of several files. */
static int end_keys(struct row_keys *keys, const char *path, bool alone, struct ckpt_err *err)
{
    int rc = row_keys_end(keys, err);

    if (rc == 0 && alone && keys->n_again)
        ckpt_log(CKPT_LOG_WARNING, "%s: the %s of record %zu is an earlier record's too, and so "
                 "it is with %zu in all: each counts", path, keys->field, keys->again + 1,
                 keys->n_again);
    return rc;
}

static int open_answers(struct answers *a, struct row_keys *keys, const char *const *path,
                        size_t n_path, struct ckpt_err *err)
{
    struct records *records = NULL;
    int rc = records_open(&records, path, n_path, err);

    rc = rc ? rc : answers_init(a, (size_t)records_count(records), err);
    rc = rc ? rc : row_keys_init(keys, a, err);
    for (size_t i = 0; rc == 0 && i < a->n; i++) {
        json_t *record;

        if (cli_stop)
            rc = cli_stopped(err);
        else if ((rc = records_get(records, (int64_t)i, &record, err)) == 0) {
            rc = take_record(a, i, record, err);
            rc = rc ? rc : row_keys_note(keys, a, i, record, err);
            json_decref(record);
            if (rc)
                records_err_in(records, (int64_t)i, err);
        }
    }
    records_close(records);
    return rc ? rc : end_keys(keys, path[0], n_path == 1, err);
}

static int print(const struct cli *cli, size_t n, const struct figures *f, struct ckpt_err *err)
{
    struct out *o;
    int rc = out_new(&o, cli->json, err);

    if (rc)
        return rc;
    out_int(o, "rows", "rows", (int64_t)n);
    figures_put(f, o);
    return out_end(o, err);
}

/* Compute the figures of every metric, print them, and look at their bounds. */
static int work(const struct predictions_want *w, const struct cli *cli, const struct answers *a,
                const struct answers *base, struct score **score, struct ckpt_err *err)
{
    struct figures f = {0};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < w->metric->n; i++) {
        struct score **s = &score[2 * i];

        rc = answers_score(&s[0], w->metric->item[i], a, w->encoder, err);
        if (rc == 0 && base)
            rc = answers_score(&s[1], w->metric->item[i], base, w->encoder, err);
        rc = rc ? rc : figures_add(&f, s[0], s[1], (uint64_t)w->seed, err);
    }
    rc = rc ? rc : print(cli, a->n, &f, err);
    rc = rc ? rc : gate_pass(w->gate, &f, w->file.item[0], err);
    figures_release(&f);
    return rc;
}

int predictions_print(const struct predictions_want *w, const struct cli *cli,
                      struct ckpt_err *err)
{
    struct answers a = {0}, base = {0};
    struct score **score = ckpt_alloc(2 * w->metric->n, sizeof *score);
    struct row_keys keys = {0}, base_keys = {0};
    int rc = score ? open_answers(&a, &keys, w->file.item, w->file.n, err)
                   : ckpt_nomem(err, w->metric->n * sizeof *score);

    if (rc == 0 && w->base)
        rc = open_answers(&base, &base_keys, &w->base, 1, err);
    if (rc == 0 && w->base && (row_keys_pair(&base, &base_keys, &keys, err) ||
                               answers_same(&a, &base, err)))
        rc = ckpt_err_in(err, "--base-predictions");
    rc = rc ? rc : work(w, cli, &a, w->base ? &base : NULL, score, err);
    for (size_t i = 0; score && i < 2 * w->metric->n; i++)
        score_free(score[i]);
    ckpt_free(score);
    row_keys_release(&keys);
    row_keys_release(&base_keys);
    answers_release(&a);
    answers_release(&base);
    return rc;
}
