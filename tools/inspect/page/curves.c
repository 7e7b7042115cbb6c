/* curves - see curves.h. */
#include "tools/inspect/page/curves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"

void page_curves_release(struct page_curves *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->chart[i].n; k++)
            ckpt_free(c->chart[i].curve[k].point);
    ckpt_free(c->chart);
    ckpt_arena_release(&c->arena);
    *c = (struct page_curves){0};
}

static struct curves_chart *find_chart(const struct page_curves *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->chart[i].name, name) == 0)
            return &c->chart[i];
    return NULL;
}

const struct curves_chart *page_curves_find(const struct page_curves *c, const char *chart)
{
    return find_chart(c, chart);
}

/* *out NULL: no more fit. */
static int chart_of(struct curves_chart **out, struct page_curves *c, const char *name,
                    const char *x_name, struct ckpt_err *err)
{
    struct curves_chart fresh = {.x_name = x_name};
    int rc;

    if ((*out = find_chart(c, name)) != NULL)
        return 0;
    if (c->n == CURVES_MAX_CHARTS) {
        c->left_out++;
        return 0;
    }
    if ((rc = ckpt_reserve(&c->chart, c->n, &c->cap, sizeof *c->chart, err)) != 0)
        return rc;
    fresh.name = ckpt_arena_strndup(&c->arena, name, strlen(name));
    if (!fresh.name)
        return ckpt_nomem(err, strlen(name));
    c->chart[c->n] = fresh;
    *out = &c->chart[c->n++];
    return 0;
}

/* The colour of a new curve: the next one of the chart, or of all names. */
static size_t colour_of(struct page_curves *c, const struct curves_chart *chart, const char *name)
{
    for (size_t i = 0; c->by_name && i < c->n; i++)
        for (size_t k = 0; k < c->chart[i].n; k++)
            if (strcmp(c->chart[i].curve[k].name, name) == 0)
                return c->chart[i].curve[k].colour;
    return c->by_name ? c->n_colours++ : chart->n;
}

static int curve_of(struct curves_curve **out, struct page_curves *c, struct curves_chart *chart,
                    const char *name, struct ckpt_err *err)
{
    for (size_t i = 0; i < chart->n; i++)
        if (strcmp(chart->curve[i].name, name) == 0) {
            *out = &chart->curve[i];
            return 0;
        }
    *out = NULL;
    if (chart->n == CURVES_MAX) {
        chart->left_out++;
        return 0;
    }
    chart->curve[chart->n].colour = colour_of(c, chart, name);
    chart->curve[chart->n].name = ckpt_arena_strndup(&c->arena, name, strlen(name));
    if (!chart->curve[chart->n].name)
        return ckpt_nomem(err, strlen(name));
    *out = &chart->curve[chart->n++];
    return 0;
}

int page_curves_add(struct page_curves *c, const char *chart, const char *curve,
                    const char *x_name, double x, double y, struct ckpt_err *err)
{
    struct curves_chart *at = NULL;
    struct curves_curve *to = NULL;
    int rc = isfinite(x) ? chart_of(&at, c, chart, x_name, err) : 0;

    if (rc == 0 && at)
        rc = curve_of(&to, c, at, curve, err);
    if (rc == 0 && to)
        rc = ckpt_reserve(&to->point, to->n, &to->cap, sizeof *to->point, err);
    if (rc || !to)
        return rc;
    to->point[to->n++] = (struct curves_point){x, y};
    to->n_other += isfinite(y) ? 0 : 1;
    return 0;
}

/* Larger than any finite number, so that the order is total. */
static double rank_of(double y) { return isnan(y) ? INFINITY : y; }

static int by_x(const void *a, const void *b)
{
    const struct curves_point *p = a, *q = b;

    if (p->x != q->x)
        return p->x < q->x ? -1 : 1;
    return (rank_of(p->y) > rank_of(q->y)) - (rank_of(p->y) < rank_of(q->y));
}

static bool in_order(const struct curves_curve *c)
{
    for (size_t i = 1; i < c->n; i++)
        if (c->point[i].x < c->point[i - 1].x)
            return false;
    return true;
}

static bool has_word(const char *name, const char *word)
{
    return strstr(name, word) != NULL;
}

/* Loss, then the other charts of training, then the machine's. */
static int place_of(const struct curves_chart *c)
{
    static const char *const order[] = {"Loss", "loss", "Eval loss", "Learning rate",
                                        "learning_rate", "Gradient norm", "grad_norm",
                                        "Tokens per second", "Device memory, MiB"};
    const size_t n = sizeof order / sizeof order[0];

    for (size_t i = 0; i < n; i++)
        if (strcmp(c->name, order[i]) == 0)
            return (int)i;
    return has_word(c->name, "loss") ? 2 : (int)n;
}

void page_curves_sort(struct page_curves *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->chart[i].n; k++)
            if (!in_order(&c->chart[i].curve[k]))
                qsort(c->chart[i].curve[k].point, c->chart[i].curve[k].n,
                      sizeof *c->chart[i].curve[k].point, by_x);
    for (size_t i = 1; i < c->n; i++)           /* stable; few of them */
        for (size_t k = i; k > 0 && place_of(&c->chart[k]) < place_of(&c->chart[k - 1]); k--) {
            struct curves_chart other = c->chart[k];

            c->chart[k] = c->chart[k - 1];
            c->chart[k - 1] = other;
        }
}
