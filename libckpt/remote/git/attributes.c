/* attributes - see attributes.h. */
#include "libckpt/remote/git/attributes.h"

#include <string.h>

#include "libckpt/mem.h"
#include "libckpt/remote/git/wildmatch.h"

#define MAX_DEPTH 64            /* macros that name macros */
#define MAX_FILES 4096          /* every file is consulted for every path */
#define MAX_BYTES ((size_t)16 << 20)    /* of all files together */

static const char blank[] = " \t\r\n";
static const char macro_prefix[] = "[attr]";

/* An attribute in a line: name[=value]. */
struct said {
    size_t               name;          /* index in attributes.name */
    enum attribute_state state;
    const char          *value;
};

struct line {
    const char  *pattern;
    bool         in_path;               /* has a "/": matched with the path below its folder */
    struct said *said;
    size_t       n_said;
};

struct rules {
    const char  *folder;
    size_t       n_folder;
    struct line *line;
    size_t       n_line, cap;
};

/* An attribute's name, its state for the current path, and its definition if it is a macro. */
struct name {
    const char          *text;
    enum attribute_state state;
    const char          *value;
    const struct line   *macro;
};

struct attributes {
    struct ckpt_arena arena;
    struct rules     *file;             /* in any order */
    size_t            n_file, cap_file;
    struct name      *name;
    size_t            n_name, cap_name;
    struct line       binary;           /* git's built-in macro */
    size_t            bytes;
};

/* The index of a name; a new name is added. */
static int name_of(size_t *i, struct attributes *a, const char *text, size_t n,
                   struct ckpt_err *err)
{
    int rc;

    for (*i = 0; *i < a->n_name; ++*i)
        if (strncmp(a->name[*i].text, text, n) == 0 && !a->name[*i].text[n])
            return 0;
    if (a->n_name == 4096)
        return ckpt_fail(err, CKPT_ELIMIT, ".gitattributes: more than 4096 attributes");
    if ((rc = ckpt_reserve(&a->name, a->n_name, &a->cap_name, sizeof *a->name, err)) != 0)
        return rc;
    a->name[a->n_name] = (struct name){.text = ckpt_arena_strndup(&a->arena, text, n)};
    if (!a->name[a->n_name].text)
        return ckpt_nomem(err, n);
    a->n_name++;
    return 0;
}

/* git's rule for names: letters, digits, "-._", no leading "-", no built-in name. */
static bool is_name(const char *s, size_t n)
{
    bool good = n > 0 && *s != '-' && !(n > 8 && memcmp(s, "builtin_", 8) == 0);

    for (size_t i = 0; good && i < n; i++)
        good = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
               (s[i] >= '0' && s[i] <= '9') || s[i] == '-' || s[i] == '.' || s[i] == '_';
    return good;
}

/* Parse one "name", "-name", "!name" or "name=value" of n bytes; *good is false when invalid. */
static int read_said(struct said *s, bool *good, struct attributes *a, const char *text, size_t n,
                     struct ckpt_err *err)
{
    const char *equals = memchr(text, '=', n);
    size_t k = equals ? (size_t)(equals - text) : n;

    s->value = NULL;
    s->state = equals ? ATTRIBUTE_VALUE : ATTRIBUTE_TRUE;
    if (*text == '-' || *text == '!') {
        s->state = *text == '-' ? ATTRIBUTE_FALSE : ATTRIBUTE_TAKEN_BACK;
        text++;
        k -= k > 0;
    }
    *good = is_name(text, k);
    if (!*good)
        return 0;
    if (s->state == ATTRIBUTE_VALUE) {
        s->value = ckpt_arena_strndup(&a->arena, equals + 1, n - k - 1);
        if (!s->value)
            return ckpt_nomem(err, n);
    }
    return name_of(&s->name, a, text, k, err);
}

/* Parse the attributes after a line's pattern, in text, which is terminated. */
static int read_all_said(struct line *l, bool *good, struct attributes *a, const char *text,
                         struct ckpt_err *err)
{
    size_t n = 0;
    int rc;

    for (const char *p = text + strspn(text, blank); *p; p += strspn(p, blank)) {
        p += strcspn(p, blank);
        n++;
    }
    l->said = ckpt_arena_alloc(&a->arena, n ? n : 1, sizeof *l->said);
    if (!l->said)
        return ckpt_nomem(err, n * sizeof *l->said);
    *good = true;
    l->n_said = 0;
    for (const char *p = text + strspn(text, blank); *p && *good; p += strspn(p, blank)) {
        size_t k = strcspn(p, blank);

        if ((rc = read_said(&l->said[l->n_said++], good, a, p, k, err)) != 0)
            return rc;
        p += k;
    }
    return 0;
}

static int octal(const char *s)
{
    return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
               ? (s[0] - '0') * 64 + (s[1] - '0') * 8 + (s[2] - '0') : -1;
}

/* Decode a string in C quotes to out (of the same size); returns the byte after it, NULL when
 * invalid. */
static const char *unquote(char *out, const char *s)
{
    static const char from[] = "abfnrtv\"\\", to[] = "\a\b\f\n\r\t\v\"\\";

    for (s++; *s && *s != '"'; s++) {
        const char *known;

        if (*s != '\\') {
            *out++ = *s;
        } else if ((known = strchr(from, *++s)) != NULL && *s) {
            *out++ = to[known - from];
        } else if (octal(s) >= 0) {
            *out++ = (char)octal(s);
            s += 2;
        } else {
            return NULL;
        }
    }
    *out = '\0';
    return *s ? s + 1 : NULL;
}

/* Parse one line; lines that git ignores are ignored. */
static int read_line(struct attributes *a, struct rules *r, const char *from, size_t len,
                     struct ckpt_err *err)
{
    char text[ATTRIBUTES_LINE_MAX], quoted[ATTRIBUTES_LINE_MAX];
    const char *p, *rest, *pattern;
    struct line l = {0}, *to;
    const size_t n_prefix = strlen(macro_prefix);
    bool good, is_macro;
    size_t n, name = 0;
    int rc;

    if (len >= sizeof text)
        return 0;
    memcpy(text, from, len);
    text[len] = '\0';
    p = text + strspn(text, blank);
    if (!*p || *p == '#')
        return 0;
    rest = *p == '"' ? unquote(quoted, p) : NULL;
    pattern = rest ? quoted : p;
    n = rest ? strlen(quoted) : strcspn(p, blank);
    if (!rest)
        rest = p + n;
    is_macro = n > n_prefix && memcmp(pattern, macro_prefix, n_prefix) == 0;
    if (is_macro) {
        pattern += n_prefix;
        n -= n_prefix;
        if (r->n_folder || !is_name(pattern, n))
            return 0;
    }
    if ((rc = read_all_said(&l, &good, a, rest, err)) != 0)
        return rc;
    if (!good || (!is_macro && *pattern == '!') || (n > 0 && pattern[n - 1] == '/'))
        return 0;          /* a trailing "/" is for folders alone, and folders have no attributes */
    if (is_macro && (rc = name_of(&name, a, pattern, n, err)) != 0)
        return rc;
    l.in_path = memchr(pattern, '/', n) != NULL;
    if (*pattern == '/') {
        pattern++;
        n--;
    }
    l.pattern = ckpt_arena_strndup(&a->arena, pattern, n);
    to = is_macro ? ckpt_arena_alloc(&a->arena, 1, sizeof *to) : NULL;
    if (!l.pattern || (is_macro && !to))
        return ckpt_nomem(err, n);
    if (is_macro) {
        *to = l;
        a->name[name].macro = to;
        return 0;
    }
    if ((rc = ckpt_reserve(&r->line, r->n_line, &r->cap, sizeof *r->line, err)) != 0)
        return rc;
    r->line[r->n_line++] = l;
    return 0;
}

int attributes_new(struct attributes **out, struct ckpt_err *err)
{
    struct attributes *a = ckpt_alloc(1, sizeof *a);
    size_t name;
    bool good;

    *out = NULL;
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    if (read_all_said(&a->binary, &good, a, "-diff -merge -text", err) ||
        name_of(&name, a, "binary", 6, err)) {
        attributes_free(a);
        return ckpt_err_code(err);
    }
    a->name[name].macro = &a->binary;
    *out = a;
    return 0;
}

void attributes_free(struct attributes *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n_file; i++)
        ckpt_free(a->file[i].line);
    ckpt_free(a->file);
    ckpt_free(a->name);
    ckpt_arena_release(&a->arena);
    ckpt_free(a);
}

int attributes_add(struct attributes *a, const char *folder, const char *text, size_t len,
                   struct ckpt_err *err)
{
    struct rules *r;
    int rc;

    len = strnlen(text, len);           /* git stops at a NUL too */
    if (a->n_file == MAX_FILES)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d .gitattributes files", MAX_FILES);
    if (len > MAX_BYTES - a->bytes)
        return ckpt_fail(err, CKPT_ELIMIT, "%s%s.gitattributes: more than %zu bytes of such files",
                         folder, *folder ? "/" : "", MAX_BYTES);
    a->bytes += len;
    if ((rc = ckpt_reserve(&a->file, a->n_file, &a->cap_file, sizeof *a->file, err)) != 0)
        return rc;
    r = &a->file[a->n_file++];
    *r = (struct rules){.n_folder = strlen(folder)};
    r->folder = ckpt_arena_strndup(&a->arena, folder, r->n_folder);
    if (!r->folder)
        return ckpt_nomem(err, r->n_folder);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;

        if ((rc = read_line(a, r, text, n, err)) != 0)
            return rc;
        n += end != NULL;
        text += n;
        len -= n;
    }
    return 0;
}

/* Apply a line to attributes that are still unspecified; a macro that becomes true is expanded
 * at once. */
static int take(struct attributes *a, const struct line *l, int depth, struct ckpt_err *err)
{
    int rc;

    if (depth > MAX_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, ".gitattributes: macros in more than %d levels",
                         MAX_DEPTH);
    for (size_t i = l->n_said; i-- > 0;) {
        const struct said *s = &l->said[i];
        struct name *n = &a->name[s->name];

        if (n->state != ATTRIBUTE_UNSAID)
            continue;
        n->state = s->state;
        n->value = s->value;
        if (s->state == ATTRIBUTE_TRUE && n->macro &&
            (rc = take(a, n->macro, depth + 1, err)) != 0)
            return rc;
    }
    return 0;
}

static int take_file(struct attributes *a, const struct rules *r, const char *path,
                     struct ckpt_err *err)
{
    const char *below = path + r->n_folder + (r->n_folder > 0), *slash = strrchr(path, '/');
    int rc;

    for (size_t i = r->n_line; i-- > 0;) {
        const struct line *l = &r->line[i];
        int hit = l->in_path ? wildmatch(l->pattern, below, true)
                             : wildmatch(l->pattern, slash ? slash + 1 : path, false);

        if (hit < 0)
            return ckpt_fail(err, CKPT_ELIMIT, "%s%s.gitattributes: the pattern %.200s is too "
                             "costly", r->folder, r->n_folder ? "/" : "", l->pattern);
        if (hit && (rc = take(a, l, 0, err)) != 0)
            return rc;
    }
    return 0;
}

int attributes_of(enum attribute_state *state, const char **value, struct attributes *a,
                  const char *path, const char *name, struct ckpt_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0, i;
    int rc;

    *state = ATTRIBUTE_UNSAID;
    *value = NULL;
    for (i = 0; i < a->n_name; i++)
        a->name[i].state = ATTRIBUTE_UNSAID;
    for (;;) {                          /* the folder that the path is in, and those above it */
        for (i = 0; i < a->n_file; i++)
            if (a->file[i].n_folder == n && memcmp(a->file[i].folder, path, n) == 0 &&
                (rc = take_file(a, &a->file[i], path, err)) != 0)
                return rc;
        if (n == 0)
            break;
        while (n > 0 && path[--n] != '/')
            ;
    }
    for (i = 0; i < a->n_name; i++)
        if (strcmp(a->name[i].text, name) == 0) {
            *state = a->name[i].state;
            *value = a->name[i].value;
        }
    return 0;
}

void attributes_pattern(struct ckpt_buf *out, const char *path)
{
    ckpt_buf_put_str(out, "/");
    for (; *path; path++) {
        if (*path == ' ') {
            ckpt_buf_put_str(out, "[[:space:]]");
            continue;
        }
        if (strchr("*?[\\", *path))
            ckpt_buf_put_u8(out, '\\');
        ckpt_buf_put_u8(out, (uint8_t)*path);
    }
}
