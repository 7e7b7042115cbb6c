/* records/split - see records/split.h. */
#include "formats/records/split.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* In the order of datasets. */
static const struct { const char *word, *split; } keywords[] = {
    {"train", "train"}, {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"}, {"test", "test"},
    {"testing", "test"}, {"eval", "test"}, {"evaluation", "test"},
};

size_t split_plain_length(const char *name)
{
    static const char *const ends[] = {".gz", ".zst", ".xz", ".bz2", ".lz4"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcasecmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return n - strlen(ends[i]);
    return n;
}

static bool is_digits(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return true;
}

/* data/{split}-[0-9]x5-of-[0-9]x5*.* */
static struct split_name sharded(const char *path)
{
    struct split_name none = {"", 0};
    const char *name;

    if (strncmp(path, "data/", 5) != 0 || strchr(path + 5, '/'))
        return none;
    name = path + 5;
    for (const char *dash = strchr(name, '-'); dash; dash = strchr(dash + 1, '-'))
        if (dash > name && strlen(dash) > 15 && is_digits(dash + 1, 5) &&
            memcmp(dash + 6, "-of-", 4) == 0 && is_digits(dash + 10, 5) && strchr(dash + 15, '.'))
            return (struct split_name){name, (size_t)(dash - name)};
    return none;
}

static bool is_gap(char c) { return strchr("-._ ", c) || (c >= '0' && c <= '9'); }

/* Whether s[0, n) contains word between separators; at the end a separator is required unless
 * whole is set. */
static bool has_word(const char *s, size_t n, const char *word, bool whole)
{
    size_t w = strlen(word);

    for (size_t i = 0; i + w <= n; i++)
        if ((i == 0 || is_gap(s[i - 1])) && memcmp(s + i, word, w) == 0 &&
            (i + w < n ? is_gap(s[i + w]) : whole))
            return true;
    return false;
}

struct split_name split_name_of(const char *path, enum split_rule rule)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;

    if (rule == SPLIT_SHARDED)
        return sharded(path);
    if (rule == SPLIT_ALL_TRAIN)
        return (struct split_name){"train", 5};
    for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++) {
        struct split_name found = {keywords[k].split, strlen(keywords[k].split)};

        if (rule == SPLIT_BY_FILE && has_word(file, strlen(file), keywords[k].word, false))
            return found;
        for (const char *at = path; rule == SPLIT_BY_DIR && at < file; at = strchr(at, '/') + 1)
            if (has_word(at, strcspn(at, "/"), keywords[k].word, true))
                return found;
    }
    return (struct split_name){"", 0};
}

enum split_rule split_rule_of(const char *const *path, size_t n)
{
    enum split_rule rule;

    for (rule = SPLIT_SHARDED; rule < SPLIT_ALL_TRAIN; rule++)
        for (size_t i = 0; i < n; i++)
            if (split_name_of(path[i], rule).len > 0)
                return rule;
    return rule;
}

/* -- expressions ----------------------------------------------------------------------------- */

static const char *skip_blank(const char *s) { return s + strspn(s, " \t"); }

/* A number, possibly with "_" between digits and "%" after it. */
static const char *parse_bound(const char *s, bool *has, int64_t *value, bool *percent)
{
    bool minus = *s == '-';
    const char *at = s + minus;
    int64_t v = 0;

    if (*at < '0' || *at > '9')
        return s;
    for (; (*at >= '0' && *at <= '9') || *at == '_'; at++)
        if (*at != '_' && (__builtin_mul_overflow(v, (int64_t)10, &v) ||
                           __builtin_add_overflow(v, (int64_t)(*at - '0'), &v)))
            return s;
    *has = true;
    *value = minus ? -v : v;
    if (*at == '%') {
        *percent = true;
        at++;
    }
    return at;
}

static const char *parse_part(struct split_part *p, const char *s)
{
    static const char drop[] = "(pct1_dropremainder)", closest[] = "(closest)";
    size_t n = 0;

    memset(p, 0, sizeof *p);
    while (isalnum((unsigned char)s[n]) || (s[n] && strchr("_.-", s[n])))
        n++;
    if (n == 0 || n >= sizeof p->name)
        return NULL;
    memcpy(p->name, s, n);
    s += n;
    if (*s == '[') {
        s = parse_bound(s + 1, &p->has_from, &p->from, &p->percent);
        if (*s != ':')
            return NULL;
        s = parse_bound(s + 1, &p->has_to, &p->to, &p->percent);
        if (*s++ != ']')
            return NULL;
    }
    if (strncmp(s, drop, sizeof drop - 1) == 0) {
        p->drop_remainder = true;
        s += sizeof drop - 1;
    } else if (strncmp(s, closest, sizeof closest - 1) == 0) {
        s += sizeof closest - 1;
    }
    return s;
}

int split_parse(struct split_part *part, size_t *n, const char *text, struct ckpt_err *err)
{
    const char *at = skip_blank(text), *next;

    for (*n = 0;; at = skip_blank(next + 1)) {
        if (*n == SPLIT_MAX_PARTS)
            return ckpt_fail(err, CKPT_EUSAGE, "split \"%s\" has more than %d parts", text,
                             SPLIT_MAX_PARTS);
        next = parse_part(&part[(*n)++], at);
        if (next)
            next = skip_blank(next);
        if (!next || (*next && *next != '+')) {
            ckpt_fail(err, CKPT_EUSAGE, "split \"%s\" is wrong at byte %zu", text,
                      (size_t)((next ? next : at) - text));
            return ckpt_err_hint(err, "as in train, train[:80%%], train[100:200]+test");
        }
        if (!*next)
            return 0;
    }
}

/* As Python's round: halves to even. */
static int64_t percent_of(int64_t percent, int64_t n, bool drop)
{
    __int128 whole = (__int128)percent * n, q, rest;

    if (drop)
        return percent * (n / 100);
    q = whole / 100;
    rest = whole % 100;
    if (rest < 0) {
        rest += 100;
        q--;
    }
    if (rest > 50 || (rest == 50 && q % 2 != 0))
        q++;
    return (int64_t)q;
}

int split_range(const struct split_part *p, int64_t n, int64_t *from, int64_t *to,
                struct ckpt_err *err)
{
    int64_t a = p->has_from ? p->from : 0, b = p->has_to ? p->to : n;

    if (p->percent && ((p->has_from && (a < -100 || a > 100)) ||
                       (p->has_to && (b < -100 || b > 100))))
        return ckpt_fail(err, CKPT_EUSAGE, "split %s: percents lie in -100..100", p->name);
    if (p->percent && p->drop_remainder && n < 100)
        return ckpt_fail(err, CKPT_EUSAGE, "split %s: pct1_dropremainder of %lld records leaves "
                         "none", p->name, (long long)n);
    if (p->percent) {
        a = p->has_from ? percent_of(a, n, p->drop_remainder) : 0;
        b = p->has_to ? percent_of(b, n, p->drop_remainder) : n;
    }
    a = a < 0 ? (a + n > 0 ? a + n : 0) : a;
    b = b < 0 ? (b + n > 0 ? b + n : 0) : b;
    b = b < n ? b : n;
    *from = a < b ? a : b;
    *to = b;
    return 0;
}
