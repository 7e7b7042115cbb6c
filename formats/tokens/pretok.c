/* pretok - see pretok.h. */
#include "formats/tokens/pretok.h"

#include <string.h>

#include "formats/tokens/component.h"
#include "formats/tokens/pretok_steps.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

static int add_step(struct pretok *p, const struct pretok_step *step, struct ckpt_err *err)
{
    if (p->n_step == PRETOK_MAX_STEPS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d steps", PRETOK_MAX_STEPS);
    p->step[p->n_step++] = *step;
    return 0;
}

/* Reads a step from json, starting from its row; steps that must precede it are added to p. */
typedef int read_fn(struct pretok *p, struct pretok_step *step, const json_t *json,
                    struct ckpt_err *err);

static int read_bytelevel(struct pretok *p, struct pretok_step *step, const json_t *json,
                          struct ckpt_err *err)
{
    static const struct pretok_step in_front = {.kind = STEP_PREFIX},
                                    gpt2 = {.kind = STEP_SCAN, .scan = scan_gpt2};
    bool prefix, regex;
    int rc;

    (void)step;
    if ((rc = ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&regex, json, "use_regex", true, err)) != 0 ||
        (prefix && (rc = add_step(p, &in_front, err)) != 0))
        return rc;
    return regex ? add_step(p, &gpt2, err) : 0;
}

static int read_behaviour(enum behaviour *out, const json_t *json, const char *fallback,
                           struct ckpt_err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name;
    int rc;

    if ((rc = ckpt_json_str_or(&name, json, "behavior", fallback, err)) != 0)
        return rc;
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum behaviour)i;
            return 0;
        }
    return ckpt_fail(err, CKPT_EFORMAT, "split behaviour \"%s\" is unknown", name ? name : "");
}

static int read_split(struct pretok *p, struct pretok_step *step, const json_t *json,
                      struct ckpt_err *err)
{
    const char *pattern;
    bool literal;
    int rc;

    (void)p;
    if ((rc = component_pattern(json, &pattern, &literal, err)) != 0 ||
        (rc = ckpt_json_bool_or(&step->invert, json, "invert", false, err)) != 0 ||
        (rc = read_behaviour(&step->behaviour, json, NULL, err)) != 0)
        return rc;
    /* The scanners give the same pieces, also after steps that split the text at other patterns. */
    if (!literal && step->behaviour == ISOLATED && scan_for(pattern)) {
        step->kind = STEP_SCAN;
        step->scan = scan_for(pattern);
        return 0;
    }
    return regex_new(&step->regex, pattern, strlen(pattern), literal, err);
}

static int read_bert(struct pretok *p, struct pretok_step *step, const json_t *json,
                     struct ckpt_err *err)
{
    static const struct pretok_step spaces = {.kind = STEP_CLASS, .is = unicode_is_space,
                                              .behaviour = REMOVED};

    (void)step;
    (void)json;
    return add_step(p, &spaces, err);
}

static int read_punctuation(struct pretok *p, struct pretok_step *step, const json_t *json,
                            struct ckpt_err *err)
{
    (void)p;
    return read_behaviour(&step->behaviour, json, "Isolated", err);
}

static int read_digits(struct pretok *p, struct pretok_step *step, const json_t *json,
                       struct ckpt_err *err)
{
    bool single = false;
    int rc = ckpt_json_bool_or(&single, json, "individual_digits", false, err);

    (void)p;
    step->behaviour = single ? ISOLATED : CONTIGUOUS;
    return rc;
}

/* A member that is one character: the step's mark. */
static int read_mark(struct pretok_step *step, const json_t *json, const char *key,
                     struct ckpt_err *err)
{
    const char *s;
    size_t width;
    int rc;

    if ((rc = component_char(json, key, &s, err)) != 0)
        return rc;
    step->mark = utf8_get((const unsigned char *)s, &width);
    return 0;
}

static int read_delimiter(struct pretok *p, struct pretok_step *step, const json_t *json,
                          struct ckpt_err *err)
{
    (void)p;
    return read_mark(step, json, "delimiter", err);
}

static int read_fixed(struct pretok *p, struct pretok_step *step, const json_t *json,
                      struct ckpt_err *err)
{
    int64_t length;
    int rc;

    (void)p;
    if ((rc = ckpt_json_int_or(&length, json, "length", 5, err)) != 0)
        return rc;
    if (length < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "length %lld", (long long)length);
    step->length = (size_t)length;
    return 0;
}

static int read_metaspace(struct pretok *p, struct pretok_step *step, const json_t *json,
                          struct ckpt_err *err)
{
    bool split;
    int rc;

    if ((rc = pretok_metaspace_scheme(json, &step->scheme, err)) != 0 ||
        (rc = read_mark(step, json, "replacement", err)) != 0 ||
        (rc = ckpt_json_bool_or(&split, json, "split", true, err)) != 0)
        return rc;
    if (!split)
        return 0;
    rc = add_step(p, step, err);
    step->kind = STEP_CLASS;
    step->behaviour = MERGED_NEXT;
    return rc;
}

/* Component types but Sequence, which only lists others. */
static const struct row {
    const char        *type;
    read_fn           *read;        /* NULL: the row's step unchanged */
    struct pretok_step step;
} rows[] = {
    {"ByteLevel", read_bytelevel, {.kind = STEP_BYTES}},
    {"Split", read_split, {.kind = STEP_REGEX}},
    {"Whitespace", NULL, {.kind = STEP_WORDS}},
    {"WhitespaceSplit", NULL, {.kind = STEP_CLASS, .is = unicode_is_space, .behaviour = REMOVED}},
    {"BertPreTokenizer", read_bert,
     {.kind = STEP_CLASS, .is = unicode_is_punctuation, .behaviour = ISOLATED}},
    {"Metaspace", read_metaspace, {.kind = STEP_METASPACE}},
    {"Punctuation", read_punctuation, {.kind = STEP_CLASS, .is = unicode_is_punctuation}},
    {"Digits", read_digits, {.kind = STEP_CLASS, .is = unicode_is_numeric}},
    {"CharDelimiterSplit", read_delimiter, {.kind = STEP_CLASS, .behaviour = REMOVED}},
    {"Delimiter", read_delimiter, {.kind = STEP_CLASS, .behaviour = REMOVED}},
    {"UnicodeScripts", NULL, {.kind = STEP_SCRIPTS}},
    {"FixedLength", read_fixed, {.kind = STEP_FIXED}},
};

static int add_row(void *ctx, const void *row, const json_t *json, struct ckpt_err *err)
{
    const struct row *r = row;
    struct pretok_step step = r->step;
    int rc = r->read ? r->read(ctx, &step, json, err) : 0;

    if (rc == 0)
        rc = add_step(ctx, &step, err);
    if (rc)
        regex_free(step.regex);
    return rc;
}

int pretok_metaspace_scheme(const json_t *json, enum metaspace *out, struct ckpt_err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name;
    bool prefix;
    int rc;

    /* Files from before prepend_scheme have add_prefix_space. */
    if ((rc = ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err)) != 0 ||
        (rc = ckpt_json_str_or(&name, json, "prepend_scheme", prefix ? "always" : "never",
                               err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum metaspace)i;
            if (prefix || *out == META_NEVER)
                return 0;
            return ckpt_fail(err, CKPT_EFORMAT,
                             "add_prefix_space is false and prepend_scheme \"%s\"", name);
        }
    return ckpt_fail(err, CKPT_EFORMAT, "prepend_scheme \"%s\" is unknown", name);
}

int pretok_new(struct pretok **out, const json_t *json, struct ckpt_err *err)
{
    static const struct component_table table = {rows, sizeof rows / sizeof *rows, sizeof *rows,
                                                 add_row};
    struct pretok *p = ckpt_alloc(1, sizeof *p);
    const char *type = json_string_value(json_object_get(json, "type"));

    *out = NULL;
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    if (component_each(json, "pretokenizers", &table, p, err)) {
        pretok_free(p);
        return ckpt_err_in(err, "pre_tokenizer");
    }
    p->lone_bytelevel = type && strcmp(type, "ByteLevel") == 0;
    *out = p;
    return 0;
}

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_step; i++)
        regex_free(p->step[i].regex);
    ckpt_free(p);
}

bool pretok_take_bytes(struct pretok *p)
{
    size_t n = p->n_step;

    if (n == 0 || p->step[n - 1].kind != STEP_BYTES)
        return false;
    /* A chain that spells bytes twice must keep doing so. */
    for (size_t i = 0; i + 1 < n; i++)
        if (p->step[i].kind == STEP_BYTES)
            return false;
    p->n_step--;
    return true;
}

void pretok_set_prefix_space(struct pretok *p, bool on)
{
    bool has = p->n_step > 0 && p->step[0].kind == STEP_PREFIX;

    if (!p->lone_bytelevel || on == has)
        return;
    /* A ByteLevel is at most three steps: the prefix, the scan, the bytes. */
    if (on) {
        memmove(p->step + 1, p->step, p->n_step * sizeof *p->step);
        p->step[0] = (struct pretok_step){.kind = STEP_PREFIX};
        p->n_step++;
    } else {
        memmove(p->step, p->step + 1, (p->n_step - 1) * sizeof *p->step);
        p->n_step--;
    }
}

int pretok_run_new(struct pretok_run **out, const struct pretok *p, struct ckpt_err *err)
{
    struct pretok_run *run = ckpt_alloc(1, sizeof *run);
    int rc;

    *out = NULL;
    if (!run)
        return ckpt_nomem(err, sizeof *run);
    for (size_t i = 0; i < p->n_step; i++)
        if (p->step[i].regex &&
            (rc = regex_run_new(&run->regex[i], p->step[i].regex, err)) != 0) {
            pretok_run_free(run);
            return rc;
        }
    *out = run;
    return 0;
}

void pretok_run_free(struct pretok_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < PRETOK_MAX_STEPS; i++) {
        regex_run_free(run->regex[i]);
        edit_buf_release(&run->buf[i]);
    }
    ckpt_free(run);
}
