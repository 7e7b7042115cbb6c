/* line - see line.h. */
#include "trainer/tell/line.h"

#include <stdio.h>
#include <string.h>

/* What people look for first; all others follow in their own order. */
static const char *const first[] = {"step", "epoch", "loss", "grad_norm", "learning_rate",
                                    "eval_loss", "train_loss"};
#define N_FIRST (sizeof first / sizeof first[0])

static bool is_first(const char *key)
{
    for (size_t i = 0; i < N_FIRST; i++)
        if (strcmp(first[i], key) == 0)
            return true;
    return false;
}

/* Keys of every row that no line needs. */
static bool is_left_out(const char *key, bool dict)
{
    return strcmp(key, "run") == 0 || strcmp(key, "time") == 0 ||
           (dict && (strcmp(key, "step") == 0 || strcmp(key, "total_flos") == 0));
}

static void number_text(char text[48], const json_t *v, bool dict)
{
    if (json_is_integer(v))
        snprintf(text, 48, "%lld", (long long)json_integer_value(v));
    else
        snprintf(text, 48, json_is_real(v) ? (dict ? "%.4g" : "%.6g") : "nan",
                 json_real_value(v));
}

/* At n of the text; returns where it ends. */
static size_t put(char *text, size_t size, size_t n, const char *key, const json_t *v, bool dict)
{
    bool begins = n == (dict ? 1 : 0), real = !json_is_integer(v);
    const char *quote = dict && real ? "'" : "";
    char number[48];

    if (!v || !(json_is_number(v) || json_is_null(v)) || is_left_out(key, dict) || n >= size)
        return n;
    number_text(number, v, dict);
    return n + (size_t)snprintf(text + n, size - n, dict ? "%s'%s': %s%s%s" : "%s%s=%s%s%s",
                                begins ? "" : dict ? ", " : " ", key, quote, number, quote);
}

bool line_of_row(char *text, size_t size, const char *format, const json_t *row)
{
    bool dict = strcmp(format, "dict") == 0;
    const char *key;
    json_t *v;
    size_t n;

    if (!dict && strcmp(format, "kv") != 0)
        return false;
    n = (size_t)snprintf(text, size, "%s", dict ? "{" : "");
    for (size_t i = 0; i < N_FIRST; i++)
        if (!dict || strcmp(first[i], "epoch") != 0)
            n = put(text, size, n, first[i], json_object_get(row, first[i]), dict);
    json_object_foreach ((json_t *)(uintptr_t)row, key, v)
        if (!is_first(key))
            n = put(text, size, n, key, v, dict);
    if (dict)                           /* the Trainer adds it after all others */
        n = put(text, size, n, "epoch", json_object_get(row, "epoch"), dict);
    if (dict && n < size)
        snprintf(text + n, size - n, "}");
    return true;
}
