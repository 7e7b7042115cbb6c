/* opt/value - rows, and text into their values; see opt/rows.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"
#include "tools/opt/rows.h"

static char dashed(char c) { return c == '_' ? '-' : c; }

static bool same(const char *name, size_t n, const char *word, size_t k)
{
    for (size_t i = 0; n == k && i < n; i++)
        if (dashed(name[i]) != word[i])
            return false;
    return n == k;
}

struct opt_slot *opt_find(const struct opt_table *t, const char *name, size_t n)
{
    for (size_t i = 0; n && i < t->n; i++)
        if (same(name, n, t->slot[i].row->name, strlen(t->slot[i].row->name)))
            return &t->slot[i];
    return NULL;
}

bool opt_among(const char *words, const char *name, size_t n)
{
    for (size_t k; *words; words += k + (words[k] == ' '))
        if (same(name, n, words, k = strcspn(words, " ")))
            return true;
    return false;
}

bool opt_takes_value(const struct opt *o)
{
    return o->kind != OPT_KIND_FLAG && o->kind != OPT_KIND_COUNT && o->kind != OPT_KIND_HEADING;
}

void opt_set_flag(const struct opt_slot *s, bool on)
{
    void *at = s->values + s->row->at;

    if (s->row->kind == OPT_KIND_COUNT)
        ++*(int *)at;
    else
        *(bool *)at = on;
}

union opt_value opt_value_of(const struct opt_slot *s)
{
    const void *at = s->values + s->row->at;
    union opt_value v = {0};

    switch (s->row->kind) {
    case OPT_KIND_FLAG:    v.flag = *(const bool *)at; break;
    case OPT_KIND_COUNT:   v.count = *(const int *)at; break;
    case OPT_KIND_INT:     v.i = *(const int64_t *)at; break;
    case OPT_KIND_REAL:    v.real = *(const double *)at; break;
    case OPT_KIND_SIZE:    v.size = *(const uint64_t *)at; break;
    case OPT_KIND_CHAR:    v.byte = *(const char *)at; break;
    case OPT_KIND_TEXT:
    case OPT_KIND_PATH:
    case OPT_KIND_ENUM:    v.text = *(const char *const *)at; break;
    case OPT_KIND_LIST:    v.n = *(const size_t *)(const void *)(s->values + s->row->at_n); break;
    case OPT_KIND_HEADING: break;
    }
    return v;
}

void opt_put_back(struct opt_slot *s)
{
    void *at = s->values + s->row->at;

    switch (s->row->kind) {
    case OPT_KIND_FLAG:    *(bool *)at = s->was.flag; break;
    case OPT_KIND_COUNT:   *(int *)at = s->was.count; break;
    case OPT_KIND_INT:     *(int64_t *)at = s->was.i; break;
    case OPT_KIND_REAL:    *(double *)at = s->was.real; break;
    case OPT_KIND_SIZE:    *(uint64_t *)at = s->was.size; break;
    case OPT_KIND_CHAR:    *(char *)at = s->was.byte; break;
    case OPT_KIND_TEXT:
    case OPT_KIND_PATH:
    case OPT_KIND_ENUM:    *(const char **)at = s->was.text; break;
    case OPT_KIND_LIST:    *(size_t *)(void *)(s->values + s->row->at_n) = s->was.n; break;
    case OPT_KIND_HEADING: break;
    }
    s->given = false;
}

static int bad(struct ckpt_err *err, const char *where, const char *text, const char *want)
{
    return ckpt_fail(err, CKPT_EUSAGE, "%s: \"%s\" is %s", where, text, want);
}

/* Which of the words beside numbers, from 1; 0: none. */
static int word_of(const char *choices, const char *text)
{
    size_t n = strlen(text);
    int i = 1;

    for (; choices && *choices; choices += strspn(choices, " "), i++) {
        size_t k = strcspn(choices, " ");

        if (k == n && strncmp(choices, text, n) == 0)
            return i;
        choices += k;
    }
    return 0;
}

static int set_number(const struct opt_slot *s, const char *text, const char *where,
                      struct ckpt_err *err)
{
    bool whole = s->row->kind == OPT_KIND_INT;
    int word = whole ? word_of(s->row->choices, text) : 0;
    void *at = s->values + s->row->at;
    long long i = 0;
    char *end;
    double v;

    if (word) {
        *(int64_t *)at = -word;
        return 0;
    }

    errno = 0;
    if (isspace((unsigned char)text[0]))
        return bad(err, where, text, "no number");
    v = whole ? (double)(i = strtoll(text, &end, 10)) : strtod(text, &end);
    if (end == text || *end || (whole ? errno : !isfinite(v)))
        return bad(err, where, text, whole ? "no whole number" : "no number");
    if (v < s->row->min || v > s->row->max)
        return ckpt_fail(err, CKPT_EUSAGE, "%s: %s is out of range, %.15g to %.15g wanted", where,
                         text, s->row->min, s->row->max);
    if (whole)
        *(int64_t *)at = i;
    else
        *(double *)at = v;
    return 0;
}

/* Bytes with a suffix: K M G T of 1024, KB MB GB TB of 1000. */
static int set_size(uint64_t *at, const char *text, const char *where, struct ckpt_err *err)
{
    static const char letters[] = "KMGT", want[] = "no size; 5GB, 512M and 4096 are";
    const char *letter;
    double unit = 1, v;
    char *end;

    v = strtod(text, &end);
    if (end == text || !(v >= 0) || isspace((unsigned char)text[0]))
        return bad(err, where, text, want);
    letter = *end ? strchr(letters, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (letter) {
        bool decimal = end[1] == 'B' || end[1] == 'b';

        for (const char *p = letters; p <= letter; p++)
            unit *= decimal ? 1000 : 1024;
        end += decimal ? 2 : end[1] == 'i' && end[2] == 'B' ? 3 : 1;
    }
    if (*end || v * unit >= 9.2e18)
        return bad(err, where, text, want);
    *at = (uint64_t)(v * unit);
    return 0;
}

static int set_char(char *at, const char *text, const char *where, struct ckpt_err *err)
{
    bool tab = strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0;

    if (!tab && strlen(text) != 1)
        return bad(err, where, text, "not one byte");
    *at = tab ? '\t' : *text;
    return 0;
}

/* How much of a choice of k bytes comes before the number of one that ends in ":N"; 0: it has no
 * number. */
static size_t before_number(const char *choice, size_t k)
{
    return k > 2 && memcmp(choice + k - 2, ":N", 2) == 0 ? k - 1 : 0;
}

/* Digits, and no more than the row allows. */
static bool is_number(const char *text, double max)
{
    size_t digits = strspn(text, "0123456789");

    return digits > 0 && !text[digits] && strtod(text, NULL) <= max;
}

static int set_choice(const char **at, const struct opt *row, const char *text, const char *where,
                      struct ckpt_err *err)
{
    const char *choices = row->choices;

    for (size_t k, n, i = 0; choices[i] && *text; i += k + (choices[i + k] == ' ')) {
        k = strcspn(choices + i, " ");
        n = before_number(choices + i, k);
        if (n && strncmp(choices + i, text, n) == 0 && !is_number(text + n, row->max))
            return ckpt_fail(err, CKPT_EUSAGE, "%s: \"%s\" is not %.*s with a whole number N "
                             "from 0 to %.15g", where, text, (int)k, choices + i, row->max);
        if (n ? strncmp(choices + i, text, n) == 0
              : k == strlen(text) && memcmp(choices + i, text, k) == 0) {
            *at = text;
            return 0;
        }
    }
    return ckpt_fail(err, CKPT_EUSAGE, "%s: \"%s\" is none of: %s", where, text, choices);
}

static int add_to_list(const struct opt_table *t, const char *const **items, size_t *n,
                       const char *text, struct ckpt_err *err)
{
    const char **grown = ckpt_arena_alloc(t->arena, *n + 1, sizeof *grown);

    if (!grown)
        return ckpt_nomem(err, (*n + 1) * sizeof *grown);
    if (*n)
        memcpy(grown, *items, *n * sizeof *grown);
    grown[(*n)++] = text;
    *items = grown;
    return 0;
}

int opt_truth(const char *text)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"off", "on"},
                                           {"0", "1"}, {"f", "t"}, {"n", "y"}};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int k = 0; k < 2; k++)
            if (strcasecmp(text, words[i][k]) == 0)
                return k;
    return -1;
}

/* A count is raised so often: "true" is once. */
static int set_count(const struct opt_slot *s, const char *text, const char *where,
                     struct ckpt_err *err)
{
    int n = text[0] >= '0' && text[0] <= '9' && !text[1] ? text[0] - '0' : opt_truth(text);

    if (n < 0)
        return bad(err, where, text, "neither a number below 10 nor true or false");
    while (n-- > 0)
        opt_set_flag(s, true);
    return 0;
}

int opt_set(const struct opt_table *t, const struct opt_slot *s, const char *text,
            const char *where, struct ckpt_err *err)
{
    void *at = s->values + s->row->at;
    int rc;

    if (!ckpt_utf8_valid(text, strlen(text)) &&
        (t->utf8 || s->row->bytes == OPT_BYTES_UTF8))
        return bad(err, where, text, "no UTF-8");
    if (!*text && s->row->bytes == OPT_BYTES_FILE)
        return ckpt_fail(err, CKPT_EUSAGE, "%s is empty, a %s is wanted", where, s->row->arg);
    switch (s->row->kind) {
    case OPT_KIND_FLAG:
        if (opt_truth(text) < 0)
            return bad(err, where, text, "neither true nor false");
        opt_set_flag(s, opt_truth(text));
        return 0;
    case OPT_KIND_COUNT: return set_count(s, text, where, err);
    case OPT_KIND_INT:
    case OPT_KIND_REAL: return set_number(s, text, where, err);
    case OPT_KIND_SIZE: return set_size(at, text, where, err);
    case OPT_KIND_CHAR: return set_char(at, text, where, err);
    case OPT_KIND_ENUM: return set_choice(at, s->row, text, where, err);
    case OPT_KIND_LIST:
        if (s->row->choices && (rc = set_choice(&text, s->row, text, where, err)) != 0)
            return rc;
        return add_to_list(t, at, (size_t *)(void *)(s->values + s->row->at_n), text, err);
    default:
        *(const char **)at = text;
        return 0;
    }
}

const char *opt_value_text(char dst[64], enum opt_kind kind, const union opt_value *v)
{
    switch (kind) {
    case OPT_KIND_FLAG:  return v->flag ? "on" : "off";
    case OPT_KIND_COUNT: snprintf(dst, 64, "%d", v->count); return dst;
    case OPT_KIND_INT:   snprintf(dst, 64, "%lld", (long long)v->i); return dst;
    case OPT_KIND_REAL:
        snprintf(dst, 64, "%.10g", v->real);
        if (strtod(dst, NULL) != v->real)
            snprintf(dst, 64, "%.17g", v->real);
        return dst;
    case OPT_KIND_SIZE:  snprintf(dst, 64, "%llu", (unsigned long long)v->size); return dst;
    case OPT_KIND_TEXT:
    case OPT_KIND_PATH:
    case OPT_KIND_ENUM:  return v->text ? v->text : "none";
    case OPT_KIND_LIST:  return v->n ? "some" : "none";
    default:             return "none";
    }
}
