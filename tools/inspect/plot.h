/* plot - values by step, drawn with block characters for people. */
#ifndef CKPT_TOOLS_INSPECT_PLOT_H
#define CKPT_TOOLS_INSPECT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/out.h"

/* Point i of the curve; false where it has no finite value. */
typedef bool plot_point_fn(const void *ctx, size_t i, double *step, double *value);

/*
 * Draw n points, with steps along the x axis, each column the mean of its steps, below a line
 * with the title `what`.  False, and nothing drawn, when fewer than two steps have a point.
 */
bool plot_draw(struct out *o, const char *what, size_t n, plot_point_fn *point,
               const void *ctx);

/* One of several curves in a plot. */
struct plot_curve {
    const char    *name;
    size_t         n;
    plot_point_fn *point;
    const void    *ctx;
};

/*
 * Draw all curves on one scale, each by its letter, '*' where several meet, between the title
 * `what` and a legend line for each letter.  False, and nothing drawn, when no two points differ
 * in their step.
 */
bool plot_draw_together(struct out *o, const char *what, const struct plot_curve *curve, size_t n);

#endif
