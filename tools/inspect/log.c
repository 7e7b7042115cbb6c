/* log - the log of a run: facts, tags, and every number for programs; see inspect.h. */
#include <math.h>

#include "formats/logs/run_log.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/plot.h"

/* Range of a series' finite numbers. */
struct range {
    double min, max, mean;
};

static struct range range_of(const struct log_series *s)
{
    struct range r = {INFINITY, -INFINITY, 0};
    uint64_t n = 0;

    for (uint64_t i = 0; s->point && i < s->count; i++)
        if (isfinite(s->point[i].value)) {
            r.min = fmin(r.min, s->point[i].value);
            r.max = fmax(r.max, s->point[i].value);
            r.mean += (s->point[i].value - r.mean) / (double)++n;
        }
    return r;
}

static void put_real(struct out *o, bool there, double v)
{
    if (there)
        out_cell_real(o, v);
    else
        out_cell_none(o);
}

static void put_series(struct out *o, const struct log_series *s)
{
    struct range r = range_of(s);
    bool any = s->point && s->count > 0;

    out_cell_str(o, s->tag);
    out_cell_str(o, s->kind);
    out_cell_int(o, (int64_t)s->count);
    out_cell_int(o, s->first_step);
    out_cell_int(o, s->last_step);
    put_real(o, any, any ? s->point[0].value : 0);
    put_real(o, any, any ? s->point[s->count - 1].value : 0);
    put_real(o, r.min <= r.max, r.min);
    put_real(o, r.min <= r.max, r.max);
    put_real(o, r.min <= r.max, r.mean);
}

static void put_tags(struct out *o, const struct inspect_want *w, const struct run_log *log)
{
    static const struct out_column columns[] = {
        {"tag", "tag", OUT_LEFT},           {"kind", "kind", OUT_LEFT},
        {"count", "count", OUT_RIGHT},      {"first_step", "first step", OUT_RIGHT},
        {"last_step", "last step", OUT_RIGHT}, {"first", "first", OUT_RIGHT},
        {"last", "last", OUT_RIGHT},        {"min", "min", OUT_RIGHT},
        {"max", "max", OUT_RIGHT},          {"mean", "mean", OUT_RIGHT},
    };

    out_table(o, "tags", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < log->n; i++)
        if (inspect_wants(w, log->series[i].tag))
            put_series(o, &log->series[i]);
    out_table_end(o);
}

/* Every number. */
static void put_values(struct out *o, const struct inspect_want *w, const struct run_log *log)
{
    static const struct out_column columns[] = {
        {"tag", NULL, OUT_LEFT}, {"step", NULL, OUT_RIGHT}, {"time", NULL, OUT_RIGHT},
        {"value", NULL, OUT_RIGHT},
    };

    out_table(o, "scalars", columns, 4);
    for (size_t i = 0; i < log->n; i++) {
        const struct log_series *s = &log->series[i];

        for (uint64_t k = 0; s->point && k < s->count && inspect_wants(w, s->tag); k++) {
            out_cell_str(o, s->tag);
            out_cell_int(o, s->point[k].step);
            out_cell_real(o, s->point[k].time);
            out_cell_real(o, s->point[k].value);
        }
    }
    out_table_end(o);
}

/* The last text of every tag with texts. */
static void put_texts(struct out *o, const struct inspect_want *w, const struct run_log *log)
{
    static const struct out_column text[] = {
        {"tag", NULL, OUT_LEFT}, {"step", NULL, OUT_RIGHT}, {"text", NULL, OUT_LEFT},
    };

    out_table(o, "texts", text, 3);
    for (size_t i = 0; i < log->n; i++) {
        const struct log_series *s = &log->series[i];

        if (!s->text || !inspect_wants(w, s->tag))
            continue;
        out_cell_str(o, s->tag);
        out_cell_int(o, s->last_step);
        out_cell_str(o, s->text);
    }
    out_table_end(o);
}

static bool point(const void *ctx, size_t i, double *step, double *value)
{
    const struct log_series *s = ctx;

    *step = (double)s->point[i].step;
    *value = s->point[i].value;
    return isfinite(*value);
}

static int plot(struct out *o, const struct inspect_want *w, const struct run_log *log,
                struct ckpt_err *err)
{
    bool any = false;

    for (size_t i = 0; i < log->n; i++) {
        const struct log_series *s = &log->series[i];

        if (s->point && inspect_wants(w, s->tag))
            any |= plot_draw(o, s->tag, (size_t)s->count, point, s);
    }
    return any ? 0 : ckpt_fail(err, CKPT_ENOTFOUND, "--plot: no tag has numbers of two steps");
}

/* Short facts first. */
static void put_facts(struct out *o, const json_t *info)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)info, key, v)
        if (json_is_string(v))
            out_str(o, key, key, json_string_value(v));
        else if (!json_is_object(v))
            out_json(o, key, key, v);
    json_object_foreach ((json_t *)info, key, v)
        if (json_is_object(v))
            out_json(o, key, key, v);
}

int inspect_log(struct out *o, const struct inspect_want *w, bool json,
                const struct run_log *log, struct ckpt_err *err)
{
    out_str(o, "format", "format", log->format);
    put_facts(o, log->info);
    out_int(o, "records", "records", (int64_t)log->records);
    if (log->torn_bytes > 0 || json)
        out_int(o, "torn_bytes", "bytes of a torn end, left out", (int64_t)log->torn_bytes);
    if (w->verify)
        out_str(o, "verified", "verified", "every record has its checksum");
    if (w->plot && !json)
        return plot(o, w, log, err);
    put_tags(o, w, log);
    if (json && !w->curves)
        put_values(o, w, log);
    if (json)
        put_texts(o, w, log);
    return w->curves ? inspect_gather_log(w->curves, NULL, w, log, err) : 0;
}
