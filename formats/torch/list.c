/* torch/list - see torch/list.h. */
#include "formats/torch/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container/pickle/pickle.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/map.h"

/*
 * A shared part is listed under each of its paths: a file of a kilobyte could expand to any
 * number of them.  Real files repeat little.
 */
#define VISITS_MIN ((size_t)1 << 16)
#define VISITS_PER 16
#define VISITS_MAX ((size_t)256 << 20)
#define MAX_PATH   ((size_t)1 << 20)

/* A container on the path: its next child, and the end of its path. */
struct frame {
    const struct value *v;
    size_t              i, path_len;
    enum ckpt_kind      outside;        /* kind of the tensors around it */
    bool                mixed;          /* its keys are texts and others */
};

struct lister {
    struct torch_adder *to;
    struct frame        frame[PICKLE_MAX_DEPTH + 8];
    size_t              depth, visits, max_visits;
    struct ckpt_buf     path;
    const struct value *skip;           /* listed already */
    struct ckpt_err    *err;
};

/* The pairs of a dict or a record, or NULL. */
static const struct value_pairs *pairs_of(const struct value *v)
{
    return v->kind == VALUE_DICT ? &v->u.dict : v->kind == VALUE_OBJECT ? &v->u.obj.pairs : NULL;
}

static bool is_mixed(const struct value_pairs *d)
{
    size_t texts = 0;

    for (size_t i = 0; d && i < d->n; i++)
        texts += value_is(d->key[i], VALUE_STR);
    return texts && texts < d->n;
}

/* The value of a dictionary, or of an object that is one (a defaultdict); NULL when absent. */
static const struct value *find(const struct value *v, const char *key)
{
    const struct value_pairs *d = pairs_of(v);
    const struct value *found = NULL;

    for (size_t i = 0; d && i < d->n; i++)
        if (value_is(d->key[i], VALUE_STR) && strcmp(d->key[i]->u.text.p, key) == 0)
            found = d->val[i];
    return found;
}

/* Whether it is an optimizer's state, or random states of a training process. */
static bool holds_no_weights(const struct value *v)
{
    return (find(v, "state") && find(v, "param_groups")) || (find(v, "python") && find(v, "cpu"));
}

/* Visit v at the current path: list a tensor, enter a container. */
static int visit(struct lister *l, const struct value *v)
{
    if (++l->visits > l->max_visits)
        return ckpt_fail(l->err, CKPT_ELIMIT, "the values unfold to more than %zu", l->max_visits);
    if (v == l->skip)
        return 0;
    if (torch_add_is(v))                /* a file that is a single tensor has no path */
        return l->path.len ? torch_add(l->to, (const char *)l->path.data, l->path.len, v, l->err)
                           : torch_add(l->to, "tensor", 6, v, l->err);
    if (v->kind != VALUE_OBJECT && v->kind != VALUE_LIST && v->kind != VALUE_TUPLE &&
        v->kind != VALUE_DICT)
        return 0;
    for (size_t i = 0; i < l->depth; i++)
        if (l->frame[i].v == v)
            return 0;                   /* inside itself */
    if (l->depth == sizeof l->frame / sizeof l->frame[0])
        return ckpt_fail(l->err, CKPT_ELIMIT, "values nested deeper than %zu", l->depth);
    l->frame[l->depth++] = (struct frame){v, 0, l->path.len, l->to->kind, is_mixed(pairs_of(v))};
    if (holds_no_weights(v))
        l->to->kind = CKPT_OTHER;
    return 0;
}

/* The i-th child: pairs, then items, then the state; key NULL: by number. */
static const struct value *child(const struct value *v, size_t i, const struct value **key,
                                 size_t *number, bool *same_path)
{
    const struct value_pairs *d = pairs_of(v);
    const struct value_seq *s = v->kind == VALUE_DICT ? NULL
                                : v->kind == VALUE_OBJECT ? &v->u.obj.items : &v->u.seq;
    size_t n_pairs = d ? d->n : 0, n_items = s ? s->n : 0;

    *key = NULL;
    *same_path = false;
    *number = i;
    if (i < n_pairs) {
        *key = d->key[i];
        return d->val[i];
    }
    *number = i - n_pairs;
    if (i - n_pairs < n_items)
        return s->item[i - n_pairs];
    *same_path = true;
    return v->kind == VALUE_OBJECT && i == n_pairs + n_items ? v->u.obj.state : NULL;
}

/* A float as Python spells it: the fewest digits that read back as the same number. */
static void put_float(struct ckpt_buf *b, double f)
{
    char digits[40];
    int n = 1;

    do
        snprintf(digits, sizeof digits, "%.*g", n, f);
    while (n++ < 17 && strtod(digits, NULL) != f);
    ckpt_buf_printf(b, "%s%s", digits, strpbrk(digits, ".en") ? "" : ".0");
}

/*
 * Append a key: a text as it is, anything else as Python spells it, since 1 and (1, 2) must have
 * names of their own; texts within a tuple are in quotes.  What has no short spelling is # and its
 * place in the dict.
 */
static void put_key(struct ckpt_buf *b, const struct value *key, size_t number, int depth)
{
    enum { DEEPEST = 4, LONGEST = 1000 };       /* of a text in a tuple, bytes */
    bool tuple = value_is(key, VALUE_TUPLE) && depth < DEEPEST;
    int64_t n;

    if (value_is(key, VALUE_STR) && (depth == 0 || key->u.text.n <= LONGEST)) {
        ckpt_buf_put_str(b, depth ? "'" : "");
        ckpt_buf_put(b, key->u.text.p, key->u.text.n);
        ckpt_buf_put_str(b, depth ? "'" : "");
    } else if (value_as_int(key, &n)) {
        ckpt_buf_printf(b, "%lld", (long long)n);
    } else if (value_is(key, VALUE_FLOAT)) {
        put_float(b, key->u.f);
    } else if (value_is(key, VALUE_NONE)) {
        ckpt_buf_put_str(b, "None");
    } else if (!tuple) {
        ckpt_buf_printf(b, "#%zu", number);
    } else {
        ckpt_buf_put_str(b, "(");
        for (size_t i = 0; i < key->u.seq.n && b->len < MAX_PATH; i++) {
            ckpt_buf_put_str(b, i ? ", " : "");
            put_key(b, key->u.seq.item[i], i, depth + 1);
        }
        ckpt_buf_put_str(b, key->u.seq.n == 1 ? ",)" : ")");
    }
}

/* Whether put_key may write a key like this that is no text. */
static bool looks_other(const struct value_text *t)
{
    static const char *const words[] = {"None", "inf", "-inf", "nan", "-nan"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(t->p, words[i]) == 0)
            return true;
    return t->p[0] == '(' || t->p[0] == '#' || (t->n && strspn(t->p, "0123456789+-.e") == t->n);
}

/* Append to path: .key, or .i where there are no keys.  A text beside other keys is in quotes if it
 * could be one of them: 1 and '1'. */
static int extend(struct lister *l, const struct value *key, size_t number, bool mixed)
{
    const char *quote = mixed && value_is(key, VALUE_STR) && looks_other(&key->u.text) ? "'" : "";

    if (l->path.len + (value_is(key, VALUE_STR) ? key->u.text.n : 0) >= MAX_PATH)
        return ckpt_fail(l->err, CKPT_ELIMIT, "a path of over %zu bytes", MAX_PATH);
    if (l->path.len)
        ckpt_buf_put_u8(&l->path, '.');
    ckpt_buf_put_str(&l->path, quote);
    if (key)
        put_key(&l->path, key, number, 0);
    else
        ckpt_buf_printf(&l->path, "%zu", number);
    ckpt_buf_put_str(&l->path, quote);
    return ckpt_buf_ok(&l->path) ? 0 : ckpt_nomem(l->err, l->path.len);
}

static int walk(struct lister *l, const struct value *root)
{
    int rc = visit(l, root);

    while (rc == 0 && l->depth > 0) {
        struct frame *f = &l->frame[l->depth - 1];
        const struct value *key, *v;
        bool same_path, mixed = f->mixed;
        size_t number;

        l->path.len = f->path_len;
        v = child(f->v, f->i++, &key, &number, &same_path);
        if (!v) {
            l->to->kind = f->outside;
            l->depth--;
            continue;
        }
        if (!same_path)
            rc = extend(l, key, number, mixed);
        if (rc == 0)
            rc = visit(l, v);
    }
    return rc;
}

/* The state dict inside {"model": ...} and the like, or NULL. */
static const struct value *unwrap(const struct value *root)
{
    static const char *const wrappers[] = {"model", "state_dict", "module", "model_state_dict"};

    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        const struct value *v = find(root, wrappers[i]);
        const struct value_pairs *d = v ? pairs_of(v) : NULL;

        for (size_t k = 0; d && k < d->n; k++)
            if (torch_add_is(d->val[k]))
                return v;
    }
    return NULL;
}

int torch_list(struct torch_adder *to, struct ckpt_err *err)
{
    const struct value *root = torch_archive_root(to->a), *inner = unwrap(root);
    struct lister *l = ckpt_alloc(1, sizeof *l);
    int rc;

    if (!l)
        return ckpt_nomem(err, sizeof *l);
    rc = to->seen ? 0 : ckpt_map_new(&to->seen, 64, err);
    l->to = to;
    l->err = err;
    l->max_visits = VISITS_MIN + VISITS_PER * torch_archive_values(to->a);
    if (l->max_visits > VISITS_MAX)
        l->max_visits = VISITS_MAX;
    ckpt_buf_init(&l->path, 2 * MAX_PATH + 64);
    if (rc == 0 && inner) {
        to->kind = CKPT_WEIGHT;
        rc = walk(l, inner);
        l->path.len = 0;
        l->skip = inner;
    }
    to->kind = inner ? CKPT_OTHER : CKPT_WEIGHT;
    if (rc == 0)
        rc = walk(l, root);
    ckpt_buf_release(&l->path);
    ckpt_free(l);
    return rc;
}
