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

static int parse_bytelevel(void *p, const json_t *json, struct ckpt_err *err)
{
    static const struct pretok_step in_front = {.kind = STEP_PREFIX},
                                    gpt2 = {.kind = STEP_SCAN, .scan = scan_gpt2};
    bool prefix, regex;
    int rc;

    if ((rc = ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&regex, json, "use_regex", true, err)) != 0 ||
        (prefix && (rc = add_step(p, &in_front, err)) != 0) ||
        (regex && (rc = add_step(p, &gpt2, err)) != 0))
        return rc;
    return add_step(p, &(struct pretok_step){.kind = STEP_BYTES}, err);
}

static int parse_behaviour(enum behaviour *out, const json_t *json, const char *fallback,
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

static int parse_split(void *p, const json_t *json, struct ckpt_err *err)
{
    struct pretok_step step = {.kind = STEP_REGEX};
    const char *pattern;
    bool literal;
    int rc;

    if ((rc = component_pattern(json, &pattern, &literal, err)) != 0 ||
        (rc = ckpt_json_bool_or(&step.invert, json, "invert", false, err)) != 0 ||
        (rc = parse_behaviour(&step.behaviour, json, NULL, err)) != 0)
        return rc;
    /* Scanned are texts that nothing was done to but cuts at other patterns. */
    if (!literal && step.behaviour == ISOLATED && scan_for(pattern)) {
        step.kind = STEP_SCAN;
        step.scan = scan_for(pattern);
    } else if ((rc = regex_new(&step.regex, pattern, strlen(pattern), literal, err)) != 0) {
        return rc;
    }
    rc = add_step(p, &step, err);
    if (rc)
        regex_free(step.regex);
    return rc;
}

static int add_class(struct pretok *p, bool (*is)(uint32_t), enum behaviour behaviour,
                     struct ckpt_err *err)
{
    return add_step(p, &(struct pretok_step){.kind = STEP_CLASS, .is = is,
                                             .behaviour = behaviour}, err);
}

static int parse_whitespace(void *p, const json_t *json, struct ckpt_err *err)
{
    (void)json;
    return add_step(p, &(struct pretok_step){.kind = STEP_WORDS}, err);
}

static int parse_whitespace_split(void *p, const json_t *json, struct ckpt_err *err)
{
    (void)json;
    return add_class(p, unicode_is_space, REMOVED, err);
}

static int parse_bert(void *p, const json_t *json, struct ckpt_err *err)
{
    (void)json;
    return add_class(p, unicode_is_space, REMOVED, err)
               ? err->code : add_class(p, unicode_is_punctuation, ISOLATED, err);
}

static int parse_punctuation(void *p, const json_t *json, struct ckpt_err *err)
{
    enum behaviour behaviour;
    int rc;

    if ((rc = parse_behaviour(&behaviour, json, "Isolated", err)) != 0)
        return rc;
    return add_class(p, unicode_is_punctuation, behaviour, err);
}

static int parse_digits(void *p, const json_t *json, struct ckpt_err *err)
{
    bool single;
    int rc;

    if ((rc = ckpt_json_bool_or(&single, json, "individual_digits", false, err)) != 0)
        return rc;
    return add_class(p, unicode_is_numeric, single ? ISOLATED : CONTIGUOUS, err);
}

static int parse_delimiter(void *p, const json_t *json, struct ckpt_err *err)
{
    struct pretok_step step = {.kind = STEP_CLASS, .behaviour = REMOVED};
    const char *s;
    size_t width;
    int rc;

    if ((rc = component_char(json, "delimiter", &s, err)) != 0)
        return rc;
    step.mark = utf8_get((const unsigned char *)s, &width);
    return add_step(p, &step, err);
}

static int parse_scripts(void *p, const json_t *json, struct ckpt_err *err)
{
    (void)json;
    return add_step(p, &(struct pretok_step){.kind = STEP_SCRIPTS}, err);
}

static int parse_fixed(void *p, const json_t *json, struct ckpt_err *err)
{
    struct pretok_step step = {.kind = STEP_FIXED};
    int64_t length;
    int rc;

    if ((rc = ckpt_json_int_or(&length, json, "length", 5, err)) != 0)
        return rc;
    if (length < 1)
        return ckpt_fail(err, CKPT_EFORMAT, "length %lld", (long long)length);
    step.length = (size_t)length;
    return add_step(p, &step, err);
}

static int parse_metaspace(void *p, const json_t *json, struct ckpt_err *err)
{
    struct pretok_step step = {.kind = STEP_METASPACE};
    bool split;
    const char *s;
    size_t width;
    int rc;

    if ((rc = pretok_metaspace_scheme(json, &step.scheme, err)) != 0 ||
        (rc = component_char(json, "replacement", &s, err)) != 0 ||
        (rc = ckpt_json_bool_or(&split, json, "split", true, err)) != 0)
        return rc;
    step.mark = utf8_get((const unsigned char *)s, &width);
    if ((rc = add_step(p, &step, err)) != 0)
        return rc;
    if (!split)
        return 0;
    step.kind = STEP_CLASS;
    step.behaviour = MERGED_NEXT;
    return add_step(p, &step, err);
}

/* Component types but Sequence, which only lists others. */
static const struct component_row rows[] = {
    {"ByteLevel", parse_bytelevel},
    {"Split", parse_split},
    {"Whitespace", parse_whitespace},
    {"WhitespaceSplit", parse_whitespace_split},
    {"BertPreTokenizer", parse_bert},
    {"Metaspace", parse_metaspace},
    {"Punctuation", parse_punctuation},
    {"Digits", parse_digits},
    {"CharDelimiterSplit", parse_delimiter},
    {"Delimiter", parse_delimiter},
    {"UnicodeScripts", parse_scripts},
    {"FixedLength", parse_fixed},
    {NULL, NULL},
};

int pretok_metaspace_scheme(const json_t *json, enum metaspace *out, struct ckpt_err *err)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name;
    bool prefix;
    int rc;

    /* Files from before prepend_scheme say add_prefix_space. */
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
    struct pretok *p = ckpt_alloc(1, sizeof *p);
    const char *type = json_string_value(json_object_get(json, "type"));

    *out = NULL;
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    if (component_each(json, "pretokenizers", rows, p, err)) {
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
    /* Bytes that are spelt twice must be. */
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
