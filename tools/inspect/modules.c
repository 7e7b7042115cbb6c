/*
 * modules - the tree of modules in the names of a checkpoint's tensors; see inspect.h.
 *
 * Components that are numbers become one "*": equal layers are shown once, with their number.
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/map.h"
#include "tools/inspect/inspect.h"

#define NONE SIZE_MAX

struct node {
    const char *path;                   /* "model.layers.*.mlp" */
    size_t      child, last, next;      /* first and last child, next child of the same parent */
    int         depth;
    int64_t     instances;              /* number of real prefixes it represents */
    int64_t     tensors, parameters;
    uint64_t    bytes;
};

struct tree {
    struct ckpt_arena arena;
    struct ckpt_map  *at, *raw;         /* path -> node; set of real prefixes */
    struct node      *node;
    size_t            n, cap;
};

static bool is_number(const char *s, size_t n)
{
    return n > 0 && strspn(s, "0123456789") >= n;
}

/* The node of path below parent, created when absent. */
static int node_of(size_t *out, struct tree *t, size_t parent, const char *path, size_t len,
                   struct ckpt_err *err)
{
    struct node *p;
    int rc;

    *out = ckpt_map_get(t->at, path, len);
    if (*out != CKPT_MAP_NONE)
        return 0;
    if ((rc = ckpt_reserve(&t->node, t->n, &t->cap, sizeof *t->node, err)) != 0)
        return rc;
    *out = t->n++;
    p = &t->node[parent];
    t->node[*out] = (struct node){.path = ckpt_arena_strndup(&t->arena, path, len), .child = NONE,
                                  .last = NONE, .next = NONE,
                                  .depth = *out ? p->depth + 1 : 0};
    if (!t->node[*out].path)
        return ckpt_nomem(err, len);
    if (*out && p->last != NONE)
        t->node[p->last].next = *out;
    else if (*out)
        p->child = *out;
    if (*out)
        p->last = *out;
    return ckpt_map_add(t->at, t->node[*out].path, len, *out, err);
}

/* Add one tensor to every module in its name. */
static int add(struct tree *t, const struct ckpt_tensor *x, bool tied, struct ckpt_err *err)
{
    char path[4096];
    size_t len = 0, at = 0;             /* at: the root */
    const char *p = x->name;
    int rc;

    if (strlen(x->name) >= sizeof path)
        return ckpt_fail(err, CKPT_ELIMIT, "tensor %s: its name has more than %zu bytes", x->name,
                         sizeof path - 1);
    for (bool more = true; more;) {
        size_t n = strcspn(p, ".");
        struct node *node;

        more = p[n] == '.';
        if (len)
            path[len++] = '.';
        if (is_number(p, n))
            path[len++] = '*';
        else
            len += (size_t)snprintf(path + len, sizeof path - len, "%.*s", (int)n, p);
        if ((rc = node_of(&at, t, at, path, len, err)) != 0)
            return rc;
        p += n;
        node = &t->node[at];
        if (ckpt_map_get(t->raw, x->name, (size_t)(p - x->name)) == CKPT_MAP_NONE) {
            node->instances++;
            if ((rc = ckpt_map_add(t->raw, x->name, (size_t)(p - x->name), 0, err)) != 0)
                return rc;
        }
        node->tensors++;
        node->parameters += tied ? 0 : x->numel;
        node->bytes += tied ? 0 : ckpt_tensor_bytes(x);
        p += more;
    }
    return 0;
}

static void put_node(struct out *o, const struct node *n, bool indent, const char *shape)
{
    const char *dot = strrchr(n->path, '.');
    char name[600];

    snprintf(name, sizeof name, "%*s%s", indent ? 2 * (n->depth - 1) : 0, "",
             dot ? dot + 1 : n->path);
    out_cell_str(o, n->path);
    out_cell_str(o, name);
    out_cell_int(o, n->instances);
    out_cell_int(o, n->tensors);
    out_cell_int(o, n->parameters);
    out_cell_bytes(o, n->bytes);
    out_cell_str(o, shape);
}

/* Depth first.  shape: of the tensors at the leaves, by node; NULL for modules. */
static int put_tree(struct out *o, const struct tree *t, bool indent, const char *const *shape,
                    struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"path", NULL, OUT_LEFT},           {"name", "module", OUT_LEFT},
        {"instances", "of them", OUT_RIGHT}, {"tensors", "tensors", OUT_RIGHT},
        {"parameters", "parameters", OUT_RIGHT}, {"bytes", "bytes", OUT_RIGHT},
        {"shape", "shape", OUT_LEFT},
    };
    size_t *stack = ckpt_alloc(t->n + 1, sizeof *stack), n = 0;

    if (!stack)
        return ckpt_nomem(err, t->n * sizeof *stack);
    out_table(o, "modules", columns, 7);
    for (size_t at = t->node[0].child; at != NONE || n > 0;) {
        if (at == NONE) {
            at = t->node[stack[--n]].next;
            continue;
        }
        put_node(o, &t->node[at], indent, shape[at] ? shape[at] : "");
        stack[n++] = at;
        at = t->node[at].child;
    }
    out_table_end(o);
    ckpt_free(stack);
    return 0;
}

/* The shape and dtype at each leaf; "" where its tensors differ. */
static int find_shapes(const char **shape, struct tree *t, const struct inspect_want *w,
                       struct ckpt_source *src, struct ckpt_err *err)
{
    char path[4096], text[300], dims[256];

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *x = ckpt_source_tensor(src, i);
        size_t len = 0, k;

        if (!inspect_wants(w, x->name))
            continue;
        for (const char *p = x->name;; p++) {
            size_t n = strcspn(p, ".");

            len += (size_t)snprintf(path + len, sizeof path - len, "%s%.*s", len ? "." : "",
                                    is_number(p, n) ? 1 : (int)n, is_number(p, n) ? "*" : p);
            p += n;
            if (!*p)
                break;
        }
        k = ckpt_map_get(t->at, path, len);
        snprintf(text, sizeof text, "%s %s", ckpt_dtype_name(x->dtype),
                 ckpt_shape_text(dims, sizeof dims, &x->shape));
        if (k == CKPT_MAP_NONE || (shape[k] && strcmp(shape[k], text) == 0))
            continue;
        shape[k] = shape[k] ? "" : ckpt_arena_printf(&t->arena, "%s", text);
        if (!shape[k])
            return ckpt_nomem(err, strlen(text));
    }
    return 0;
}

int inspect_modules(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                    bool indent, struct ckpt_err *err)
{
    struct tree t = {0};
    const char **shape = NULL;
    size_t root, n = 0;
    int rc = ckpt_map_new(&t.at, 64, err);

    if (rc == 0)
        rc = ckpt_map_new(&t.raw, ckpt_source_count(src), err);
    if (rc == 0)
        rc = node_of(&root, &t, 0, "", 0, err);
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *x = ckpt_source_tensor(src, i);

        if (!inspect_wants(w, x->name))
            continue;
        rc = add(&t, x, x->alias_of != i, err);
        n++;
    }
    if (rc == 0)
        rc = inspect_wanted(w, n, ckpt_source_count(src), err);
    if (rc == 0) {
        shape = ckpt_alloc(t.n, sizeof *shape);
        rc = shape ? find_shapes(shape, &t, w, src, err) : ckpt_nomem(err, t.n * sizeof *shape);
    }
    if (rc == 0) {
        out_str(o, "format", "format", ckpt_source_format(src));
        rc = put_tree(o, &t, indent, shape, err);
    }
    ckpt_free(shape);
    ckpt_free(t.node);
    ckpt_map_free(t.at);
    ckpt_map_free(t.raw);
    ckpt_arena_release(&t.arena);
    return rc;
}
