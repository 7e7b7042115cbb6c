/* peft/tied - see peft/tied.h. */
#include "formats/peft/tied.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/config_text.h"
#include "formats/peft/names.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/views/extra.h"

#define CHUNK ((size_t)1 << 20)

static const json_t *base_config(const struct ckpt_source *base)
{
    return json_object_get(ckpt_source_info(base), "config");
}

bool peft_is_tied(const struct ckpt_source *base)
{
    const json_t *config = base_config(base);
    const json_t *said = json_object_get(config, "tie_word_embeddings");
    const char *arch = json_string_value(json_array_get(json_object_get(config, "architectures"),
                                                        0));
    size_t head = ckpt_source_find(base, "lm_head.weight");

    if (json_is_boolean(said))
        return json_is_true(said);
    if (head != SIZE_MAX)
        return ckpt_source_tensor(base, head)->alias_of != head;
    return arch && (strstr(arch, "CausalLM") || strstr(arch, "LMHead") ||
                    strstr(arch, "ConditionalGeneration"));
}

int peft_same_bytes(bool *same, struct ckpt_source *src, size_t i, size_t j,
                    struct ckpt_err *err)
{
    const struct ckpt_tensor *a = ckpt_source_tensor(src, i), *b = ckpt_source_tensor(src, j);
    size_t width = ckpt_dtype_size(a->dtype);
    int64_t step = (int64_t)(CHUNK / (width ? width : 1));
    unsigned char *p = ckpt_alloc_buffer(2 * CHUNK);
    int rc = p ? 0 : ckpt_nomem(err, 2 * CHUNK);

    *same = a->dtype == b->dtype && ckpt_shape_equal(&a->shape, &b->shape);
    for (int64_t at = 0; rc == 0 && *same && at < a->numel; at += step) {
        int64_t n = a->numel - at < step ? a->numel - at : step;

        rc = ckpt_source_read(src, i, at, n, p, err);
        if (rc == 0)
            rc = ckpt_source_read(src, j, at, n, p + CHUNK, err);
        *same = rc == 0 && memcmp(p, p + CHUNK, (size_t)n * width) == 0;
    }
    ckpt_free(p);
    return rc;
}

/*
 * If the embedding alone changes, the head must keep its values, those to which factors are added,
 * and becomes a tensor of its own.  Token rows, adapters trained tied, and another vocabulary size
 * change both, and the tie stays.
 */
int peft_untie(struct peft_updates *m)
{
    size_t e = peft_find_embedding(m->base), head = ckpt_source_find(m->base, "lm_head.weight");
    const struct ckpt_lora_update *u = e == SIZE_MAX || m->of_base[e] == PEFT_NONE
                                           ? NULL : &m->update[m->of_base[e]];
    bool both = m->config.keeps_ties || (u && u->a == PEFT_NONE && (m->tied_copy || m->vocab));
    bool alone = u && (u->a != PEFT_NONE || u->own != PEFT_NONE) && !both && peft_is_tied(m->base);

    m->both[m->from] = both && !alone;
    if (alone && head == SIZE_MAX && !m->untied) {
        size_t own = u->a != PEFT_NONE ? u->own : PEFT_NONE;    /* u moves with the list */
        struct ckpt_lora_update *h = peft_update_new(m, e, "lm_head.weight");

        if (!h)
            return ckpt_err_code(m->err);
        h->own = own;
        h->resized = own != PEFT_NONE;
    }
    m->untied |= alone || (head != SIZE_MAX && e != SIZE_MAX && m->of_base[head] != PEFT_NONE &&
                           peft_is_tied(m->base) && !m->config.keeps_ties &&
                           m->update[m->of_base[head]].rows == PEFT_NONE);
    if (!m->untied || !json_is_true(json_object_get(base_config(m->base), "is_encoder_decoder")))
        return 0;
    if (head == SIZE_MAX || e == SIZE_MAX ||
        ckpt_source_tensor(m->base, head)->alias_of == ckpt_source_tensor(m->base, e)->alias_of)
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                         "the adapter changes one of two tied embeddings "
                         "of an encoder-decoder, which cannot be told apart afterwards");
    m->untied = false;      /* both are stored, which tells; config.json always says tied */
    return 0;
}

/* One member of config.json: its text, and the tree of it among the facts. */
static int set_member(struct ckpt_buf *text, json_t *info, const char *key, const char *value,
                      json_t *v, struct ckpt_err *err)
{
    struct ckpt_buf out;
    int rc;

    ckpt_buf_init(&out, SIZE_MAX);
    rc = v ? config_set(&out, (const char *)text->data, text->len, key, value, err)
           : ckpt_nomem(err, 64);
    if (rc == 0 && !ckpt_buf_ok(&out))
        rc = ckpt_nomem(err, text->len);
    if (rc == 0 && json_object_set(json_object_get(info, "config"), key, v))
        rc = ckpt_nomem(err, 64);
    json_decref(v);
    if (rc) {
        ckpt_buf_release(&out);
        return rc;
    }
    ckpt_buf_release(text);
    *text = out;
    return 0;
}

static int set_number(struct ckpt_buf *text, json_t *info, const char *key, int64_t n,
                      struct ckpt_err *err)
{
    char number[32];

    snprintf(number, sizeof number, "%lld", (long long)n);
    return set_member(text, info, key, number, json_integer(n), err);
}

/* The types of the layers, one by one, if the config lists them. */
static int set_layer_types(struct ckpt_buf *text, json_t *info, const struct peft_layers *l,
                           struct ckpt_err *err)
{
    const json_t *old = json_object_get(json_object_get(info, "config"), "layer_types");
    json_t *list;
    char *dump;
    int rc = 0;

    if (json_array_size(old) != l->n_base)
        return 0;
    list = json_array();
    for (size_t k = 0; k < l->n; k++)
        if (json_array_append(list, json_array_get(old, l->from[k])))
            rc = ckpt_nomem(err, 64);
    dump = rc ? NULL : json_dumps(list, 0);
    if (rc == 0)
        rc = dump ? set_member(text, info, "layer_types", dump, json_incref(list), err)
                  : ckpt_nomem(err, 64);
    free(dump);
    json_decref(list);
    return rc;
}

static int set_layers(struct ckpt_buf *text, json_t *info, const struct peft_layers *l,
                      struct ckpt_err *err)
{
    static const char *const keys[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
    bool any = false;
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < sizeof keys / sizeof keys[0]; k++) {
        if (!json_is_integer(json_object_get(json_object_get(info, "config"), keys[k])))
            continue;
        any = true;
        rc = set_number(text, info, keys[k], (int64_t)l->n, err);
    }
    if (!any)
        ckpt_log(CKPT_LOG_WARNING, "the model has %zu layers now; config.json does not count them",
                 l->n);
    return rc ? rc : set_layer_types(text, info, l, err);
}

static int set_members(struct ckpt_buf *text, json_t *info, const struct peft_changes *c,
                       struct ckpt_err *err)
{
    bool told = json_is_integer(json_object_get(json_object_get(info, "config"), "vocab_size"));
    int rc = 0;

    if (c->untied)
        rc = set_member(text, info, "tie_word_embeddings", "false", json_false(), err);
    if (rc == 0 && c->layers.n)
        rc = set_layers(text, info, &c->layers, err);
    if (c->vocab && !told)
        ckpt_log(CKPT_LOG_WARNING, "the embedding has %lld rows now; config.json has no vocab_size "
                 "of its own that would say so", (long long)c->vocab);
    return rc == 0 && c->vocab && told ? set_number(text, info, "vocab_size", c->vocab, err) : rc;
}

int peft_tell_config(struct ckpt_source **src, const struct peft_changes *c,
                     struct ckpt_err *err)
{
    const struct ckpt_extra *e = ckpt_source_extra(*src, "config.json");
    struct ckpt_source *below = *src;
    struct ckpt_arena a = {0};
    struct ckpt_buf text;
    json_t *info;
    char *old;
    size_t n;
    int rc;

    if (!c->untied && !c->vocab && !c->layers.n)
        return 0;
    if (!e) {
        ckpt_log(CKPT_LOG_WARNING, "%s, and there is no config.json to say so",
                 c->untied ? "the merged head is no longer tied to the embedding"
                           : "the model has another number of tokens or layers");
        return 0;
    }
    info = json_deep_copy(ckpt_source_info(*src));
    ckpt_buf_init(&text, SIZE_MAX);
    rc = info ? ckpt_file_slurp(e->file, &a, CKPT_JSON_MAX_BYTES, &old, &n, err)
              : ckpt_nomem(err, 64);
    if (rc == 0) {
        ckpt_buf_put(&text, old, n);
        rc = ckpt_buf_ok(&text) ? set_members(&text, info, c, err) : ckpt_nomem(err, n);
    }
    if (rc == 0) {
        *src = NULL;
        rc = ckpt_view_extra(src, below, "config.json", text.data, text.len, info, err);
        info = NULL;
    }
    json_decref(info);
    ckpt_buf_release(&text);
    ckpt_arena_release(&a);
    return rc;
}
