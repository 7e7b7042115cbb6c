/* xml - see xml.h. */
#include "libckpt/base/xml.h"

#include <stdlib.h>
#include <string.h>

struct xml xml_of(const char *text) { return (struct xml){text, text + strlen(text)}; }

static size_t left(struct xml x) { return (size_t)(x.end - x.at); }

/* Behind a prefix of a namespace, as in "D:href"; at where there is none. */
static const char *local_name(const char *at, const char *end)
{
    const char *p = at;

    while (p < end && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                       (*p >= '0' && *p <= '9') || *p == '-' || *p == '_'))
        p++;
    return p > at && p < end && *p == ':' ? p + 1 : at;
}

/* Behind the start tag of the next <name>; NULL when there is none.  *empty: it is <name/>. */
static const char *start_tag(struct xml in, const char *name, bool *empty)
{
    size_t n = strlen(name);

    while ((in.at = memchr(in.at, '<', left(in))) != NULL) {
        const char *close;

        in.at = local_name(in.at + 1, in.end);
        if (left(in) <= n || memcmp(in.at, name, n) != 0 || !strchr(" \t\r\n/>", in.at[n]) ||
            !in.at[n])
            continue;
        close = memchr(in.at + n, '>', left(in) - n);
        *empty = close && close[-1] == '/';
        return close ? close + 1 : NULL;
    }
    return NULL;
}

/* The end tag of name, and what is behind it. */
static const char *end_tag(struct xml in, const char *name, const char **behind)
{
    size_t n = strlen(name);

    while ((in.at = memchr(in.at, '<', left(in))) != NULL) {
        const char *tag = in.at;

        if (left(in) >= 2 && tag[1] == '/') {
            in.at = local_name(tag + 2, in.end);
            if (left(in) > n && memcmp(in.at, name, n) == 0 && in.at[n] == '>') {
                *behind = in.at + n + 1;
                return tag;
            }
        }
        in.at = tag + 1;
    }
    return NULL;
}

bool xml_next(struct xml *element, struct xml *in, const char *name)
{
    bool empty = false;
    const char *from = start_tag(*in, name, &empty), *behind = from;
    const char *to = !from || empty ? from : end_tag((struct xml){from, in->end}, name, &behind);

    if (!to)
        return false;
    *element = (struct xml){from, to};
    in->at = behind;
    return true;
}

/* The character of an entity, &...;, at *at, which moves behind it; 0 when it is unknown. */
static char entity(const char **at, const char *end)
{
    static const struct { const char *name; char c; } named[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''},
    };
    const char *s = *at, *stop = memchr(s, ';', (size_t)(end - s));
    char digits[8] = "", *bad;
    unsigned long c;
    size_t n;

    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        n = strlen(named[i].name);
        if ((size_t)(end - s) >= n && memcmp(s, named[i].name, n) == 0) {
            *at = s + n;
            return named[i].c;
        }
    }
    if (!stop || stop - s < 3 || s[1] != '#' || stop - s > 8)
        return 0;
    n = s[2] == 'x' || s[2] == 'X' ? 3 : 2;
    memcpy(digits, s + n, (size_t)(stop - s) - n);
    c = strtoul(digits, &bad, n == 3 ? 16 : 10);
    *at = stop + 1;
    return *digits && !*bad && c < 128 ? (char)c : 0;
}

bool xml_text(char *out, size_t size, struct xml in, const char *name)
{
    struct xml x;
    size_t n = 0;

    *out = '\0';
    if (!xml_next(&x, &in, name))
        return false;
    while (x.at < x.end) {
        char c = *x.at == '&' ? entity(&x.at, x.end) : *x.at++;

        if (!c || n + 1 >= size) {
            *out = '\0';
            return false;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

bool xml_number(unsigned long long *out, struct xml in, const char *name)
{
    char text[24], *stop;

    if (!xml_text(text, sizeof text, in, name) || *text < '0' || *text > '9' || strlen(text) > 18)
        return false;
    *out = strtoull(text, &stop, 10);
    return !*stop;
}
