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

static struct norm_step *add_step(struct norm *n, norm_fn *apply, struct ckpt_err *err)
{
    struct norm_step *s = &n->step[n->n];

    if (n->n == MAX_STEPS) {
        ckpt_fail(err, CKPT_ELIMIT, "more than %d steps", MAX_STEPS);
        return NULL;
    }
    n->n++;
    *s = (struct norm_step){.apply = apply, .only = -1};
    return s;
}

static int add_form(struct norm *n, enum compose_form form, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, norm_compose, err);

    if (!s)
        return ckpt_err_code(err);
    s->form = form;
    n->composes = true;
    return 0;
}

static int add_plain(struct norm *n, norm_fn *apply, struct ckpt_err *err)
{
    return add_step(n, apply, err) ? 0 : ckpt_err_code(err);
}

#define PLAIN(name, call)                                                                      \
    static int name(void *n, const json_t *json, struct ckpt_err *err)                         \
    {                                                                                          \
        (void)json;                                                                            \
        return call;                                                                           \
    }
PLAIN(parse_nfc, add_form(n, COMPOSE_NFC, err))
PLAIN(parse_nfd, add_form(n, COMPOSE_NFD, err))
PLAIN(parse_nfkc, add_form(n, COMPOSE_NFKC, err))
PLAIN(parse_nfkd, add_form(n, COMPOSE_NFKD, err))
PLAIN(parse_lowercase, add_plain(n, norm_lowercase, err))
PLAIN(parse_strip_accents, add_plain(n, norm_strip_accents, err))
PLAIN(parse_nmt, add_plain(n, norm_nmt, err))
PLAIN(parse_bytes, add_plain(n, norm_bytes, err))
#undef PLAIN

static int parse_strip(void *n, const json_t *json, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, norm_strip, err);

    if (!s || ckpt_json_bool_or(&s->left, json, "strip_left", false, err))
        return ckpt_err_code(err);
    return ckpt_json_bool_or(&s->right, json, "strip_right", false, err);
}

static int keep_text(struct norm_step *s, const json_t *json, const char *key,
                     struct ckpt_err *err)
{
    const char *text;
    int rc;

    if ((rc = ckpt_json_str(&text, json, key, err)) != 0)
        return rc;
    s->n_text = strlen(text);
    s->text = ckpt_strdup(text);
    return s->text ? 0 : ckpt_nomem(err, s->n_text);
}

static int parse_prepend(void *n, const json_t *json, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, norm_prepend, err);

    return s ? keep_text(s, json, "prepend", err) : ckpt_err_code(err);
}

static int parse_replace(void *n, const json_t *json, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, norm_replace, err);
    const char *pattern;
    bool literal;

    if (!s || keep_text(s, json, "content", err) ||
        component_pattern(json, &pattern, &literal, err))
        return ckpt_err_code(err);
    if (literal && pattern[0] && !pattern[1] && (unsigned char)pattern[0] < 0x80) {
        s->only = pattern[0];
        return 0;
    }
    return regex_new(&s->regex, pattern, strlen(pattern), literal, err);
}

static int parse_precompiled(void *n, const json_t *json, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, norm_precompiled, err);
    const char *text;

    if (!s || ckpt_json_str(&text, json, "precompiled_charsmap", err))
        return ckpt_err_code(err);
    return charsmap_parse(&s->map, text, err);
}

static int parse_bert(void *n, const json_t *json, struct ckpt_err *err)
{
    bool clean, chinese, lower, accents;
    int rc;

    if ((rc = ckpt_json_bool_or(&clean, json, "clean_text", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&chinese, json, "handle_chinese_chars", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&lower, json, "lowercase", true, err)) != 0 ||
        (rc = ckpt_json_bool_or(&accents, json, "strip_accents", lower, err)) != 0 ||
        (clean && (rc = add_plain(n, norm_clean, err)) != 0) ||
        (chinese && (rc = add_plain(n, norm_chinese, err)) != 0) ||
        (accents && (rc = add_form(n, COMPOSE_NFD, err)) != 0) ||
        (accents && (rc = add_plain(n, norm_strip_nonspacing, err)) != 0) ||
        (lower && (rc = add_plain(n, norm_lowercase, err)) != 0))
        return rc;
    return 0;
}

static int parse_sentencepiece(void *n, const json_t *json, struct ckpt_err *err)
{
    struct norm_step *s = add_step(n, spm_norm, err);

    return s ? spm_norm_parse(s, json, err) : ckpt_err_code(err);
}

/* Component types but Sequence, which only lists others. */
static const struct component_row rows[] = {
    {"NFC", parse_nfc},
    {"NFD", parse_nfd},
    {"NFKC", parse_nfkc},
    {"NFKD", parse_nfkd},
    {"Lowercase", parse_lowercase},
    {"Strip", parse_strip},
    {"StripAccents", parse_strip_accents},
    {"Replace", parse_replace},
    {"Prepend", parse_prepend},
    {"Precompiled", parse_precompiled},
    {"BertNormalizer", parse_bert},
    {"Bert", parse_bert},
    {"Nmt", parse_nmt},
    {"ByteLevel", parse_bytes},
    {"SentencePiece", parse_sentencepiece},     /* of spm.c, not of a tokenizer.json */
    {NULL, NULL},
};

int norm_new(struct norm **out, const json_t *json, struct ckpt_err *err)
{
    struct norm *n = ckpt_alloc(1, sizeof *n);

    *out = NULL;
    if (!n)
        return ckpt_nomem(err, sizeof *n);
    if (component_each(json, "normalizers", rows, n, err)) {
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
