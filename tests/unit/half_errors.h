/*
 * half_errors - what rounding to 16 bits may cost a golden model: by what transformers' own models
 * are off from the same goldens (tests/golden/models/half_errors.json, make_half_errors.py).
 */
#ifndef CKPT_TESTS_UNIT_HALF_ERRORS_H
#define CKPT_TESTS_UNIT_HALF_ERRORS_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <jansson.h>

#include "libckpt/dtype.h"

/*
 * What may be off, relative: logits to the largest of them, the loss, a tensor's gradient to its
 * norm with three thousandths of that of all (some gradients are sums that cancel, a key's bias to
 * nothing), all gradients together to theirs.
 */
struct bounds {
    double logits, loss, gradient, all;
};

/*
 * Half as much again as transformers' models may ours be off, since they round at other places,
 * and three units of the type.  A routed model's row near the border between two experts picks
 * another one then, which of them is chance: they share the largest of their bounds.
 */
static inline struct bounds half_bounds(const char *name, enum ckpt_dtype type)
{
    double unit = type == CKPT_BF16 ? 0x1p-8 : 0x1p-11;
    struct bounds may = {0, type == CKPT_BF16 ? 1e-2 : 1e-3, 0, 0};
    json_t *errors, *one;
    const char *model;

    errors = json_load_file("tests/golden/models/half_errors.json", 0, NULL);
    assert_non_null(json_object_get(errors, name));
    json_object_foreach (errors, model, one) {
        bool routed = strstr(name, "mixtral") || strstr(name, "moe");
        json_t *row = json_object_get(one, type == CKPT_BF16 ? "BF16" : "F16");

        if (strcmp(model, name) != 0 &&
            !(routed && (strstr(model, "mixtral") || strstr(model, "moe"))))
            continue;
        may.logits = fmax(may.logits, json_number_value(json_object_get(row, "logits")));
        may.gradient = fmax(may.gradient, json_number_value(json_object_get(row, "gradient")));
        may.all = fmax(may.all, json_number_value(json_object_get(row, "all")));
    }
    json_decref(errors);
    may.logits = 1.5 * may.logits + 3 * unit;
    may.gradient = 1.5 * may.gradient + 3 * unit;
    may.all = 1.5 * may.all + 3 * unit;
    return may;
}

#endif
