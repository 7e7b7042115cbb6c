/* peft/config - see peft/config.h. */
#include "formats/peft/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/tokens/unicode/regex.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

#define MAX_PATTERNS 4096       /* each is tried on each module */

struct peft_patterns {
    size_t n;
    struct {
        struct regex     *re;
        struct regex_run *run;
        double            value;
    } item[];
};

static void patterns_free(struct peft_patterns *p)
{
    for (size_t i = 0; p && i < p->n; i++) {
        regex_run_free(p->item[i].run);
        regex_free(p->item[i].re);
    }
    ckpt_free(p);
}

/* peft matches a key at the end of a module's name, after a dot or alone. */
static int add_pattern(struct peft_patterns *p, const char *key, const json_t *v,
                       struct ckpt_err *err)
{
    char pattern[REGEX_MAX_PATTERN];
    int n = snprintf(pattern, sizeof pattern, "^(?:.*\\.)?(?:%s)$", key), rc;

    if (!json_is_number(v))
        return ckpt_fail(err, CKPT_EFORMAT, "%s is given no number", key);
    if (n < 0 || (size_t)n >= sizeof pattern)
        return ckpt_fail(err, CKPT_ELIMIT, "a pattern has more than %d bytes", REGEX_MAX_PATTERN);
    p->item[p->n].value = json_number_value(v);
    p->n++;
    rc = regex_new(&p->item[p->n - 1].re, pattern, (size_t)n, false, err);
    return rc ? rc : regex_run_new(&p->item[p->n - 1].run, p->item[p->n - 1].re, err);
}

static int read_patterns(struct peft_patterns **out, const json_t *config, const char *name,
                         struct ckpt_err *err)
{
    const json_t *dict = json_object_get(config, name);
    size_t n = json_object_size(dict);
    struct peft_patterns *p;
    const char *key;
    json_t *v;

    if (dict && !json_is_object(dict) && !json_is_null(dict))
        return ckpt_fail(err, CKPT_EFORMAT, "%s is no object", name);
    if (n > MAX_PATTERNS)
        return ckpt_fail(err, CKPT_ELIMIT, "%s has %zu patterns, %d at most", name, n,
                         MAX_PATTERNS);
    p = ckpt_alloc(1, sizeof *p + n * sizeof p->item[0]);
    if (!p)
        return ckpt_nomem(err, n * sizeof p->item[0]);
    json_object_foreach ((json_t *)dict, key, v)
        if (add_pattern(p, key, v, err)) {
            patterns_free(p);
            return ckpt_err_in(err, "%s", name);
        }
    *out = p;
    return 0;
}

/* *value is unchanged when nothing matches. */
static int match(double *value, const struct peft_patterns *p, const char *module,
                 struct ckpt_err *err)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t start, end;
        bool found;

        if (regex_find(p->item[i].re, p->item[i].run, (const unsigned char *)module,
                       strlen(module), 0, &found, &start, &end, err))
            return ckpt_err_in(err, "a pattern for ranks or alphas");
        if (found) {
            *value = p->item[i].value;
            return 0;
        }
    }
    return 0;
}

/* Whether an option is set to a true value. */
static bool said(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return v && !json_is_null(v) && !json_is_false(v) &&
           !(json_is_array(v) && json_array_size(v) == 0) &&
           !(json_is_object(v) && json_object_size(v) == 0);
}

/* Refuse kinds of adapters with other mathematics. */
static int check_kind(const json_t *config, struct ckpt_err *err)
{
    static const char *const others[] = {"use_qalora", "arrow_config", "alora_invocation_tokens",
                                         "use_bdlora", "kasa_config", "velora_config",
                                         "monteclora_config"};
    const char *type;
    int rc;

    if ((rc = ckpt_json_str(&type, config, "peft_type", err)) != 0)
        return rc;
    if (strcmp(type, "LORA") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "peft_type %s is not merged, only LORA", type);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (said(config, others[i]))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "adapters with %s are not merged", others[i]);
    return 0;
}

/* Some initialisations change the base's own weights, and the adapter fits only those. */
static void warn_of_start(const json_t *config)
{
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *init = json_string_value(json_object_get(config, "init_lora_weights"));

    for (size_t i = 0; init && i < sizeof changing / sizeof changing[0]; i++)
        if (strncmp(init, changing[i], strlen(changing[i])) == 0)
            ckpt_log(CKPT_LOG_WARNING,
                     "init_lora_weights is %s, which changes the base's weights: merging onto the "
                     "unchanged base gives another model, unless the adapter was converted", init);
}

int peft_config_init(struct peft_config *c, const json_t *json, struct ckpt_err *err)
{
    const struct { const char *key; bool *to; } flags[] = {
        {"use_rslora", &c->rslora}, {"use_dora", &c->dora},
        {"fan_in_fan_out", &c->fan_in_fan_out}, {"ensure_weight_tying", &c->keeps_ties},
    };
    int rc;

    memset(c, 0, sizeof *c);
    if (!json_is_object(json))
        return ckpt_fail(err, CKPT_EFORMAT, "adapter_config.json is no object");
    c->json = json;
    rc = check_kind(json, err);
    if (rc == 0)
        rc = ckpt_json_num_or(&c->alpha, json, "lora_alpha", 8, err);
    if (rc == 0)
        rc = ckpt_json_num_or(&c->r, json, "r", 8, err);
    for (size_t i = 0; rc == 0 && i < sizeof flags / sizeof flags[0]; i++)
        rc = ckpt_json_bool_or(flags[i].to, json, flags[i].key, false, err);
    if (rc == 0)
        rc = read_patterns(&c->alpha_of, json, "alpha_pattern", err);
    if (rc == 0)
        rc = read_patterns(&c->rank_of, json, "rank_pattern", err);
    if (rc)
        peft_config_release(c);
    else
        warn_of_start(json);
    return rc ? ckpt_err_in(err, "adapter_config.json") : 0;
}

void peft_config_release(struct peft_config *c)
{
    patterns_free(c->alpha_of);
    patterns_free(c->rank_of);
    c->alpha_of = c->rank_of = NULL;
}

int peft_config_rank(double *rank, const struct peft_config *c, const char *module,
                     struct ckpt_err *err)
{
    *rank = c->r;
    return match(rank, c->rank_of, module, err);
}

int peft_config_scale(float *scale, const struct peft_config *c, const char *module, int64_t r,
                      struct ckpt_err *err)
{
    double alpha = c->alpha, told;
    int rc;

    if ((rc = match(&alpha, c->alpha_of, module, err)) != 0 ||
        (rc = peft_config_rank(&told, c, module, err)) != 0)
        return rc;
    if (told != (double)r)
        ckpt_log(CKPT_LOG_WARNING, "%s: adapter_config.json says rank %g, its factors have %lld",
                 module, told, (long long)r);
    *scale = (float)(c->rslora ? alpha / sqrt((double)r) : alpha / (double)r);
    return 0;
}

const json_t *peft_config_tokens(const struct peft_config *c, const char *module)
{
    const json_t *t = json_object_get(c->json, "trainable_token_indices");
    size_t n = strlen(module);
    const char *key;
    json_t *v;

    if (json_is_array(t))
        return t;
    json_object_foreach ((json_t *)t, key, v) {
        size_t k = strlen(key);

        if (json_is_array(v) && n >= k && strcmp(module + n - k, key) == 0 &&
            (n == k || module[n - k - 1] == '.'))
            return v;
    }
    return NULL;
}
