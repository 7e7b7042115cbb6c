/* predictions - see predictions.h. */
#include "tools/eval/predictions.h"

#include <math.h>
#include <string.h>

#include "formats/records/record.h"
#include "libckpt/mem.h"
#include "tools/eval/score/score.h"
#include "tools/out.h"

struct system {
    struct score_row *row;
    size_t            n;
    struct ckpt_arena arena;
};

static void close_system(struct system *s) { ckpt_arena_release(&s->arena); }

/* The first of these fields, NULL-terminated, that a record has. */
static const json_t *field_of(const json_t *record, const char *const *name)
{
    const json_t *v = NULL;

    for (; !v && *name; name++)
        v = json_object_get(record, *name);
    return v;
}

/* A text or a number as text in the arena; NULL where it is neither, or out of memory. */
static const char *text_of(struct system *s, const json_t *v)
{
    if (json_is_string(v))
        return ckpt_arena_strndup(&s->arena, json_string_value(v), json_string_length(v));
    if (json_is_integer(v))
        return ckpt_arena_printf(&s->arena, "%lld", (long long)json_integer_value(v));
    if (json_is_boolean(v))
        return json_is_true(v) ? "true" : "false";
    return json_is_real(v) ? ckpt_arena_printf(&s->arena, "%.17g", json_real_value(v)) : NULL;
}

static int take_references(struct system *s, struct score_row *row, const json_t *v,
                           struct ckpt_err *err)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    const char **text = ckpt_arena_alloc(&s->arena, n ? n : 1, sizeof *text);

    if (!text)
        return ckpt_nomem(err, n * sizeof *text);
    for (size_t k = 0; k < n; k++)
        if (!(text[k] = text_of(s, json_is_array(v) ? json_array_get(v, k) : v)))
            return ckpt_fail(err, CKPT_EFORMAT, "reference %zu is no text", k + 1);
    if (n == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "there is no reference");
    row->reference = text;
    row->n_references = n;
    return 0;
}

static int take_record(struct system *s, struct score_row *row, const json_t *record,
                       struct ckpt_err *err)
{
    static const char *const predictions[] = {"prediction", "predict", "prediction_text",
                                              "generated_text", NULL};
    static const char *const references[] = {"references", "reference", "answers", "label",
                                             "target", NULL};
    const json_t *p = field_of(record, predictions), *r = field_of(record, references);

    if (json_is_object(r))
        r = json_object_get(r, "text");
    row->prediction = text_of(s, p);
    if (!row->prediction)
        return ckpt_fail(err, CKPT_EFORMAT, "no text in a field prediction, predict, "
                         "prediction_text or generated_text");
    return r ? take_references(s, row, r, err)
             : ckpt_fail(err, CKPT_EFORMAT, "no field references, reference, answers, label or "
                         "target");
}

static int open_system(struct system *s, const char *const *path, size_t n_path,
                       struct ckpt_err *err)
{
    struct records *records = NULL;
    int rc = records_open(&records, path, n_path, err);

    s->n = rc ? 0 : (size_t)records_count(records);
    s->row = ckpt_arena_alloc(&s->arena, s->n + 1, sizeof *s->row);
    if (rc == 0 && !s->row)
        rc = ckpt_nomem(err, s->n * sizeof *s->row);
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        json_t *record;

        if (cli_stop)
            rc = cli_stopped(err);
        else if ((rc = records_get(records, (int64_t)i, &record, err)) == 0) {
            rc = take_record(s, &s->row[i], record, err);
            json_decref(record);
            if (rc)
                records_err_in(records, (int64_t)i, err);
        }
    }
    records_close(records);
    return rc;
}

/* Two systems answer the same rows. */
static int check_same(const struct system *a, const struct system *b, struct ckpt_err *err)
{
    if (a->n != b->n)
        return ckpt_fail(err, CKPT_EFORMAT, "--base-predictions: %zu rows, and the predictions "
                         "have %zu", b->n, a->n);
    for (size_t i = 0; i < a->n; i++) {
        const struct score_row *x = &a->row[i], *y = &b->row[i];
        bool same = x->n_references == y->n_references;

        for (size_t k = 0; same && k < x->n_references; k++)
            same = strcmp(x->reference[k], y->reference[k]) == 0;
        if (!same)
            return ckpt_fail(err, CKPT_EFORMAT, "--base-predictions: row %zu has other references",
                             i + 1);
    }
    return 0;
}

static int put_metric(struct out *o, const char *metric, const struct system *s,
                      const struct system *base, uint64_t seed, struct ckpt_err *err)
{
    struct score_interval interval[SCORE_FIGURES];
    double value[SCORE_FIGURES], other[SCORE_FIGURES] = {0}, p[SCORE_FIGURES] = {0};
    struct score *a = NULL, *b = NULL;
    int rc = score_new(&a, metric, s->row, s->n, err);

    rc = rc ? rc : score_intervals(interval, a, PREDICTIONS_SAMPLES, seed, err);
    if (rc == 0 && base)
        rc = score_new(&b, metric, base->row, base->n, err);
    if (rc == 0 && base)
        rc = score_paired(p, a, b, PREDICTIONS_SAMPLES, seed, err);
    if (rc == 0)
        score_values(value, a);
    if (rc == 0 && base)
        score_values(other, b);
    for (size_t k = 0; rc == 0 && k < score_figures(a); k++) {
        out_cell_str(o, score_figure_name(a, k));
        out_cell_real(o, value[k]);
        out_cell_real(o, interval[k].low);
        out_cell_real(o, interval[k].high);
        if (base) {
            out_cell_real(o, other[k]);
            out_cell_real(o, p[k]);
        }
        out_cell_str(o, metric);
        out_cell_str(o, score_signature(a));
    }
    score_free(a);
    score_free(b);
    return rc;
}

static int print(const struct predictions_want *w, const struct cli *cli, const struct system *s,
                 const struct system *base, struct ckpt_err *err)
{
    static const struct out_column alone[] = {
        {"figure", "figure", OUT_LEFT}, {"value", "value", OUT_RIGHT}, {"low", "from", OUT_RIGHT},
        {"high", "to", OUT_RIGHT}, {"metric", "metric", OUT_LEFT}, {"signature", NULL, OUT_LEFT},
    };
    static const struct out_column beside[] = {
        {"figure", "figure", OUT_LEFT}, {"value", "value", OUT_RIGHT}, {"low", "from", OUT_RIGHT},
        {"high", "to", OUT_RIGHT}, {"base", "base", OUT_RIGHT}, {"p", "p", OUT_RIGHT},
        {"metric", "metric", OUT_LEFT}, {"signature", NULL, OUT_LEFT},
    };
    struct out *o;
    int rc = out_new(&o, cli->json, err);

    if (rc)
        return rc;
    out_int(o, "rows", "rows", (int64_t)s->n);
    out_table(o, "figures", base ? beside : alone, base ? 8 : 6);
    for (size_t i = 0; rc == 0 && i < w->metric.n; i++)
        rc = put_metric(o, w->metric.item[i], s, base, (uint64_t)w->seed, err);
    out_table_end(o);
    if (rc == 0)
        return out_end(o, err);
    out_abort(o);
    return rc;
}

int predictions_print(const struct predictions_want *w, const struct cli *cli,
                      struct ckpt_err *err)
{
    struct system s = {0}, base = {0};
    int rc = open_system(&s, w->file.item, w->file.n, err);

    if (rc == 0 && w->base)
        rc = open_system(&base, &w->base, 1, err);
    if (rc == 0 && w->base)
        rc = check_same(&s, &base, err);
    rc = rc ? rc : print(w, cli, &s, w->base ? &base : NULL, err);
    close_system(&s);
    close_system(&base);
    return rc;
}
