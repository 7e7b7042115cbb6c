/* web - see web.h. */
#include "libckpt/remote/web.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"

#define AT_ONCE 8

static const char *const indexes[] = {"model.safetensors.index.json",
                                      "pytorch_model.bin.index.json"};
/* Files requested by name.  Files of one model are used together, so each is tried. */
static const char *const names[] = {
    "config.json", "model.safetensors", "pytorch_model.bin", "adapter_config.json",
    "adapter_model.safetensors", "adapter_model.bin", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "tokenizer.model", "spiece.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja",
    "trainer_state.json", "MANIFEST.json",
};
#define N_NAMES (sizeof names / sizeof names[0])

struct probe {
    struct http *http;
    const char  *base;
    bool         there[N_NAMES];
    uint64_t     size[N_NAMES];
};

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    size_t n = (size_t)snprintf(url, HTTP_URL, "%s", (const char *)t->self);

    *have = NULL;
    return n < HTTP_URL && http_escape(url + n, HTTP_URL - n, f->path, "/")
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s/%.200s: the address is too long", t->name,
                               f->path);
}

int web_read_index(struct tree *t, const json_t *index, struct ckpt_err *err)
{
    json_t *map, *v, *seen;
    const char *tensor;
    int rc;

    if (!json_is_object(index))
        return ckpt_fail(err, CKPT_EFORMAT, "is no object");
    if ((rc = ckpt_json_get(&map, index, "weight_map", JSON_OBJECT, err)) != 0)
        return rc;
    seen = json_object();
    json_object_foreach (map, tensor, v) {
        const char *file = json_string_value(v);

        if (!file || !*file || strchr(file, '/') || json_object_get(seen, file))
            continue;                   /* the format will report that it is malformed */
        json_object_set_new(seen, file, json_true());
        rc = tree_add(t, file, FIELD_NONE, "", err);
        if (rc)
            break;
    }
    json_decref(seen);
    return rc;
}

/* Whether an error means that a file is absent; some servers answer "forbidden" instead. */
static bool is_absent(const struct http_answer *a)
{
    return a->status == 404 || a->status == 410 || a->status == 403;
}

/* Read one index, if it exists. */
static int try_index(struct tree *t, struct http *http, const char *base, const char *name,
                     struct ckpt_err *err)
{
    char url[HTTP_URL];
    struct http_answer a;
    json_t *index = NULL;
    int rc;

    if ((size_t)snprintf(url, sizeof url, "%s%s", base, name) >= sizeof url)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", t->name);
    rc = http_json(http, &index, &(struct http_request){.url = url, .limit = CKPT_JSON_MAX_BYTES},
                   &a, err);
    if (rc && is_absent(&a)) {
        ckpt_err_clear(err);
        return 0;
    }
    if (rc == 0)
        rc = tree_add(t, name, a.length, "", err);
    if (rc == 0 && web_read_index(t, index, err))
        rc = ckpt_err_in(err, "%s/%s", t->name, name);
    json_decref(index);
    return rc;
}

static int probe(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct probe *p = ctx;
    char url[HTTP_URL];
    struct http_answer a;

    (void)worker;
    if ((size_t)snprintf(url, sizeof url, "%s%s", p->base, names[i]) >= sizeof url)
        return ckpt_fail(err, CKPT_ELIMIT, "%.200s: the address is too long", p->base);
    if (http_get(p->http, &(struct http_request){.url = url, .head = true}, &a, err)) {
        if (!is_absent(&a))
            return ckpt_err_code(err);
        ckpt_err_clear(err);
        return 0;
    }
    p->there[i] = true;
    p->size[i] = a.length;
    return 0;
}

static bool is_listed(const struct tree *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->file[i].path, name) == 0)
            return true;
    return false;
}

int web_open(struct tree **out, const char *url, struct ckpt_err *err)
{
    size_t n = strlen(url);
    struct probe p = {.http = http_shared(err)};
    struct tree *t = NULL;
    char name[HTTP_URL];
    int rc = p.http ? 0 : ckpt_err_code(err);

    *out = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(n - 1), url);
    if (rc == 0)
        rc = tree_new(&t, name, err);
    if (rc == 0) {
        t->locate = locate;
        t->self = ckpt_arena_strndup(&t->arena, url, n);
        p.base = t->self;
        rc = t->self ? 0 : ckpt_nomem(err, n);
    }
    for (size_t i = 0; rc == 0 && i < sizeof indexes / sizeof indexes[0]; i++)
        rc = try_index(t, p.http, url, indexes[i], err);
    if (rc == 0)
        rc = ckpt_pool_run(AT_ONCE, N_NAMES, probe, &p, err);
    for (size_t i = 0; rc == 0 && i < N_NAMES; i++)
        if (p.there[i] && !is_listed(t, names[i]))
            rc = tree_add(t, names[i], p.size[i], "", err);
    if (rc == 0 && t->n == 0) {
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: no file of a checkpoint is there by the names "
                       "they have", url);
        ckpt_err_hint(err, "the address of one file has no / at its end");
    }
    if (rc == 0)
        rc = tree_ready(t, err);
    if (rc == 0) {
        *out = t;
        return 0;
    }
    tree_free(t);
    return rc;
}
