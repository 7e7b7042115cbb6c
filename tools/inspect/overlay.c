/* overlay - the curves of several runs in one plot each: losses by step, memory by time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/logs/run_log.h"
#include "libckpt/json.h"
#include "libckpt/mem.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/plot.h"

/* One run's points. */
struct curve {
    double *x, *y;
    size_t  n, cap;
};

static int add(struct curve *c, double x, double y, struct ckpt_err *err)
{
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 256;
        double *wide = ckpt_grow(c->x, cap, sizeof *wide), *high;

        if (!wide)
            return ckpt_nomem(err, cap * sizeof *wide);
        c->x = wide;
        high = ckpt_grow(c->y, cap, sizeof *high);
        if (!high)
            return ckpt_nomem(err, cap * sizeof *high);
        c->y = high;
        c->cap = cap;
    }
    c->x[c->n] = x;
    c->y[c->n++] = y;
    return 0;
}

static bool point(const void *ctx, size_t i, double *x, double *y)
{
    const struct curve *c = ctx;

    *x = c->x[i];
    *y = c->y[i];
    return isfinite(*x) && isfinite(*y);
}

/* Losses of metrics.jsonl. */
static int losses(struct curve *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_file *f;
    char *text = NULL, *end;
    size_t n;
    int rc = ckpt_dir_has(dir, "metrics.jsonl") ? ckpt_file_open_at(&f, dir, "metrics.jsonl", err)
                                                : -1;

    if (rc)
        return rc < 0 ? 0 : rc;
    rc = ckpt_file_slurp(f, &a, CKPT_JSON_MAX_BYTES, &text, &n, err);
    for (char *line = text; rc == 0 && *line; line = end) {
        const json_t *step, *loss;
        json_t *row;

        end = line + strcspn(line, "\n");
        row = json_loadb(line, (size_t)(end - line), 0, NULL);
        step = json_object_get(row, "step");
        loss = json_object_get(row, "loss");
        if (json_is_number(step) && json_is_number(loss))
            rc = add(c, json_number_value(step), json_number_value(loss), err);
        json_decref(row);
        end += *end != '\0';
    }
    ckpt_file_close(f);
    ckpt_arena_release(&a);
    return rc;
}

/* Memory of memory.csv's first device, by seconds from its first line. */
static int memory(struct curve *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    static const char tail[] = "/memory.used [MiB]";
    struct run_log *log = NULL;
    struct ckpt_file *f;
    int rc = ckpt_dir_has(dir, "memory.csv") ? ckpt_file_open_at(&f, dir, "memory.csv", err) : -1;

    if (rc)
        return rc < 0 ? 0 : rc;
    rc = run_log_read(&log, f, err);
    for (size_t i = 0; rc == 0 && i < log->n && c->n == 0; i++) {
        const struct log_series *s = &log->series[i];
        size_t len = strlen(s->tag);

        if (!s->point || len < sizeof tail || strcmp(s->tag + len - (sizeof tail - 1), tail) != 0)
            continue;
        for (uint64_t k = 0; rc == 0 && k < s->count; k++)
            rc = add(c, s->point[k].time - s->point[0].time, s->point[k].value, err);
    }
    run_log_free(log);
    ckpt_file_close(f);
    return rc ? ckpt_err_in(err, "memory.csv") : 0;
}

/* One plot over all runs of what `read` finds in each. */
static int draw(struct out *o, const char *what, char *const *path, size_t n, bool follow,
                int (*read)(struct curve *, struct ckpt_dir *, struct ckpt_err *), bool *any,
                struct ckpt_err *err)
{
    struct curve *curve = ckpt_alloc(n, sizeof *curve);
    struct plot_curve *all = ckpt_alloc(n, sizeof *all);
    int rc = curve && all ? 0 : ckpt_nomem(err, n * sizeof *curve);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *dir;

        rc = ckpt_path_dir(&dir, path[i], follow ? CKPT_FOLLOW : 0, err);
        if (rc == 0)
            rc = read(&curve[i], dir, err);
        ckpt_dir_close(dir);
        if (rc)
            ckpt_err_in(err, "%s", path[i]);
        all[i] = (struct plot_curve){path[i], curve[i].n, point, &curve[i]};
    }
    if (rc == 0)
        *any |= plot_draw_together(o, what, all, n);
    for (size_t i = 0; curve && i < n; i++) {
        ckpt_free(curve[i].x);
        ckpt_free(curve[i].y);
    }
    ckpt_free(curve);
    ckpt_free(all);
    return rc;
}

int inspect_overlay(struct out *o, char *const *path, size_t n, bool follow, struct ckpt_err *err)
{
    bool any = false;

    if (draw(o, "loss by step", path, n, follow, losses, &any, err) ||
        draw(o, "memory.used [MiB] by seconds", path, n, follow, memory, &any, err))
        return err->code;
    return any ? 0 : ckpt_fail(err, CKPT_ENOTFOUND, "--plot: no run has a curve: neither losses "
                               "of two steps in metrics.jsonl nor a memory.csv");
}
