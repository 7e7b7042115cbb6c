/* run - the history of a training run in its trainer_state.json; see inspect.h. */
#include <math.h>

#include "tools/inspect/inspect.h"
#include "tools/inspect/plot.h"

#define LAST_ROWS 20            /* rows of the log shown to people */
#define PAGE_ROWS 500           /* in a page */

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);

    return json_is_number(v) ? json_number_value(v) : NAN;
}

static bool point(const void *ctx, size_t i, double *step, double *v)
{
    const void *const *pair = ctx;
    const json_t *row = json_array_get(pair[0], i);

    *v = number(row, pair[1]);
    *step = number(row, "step");
    return isfinite(*v) && isfinite(*step);
}

/* The losses as a plot. */
static void draw(struct out *o, const json_t *log, const char *key, const char *what)
{
    const void *pair[] = {log, key};

    plot_draw(o, what, json_array_size(log), point, pair);
}

/* The last value of key in the log. */
static double newest(const json_t *log, const char *key)
{
    for (size_t i = json_array_size(log); i-- > 0;)
        if (!isnan(number(json_array_get(log, i), key)))
            return number(json_array_get(log, i), key);
    return NAN;
}

static void put_number(struct out *o, const char *key, const char *title, double v)
{
    if (!isnan(v))
        out_real(o, key, title, v);
}

static void put_log(struct out *o, const json_t *log, size_t most)
{
    static const struct out_column columns[] = {
        {"step", "step", OUT_RIGHT},       {"epoch", "epoch", OUT_RIGHT},
        {"loss", "loss", OUT_RIGHT},       {"grad_norm", "grad norm", OUT_RIGHT},
        {"learning_rate", "lr", OUT_RIGHT}, {"eval_loss", "eval loss", OUT_RIGHT},
    };
    size_t n = json_array_size(log);

    out_table(o, "log", columns, 6);
    for (size_t i = n > most ? n - most : 0; i < n; i++)
        for (size_t k = 0; k < 6; k++)
            out_cell_known(o, number(json_array_get(log, i), columns[k].key));
    out_table_end(o);
}

void inspect_run_log(struct out *o, const json_t *state)
{
    put_log(o, json_object_get(state, "log_history"), PAGE_ROWS);
}

const char *inspect_best_checkpoint(const json_t *state)
{
    return json_string_value(json_object_get(state, "best_model_checkpoint"));
}

void inspect_run_summary(struct out *o, const json_t *state, bool plot)
{
    const json_t *log = json_object_get(state, "log_history");
    const char *best = inspect_best_checkpoint(state);

    out_int(o, "global_step", "step",
            json_integer_value(json_object_get(state, "global_step")));
    out_int(o, "max_steps", "of", json_integer_value(json_object_get(state, "max_steps")));
    put_number(o, "epoch", "epoch", number(state, "epoch"));
    put_number(o, "best_metric", "best metric", number(state, "best_metric"));
    if (best)
        out_str(o, "best_model_checkpoint", "best checkpoint", best);
    put_number(o, "loss", "last loss", newest(log, "loss"));
    put_number(o, "eval_loss", "last eval loss", newest(log, "eval_loss"));
    put_number(o, "train_runtime", "run time in s", newest(log, "train_runtime"));
    if (plot) {
        draw(o, log, "loss", "train loss");
        draw(o, log, "eval_loss", "eval loss");
    }
}

int inspect_trainer_state(struct out *o, const json_t *state, bool plot, bool json)
{
    out_str(o, "format", "format", "trainer_state.json");
    inspect_run_summary(o, state, plot && !json);
    put_log(o, json_object_get(state, "log_history"), json ? SIZE_MAX : LAST_ROWS);
    return 0;
}
