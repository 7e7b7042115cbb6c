/* template - see template.h. */
#include "trainer/data/template.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

#define MAX_TEMPLATE ((size_t)64 << 10)     /* bytes */
#define MAX_STEPS    16                     /* most steps of one path */
#define MAX_TEXT     ((size_t)64 << 20)     /* most bytes of rendered text */

static const char alpaca[] =
    "Below is an instruction that describes a task{?input}, paired with an input that provides "
    "further context{/input}. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n{?input}### Input:\n{input}\n\n{/input}### Response:\n";

struct step {
    enum { STEP_NAME, STEP_INDEX, STEP_ALL } kind;
    const char *name;
    int64_t     index;
};

struct path {
    struct step step[MAX_STEPS];
    size_t      n;
    const char *spelt;              /* for messages and for matching {/path} */
};

struct node {
    enum { NODE_TEXT, NODE_FIELD, NODE_OPEN, NODE_CLOSE } kind;
    char         test;              /* NODE_OPEN: '?', '!' or '~' */
    const char  *text;              /* NODE_TEXT */
    size_t       len;
    struct path *path;
    bool         trim, lower, json;
    const char  *fallback;          /* of default:"...", or NULL */
    size_t       close;             /* NODE_OPEN: its NODE_CLOSE */
};

struct template {
    struct ckpt_arena arena;
    struct node      *node;
    size_t            n;
};

/* State of parsing. */
struct parse {
    struct template *t;
    const char      *s;
    size_t           i, n;
    size_t           cap;
    size_t           open[MAX_STEPS], n_open;   /* sections still open */
};

static int broken(const struct parse *p, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ECONFIG, "template: %s at byte %zu of \"%.*s\"", what, p->i,
                     (int)(p->n > 300 ? 300 : p->n), p->s);
}

static struct node *new_node(struct parse *p)
{
    struct template *t = p->t;

    struct ckpt_err ignored;

    if (ckpt_arena_reserve(&t->arena, &t->node, t->n, &p->cap, sizeof *t->node, &ignored))
        return NULL;
    memset(&t->node[t->n], 0, sizeof *t->node);
    return &t->node[t->n++];
}

static bool name_byte(char c)
{
    return c && !strchr(".[]{}|'\"? \t\n/", c);
}

/* Up to the closing quote; p->i is after the opening one. */
static int parse_quoted(struct parse *p, char quote, const char **out, struct ckpt_err *err)
{
    size_t from = p->i;

    while (p->i < p->n && p->s[p->i] != quote)
        p->i++;
    if (p->i == p->n)
        return broken(p, "a quote without end", err);
    *out = ckpt_arena_strndup(&p->t->arena, p->s + from, p->i++ - from);
    return *out ? 0 : ckpt_nomem(err, p->i - from);
}

/* "[3]", "[-1]", "[*]", "['odd name']"; p->i is at the bracket. */
static int parse_index(struct parse *p, struct step *step, struct ckpt_err *err)
{
    char *end;
    int rc;

    p->i++;
    if (p->i < p->n && (p->s[p->i] == '\'' || p->s[p->i] == '"')) {
        step->kind = STEP_NAME;
        p->i++;
        if ((rc = parse_quoted(p, p->s[p->i - 1], &step->name, err)) != 0)
            return rc;
    } else if (p->i < p->n && p->s[p->i] == '*') {
        step->kind = STEP_ALL;
        p->i++;
    } else {
        step->kind = STEP_INDEX;
        errno = 0;
        step->index = strtoll(p->s + p->i, &end, 10);
        if (errno || end == p->s + p->i || p->s[p->i] == ' ' || p->s[p->i] == '+')
            return broken(p, "neither a number, '*' nor a quoted name", err);
        p->i = (size_t)(end - p->s);
    }
    if (p->i >= p->n || p->s[p->i] != ']')
        return broken(p, "no ']'", err);
    p->i++;
    return 0;
}

static int parse_path(struct parse *p, struct path **out, struct ckpt_err *err)
{
    struct path *path = ckpt_arena_alloc(&p->t->arena, 1, sizeof *path);
    size_t begin = p->i, from;
    int rc;

    if (!path)
        return ckpt_nomem(err, sizeof *path);
    while (p->i < p->n) {
        struct step *step = &path->step[path->n];

        if (path->n == MAX_STEPS)
            return broken(p, "a path of too many parts", err);
        if (p->s[p->i] == '[') {
            if ((rc = parse_index(p, step, err)) != 0)
                return rc;
        } else {
            if (path->n > 0 && p->s[p->i] != '.')
                break;
            p->i += path->n > 0;
            for (from = p->i; p->i < p->n && name_byte(p->s[p->i]); p->i++)
                ;
            if (p->i == from)
                return broken(p, "a field name is missing", err);
            step->name = ckpt_arena_strndup(&p->t->arena, p->s + from, p->i - from);
            if (!step->name)
                return ckpt_nomem(err, p->i - from);
        }
        path->n++;
    }
    if (path->n == 0)
        return broken(p, "a field name is missing", err);
    /* A lone quoted name is spelt as the column is: "['text']" is what text_field comes to. */
    path->spelt = path->n == 1 && path->step[0].kind == STEP_NAME
        ? path->step[0].name : ckpt_arena_strndup(&p->t->arena, p->s + begin, p->i - begin);
    *out = path;
    return path->spelt ? 0 : ckpt_nomem(err, p->i - begin);
}

/* One filter; p->i is after the bar. */
static int parse_filter(struct parse *p, struct node *node, struct ckpt_err *err)
{
    static const struct { const char *word; size_t len; } words[] = {
        {"trim", 4}, {"lower", 5}, {"json", 4}, {"default:\"", 9},
    };
    size_t w;

    for (w = 0; w < 4; w++)
        if (p->n - p->i >= words[w].len &&
            memcmp(p->s + p->i, words[w].word, words[w].len) == 0)
            break;
    if (w == 4)
        return broken(p, "no such filter (trim, lower, json, default:\"text\")", err);
    p->i += words[w].len;
    node->trim |= w == 0;
    node->lower |= w == 1;
    node->json |= w == 2;
    return w == 3 ? parse_quoted(p, '"', &node->fallback, err) : 0;
}

static int parse_close(struct parse *p, struct node *node, struct ckpt_err *err)
{
    size_t open;

    if (p->n_open == 0)
        return broken(p, "a section ends that was not begun", err);
    open = p->open[--p->n_open];
    if (strcmp(p->t->node[open].path->spelt, node->path->spelt) != 0)
        return broken(p, "a section ends under another name than it began", err);
    p->t->node[open].close = p->t->n - 1;
    return 0;
}

/* "{...}"; p->i is after the brace. */
static int parse_braces(struct parse *p, struct ckpt_err *err)
{
    char first = p->i < p->n ? p->s[p->i] : '\0';
    struct node *node = new_node(p);
    int rc;

    if (!node)
        return ckpt_nomem(err, sizeof *node);
    node->kind = first && strchr("?!~", first) ? NODE_OPEN
                 : first == '/' ? NODE_CLOSE : NODE_FIELD;
    node->test = first;
    p->i += node->kind != NODE_FIELD;
    if ((rc = parse_path(p, &node->path, err)) != 0)
        return rc;
    while (node->kind == NODE_FIELD && p->i < p->n && p->s[p->i] == '|') {
        p->i++;
        if ((rc = parse_filter(p, node, err)) != 0)
            return rc;
    }
    if (p->i >= p->n || p->s[p->i] != '}')
        return broken(p, "no '}'", err);
    p->i++;
    if (node->kind == NODE_OPEN) {
        if (p->n_open == MAX_STEPS)
            return broken(p, "sections nested too deep", err);
        p->open[p->n_open++] = p->t->n - 1;
    }
    return node->kind == NODE_CLOSE ? parse_close(p, node, err) : 0;
}

static int parse_all(struct parse *p, struct ckpt_err *err)
{
    int rc;

    while (p->i < p->n) {
        bool twice = p->i + 1 < p->n && p->s[p->i + 1] == p->s[p->i];
        size_t from = p->i;
        struct node *node;

        if (p->s[p->i] == '{' && !twice) {
            p->i++;
            if ((rc = parse_braces(p, err)) != 0)
                return rc;
            continue;
        }
        if (p->s[p->i] == '}' && !twice)
            return broken(p, "a lone '}' (write '}}')", err);
        if (p->s[p->i] == '{' || p->s[p->i] == '}')
            p->i += 2;
        else
            p->i += strcspn(p->s + p->i, "{}");
        if (!(node = new_node(p)))
            return ckpt_nomem(err, sizeof *node);
        node->len = p->s[from] == '{' || p->s[from] == '}' ? 1 : p->i - from;
        node->text = ckpt_arena_strndup(&p->t->arena, p->s + from, node->len);
        if (!node->text)
            return ckpt_nomem(err, node->len);
    }
    return p->n_open == 0 ? 0 : broken(p, "a section without end", err);
}

int template_parse(struct template **out, const char *text, struct ckpt_err *err)
{
    struct parse p = {.s = strcmp(text, "alpaca") == 0 ? alpaca : text};
    int rc;

    *out = NULL;
    p.n = strlen(p.s);
    if (p.n > MAX_TEMPLATE)
        return ckpt_fail(err, CKPT_ECONFIG, "template: %zu bytes, the limit is %zu", p.n,
                         MAX_TEMPLATE);
    p.t = ckpt_alloc(1, sizeof *p.t);
    if (!p.t)
        return ckpt_nomem(err, sizeof *p.t);
    rc = parse_all(&p, err);
    if (rc) {
        template_free(p.t);
        return rc;
    }
    *out = p.t;
    return 0;
}

void template_free(struct template *t)
{
    if (!t)
        return;
    ckpt_arena_release(&t->arena);
    ckpt_free(t);
}

/* The value a path leads to, NULL when there is none.  *all is the list to join for "[*]". */
static const json_t *look(const json_t *v, const struct path *path, const json_t **all)
{
    *all = NULL;
    for (size_t i = 0; i < path->n && v; i++) {
        const struct step *s = &path->step[i];

        if (s->kind == STEP_NAME) {
            v = json_object_get(v, s->name);
        } else if (s->kind == STEP_INDEX) {
            int64_t n = (int64_t)json_array_size(v), k = s->index < 0 ? n + s->index : s->index;

            v = k >= 0 && k < n ? json_array_get(v, (size_t)k) : NULL;
        } else if (json_is_array(v) && i + 1 == path->n) {
            *all = v;
        } else {
            return NULL;
        }
    }
    return v;
}

static int put_value(struct ckpt_buf *out, const struct node *node, const json_t *v,
                     struct ckpt_err *err)
{
    if (json_is_string(v) && !node->json) {
        ckpt_buf_put(out, json_string_value(v), json_string_length(v));
        return 0;
    }
    if (!node->json && (json_is_array(v) || json_is_object(v)))
        return ckpt_fail(err, CKPT_EFORMAT, "field \"%s\" is %s, no text (write |json%s)",
                         node->path->spelt, json_is_array(v) ? "a list" : "an object",
                         json_is_array(v) ? " or [*]" : "");
    return ckpt_json_write(out, v, 0, false, err);
}

/* Apply trim and lower to the text after from. */
static void apply_filters(struct ckpt_buf *out, size_t from, const struct node *node)
{
    unsigned char *s = out->data + from;
    size_t n = out->len - from, begin = 0, width;

    while (node->trim && begin < n && unicode_is_space(utf8_get(s + begin, &width)))
        begin += width;
    while (node->trim && n > begin) {
        size_t last = n - 1;

        while (last > begin && (s[last] & 0xc0) == 0x80)
            last--;
        if (!unicode_is_space(utf8_get(s + last, &width)))
            break;
        n = last;
    }
    memmove(s, s + begin, n - begin);
    out->len = from + n - begin;
    /* ASCII only, as C's tolower in the C locale: other letters are unchanged. */
    for (size_t i = 0; node->lower && i < n - begin; i++)
        if (s[i] >= 'A' && s[i] <= 'Z')
            s[i] = (unsigned char)(s[i] + 32);
}

/* "a, b, c" of the fields a record has, for messages. */
static int absent(const struct node *node, const json_t *record, struct ckpt_err *err)
{
    const char *spelt = node->path->spelt;
    size_t n = strlen(spelt);
    bool quoted = n > 4 && strncmp(spelt, "['", 2) == 0 && strchr(spelt, ']') == spelt + n - 1;
    struct ckpt_buf names;
    const char *name;
    json_t *v;
    int rc;

    ckpt_buf_init(&names, SIZE_MAX);
    json_object_foreach((json_t *)record, name, v) {
        ckpt_buf_put_str(&names, names.len ? ", " : "");
        ckpt_buf_put_str(&names, name);
    }
    rc = ckpt_fail(err, CKPT_EFORMAT, "field \"%.*s\" is absent or null; there are: %.600s",
                   (int)(quoted ? n - 4 : n), quoted ? spelt + 2 : spelt,
                   names.len ? ckpt_buf_str(&names) : "none");
    ckpt_buf_release(&names);
    return rc;
}

static int render_field(struct ckpt_buf *out, const struct node *node, const json_t *record,
                        struct ckpt_err *err)
{
    const json_t *all, *v = look(record, node->path, &all);
    size_t from = out->len;
    int rc;

    if (!v || json_is_null(v)) {
        if (!node->fallback)
            return absent(node, record, err);
        ckpt_buf_put_str(out, node->fallback);
    } else if (all) {
        for (size_t i = 0; i < json_array_size(all); i++) {
            ckpt_buf_put_str(out, i ? ", " : "");
            if ((rc = put_value(out, node, json_array_get(all, i), err)) != 0)
                return rc;
        }
    } else if ((rc = put_value(out, node, v, err)) != 0) {
        return rc;
    }
    if (ckpt_buf_ok(out) && out->len > from)
        apply_filters(out, from, node);
    return 0;
}

static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Whether a section is kept. */
static bool is_kept(const struct node *node, const json_t *record)
{
    const json_t *all, *v = look(record, node->path, &all);

    return node->test == '?' ? !is_empty(v) : node->test == '!' ? is_empty(v) : !v;
}

int template_render(const struct template *t, struct ckpt_buf *out, const json_t *record,
                    struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < t->n; i++) {
        const struct node *node = &t->node[i];

        if (node->kind == NODE_TEXT)
            ckpt_buf_put(out, node->text, node->len);
        else if (node->kind == NODE_FIELD && (rc = render_field(out, node, record, err)) != 0)
            return rc;
        else if (node->kind == NODE_OPEN && !is_kept(node, record))
            i = node->close;
    }
    if (!ckpt_buf_ok(out))
        return ckpt_nomem(err, out->len);
    if (out->len > MAX_TEXT)
        return ckpt_fail(err, CKPT_ELIMIT, "a text of %zu bytes; the limit is %zu", out->len,
                         MAX_TEXT);
    return 0;
}
