/* metrics_log - see metrics_log.h. */
#include "formats/logs/metrics_log.h"

#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

/* The step of a row; false when it has none. */
static bool step_of(double *step, const json_t *row)
{
    const json_t *v = json_object_get(row, "step");

    *step = json_number_value(v);
    return json_is_number(v);
}

/* The step after which a run began, if the row is a run's first; -1 for a fresh run. */
static bool is_start(double *step, const json_t *row)
{
    const json_t *v = json_object_get(row, "start_step");

    *step = json_is_true(json_object_get(row, "continues")) ? json_number_value(v) : -1;
    return json_is_string(json_object_get(row, "run")) && json_is_number(v);
}

/* Drop rows at the end of kept that are beyond step; a run's last row always belongs to it
 * alone. */
static void forget(json_t *kept, double step)
{
    double s;

    while (json_array_size(kept)) {
        const json_t *row = json_array_get(kept, json_array_size(kept) - 1);

        if (step >= 0 && step_of(&s, row) && s <= step && !json_object_get(row, "train_runtime"))
            return;
        json_array_remove(kept, json_array_size(kept) - 1);
    }
}

/* Whether both rows report the same values of the same step: then the later one is used. */
static bool is_again(const json_t *old, const json_t *row)
{
    static const char *const keys[] = {"loss", "eval_loss", "train_runtime"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(old, keys[i]) && json_object_get(row, keys[i]))
            return true;
    return false;
}

/* Drop rows where steps go back, or repeat, without a run's first row. */
static void forget_back(json_t *kept, const json_t *row, double step)
{
    for (size_t n = json_array_size(kept); n-- > 0;) {
        const json_t *old = json_array_get(kept, n);
        double s;

        if (!step_of(&s, old) || s < step)
            return;
        if (s > step || is_again(old, row))
            json_array_remove(kept, n);
    }
}

int metrics_log_newest(json_t *rows, struct ckpt_err *err)
{
    json_t *kept = json_array(), *row;
    int rc = kept ? 0 : ckpt_nomem(err, 64);
    size_t i;

    json_array_foreach (rows, i, row) {
        double step;

        if (is_start(&step, row))
            forget(kept, step);
        else if (step_of(&step, row))
            forget_back(kept, row, step);
        if (rc == 0 && json_array_append(kept, row))
            rc = ckpt_nomem(err, 64);
    }
    if (rc == 0 && (json_array_clear(rows) || json_array_extend(rows, kept)))
        rc = ckpt_nomem(err, 64);
    json_decref(kept);
    return rc;
}

int metrics_log_read(json_t **rows, struct ckpt_file *file, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    char *text = NULL, *end;
    size_t n;
    int rc = ckpt_file_slurp(file, &a, CKPT_JSON_MAX_BYTES, &text, &n, err);

    *rows = json_array();
    if (rc == 0 && !*rows)
        rc = ckpt_nomem(err, 64);
    for (char *line = text; rc == 0 && *line; line = end) {
        struct ckpt_err ignored = {0};
        json_t *row = NULL;

        end = line + strcspn(line, "\n");
        (void)ckpt_json_parse(&row, line, (size_t)(end - line), CKPT_JSON_PYTHON | CKPT_JSON_LINE,
                              &ignored);
        if (json_is_object(row) && json_array_append(*rows, row))
            rc = ckpt_nomem(err, 64);
        json_decref(row);
        end += *end != '\0';
    }
    ckpt_arena_release(&a);
    if (rc == 0)
        rc = metrics_log_newest(*rows, err);
    if (rc) {
        json_decref(*rows);
        *rows = NULL;
    }
    return rc;
}
