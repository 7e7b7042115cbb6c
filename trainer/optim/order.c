/* optim/order - see optim/order.h. */
#include "trainer/optim/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/families/family.h"
#include "formats/families/role.h"
#include "libckpt/err.h"

/* The position of a parameter among all. */
struct place {
    int64_t major, minor;
    size_t  param;
};

struct making {
    struct optim_order  *out;
    struct optim_part   *part;      /* free space among the parts */
    const struct params *p;
    const struct arch   *arch;
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->major != y->major)
        return x->major < y->major ? -1 : 1;
    return (x->minor > y->minor) - (x->minor < y->minor);
}

/* After tokens and positions, in families whose final norms and projections are created first. */
static int64_t early(int role)
{
    switch (role) {
    case ROLE_TOKENS:
        return 0;
    case ROLE_POS:
        return 1;
    case ROLE_PROJ_OUT:
        return 2;
    case ROLE_PROJ_IN:
        return 3;
    case ROLE_FINAL_NORM_W:
    case ROLE_FINAL_NORM_B:
        return 4;
    default:
        return -1;
    }
}

static struct place place_of(const struct params *p, const struct arch *arch, bool fused, size_t i)
{
    const struct param *q = &p->item[i];
    struct place at = {
        .major = (int64_t)(p->n + 1) * q->layer, .minor = 2 * (int64_t)i, .param = i};

    if (arch->family->ends_first && early(q->role) >= 0)
        at.major = early(q->role);
    if (fused && arch->family->experts_first && q->role == ROLE_ROUTER_W) {
        size_t last = i + 1;

        while (last < p->n && (p->item[last].layer == q->layer) &&
               role_is_expert((enum role)p->item[last].role))
            last++;
        at.minor = 2 * (int64_t)last - 1;
    }
    return at;
}

static void add(struct making *m, size_t i)
{
    struct optim_slot *s = &m->out->slot[m->out->n++];

    *m->part = (struct optim_part){.param = i};
    *s = (struct optim_slot){.shape = m->p->item[i].shape, .group = m->p->item[i].group,
                             .part = m->part++, .n_part = 1};
}

/* Add the tensor of one matrix of all experts of the block, or of two concatenated. */
static void add_fused(struct making *m, const struct place *run, size_t n, enum role a, enum role b)
{
    const struct arch *arch = m->arch;
    int64_t D = arch->hidden_size, F = arch->moe_intermediate_size, E = arch->num_experts;
    bool down = a == ROLE_EXPERT_DOWN;
    struct optim_slot *s = &m->out->slot[m->out->n++];
    struct params_stacked at = {0};

    *s = (struct optim_slot){
        .shape = ckpt_shape_of(3, (int64_t[]){E, down ? D : 2 * F, down ? F : D}), .part = m->part,
    };
    for (size_t k = 0; k < n; k++) {
        const struct param *q = &m->p->item[run[k].param];

        if (q->role != (int)a && q->role != (int)b)
            continue;
        s->group = q->group;
        params_stacked(&at, m->p, run[k].param);
        *m->part++ = (struct optim_part){
            .param = run[k].param, .at = (at.matrix * at.height + at.above) * q->shape.dim[1]};
        s->n_part++;
    }
}

static void fill(struct making *m, const struct place *place, size_t n, bool fused)
{
    for (size_t k = 0, end; k < n; k = end) {
        const struct param *q = &m->p->item[place[k].param];

        end = k + 1;
        if (!fused || !role_is_expert((enum role)q->role)) {
            add(m, place[k].param);
            continue;
        }
        while (end < n && m->p->item[place[end].param].layer == q->layer &&
               role_is_expert((enum role)m->p->item[place[end].param].role))
            end++;
        add_fused(m, place + k, end - k, ROLE_EXPERT_GATE, ROLE_EXPERT_UP);
        add_fused(m, place + k, end - k, ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN);
    }
}

static int make(struct optim_order *out, struct ckpt_arena *a, const struct params *p,
                const struct arch *arch, bool fused, bool whole, struct ckpt_err *err)
{
    struct place *place = ckpt_arena_alloc(a, p->n, sizeof *place);
    struct making m = {.out = out, .part = ckpt_arena_alloc(a, p->n, sizeof *m.part), .p = p,
                       .arch = arch};
    int last = 1;

    *out = (struct optim_order){.slot = ckpt_arena_alloc(a, p->n, sizeof *out->slot)};
    if (!place || !m.part || !out->slot)
        return ckpt_nomem(err, p->n * (sizeof *place + sizeof *m.part + sizeof *out->slot));
    fused &= !p->adapted;               /* an adapter's parameters are separate */
    for (size_t i = 0; i < p->n; i++)
        last = p->item[i].group > last ? p->item[i].group : last;
    for (int group = 0; group <= (whole ? 0 : last); group++) {
        size_t n = 0;

        for (size_t i = 0; i < p->n; i++)
            if (p->item[i].trainable && (whole || p->item[i].group == group))
                place[n++] = place_of(p, arch, fused, i);
        qsort(place, n, sizeof *place, by_place);
        fill(&m, place, n, fused);
    }
    return 0;
}

int optim_order(struct optim_order *out, struct ckpt_arena *a, const struct params *p,
                const struct arch *arch, bool fused, struct ckpt_err *err)
{
    return make(out, a, p, arch, fused, false, err);
}

int optim_order_whole(struct optim_order *out, struct ckpt_arena *a, const struct params *p,
                      const struct arch *arch, bool fused, struct ckpt_err *err)
{
    return make(out, a, p, arch, fused, true, err);
}

static int find(size_t *index, int64_t *at, const struct optim_order *o, const struct params *p,
                const struct ckpt_source *src, const char *const *moment, struct ckpt_err *err)
{
    char name[64];

    for (size_t k = 0; k < o->n; k++) {
        const struct optim_slot *s = &o->slot[k];
        const char *of = p->item[s->part[0].param].name;
        size_t t;

        if (!moment[s->part[0].param])
            continue;
        snprintf(name, sizeof name, "state.%zu.%s", k, moment[s->part[0].param]);
        t = ckpt_source_find(src, name);
        if (t == SIZE_MAX)
            return ckpt_fail_as(err, CKPT_EMISMATCH, "missing",
                                "optimizer.pt: %s is absent (parameter %s)", name, of);
        if (!ckpt_shape_equal(&ckpt_source_tensor(src, t)->shape, &s->shape))
            return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                                "optimizer.pt: %s has another shape than parameter %s", name, of);
        for (size_t j = 0; j < s->n_part; j++) {
            index[s->part[j].param] = t;
            at[s->part[j].param] = s->part[j].at;
        }
    }
    return 0;
}

/* Whether there is a state of that number. */
static bool has_state(const struct ckpt_source *src, size_t k)
{
    char start[32];

    snprintf(start, sizeof start, "state.%zu.", k);
    for (size_t t = 0; t < ckpt_source_count(src); t++)
        if (strncmp(ckpt_source_tensor(src, t)->name, start, strlen(start)) == 0)
            return true;
    return false;
}

int optim_match(size_t *index, int64_t *at, const struct params *p, const struct arch *arch,
                const struct ckpt_source *src, const char *const *moment, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_err other = {0};
    struct optim_order o;
    bool fused = true;
    int rc;

    for (size_t i = 0; i < p->n; i++) {
        index[i] = SIZE_MAX;
        at[i] = 0;
    }
    rc = optim_order(&o, &a, p, arch, true, err);
    /* A file with more states has the experts one by one. */
    if (rc == 0 && arch->num_experts > 0 && has_state(src, o.n))
        fused = false;
    if (rc == 0 && !fused)
        rc = optim_order(&o, &a, p, arch, false, err);
    if (rc == 0)
        rc = find(index, at, &o, p, src, moment, err);
    if (rc == CKPT_EMISMATCH && strcmp(err->reason, "shape") == 0 &&
        optim_order_whole(&o, &a, p, arch, fused, &other) == 0 &&
        find(index, at, &o, p, src, moment, &other) == 0)
        rc = 0;
    ckpt_arena_release(&a);
    return rc;
}
