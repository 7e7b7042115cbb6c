/* quant/config - see quant/config.h. */
#include "formats/quant/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"

#define MAX_BLOCK INT32_MAX

static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
#define N_KEYS (sizeof keys / sizeof keys[0])

/* Files of libraries with their own settings file, and the method of each. */
static const struct {
    const char *file, *method;
} side[] = {
    {"quantize_config.json", "gptq"},
    {"quant_config.json", "awq"},
    {"hf_quant_config.json", "modelopt"},
};

/* -- reading --------------------------------------------------------------------------------- */

static void lower(char *dst, size_t size, const char *src)
{
    size_t n = 0;

    for (; src && src[n] && n + 1 < size; n++)
        dst[n] = (char)tolower((unsigned char)src[n]);
    dst[n] = '\0';
}

static int add_block(struct quant_config *c, const char *key, json_int_t rows, json_int_t columns,
                     struct ckpt_err *err)
{
    if (rows < 1 || rows > MAX_BLOCK || columns < 1 || columns > MAX_BLOCK)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: blocks of %lld x %lld elements", key,
                         (long long)rows, (long long)columns);
    for (size_t i = 0; i < c->n_block; i++)
        if (c->block[i][0] == rows && c->block[i][1] == columns)
            return 0;
    if (c->n_block == QUANT_MAX_BLOCKS)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: more than %d sizes of blocks", key,
                         QUANT_MAX_BLOCKS);
    c->block[c->n_block][0] = rows;
    c->block[c->n_block++][1] = columns;
    return 0;
}

/* [rows, columns], or compressed-tensors' older "128x128". */
static int read_blocks(struct quant_config *c, const json_t *q, const char *key,
                       struct ckpt_err *err)
{
    const json_t *v = json_object_get(q, key), *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    long long rows = 0, columns = 0;

    if (!v || json_is_null(v))
        return 0;
    if (json_array_size(v) == 2 && json_is_integer(a) && json_is_integer(b))
        return add_block(c, key, json_integer_value(a), json_integer_value(b), err);
    if (json_is_string(v) && sscanf(json_string_value(v), "%9lldx%9lld", &rows, &columns) == 2)
        return add_block(c, key, rows, columns, err);
    return ckpt_fail(err, CKPT_EFORMAT, "%s: two numbers wanted", key);
}

/* -1 and 0 mean a whole row. */
static int read_group(struct quant_config *c, const json_t *q, const char *key,
                      struct ckpt_err *err)
{
    int64_t n;
    int rc;

    if ((rc = ckpt_json_int_or(&n, q, key, -1, err)) != 0)
        return rc;
    return n == -1 || n == 0 ? 0 : add_block(c, key, 1, n, err);
}

/* compressed-tensors: a scheme for each set of layers.  Shapes show which set a layer belongs
 * to. */
static int read_schemes(struct quant_config *c, const json_t *q, struct ckpt_err *err)
{
    const char *name;
    json_t *group;

    json_object_foreach (json_object_get(q, "config_groups"), name, group) {
        const json_t *w = json_object_get(group, "weights");
        int64_t bits;

        if (!json_is_object(w))
            continue;
        if (read_blocks(c, w, "block_structure", err) || read_group(c, w, "group_size", err) ||
            ckpt_json_int_or(&bits, w, "num_bits", 0, err))
            return ckpt_err_in(err, "config_groups: %s", name);
        c->bits = c->bits ? c->bits : bits;
    }
    return 0;
}

/* Read the layout of codes, for which each library has its own key. */
static void read_format(struct quant_config *c, const json_t *q)
{
    static const char *const says[] = {"format", "checkpoint_format", "quant_algo", "version",
                                       "packing_format"};
    const char *sparse = json_string_value(
        json_object_get(json_object_get(q, "sparsity_config"), "format"));

    for (size_t i = 0; i < sizeof says / sizeof says[0] && !c->format[0]; i++)
        lower(c->format, sizeof c->format, json_string_value(json_object_get(q, says[i])));
    if (sparse && strcmp(sparse, "dense") != 0)
        lower(c->format, sizeof c->format, sparse);
}

static int read_description(struct quant_config *c, const json_t *q, const char *method,
                            struct ckpt_err *err)
{
    const json_t *inner = json_object_get(q, "quantization");
    const char *told = json_string_value(json_object_get(q, "quant_method"));
    int rc;

    if (told)
        method = told;
    else if (json_object_get(q, "load_in_4bit") || json_object_get(q, "load_in_8bit"))
        method = "bitsandbytes";
    lower(c->method, sizeof c->method, method);
    q = json_is_object(inner) ? inner : q;
    read_format(c, q);
    c->zeros_as_they_are = strcmp(c->format, "gptq_v2") == 0;
    rc = ckpt_json_int_or(&c->bits, q, json_object_get(q, "w_bit") ? "w_bit" : "bits", 0, err);
    if (rc == 0)
        rc = read_blocks(c, q, "weight_block_size", err);
    if (rc == 0)
        rc = read_group(c, q, json_object_get(q, "q_group_size") ? "q_group_size" : "group_size",
                        err);
    return rc ? rc : read_schemes(c, q, err);
}

/* The description within a config, and the key it has there. */
static const json_t *description(const json_t *config, const char **key)
{
    for (size_t i = 0; i < N_KEYS; i++) {
        const json_t *q = json_object_get(config, keys[i]);

        *key = keys[i];
        if (json_object_size(q) > 0)
            return q;
    }
    return NULL;
}

/* The model's own dtype, as transformers 5 or 4 names it. */
static enum ckpt_dtype dtype_of(const json_t *config)
{
    const char *s = json_string_value(json_object_get(config, "dtype"));
    enum ckpt_dtype t;

    s = s ? s : json_string_value(json_object_get(config, "torch_dtype"));
    t = s ? ckpt_dtype_parse(s) : CKPT_DTYPE_NONE;
    return t == CKPT_F32 || t == CKPT_F16 || t == CKPT_BF16 ? t : CKPT_DTYPE_NONE;
}

static int read_config(struct quant_config *c, const json_t *config, struct ckpt_err *err)
{
    const json_t *text = json_object_get(config, "text_config"), *q, *outer;
    const char *key;

    c->dtype = dtype_of(config);
    if (c->dtype == CKPT_DTYPE_NONE)
        c->dtype = dtype_of(text);
    q = description(config, &key);
    if (!q)
        q = description(text, &key);
    if (!q)
        return 0;
    /* MLX repeats its description under the other key, without a method. */
    outer = json_object_get(config, "quantization");
    if (json_object_size(outer) > 0 && !json_object_get(q, "quant_method"))
        return read_description(c, outer, "mlx", err) ? ckpt_err_in(err, "quantization") : 0;
    return read_description(c, q, "unnamed", err) ? ckpt_err_in(err, "%s", key) : 0;
}

int quant_config_of(struct quant_config *out, const json_t *config, struct ckpt_err *err)
{
    memset(out, 0, sizeof *out);
    return read_config(out, config, err);
}

int quant_config_read(struct quant_config *out, const struct ckpt_source *src,
                      struct ckpt_err *err)
{
    json_t *config = NULL;
    int rc = side_file_read(&config, src, "config.json", CKPT_JSON_MAX_BYTES, err);

    if (quant_config_of(out, config, err) && rc == 0)
        rc = ckpt_err_in(err, "config.json");
    json_decref(config);
    for (size_t i = 0; rc == 0 && !out->method[0] && i < sizeof side / sizeof side[0]; i++) {
        rc = side_file_read(&config, src, side[i].file, CKPT_JSON_MAX_BYTES, err);
        if (rc == 0 && json_is_object(config) &&
            read_description(out, config, side[i].method, err))
            rc = ckpt_err_in(err, "%s", side[i].file);
        json_decref(config);
    }
    return rc;
}

/* -- dropping -------------------------------------------------------------------------------- */

/* Whether there was something to drop. */
static bool drop_keys(json_t *config)
{
    bool any = false;

    for (size_t i = 0; i < N_KEYS; i++)
        any |= json_object_del(config, keys[i]) == 0;
    return any;
}

bool quant_config_strip(json_t *config)
{
    bool any = drop_keys(config);

    return drop_keys(json_object_get(config, "text_config")) || any;
}

/* The facts of src without the description in their copy of config.json; a new reference. */
static json_t *facts_without(const struct ckpt_source *src)
{
    json_t *info = json_copy((json_t *)ckpt_source_info(src)), *config;

    config = json_deep_copy(json_object_get(info, "config"));
    if (!config)
        return info;
    quant_config_strip(config);
    json_object_set_new(info, "config", config);
    return info;
}

/* Replace config.json of *src, or drop one of its files (value NULL). */
static int replace(struct ckpt_source **src, const char *name, const json_t *value,
                   struct ckpt_err *err)
{
    json_t *info = facts_without(*src);

    if (!info) {
        ckpt_source_close(*src);
        *src = NULL;
        return ckpt_nomem(err, 64);
    }
    return side_file_replace(src, name, value, info, err);
}

int quant_config_drop(struct ckpt_source **src, struct ckpt_err *err)
{
    json_t *config;
    int rc = side_file_read(&config, *src, "config.json", CKPT_JSON_MAX_BYTES, err);

    if (rc == 0 && quant_config_strip(config))
        rc = replace(src, "config.json", config, err);
    json_decref(config);
    for (size_t i = 0; rc == 0 && i < sizeof side / sizeof side[0]; i++)
        if (ckpt_source_extra(*src, side[i].file))
            rc = replace(src, side[i].file, NULL, err);
    if (rc) {
        ckpt_source_close(*src);
        *src = NULL;
    }
    return rc;
}
