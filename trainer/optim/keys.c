/* optim/keys - see optim/keys.h. */
#include "trainer/optim/keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define TEXT_MOST 80                    /* characters of a key or a value */

int keys_word(const char *words, const char *word, size_t n)
{
    int index = 0;

    for (const char *w = words; w && *w; index++) {
        size_t k = strcspn(w, " ");

        if (k == n && strncmp(w, word, n) == 0)
            return index;
        w += k;
        w += strspn(w, " ");
    }
    return -1;
}

size_t keys_word_at(const char **word, const char *words, size_t i)
{
    *word = words ? words : "";
    while (i-- > 0) {
        *word += strcspn(*word, " ");
        *word += strspn(*word, " ");
    }
    return strcspn(*word, " ");
}

void keys_text(char text[KEYS_TEXT], const void *from, const struct keys_row *r)
{
    const void *at = (const char *)from + r->at;
    const double *x = at;
    const char *word;
    size_t n;

    if (r->kind == KEYS_REAL) {
        snprintf(text, KEYS_TEXT, isnan(*x) ? "none" : "%.10g", *x);
    } else if (r->kind == KEYS_THREE) {
        snprintf(text, KEYS_TEXT, "%.10g:%.10g:%.10g", x[0], x[1], x[2]);
    } else if (r->kind == KEYS_INT) {
        snprintf(text, KEYS_TEXT, "%lld", (long long)*(const int64_t *)at);
    } else if (r->kind == KEYS_BOOL) {
        snprintf(text, KEYS_TEXT, "%s", *(const bool *)at ? "True" : "False");
    } else {
        n = keys_word_at(&word, r->words, (size_t)*(const int *)at);
        snprintf(text, KEYS_TEXT, "%.*s", (int)n, word);
    }
}

static const struct keys_row *find(const struct keys_table *t, const char *key)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->row[i].name, key) == 0)
            return &t->row[i];
    return NULL;
}

static int bad_value(const struct keys_table *t, const struct keys_row *r, const char *value,
                     const char *wanted, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s=%s: %s is wanted", t->setting, r->name, value,
                     wanted);
}

static int set_number(void *to, const struct keys_table *t, const struct keys_row *r,
                      const char *value, struct ckpt_err *err)
{
    char range[64], *end;
    double x;

    errno = 0;
    x = strtod(value, &end);
    snprintf(range, sizeof range, "%s from %g to %g", r->kind == KEYS_INT ? "an integer"
                                                                          : "a number",
             r->min, r->max);
    if (end == value || *end || !(x >= r->min && x <= r->max) ||
        (r->kind == KEYS_INT && x != floor(x)))
        return bad_value(t, r, value, range, err);
    if (r->kind == KEYS_INT)
        *(int64_t *)to = (int64_t)x;
    else
        *(double *)to = x;
    return 0;
}

/* "x:y:z" */
static int set_three(double *to, const struct keys_table *t, const struct keys_row *r,
                     const char *value, struct ckpt_err *err)
{
    char range[80], *end;
    double x[3];

    snprintf(range, sizeof range, "three numbers from %g to %g with `:` between them", r->min,
             r->max);
    for (int i = 0; i < 3; i++) {
        const char *at = i ? end + 1 : value;

        x[i] = strtod(at, &end);
        if (end == at || *end != (i < 2 ? ':' : '\0') || !(x[i] >= r->min && x[i] <= r->max))
            return bad_value(t, r, value, range, err);
    }
    memcpy(to, x, sizeof x);
    return 0;
}

static int set_row(void *to, const struct keys_table *t, const struct keys_row *r,
                   const char *value, struct ckpt_err *err)
{
    void *field = (char *)to + r->at;
    char wanted[256];
    int word;

    if (strcmp(value, "None") == 0 || strcmp(value, "null") == 0)
        return 0;
    if (r->kind == KEYS_REAL || r->kind == KEYS_INT)
        return set_number(field, t, r, value, err);
    if (r->kind == KEYS_THREE)
        return set_three(field, t, r, value, err);
    if (r->kind == KEYS_BOOL) {
        bool yes = keys_word("True true 1", value, strlen(value)) >= 0;

        if (!yes && keys_word("False false 0", value, strlen(value)) < 0)
            return bad_value(t, r, value, "True or False", err);
        *(bool *)field = yes;
        return 0;
    }
    if ((word = keys_word(r->words, value, strlen(value))) < 0) {
        snprintf(wanted, sizeof wanted, "one of %s", r->words);
        return bad_value(t, r, value, wanted, err);
    }
    *(int *)field = word;
    return 0;
}

static int set_one(void *to, const struct keys_table *t, const char *key, const char *value,
                   const char *allowed, const char *of, struct ckpt_err *err)
{
    const struct keys_row *r = find(t, key);

    if (!r || (allowed && keys_word(allowed, key, strlen(key)) < 0))
        return ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s is no key of %s, whose keys are: %s",
                         t->setting, key, of, allowed && *allowed ? allowed : "none");
    return set_row(to, t, r, value, err);
}

/* A JSON value as the text that "key=value" would have. */
static bool text_of(char dst[TEXT_MOST], const json_t *v)
{
    if (json_is_array(v) && json_array_size(v) == 3 && json_is_number(json_array_get(v, 0)) &&
        json_is_number(json_array_get(v, 1)) && json_is_number(json_array_get(v, 2)))
        return snprintf(dst, TEXT_MOST, "%.17g:%.17g:%.17g",
                        json_number_value(json_array_get(v, 0)),
                        json_number_value(json_array_get(v, 1)),
                        json_number_value(json_array_get(v, 2))) < TEXT_MOST;
    if (json_is_string(v))
        return snprintf(dst, TEXT_MOST, "%s", json_string_value(v)) < TEXT_MOST;
    if (json_is_boolean(v))
        return snprintf(dst, TEXT_MOST, "%s", json_is_true(v) ? "True" : "False") < TEXT_MOST;
    if (json_is_null(v))
        return snprintf(dst, TEXT_MOST, "None") < TEXT_MOST;
    if (json_is_integer(v))
        return snprintf(dst, TEXT_MOST, "%lld", (long long)json_integer_value(v)) < TEXT_MOST;
    return json_is_real(v) && snprintf(dst, TEXT_MOST, "%.17g", json_real_value(v)) < TEXT_MOST;
}

static int set_json(void *to, const struct keys_table *t, const char *text, const char *allowed,
                    const char *of, struct ckpt_err *err)
{
    json_error_t why;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why), *v;
    char value[TEXT_MOST];
    const char *key;
    int rc = 0;

    if (!root)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s`: is no JSON object: %s", t->setting, why.text);
    json_object_foreach (root, key, v) {
        rc = text_of(value, v) ? set_one(to, t, key, value, allowed, of, err)
                               : ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s: a number, a word, true or "
                                           "false is wanted", t->setting, key);
        if (rc)
            break;
    }
    json_decref(root);
    return rc;
}

/* The next "key=value" without its blanks; false at the end.  *fits is false where it has no "=",
 * no key, or more characters than either may have. */
static bool next_pair(const char **at, char key[TEXT_MOST], char value[TEXT_MOST], bool *fits)
{
    size_t n = 0;
    char *to = key;

    *fits = true;
    key[0] = value[0] = '\0';
    if (!**at)
        return false;
    for (; **at && **at != ','; ++*at) {
        if (**at == ' ')
            continue;
        if (**at == '=' && to == key) {
            to = value;
            n = 0;
        } else if (n + 1 < TEXT_MOST) {
            to[n++] = **at;
            to[n] = '\0';
        } else {
            *fits = false;
        }
    }
    *fits = *fits && to == value && *key && *value;
    *at += **at == ',';
    return true;
}

int keys_set(void *to, const struct keys_table *table, const char *text, const char *allowed,
             const char *of, struct ckpt_err *err)
{
    char key[TEXT_MOST], value[TEXT_MOST];
    bool fits;
    int rc = 0;

    if (!text)
        return 0;
    if (text[strspn(text, " ")] == '{')
        return set_json(to, table, text, allowed, of, err);
    while (rc == 0 && next_pair(&text, key, value, &fits))
        rc = fits ? set_one(to, table, key, value, allowed, of, err)
                  : ckpt_fail(err, CKPT_ECONFIG, "`%s`: %s is not KEY=VALUE", table->setting, key);
    return rc;
}

bool keys_has(const char *text, const char *key)
{
    size_t n = strlen(key);

    for (const char *at = text; at && (at = strstr(at, key)) != NULL; at += n) {
        char before = at == text ? ',' : at[-1];
        const char *after = at + n;

        after += *after == '"';
        after += strspn(after, " ");
        if ((before == ',' || before == ' ' || before == '"' || before == '{') &&
            (*after == '=' || *after == ':'))
            return true;
    }
    return false;
}
