/* overlay - the curves of several runs in one plot each: losses by step, memory by time. */
#include <math.h>
#include <string.h>

#include "formats/logs/metrics_log.h"
#include "formats/logs/run_log.h"
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
    const struct ckpt_array both[] = {{&c->x, sizeof *c->x}, {&c->y, sizeof *c->y}};
    int rc = ckpt_reserve_all(both, 2, &c->cap, c->n + 1, err);

    if (rc)
        return rc;
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

/* Values of metrics.jsonl by step. */
static int values(struct curve *c, struct ckpt_dir *dir, const char *key, struct ckpt_err *err)
{
    json_t *rows = NULL, *row;
    struct ckpt_file *f;
    size_t i;
    int rc;

    if (!ckpt_dir_has(dir, METRICS_LOG_NAME))
        return 0;
    if ((rc = ckpt_file_open_at(&f, dir, METRICS_LOG_NAME, err)) != 0)
        return rc;
    rc = metrics_log_read(&rows, f, err);
    json_array_foreach (rows, i, row) {
        const json_t *step = json_object_get(row, "step"), *v = json_object_get(row, key);

        if (rc == 0 && json_is_number(step) && json_is_number(v))
            rc = add(c, json_number_value(step), json_number_value(v), err);
    }
    json_decref(rows);
    ckpt_file_close(f);
    return rc;
}

static int losses(struct curve *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    return values(c, dir, "loss", err);
}

static int eval_losses(struct curve *c, struct ckpt_dir *dir, struct ckpt_err *err)
{
    return values(c, dir, "eval_loss", err);
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

/* The plots. */
static const struct what {
    const char *key, *title;
    int (*read)(struct curve *, struct ckpt_dir *, struct ckpt_err *);
} whats[] = {
    {"loss", "loss by step", losses},
    {"eval_loss", "eval loss by step", eval_losses},
    {"memory", "memory.used [MiB] by seconds", memory},
};
#define N_WHAT (sizeof whats / sizeof whats[0])

static int read_all(struct curve *curve, const struct what *what, const char *const *path, size_t n,
                    bool follow, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct ckpt_dir *dir;

        rc = ckpt_path_dir(&dir, path[i], follow ? CKPT_FOLLOW : 0, err);
        if (rc == 0)
            rc = what->read(&curve[i], dir, err);
        ckpt_dir_close(dir);
        if (rc)
            ckpt_err_in(err, "%s", path[i]);
    }
    return rc;
}

static void put_rows(struct out *o, const struct what *what, const struct curve *curve,
                     const char *const *path, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < curve[i].n; k++) {
            out_cell_str(o, path[i]);
            out_cell_str(o, what->key);
            out_cell_real(o, curve[i].x[k]);
            out_cell_real(o, curve[i].y[k]);
        }
}

/* One plot over all runs. */
static int draw(struct out *o, const struct what *what, const char *const *path, size_t n,
                bool follow, bool json, bool *any, struct ckpt_err *err)
{
    struct curve *curve = ckpt_alloc(n, sizeof *curve);
    struct plot_curve *all = ckpt_alloc(n, sizeof *all);
    int rc = curve && all ? read_all(curve, what, path, n, follow, err)
                          : ckpt_nomem(err, n * sizeof *curve);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        all[i] = (struct plot_curve){path[i], curve[i].n, point, &curve[i]};
        *any |= json && curve[i].n > 0;
    }
    if (rc == 0 && json)
        put_rows(o, what, curve, path, n);
    else if (rc == 0)
        *any |= plot_draw_together(o, what->title, all, n);
    for (size_t i = 0; curve && i < n; i++) {
        ckpt_free(curve[i].x);
        ckpt_free(curve[i].y);
    }
    ckpt_free(curve);
    ckpt_free(all);
    return rc;
}

int inspect_overlay(struct out *o, const char *const *path, size_t n, bool follow, bool json,
                    bool *any, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"run", NULL, OUT_LEFT}, {"curve", NULL, OUT_LEFT}, {"x", NULL, OUT_RIGHT},
        {"y", NULL, OUT_RIGHT},
    };
    int rc = 0;

    *any = false;
    if (json)
        out_table(o, "curves", columns, 4);
    for (size_t k = 0; rc == 0 && k < N_WHAT; k++)
        rc = draw(o, &whats[k], path, n, follow, json, any, err);
    if (rc == 0 && json)
        out_table_end(o);
    return rc;
}
