/* wildmatch - see wildmatch.h. */
#include "libckpt/remote/git/wildmatch.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define MAX_STEPS 1000000       /* steps of one match: an ordinary pattern takes a few hundred */

struct wild {
    const char *start;          /* of the pattern */
    bool        paths;
    long        steps;          /* steps left; 0: used up */
};

static bool in_class(const char *name, size_t n, unsigned char c)
{
    static const struct { const char *name; int (*is)(int); } classes[] = {
        {"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
        {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
        {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit},
    };

    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strlen(classes[i].name) == n && memcmp(classes[i].name, name, n) == 0)
            return c < 128 && classes[i].is(c);
    return false;
}

/* Match a bracket expression; p is after its '['.  Returns the byte after it, or NULL if
 * unterminated. */
static const char *bracket(const char *p, unsigned char c, bool *matched)
{
    bool negated = *p == '!' || *p == '^', hit = false, first = true;
    int before = -1;                    /* the low end of a range; -1: no range can begin here */

    p += negated;
    for (; first || *p != ']'; first = false) {
        const char *end;
        unsigned char one;

        if (!*p)
            return NULL;
        if (p[0] == '[' && p[1] == ':') {
            end = strstr(p + 2, ":]");
            if (!end)
                return NULL;
            hit |= in_class(p + 2, (size_t)(end - p) - 2, c);
            before = -1;
            p = end + 2;
            continue;
        }
        if (p[0] == '-' && before >= 0 && p[1] && p[1] != ']') {
            p += 1 + (p[1] == '\\');
            if (!*p)
                return NULL;
            hit |= c >= before && c <= (unsigned char)*p;
            before = -1;
            p++;
            continue;
        }
        p += *p == '\\';
        one = (unsigned char)*p;
        if (!one)
            return NULL;
        hit |= c == one;
        before = one;
        p++;
    }
    *matched = hit != negated;
    return p + 1;
}

static bool match(struct wild *w, const char *p, const char *t);

/* Match from the first of a run of stars on. */
static bool match_stars(struct wild *w, const char *p, const char *t)
{
    bool at_start = p == w->start || p[-1] == '/', twice = p[1] == '*', slashes = !w->paths;

    while (*p == '*')
        p++;
    if (w->paths && twice && at_start && (!*p || *p == '/' || (p[0] == '\\' && p[1] == '/'))) {
        if (*p == '/' && match(w, p + 1, t))    /* the double star may match no folder at all */
            return true;
        slashes = true;
    }
    if (!*p)
        return slashes || !strchr(t, '/');
    for (;; t++) {
        if (match(w, p, t))
            return true;
        if (!*t || (*t == '/' && !slashes) || w->steps == 0)
            return false;
    }
}

static bool match(struct wild *w, const char *p, const char *t)
{
    for (; *p; t++) {
        bool hit = false;

        if (w->steps == 0 || --w->steps == 0)
            return false;
        if (*p == '*')
            return match_stars(w, p, t);
        if (!*t)
            return false;
        if (*p == '?') {
            p++;
            hit = !w->paths || *t != '/';
        } else if (*p == '[') {
            p = bracket(p + 1, (unsigned char)*t, &hit);
            if (!p)
                return false;
            hit = hit && (!w->paths || *t != '/');
        } else {
            p += *p == '\\';
            hit = *p && *p++ == *t;
        }
        if (!hit)
            return false;
    }
    return !*t;
}

int wildmatch(const char *pattern, const char *text, bool paths)
{
    struct wild w = {pattern, paths, MAX_STEPS};
    bool hit = match(&w, pattern, text);

    return w.steps == 0 ? -1 : hit;
}
