/* adapter - see adapter.h. */
#include "trainer/checkpoint/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/formats.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/io/path.h"
#include "formats/families/arch.h"
#include "formats/families/family.h"
#include "trainer/model/lora.h"
#include "trainer/rng.h"
#include "trainer/checkpoint/weights.h"

bool adapter_wanted(const struct settings *s) { return s->lora_rank > 0 || s->adapter; }

/* -- from options ----------------------------------------------------------------------------- */

/* A list of the names in n texts, each of which may hold several, separated by commas. */
static json_t *names_of(const char *const *text, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < n; i++)
        for (const char *at = text[i]; *at; at += *at == ',') {
            size_t len = strcspn(at, ",");

            if (len && json_array_append_new(list, json_stringn(at, len))) {
                json_decref(list);
                return NULL;
            }
            at += len;
        }
    return list;
}

/* Whether it is a single text that is not a list of names: all-linear, or a pattern. */
static bool is_pattern(const char *const *text, size_t n)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,";

    return n == 1 && (strspn(text[0], name) != strlen(text[0]));
}

static int targets_of(json_t **out, const struct settings *s, const struct arch *arch,
                      struct ckpt_err *err)
{
    const char *usual = arch->family->lora_targets;

    if (s->n_target_modules == 0 && !usual)
        return ckpt_fail(err, CKPT_ECONFIG, "`target_modules` is missing, and there is no default "
                         "for %s", arch->family->model_type);
    *out = s->n_target_modules == 0               ? names_of(&usual, 1)
           : is_pattern(s->target_modules, s->n_target_modules) ? json_string(s->target_modules[0])
                                                  : names_of(s->target_modules,
                                                             s->n_target_modules);
    return *out ? 0 : ckpt_nomem(err, 64);
}

/* "name=number" texts as an object. */
static int patterns_of(json_t **out, const char *setting, const char *const *text, size_t n,
                       bool whole, struct ckpt_err *err)
{
    *out = json_object();
    for (size_t i = 0; *out && i < n; i++) {
        const char *eq = strrchr(text[i], '=');
        char *end = NULL, key[CKPT_MAX_NAME + 1];
        double v = eq ? strtod(eq + 1, &end) : 0;

        if (!eq || eq == text[i] || end == eq + 1 || *end || !(v > 0) || (whole && v != floor(v)))
            return ckpt_fail(err, CKPT_ECONFIG, "`%s %s`: wanted NAME=NUMBER", setting, text[i]);
        snprintf(key, sizeof key, "%.*s", (int)(eq - text[i]), text[i]);
        json_object_set_new(*out, key, v == floor(v) ? json_integer((json_int_t)v) : json_real(v));
    }
    return *out ? 0 : ckpt_nomem(err, 64);
}

/* Token ids in PEFT's form: keyed by the embedding's name. */
static int tokens_of(json_t **out, const struct settings *s, const struct arch *arch,
                     struct ckpt_err *err)
{
    const char *name = arch_tokens_name(arch), *dot = strrchr(name, '.');
    json_t *list = names_of(s->trainable_token_indices, s->n_trainable_token_indices);
    char key[128];

    for (size_t i = 0; list && i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        char *end;
        long id = strtol(text, &end, 10);

        if (*end || id < 0) {
            int rc = ckpt_fail(err, CKPT_ECONFIG, "`trainable_token_indices %s`: an id is wanted",
                               text);

            json_decref(list);
            return rc;
        }
        json_array_set_new(list, i, json_integer(id));
    }
    snprintf(key, sizeof key, "%.*s", (int)(dot ? dot - name : (long)strlen(name)), name);
    *out = json_array_size(list) ? json_pack("{s:o}", key, list) : json_null();
    if (!json_array_size(list))
        json_decref(list);
    return *out ? 0 : ckpt_nomem(err, 64);
}

static json_t *init_of(const char *text)
{
    return strcmp(text, "gaussian") == 0 ? json_string(text)
                                         : json_boolean(strcmp(text, "true") == 0);
}

static json_t *number(double v)
{
    return v == floor(v) ? json_integer((json_int_t)v) : json_real(v);
}

int adapter_config_of(json_t **out, const struct settings *s, const struct arch *arch,
                      struct ckpt_err *err)
{
    json_t *targets = NULL, *ranks = NULL, *alphas = NULL, *tokens = NULL, *save = NULL;
    json_t *exclude = NULL;
    int rc = targets_of(&targets, s, arch, err);

    if (rc == 0)
        rc = patterns_of(&ranks, "rank_pattern", s->rank_pattern, s->n_rank_pattern, true, err);
    if (rc == 0)
        rc = patterns_of(&alphas, "alpha_pattern", s->alpha_pattern, s->n_alpha_pattern, false,
                         err);
    if (rc == 0)
        rc = tokens_of(&tokens, s, arch, err);
    if (rc == 0) {
        save = s->n_modules_to_save ? names_of(s->modules_to_save, s->n_modules_to_save)
                                    : json_null();
        exclude = s->n_exclude_modules == 0 ? json_null()
                  : is_pattern(s->exclude_modules, s->n_exclude_modules)
                      ? json_string(s->exclude_modules[0])
                      : names_of(s->exclude_modules, s->n_exclude_modules);
    }
    *out = rc ? NULL
              : json_pack("{s:s,s:s,s:s?,s:I,s:o,s:f,s:O,s:O,s:s,s:b,s:b,s:b,s:O,s:O,s:o,s:b,"
                          "s:O,s:O}",
                          "peft_type", "LORA", "task_type",
                          arch->stack == ARCH_DECODER ? "CAUSAL_LM" : "SEQ_2_SEQ_LM",
                          "base_model_name_or_path", s->model, "r", (json_int_t)s->lora_rank,
                          "lora_alpha", number(s->lora_alpha), "lora_dropout", s->lora_dropout,
                          "target_modules", targets, "modules_to_save", save, "bias",
                          s->lora_bias, "fan_in_fan_out", arch->weight_order == ARCH_IN_OUT,
                          "use_rslora", s->use_rslora, "use_dora", s->use_dora, "rank_pattern",
                          ranks, "alpha_pattern", alphas, "init_lora_weights",
                          init_of(s->init_lora_weights), "inference_mode", true,
                          "trainable_token_indices", tokens, "exclude_modules", exclude);
    if (rc == 0 && !*out)
        rc = ckpt_nomem(err, 1024);
    json_decref(targets);
    json_decref(ranks);
    json_decref(alphas);
    json_decref(tokens);
    json_decref(save);
    json_decref(exclude);
    return rc;
}

int adapter_same(const json_t *saved, const json_t *wanted, const char *path,
                 struct ckpt_err *err)
{
    /* Targets are not compared: all-linear is replaced by names when it is saved. */
    static const char *const keys[] = {
        "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "bias", "rank_pattern",
        "alpha_pattern", "modules_to_save", "trainable_token_indices",
    };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *a = json_object_get(saved, keys[i]), *b = json_object_get(wanted, keys[i]);
        bool same = json_is_number(a) && json_is_number(b)
                        ? json_number_value(a) == json_number_value(b)
                        : json_equal(a, b);

        if (!same)
            return ckpt_fail(err, CKPT_EMISMATCH, "%s: the adapter has another %s than the options "
                             "of this run", path, keys[i]);
    }
    return 0;
}

/* Whether a list has each text of another one. */
static bool has_all(const json_t *list, const json_t *of)
{
    json_t *name, *other;
    size_t i, k;

    json_array_foreach ((json_t *)of, i, name) {
        bool there = false;

        json_array_foreach ((json_t *)list, k, other)
            there |= json_equal(name, other);
        if (!there)
            return false;
    }
    return true;
}

/* Lists are sets; a pattern is a text. */
static bool same_modules(const json_t *a, const json_t *b)
{
    return json_is_array(a) && json_is_array(b) ? has_all(a, b) && has_all(b, a) : json_equal(a, b);
}

void adapter_tell_modules(const json_t *saved, const json_t *wanted, const struct settings *s,
                          const char *path)
{
    const struct { const char *key; bool given; } keys[] = {
        {"target_modules", s->n_target_modules > 0},
        {"exclude_modules", s->n_exclude_modules > 0}};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *is = json_object_get(wanted, keys[i].key);
        const char *text = json_string_value(is);

        if (keys[i].given && !(text && strcmp(text, "all-linear") == 0) &&
            !same_modules(json_object_get(saved, keys[i].key), is))
            ckpt_log(CKPT_LOG_WARNING, "%s: the adapter goes on with its own modules, not with "
                     "`%s` of this run", path, keys[i].key);
    }
}

/* -- from a directory ------------------------------------------------------------------------- */

bool adapter_lies_at(const char *path)
{
    char file[4200];

    snprintf(file, sizeof file, "%s/adapter_config.json", path);
    return ckpt_path_is_file(file);
}

int adapter_base(char path[4096], const json_t *config, const char *dir, struct ckpt_err *err)
{
    const char *base = json_string_value(json_object_get(config, "base_model_name_or_path"));

    if (!base || !*base)
        return ckpt_fail(err, CKPT_ECONFIG, "%s: adapter_config.json names no base: `model DIR` is "
                         "wanted", dir);
    snprintf(path, 4096, "%s", base);
    /* The base is beside the adapter; for an adapter that is on the Hub, it is there. */
    if (base[0] != '/' && !ckpt_path_is_remote(path) && !ckpt_path_is_dir(path) &&
        !ckpt_path_is_file(path))
        snprintf(path, 4096, "%s%s%s", strncmp(dir, "hf://", 5) == 0 ? "hf:/" : dir, "/", base);
    return 0;
}

int adapter_config_read(json_t **out, const char *dir, struct ckpt_err *err)
{
    struct ckpt_dir *d = NULL;
    struct ckpt_file *f = NULL;
    int rc = ckpt_path_dir(&d, dir, CKPT_FOLLOW | CKPT_PROVE, err);

    *out = NULL;
    if (rc == 0)
        rc = ckpt_file_open_at(&f, d, "adapter_config.json", err);
    if (rc == 0)
        rc = ckpt_json_read(out, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(f);
    ckpt_dir_close(d);
    return rc;
}

/* Whether an option is a list with entries, or true. */
static bool said(const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);

    return json_is_true(v) || json_array_size(v) > 0;
}

/* Whether an adapter's tensor changes the head by factors or rows, or an embedding otherwise than
 * that of tokens is changed here. */
static bool is_other(const char *name, const char *tokens, bool dora)
{
    const char *head = strstr(name, ".lm_head."), *table = strstr(name, ".lora_embedding_");
    size_t n = table ? (size_t)(table - name) : 0, k = strlen(tokens);

    if (head && (strstr(head, ".lora_") || strstr(head, ".token_adapter.")))
        return true;
    return table && (dora || n < k || strncmp(table - k, tokens, k) != 0);
}

/* Rows of a copy of the embedding, whose module's name is `tokens`; 0: it is none. */
static int64_t rows_of_copy(const struct ckpt_tensor *t, const char *tokens)
{
    static const char *const tails[] = {".weight", ".base_layer.weight",
                                        ".token_adapter.base_layer.weight"};
    size_t n = strlen(t->name), k = strlen(tokens);

    for (size_t i = 0; t->shape.rank == 2 && i < sizeof tails / sizeof tails[0]; i++) {
        size_t m = strlen(tails[i]);

        if (n > m + k && strcmp(t->name + n - m, tails[i]) == 0 && t->name[n - m - k - 1] == '.' &&
            strncmp(t->name + n - m - k, tokens, k) == 0)
            return t->shape.dim[0];
    }
    return 0;
}

int adapter_must_fold(bool *must, int64_t *vocab, const json_t *config, const char *dir,
                      const struct arch *arch, struct ckpt_err *err)
{
    static const char *const always[] = {"target_parameters", "lora_bias", "ensure_weight_tying"};
    char tokens[CKPT_MAX_NAME + 1];
    struct ckpt_source *src;
    int rc = ckpt_open_as(&src, "peft", dir, NULL, err);

    *vocab = arch->vocab_size;
    *must = arch->num_experts > 0 && said(config, "modules_to_save");
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        *must |= said(config, always[i]);
    snprintf(tokens, sizeof tokens, "%s", arch_tokens_name(arch));
    if (strrchr(tokens, '.'))
        *strrchr(tokens, '.') = '\0';
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        int64_t rows = rows_of_copy(t, tokens);

        *vocab = rows > 0 ? rows : *vocab;
        *must |= is_other(t->name, tokens, said(config, "use_dora"));
    }
    *must |= *vocab != arch->vocab_size;
    ckpt_source_close(src);
    return 0;
}

int adapter_load(struct session *s, const char *dir, struct ckpt_err *err)
{
    const struct flat *flat = zero_flat(s->zero);
    size_t *index = ckpt_alloc(flat->params->n, sizeof *index);
    struct ckpt_source *src = NULL;
    int rc = index ? ckpt_open_as(&src, "peft", dir, NULL, err)
                   : ckpt_nomem(err, flat->params->n * sizeof *index);

    if (rc == 0)
        rc = weights_match_saved(index, flat->params, src, NULL, false, err);
    if (rc == 0)
        rc = weights_load(s->zero, ZERO_MASTER, src, index, NULL, err);
    if (rc)
        ckpt_err_in(err, "%s", dir);
    ckpt_source_close(src);
    ckpt_free(index);
    return comm_agree(s->comm, rc, err);
}

/* -- initial values --------------------------------------------------------------------------- */

/* Elements [start, start + count) of an array uniform in [-bound, bound). */
static void uniform(float *dst, int64_t start, int64_t count, double bound, uint64_t seed,
                    uint64_t stream)
{
    for (int64_t i = 0; i < count; i++)
        dst[i] = (float)(bound * (2 * rng_uniform(seed, stream, (uint64_t)(start + i)) - 1));
}

/* Fill A and B; other parameters are unchanged. */
static void fill_factor(struct session *s, const struct param *p, struct flat_piece piece,
                        uint64_t seed, float *dst)
{
    bool embedding = p->role == ROLE_TOKENS, both = lora_init(s->lora) == LORA_INIT_BOTH;
    uint64_t stream = rng_stream(p->name);
    int64_t r = p->kind == PARAM_LORA_A ? p->shape.dim[0] : p->shape.dim[1];

    if (embedding && (both || p->kind == PARAM_LORA_B))
        rng_normal_by(s->dev->threads, dst, piece.start, piece.count, 1.0f, seed, stream);
    else if (embedding || (p->kind == PARAM_LORA_B && !both))
        memset(dst, 0, (size_t)piece.count * sizeof *dst);
    else if (p->kind == PARAM_LORA_A && lora_init(s->lora) == LORA_INIT_GAUSSIAN)
        rng_normal_by(s->dev->threads, dst, piece.start, piece.count, 1.0f / (float)r, seed,
                      stream);
    else                                /* kaiming_uniform with a = sqrt 5: 1 / sqrt(fan_in) */
        uniform(dst, piece.start, piece.count, 1.0 / sqrt((double)p->shape.dim[1]), seed, stream);
}

/* Fill a magnitude: norms of the rows of W + scale B A; the layer's weights are complete. */
static void fill_magnitude(struct session *s, size_t i, struct flat_piece piece,
                           const float *layer, float *dst)
{
    const struct params *p = zero_flat(s->zero)->params;
    const struct param *a = &p->item[i - 2], *b = &p->item[i - 1], *w = a;
    int64_t n_out = p->item[i].numel, n_in = a->shape.dim[1], r = a->shape.dim[0];
    bool in_out;

    while (w->kind != PARAM_BASE || w->role != a->role)
        w--;
    in_out = s->arch->weight_order == ARCH_IN_OUT && role_is_transposed((enum role)w->role);
    for (int64_t o = piece.start; o < piece.start + piece.count; o++) {
        double sum = 0;

        for (int64_t j = 0; j < n_in; j++) {
            double v = (double)layer[w->offset + (in_out ? j * n_out + o : o * n_in + j)];

            for (int64_t k = 0; k < r; k++)
                v += (double)(a->scale * layer[b->offset + o * r + k] *
                              layer[a->offset + k * n_in + j]);
            sum += v * v;
        }
        dst[o - piece.start] = (float)sqrt(sum);
    }
}

/* Token rows start as rows of the embedding. */
static void fill_tokens(struct session *s, const struct param *p, struct flat_piece piece,
                        const float *layer, float *dst)
{
    const struct params *list = zero_flat(s->zero)->params;
    const json_t *ids = params_token_list(list, s->lora);
    const struct param *table = list->item;
    int64_t dim = p->shape.dim[1];

    while (table->role != ROLE_TOKENS || table->kind != PARAM_BASE)
        table++;
    for (int64_t e = piece.start; e < piece.start + piece.count; e++) {
        int64_t id = json_integer_value(json_array_get(ids, (size_t)(e / dim)));

        dst[e - piece.start] = layer[table->offset + id * dim + e % dim];
    }
}

/* Arguments of the fill functions. */
struct fresh {
    struct session *s;
    uint64_t        seed;
    int             layer;               /* layer whose weights are complete; -1: none */
    const float    *whole;
};

static int fill_factors(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                        struct ckpt_err *err)
{
    const struct fresh *f = ctx;
    const struct param *p = &zero_flat(f->s->zero)->params->item[i];

    (void)err;
    if (p->kind != PARAM_LORA_A && p->kind != PARAM_LORA_B)
        return ZERO_LEAVES;
    fill_factor(f->s, p, (struct flat_piece){.start = start, .count = count}, f->seed, dst);
    return 0;
}

/* Fill parameters of the layer whose weights are complete. */
static int fill_from_base(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                          struct ckpt_err *err)
{
    const struct fresh *f = ctx;
    const struct param *p = &zero_flat(f->s->zero)->params->item[i];
    struct flat_piece piece = {.start = start, .count = count};

    (void)err;
    if (p->layer != f->layer || (p->kind != PARAM_MAGNITUDE && p->kind != PARAM_TOKENS))
        return ZERO_LEAVES;
    if (p->kind == PARAM_MAGNITUDE)
        fill_magnitude(f->s, i, piece, f->whole, dst);
    else
        fill_tokens(f->s, p, piece, f->whole, dst);
    return 0;
}

/* Whether a parameter of the layer starts from a value of the base. */
static bool from_base(const struct flat *f, int layer)
{
    bool any = false;

    for (size_t i = 0; i < f->params->n; i++)
        any |= f->params->item[i].layer == layer && (f->params->item[i].kind == PARAM_MAGNITUDE ||
                                                   f->params->item[i].kind == PARAM_TOKENS);
    return any;
}

int adapter_init(struct session *s, uint64_t seed, struct ckpt_err *err)
{
    const struct flat *f = zero_flat(s->zero);
    struct fresh fresh = {.s = s, .seed = seed, .layer = -1};
    int rc = zero_fill(s->zero, ZERO_MASTER, fill_factors, &fresh, err);

    /* Magnitudes are norms of the adapted weights: LoRA must be filled before. */
    for (int layer = 0; layer < f->params->n_layers; layer++) {
        if (!from_base(f, layer))
            continue;
        fresh.layer = layer;
        fresh.whole = zero_master(s->zero, layer, rc ? &(struct ckpt_err){0} : err);
        if (rc == 0)
            rc = fresh.whole ? zero_fill(s->zero, ZERO_MASTER, fill_from_base, &fresh, err)
                             : ckpt_err_code(err);
    }
    return comm_agree(s->comm, rc, err);
}

/* -- saving ----------------------------------------------------------------------------------- */

/* The paths of all modules with LoRA. */
static json_t *changed_modules(const struct params *p)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < p->n; i++) {
        static const char prefix[] = "base_model.model.", tail[] = ".lora_A.weight";
        const char *name = p->item[i].name;

        if (p->item[i].kind == PARAM_LORA_A && p->item[i].role != ROLE_TOKENS)
            json_array_append_new(list, json_stringn(name + sizeof prefix - 1,
                                                     strlen(name) - (sizeof prefix - 1) -
                                                         (sizeof tail - 1)));
    }
    return list;
}

int adapter_save_config(struct session *s, const char *base, struct ckpt_outdir *dir,
                        struct ckpt_err *err)
{
    json_t *c = json_copy((json_t *)(uintptr_t)lora_config(s->lora));
    struct ckpt_buf b;
    int rc = c ? 0 : ckpt_nomem(err, 1024);

    ckpt_buf_init(&b, (size_t)1 << 26);
    if (rc == 0 && lora_is_all_linear(s->lora))
        json_object_set_new(c, "target_modules", changed_modules(zero_flat(s->zero)->params));
    if (rc == 0 && base)
        json_object_set_new(c, "base_model_name_or_path", json_string(base));
    if (rc == 0)
        json_object_set_new(c, "inference_mode", json_true());
    if (rc == 0)
        rc = ckpt_json_write(&b, c, 2, true, err);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, "adapter_config.json", b.data, b.len, err);
    ckpt_buf_release(&b);
    json_decref(c);
    return rc;
}
