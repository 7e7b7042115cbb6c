/* plot - see plot.h. */
#include "tools/inspect/plot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH  64
#define HEIGHT 6

/* Mean values by step, one for each column of the plot. */
struct plot {
    double sum[WIDTH], value[WIDTH];
    size_t count[WIDTH];
    double low, high, first, last;      /* values; steps */
    size_t n;
};

/* A column without a value takes that of the one before; the first columns take the first value. */
static void fill(struct plot *p)
{
    size_t x = 0;

    while (x + 1 < WIDTH && !p->count[x])
        x++;
    p->value[0] = p->sum[x] / (double)p->count[x];
    for (x = 0; x < WIDTH; x++)
        p->value[x] = p->count[x] ? p->sum[x] / (double)p->count[x] : p->value[x ? x - 1 : 0];
    p->low = p->high = p->value[0];
    for (x = 1; x < WIDTH; x++) {
        p->low = fmin(p->low, p->value[x]);
        p->high = fmax(p->high, p->value[x]);
    }
}

static void gather(struct plot *p, size_t n, plot_point_fn *point, const void *ctx)
{
    double step, v;

    memset(p, 0, sizeof *p);
    p->first = INFINITY;
    p->last = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (point(ctx, i, &step, &v)) {
            p->first = fmin(p->first, step);
            p->last = fmax(p->last, step);
            p->n++;
        }
    if (p->n < 2 || p->last <= p->first)
        return;
    for (size_t i = 0; i < n; i++)
        if (point(ctx, i, &step, &v)) {
            size_t x = (size_t)((step - p->first) / (p->last - p->first) * (WIDTH - 1) + 0.5);

            p->sum[x] += v;
            p->count[x]++;
        }
    fill(p);
}

/* Draw one row of the plot, in eighths of a character from below. */
static void draw_row(struct out *o, const struct plot *p, int y)
{
    static const char *const block[] = {" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585",
                                        "\u2586", "\u2587", "\u2588"};
    char line[WIDTH * 3 + 40];
    size_t at;

    if (y == HEIGHT - 1 || y == 0)
        at = (size_t)snprintf(line, 24, "%10.4g ", y ? p->high : p->low);
    else
        at = (size_t)snprintf(line, 24, "%11s", "");
    for (size_t x = 0; x < WIDTH; x++) {
        double part = p->high > p->low ? (p->value[x] - p->low) / (p->high - p->low) : 0;
        int eighths = 1 + (int)(part * (HEIGHT * 8 - 1) + 0.5) - 8 * y;
        const char *b = block[eighths < 0 ? 0 : eighths > 8 ? 8 : eighths];

        memcpy(line + at, b, strlen(b));
        at += strlen(b);
    }
    line[at] = '\0';
    out_line(o, line);
}

bool plot_draw(struct out *o, const char *what, size_t n, plot_point_fn *point, const void *ctx)
{
    struct plot p;
    char line[400];

    gather(&p, n, point, ctx);
    if (p.n < 2 || p.last <= p.first)
        return false;
    snprintf(line, sizeof line, "%.300s, %zu values, steps %.0f to %.0f", what, p.n, p.first,
             p.last);
    out_line(o, line);
    for (int y = HEIGHT - 1; y >= 0; y--)
        draw_row(o, &p, y);
    return true;
}

/* -- several in one ---------------------------------------------------------------------------- */

#define TALL 16

struct frame {
    double low, high, first, last;      /* values; steps */
    size_t n;
};

static struct frame frame_of(const struct plot_curve *curve, size_t n)
{
    struct frame f = {INFINITY, -INFINITY, INFINITY, -INFINITY, 0};
    double step, v;

    for (size_t c = 0; c < n; c++)
        for (size_t i = 0; i < curve[c].n; i++)
            if (curve[c].point(curve[c].ctx, i, &step, &v)) {
                f.low = fmin(f.low, v);
                f.high = fmax(f.high, v);
                f.first = fmin(f.first, step);
                f.last = fmax(f.last, step);
                f.n++;
            }
    return f;
}

static char letter(size_t c) { return (char)(c < 26 ? 'a' + (int)c : '+'); }

/* The mean of a curve's points in each column, as its letter. */
static void put_curve(char grid[TALL][WIDTH + 1], const struct frame *f,
                      const struct plot_curve *curve, size_t c)
{
    double sum[WIDTH] = {0}, step, v;
    size_t count[WIDTH] = {0};

    for (size_t i = 0; i < curve->n; i++)
        if (curve->point(curve->ctx, i, &step, &v)) {
            size_t x = (size_t)((step - f->first) / (f->last - f->first) * (WIDTH - 1) + 0.5);

            sum[x] += v;
            count[x]++;
        }
    for (size_t x = 0; x < WIDTH; x++) {
        double part = count[x] && f->high > f->low
                          ? (sum[x] / (double)count[x] - f->low) / (f->high - f->low) : 0;
        char *at = &grid[(int)(part * (TALL - 1) + 0.5)][x];

        if (count[x])
            *at = *at == ' ' || *at == letter(c) ? letter(c) : '*';
    }
}

bool plot_draw_together(struct out *o, const char *what, const struct plot_curve *curve, size_t n)
{
    struct frame f = frame_of(curve, n);
    char grid[TALL][WIDTH + 1], line[400];

    if (f.n < 2 || f.last <= f.first)
        return false;
    for (int y = 0; y < TALL; y++)
        snprintf(grid[y], sizeof grid[y], "%*s", WIDTH, "");
    for (size_t c = 0; c < n; c++)
        put_curve(grid, &f, &curve[c], c);
    snprintf(line, sizeof line, "%.200s, %.4g to %.4g", what, f.first, f.last);
    out_line(o, line);
    for (size_t c = 0; c < n; c++) {
        snprintf(line, sizeof line, "  %c  %.380s", letter(c), curve[c].name);
        if (curve[c].n > 0)
            out_line(o, line);
    }
    for (int y = TALL - 1; y >= 0; y--) {
        if (y == TALL - 1 || y == 0)
            snprintf(line, sizeof line, "%10.4g %s", y ? f.high : f.low, grid[y]);
        else
            snprintf(line, sizeof line, "%11s%s", "", grid[y]);
        out_line(o, line);
    }
    return true;
}
