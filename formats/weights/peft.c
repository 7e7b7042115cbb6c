/*
 * peft - see peft.h.  Source: peft 0.21 tuners/lora/{config,layer}.py,
 * utils/save_and_load.py.
 */
#include "formats/weights/peft.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/place.h"
#include "formats/tokens/regex.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/torch.h"
#include "libckpt/json.h"
#include "libckpt/view_lora.h"

static const struct kind { const char *file; const struct ckpt_format *format; } kinds[] = {
    {"adapter_model.safetensors", &ckpt_format_safetensors},
    {"adapter_model.bin", &ckpt_format_torch},
};

struct peft {
    struct ckpt_dir    *dir;
    struct ckpt_source *weights;
};

static void close_peft(void *self)
{
    struct peft *p = self;

    ckpt_source_close(p->weights);
    ckpt_dir_close(p->dir);
    ckpt_free(p);
}

static const struct ckpt_source_ops ops = {.format = "peft", .close = close_peft};

static const struct kind *kind_of(const struct ckpt_place *p)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (place_has(p, kinds[i].file))
            return &kinds[i];
    return NULL;
}

static int bid(const struct ckpt_place *p)
{
    return p->dir && place_has(p, "adapter_config.json") && kind_of(p) ? 60 : 0;
}

static int open_weights(struct peft *p, struct ckpt_tensors *list, const struct kind *k,
                        struct ckpt_err *err)
{
    static const struct ckpt_open_opts none;
    struct ckpt_place place;
    struct ckpt_file *file;

    if (ckpt_file_open_at(&file, p->dir, k->file, err) || place_of_file(&place, file, err))
        return err->code;
    if (k->format->open(&p->weights, &place, &none, err)) {
        place_close(&place);
        return err->code;
    }
    for (size_t i = 0; i < ckpt_source_count(p->weights); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(p->weights, i);

        if (ckpt_tensors_add(list, NULL, t->name, strlen(t->name), t->dtype, &t->shape, t->frag,
                             t->n_frag, t->flat, err))
            return err->code;
    }
    return 0;
}

static int open_source(struct ckpt_source **out, struct ckpt_place *place,
                       const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    const struct kind *k = place->dir ? kind_of(place) : NULL;
    struct ckpt_tensors list = {0};
    struct ckpt_file *file = NULL;
    json_t *config = NULL;
    struct peft *p;
    int rc;

    (void)opts;
    *out = NULL;
    if (!k)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no adapter_model.safetensors or .bin in it",
                         place->path);
    p = ckpt_alloc(1, sizeof *p);
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    p->dir = place->dir;
    place->took = true;
    rc = ckpt_file_open_at(&file, p->dir, "adapter_config.json", err);
    if (rc == 0)
        rc = ckpt_json_read(&config, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(file);
    if (rc == 0)
        rc = open_weights(p, &list, k, err);
    if (rc) {
        json_decref(config);
        ckpt_tensors_release(&list);
        close_peft(p);
        return rc;
    }
    return ckpt_source_new(out, &ops, p, &list, NULL, 0,
                           json_pack("{s:s,s:o}", "format", "peft", "adapter_config", config), err);
}

const struct ckpt_format ckpt_format_peft = {
    .name = "peft", .title = "LoRA adapter", .bid = bid, .open = open_source,
};

/* -- merging --------------------------------------------------------------------------------- */

struct merge {
    const struct ckpt_source *base, *adapter;
    const json_t             *config;
    double                    alpha;
    bool                      rslora;
    struct ckpt_lora_update  *update;
    size_t                    n;
    struct ckpt_err          *err;
};

/* Kinds of adapters whose mathematics is another one. */
static int check_config(struct merge *m)
{
    static const char *const others[] = {"use_dora", "use_qalora", "arrow_config",
                                         "alora_invocation_tokens", "use_bdlora", "kasa_config",
                                         "velora_config", "monteclora_config",
                                         "layer_replication", "trainable_token_indices",
                                         "target_parameters", "lora_bias"};
    const char *type;
    bool set;

    if (ckpt_json_str(&type, m->config, "peft_type", m->err))
        return m->err->code;
    if (strcmp(type, "LORA") != 0)
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED, "peft_type %s is not merged, only LORA", type);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        const json_t *v = json_object_get(m->config, others[i]);

        set = v && !json_is_null(v) && !json_is_false(v) &&
              !(json_is_array(v) && json_array_size(v) == 0) &&
              !(json_is_object(v) && json_object_size(v) == 0);
        if (set)
            return ckpt_fail(m->err, CKPT_EUNSUPPORTED, "adapters with %s are not merged",
                             others[i]);
    }
    return ckpt_json_num_or(&m->alpha, m->config, "lora_alpha", 8, m->err) ||
                   ckpt_json_bool_or(&m->rslora, m->config, "use_rslora", false, m->err)
               ? m->err->code : 0;
}

/* module + suffix in the base, with and without the prefixes that wrappers add; or SIZE_MAX. */
static size_t find_base(const struct merge *m, const char *module, const char *suffix)
{
    static const char *const prefixes[] = {"model.", "transformer.", "base_model."};
    char name[CKPT_MAX_NAME + 64];
    size_t i;

    snprintf(name, sizeof name, "%s%s", module, suffix);
    i = ckpt_source_find(m->base, name);
    for (size_t k = 0; i == SIZE_MAX && k < 3; k++) {
        size_t n = strlen(prefixes[k]);

        if (strncmp(module, prefixes[k], n) == 0) {
            snprintf(name, sizeof name, "%s%s", module + n, suffix);
        } else {
            snprintf(name, sizeof name, "%s%s%s", prefixes[k], module, suffix);
        }
        i = ckpt_source_find(m->base, name);
    }
    return i;
}

/* alpha_pattern: keys are patterns for the end of the module's name; the first hit counts. */
static int alpha_of(struct merge *m, double *alpha, const char *module)
{
    const json_t *patterns = json_object_get(m->config, "alpha_pattern");
    const char *key;
    json_t *v;

    *alpha = m->alpha;
    json_object_foreach ((json_t *)patterns, key, v) {
        struct regex *re = NULL;
        struct regex_run *run = NULL;
        char pattern[1200];
        bool found = false;
        size_t start, end;
        int rc;

        if (!json_is_number(v) || strlen(key) > 1000)
            return ckpt_fail(m->err, CKPT_EFORMAT, "alpha_pattern: %s is no number", key);
        snprintf(pattern, sizeof pattern, "^(?:.*\\.)?(?:%s)$", key);
        rc = regex_new(&re, pattern, strlen(pattern), false, m->err);
        if (rc == 0)
            rc = regex_run_new(&run, re, m->err);
        if (rc == 0)
            rc = regex_find(re, run, (const unsigned char *)module, strlen(module), 0, &found,
                            &start, &end, m->err);
        regex_run_free(run);
        regex_free(re);
        if (rc)
            return ckpt_err_in(m->err, "alpha_pattern");
        if (found) {
            *alpha = json_number_value(v);
            return 0;
        }
    }
    return 0;
}

/* A factor: its partner is looked up by name, the update made when A is met. */
static int add_pair(struct merge *m, size_t a, const char *module, const char *name_b,
                    bool embedding)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(m->adapter, a);
    struct ckpt_lora_update *u = &m->update[m->n];
    bool fan;
    double alpha, r;

    if (t->shape.rank != 2 || t->numel == 0)
        return ckpt_fail(m->err, CKPT_EFORMAT,
                         "%s: is empty or no matrix: saved from ZeRO-3 without gathering", t->name);
    u->a = a;
    u->b = ckpt_source_find(m->adapter, name_b);
    u->base = find_base(m, module, ".weight");
    if (u->b == SIZE_MAX)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: its partner %s is absent", t->name, name_b);
    if (u->base == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected",
                            "%s: the base has no %s.weight", t->name, module);
    if (alpha_of(m, &alpha, module) ||
        ckpt_json_bool_or(&fan, m->config, "fan_in_fan_out", false, m->err))
        return m->err->code;
    r = (double)t->shape.dim[0];
    u->scale = (float)(m->rslora ? alpha / sqrt(r) : alpha / r);
    u->transposed = fan || embedding;
    m->n++;
    return 0;
}

static bool ends(const char *s, size_t n, const char *tail)
{
    size_t k = strlen(tail);

    return n > k && strcmp(s + n - k, tail) == 0;
}

/* One tensor of the adapter: half of a pair, or a whole copy of one of the base's. */
static int take(struct merge *m, size_t i)
{
    static const char prefix[] = "base_model.model.";
    static const struct { const char *a, *b; bool embedding; } pairs[] = {
        {".lora_A.weight", ".lora_B.weight", false},
        {".lora_embedding_A", ".lora_embedding_B", true},
    };
    const struct ckpt_tensor *t = ckpt_source_tensor(m->adapter, i);
    char module[CKPT_MAX_NAME + 1], other[CKPT_MAX_NAME + 64];
    size_t n = strlen(t->name), skip = sizeof prefix - 1, base;

    if (strncmp(t->name, prefix, skip) != 0)
        skip = 0;
    for (size_t k = 0; k < 2; k++) {
        if (ends(t->name, n, pairs[k].b))
            return 0;                   /* taken with its A */
        if (!ends(t->name, n, pairs[k].a))
            continue;
        snprintf(other, sizeof other, "%.*s%s", (int)(n - strlen(pairs[k].a)), t->name,
                 pairs[k].b);
        snprintf(module, sizeof module, "%.*s", (int)(n - strlen(pairs[k].a) - skip),
                 t->name + skip);
        return add_pair(m, i, module, other, pairs[k].embedding);
    }
    if (ends(t->name, n, ".base_layer.weight"))
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                         "%s: adapters that carry a base matrix of their own are not merged",
                         t->name);
    snprintf(module, sizeof module, "%s", t->name + skip);
    if (ends(t->name, n, ".base_layer.bias"))
        snprintf(module, sizeof module, "%.*s.bias",
                 (int)(n - skip - strlen(".base_layer.bias")), t->name + skip);
    base = find_base(m, module, "");
    if (base == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: matches nothing in the base",
                            t->name);
    m->update[m->n++] = (struct ckpt_lora_update){.base = base, .a = i, .replace = true};
    return 0;
}

int peft_merge(struct ckpt_source **out, struct ckpt_source *base, struct ckpt_source *adapter,
               struct ckpt_err *err)
{
    struct merge m = {.base = base, .adapter = adapter, .err = err,
                      .config = json_object_get(ckpt_source_info(adapter), "adapter_config")};
    size_t n = ckpt_source_count(adapter);
    int rc = 0;

    *out = NULL;
    m.update = ckpt_alloc(n, sizeof *m.update);
    if (!m.update)
        rc = ckpt_nomem(err, n * sizeof *m.update);
    if (rc == 0)
        rc = check_config(&m);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take(&m, i);
    if (rc == 0 && m.n == 0)
        rc = ckpt_fail(err, CKPT_EMISMATCH, "the adapter has no tensors");
    if (rc) {
        ckpt_source_close(base);
        ckpt_source_close(adapter);
    } else {
        rc = ckpt_view_lora(out, base, adapter, m.update, m.n, err);
    }
    ckpt_free(m.update);
    return rc;
}
