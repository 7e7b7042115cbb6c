/* stem - see stem.h.  Steps have their numbers in the paper. */
#include "tools/eval/score/stem.h"

#include <stdbool.h>
#include <string.h>

struct word {
    char  *s;
    size_t n;
};

/* -- what rules ask about a word -------------------------------------------------------------- */

static bool is_vowel(char c) { return strchr("aeiou", c) != NULL; }

/* A y is a consonant where the letter before it is none. */
static bool is_consonant(const struct word *w, size_t i)
{
    bool other = false;

    if (is_vowel(w->s[i]))
        return false;
    while (i > 0 && w->s[i] == 'y') {
        other = !other;
        i--;
    }
    return !is_vowel(w->s[i]) != other;
}

/* How many times a consonant follows on a vowel in the first n letters: m of the paper. */
static size_t measure(const struct word *w, size_t n)
{
    size_t m = 0;
    bool was = true;

    for (size_t i = 0; i < n; i++) {
        bool now = is_vowel(w->s[i]) ? false : w->s[i] == 'y' && i > 0 ? !was : true;

        m += i > 0 && now && !was;
        was = now;
    }
    return m;
}

static bool has_vowel(const struct word *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_consonant(w, i))
            return true;
    return false;
}

/* Consonant, vowel, consonant that is not w, x or y; or the last two alone. */
static bool ends_cvc(const struct word *w, size_t n)
{
    if (n == 2)
        return !is_consonant(w, 0) && is_consonant(w, 1);
    return n >= 3 && is_consonant(w, n - 3) && !is_consonant(w, n - 2) &&
           is_consonant(w, n - 1) && !strchr("wxy", w->s[n - 1]);
}

/* Bytes before the suffix, or n + 1 where w does not have it. */
static size_t before(const struct word *w, const char *suffix)
{
    size_t k = strlen(suffix);

    return w->n >= k && memcmp(w->s + w->n - k, suffix, k) == 0 ? w->n - k : w->n + 1;
}

static bool ends(const struct word *w, const char *suffix) { return before(w, suffix) <= w->n; }

static void put(struct word *w, size_t at, const char *text)
{
    size_t k = strlen(text);

    memcpy(w->s + at, text, k);
    w->n = at + k;
}

/* -- steps ------------------------------------------------------------------------------------ */

struct rule {
    const char *suffix, *put;
};

/* The first rule whose suffix w has: applied where m of what is before it is larger than least. */
static void apply(struct word *w, const struct rule *rule, size_t n, size_t least)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = before(w, rule[i].suffix);

        if (at > w->n)
            continue;
        if (measure(w, at) > least)
            put(w, at, rule[i].put);
        return;
    }
}

#define APPLY(w, rules, least) apply(w, rules, sizeof (rules) / sizeof (rules)[0], least)

static void step_1a(struct word *w)
{
    if (ends(w, "ies"))
        put(w, w->n - 3, w->n == 4 ? "ie" : "i");
    else if (ends(w, "sses"))
        w->n -= 2;
    else if (ends(w, "s") && !ends(w, "ss"))
        w->n--;
}

/* What follows where -ed or -ing was cut off. */
static void mend(struct word *w)
{
    if (ends(w, "at") || ends(w, "bl") || ends(w, "iz")) {
        put(w, w->n, "e");
    } else if (w->n >= 2 && w->s[w->n - 1] == w->s[w->n - 2] && is_consonant(w, w->n - 1)) {
        if (!strchr("lsz", w->s[w->n - 1]))
            w->n--;
    } else if (measure(w, w->n) == 1 && ends_cvc(w, w->n)) {
        put(w, w->n, "e");
    }
}

static void step_1b(struct word *w)
{
    size_t at;

    if (ends(w, "ied")) {
        put(w, w->n - 3, w->n == 4 ? "ie" : "i");
    } else if (ends(w, "eed")) {
        w->n -= measure(w, w->n - 3) > 0;
    } else if (((at = before(w, "ed")) <= w->n && has_vowel(w, at)) ||
               ((at = before(w, "ing")) <= w->n && has_vowel(w, at))) {
        w->n = at;
        mend(w);
    }
}

static void step_1c(struct word *w)
{
    if (ends(w, "y") && w->n > 2 && is_consonant(w, w->n - 2))
        w->s[w->n - 1] = 'i';
}

static void step_2(struct word *w)
{
    static const struct rule rules[] = {
        {"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
        {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
        {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
        {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
        {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
        {"fulli", "ful"},
    };

    while (ends(w, "alli") && measure(w, w->n - 4) > 0)
        w->n -= 2;
    if (ends(w, "logi"))                /* m counts the l too */
        w->n -= measure(w, w->n - 3) > 0;
    else
        APPLY(w, rules, 0);
}

static void step_3(struct word *w)
{
    static const struct rule rules[] = {
        {"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"}, {"ical", "ic"},
        {"ful", ""},     {"ness", ""},
    };

    APPLY(w, rules, 0);
}

static void step_4(struct word *w)
{
    static const struct rule first[] = {
        {"al", ""},   {"ance", ""}, {"ence", ""},  {"er", ""},   {"ic", ""},  {"able", ""},
        {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""}, {"ent", ""}, {"ou", ""},
        {"ism", ""},  {"ate", ""},  {"iti", ""},   {"ous", ""},  {"ive", ""}, {"ize", ""},
    };
    size_t at = before(w, "ion");

    if (at > w->n)
        APPLY(w, first, 1);
    else if (measure(w, at) > 1 && strchr("st", w->s[at - 1]))
        w->n = at;
}

static void step_5(struct word *w)
{
    if (ends(w, "e")) {
        size_t m = measure(w, w->n - 1);

        if (m > 1 || (m == 1 && !ends_cvc(w, w->n - 1)))
            w->n--;
    }
    if (ends(w, "ll") && measure(w, w->n - 1) > 1)
        w->n--;
}

static bool irregular(struct word *w)
{
    static const struct rule forms[] = {
        {"sky", "sky"},         {"skies", "sky"},       {"dying", "die"},
        {"lying", "lie"},       {"tying", "tie"},       {"news", "news"},
        {"innings", "inning"},  {"inning", "inning"},   {"outings", "outing"},
        {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},       {"proceed", "proceed"}, {"exceed", "exceed"},
        {"succeed", "succeed"},
    };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (w->n == strlen(forms[i].suffix) && memcmp(w->s, forms[i].suffix, w->n) == 0) {
            put(w, 0, forms[i].put);
            return true;
        }
    return false;
}

size_t stem_word(char *word, size_t len)
{
    struct word w = {.s = word, .n = len};

    if (irregular(&w) || len <= 2)
        return w.n;
    step_1a(&w);
    step_1b(&w);
    step_1c(&w);
    step_2(&w);
    step_3(&w);
    step_4(&w);
    step_5(&w);
    return w.n;
}
