/* dcp/names - see dcp/names.h. */
#include "formats/dcp/names.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/map.h"

struct namer {
    struct dcp_item   *item;
    size_t             n;
    struct ckpt_arena *a;
    struct ckpt_map   *roots;       /* paths that have param_groups */
    struct ckpt_err   *err;
};

char *dcp_names_join(struct ckpt_arena *arena, const char *const *part, size_t n, size_t from)
{
    size_t len = 0;
    char *text, *to;

    for (size_t i = from; i < n; i++)
        len += strlen(part[i]) + 1;
    to = text = ckpt_arena_alloc(arena, len + 1, 1);
    for (size_t i = from; text && i < n; i++) {
        to = stpcpy(to, part[i]);
        *to++ = i + 1 < n ? '.' : '\0';
    }
    return text;
}

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

bool dcp_names_groups_at(const struct dcp_item *item, size_t k)
{
    return k < item->n_part && (strcmp(item->part[k], "param_groups") == 0 ||
                                begins(item->part[k], "param_groups."));
}

char *dcp_names_key(struct ckpt_arena *arena, const char *const *part, size_t n, size_t *len)
{
    char *key, *to;

    *len = 0;
    for (size_t i = 0; i < n; i++)
        *len += strlen(part[i]) + 1;
    to = key = ckpt_arena_alloc(arena, *len + 1, 1);
    for (size_t i = 0; key && i < n; i++)
        to = stpcpy(to, part[i]) + 1;
    return key;
}

/* Find optimizers: above every param_groups. */
static int find_roots(struct namer *m)
{
    int rc;

    if ((rc = ckpt_map_new(&m->roots, 16, m->err)) != 0)
        return rc;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->item[i].n_part; k++) {
            size_t len;
            char *key;

            if (!dcp_names_groups_at(&m->item[i], k))
                continue;
            key = dcp_names_key(m->a, m->item[i].part, k, &len);
            if (!key)
                return ckpt_nomem(m->err, 64);
            if (ckpt_map_get(m->roots, key, len) == CKPT_MAP_NONE &&
                (rc = ckpt_map_add(m->roots, key, len, i, m->err)) != 0)
                return rc;
            break;
        }
    return 0;
}

/* Recognise an optimizer by its name alone, if its groups were not saved. */
static bool is_called_optimizer(const struct dcp_item *it, size_t k)
{
    return k > 0 && (strcmp(it->part[k - 1], "optimizer") == 0 ||
                     strcmp(it->part[k - 1], "optim") == 0);
}

/* Length of the path of the optimizer that an item belongs to, or SIZE_MAX. */
static int root_of(struct namer *m, const struct dcp_item *it, size_t *depth)
{
    *depth = SIZE_MAX;
    for (size_t k = 0; k < it->n_part; k++) {
        size_t len;
        char *key;

        if (strcmp(it->part[k], "state") != 0 && !begins(it->part[k], "state.") &&
            !dcp_names_groups_at(it, k))
            continue;
        key = dcp_names_key(m->a, it->part, k, &len);
        if (!key)
            return ckpt_nomem(m->err, 64);
        if (is_called_optimizer(it, k) || ckpt_map_get(m->roots, key, len) != CKPT_MAP_NONE) {
            *depth = k;
            return 0;
        }
    }
    return 0;
}

/* Whether a text is digits: an optimizer saved by index, not by name. */
static bool is_number(const char *s) { return *s && strspn(s, "0123456789") == strlen(s); }

/* "<parameter>|<key>", or NULL when the path has another form. */
static int moment_name(struct namer *m, struct dcp_item *it, size_t depth)
{
    const char *state = it->part[depth], *param = NULL, *key = NULL, *dot;
    size_t len = 0;

    if (strcmp(state, "state") == 0 && it->n_part == depth + 3) {
        param = it->part[depth + 1];
        len = strlen(param);
        key = it->part[depth + 2];
    } else if (begins(state, "state.") && it->n_part == depth + 1) {
        param = state + strlen("state.");
        dot = strrchr(param, '.');
        len = dot ? (size_t)(dot - param) : 0;
        key = dot ? dot + 1 : NULL;
    }
    if (!key || len == 0 || is_number(param))
        return 0;
    param = ckpt_arena_strndup(m->a, param, len);
    if (param)
        param = dcp_names_unwrap(m->a, param);
    it->name = param ? ckpt_arena_printf(m->a, "%s|%s", param, key) : NULL;
    it->kind = CKPT_OPTIM;
    return it->name ? 0 : ckpt_nomem(m->err, len);
}

/* Megatron: "optimizer.state.<key>.<parameter>" in one part. */
static int megatron_name(struct namer *m, struct dcp_item *it)
{
    static const char prefix[] = "optimizer.state.";
    const char *key, *dot;

    if (it->n_part != 1 || !begins(it->part[0], prefix))
        return 0;
    key = it->part[0] + strlen(prefix);
    dot = strchr(key, '.');
    if (!dot || !dot[1])
        return 0;
    it->name = ckpt_arena_printf(m->a, "%s|%.*s", dot + 1, (int)(dot - key), key);
    it->kind = CKPT_OPTIM;
    return it->name ? 0 : ckpt_nomem(m->err, strlen(key));
}

static int name_optimizer(struct namer *m)
{
    for (size_t i = 0; i < m->n; i++) {
        struct dcp_item *it = &m->item[i];
        size_t depth;
        int rc;

        if (!it->tensor)
            continue;
        rc = root_of(m, it, &depth);
        if (rc == 0 && depth == SIZE_MAX)
            rc = megatron_name(m, it);
        else if (rc == 0)
            rc = moment_name(m, it, depth);
        if (rc)
            return rc;
        if (depth != SIZE_MAX)
            it->kind = it->kind == CKPT_OPTIM ? CKPT_OPTIM : CKPT_OTHER;
    }
    return 0;
}

/* -- weights --------------------------------------------------------------------------------- */

static bool is_weight(const struct dcp_item *it) { return it->tensor && it->kind == CKPT_WEIGHT; }

bool dcp_names_weights(const struct dcp_item *item, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_weight(&item[i]))
            return true;
    return false;
}

/* The key above the weights at this depth, or NULL: weights begin here. */
static const char *wrapper_at(const struct namer *m, size_t depth)
{
    static const char *const known[] = {"model", "state_dict", "module"};
    const char *common = NULL;
    bool all = true;

    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < m->n; i++) {
            const struct dcp_item *it = &m->item[i];

            if (is_weight(it) && it->n_part > depth + 1 && strcmp(it->part[depth], known[k]) == 0)
                return known[k];
        }
    for (size_t i = 0; i < m->n && all; i++) {
        const struct dcp_item *it = &m->item[i];

        if (!is_weight(it))
            continue;
        common = common ? common : it->part[depth];
        all = it->n_part > depth + 1 && strcmp(it->part[depth], common) == 0;
    }
    return all ? common : NULL;
}

/* Descend while there is a wrapper; items beside it are not weights. */
static size_t find_weights(struct namer *m)
{
    const char *key;
    size_t depth;

    for (depth = 0; (key = wrapper_at(m, depth)); depth++)
        for (size_t i = 0; i < m->n; i++) {
            struct dcp_item *it = &m->item[i];

            if (is_weight(it) && (it->n_part <= depth + 1 || strcmp(it->part[depth], key) != 0))
                it->kind = CKPT_OTHER;
        }
    return depth;
}

const char *dcp_names_unwrap(struct ckpt_arena *arena, const char *name)
{
    static const char *const wrapper[] = {"_fsdp_wrapped_module.", "_checkpoint_wrapped_module.",
                                          "_orig_mod."};
    char *copy = NULL;

    for (size_t k = 0; k < 3; k++) {
        size_t len = strlen(wrapper[k]);
        char *at;

        if (!strstr(copy ? copy : name, wrapper[k]))
            continue;
        if (!copy)
            copy = ckpt_arena_strndup(arena, name, strlen(name));
        while (copy && (at = strstr(copy, wrapper[k])))
            memmove(at, at + len, strlen(at + len) + 1);
        if (!copy)
            return NULL;
    }
    return copy ? copy : name;
}

/* "module." before every weight's name was added by DistributedDataParallel. */
static void drop_module(struct namer *m)
{
    bool all = true;

    for (size_t i = 0; i < m->n; i++)
        if (is_weight(&m->item[i]))
            all = all && begins(m->item[i].name, "module.") && m->item[i].name[7];
    for (size_t i = 0; all && i < m->n; i++)
        if (m->item[i].tensor && m->item[i].kind != CKPT_OTHER &&
            begins(m->item[i].name, "module.") && m->item[i].name[7])
            m->item[i].name += strlen("module.");
}

static int name_weights(struct namer *m)
{
    size_t depth = find_weights(m);

    for (size_t i = 0; i < m->n; i++) {
        struct dcp_item *it = &m->item[i];

        if (!it->tensor || it->name)
            continue;
        it->name = dcp_names_join(m->a, it->part, it->n_part, is_weight(it) ? depth : 0);
        if (it->name && is_weight(it))
            it->name = dcp_names_unwrap(m->a, it->name);
        if (!it->name)
            return ckpt_nomem(m->err, 64);
    }
    drop_module(m);
    return 0;
}

/* Random states under keys of weights, as in Megatron. */
static bool is_random_state(const struct dcp_item *it)
{
    static const char *const names[] = {"rng_state", "rng_states", "random_states"};
    const char *top = it->n_part ? it->part[0] : "";

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (begins(top, names[i]) && strchr("./", top[strlen(names[i])]))     /* or its end */
            return true;
    return false;
}

int dcp_names_fill(struct dcp_item *item, size_t n, struct ckpt_arena *arena,
                   struct ckpt_err *err)
{
    struct namer m = {.item = item, .n = n, .a = arena, .err = err};
    int rc = find_roots(&m);

    for (size_t i = 0; i < n; i++) {
        item[i].kind = is_random_state(&item[i]) ? CKPT_OTHER : CKPT_WEIGHT;
        item[i].name = NULL;
    }
    if (rc == 0)
        rc = name_optimizer(&m);
    if (rc == 0)
        rc = name_weights(&m);
    ckpt_map_free(m.roots);
    return rc;
}
