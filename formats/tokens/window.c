/* window - see window.h. */
#include "formats/tokens/window.h"

#include <string.h>

#include "formats/tokens/component.h"
#include "libckpt/base/json.h"

/* A member that counts tokens. */
static int read_count(size_t *out, const json_t *json, const char *key, int64_t fallback,
                      struct ckpt_err *err)
{
    int64_t n;
    int rc;

    if ((rc = ckpt_json_int_or(&n, json, key, fallback, err)) != 0)
        return rc;
    if (n < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "%s is %lld", key, (long long)n);
    *out = (size_t)n;
    return 0;
}

static int read_direction(bool *left, const json_t *json, struct ckpt_err *err)
{
    const char *s;
    int rc;

    if ((rc = ckpt_json_str_or(&s, json, "direction", "Right", err)) != 0)
        return rc;
    *left = strcmp(s, "Left") == 0;
    if (*left || strcmp(s, "Right") == 0)
        return 0;
    return ckpt_fail(err, CKPT_EFORMAT, "direction \"%s\" is neither Left nor Right", s);
}

int window_read_truncation(struct truncation *t, bool *is, const json_t *json,
                           struct ckpt_err *err)
{
    static const char *const names[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};
    const char *s;

    *is = !component_is_absent(json);
    if (!*is)
        return 0;
    if (read_count(&t->max_length, json, "max_length", 512, err) ||
        read_count(&t->stride, json, "stride", 0, err) ||
        read_direction(&t->left, json, err) ||
        ckpt_json_str_or(&s, json, "strategy", names[0], err))
        return ckpt_err_in(err, "truncation");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(s, names[i]) == 0) {
            t->strategy = (enum window_strategy)i;
            return 0;
        }
    return ckpt_fail(err, CKPT_EFORMAT, "truncation: strategy \"%s\" is unknown", s);
}

/* "BatchLongest" or {"Fixed": n}. */
static int read_length(struct padding *p, const json_t *json, struct ckpt_err *err)
{
    const json_t *strategy = json_object_get(json, "strategy");
    const char *s;
    int64_t n;
    int rc;

    p->length = 0;
    if (!json_is_object(strategy)) {
        if ((rc = ckpt_json_str(&s, json, "strategy", err)) != 0)
            return rc;
        return strcmp(s, "BatchLongest") == 0
                   ? 0
                   : ckpt_fail(err, CKPT_EFORMAT, "strategy \"%s\" is unknown", s);
    }
    if ((rc = ckpt_json_int(&n, strategy, "Fixed", err)) != 0)
        return rc;
    if (n < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "Fixed is %lld", (long long)n);
    p->length = (size_t)n;
    return 0;
}

int window_read_padding(struct padding *p, bool *is, const json_t *json, struct ckpt_err *err)
{
    size_t id, type;

    *is = !component_is_absent(json);
    if (!*is)
        return 0;
    if (read_length(p, json, err) || read_direction(&p->left, json, err) ||
        read_count(&p->multiple, json, "pad_to_multiple_of", 0, err) ||
        read_count(&id, json, "pad_id", 0, err) || read_count(&type, json, "pad_type_id", 0, err))
        return ckpt_err_in(err, "padding");
    if (id > INT32_MAX || type > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "padding: pad_id %zu, pad_type_id %zu", id, type);
    p->id = (int32_t)id;
    p->type = (int32_t)type;
    return 0;
}

/* The shorter of two texts keeps what the longer can spare. */
static void longest_first(size_t max, size_t *n_a, size_t *n_b)
{
    size_t *less = *n_a <= *n_b ? n_a : n_b, *more = less == n_a ? n_b : n_a;

    *more = *less > max ? *less : *less > max - *less ? *less : max - *less;
    if (*less + *more > max) {
        *less = max / 2;
        *more = max / 2 + max % 2;
    }
}

int window_lengths(const struct truncation *t, size_t n_added, size_t *n_a, size_t *n_b,
                   bool pair, struct ckpt_err *err)
{
    size_t max, total = *n_a + *n_b, gone, *cut = n_a;

    if (t->max_length < n_added)
        return ckpt_fail(err, CKPT_EUSAGE, "truncation to %zu tokens, of which %zu are added",
                         t->max_length, n_added);
    max = t->max_length - n_added;
    if (max == 0) {
        *n_a = *n_b = 0;
        return 0;
    }
    if (total <= max)
        return 0;
    gone = total - max;
    if (t->strategy == WINDOW_LONGEST_FIRST && pair) {
        longest_first(max, n_a, n_b);
        return 0;
    }
    if (t->strategy == WINDOW_LONGEST_FIRST) {
        *n_a = max;
        return 0;
    }
    if (t->strategy == WINDOW_ONLY_SECOND) {
        if (!pair)
            return ckpt_fail(err, CKPT_EUSAGE, "truncation of the second text, and there is one");
        cut = n_b;
    }
    if (*cut <= gone)
        return ckpt_fail(err, CKPT_EUSAGE, "truncation of one text of %zu tokens by %zu", *cut,
                         gone);
    *cut -= gone;
    return 0;
}

bool window_range(const struct truncation *t, size_t n, size_t max, size_t i, size_t *from,
                  size_t *to)
{
    size_t step, done;

    if (max >= n) {
        *from = 0;
        *to = n;
        return i == 0;
    }
    if (max == 0) {
        /* Nothing is kept; the single window after that is everything. */
        *from = 0;
        *to = i == 0 ? 0 : n;
        return i < 2;
    }
    step = max - t->stride;
    if (i > n / step)
        return false;
    done = i * step;
    /* The window before reached the end. */
    if (i > 0 && done - step + max >= n)
        return false;
    *from = t->left ? (n - done > max ? n - done - max : 0) : done;
    *to = t->left ? n - done : (done + max < n ? done + max : n);
    return *from < *to;
}

size_t window_padded_length(const struct padding *p, size_t n)
{
    size_t length = p->length ? p->length : n;

    if (p->multiple > 0 && length % p->multiple > 0)
        length += p->multiple - length % p->multiple;
    return length;
}
