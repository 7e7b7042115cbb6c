/*
 * curves - numbers that a run logged, gathered into the charts of a page.
 *
 * A chart has one pair of axes and several curves.  Memory is 16 bytes a point.
 */
#ifndef CKPT_TOOLS_INSPECT_PAGE_CURVES_H
#define CKPT_TOOLS_INSPECT_PAGE_CURVES_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

#define CURVES_MAX_CHARTS 60            /* charts of a page; further ones are counted */
#define CURVES_MAX        16            /* curves of a chart; the same */

struct curves_point { double x, y; };

struct curves_curve {
    char                *name;
    size_t               colour;        /* its number */
    struct curves_point *point;         /* by x once the page is written */
    size_t               n, cap;
    size_t               n_other;       /* of them not finite: gaps of the line */
};

struct curves_chart {
    char               *name;           /* "Loss" */
    const char         *x_name;         /* "step", "seconds" */
    struct curves_curve curve[CURVES_MAX];
    size_t              n, left_out;
};

struct page_curves {
    struct curves_chart *chart;
    size_t               n, cap, left_out;
    struct ckpt_arena    arena;         /* names */
    bool                 by_name;       /* curves of one name have one colour in all charts */
    size_t               n_colours;     /* given to names */
};

void page_curves_release(struct page_curves *c);
/*
 * Add a value of a curve; chart and curve are made when they are new.  x_name stays yours.  A
 * point without a finite x, and one beyond the limits above, is left out.
 */
int page_curves_add(struct page_curves *c, const char *chart, const char *curve,
                    const char *x_name, double x, double y, struct ckpt_err *err);
/* The chart of that name, or NULL. */
const struct curves_chart *page_curves_find(const struct page_curves *c, const char *chart);
/* Sort points by x, and put the charts that people look at first in front. */
void page_curves_sort(struct page_curves *c);

#endif
