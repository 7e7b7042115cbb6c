/* chart - see chart.h. */
#include "tools/inspect/page/chart.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/inspect/page/text.h"

#define COLOURS   8             /* then the same again, dashed */
#define DOTS      40            /* points of a curve that are marked each */
#define DECADES   30.0          /* greatest / least value from which on the axis is logarithmic */
#define NOISY     100           /* points from which on a noisy curve gets its mean */
#define MEAN_PART 25            /* the mean is of this part of the curve */

/* -- axes ------------------------------------------------------------------------------------ */

size_t chart_ticks(double dst[CHART_MAX_TICKS], double low, double high, int want, bool whole)
{
    double raw = (high - low) / (want > 0 ? want : 1), ten, step;
    size_t n = 0;

    if (!(raw > 0) || !isfinite(raw))
        return 0;
    ten = pow(10, floor(log10(raw)));
    step = raw <= 1.0001 * ten ? ten : raw <= 2.0001 * ten ? 2 * ten
           : raw <= 5.0001 * ten ? 5 * ten : 10 * ten;
    if (whole && step < 1)
        step = 1;
    for (double k = ceil(low / step - 1e-9); n < CHART_MAX_TICKS && k * step <= high + step * 1e-9;
         k++)
        dst[n++] = k * step;
    return n;
}

size_t chart_log_ticks(double dst[CHART_MAX_TICKS], double low, double high)
{
    static const int by[] = {1, 2, 5};
    double first = floor(log10(low)), last = ceil(log10(high)), step = ceil((last - first) / 8);
    size_t n = 0;

    for (int all = 0; all < 2; all++) {
        n = 0;
        for (double e = first; e <= last; e += fmax(step, 1))
            for (int k = 0; k < (all ? 3 : 1); k++) {
                double v = by[k] * pow(10, e);

                if (v >= low * 0.999 && v <= high * 1.001 && n < CHART_MAX_TICKS)
                    dst[n++] = v;
            }
        if (n >= 3)
            break;
    }
    return n;
}

struct frame {
    double x0, x1, y0, y1;              /* of the drawing; y0 at the bottom */
    double low, high;                   /* least and greatest value */
    bool   log, whole, any;             /* whole: every x is an integer */
};

/* Whether a log axis would help to read the values; schedules and rates are read from zero. */
static bool wants_log(const char *name, double low, double high)
{
    return low > 0 && high / low >= DECADES && !strstr(name, "earning") && !strstr(name, "econd") &&
           !strstr(name, "emory") && strcmp(name, "lr") != 0;
}

static void set_range(struct frame *f, const char *name)
{
    double pad = (f->high - f->low) * 0.06;

    f->log = wants_log(name, f->low, f->high);
    if (pad == 0)
        pad = f->low == 0 ? 1 : fabs(f->low) * 0.1;
    if (f->log) {
        double part = exp((log(f->high) - log(f->low)) * 0.05);

        f->y0 = fmax(f->low / part, DBL_MIN);
        f->y1 = fmin(f->high * part, DBL_MAX);
    } else {
        f->y0 = f->low >= 0 && f->low < f->high * 0.4 ? 0 : f->low - pad;
        f->y1 = f->high + pad;
    }
    if (f->x1 <= f->x0) {
        f->x0 -= 0.5;
        f->x1 += 0.5;
    }
}

static struct frame frame_of(const struct curves_chart *c)
{
    struct frame f = {.x0 = INFINITY, .x1 = -INFINITY, .low = INFINITY, .high = -INFINITY,
                      .whole = true};

    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->curve[i].n; k++) {
            struct curves_point p = c->curve[i].point[k];

            f.x0 = fmin(f.x0, p.x);
            f.x1 = fmax(f.x1, p.x);
            f.whole &= p.x == floor(p.x);
            if (!isfinite(p.y))
                continue;
            f.low = fmin(f.low, p.y);
            f.high = fmax(f.high, p.y);
            f.any = true;
        }
    /* halved, so that no span overflows */
    f.any = f.any && f.high / 2 - f.low / 2 < 1e307 && f.x1 / 2 - f.x0 / 2 < 1e307;
    if (f.any)
        set_range(&f, c->name);
    return f;
}

/* Place from the left and from the top, 0 to 1. */
static double at_x(const struct frame *f, double x) { return (x - f->x0) / (f->x1 - f->x0); }

static double at_y(const struct frame *f, double y)
{
    return f->log ? (log(f->y1) - log(y)) / (log(f->y1) - log(f->y0))
                  : (f->y1 - y) / (f->y1 - f->y0);
}

static void put_x_ticks(struct ckpt_buf *b, const struct frame *f, const char *class, int want)
{
    double tick[CHART_MAX_TICKS];
    size_t n = chart_ticks(tick, f->x0, f->x1, want, f->whole);
    char text[PAGE_NUMBER];

    ckpt_buf_printf(b, "<g class=\"%s\">", class);
    for (size_t i = 0; i < n; i++) {
        double x = 100 * at_x(f, tick[i]);

        ckpt_buf_printf(b, "<line x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"100%%\"/>"
                        "<text class=\"x\" x=\"%.2f%%\" y=\"100%%\" dy=\"18\">%s</text>",
                        x, x, x, page_short(text, tick[i]));
    }
    ckpt_buf_put_str(b, "</g>\n");
}

static void put_axes(struct ckpt_buf *b, const struct frame *f, const char *x_name)
{
    double tick[CHART_MAX_TICKS];
    size_t n = f->log ? chart_log_ticks(tick, f->y0, f->y1)
                      : chart_ticks(tick, f->y0, f->y1, 5, false);
    char text[PAGE_NUMBER];

    ckpt_buf_put_str(b, "<g class=\"axes\" aria-hidden=\"true\">\n");
    for (size_t i = 0; i < n; i++) {
        double y = 100 * at_y(f, tick[i]);

        ckpt_buf_printf(b, "<line x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>"
                        "<text class=\"y\" x=\"-8\" y=\"%.2f%%\" dy=\"4\">%s</text>\n", y, y, y,
                        page_short(text, tick[i]));
    }
    put_x_ticks(b, f, "few", 4);
    put_x_ticks(b, f, "many", 10);
    ckpt_buf_put_str(b, "<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"100%\" y2=\"100%\"/>"
                     "<text class=\"x name\" x=\"50%\" y=\"100%\" dy=\"36\">");
    page_text(b, x_name, 60);
    ckpt_buf_put_str(b, f->log ? "</text><text class=\"scale\" x=\"100%\" y=\"0\" dy=\"-5\">"
                                 "log scale</text></g>\n" : "</text></g>\n");
}

/* -- curves ---------------------------------------------------------------------------------- */

/* At most two points a column: its least and its greatest; a value that is not finite is kept as
 * the column's gap.  dst has 3 * columns + 3. */
static size_t thin(struct curves_point *dst, const struct frame *f, const struct curves_point *p,
                   size_t n, size_t columns)
{
    size_t out = 0;

    if (n <= 2 * columns) {
        memcpy(dst, p, n * sizeof *dst);
        return n;
    }
    for (size_t i = 0, end; i < n; i = end) {
        size_t column = (size_t)(at_x(f, p[i].x) * (double)columns), low = SIZE_MAX, high = 0;
        bool gap = false;

        for (end = i; end < n && (size_t)(at_x(f, p[end].x) * (double)columns) == column; end++) {
            gap |= !isfinite(p[end].y);
            if (!isfinite(p[end].y))
                continue;
            low = low == SIZE_MAX || p[end].y < p[low].y ? end : low;
            high = low == end || p[end].y > p[high].y ? end : high;
        }
        if (gap)
            dst[out++] = (struct curves_point){p[i].x, NAN};
        if (low == SIZE_MAX)
            continue;
        dst[out++] = p[low < high ? low : high];
        if (low != high)
            dst[out++] = p[low < high ? high : low];
    }
    return out;
}

/* Whether the line goes up and down so often that its mean says more. */
static bool is_noisy(const struct curves_curve *c)
{
    double low = INFINITY, high = -INFINITY, way = 0;

    for (size_t i = 0; i < c->n; i++) {
        if (!isfinite(c->point[i].y))
            continue;
        low = fmin(low, c->point[i].y);
        high = fmax(high, c->point[i].y);
        if (i > 0 && isfinite(c->point[i - 1].y))
            way += fabs(c->point[i].y - c->point[i - 1].y);
    }
    return c->n >= NOISY && high > low && way > 5 * (high - low);
}

/* The mean of the finite values about every point of p, in dst[n]; of logarithms on a log axis, so
 * that one outlier does not lift it. */
static void mean_of(struct curves_point *dst, const struct frame *f, const struct curves_point *p,
                    size_t n)
{
    size_t half = n / MEAN_PART / 4 + 1, first = 0, end = 0, count = 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        for (; end < n && end <= i + half; end++)
            if (isfinite(p[end].y)) {
                sum += f->log ? log(p[end].y) : p[end].y;
                count++;
            }
        for (; first + half < i; first++)
            if (isfinite(p[first].y)) {
                sum -= f->log ? log(p[first].y) : p[first].y;
                count--;
            }
        dst[i] = (struct curves_point){p[i].x, NAN};
        if (count && isfinite(p[i].y))
            dst[i].y = f->log ? exp(sum / (double)count) : sum / (double)count;
    }
}

/* Lines between neighbours that are finite. */
static void put_lines(struct ckpt_buf *b, const struct frame *f, const struct curves_point *p,
                      size_t n, size_t colour, const char *class)
{
    bool open = false;

    for (size_t i = 0; i < n; i++) {
        bool drawn = isfinite(p[i].y) && (!f->log || p[i].y > 0);

        if (!drawn) {
            ckpt_buf_put_str(b, open ? "\"/>\n" : "");
            open = false;
            continue;
        }
        if (!open)
            ckpt_buf_printf(b, "<polyline class=\"%s c%zu%s\" points=\"", class, colour % COLOURS,
                            colour >= COLOURS ? " again" : "");
        ckpt_buf_printf(b, "%s%.1f,%.1f", open ? " " : "", 1000 * at_x(f, p[i].x),
                        1000 * at_y(f, p[i].y));
        open = true;
    }
    ckpt_buf_put_str(b, open ? "\"/>\n" : "");
}

/* The curve's mean line, thinned into thinned. */
static void put_mean(struct ckpt_buf *b, const struct frame *f, const struct curves_curve *c,
                     struct curves_point *thinned, size_t columns)
{
    struct curves_point *once = ckpt_alloc(c->n, sizeof *once);
    struct curves_point *twice = ckpt_alloc(c->n, sizeof *twice);

    b->failed |= !once || !twice;
    if (once && twice) {                /* twice: a step becomes a ramp */
        mean_of(once, f, c->point, c->n);
        mean_of(twice, f, once, c->n);
        put_lines(b, f, thinned, thin(thinned, f, twice, c->n, columns / 2 + 1), c->colour,
                  "line mean");
    }
    ckpt_free(once);
    ckpt_free(twice);
}

/* What the pointer shows: the thinned points in full numbers. */
static void put_values(struct ckpt_buf *b, const struct curves_curve *c,
                       const struct curves_point *p, size_t n)
{
    bool first = true;

    ckpt_buf_put_str(b, "<g class=\"values\" data-name=\"");
    page_text(b, c->name, 120);
    ckpt_buf_printf(b, "\" data-colour=\"%zu\" data-points=\"", c->colour % COLOURS);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(p[i].y))
            continue;
        ckpt_buf_printf(b, "%s%.9g,%.6g", first ? "" : " ", p[i].x, p[i].y);
        first = false;
    }
    ckpt_buf_put_str(b, "\"></g>\n");
}

static void put_dots(struct ckpt_buf *b, const struct frame *f, const struct curves_curve *c)
{
    for (size_t i = 0; i < c->n && c->n <= DOTS; i++)
        if (isfinite(c->point[i].y))
            ckpt_buf_printf(b, "<circle class=\"c%zu\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"3\"/>\n",
                            c->colour % COLOURS, 100 * at_x(f, c->point[i].x),
                            100 * at_y(f, c->point[i].y));
}

static void put_curves(struct ckpt_buf *b, const struct frame *f, const struct curves_chart *c,
                       size_t columns)
{
    struct curves_point *thinned = ckpt_alloc(3 * columns + 3, sizeof *thinned);

    b->failed |= !thinned;
    ckpt_buf_put_str(b, "<svg class=\"plot\" viewBox=\"0 0 1000 1000\" width=\"100%\" "
                     "height=\"100%\" preserveAspectRatio=\"none\">\n");
    for (size_t i = 0; thinned && i < c->n; i++) {
        size_t n = thin(thinned, f, c->curve[i].point, c->curve[i].n, columns);
        bool noisy = is_noisy(&c->curve[i]);

        put_lines(b, f, thinned, n, c->curve[i].colour, noisy ? "raw" : "line");
        put_values(b, &c->curve[i], thinned, n);
        if (noisy)
            put_mean(b, f, &c->curve[i], thinned, columns);
    }
    ckpt_buf_put_str(b, "</svg>\n");
    for (size_t i = 0; i < c->n; i++)
        put_dots(b, f, &c->curve[i]);
    ckpt_free(thinned);
}

/* -- words ----------------------------------------------------------------------------------- */

static const struct curves_point *last_of(const struct curves_curve *c)
{
    for (size_t i = c->n; i-- > 0;)
        if (isfinite(c->point[i].y))
            return &c->point[i];
    return NULL;
}

static const struct curves_point *least_of(const struct curves_curve *c)
{
    const struct curves_point *least = NULL;

    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->point[i].y) && (!least || c->point[i].y < least->y))
            least = &c->point[i];
    return least;
}

static void put_legend(struct ckpt_buf *b, const struct curves_chart *c)
{
    bool loss = strstr(c->name, "oss") != NULL;
    char value[PAGE_NUMBER], at[PAGE_NUMBER];

    for (size_t i = 0; i < c->n; i++) {
        const struct curves_point *last = last_of(&c->curve[i]), *least = least_of(&c->curve[i]);

        ckpt_buf_printf(b, "<span class=\"key\"><i class=\"c%zu%s\"></i>",
                        c->curve[i].colour % COLOURS,
                        c->curve[i].colour >= COLOURS ? " again" : "");
        if (c->n > 1 || strcmp(c->curve[i].name, c->name) != 0)
            page_text(b, c->curve[i].name, 60);
        if (last)
            ckpt_buf_printf(b, " <b>%s</b>", page_number(value, last->y, 5));
        if (loss && least && least != last && c->n <= 4)
            ckpt_buf_printf(b, " <small>least %s at %s</small>", page_number(value, least->y, 5),
                            page_number(at, least->x, 7));
        ckpt_buf_put_str(b, "</span>\n");
    }
}

/* Said to those who do not see the drawing. */
static void put_description(struct ckpt_buf *b, const struct frame *f,
                            const struct curves_chart *c)
{
    char from[PAGE_NUMBER], to[PAGE_NUMBER], low[PAGE_NUMBER], high[PAGE_NUMBER];

    page_text(b, c->x_name, 60);
    ckpt_buf_printf(b, " %s to %s, values %s to %s. ", page_number(from, f->x0, 6),
                    page_number(to, f->x1, 6), page_number(low, f->low, 5),
                    page_number(high, f->high, 5));
    for (size_t i = 0; i < c->n && i < 8; i++) {
        const struct curves_point *last = last_of(&c->curve[i]);

        page_text(b, c->curve[i].name, 60);
        ckpt_buf_printf(b, ": %zu values, the last %s. ", c->curve[i].n,
                        last ? page_number(to, last->y, 5) : "not finite");
    }
}

static void put_notes(struct ckpt_buf *b, const struct curves_chart *c)
{
    size_t other = 0;
    double first = INFINITY;
    char at[PAGE_NUMBER];

    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->curve[i].n && c->curve[i].n_other; k++)
            if (!isfinite(c->curve[i].point[k].y)) {
                other++;
                first = fmin(first, c->curve[i].point[k].x);
            }
    if (other) {
        ckpt_buf_printf(b, "<p class=\"bad\">%zu value%s NaN or infinite, the first at ", other,
                        other == 1 ? " is" : "s are");
        page_text(b, c->x_name, 60);
        ckpt_buf_printf(b, " %s</p>\n", page_number(at, first, 7));
    }
    if (c->left_out)
        ckpt_buf_printf(b, "<p class=\"note\">%d curves are drawn, further ones are not</p>\n",
                        CURVES_MAX);
}

void page_chart(struct ckpt_buf *b, const struct curves_chart *c, size_t id, size_t columns,
                const char *class)
{
    struct frame f = frame_of(c);

    ckpt_buf_printf(b, "<figure class=\"chart %s%s\">\n<figcaption><h3>", class,
                    c->n > 2 ? " several" : "");
    page_text(b, c->name, 100);
    ckpt_buf_put_str(b, "</h3>\n");
    put_legend(b, c);
    ckpt_buf_put_str(b, "</figcaption>\n");
    if (f.any) {
        ckpt_buf_printf(b, "<svg class=\"frame\" role=\"img\" aria-labelledby=\"t%zu d%zu\" "
                        "data-x0=\"%.17g\" data-x1=\"%.17g\">\n<title id=\"t%zu\">", id, id, f.x0,
                        f.x1, id);
        page_text(b, c->name, 100);
        ckpt_buf_put_str(b, " by ");
        page_text(b, c->x_name, 60);
        ckpt_buf_printf(b, "</title>\n<desc id=\"d%zu\">", id);
        put_description(b, &f, c);
        ckpt_buf_put_str(b, "</desc>\n");
        put_axes(b, &f, c->x_name);
        put_curves(b, &f, c, columns);
        ckpt_buf_put_str(b, "</svg>\n");
    } else {
        ckpt_buf_put_str(b, "<p class=\"note\">no value that can be drawn</p>\n");
    }
    put_notes(b, c);
    ckpt_buf_put_str(b, "</figure>\n");
}
