/* dcp/values - see dcp/values.h. */
#include "formats/dcp/values.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dcp/names.h"
#include "libckpt/log.h"

#define MAX_NODES 65536u            /* limit for one value: params lists every parameter */

struct teller {
    json_t                *info, *values, *groups, *flat;
    struct dcp_files      *files;
    const struct dcp_meta *m;
    struct ckpt_arena      arena;
    struct ckpt_err       *err;
};

static int load(struct teller *t, json_t **out, const struct dcp_entry *e)
{
    struct torch_archive *a;

    *out = NULL;
    if (dcp_files_value(t->files, &a, &e->place, t->err))
        return ckpt_err_in(t->err, "%s", e->fqn);
    *out = value_to_json(torch_archive_root(a), MAX_NODES);
    torch_archive_close(a);
    return *out ? 0 : ckpt_nomem(t->err, 64);
}

/* Takes v. */
static int put(struct teller *t, json_t *object, const char *key, json_t *v)
{
    return json_object_set_new(object, key, v) ? ckpt_nomem(t->err, strlen(key)) : 0;
}

/* The i-th group, created when it is new.  Indices are small, so that holes in the list stay
 * few. */
static json_t *group_at(struct teller *t, const char *number)
{
    size_t i = (size_t)strtoul(number, NULL, 10);

    while (i < DCP_MAX_VALUES && json_array_size(t->groups) <= i)
        if (json_array_append_new(t->groups, json_object()))
            return NULL;
    return json_array_get(t->groups, i);
}

/* param_groups/<i>/<key>.  Takes v. */
static int put_group(struct teller *t, const struct dcp_entry *e, size_t depth, json_t *v)
{
    json_t *group = e->n_part == depth + 3 ? group_at(t, e->part[depth + 1]) : NULL;

    if (group)
        return put(t, group, e->part[depth + 2], v);
    json_decref(v);
    return 0;
}

/* "param_groups.<parameter>.<key>": stored by parameter until all are read.  Takes v. */
static int put_flat(struct teller *t, const char *rest, json_t *v)
{
    const char *dot = strrchr(rest, '.');
    char *name = dot ? ckpt_arena_strndup(&t->arena, rest, (size_t)(dot - rest)) : NULL;
    json_t *one = name ? json_object_get(t->flat, name) : NULL;
    int rc;

    if (name && !one) {
        one = json_object();
        rc = put(t, t->flat, name, one);
        if (rc) {
            json_decref(v);
            return rc;
        }
    }
    if (one)
        return put(t, one, dot + 1, v);
    json_decref(v);
    return 0;
}

/* Group parameters with equal values. */
static int gather_flat(struct teller *t)
{
    const char *name;
    json_t *one;

    json_object_foreach (t->flat, name, one) {
        json_t *group, *found = NULL;
        size_t i;

        json_array_foreach (t->groups, i, group) {
            json_t *params = json_incref(json_object_get(group, "params"));

            json_object_del(group, "params");
            if (!found && json_equal(group, one))
                found = group;
            json_object_set_new(group, "params", params);
        }
        if (!found) {
            found = json_copy(one);
            json_object_set_new(found, "params", json_array());
            if (json_array_append_new(t->groups, found))
                return ckpt_nomem(t->err, 64);
        }
        if (json_array_append_new(json_object_get(found, "params"), json_string(name)))
            return ckpt_nomem(t->err, 64);
    }
    return 0;
}

/* Depth of "param_groups" in an entry's path, or SIZE_MAX. */
static size_t groups_depth(const struct dcp_entry *e)
{
    struct dcp_item it = {.part = e->part, .n_part = e->n_part};

    for (size_t k = 0; k < e->n_part; k++)
        if (dcp_names_groups_at(&it, k))
            return k;
    return SIZE_MAX;
}

/* Replace bytes that the program saved by a note: they are never shown or examined.  Takes v. */
static json_t *without_bytes(json_t *v, const char *path)
{
    const char *class = json_string_value(json_object_get(v, "$object"));

    if (!class || strcmp(class, "_io.BytesIO") != 0)
        return v;
    ckpt_log(CKPT_LOG_NOTE, "%s: bytes of an io.BytesIO, left out", path);
    json_decref(v);
    return json_string("bytes of an io.BytesIO, not read");
}

static int tell_one(struct teller *t, const struct dcp_entry *e)
{
    size_t depth = groups_depth(e);
    char *path = dcp_names_join(&t->arena, e->part, e->n_part, 0);
    json_t *v;
    int rc;

    if (!path)
        return ckpt_nomem(t->err, 64);
    if ((rc = load(t, &v, e)) != 0)
        return rc;
    v = without_bytes(v, path);
    if (depth == SIZE_MAX)
        return put(t, t->values, path, v);
    return strcmp(e->part[depth], "param_groups") == 0
               ? put_group(t, e, depth, v)
               : put_flat(t, e->part[depth] + strlen("param_groups."), v);
}

static int tell_all(struct teller *t, bool optimizer)
{
    size_t taken = 0, left = 0;
    int rc;

    for (size_t i = 0; i < t->m->n; i++) {
        const struct dcp_entry *e = &t->m->entry[i];

        if (!e->bytes || (!optimizer && groups_depth(e) != SIZE_MAX))
            continue;
        if (taken == DCP_MAX_VALUES) {
            left++;
            continue;
        }
        taken++;
        if ((rc = tell_one(t, e)) != 0)
            return rc;
    }
    if ((rc = gather_flat(t)) != 0)
        return rc;
    return left ? put(t, t->info, "values_left_out", json_integer((json_int_t)left)) : 0;
}

/* The number that tells how far training was. */
static void tell_step(struct teller *t)
{
    static const char *const names[] = {"step", "global_step", "iteration"};

    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_object_get(t->values, names[i]);

        if (json_is_integer(v) && !json_object_get(t->info, "step"))
            json_object_set_new(t->info, "step", json_integer(json_integer_value(v)));
    }
}

int dcp_values_tell(json_t *info, struct dcp_files *files, const struct dcp_meta *m,
                    bool optimizer, struct ckpt_err *err)
{
    struct teller t = {.info = info, .files = files, .m = m, .err = err, .flat = json_object(),
                       .values = json_object(), .groups = json_array()};
    int rc = info && t.flat && t.values && t.groups ? tell_all(&t, optimizer)
                                                    : ckpt_nomem(err, 64);

    if (rc == 0) {
        tell_step(&t);
        if (json_object_size(t.values))
            rc = put(&t, info, "values", json_incref(t.values));
        if (rc == 0 && json_array_size(t.groups))
            rc = put(&t, info, "param_groups", json_incref(t.groups));
    }
    json_decref(t.flat);
    json_decref(t.values);
    json_decref(t.groups);
    ckpt_arena_release(&t.arena);
    return rc;
}
