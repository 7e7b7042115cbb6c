/* norm - see norm.h. */
#include "formats/tokens/norm.h"

#include <string.h>

#include "formats/tokens/component.h"
#include "formats/tokens/norm_steps.h"
#include "formats/tokens/spm.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

#define MAX_STEPS 32        /* the longest sequence seen has five */

struct norm {
    struct norm_step step[MAX_STEPS];
    size_t           n;
    bool             composes;
};

struct norm_run {
    struct norm_work  work;
    struct regex_run *regex[MAX_STEPS];
};

/* Append a step, zeroed except for these fields. */
static int add_step(struct norm *n, struct norm_step step, struct norm_step **out,
                    struct ckpt_err *err)
{
    if (n->n == MAX_STEPS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d steps", MAX_STEPS);
    n->composes |= step.apply == norm_compose;
    n->step[n->n] = step;
    *out = &n->step[n->n++];
    return 0;
}

static int read_strip(struct norm_step *s, const json_t *json, struct ckpt_err *err)
{
    int rc = ckpt_json_bool_or(&s->left, json, "strip_left", false, err);

    return rc ? rc : ckpt_json_bool_or(&s->right, json, "strip_right", false, err);
}

static int read_text(struct norm_step *s, const json_t *json, const char *key,
                     struct ckpt_err *err)
{
    int rc = component_text(&s->text, json, key, NULL, err);

    s->n_text = rc ? 0 : strlen(s->text);
    return rc;
}

static int read_prepend(struct norm_step *s, const json_t *json, struct ckpt_err *err)
{
    return read_text(s, json, "prepend", err);
}

static int read_replace(struct norm_step *s, const json_t *json, struct ckpt_err *err)
{
    const char *pattern;
    bool literal;
    int rc;

    s->only = -1;
    if ((rc = read_text(s, json, "content", err)) != 0 ||
        (rc = component_pattern(json, &pattern, &literal, err)) != 0)
        return rc;
    if (literal && pattern[0] && !pattern[1] && (unsigned char)pattern[0] < 0x80) {
        s->only = pattern[0];
        return 0;
    }
    return regex_new(&s->regex, pattern, strlen(pattern), literal, err);
}

static int read_precompiled(struct norm_step *s, const json_t *json, struct ckpt_err *err)
{
    const char *text;
    int rc = ckpt_json_str(&text, json, "precompiled_charsmap", err);

    return rc ? rc : charsmap_parse(&s->map, text, err);
}

/* Component types but Sequence, which only lists others. */
static const struct row {
    const char      *type;
    norm_fn         *apply;         /* NULL: add_bert */
    int (*read)(struct norm_step *s, const json_t *json, struct ckpt_err *err);
    enum compose_form form;
} rows[] = {
    {"NFC", norm_compose, NULL, COMPOSE_NFC},
    {"NFD", norm_compose, NULL, COMPOSE_NFD},
    {"NFKC", norm_compose, NULL, COMPOSE_NFKC},
    {"NFKD", norm_compose, NULL, COMPOSE_NFKD},
    {"Lowercase", norm_lowercase, NULL, 0},
    {"Strip", norm_strip, read_strip, 0},
    {"StripAccents", norm_strip_accents, NULL, 0},
    {"Replace", norm_replace, read_replace, 0},
    {"Prepend", norm_prepend, read_prepend, 0},
    {"Precompiled", norm_precompiled, read_precompiled, 0},
    {"BertNormalizer", NULL, NULL, 0},
    {"Bert", NULL, NULL, 0},
    {"Nmt", norm_nmt, NULL, 0},
    {"ByteLevel", norm_bytes, NULL, 0},
    {"SentencePiece", spm_norm, spm_norm_parse, 0},   /* only from spm.c, not in a tokenizer.json */
};

/* BertNormalizer: up to five steps. */
static int add_bert(struct norm *n, const json_t *json, struct ckpt_err *err)
{
    bool clean, chinese, lower, accents;
    struct norm_step *s;
    int rc;

    if ((rc = ckpt_json_bool_or(&clean, json, "clean_text", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&chinese, json, "handle_chinese_chars", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&lower, json, "lowercase", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&accents, json, "strip_accents", lower, err)) != 0)
        return rc;
    const struct { bool wanted; struct norm_step step; } steps[] = {
        {clean, {.apply = norm_clean}},
        {chinese, {.apply = norm_chinese}},
        {accents, {.apply = norm_compose, .form = COMPOSE_NFD}},
        {accents, {.apply = norm_strip_nonspacing}},
        {lower, {.apply = norm_lowercase}},
    };

    for (size_t i = 0; rc == 0 && i < sizeof steps / sizeof *steps; i++)
        if (steps[i].wanted)
            rc = add_step(n, steps[i].step, &s, err);
    return rc;
}

static int add_row(void *ctx, const void *row, const json_t *json, struct ckpt_err *err)
{
    const struct row *r = row;
    struct norm_step *s;
    int rc;

    if (!r->apply)
        return add_bert(ctx, json, err);
    rc = add_step(ctx, (struct norm_step){.apply = r->apply, .form = r->form}, &s, err);
    return rc || !r->read ? rc : r->read(s, json, err);
}

int norm_new(struct norm **out, const json_t *json, struct ckpt_err *err)
{
    static const struct component_table table = {rows, sizeof rows / sizeof *rows, sizeof *rows,
                                                 add_row};
    struct norm *n = ckpt_alloc(1, sizeof *n);

    *out = NULL;
    if (!n)
        return ckpt_nomem(err, sizeof *n);
    if (component_each(json, "normalizers", &table, n, err)) {
        norm_free(n);
        return ckpt_err_in(err, "normalizer");
    }
    *out = n;
    return 0;
}

void norm_free(struct norm *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->n; i++) {
        regex_free(n->step[i].regex);
        charsmap_free(n->step[i].map);
        trie_free(n->step[i].whole);
        ckpt_free(n->step[i].text);
    }
    ckpt_free(n);
}

bool norm_is_empty(const struct norm *n) { return n->n == 0; }

int norm_run_new(struct norm_run **out, const struct norm *n, struct ckpt_err *err)
{
    struct norm_run *run = ckpt_alloc(1, sizeof *run);
    int rc = run ? 0 : ckpt_nomem(err, sizeof *run);

    *out = NULL;
    if (rc == 0 && n->composes)
        rc = compose_run_new(&run->work.compose, err);
    for (size_t i = 0; rc == 0 && i < n->n; i++)
        if (n->step[i].regex)
            rc = regex_run_new(&run->regex[i], n->step[i].regex, err);
    if (rc)
        norm_run_free(run);
    else
        *out = run;
    return rc;
}

void norm_run_free(struct norm_run *run)
{
    if (!run)
        return;
    edit_buf_release(&run->work.buf[0]);
    edit_buf_release(&run->work.buf[1]);
    compose_run_free(run->work.compose);
    for (size_t i = 0; i < MAX_STEPS; i++)
        regex_run_free(run->regex[i]);
    ckpt_free(run);
}

int norm_apply(const struct norm *n, struct norm_run *run, struct piece *p,
               struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n->n; i++) {
        run->work.regex = run->regex[i];
        rc = n->step[i].apply(&n->step[i], &run->work, p, err);
    }
    return rc ? ckpt_err_in(err, "normalizer") : 0;
}
