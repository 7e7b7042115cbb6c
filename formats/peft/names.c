/* peft/names - see peft/names.h. */
#include "formats/peft/names.h"

#include <stdio.h>
#include <string.h>

#define MAX_SCAN 100000         /* tensors of a base that are looked through for a suffix */

bool peft_module_ends(const char *module, const char *part)
{
    size_t n = strlen(module), k = strlen(part);

    return n >= k && strcmp(module + n - k, part) == 0 && (n == k || module[n - k - 1] == '.');
}

void peft_module_of(char module[CKPT_MAX_NAME + 1], const char *name, const char *tail)
{
    static const char prefix[] = "base_model.model.", layer[] = ".base_layer";
    size_t skip = strncmp(name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    size_t n = strlen(name) - strlen(tail), k = sizeof layer - 1;
    char *at;

    snprintf(module, CKPT_MAX_NAME + 1, "%.*s", n > skip ? (int)(n - skip) : 0, name + skip);
    for (at = module; (at = strstr(at, layer)) != NULL;)
        if (at[k] == '.' || at[k] == 0)
            memmove(at, at + k, strlen(at + k) + 1);
        else
            at += k;
}

/* <module><suffix> with `from` at its front become `to`. */
static size_t find_swapped(const struct ckpt_source *base, const char *module, const char *suffix,
                           const char *from, const char *to)
{
    char name[CKPT_MAX_NAME + 64];
    size_t n = strlen(from);

    if (strncmp(module, from, n) != 0)
        return SIZE_MAX;
    snprintf(name, sizeof name, "%s%s%s", to, module + n, suffix);
    return ckpt_source_find(base, name);
}

static size_t find_wrapped(const struct ckpt_source *base, const char *module, const char *suffix)
{
    static const char *const swap[][2] = {
        {"", ""}, {"model.", ""}, {"", "model."}, {"transformer.", ""}, {"", "transformer."},
        {"model.language_model.", "language_model.model."},
        {"language_model.model.", "model.language_model."},
        {"model.text_model.", "model.language_model."},
        {"model.language_model.", "model.text_model."},
    };
    size_t i = SIZE_MAX;

    for (size_t k = 0; i == SIZE_MAX && k < sizeof swap / sizeof swap[0]; k++)
        i = find_swapped(base, module, suffix, swap[k][0], swap[k][1]);
    return i;
}

/* Blocks that transformers renames when it loads a file. */
static size_t find_renamed(const struct ckpt_source *base, const char *module, const char *suffix)
{
    static const char *const swap[][2] = {
        {".mlp.experts", ".block_sparse_moe.experts"}, {".mlp.gate", ".block_sparse_moe.gate"},
        {".mlp.experts", ".feed_forward.experts"}, {".mlp.gate", ".feed_forward.gate"},
    };
    char name[CKPT_MAX_NAME + 64];
    size_t i = SIZE_MAX;

    for (size_t k = 0; i == SIZE_MAX && k < sizeof swap / sizeof swap[0]; k++) {
        const char *at = strstr(module, swap[k][0]);
        size_t n = strlen(swap[k][0]);

        if (!at || (at[n] != '.' && at[n] != 0))
            continue;
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - module), module, swap[k][1], at + n);
        i = find_wrapped(base, name, suffix);
    }
    return i;
}

/* The one tensor whose name ends in the wanted one behind a dot, or the other way round. */
static size_t find_by_end(const struct ckpt_source *base, const char *module, const char *suffix)
{
    char name[CKPT_MAX_NAME + 64];
    size_t n = ckpt_source_count(base), found = SIZE_MAX, parts = 0;

    snprintf(name, sizeof name, "%s%s", module, suffix);
    for (const char *p = name; *p; p++)
        parts += *p == '.';
    if (n > MAX_SCAN || parts < 2)      /* "dense.weight" alone says too little */
        return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const char *t = ckpt_source_tensor(base, i)->name;

        if (peft_module_ends(t, name) || (strchr(t, '.') != strrchr(t, '.') &&
                                          peft_module_ends(name, t))) {
            if (found != SIZE_MAX)
                return SIZE_MAX;
            found = i;
        }
    }
    return found;
}

size_t peft_find(const struct ckpt_source *base, const char *module, const char *suffix)
{
    size_t i = find_wrapped(base, module, suffix);

    if (i == SIZE_MAX)
        i = find_renamed(base, module, suffix);
    return i == SIZE_MAX ? find_by_end(base, module, suffix) : i;
}

size_t peft_find_embedding(const struct ckpt_source *base)
{
    const struct family *f;
    const char *tail;

    for (size_t k = 0; (f = family_at(k)) != NULL; k++)
        for (size_t i = 0; (tail = family_tail(f, ROLE_TOKENS)) != NULL &&
                           i < ckpt_source_count(base); i++)
            if (peft_module_ends(ckpt_source_tensor(base, i)->name, tail))
                return i;
    return SIZE_MAX;
}

const char *peft_model_type(const struct ckpt_source *src)
{
    const json_t *config = json_object_get(ckpt_source_info(src), "config");

    return json_string_value(json_object_get(config, "model_type"));
}

bool peft_has_conv1d(const struct ckpt_source *base)
{
    const char *type = peft_model_type(base);
    const struct family *f = type ? family_find(type, NULL) : NULL;

    return f && f->fixed.weight_order == ARCH_IN_OUT;
}
