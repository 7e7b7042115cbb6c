/* figures - see figures.h. */
#include "tools/eval/figures.h"

#include <math.h>
#include <string.h>

#include "libckpt/mem.h"

int figures_add(struct figures *f, const struct score *a, const struct score *base, uint64_t seed,
                struct ckpt_err *err)
{
    struct score_interval interval[SCORE_FIGURES];
    double value[SCORE_FIGURES], other[SCORE_FIGURES], p[SCORE_FIGURES];
    int rc = score_intervals(interval, a, FIGURES_SAMPLES, seed, err);

    if (rc == 0 && base)
        rc = score_paired(p, a, base, FIGURES_SAMPLES, seed, err);
    if (rc == 0)
        score_values(value, a);
    if (rc == 0 && base)
        score_values(other, base);
    for (size_t k = 0; rc == 0 && k < score_figures(a); k++) {
        if (isnan(value[k]) ||
            (rc = ckpt_reserve(&f->of, f->n, &f->cap, sizeof *f->of, err)) != 0)
            continue;
        f->of[f->n++] = (struct figure){
            .name = score_figure_name(a, k), .metric = score_metric(a),
            .signature = score_signature(a), .value = value[k], .low = interval[k].low,
            .high = interval[k].high, .base = base ? other[k] : NAN, .p = base ? p[k] : NAN};
    }
    f->beside |= base != NULL;
    return rc;
}

void figures_put(const struct figures *f, struct out *o)
{
    static const struct out_column alone[] = {
        {"figure", "figure", OUT_LEFT}, {"value", "value", OUT_RIGHT},
        {"low", "95% from", OUT_RIGHT}, {"high", "to", OUT_RIGHT},
        {"metric", "metric", OUT_LEFT}, {"signature", NULL, OUT_LEFT},
    };
    static const struct out_column beside[] = {
        {"figure", "figure", OUT_LEFT}, {"value", "value", OUT_RIGHT},
        {"low", "95% from", OUT_RIGHT}, {"high", "to", OUT_RIGHT}, {"base", "base", OUT_RIGHT},
        {"difference", "difference", OUT_RIGHT}, {"p", "p", OUT_RIGHT},
        {"metric", "metric", OUT_LEFT}, {"signature", NULL, OUT_LEFT},
    };

    out_table(o, "figures", f->beside ? beside : alone,
              f->beside ? sizeof beside / sizeof beside[0] : sizeof alone / sizeof alone[0]);
    for (size_t i = 0; i < f->n; i++) {
        const struct figure *g = &f->of[i];

        out_cell_str(o, g->name);
        out_cell_real(o, g->value);
        out_cell_known(o, g->low);
        out_cell_known(o, g->high);
        if (f->beside) {
            out_cell_known(o, g->base);
            out_cell_known(o, g->value - g->base);
            out_cell_known(o, g->p);
        }
        out_cell_str(o, g->metric);
        out_cell_str(o, g->signature);
    }
    out_table_end(o);
}

void figures_release(struct figures *f)
{
    ckpt_free(f->of);
    memset(f, 0, sizeof *f);
}
