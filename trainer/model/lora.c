/* lora - see lora.h. */
#include "trainer/model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/tokens/unicode/regex.h"
#include "formats/peft/config.h"
#include "libckpt/base/json.h"
#include "libckpt/mem.h"

#define MAX_RANK 65536

/* Names of modules: suffixes of their paths, or one pattern for whole paths. */
struct match {
    const json_t     *list;             /* NULL: none, or a pattern */
    struct regex     *re;
    struct regex_run *run;
};

struct lora {
    json_t            *config;
    struct peft_config peft;
    struct match       target, exclude;
    bool               all_linear;
    double             dropout;
    enum lora_bias     bias;
    enum lora_init     init;
};

static int refuse(struct ckpt_err *err, const char *key, const char *why)
{
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s", key, why);
}

/* Whether an option is set to a true value. */
static bool said(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return v && !json_is_null(v) && !json_is_false(v) &&
           !(json_is_array(v) && json_array_size(v) == 0) &&
           !(json_is_object(v) && json_object_size(v) == 0);
}

static int read_match(struct match *m, const json_t *config, const char *key,
                      struct ckpt_err *err)
{
    const json_t *v = json_object_get(config, key);
    char pattern[REGEX_MAX_PATTERN];
    int n;

    if (!v || json_is_null(v))
        return 0;
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!json_is_string(json_array_get(v, i)))
                return ckpt_fail(err, CKPT_ECONFIG, "%s: entry %zu is no string", key, i);
        m->list = v;
        return 0;
    }
    if (!json_is_string(v))
        return ckpt_fail(err, CKPT_ECONFIG, "%s: a list of names or one pattern is wanted", key);
    n = snprintf(pattern, sizeof pattern, "^(?:%s)$", json_string_value(v));
    if (n < 0 || (size_t)n >= sizeof pattern)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the pattern has more than %d bytes", key,
                         REGEX_MAX_PATTERN);
    if (regex_new(&m->re, pattern, (size_t)n, false, err) ||
        regex_run_new(&m->run, m->re, err))
        return ckpt_err_in(err, "%s", key);
    return 0;
}

/* Whether path equals name, or ends with "." and name. */
static bool ends(const char *path, const char *name)
{
    size_t n = strlen(path), k = strlen(name);

    return n >= k && strcmp(path + n - k, name) == 0 && (n == k || path[n - k - 1] == '.');
}

static int matches(bool *yes, const struct match *m, const char *module, struct ckpt_err *err)
{
    size_t start, end;

    *yes = false;
    if (m->re && regex_find(m->re, m->run, (const unsigned char *)module, strlen(module), 0, yes,
                            &start, &end, err))
        return ckpt_err_in(err, "adapter_config.json: a pattern for modules");
    for (size_t i = 0; m->list && !*yes && i < json_array_size(m->list); i++)
        *yes = ends(module, json_string_value(json_array_get(m->list, i)));
    return 0;
}

/* Refuse PEFT's options that are not implemented here. */
static int check_options(const json_t *c, struct ckpt_err *err)
{
    static const struct { const char *key, *why; } not[] = {
        {"target_parameters", "adapters of fused experts are merged, not trained"},
        {"lora_bias", "a bias of the low-rank change is merged, not trained"},
        {"layer_replication", "adapters of repeated layers are merged, not trained"},
        {"megatron_config", "parallel layers of Megatron are not known here"},
    };

    for (size_t i = 0; i < sizeof not / sizeof not[0]; i++)
        if (said(c, not[i].key))
            return refuse(err, not[i].key, not[i].why);
    return 0;
}

/* Other ways to start need the base or data; an adapter with one of them exists already, and its
 * factors are read. */
static void read_init(struct lora *l)
{
    const json_t *v = json_object_get(l->config, "init_lora_weights");

    if (json_is_false(v))
        l->init = LORA_INIT_BOTH;
    else if (json_is_string(v) && strcmp(json_string_value(v), "gaussian") == 0)
        l->init = LORA_INIT_GAUSSIAN;
}

static int read_bias(struct lora *l, struct ckpt_err *err)
{
    static const char *const names[] = {"none", "all", "lora_only"};
    const json_t *v = json_object_get(l->config, "bias");
    const char *text = json_string_value(v);

    if (!v || json_is_null(v))
        return 0;
    for (int i = 0; text && i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            l->bias = (enum lora_bias)i;
            return 0;
        }
    return ckpt_fail(err, CKPT_ECONFIG, "bias: %s: none, all or lora_only is wanted",
                     text ? text : "no string");
}

static int check_numbers(const struct lora *l, struct ckpt_err *err)
{
    if (!(l->peft.r >= 1 && l->peft.r <= MAX_RANK && l->peft.r == floor(l->peft.r)))
        return ckpt_fail(err, CKPT_ECONFIG, "r is %g, 1 to %d is wanted", l->peft.r, MAX_RANK);
    if (!(l->dropout >= 0 && l->dropout <= 1))
        return ckpt_fail(err, CKPT_ECONFIG, "lora_dropout is %g, 0 to 1 is wanted", l->dropout);
    return 0;
}

int lora_new(struct lora **out, const json_t *config, struct ckpt_err *err)
{
    struct lora *l = ckpt_alloc(1, sizeof *l);
    const json_t *target;
    int rc;

    *out = NULL;
    if (!l)
        return ckpt_nomem(err, sizeof *l);
    config = l->config = json_deep_copy(config);
    rc = l->config ? peft_config_init(&l->peft, config, err) : ckpt_nomem(err, sizeof *l);
    if (rc) {
        json_decref(l->config);
        ckpt_free(l);
        return rc;
    }
    target = json_object_get(config, "target_modules");
    l->all_linear = json_is_string(target) &&
                    strcasecmp(json_string_value(target), "all-linear") == 0;
    read_init(l);
    rc = check_options(config, err);
    if (rc == 0 && !l->all_linear)
        rc = read_match(&l->target, config, "target_modules", err);
    if (rc == 0)
        rc = read_match(&l->exclude, config, "exclude_modules", err);
    if (rc == 0)
        rc = ckpt_json_num_or(&l->dropout, config, "lora_dropout", 0, err);
    if (rc == 0)
        rc = read_bias(l, err);
    if (rc == 0)
        rc = check_numbers(l, err);
    if (rc == 0)
        *out = l;
    else
        lora_free(l);
    return rc ? ckpt_err_in(err, "adapter_config.json") : 0;
}

void lora_free(struct lora *l)
{
    if (!l)
        return;
    regex_run_free(l->target.run);
    regex_free(l->target.re);
    regex_run_free(l->exclude.run);
    regex_free(l->exclude.re);
    peft_config_release(&l->peft);
    json_decref(l->config);
    ckpt_free(l);
}

/* The first number after a dot and a name: "model.layers.3.mlp" gives 3; -1: none. */
static int64_t layer_of(const char *module)
{
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = strspn(dot + 1, "0123456789");

        if (n > 0 && n < 10 && dot[1 + n] == '.' && dot > module)
            return (int64_t)strtol(dot + 1, NULL, 10);
    }
    return -1;
}

/* The number after one of the given names, anywhere in the path. */
static int64_t layer_by(const char *module, const char *name)
{
    size_t k = strlen(name);

    for (const char *at = strstr(module, name); at; at = strstr(at + 1, name)) {
        size_t n = at[k] == '.' ? strspn(at + k + 1, "0123456789") : 0;

        if ((at == module || at[-1] == '.') && n > 0 && n < 10 && at[k + 1 + n] == '.')
            return (int64_t)strtol(at + k + 1, NULL, 10);
    }
    return -1;
}

/* Apply layers_to_transform and layers_pattern, which are used for a list of targets only. */
static bool layer_wanted(const struct lora *l, const char *module)
{
    const json_t *which = json_object_get(l->config, "layers_to_transform");
    const json_t *pattern = json_object_get(l->config, "layers_pattern");
    int64_t layer = -1;

    if (!l->target.list || !which || json_is_null(which) ||
        (json_is_array(which) && json_array_size(which) == 0))
        return true;
    if (json_is_string(pattern) && json_string_length(pattern))
        layer = layer_by(module, json_string_value(pattern));
    else if (json_is_array(pattern) && json_array_size(pattern))
        for (size_t i = 0; layer < 0 && i < json_array_size(pattern); i++)
            layer = layer_by(module, json_string_value(json_array_get(pattern, i)));
    else
        layer = layer_of(module);
    if (json_is_integer(which))
        return layer >= 0 && json_integer_value(which) == layer;
    for (size_t i = 0; layer >= 0 && i < json_array_size(which); i++)
        if (json_integer_value(json_array_get(which, i)) == layer)
            return true;
    return false;
}

/* Whether a part of the path is in modules_to_save: such a module is never a target. */
static bool below_saved(const struct lora *l, const char *module)
{
    const json_t *list = json_object_get(l->config, "modules_to_save");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t k = name ? strlen(name) : 0;

        for (const char *at = k ? strstr(module, name) : NULL; at; at = strstr(at + 1, name))
            if ((at == module || at[-1] == '.') && (at[k] == '\0' || at[k] == '.'))
                return true;
    }
    return false;
}

static int is_target(bool *yes, const struct lora *l, const char *module, enum lora_module kind,
                     struct ckpt_err *err)
{
    bool excluded;
    int rc;

    *yes = false;
    rc = matches(&excluded, &l->exclude, module, err);
    if (rc)
        return rc;
    if (excluded || below_saved(l, module))
        return 0;
    if (l->all_linear)
        *yes = kind == LORA_LINEAR;
    else if ((rc = matches(yes, &l->target, module, err)) != 0)
        return rc;
    *yes = *yes && layer_wanted(l, module);
    return 0;
}

int lora_delta(struct lora_delta *out, const struct lora *l, const char *module,
                enum lora_module kind, struct ckpt_err *err)
{
    double rank;
    bool yes;
    int rc;

    *out = (struct lora_delta){0};
    if ((rc = is_target(&yes, l, module, kind, err)) != 0 || !yes)
        return rc;
    if (kind == LORA_OTHER)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "target_modules: %s is neither a projection nor "
                         "the embedding of tokens, and is not changed by an adapter", module);
    if (kind == LORA_HEAD)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "target_modules: %s: the head is trained whole "
                         "(modules_to_save), not by an adapter", module);
    if (kind == LORA_EMBEDDING && l->peft.dora)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "target_modules: %s: use_dora is not trained on an embedding", module);
    rc = peft_config_rank(&rank, &l->peft, module, err);
    if (rc)
        return ckpt_err_in(err, "adapter_config.json");
    if (!(rank >= 1 && rank <= MAX_RANK && rank == floor(rank)))
        return ckpt_fail(err, CKPT_ECONFIG, "adapter_config.json: rank_pattern: %s: rank %g, 1 to "
                         "%d is wanted", module, rank, MAX_RANK);
    out->rank = (int64_t)rank;
    out->magnitude = l->peft.dora;
    rc = peft_config_scale(&out->scale, &l->peft, module, out->rank, err);
    return rc ? ckpt_err_in(err, "adapter_config.json") : 0;
}

bool lora_saves(const struct lora *l, const char *param)
{
    const json_t *list = json_object_get(l->config, "modules_to_save");

    /* Each module above the parameter is compared by the end of its path, with or without a dot. */
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t k = name ? strlen(name) : 0;

        for (const char *dot = k ? strchr(param, '.') : NULL; dot; dot = strchr(dot + 1, '.'))
            if ((size_t)(dot - param) >= k && strncmp(dot - k, name, k) == 0)
                return true;
    }
    return false;
}

bool lora_stores_base(const struct lora *l, const char *module)
{
    static const char name[] = "embed_tokens";

    if (!ends(module, name))
        return false;
    for (size_t i = 0; i < json_array_size(l->target.list); i++)
        if (strcmp(json_string_value(json_array_get(l->target.list, i)), name) == 0)
            return true;
    return l->target.re != NULL;
}

const json_t *lora_tokens(const struct lora *l, const char *module)
{
    return peft_config_tokens(&l->peft, module);
}

enum lora_bias lora_bias(const struct lora *l) { return l->bias; }
enum lora_init lora_init(const struct lora *l) { return l->init; }
double lora_dropout(const struct lora *l) { return l->dropout; }
bool lora_is_all_linear(const struct lora *l) { return l->all_linear; }
bool lora_has_magnitude(const struct lora *l) { return l->peft.dora; }
const json_t *lora_config(const struct lora *l) { return l->config; }

int64_t lora_max_rank(const struct lora *l)
{
    const json_t *v;
    const char *key;
    double most = l->peft.r;

    json_object_foreach (json_object_get(l->config, "rank_pattern"), key, v)
        most = fmax(most, json_number_value(v));
    return (int64_t)fmin(most, MAX_RANK);
}
