/* params - see params.h. */
#include "trainer/model/params.h"

#include <fnmatch.h>
#include <string.h>

#include "libckpt/map.h"
#include "trainer/model/arch.h"
#include "trainer/model/families.h"

static size_t count(const struct arch *arch, const struct name *list, int64_t layer)
{
    size_t n = 0;

    for (; list->text; list++)
        if (role_exists(arch, list->role, layer))
            n += role_is_expert(list->role) ? (size_t)arch->num_experts : 1;
    return n;
}

static int append_one(struct params *p, const struct arch *arch, const struct name *name,
                      int unit, int64_t expert, struct ckpt_err *err)
{
    struct param *q = &p->item[p->n];

    q->name = name_expand(&p->arena, p->prefix, name, unit - 1, expert);
    q->shape = role_shape(arch, name->role);
    if (!q->name || !ckpt_shape_numel(&q->numel, &q->shape))
        return ckpt_nomem(err, strlen(name->text) + 32);
    q->unit = unit;
    q->offset = p->unit_numel[unit];
    q->decay = role_decays(name->role);
    q->trainable = true;
    q->role = (int)name->role;
    q->expert = expert;
    p->unit_numel[unit] += q->numel;
    p->numel += q->numel;
    if (ckpt_map_add(p->by_name, q->name, strlen(q->name), p->n, err))
        return ckpt_err_in(err, "parameter %s", q->name);
    p->n++;
    return 0;
}

/* Append what exists of a list as the parameters of a unit; experts one after another. */
static int append(struct params *p, const struct arch *arch, const struct name *list, int unit,
                  struct ckpt_err *err)
{
    for (; list->text; list++) {
        const struct name *end = list;

        if (!role_exists(arch, list->role, unit - 1))
            continue;
        while (role_is_expert(end->role))
            end++;
        for (int64_t e = 0; list < end && e < arch->num_experts; e++)
            for (const struct name *one = list; one < end; one++)
                if (append_one(p, arch, one, unit, e, err))
                    return err->code;
        if (list == end && append_one(p, arch, list, unit, 0, err))
            return err->code;
        list = list < end ? end - 1 : list;
    }
    return 0;
}

int params_build(struct params *p, const struct arch *arch, struct ckpt_err *err)
{
    const struct family *f = arch->family;
    int64_t layers = arch->num_hidden_layers;
    size_t n = count(arch, f->before, -1) + count(arch, f->after, -1);

    for (int64_t l = 0; l < layers; l++)
        n += count(arch, f->block, l);
    memset(p, 0, sizeof *p);
    p->prefix = f->prefix;
    p->spare = f->spare;
    p->n_unit = (int)layers + 2;
    p->item = ckpt_arena_alloc(&p->arena, n, sizeof *p->item);
    p->unit_numel = ckpt_arena_alloc(&p->arena, (size_t)p->n_unit, sizeof *p->unit_numel);
    if (!p->item || !p->unit_numel) {
        ckpt_nomem(err, n * sizeof *p->item);
        goto fail;
    }
    if (ckpt_map_new(&p->by_name, n, err) || append(p, arch, f->before, 0, err))
        goto fail;
    for (int u = 1; u <= (int)layers; u++)
        if (append(p, arch, f->block, u, err))
            goto fail;
    if (append(p, arch, f->after, p->n_unit - 1, err))
        goto fail;
    return 0;
fail:
    params_release(p);
    return err->code;
}

static size_t exactly(const struct params *p, const char *name, size_t n)
{
    if (p->by_name)
        return ckpt_map_get(p->by_name, name, n);
    for (size_t i = 0; i < p->n; i++)       /* a list made by hand, in tests */
        if (strncmp(p->item[i].name, name, n) == 0 && p->item[i].name[n] == '\0')
            return i;
    return SIZE_MAX;
}

size_t params_find(const struct params *p, const char *name)
{
    char with[4096];
    size_t k = strlen(p->prefix ? p->prefix : ""), n = strlen(name);
    size_t i = exactly(p, name, n);

    if (i != SIZE_MAX || k == 0 || n + k >= sizeof with)
        return i;
    memcpy(with, p->prefix, k);
    memcpy(with + k, name, n + 1);
    return exactly(p, with, n + k);
}

bool params_spare(const struct params *p, const char *name)
{
    for (const char *const *glob = p->spare; glob && *glob; glob++)
        if (fnmatch(*glob, name, 0) == 0)
            return true;
    return false;
}

void params_release(struct params *p)
{
    ckpt_map_free(p->by_name);
    ckpt_arena_release(&p->arena);
    memset(p, 0, sizeof *p);
}
