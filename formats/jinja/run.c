/* jinja/run - execute a template's statements: variables, loops, output; see jinja.h. */
#include <string.h>

#include "formats/jinja/parts.h"

#define MAX_VARS 65536

struct variable {
    const char  *name;
    size_t       n;
    struct jv value;
};

enum flow { GO_ON, BREAK, CONTINUE, FAIL };

static enum flow run_all(struct run *r, int32_t first);

static const struct node *node_at(const struct run *r, int32_t i) { return &r->t->node[i]; }

/* -- variables ------------------------------------------------------------------------------- */

static bool is_named(const struct variable *v, const char *name, size_t n)
{
    return v->n == n && memcmp(v->name, name, n) == 0;
}

int jinja_set(struct run *r, const char *name, size_t n, struct jv value)
{
    for (size_t i = r->n_var; i-- > r->frame;)
        if (is_named(&r->var[i], name, n)) {
            r->var[i].value = value;
            return 0;
        }
    if (r->n_var == MAX_VARS)
        return jinja_fail(r, CKPT_ELIMIT, "more than %d variables", MAX_VARS);
    if (ckpt_reserve(&r->var, r->n_var, &r->cap_var, sizeof *r->var, r->err))
        return r->rc = CKPT_ENOMEM;
    r->var[r->n_var++] = (struct variable){name, n, value};
    return 0;
}

const struct jv *jinja_get(const struct run *r, const char *name, size_t n)
{
    for (size_t i = r->n_var; i-- > 0;)
        if (is_named(&r->var[i], name, n))
            return &r->var[i].value;
    return NULL;
}

size_t jinja_push(struct run *r)
{
    size_t before = r->frame;

    r->frame = r->n_var;
    return before;
}

void jinja_pop(struct run *r, size_t before)
{
    r->n_var = r->frame;
    r->frame = before;
}

struct jv jinja_capture(struct run *r, int32_t first)
{
    struct ckpt_buf text, *before = r->to;
    enum flow flow;

    ckpt_buf_init(&text, JINJA_MAX_OUTPUT);
    r->to = &text;
    flow = run_all(r, first);
    r->to = before;
    if (flow == FAIL) {
        ckpt_buf_release(&text);
        return (struct jv){0};
    }
    return jv_of_buf(r, &text);
}

/* -- statements ------------------------------------------------------------------------------ */

/* One target of a set: a name, or a namespace's member. */
static int assign(struct run *r, int32_t target, struct jv v)
{
    const struct node *n = node_at(r, target);
    struct jv space;

    if (n->kind == N_NAME)
        return jinja_set(r, n->name, n->n_name, v);
    space = jinja_eval(r, n->a);
    if (r->rc)
        return r->rc;
    if (space.kind != V_MAP || !space.map->is_namespace)
        return jinja_fail(r, CKPT_EFORMAT, "only members of a namespace can be set, not of %s",
                          jv_type(&space));
    return jv_put(r, space.map, jv_str(n->name, n->n_name), v);
}

static int assign_all(struct run *r, int32_t target, struct jv v)
{
    size_t k = 0, n = 0;
    int rc;

    if (node_at(r, target)->next < 0)
        return assign(r, target, v);
    for (int32_t i = target; i >= 0; i = node_at(r, i)->next)
        n++;
    if (v.kind != V_LIST || v.list->n != n)
        return jinja_fail(r, CKPT_EFORMAT, "%s for %zu names", jv_type(&v), n);
    for (int32_t i = target; i >= 0; i = node_at(r, i)->next)
        if ((rc = assign(r, i, v.list->item[k++])) != 0)
            return rc;
    return 0;
}

static void put_loop(struct run *r, struct jv loop, const struct jv_list *items, size_t i)
{
    struct jv none = {.kind = V_UNDEFINED, .str = {"loop", 4}};
    int64_t n = (int64_t)items->n, k = (int64_t)i;
    const struct { struct jv key, value; } fields[] = {
        {STR("index"), jv_int(k + 1)}, {STR("index0"), jv_int(k)},
        {STR("revindex"), jv_int(n - k)}, {STR("revindex0"), jv_int(n - k - 1)},
        {STR("first"), jv_bool(k == 0)}, {STR("last"), jv_bool(k + 1 == n)},
        {STR("length"), jv_int(n)}, {STR("depth"), jv_int(1)},
        {STR("depth0"), jv_int(0)},
        {STR("previtem"), k > 0 ? items->item[k - 1] : none},
        {STR("nextitem"), k + 1 < n ? items->item[k + 1] : none},
    };

    for (size_t f = 0; f < sizeof fields / sizeof *fields && !r->rc; f++)
        jv_put(r, loop.map, fields[f].key, fields[f].value);
}

/* The items that pass the "if" of a loop. */
static struct jv_list *keep_items(struct run *r, const struct node *node,
                                     struct jv_list *items)
{
    struct jv kept = jv_list_new(r, 0);

    for (size_t i = 0; i < items->n && !r->rc; i++) {
        size_t before = jinja_push(r);
        struct jv v = {0};

        if (assign_all(r, node->a, items->item[i]) == 0)
            v = jinja_eval(r, node->d);
        jinja_pop(r, before);
        if (!r->rc && jv_true(&v))
            jv_append(r, kept.list, items->item[i]);
    }
    return kept.list;
}

static enum flow run_for(struct run *r, const struct node *node)
{
    struct jv list = jinja_eval(r, node->b), loop;
    struct jv_list *items;
    enum flow flow = GO_ON;

    if (r->rc || jv_items(r, &list, &items))
        return FAIL;
    if (node->d >= 0)
        items = keep_items(r, node, items);
    loop = jv_map_new(r);
    jinja_loop_methods(r, &loop);
    if (r->rc)
        return FAIL;
    if (items->n == 0)
        return node->e >= 0 ? run_all(r, node->e) : GO_ON;
    for (size_t i = 0; i < items->n && flow != BREAK && flow != FAIL; i++) {
        size_t before = jinja_push(r);

        put_loop(r, loop, items, i);
        if (r->rc || jinja_set(r, "loop", 4, loop) ||
            assign_all(r, node->a, items->item[i]))
            flow = FAIL;
        else
            flow = run_all(r, node->c);
        jinja_pop(r, before);
    }
    return flow == FAIL ? FAIL : GO_ON;
}

int jinja_out_add(struct jinja_out *out, size_t begin, size_t end, struct ckpt_err *err)
{
    if (ckpt_reserve(&out->span, out->n_span, &out->cap, sizeof *out->span, err))
        return CKPT_ENOMEM;
    out->span[out->n_span++] = (struct jinja_span){begin, end};
    return 0;
}

static enum flow run_one(struct run *r, int32_t i)
{
    const struct node *node = node_at(r, i);
    struct jv v = {0};
    struct args none = {0};
    enum flow flow = GO_ON;
    size_t begin = r->to->len;

    r->line = node->line;
    switch (node->kind) {
    case N_TEXT:
        ckpt_buf_put(r->to, node->value.str.s, node->value.str.n);
        break;
    case N_PRINT:
        v = jinja_eval(r, node->a);
        if (!r->rc)
            jv_print(r->to, &v, false);
        break;
    case N_IF:
        v = jinja_eval(r, node->a);
        return r->rc ? FAIL : run_all(r, jv_true(&v) ? node->b : node->c);
    case N_FOR:
        return run_for(r, node);
    case N_SET:
        v = jinja_eval(r, node->b);
        if (!r->rc)
            assign_all(r, node->a, v);
        break;
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
        v = jinja_capture(r, node->c);
        if (!r->rc && node->kind == N_SET_BLOCK) {
            assign_all(r, node->a, v);
        } else if (!r->rc) {
            const struct node *filter = node_at(r, node->a);

            if (jinja_args_of(r, filter->b, &none) == 0)
                v = jinja_filter(r, filter->name, v, &none);
            if (!r->rc)
                jv_print(r->to, &v, false);
        }
        break;
    case N_MACRO:
        jinja_set(r, node->name, node->n_name, (struct jv){.kind = V_MACRO, .node = i});
        break;
    case N_BREAK:    return BREAK;
    case N_CONTINUE: return CONTINUE;
    case N_GENERATION:
        flow = run_all(r, node->c);
        if (flow != FAIL && r->to == &r->out->text)
            r->rc = jinja_out_add(r->out, begin, r->out->text.len, r->err);
        break;
    default:
        jinja_fail(r, CKPT_ESTATE, "node %d is no statement", node->kind);
    }
    if (!r->rc && !ckpt_buf_ok(r->to))
        jinja_full(r, r->to);
    return r->rc ? FAIL : flow;
}

static enum flow run_all(struct run *r, int32_t first)
{
    enum flow flow = GO_ON;

    if (r->depth >= 2 * JINJA_MAX_DEPTH) {
        jinja_fail(r, CKPT_ELIMIT, "calls itself too deep");
        return FAIL;
    }
    r->depth++;
    for (int32_t i = first; i >= 0 && flow == GO_ON; i = node_at(r, i)->next) {
        jv_work(r, 0);
        flow = r->rc ? FAIL : run_one(r, i);
    }
    r->depth--;
    return flow;
}

int jinja_render(const struct jinja *t, const json_t *vars, int64_t now, struct jinja_out *out,
                 struct ckpt_err *err)
{
    struct run r = {.t = t, .out = out, .to = &out->text, .err = err, .now = now,
                    .arena = {.limit = JINJA_MAX_MEMORY}};
    const char *name;
    json_t *v;

    if (!out->text.limit)
        ckpt_buf_init(&out->text, JINJA_MAX_OUTPUT);
    out->text.len = out->n_span = 0;
    json_object_foreach((json_t *)vars, name, v)
        if (r.rc == 0)
            jinja_set(&r, name, strlen(name), jv_of_json(&r, v));
    /* Variables that a template sets at top level are in the same frame, as in jinja's context. */
    if (r.rc == 0)
        run_all(&r, t->root);
    ckpt_free(r.var);
    ckpt_arena_release(&r.arena);
    return r.rc;
}

void jinja_out_release(struct jinja_out *out)
{
    ckpt_buf_release(&out->text);
    ckpt_free(out->span);
    *out = (struct jinja_out){0};
}
