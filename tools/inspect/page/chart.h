/*
 * chart - curves as one SVG figure: axes with round numbers, grid, legend, a log axis where values
 * span decades.
 *
 * Positions are per cent of the drawing, text and strokes keep their size: a chart fits any width
 * without a script.  Long curves are thinned to the least and greatest value of each of a fixed
 * number of columns.
 */
#ifndef CKPT_TOOLS_INSPECT_PAGE_CHART_H
#define CKPT_TOOLS_INSPECT_PAGE_CHART_H

#include "libckpt/base/buf.h"
#include "tools/inspect/page/curves.h"

/*
 * Put the figure; id is its number on the page, columns bounds the points of a curve (two each),
 * class is "wide" (as wide as the page), "half" or "".
 */
void page_chart(struct ckpt_buf *b, const struct curves_chart *c, size_t id, size_t columns,
                const char *class);

#define CHART_MAX_TICKS 24

/* Round numbers within [low, high], about `want` of them; whole: integers only. */
size_t chart_ticks(double dst[CHART_MAX_TICKS], double low, double high, int want, bool whole);
/* Powers of ten within [low, high] > 0; twice and five times those too where they are few. */
size_t chart_log_ticks(double dst[CHART_MAX_TICKS], double low, double high);

#endif
