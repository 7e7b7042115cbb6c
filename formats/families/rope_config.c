/* rope_config - see rope_config.h. */
#include "formats/families/rope_config.h"

#include <math.h>
#include <string.h>

#include "formats/families/family.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

static const struct {
    const char    *name;
    enum arch_rope kind;
} kinds[] = {
    {"default", ARCH_ROPE_DEFAULT}, {"linear", ARCH_ROPE_LINEAR}, {"dynamic", ARCH_ROPE_DYNAMIC},
    {"llama3", ARCH_ROPE_LLAMA3},   {"yarn", ARCH_ROPE_YARN},     {"longrope", ARCH_ROPE_LONG},
    {"su", ARCH_ROPE_LONG},
};

static int find_kind(enum arch_rope *kind, const json_t *o, bool longrope, struct ckpt_err *err)
{
    const char *text, *old;
    int rc;

    if ((rc = ckpt_json_str_or(&old, o, "type", "default", err)) != 0 ||
        (rc = ckpt_json_str_or(&text, o, "rope_type", old, err)) != 0)
        return rc;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, text) == 0) {
            *kind = longrope && kinds[i].kind == ARCH_ROPE_YARN ? ARCH_ROPE_LONG : kinds[i].kind;
            return 0;
        }
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "config-key",
                        "rope_type %s is not known here; default, linear, dynamic, llama3, yarn "
                        "and longrope are", text);
}

/* A list of R / 2 positive numbers. */
static int read_list(double **out, const json_t *o, const char *key, int64_t n,
                     struct ckpt_err *err)
{
    const json_t *list = json_object_get(o, key);

    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return ckpt_fail(err, CKPT_EFORMAT, "rope: %s has %zu numbers, wanted %lld", key,
                         json_array_size(list), (long long)n);
    *out = ckpt_alloc((size_t)n, sizeof **out);
    if (!*out)
        return ckpt_nomem(err, (size_t)n * sizeof **out);
    for (int64_t i = 0; i < n; i++) {
        (*out)[i] = json_number_value(json_array_get(list, (size_t)i));
        if (!((*out)[i] > 0))
            return ckpt_fail(err, CKPT_EFORMAT, "rope: %s[%lld] is no positive number", key,
                             (long long)i);
    }
    return 0;
}

static double get_scale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* The factor of cosines and sines, if the file gives none. */
static int default_attention(struct arch *a, const json_t *o, struct ckpt_err *err)
{
    struct rope *r = &a->rope;
    double m, m_all;
    int rc;

    r->attention_factor = 1;
    if (r->kind == ARCH_ROPE_YARN) {
        if ((rc = ckpt_json_num_or(&m, o, "mscale", 0, err)) != 0 ||
            (rc = ckpt_json_num_or(&m_all, o, "mscale_all_dim", 0, err)) != 0)
            return rc;
        r->attention_factor = m != 0 && m_all != 0
                                  ? get_scale(r->factor, m) / get_scale(r->factor, m_all)
                                  : get_scale(r->factor, 1);
    } else if (r->kind == ARCH_ROPE_LONG && r->factor > 1) {
        r->attention_factor =
            sqrt(1 + log(r->factor) / log((double)r->original_max_position_embeddings));
    }
    return 0;
}

/* The factor: given, or the ratio of the two lengths. */
static int read_factor(struct arch *a, const json_t *o, struct ckpt_err *err)
{
    struct rope *r = &a->rope;
    double ratio = 0;
    bool stretched = r->kind == ARCH_ROPE_YARN || r->kind == ARCH_ROPE_LONG;
    int rc;

    if (r->original_max_position_embeddings > 0)
        ratio = (double)a->max_position_embeddings / (double)r->original_max_position_embeddings;
    if ((rc = ckpt_json_num_or(&r->factor, o, "factor", stretched ? ratio : 0, err)) != 0)
        return rc;
    if (r->kind == ARCH_ROPE_DEFAULT)
        return 0;
    if (!(r->factor > 0) || (r->kind != ARCH_ROPE_LONG && r->factor < 1))
        return ckpt_fail(err, CKPT_EFORMAT, "rope: factor is %g, wanted 1 at least", r->factor);
    if (r->kind == ARCH_ROPE_YARN && ratio > 0 && fabs(ratio - r->factor) > 1e-9)
        ckpt_log(CKPT_LOG_WARNING, "config.json: rope factor %g is used, though "
                 "max_position_embeddings / original_max_position_embeddings is %g", r->factor,
                 ratio);
    return 0;
}

static int read_scaling(struct arch *a, const json_t *o, const json_t *config,
                        struct ckpt_err *err)
{
    static const char before[] = "original_max_position_embeddings";
    struct rope *r = &a->rope;
    const struct { const char *key; double *to, fallback; } numbers[] = {
        {"low_freq_factor", &r->low_freq_factor, 1},
        {"high_freq_factor", &r->high_freq_factor, 4},
        {"beta_fast", &r->beta_fast, 32}, {"beta_slow", &r->beta_slow, 1},
    };
    int64_t top;
    int rc;

    if ((rc = ckpt_json_int_or(&top, config, before, 0, err)) != 0 ||
        (rc = ckpt_json_int_or(&r->original_max_position_embeddings, o, before, top,
                               err)) != 0 ||
        (rc = read_factor(a, o, err)) != 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < sizeof numbers / sizeof numbers[0]; i++)
        rc = ckpt_json_num_or(numbers[i].to, o, numbers[i].key, numbers[i].fallback, err);
    if (rc || (rc = ckpt_json_bool_or(&r->truncate, o, "truncate", true, err)) != 0)
        return rc;
    if ((r->kind == ARCH_ROPE_LLAMA3 || r->kind == ARCH_ROPE_LONG) &&
        r->original_max_position_embeddings < 2)
        return ckpt_fail(err, CKPT_EFORMAT, "rope: original_max_position_embeddings is %lld",
                         (long long)r->original_max_position_embeddings);
    if (r->kind == ARCH_ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor))
        return ckpt_fail(err, CKPT_EFORMAT, "rope: high_freq_factor %g is not above "
                         "low_freq_factor %g", r->high_freq_factor, r->low_freq_factor);
    if (r->kind == ARCH_ROPE_LONG)
        rc = read_list(&r->short_factor, o, "short_factor", r->rotary_dim / 2, err);
    if (rc == 0 && r->kind == ARCH_ROPE_LONG)
        rc = read_list(&r->long_factor, o, "long_factor", r->rotary_dim / 2, err);
    if (rc == 0)
        rc = default_attention(a, o, err);
    return rc ? rc : ckpt_json_num_or(&r->attention_factor, o, "attention_factor",
                                      r->attention_factor, err);
}

int rope_config_read(struct arch *a, const json_t *config, struct ckpt_err *err)
{
    const json_t *o = json_object_get(config, "rope_parameters");
    struct rope *r = &a->rope;
    bool longrope = a->family->longrope;
    double theta, part;
    int rc;

    if (!json_is_object(o))
        o = json_object_get(config, "rope_scaling");
    if (!json_is_object(o))
        o = NULL;
    if ((rc = ckpt_json_num_or(&theta, config, "rope_theta",
                               r->theta > 0 ? r->theta : 10000, err)) != 0 ||
        (rc = ckpt_json_num_or(&part, config, "partial_rotary_factor", 1, err)) != 0)
        return rc;
    if (o && ((rc = ckpt_json_num_or(&theta, o, "rope_theta", theta, err)) != 0 ||
              (rc = ckpt_json_num_or(&part, o, "partial_rotary_factor", part, err)) != 0 ||
              (rc = find_kind(&r->kind, o, longrope, err)) != 0))
        return rc;
    if (!(theta > 1) || !(part > 0 && part <= 1))
        return ckpt_fail(err, CKPT_EFORMAT, "rope: theta %g, partial_rotary_factor %g", theta,
                         part);
    r->theta = theta;
    r->rotary_dim = (int64_t)((double)a->head_dim * (longrope ? part : 1));
    r->attention_factor = 1;
    if (r->rotary_dim < 2 || r->rotary_dim % 2 || r->rotary_dim > ARCH_MAX_ROTARY_DIM)
        return ckpt_fail(err, CKPT_EFORMAT, "rope: %lld elements of a head are rotated, wanted an "
                         "even number of 2 to %d", (long long)r->rotary_dim, ARCH_MAX_ROTARY_DIM);
    return o ? read_scaling(a, o, config, err) : 0;
}
