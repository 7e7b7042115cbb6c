/* model_index - see model_index.h. */
#include "formats/hf/model_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

#define MAX_DEPTH 32

/* -- nodes ------------------------------------------------------------------------------------ */

/* Letters first, then what no YAML gives a meaning; and no word that is a value of another kind. */
static bool is_plain(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char more[] = "0123456789_./-";
    static const char *const words[] = {"y", "n", "yes", "no", "true", "false", "on", "off",
                                        "null"};

    if (!*text || !strchr(letters, *text) || strlen(text) > 200)
        return false;
    for (const char *c = text; *c; c++)
        if (!strchr(letters, *c) && !strchr(more, *c))
            return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    return true;
}

static int scalar(yaml_document_t *to, const char *text, yaml_scalar_style_t style)
{
    return yaml_document_add_scalar(to, NULL, (const yaml_char_t *)text, (int)strlen(text), style);
}

int model_index_text(yaml_document_t *to, const char *text)
{
    return scalar(to, text, is_plain(text) ? YAML_PLAIN_SCALAR_STYLE
                                           : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

/* The shortest text that reads back as the number; with a point, since YAML 1.1 takes 1e-05 for a
 * string. */
static int number(yaml_document_t *to, double value)
{
    char text[40], *e;
    int digits = 6;

    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
    e = strchr(text, 'e');
    if (!strchr(text, '.') && e) {
        memmove(e + 2, e, strlen(e) + 1);
        memcpy(e, ".0", 2);
    } else if (!strchr(text, '.')) {
        memcpy(text + strlen(text), ".0", 3);
    }
    return scalar(to, text, YAML_PLAIN_SCALAR_STYLE);
}

bool model_index_pair(yaml_document_t *to, int map, const char *key, int value)
{
    int k = model_index_text(to, key);

    return map && k && value && yaml_document_append_mapping_pair(to, map, k, value) == 1;
}

static int new_map(yaml_document_t *to)
{
    return yaml_document_add_mapping(to, NULL, YAML_BLOCK_MAPPING_STYLE);
}

static int new_list(yaml_document_t *to)
{
    return yaml_document_add_sequence(to, NULL, YAML_BLOCK_SEQUENCE_STYLE);
}

/* A copy of a node and all below it; 0: no memory, or too deep. */
static int copy(yaml_document_t *to, yaml_document_t *from, int index, int depth)
{
    yaml_node_t *n = yaml_document_get_node(from, index);
    int made = 0;

    if (!n || depth > MAX_DEPTH)
        return 0;
    if (n->type == YAML_SCALAR_NODE)
        return yaml_document_add_scalar(to, n->tag, n->data.scalar.value,
                                        (int)n->data.scalar.length, n->data.scalar.style);
    if (n->type == YAML_SEQUENCE_NODE) {
        made = yaml_document_add_sequence(to, n->tag, n->data.sequence.items.start ==
                                          n->data.sequence.items.top ? YAML_FLOW_SEQUENCE_STYLE
                                                                     : YAML_BLOCK_SEQUENCE_STYLE);
        for (yaml_node_item_t *i = n->data.sequence.items.start;
             made && i < n->data.sequence.items.top; i++) {
            int item = copy(to, from, *i, depth + 1);

            if (!item || !yaml_document_append_sequence_item(to, made, item))
                return 0;
        }
    } else if (n->type == YAML_MAPPING_NODE) {
        made = yaml_document_add_mapping(to, n->tag, YAML_BLOCK_MAPPING_STYLE);
        for (yaml_node_pair_t *p = n->data.mapping.pairs.start;
             made && p < n->data.mapping.pairs.top; p++) {
            int key = copy(to, from, p->key, depth + 1);
            int value = copy(to, from, p->value, depth + 1);

            if (!key || !value || !yaml_document_append_mapping_pair(to, made, key, value))
                return 0;
        }
    }
    return made;
}

/* -- looking ---------------------------------------------------------------------------------- */

static bool is(yaml_document_t *d, int index, const char *text)
{
    yaml_node_t *n = index ? yaml_document_get_node(d, index) : NULL;

    return n && n->type == YAML_SCALAR_NODE &&
           strcmp((const char *)n->data.scalar.value, text) == 0;
}

/* The pair of a mapping's key, or NULL. */
static yaml_node_pair_t *pair_of(yaml_document_t *d, int map, const char *key)
{
    yaml_node_t *n = map ? yaml_document_get_node(d, map) : NULL;

    if (n && n->type == YAML_MAPPING_NODE)
        for (yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++)
            if (is(d, p->key, key))
                return p;
    return NULL;
}

static int value_of(yaml_document_t *d, int map, const char *key)
{
    yaml_node_pair_t *p = pair_of(d, map, key);

    return p ? p->value : 0;
}

/* Whether a mapping's value is this text; NULL: it has none. */
static bool has(yaml_document_t *d, int map, const char *key, const char *text)
{
    int value = value_of(d, map, key);

    return text ? is(d, value, text) : !value;
}

static yaml_node_t *list_at(yaml_document_t *d, int index)
{
    yaml_node_t *n = index ? yaml_document_get_node(d, index) : NULL;

    return n && n->type == YAML_SEQUENCE_NODE ? n : NULL;
}

/* -- results ---------------------------------------------------------------------------------- */

/* The list of a mapping's key; made, or made anew in block style, where it is missing or empty. */
static int list_of(yaml_document_t *to, int map, const char *key, struct ckpt_err *err)
{
    yaml_node_pair_t *p = pair_of(to, map, key);
    yaml_node_t *n = p ? list_at(to, p->value) : NULL;
    int list;

    if (n && n->data.sequence.items.start < n->data.sequence.items.top)
        return p->value;
    if (p && !n && !is(to, p->value, "") && !is(to, p->value, "null") && !is(to, p->value, "~")) {
        ckpt_fail(err, CKPT_EFORMAT, "%s in model-index is no list", key);
        return 0;
    }
    list = new_list(to);
    p = pair_of(to, map, key);          /* adding a node may move the pairs */
    if (list && p)
        p->value = list;
    if (!list || (!p && !model_index_pair(to, map, key, list))) {
        ckpt_nomem(err, 256);
        return 0;
    }
    return list;
}

static bool same_subject(yaml_document_t *d, int result, const struct model_card_result *r)
{
    int task = value_of(d, result, "task"), data = value_of(d, result, "dataset");

    return has(d, task, "type", r->task) && has(d, data, "type", r->dataset) &&
           has(d, data, "config", r->config) && has(d, data, "split", r->split);
}

/* A new result without metrics; 0: no memory. */
static int add_result(yaml_document_t *to, int list, const struct model_card_result *r)
{
    int result = new_map(to), task = new_map(to), data = new_map(to);

    if (!model_index_pair(to, task, "type", model_index_text(to, r->task)) ||
        !model_index_pair(to, data, "name", model_index_text(to, r->dataset)) ||
        !model_index_pair(to, data, "type", model_index_text(to, r->dataset)) ||
        (r->config && !model_index_pair(to, data, "config", model_index_text(to, r->config))) ||
        (r->split && !model_index_pair(to, data, "split", model_index_text(to, r->split))) ||
        !model_index_pair(to, result, "task", task) ||
        !model_index_pair(to, result, "dataset", data) ||
        !yaml_document_append_sequence_item(to, list, result))
        return 0;
    return result;
}

static int put_metric(yaml_document_t *to, int result, const struct model_card_result *r,
                      struct ckpt_err *err)
{
    int list = list_of(to, result, "metrics", err), value = number(to, r->value), metric;
    yaml_node_t *n = list_at(to, list);

    if (!list || !value)
        return list ? ckpt_nomem(err, 64) : ckpt_err_code(err);
    for (yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top; i++) {
        yaml_node_pair_t *p = pair_of(to, *i, "value");

        if (p && has(to, *i, "type", r->metric) && has(to, *i, "name", r->name)) {
            p->value = value;
            return 0;
        }
    }
    metric = new_map(to);
    return model_index_pair(to, metric, "type", model_index_text(to, r->metric)) &&
                   model_index_pair(to, metric, "value", value) &&
                   (!r->name || model_index_pair(to, metric, "name",
                                                 model_index_text(to, r->name))) &&
                   yaml_document_append_sequence_item(to, list, metric)
               ? 0 : ckpt_nomem(err, 256);
}

static int put_result(yaml_document_t *to, int results, const struct model_card_result *r,
                      struct ckpt_err *err)
{
    yaml_node_t *n = list_at(to, results);
    int result = 0;

    for (yaml_node_item_t *i = n->data.sequence.items.start;
         !result && i < n->data.sequence.items.top; i++)
        if (same_subject(to, *i, r))
            result = *i;
    if (!result && !(result = add_result(to, results, r)))
        return ckpt_nomem(err, 512);
    return put_metric(to, result, r, err);
}

int model_index_put(int *out, yaml_document_t *to, yaml_document_t *from, int node,
                    const char *name, const struct model_card_result *result, size_t n,
                    struct ckpt_err *err)
{
    yaml_node_t *list, *old = node ? list_at(from, node) : NULL;
    int model, results, rc = 0;

    if (node && !old && !is(from, node, ""))
        return ckpt_fail(err, CKPT_EFORMAT, "model-index is no list");
    *out = old && old->data.sequence.items.start < old->data.sequence.items.top
               ? copy(to, from, node, 0) : new_list(to);
    if (!*out)
        return ckpt_fail(err, CKPT_ELIMIT, "model-index is nested too deeply, or too large");
    list = list_at(to, *out);
    if (list->data.sequence.items.start == list->data.sequence.items.top) {
        model = new_map(to);
        if (!model_index_pair(to, model, "name", model_index_text(to, name)) ||
            !yaml_document_append_sequence_item(to, *out, model))
            return ckpt_nomem(err, 256);
    } else {
        model = *list->data.sequence.items.start;
    }
    if (yaml_document_get_node(to, model)->type != YAML_MAPPING_NODE)
        return ckpt_fail(err, CKPT_EFORMAT, "model-index has no model in it");
    if (!(results = list_of(to, model, "results", err)))
        return ckpt_err_code(err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = put_result(to, results, &result[i], err);
    return rc;
}
