/* pickle/walk - see pickle/walk.h. */
#include "formats/container/pickle/walk.h"

#include <stdlib.h>
#include <string.h>

#include "formats/container/pickle/fields.h"
#include "formats/container/pickle/text.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/map.h"

#define MAX_BYTES ((uint64_t)1 << 30)   /* limit of arena: hostile pickles expand, checkpoints do
                                           not */
#define MAX_NEST  4                     /* pickles within byte strings of pickles */
#define MAX_TUPLE 64                    /* longer ones cannot be relevant arguments */

struct walker {
    struct pickle_walk *w;
    struct ckpt_err    *err;
    struct ckpt_cursor  c;
    struct ckpt_map    *seen;           /* names */
    struct pickle_stack s;
    uint64_t            next_memo;      /* MEMOIZE's */
    int64_t             getattrs;       /* values that are getattr itself, minus those explained */
    size_t              base;           /* nested pickles: offset of their bytes */
    size_t              at;
    unsigned char       op;
    int                 nest;
};

static int nomem(struct walker *k) { return ckpt_nomem(k->err, 64); }

static void broken(struct walker *k, const char *why)
{
    if (k->w->broken || k->nest)
        return;
    k->w->broken = why;
    k->w->broken_at = k->at;
}

static void odd(struct walker *k, bool dangerous, const char *what)
{
    struct pickle_walk *w = k->w;

    for (size_t i = 0; i < w->n_odd; i++)
        if (w->odd[i].what == what)
            return;
    if (w->n_odd < PICKLE_WALK_ODDS)
        w->odd[w->n_odd++] = (struct pickle_odd){what, k->base + k->at, dangerous};
}

static int push(struct walker *k, struct item item) { return stack_push(&k->s, item, k->err); }
static int push_other(struct walker *k) { return push(k, (struct item){OTHER, 0, {0}}); }
static struct item pop(struct walker *k) { return stack_pop(&k->s); }

static bool is_getattr(const struct walker *k, const struct item *item)
{
    const struct pickle_use *u = item->kind == NAME ? &k->w->use[item->n] : NULL;

    return u && strcmp(u->name, "getattr") == 0 &&
           (strcmp(u->module, "builtins") == 0 || strcmp(u->module, "__builtin__") == 0);
}

static int memo_get(struct walker *k, uint64_t index)
{
    struct item item = stack_recall(&k->s, index);

    k->getattrs += is_getattr(k, &item);
    return push(k, item);
}

/* -- names and calls ------------------------------------------------------------------------- */

static int push_name(struct walker *k, const char *module, size_t n_module, const char *name,
                     size_t n_name)
{
    struct pickle_walk *w = k->w;
    char *key = n_module > 4096 || n_name > 4096 ? NULL
                : ckpt_arena_alloc(&w->arena, n_module + n_name + 2, 1);
    struct item item = {NAME, 0, {0}};
    int rc;

    if (n_module > 4096 || n_name > 4096) {
        odd(k, true, "a global's name of more than 4096 bytes");
        return push_other(k);
    }
    if (!key)
        return nomem(k);
    memcpy(key, module, n_module);
    memcpy(key + n_module + 1, name, n_name);
    for (size_t i = 0; i < n_module + 1 + n_name; i++)
        if (!key[i] && i != n_module)
            key[i] = '?';               /* no module has such a name */
    item.n = ckpt_map_get(k->seen, key, n_module + n_name + 1);
    if (item.n == CKPT_MAP_NONE) {
        if (ckpt_reserve(&w->use, w->n_use, &w->cap_use, sizeof *w->use, k->err))
            return CKPT_ENOMEM;
        item.n = w->n_use;
        if ((rc = ckpt_map_add(k->seen, key, n_module + n_name + 1, item.n, k->err)) != 0)
            return rc;
        w->use[w->n_use++] = (struct pickle_use){key, key + n_module + 1, k->base + k->at, false,
                                                 false};
    }
    k->getattrs += is_getattr(k, &item);
    return push(k, item);
}

static int push_stack_name(struct walker *k)
{
    struct item name = pop(k), module = pop(k);

    if (name.kind == TEXT && module.kind == TEXT)
        return push_name(k, module.u.p, module.n, name.u.p, name.n);
    odd(k, true, "asks for a global whose name is computed");
    return push_other(k);
}

static bool names(const struct walker *k, const struct item *item, const char *module,
                  const char *name)
{
    const struct pickle_use *u = item->kind == NAME || item->kind == MADE
                                     ? &k->w->use[item->n] : NULL;

    return u && strcmp(u->name, name) == 0 &&
           strncmp(u->module, module, strlen(module)) == 0;
}

/* getattr(a class, "MEMBER"), as members of enumerations were written. */
static bool asks_member(struct walker *k, const struct item *args)
{
    const struct item *class, *name;

    if (args->kind != TUPLE || args->n != 2)
        return false;
    class = &args->u.item[0];
    name = &args->u.item[1];
    if (class->kind != NAME || name->kind != TEXT || name->n == 0 || name->u.p[0] == '_' ||
        memchr(name->u.p, '.', name->n))
        return false;
    k->w->use[class->n].member = true;
    return true;
}

static int push_call(struct walker *k, struct item callee, struct item args)
{
    struct item made = {MADE, callee.n, {0}};
    bool wrapper, dtype;

    if (!k->w->broken && !k->s.broken && (callee.kind == NAME || callee.kind == MADE))
        k->w->called = true;
    if (callee.kind == MADE) {
        k->w->use[callee.n].called = true;
        odd(k, true, "calls what a call gave");
        return push(k, made);
    }
    if (callee.kind == MEMBER) {        /* FSDP1: ShardedTensor.ProcessGroupState */
        if (strcmp(k->w->use[callee.n].name, "ShardedTensor") != 0)
            odd(k, true, "calls a member of a class");
        return push(k, made);
    }
    if (callee.kind != NAME) {
        broken(k, "calls what is no name");
        return push_other(k);
    }
    k->w->use[callee.n].called = true;
    if (is_getattr(k, &callee) && asks_member(k, &args)) {
        k->getattrs--;
        made.kind = MEMBER;
        made.n = args.u.item[0].n;
        return push(k, made);
    }
    wrapper = names(k, &callee, "joblib.", "NumpyArrayWrapper");
    dtype = names(k, &callee, "numpy", "dtype");
    if (!wrapper && !dtype)
        return push(k, made);
    made.u.f = ckpt_arena_alloc(&k->w->arena, 1, sizeof *made.u.f);
    if (!made.u.f)
        return nomem(k);
    made.u.f->wrapper = wrapper;
    if (dtype)
        fields_of_dtype(made.u.f, &args);
    return push(k, made);
}

static int tuple(struct walker *k, const struct item *from, size_t n)
{
    struct item t = {n <= MAX_TUPLE ? TUPLE : OTHER, n, {0}};

    if (t.kind == TUPLE && n) {
        t.u.item = ckpt_arena_alloc(&k->w->arena, n, sizeof *from);
        if (!t.u.item)
            return nomem(k);
        memcpy(t.u.item, from, n * sizeof *from);
    }
    return push(k, t);
}

/* -- containers ------------------------------------------------------------------------------ */

/* Add items to the container on the stack. */
static void fill(struct walker *k, const struct item *item, size_t n)
{
    struct item *to = stack_top(&k->s);

    if (!to)
        broken(k, "nothing to fill");
    else if (to->kind == NAME)
        odd(k, true, "changes a module or class that it names");
    else if (to->kind == DICT && to->u.f)
        for (size_t i = 0; i + 1 < n; i += 2)
            fields_set(to->u.f, &item[i], &item[i + 1]);
}

static int walk_nested(struct walker *k, const unsigned char *p, size_t n, size_t *end);

/* Skip the bytes of an array after its wrapper. */
static int skip_array(struct walker *k, const struct fields *f)
{
    int64_t bytes;
    size_t end = 0;

    k->w->arrays = true;
    if (f->dtype && f->object) {
        int rc = walk_nested(k, k->c.base + k->c.pos, ckpt_cursor_left(&k->c), &end);

        ckpt_cursor_skip(&k->c, end);
        return rc;
    }
    if (!fields_bytes(f, &bytes)) {
        broken(k, "an array of unknown size");
        k->c.failed = true;
        return 0;
    }
    if (f->aligned)
        ckpt_cursor_skip(&k->c, ckpt_cursor_u8(&k->c));
    ckpt_cursor_skip(&k->c, (size_t)bytes);
    return 0;
}

static int build(struct walker *k)
{
    struct item state = pop(k), *v = stack_top(&k->s);

    if (!v)
        broken(k, "nothing to build");
    else if (v->kind == NAME)
        odd(k, true, "changes a module or class that it names");
    else if (v->kind == MADE && v->u.f && v->u.f->wrapper && state.kind == DICT && state.u.f)
        return skip_array(k, state.u.f);
    return 0;
}

static int push_dict(struct walker *k)
{
    struct item d = {DICT, 0, {0}};

    d.u.f = ckpt_arena_alloc(&k->w->arena, 1, sizeof *d.u.f);
    return d.u.f ? push(k, d) : nomem(k);
}

/* -- operands -------------------------------------------------------------------------------- */

/* Bytes that are a pickle themselves may be passed to pickle.loads. */
static int push_bytes(struct walker *k, enum item_kind kind, uint64_t n)
{
    struct item item = {kind, (size_t)n, {0}};
    size_t end;
    int rc = 0;

    item.u.p = n <= ckpt_cursor_left(&k->c) ? (const char *)ckpt_cursor_bytes(&k->c, (size_t)n)
                                            : NULL;
    if (!item.u.p) {
        k->c.failed = true;
        return 0;
    }
    if (n > 3 && (unsigned char)item.u.p[0] == 0x80 && item.u.p[1] <= 5 && item.u.p[1] >= 0)
        rc = walk_nested(k, (const unsigned char *)item.u.p, item.n, &end);
    return rc ? rc : push(k, item);
}

/* Push a text of protocol 0 or 1, with its escapes decoded. */
static int push_value(struct walker *k, const struct value *v, const char *why)
{
    if (why)
        broken(k, why);
    else if (!v)
        return nomem(k);
    if (value_is(v, VALUE_STR) || value_is(v, VALUE_BYTES))
        return push(k, (struct item){TEXT, v->u.text.n, {.p = v->u.text.p}});
    if (value_is(v, VALUE_INT))
        return push(k, (struct item){INT, 0, {.i = v->u.i}});
    return push_other(k);
}

static int push_line(struct walker *k)
{
    const char *why = NULL, *p;
    struct value *v = NULL;
    size_t n;

    p = (const char *)ckpt_cursor_line(&k->c, &n);
    if (!p)
        return 0;
    switch (k->op) {
    case 'S': v = pickle_line_string(&k->w->arena, p, n, &why); break;
    case 'V': v = pickle_line_unicode(&k->w->arena, p, n, &why); break;
    case 'F': v = pickle_line_float(&k->w->arena, p, n, &why); break;
    default:  v = pickle_line_int(&k->w->arena, p, n, k->op == 'I', &why); break;
    }
    return push_value(k, v, why);
}

static uint64_t line_number(struct walker *k)
{
    size_t n = 0;
    const unsigned char *p = ckpt_cursor_line(&k->c, &n);
    uint64_t i = 0;

    for (size_t at = 0; p && at < n; at++) {
        if (p[at] < '0' || p[at] > '9' || i > UINT32_MAX)
            broken(k, "no memo index");
        else
            i = i * 10 + (uint64_t)(p[at] - '0');
    }
    return i;
}

static int push_line_name(struct walker *k)
{
    size_t n_module, n_name;
    const char *module = (const char *)ckpt_cursor_line(&k->c, &n_module);
    const char *name = module ? (const char *)ckpt_cursor_line(&k->c, &n_name) : NULL;

    return name ? push_name(k, module, n_module, name, n_name) : 0;
}

/* torch's persistent ids are ("storage", class, key, place, numel), or a plain key. */
static int persistent(struct walker *k)
{
    struct item id = pop(k);
    const struct item *what = id.kind == TUPLE && id.n ? &id.u.item[0] : NULL;

    if (id.kind == TEXT || id.kind == INT)
        return push_other(k);
    if (!what || what->kind != TEXT || what->n != 7 || memcmp(what->u.p, "storage", 7) != 0)
        odd(k, false, "a persistent id that is no storage of torch's");
    return push_other(k);
}

/* -- opcodes --------------------------------------------------------------------------------- */

/* 1: not of this family. */
static int op_constant(struct walker *k)
{
    int64_t n;

    switch (k->op) {
    case 'N': case 0x88: case 0x89: return push_other(k);
    case 'J': n = (int32_t)ckpt_cursor_u32le(&k->c); break;
    case 'K': n = ckpt_cursor_u8(&k->c); break;
    case 'M': n = ckpt_cursor_u16le(&k->c); break;
    case 0x8a: case 0x8b:
        n = k->op == 0x8a ? ckpt_cursor_u8(&k->c) : (int32_t)ckpt_cursor_u32le(&k->c);
        if (n < 0 || n > 8) {
            ckpt_cursor_skip(&k->c, n < 0 ? SIZE_MAX : (size_t)n);
            return push_other(k);
        } else {
            const unsigned char *p = ckpt_cursor_bytes(&k->c, (size_t)n);
            const char *why = NULL;

            return p ? push_value(k, pickle_long(&k->w->arena, p, (size_t)n, &why), why) : 0;
        }
    case 'G': ckpt_cursor_skip(&k->c, 8); return push_other(k);
    case 'X': return push_bytes(k, TEXT, ckpt_cursor_u32le(&k->c));
    case 0x8c: return push_bytes(k, TEXT, ckpt_cursor_u8(&k->c));
    case 0x8d: return push_bytes(k, TEXT, ckpt_cursor_u64le(&k->c));
    case 'T': return push_bytes(k, TEXT, ckpt_cursor_u32le(&k->c));
    case 'U': return push_bytes(k, TEXT, ckpt_cursor_u8(&k->c));
    case 'B': return push_bytes(k, BYTES, ckpt_cursor_u32le(&k->c));
    case 'C': return push_bytes(k, BYTES, ckpt_cursor_u8(&k->c));
    case 0x8e: case 0x96: return push_bytes(k, BYTES, ckpt_cursor_u64le(&k->c));
    case 'I': case 'L': case 'F': case 'S': case 'V': return push_line(k);
    default: return 1;
    }
    return push(k, (struct item){INT, 0, {.i = n}});
}

static int tuple_of(struct walker *k, size_t n)
{
    struct item item[3];

    for (size_t i = n; i-- > 0;)
        item[i] = pop(k);
    return tuple(k, item, n);
}

static int op_container(struct walker *k)
{
    struct item item[2];
    size_t from, n;

    switch (k->op) {
    case ')': return push(k, (struct item){TUPLE, 0, {0}});
    case ']': case 0x8f: return push_other(k);
    case '}': return push_dict(k);
    case 0x85: case 0x86: case 0x87: return tuple_of(k, (size_t)(k->op - 0x84));
    case 'a': pop(k); fill(k, NULL, 0); return 0;
    case 's':
        item[1] = pop(k);
        item[0] = pop(k);
        fill(k, item, 2);
        return 0;
    case 't': n = stack_pop_mark(&k->s, &from); return tuple(k, n ? &k->s.item[from] : NULL, n);
    case 'l': case 'd': case 0x91: stack_pop_mark(&k->s, &from); return push_other(k);
    case 'e': case 'u': case 0x90:
        n = stack_pop_mark(&k->s, &from);
        fill(k, n ? &k->s.item[from] : NULL, n);
        return 0;
    case '1': stack_pop_mark(&k->s, &from); return 0;
    default: return 1;
    }
}

static int op_inst(struct walker *k)
{
    struct item class = {OTHER, 0, {0}}, none = {TUPLE, 0, {0}};
    size_t from, n;
    int rc;

    if (k->op == 'i') {
        if ((rc = push_line_name(k)) != 0)
            return rc;
        if (k->c.failed)
            return 0;
        class = pop(k);
        stack_pop_mark(&k->s, &from);
    } else {
        n = stack_pop_mark(&k->s, &from);
        if (n)
            class = k->s.item[from];
        else
            broken(k, "no class");
    }
    return push_call(k, class, none);
}

static int op_record(struct walker *k)
{
    struct item a, b;
    size_t n;

    switch (k->op) {
    case 'c': return push_line_name(k);
    case 0x93: return push_stack_name(k);
    case 'R': case 0x81:
        b = pop(k);
        a = pop(k);
        return push_call(k, a, b);
    case 0x92:
        pop(k);
        b = pop(k);
        a = pop(k);
        return push_call(k, a, b);
    case 'b': return build(k);
    case 'i': case 'o': return op_inst(k);
    case 'Q': return persistent(k);
    case 'P':
        ckpt_cursor_line(&k->c, &n);
        return push_other(k);
    case 0x82: case 0x83: case 0x84:
        ckpt_cursor_skip(&k->c, (size_t)1 << (k->op - 0x82));
        odd(k, true, "asks for a name by its number in an extension registry");
        return push_other(k);
    case 'q': return stack_keep(&k->s, ckpt_cursor_u8(&k->c), k->err);
    case 'r': return stack_keep(&k->s, ckpt_cursor_u32le(&k->c), k->err);
    case 0x94: return stack_keep(&k->s, k->next_memo++, k->err);
    case 'h': return memo_get(k, ckpt_cursor_u8(&k->c));
    case 'j': return memo_get(k, ckpt_cursor_u32le(&k->c));
    case 'p': return stack_keep(&k->s, line_number(k), k->err);
    case 'g': return memo_get(k, line_number(k));
    default: return 1;
    }
}

static int op_control(struct walker *k)
{
    struct item *t;

    switch (k->op) {
    case 0x80:
        if (ckpt_cursor_u8(&k->c) > 5)
            broken(k, "protocols 0 to 5 are known");
        return 0;
    case 0x95: ckpt_cursor_skip(&k->c, 8); return 0;
    case '(': return stack_mark(&k->s, k->err);
    case '0':
        stack_drop(&k->s);
        return 0;
    case '2':
        t = stack_top(&k->s);
        if (!t)
            broken(k, "nothing to duplicate");
        else
            k->getattrs += is_getattr(k, t);
        return t ? push(k, *t) : push_other(k);
    case 0x97: odd(k, false, "asks for a buffer beside the pickle"); return push_other(k);
    case 0x98: return 0;
    case '.':
        k->w->stopped |= !k->nest;
        if (k->s.n == 0)
            broken(k, "stops without a value");
        return 0;
    default:
        broken(k, "no such opcode");
        return 1;
    }
}

static int steps(struct walker *k, bool *stopped)
{
    int rc = 0;

    while (rc == 0 && !*stopped && !k->c.failed) {
        k->at = k->c.pos;
        if (ckpt_cursor_left(&k->c) == 0) {
            k->c.failed = true;
            break;
        }
        k->w->steps++;
        k->op = ckpt_cursor_u8(&k->c);
        rc = op_constant(k);
        if (rc == 1)
            rc = op_container(k);
        if (rc == 1)
            rc = op_record(k);
        if (rc == 1)
            rc = op_control(k);
        if (k->s.broken)
            broken(k, k->s.broken);
        *stopped = rc == 0 && k->op == '.' && !k->c.failed;
    }
    return rc == 1 ? 0 : rc;
}

/* Walk a nested pickle with its own stack and memo; *end: its length, or 0 when it has no end. */
static int walk_nested(struct walker *k, const unsigned char *p, size_t n, size_t *end)
{
    struct walker in = {.w = k->w, .err = k->err, .seen = k->seen, .nest = k->nest + 1,
                        .base = k->base + (size_t)(p - k->c.base)};
    bool stopped = false;
    int rc;

    *end = 0;
    if (in.nest > MAX_NEST) {
        odd(k, true, "pickles inside each other, too deep to follow");
        return 0;
    }
    ckpt_cursor_init(&in.c, p, n);
    rc = steps(&in, &stopped);
    if (stopped)
        *end = in.c.pos;
    k->getattrs += in.getattrs;
    stack_release(&in.s);
    return rc;
}

int pickle_walk(struct pickle_walk *w, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct walker k = {.w = w, .err = err};
    bool stopped = false;
    int rc;

    w->arena.limit = MAX_BYTES;
    w->stopped = w->cut = w->arrays = false;
    w->broken = NULL;
    rc = ckpt_map_new(&k.seen, 64, err);
    for (size_t i = 0; rc == 0 && i < w->n_use; i++)
        rc = ckpt_map_add(k.seen, w->use[i].module,
                          strlen(w->use[i].module) + strlen(w->use[i].name) + 1, i, err);
    ckpt_cursor_init(&k.c, bytes, n);
    if (rc == 0)
        rc = steps(&k, &stopped);
    w->cut = rc == 0 && !stopped && k.c.failed;
    w->end = k.c.failed ? n : k.c.pos;
    w->getattr |= k.getattrs > 0;
    ckpt_map_free(k.seen);
    stack_release(&k.s);
    return rc;
}

void pickle_walk_release(struct pickle_walk *w)
{
    ckpt_arena_release(&w->arena);
    ckpt_free(w->use);
    *w = (struct pickle_walk){0};
}
