/* peft/live - see peft/live.h. */
#include "formats/peft/live.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "formats/deepspeed/deepspeed.h"
#include "formats/dcp/fsdp.h"
#include "formats/place.h"
#include "libckpt/log.h"
#include "libckpt/base/map.h"

const struct ckpt_format *peft_live_shards(const struct ckpt_place *place)
{
    static const struct ckpt_format *const formats[] = {
        &ckpt_format_deepspeed, &ckpt_format_dcp, &ckpt_format_fsdp,
    };
    const struct ckpt_format *best = NULL;
    int high = 0;

    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        int bid = place->dir ? formats[i]->bid(place) : 0;

        if (bid > high) {
            best = formats[i];
            high = bid;
        }
    }
    return best;
}

/* -- names ----------------------------------------------------------------------------------- */

/* The parts of a name. */
struct parts {
    char        text[CKPT_MAX_NAME + 1];        /* the name in PEFT's files */
    char        adapter[CKPT_MAX_NAME + 1];     /* "" where the name has none */
    bool        ours;                           /* of an adapter */
    bool        live;                           /* a factor with the adapter's name in its path */
    bool        original;                       /* a copy from before training, never saved */
    const char *moment;                         /* "|exp_avg" after the name, or "" */
};

/* Meaning of a name's component. */
enum word { FACTOR = 1, BEFORE = 2, LEAF = 4, COPY = 8, WRAPPER = 16, MAGNITUDE = 32 };

static unsigned word_is(const char *s, size_t len)
{
    static const struct { const char *word; unsigned is; } words[] = {
        {"lora_A", FACTOR}, {"lora_B", FACTOR}, {"lora_embedding_A", FACTOR},
        {"lora_embedding_B", FACTOR}, {"lora_magnitude_vector", FACTOR | MAGNITUDE},
        {"trainable_tokens_delta", FACTOR}, {"original_module", BEFORE},
        {"trainable_tokens_original", BEFORE}, {"weight", LEAF}, {"bias", LEAF},
        {"modules_to_save", COPY}, {"_orig_mod", WRAPPER}, {"module", WRAPPER},
    };

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == len && memcmp(words[i].word, s, len) == 0)
            return words[i].is;
    return 0;
}

/* Past the component at s: to the next one, or to the end at `end`. */
static const char *after(const char *s, size_t len, const char *end)
{
    return s + len < end ? s + len + 1 : end;
}

/* Take the adapter's name at `at`, between a factor and its "weight", or at the end of the name. */
static const char *take_adapter(struct parts *p, const char *at, const char *end)
{
    size_t len = strcspn(at, ".|");

    if (at == end || (at + len == end && word_is(at, len) & LEAF))
        return at;
    memcpy(p->adapter, at, len);
    p->adapter[len] = '\0';
    return after(at, len, end);
}

/* Split a tensor's name; name is at most CKPT_MAX_NAME bytes. */
static void split(struct parts *p, const char *name)
{
    const char *end = name + strcspn(name, "|"), *at = name;
    size_t n = 0, len;

    p->adapter[0] = '\0';
    p->ours = p->live = p->original = false;
    p->moment = end;
    while (at < end && (len = strcspn(at, ".|"), word_is(at, len) & WRAPPER))
        at = after(at, len, end);
    while (at < end) {
        const char *next, *word = at;
        unsigned is;

        len = strcspn(at, ".|");
        is = word_is(word, len);
        next = after(at, len, end);
        p->original |= (is & BEFORE) != 0;
        at = next;
        if (is & COPY && strcspn(next, ".|") < (size_t)(end - next)) {
            p->ours = true;
            at = take_adapter(p, next, end);
            continue;                   /* neither is in the saved name */
        }
        if (is & FACTOR) {
            p->ours = true;
            at = take_adapter(p, next, end);
            p->live |= at != next;
        }
        if (n)
            p->text[n++] = '.';
        memcpy(p->text + n, word, len);
        n += len;
        if (at != next && is & MAGNITUDE && strncmp(at, "weight", 6) == 0 &&
            at + 6 == end)
            at = end;
    }
    p->text[n] = '\0';
}

bool peft_live_is_adapter(const char *name)
{
    struct parts p;

    if (strncmp(name, "base_model.model.", 17) == 0)
        return true;
    split(&p, name);
    return p.live;
}

/* -- which ----------------------------------------------------------------------------------- */

struct finder {
    const json_t          *config;
    struct ckpt_arena     *arena;
    struct peft_live_list *out;
    struct ckpt_map       *taken;       /* names in out */
    struct ckpt_map       *trained;     /* names in the shards' optimizer; NULL: unknown */
    char                   adapter[CKPT_MAX_NAME + 1];
    bool                   live;        /* of the current source: it contains an adapter's name */
    size_t                 frozen;      /* number of the base's weights left out */
    struct ckpt_err       *err;
};

/* The parameters that were trained, where the source's facts name them. */
static int find_trained(struct finder *f, const struct ckpt_source *src)
{
    const json_t *groups = json_object_get(ckpt_source_info(src), "group_params");
    size_t g, k, n = 0;
    json_t *group, *v;
    int rc;

    ckpt_map_free(f->trained);
    f->trained = NULL;
    json_array_foreach ((json_t *)groups, g, group)
        n += json_array_size(group);
    if (n == 0)
        return 0;
    rc = ckpt_map_new(&f->trained, n, f->err);
    json_array_foreach ((json_t *)groups, g, group)
        json_array_foreach (group, k, v) {
            const char *name = rc ? NULL : json_string_value(v);

            if (name && ckpt_map_get(f->trained, name, strlen(name)) == CKPT_MAP_NONE)
                rc = ckpt_map_add(f->trained, name, strlen(name), k, f->err);
        }
    return rc;
}

/* A tensor without an adapter's name: in a live state it is the base's, unless it was trained. */
static bool is_kept(const struct finder *f, const char *name, const struct parts *p)
{
    const char *bias = json_string_value(json_object_get(f->config, "bias"));
    size_t len = (size_t)(p->moment - name);

    if (p->original)
        return false;
    if (p->ours || !f->live || *p->moment)
        return true;
    if (f->trained)
        return ckpt_map_get(f->trained, name, len) != CKPT_MAP_NONE;
    return bias && strcmp(bias, "none") != 0 && len > 5 &&
           strncmp(p->moment - 5, ".bias", 5) == 0;
}

static int same_adapter(struct finder *f, const struct parts *p)
{
    f->live |= p->live;
    if (!*p->adapter)
        return 0;
    if (!*f->adapter)
        memcpy(f->adapter, p->adapter, strlen(p->adapter) + 1);
    if (strcmp(f->adapter, p->adapter) == 0)
        return 0;
    return ckpt_fail(f->err, CKPT_EUNSUPPORTED, "the shards have several adapters, %s and %s: "
                     "which one is wanted cannot be told", f->adapter, p->adapter);
}

static int add(struct finder *f, const char *name, size_t source, size_t index)
{
    size_t n = f->out->n;

    if (ckpt_map_get(f->taken, name, strlen(name)) != CKPT_MAP_NONE)
        return 0;
    f->out->item[n] = (struct peft_live_item){
        .name = ckpt_arena_printf(f->arena, "%s", name), .source = source, .index = index};
    if (!f->out->item[n].name)
        return ckpt_nomem(f->err, strlen(name));
    f->out->n++;
    return ckpt_map_add(f->taken, f->out->item[n].name, strlen(name), n, f->err);
}

static int find_in(struct finder *f, const struct ckpt_source *src, size_t source)
{
    struct parts p;
    int rc = find_trained(f, src);

    f->live = false;
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        split(&p, ckpt_source_tensor(src, i)->name);
        rc = same_adapter(f, &p);
    }
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        char name[CKPT_MAX_NAME + 64];

        split(&p, t->name);
        if (t->kind == CKPT_OTHER || t->numel == 0)
            continue;
        if (!is_kept(f, t->name, &p)) {
            f->frozen++;
            continue;
        }
        snprintf(name, sizeof name, "%s%s", p.text, p.moment);
        rc = add(f, name, source, i);
    }
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct peft_live_item *x = a, *y = b;
    int moment = (strchr(x->name, '|') != NULL) - (strchr(y->name, '|') != NULL);

    return moment ? moment : strcmp(x->name, y->name);
}

int peft_live_find(struct peft_live_list *out, struct ckpt_source *const *source, size_t n,
                   const json_t *config, struct ckpt_arena *arena, struct ckpt_err *err)
{
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    struct finder f = {.config = config, .arena = arena, .out = out, .err = err};
    size_t most = 0;
    int rc;

    for (size_t i = 0; i < n; i++)
        most += ckpt_source_count(source[i]);
    *out = (struct peft_live_list){.item = ckpt_arena_alloc(arena, most + 1, sizeof *out->item)};
    if (!out->item)
        return ckpt_nomem(err, most * sizeof *out->item);
    if (type && strcmp(type, "LORA") != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "adapter_config.json: shards of peft_type %s are "
                         "not read, only of LORA", type);
    rc = ckpt_map_new(&f.taken, most, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = find_in(&f, source[i], i);
    if (rc == 0 && out->n == 0)
        rc = ckpt_fail(err, CKPT_EFORMAT, "adapter_config.json, but no tensor of an adapter");
    if (rc == 0 && f.frozen)
        ckpt_log(CKPT_LOG_NOTE, "%zu tensors are the base's own, and left out", f.frozen);
    if (rc == 0)
        qsort(out->item, out->n, sizeof *out->item, by_name);
    ckpt_map_free(f.taken);
    ckpt_map_free(f.trained);
    return rc;
}
