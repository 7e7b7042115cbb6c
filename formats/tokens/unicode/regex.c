/* regex - see regex.h.  Dialects: Oniguruma doc/RE, pcre2pattern(3) 10.42. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/tokens/unicode/regex.h"

#include <pcre2.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define SPACES "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}" \
               "\\x{202f}\\x{205f}\\x{3000}"

#define MAX_CARRIED ((size_t)1 << 20)   /* most bytes of a translated pattern */

struct regex {
    pcre2_code          *code;
    pcre2_match_context *context;
};

struct regex_run {
    pcre2_match_data *data;
};

/* State of translating a pattern. */
struct carry {
    const char     *s;
    size_t          n, i;
    struct ckpt_buf out;
};

static int refuse(const struct carry *c, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EUNSUPPORTED,
                     "pattern \"%.*s\": %s at byte %zu is not read here",
                     (int)(c->n > 200 ? 200 : c->n), c->s, what, c->i);
}

/* Put a class of general categories: PCRE2's, and characters it does not know. */
static void put_categories(struct ckpt_buf *out, const char *open, const char *const *category,
                           size_t n, const char *close)
{
    ckpt_buf_put_str(out, open);
    for (size_t i = 0; i < n; i++) {
        ckpt_buf_printf(out, "\\p{%s}", category[i]);
        regex_put_newer(out, category[i], strlen(category[i]));
    }
    ckpt_buf_put_str(out, close);
}

static void put_word(struct ckpt_buf *out, const char *open, const char *close)
{
    static const char *const word[] = {"L", "M", "Nd", "Nl", "Pc"};

    put_categories(out, open, word, sizeof word / sizeof *word, "");
    /* Latin-1 digits and fractions; circled and squared letters, which are alphabetic. */
    ckpt_buf_put_str(out, "\\xb2\\xb3\\xb9\\xbc-\\xbe\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"
                          "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}");
    ckpt_buf_put_str(out, close);
}

/* \b and \B: a word on exactly one side, or on both or none. */
static void put_border(struct ckpt_buf *out, bool between)
{
    put_word(out, "(?:(?<=[", "])");
    put_word(out, between ? "(?![" : "(?=[", "])");
    put_word(out, "|(?<![", "])");
    put_word(out, between ? "(?=[" : "(?![", "]))");
}

/* Length of "\p{L}", "\pL", "\P{Lu}" and the category in *name; 0 for other properties. */
static size_t category_at(const struct carry *c, const char **name, size_t *len)
{
    const char *s = c->s + c->i, *end = c->s + c->n, *close;

    *name = s + 2;
    *len = 1;
    if (end - s >= 3 && s[2] != '{')
        return strchr("LMNPSZC", s[2]) ? 3 : 0;
    close = end - s >= 5 ? memchr(s, '}', (size_t)(end - s < 6 ? end - s : 6)) : NULL;
    *name = s + 3;
    *len = close ? (size_t)(close - *name) : 0;
    if (*len < 1 || *len > 2 || !strchr("LMNPSZC", (*name)[0]))
        return 0;
    return *len + 4;
}

/* Translate a general category of which PCRE2 knows fewer characters. */
static bool carry_category(struct carry *c, bool in_class)
{
    bool negated = c->s[c->i + 1] == 'P';
    char name[3] = {0};
    const char *s;
    const char *const one[] = {name};
    size_t len, n = category_at(c, &s, &len);

    if (n == 0 || (negated && in_class))
        return false;
    memcpy(name, s, len);
    put_categories(&c->out, in_class ? "" : negated ? "[^" : "[", one, 1, in_class ? "" : "]");
    c->i += n;
    return true;
}

/* Translate one escape; c->i is at the backslash. */
static int carry_escape(struct carry *c, bool in_class, struct ckpt_err *err)
{
    char e = c->i + 1 < c->n ? c->s[c->i + 1] : '\0';

    switch (e) {
    case '\0':
        return refuse(c, "a lone backslash", err);
    case 's':
        ckpt_buf_put_str(&c->out, in_class ? SPACES : "[" SPACES "]");
        break;
    case 'S':
        /* In a class, PCRE2's own plus the one character on which it disagrees. */
        ckpt_buf_put_str(&c->out, in_class ? "\\S\\x{180e}" : "[^" SPACES "]");
        break;
    case 'w':
        put_word(&c->out, in_class ? "" : "[", in_class ? "" : "]");
        break;
    case 'W':
        if (in_class)
            return refuse(c, "\\W in a class", err);
        put_word(&c->out, "[^", "]");
        break;
    case 'd':
        put_categories(&c->out, in_class ? "" : "[", (const char *const[]){"Nd"}, 1,
                       in_class ? "" : "]");
        break;
    case 'b': case 'B':
        if (in_class)
            ckpt_buf_put(&c->out, c->s + c->i, 2);
        else
            put_border(&c->out, e == 'b');
        break;
    case 'p': case 'P':
        if (carry_category(c, in_class))
            return 0;
        ckpt_buf_put(&c->out, c->s + c->i, 2);
        break;
    case 'h': case 'H': case 'G': case 'K': case 'R': case 'X': case 'C': case 'Q':
        return refuse(c, "this escape", err);
    default:
        ckpt_buf_put(&c->out, c->s + c->i, 2);
    }
    c->i += 2;
    return 0;
}

/* Translate one class; c->i is after its "[".  Nested classes are unions: their brackets are
 * dropped. */
static int carry_class(struct carry *c, struct ckpt_err *err)
{
    size_t depth = 1;
    bool first = true;
    int rc;

    ckpt_buf_put_str(&c->out, "[");
    if (c->i < c->n && c->s[c->i] == '^')
        ckpt_buf_put(&c->out, &c->s[c->i++], 1);
    while (depth > 0) {
        if (c->i >= c->n)
            return refuse(c, "a class without end", err);
        if (c->s[c->i] == '\\') {
            if ((rc = carry_escape(c, true, err)) != 0)
                return rc;
        } else if (c->s[c->i] == '[' && c->i + 1 < c->n && c->s[c->i + 1] == ':') {
            return refuse(c, "a POSIX class", err);
        } else if (c->s[c->i] == '[') {
            if (c->i + 1 < c->n && c->s[c->i + 1] == '^')
                return refuse(c, "a negated class inside a class", err);
            depth++;
            c->i++;
        } else if (c->s[c->i] == ']' && !first) {
            depth--;
            c->i++;
        } else if (c->s[c->i] == '&' && c->i + 1 < c->n && c->s[c->i + 1] == '&') {
            return refuse(c, "an intersection of classes", err);
        } else {
            if (c->s[c->i] == ']')
                ckpt_buf_put_str(&c->out, "\\");
            ckpt_buf_put(&c->out, &c->s[c->i++], 1);
        }
        first = false;
    }
    ckpt_buf_put_str(&c->out, "]");
    return 0;
}

/* Options in "(?imx-imx": m means "dot takes newlines" in Ruby and cannot be passed on. */
static bool has_m_option(const struct carry *c)
{
    size_t i = c->i + 2;

    while (i < c->n && (strchr("ix-", c->s[i]) && c->s[i]))
        i++;
    return i < c->n && c->s[i] == 'm';
}

static int carry_over(struct carry *c, struct ckpt_err *err)
{
    int rc;

    while (c->i < c->n) {
        if (c->s[c->i] == '\\') {
            if ((rc = carry_escape(c, false, err)) != 0)
                return rc;
        } else if (c->s[c->i] == '[') {
            c->i++;
            if ((rc = carry_class(c, err)) != 0)
                return rc;
        } else if (c->s[c->i] == '(' && c->i + 1 < c->n && c->s[c->i + 1] == '*') {
            /* PCRE2 verbs could lift the limits. */
            return refuse(c, "a verb", err);
        } else if (c->s[c->i] == '(' && c->i + 1 < c->n && c->s[c->i + 1] == '?' &&
                   has_m_option(c)) {
            return refuse(c, "the option (?m)", err);
        } else {
            ckpt_buf_put(&c->out, &c->s[c->i++], 1);
        }
    }
    return ckpt_buf_ok(&c->out) ? 0 : ckpt_nomem(err, c->n);
}

static int compile(struct regex *re, const char *pattern, size_t len, uint32_t options,
                   struct ckpt_err *err)
{
    PCRE2_UCHAR why[120];
    PCRE2_SIZE at;
    int code;

    re->code = pcre2_compile((PCRE2_SPTR)pattern, len, options, &code, &at, NULL);
    if (!re->code) {
        pcre2_get_error_message(code, why, sizeof why);
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "pattern \"%.*s\": %s (at byte %zu)",
                         (int)(len > 200 ? 200 : len), pattern, (const char *)why, (size_t)at);
    }
    /* Without the JIT (a hardened kernel may refuse it) the interpreter gives the same matches. */
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
    re->context = pcre2_match_context_create(NULL);
    if (!re->context)
        return ckpt_nomem(err, sizeof *re);
    pcre2_set_match_limit(re->context, REGEX_MATCH_LIMIT);
    return 0;
}

int regex_new(struct regex **out, const char *pattern, size_t len, bool literal,
              struct ckpt_err *err)
{
    struct carry c = {.s = pattern, .n = len};
    struct regex *re = NULL;
    int rc;

    *out = NULL;
    ckpt_buf_init(&c.out, MAX_CARRIED);
    if (len == 0 || len > REGEX_MAX_PATTERN) {
        rc = ckpt_fail(err, CKPT_ELIMIT, "a pattern of %zu bytes; it must have 1 to %d", len,
                       REGEX_MAX_PATTERN);
        goto out;
    }
    re = ckpt_alloc(1, sizeof *re);
    if (!re) {
        rc = ckpt_nomem(err, sizeof *re);
        goto out;
    }
    if (literal) {
        rc = compile(re, pattern, len, PCRE2_LITERAL | PCRE2_UTF | PCRE2_NO_UTF_CHECK, err);
    } else {
        rc = carry_over(&c, err);
        if (rc == 0)
            rc =
                compile(re, (const char *)c.out.data, c.out.len,
                        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, err);
    }
    if (rc == 0) {
        *out = re;
        re = NULL;
    }
out:
    regex_free(re);
    ckpt_buf_release(&c.out);
    return rc;
}

void regex_free(struct regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    pcre2_match_context_free(re->context);
    ckpt_free(re);
}

int regex_run_new(struct regex_run **out, const struct regex *re, struct ckpt_err *err)
{
    struct regex_run *run = ckpt_alloc(1, sizeof *run);

    *out = NULL;
    if (run)
        run->data = pcre2_match_data_create_from_pattern(re->code, NULL);
    if (!run || !run->data) {
        ckpt_free(run);
        return ckpt_nomem(err, sizeof *run);
    }
    *out = run;
    return 0;
}

void regex_run_free(struct regex_run *run)
{
    if (!run)
        return;
    pcre2_match_data_free(run->data);
    ckpt_free(run);
}

int regex_find(const struct regex *re, struct regex_run *run, const unsigned char *s,
               size_t len, size_t from, bool *found, size_t *start, size_t *end,
               struct ckpt_err *err)
{
    PCRE2_UCHAR why[120];
    PCRE2_SIZE *at;
    int rc;

    /* The caller has checked the UTF-8. */
    rc = pcre2_match(re->code, s, len, from, PCRE2_NO_UTF_CHECK, run->data, re->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(re->code, s, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->data,
                         re->context);
    *found = rc >= 0;
    if (rc >= 0) {
        at = pcre2_get_ovector_pointer(run->data);
        *start = at[0];
        *end = at[1];
        return 0;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return ckpt_nomem(err, len);
    pcre2_get_error_message(rc, why, sizeof why);
    return ckpt_fail(err, CKPT_ELIMIT, "matching a pattern from byte %zu of %zu: %s", from, len,
                     (const char *)why);
}

int regex_next(const struct regex *re, struct regex_run *run, const unsigned char *s, size_t len,
               struct regex_match *m, bool *found, struct ckpt_err *err)
{
    size_t last = m->end;
    int rc;

    *found = false;
    while (m->from <= len) {
        if ((rc = regex_find(re, run, s, len, m->from, found, &m->start, &m->end, err)) != 0)
            return rc;
        if (!*found)
            return 0;
        if (m->start < m->end || !m->any || m->end != last) {
            m->from = m->end;
            m->any = true;
            return 0;
        }
        /* An empty match where the last one ended: continue after the next character. */
        do
            m->from++;
        while (m->from < len && (s[m->from] & 0xc0) == 0x80);
    }
    *found = false;
    return 0;
}
