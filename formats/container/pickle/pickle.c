/* pickle - see pickle.h. */
#include "formats/container/pickle/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "formats/container/pickle/text.h"

struct machine {
    struct ckpt_cursor *c;
    struct ckpt_arena  *a;
    struct ckpt_err    *err;
    struct value_seq   *names;          /* collects every global, or NULL */
    struct value      **stack;
    size_t              n, cap;
    size_t             *mark;           /* stack heights */
    size_t              n_mark, cap_mark;
    struct value      **memo;
    size_t              n_memo, cap_memo;
    size_t              next_memo;      /* MEMOIZE's */
    size_t              at;             /* offset of the opcode, for messages */
    size_t              frame_end;      /* end of the frame, in the cursor; frames contain whole
                                           opcodes */
    unsigned char       op;
    bool                done;
};

static int bad(struct machine *m, const char *what)
{
    return ckpt_fail(m->err, CKPT_EFORMAT, "pickle: opcode 0x%02x at %zu: %s", m->op, m->at, what);
}

static int nomem(struct machine *m) { return ckpt_nomem(m->err, 64); }

static int push(struct machine *m, struct value *v)
{
    if (!v)
        return nomem(m);
    if (m->n == PICKLE_MAX_STACK)
        return ckpt_fail(m->err, CKPT_ELIMIT, "pickle: more than %u values on the stack",
                         PICKLE_MAX_STACK);
    if (ckpt_reserve(&m->stack, m->n, &m->cap, sizeof *m->stack, m->err))
        return CKPT_ENOMEM;
    m->stack[m->n++] = v;
    return 0;
}

/* Lowest height the stack may shrink to: the last mark. */
static size_t floor_of(const struct machine *m) { return m->n_mark ? m->mark[m->n_mark - 1] : 0; }

static struct value *pop(struct machine *m)
{
    return m->n > floor_of(m) ? m->stack[--m->n] : NULL;
}

static struct value *top(struct machine *m)
{
    return m->n > floor_of(m) ? m->stack[m->n - 1] : NULL;
}

static int push_mark(struct machine *m)
{
    if (m->n_mark == PICKLE_MAX_STACK)
        return ckpt_fail(m->err, CKPT_ELIMIT, "pickle: more than %u marks", PICKLE_MAX_STACK);
    if (ckpt_reserve(&m->mark, m->n_mark, &m->cap_mark, sizeof *m->mark, m->err))
        return CKPT_ENOMEM;
    m->mark[m->n_mark++] = m->n;
    return 0;
}

/* Pop the items since the last mark, and the mark: *n items at the returned place. */
static struct value **pop_mark(struct machine *m, size_t *n)
{
    size_t from;

    if (m->n_mark == 0)
        return NULL;
    from = m->mark[--m->n_mark];
    *n = m->n - from;
    m->n = from;
    return m->stack ? m->stack + from : (struct value **)&m->stack;
}

static struct value *make(struct machine *m, enum value_kind kind)
{
    struct value *v = ckpt_arena_alloc(m->a, 1, sizeof *v);

    if (v)
        v->kind = kind;
    return v;
}

/* A sequence of n items. */
static struct value *sequence(struct machine *m, enum value_kind kind, struct value **item,
                              size_t n)
{
    struct value *v = make(m, kind);

    if (!v || n == 0)
        return v;
    v->u.seq.item = ckpt_arena_alloc(m->a, n, sizeof *item);
    if (!v->u.seq.item)
        return NULL;
    memcpy(v->u.seq.item, item, n * sizeof *item);
    v->u.seq.n = v->u.seq.cap = n;
    return v;
}

static struct value *text(struct machine *m, enum value_kind kind, const void *p, size_t n)
{
    struct value *v = make(m, kind);

    if (!v)
        return NULL;
    v->u.text.p = ckpt_arena_strndup(m->a, p, n);
    v->u.text.n = n;
    return v->u.text.p ? v : NULL;
}

/* Push n bytes of the pickle as text or bytes. */
static int push_text(struct machine *m, enum value_kind kind, uint64_t n)
{
    const unsigned char *p;

    if (n > PICKLE_MAX_TEXT)
        return ckpt_fail(m->err, CKPT_ELIMIT, "pickle: a text of %llu bytes, %zu at most",
                         (unsigned long long)n, PICKLE_MAX_TEXT);
    p = ckpt_cursor_bytes(m->c, (size_t)n);
    if (!p)
        return bad(m, "the pickle ends inside a text");
    if (m->op == 'T' || m->op == 'U')
        return push(m, pickle_str8(m->a, p, (size_t)n));
    if (kind == VALUE_STR && !pickle_text_valid(p, (size_t)n))
        return bad(m, "a text is no UTF-8");
    return push(m, text(m, kind, p, (size_t)n));
}

/* Push a value from pickle/text.h, or report why there is none. */
static int push_made(struct machine *m, struct value *v, const char *why)
{
    return why ? bad(m, why) : push(m, v);
}

static int push_long(struct machine *m, size_t n)
{
    const unsigned char *p = ckpt_cursor_bytes(m->c, n);
    const char *why = NULL;
    struct value *v;

    if (!p)
        return bad(m, "the pickle ends inside a number");
    v = pickle_long(m->a, p, n, &why);
    return push_made(m, v, why);
}

/* -- memo ----------------------------------------------------------------------------------- */

static int memo_put(struct machine *m, size_t i)
{
    struct value *v = top(m);

    if (!v)
        return bad(m, "nothing to remember");
    /* Memo indices may be sparse, but not larger than the pickle could have filled. */
    if (i >= PICKLE_MAX_MEMO || i > m->c->end)
        return ckpt_fail(m->err, CKPT_ELIMIT, "pickle: memo index %zu", i);
    if (i >= m->cap_memo) {
        size_t cap = m->cap_memo ? m->cap_memo : 256;
        struct value **grown;

        while (cap <= i)
            cap *= 2;
        grown = ckpt_grow(m->memo, cap, sizeof *m->memo);
        if (!grown)
            return nomem(m);
        memset(grown + m->cap_memo, 0, (cap - m->cap_memo) * sizeof *grown);
        m->memo = grown;
        m->cap_memo = cap;
    }
    m->memo[i] = v;
    return 0;
}

static int memo_get(struct machine *m, size_t i)
{
    return i < m->cap_memo && m->memo[i] ? push(m, m->memo[i]) : bad(m, "no such memo");
}

/* -- containers and records ------------------------------------------------------------------ */

static int add_items(struct machine *m, struct value_seq *to, struct value **item, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (value_seq_add(m->a, to, item[i]))
            return nomem(m);
    return 0;
}

static int append(struct machine *m, struct value *to, struct value **item, size_t n)
{
    if (!to)
        return bad(m, "nothing to append to");
    if (to->kind != VALUE_LIST && to->kind != VALUE_OBJECT)
        return bad(m, "appends to what is no list");
    return add_items(m, to->kind == VALUE_LIST ? &to->u.seq : &to->u.obj.items, item, n);
}

static int set_items(struct machine *m, struct value *to, struct value **item, size_t n)
{
    struct value_pairs *d;

    if (!to)
        return bad(m, "nothing to set items of");
    if (n % 2)
        return bad(m, "a key without a value");
    if (to->kind != VALUE_DICT && to->kind != VALUE_OBJECT)
        return bad(m, "sets items of what is no dictionary");
    d = to->kind == VALUE_DICT ? &to->u.dict : &to->u.obj.pairs;
    for (size_t i = 0; i < n; i += 2)
        if (item[i]->kind == VALUE_LIST || item[i]->kind == VALUE_DICT)
            return bad(m, "a key that cannot be one");
        else if (value_pairs_add(m->a, d, item[i], item[i + 1]))
            return nomem(m);
    return 0;
}

static int push_global(struct machine *m, const char *module, size_t n_module, const char *name,
                       size_t n_name)
{
    struct value *v = make(m, VALUE_GLOBAL);

    if (n_module > 1024 || n_name > 1024 || !ckpt_utf8_valid(module, n_module) ||
        !ckpt_utf8_valid(name, n_name))
        return bad(m, "a global's name is too long or no UTF-8");
    if (!v)
        return nomem(m);
    v->u.obj.module = ckpt_arena_strndup(m->a, module, n_module);
    v->u.obj.name = ckpt_arena_strndup(m->a, name, n_name);
    if (!v->u.obj.module || !v->u.obj.name ||
        (m->names && value_seq_add(m->a, m->names, v)))
        return nomem(m);
    return push(m, v);
}

/* ('module', class, file, source) stands for a module's class in torch's old container. */
static struct value *class_of(struct value *v)
{
    struct value *id = value_is(v, VALUE_PERSISTENT) ? v->u.seq.item[0] : NULL;

    return value_is(id, VALUE_TUPLE) && value_count(id) == 4 ? value_item(id, 1) : v;
}

/* Record callable(*args).  The callable is a name, or the record of another call. */
static int push_call(struct machine *m, struct value *callable, struct value *args,
                     struct value *kwargs, bool newobj)
{
    struct value *v = make(m, VALUE_OBJECT);
    bool object = value_is(callable = class_of(callable), VALUE_OBJECT);

    if ((!object && !value_is(callable, VALUE_GLOBAL)) || !value_is(args, VALUE_TUPLE))
        return bad(m, "calls what is no global, or with what is no tuple");
    if (object && strlen(callable->u.obj.name) > 1024)
        return bad(m, "calls what calls gave, too often");
    if (!v)
        return nomem(m);
    v->u.obj.module = callable->u.obj.module;
    v->u.obj.name = callable->u.obj.name;
    callable->u.obj.called = true;
    if (object) {                       /* not to be mistaken for a call of that name */
        v->u.obj.callee = callable;
        v->u.obj.name = ckpt_arena_printf(m->a, "%s()", callable->u.obj.name);
        if (!v->u.obj.name)
            return nomem(m);
    }
    v->u.obj.args = args;
    v->u.obj.kwargs = kwargs;
    v->u.obj.newobj = newobj;
    return push(m, v);
}

static int build(struct machine *m)
{
    struct value *state = pop(m), *v = top(m);

    if (!state || !value_is(v, VALUE_OBJECT))
        return bad(m, "builds what is no record");
    if (v->u.obj.state)                 /* a second BUILD is refused: the first could prepare
                                           what the second executes */
        return ckpt_fail_as(m->err, CKPT_EREFUSED, "refused-global",
                            "pickle: builds one record twice at %zu: this file looks malicious",
                            m->at);
    v->u.obj.state = state;
    return 0;
}

/* -- protocol 0 lines ------------------------------------------------------------------------ */

static int line(struct machine *m, const char **p, size_t *n)
{
    *p = (const char *)ckpt_cursor_line(m->c, n);
    if (!*p || *n > PICKLE_MAX_TEXT)
        return bad(m, "the pickle ends inside a line");
    return 0;                           /* a CR is part of it, as in CPython */
}

/* INT, LONG, FLOAT, STRING, UNICODE. */
static int push_line(struct machine *m)
{
    const char *p, *why = NULL;
    struct value *v;
    size_t n;
    int rc;

    if ((rc = line(m, &p, &n)) != 0)
        return rc;
    switch (m->op) {
    case 'F': v = pickle_line_float(m->a, p, n, &why); break;
    case 'S': v = pickle_line_string(m->a, p, n, &why); break;
    case 'V': v = pickle_line_unicode(m->a, p, n, &why); break;
    default:  v = pickle_line_int(m->a, p, n, m->op == 'I', &why); break;
    }
    return push_made(m, v, why);
}

static int line_index(struct machine *m, size_t *i)
{
    const char *p;
    size_t n;
    int rc;

    if ((rc = line(m, &p, &n)) != 0)
        return rc;
    *i = 0;
    for (size_t k = 0; k < n; k++) {
        if (p[k] < '0' || p[k] > '9' || *i > PICKLE_MAX_MEMO)
            return bad(m, "no memo index");
        *i = *i * 10 + (size_t)(p[k] - '0');
    }
    return 0;
}

/* GLOBAL's two lines. */
static int push_line_global(struct machine *m)
{
    const char *module, *name;
    size_t n_module, n_name;
    int rc;

    if ((rc = line(m, &module, &n_module)) != 0 || (rc = line(m, &name, &n_name)) != 0)
        return rc;
    return push_global(m, module, n_module, name, n_name);
}

/* -- opcodes by family ----------------------------------------------------------------------- */

/* Opcodes that push one constant or text.  1: not of this family. */
static int op_constant(struct machine *m)
{
    double f;
    uint64_t bits;

    switch (m->op) {
    case 'N':  return push(m, value_none(m->a));
    case 0x88: return push(m, value_bool(m->a, true));
    case 0x89: return push(m, value_bool(m->a, false));
    case 'J':  return push(m, value_int(m->a, (int32_t)ckpt_cursor_u32le(m->c)));
    case 'K':  return push(m, value_int(m->a, ckpt_cursor_u8(m->c)));
    case 'M':  return push(m, value_int(m->a, ckpt_cursor_u16le(m->c)));
    case 0x8a: return push_long(m, ckpt_cursor_u8(m->c));
    case 0x8b: return push_long(m, ckpt_cursor_u32le(m->c));
    case 'G':
        bits = ckpt_cursor_u64be(m->c);
        memcpy(&f, &bits, sizeof f);
        return push(m, value_float(m->a, f));
    case 'X': case 'T': return push_text(m, VALUE_STR, ckpt_cursor_u32le(m->c));
    case 0x8c: case 'U': return push_text(m, VALUE_STR, ckpt_cursor_u8(m->c));
    case 0x8d: return push_text(m, VALUE_STR, ckpt_cursor_u64le(m->c));
    case 'B':  return push_text(m, VALUE_BYTES, ckpt_cursor_u32le(m->c));
    case 'C':  return push_text(m, VALUE_BYTES, ckpt_cursor_u8(m->c));
    case 0x8e: case 0x96: return push_text(m, VALUE_BYTES, ckpt_cursor_u64le(m->c));
    case 'I': case 'L': case 'F': case 'S': case 'V': return push_line(m);
    default:   return 1;
    }
}

static int tuple_of(struct machine *m, size_t n)
{
    if (m->n - floor_of(m) < n)
        return bad(m, "too few values for a tuple");
    m->n -= n;
    return push(m, sequence(m, VALUE_TUPLE, m->stack + m->n, n));
}

/* Opcodes that make and fill containers. */
static int op_container(struct machine *m)
{
    struct value **item, *v, *key;
    size_t n = 0;
    int rc;

    switch (m->op) {
    case ')':  return push(m, make(m, VALUE_TUPLE));
    case ']':  return push(m, make(m, VALUE_LIST));
    case '}':  return push(m, make(m, VALUE_DICT));
    case 0x8f: return push(m, make(m, VALUE_SET));
    case 0x85: case 0x86: case 0x87:
        return tuple_of(m, (size_t)(m->op - 0x84));
    case 'a':
        v = pop(m);
        return v ? append(m, top(m), &v, 1) : bad(m, "nothing to append");
    case 's':
        v = pop(m);
        key = pop(m);
        return key ? set_items(m, top(m), (struct value *[]){key, v}, 2)
                   : bad(m, "nothing to set");
    case 't': case 'l': case 'd': case 'e': case 'u': case 0x90: case 0x91: case '1':
        break;
    default:
        return 1;
    }
    item = pop_mark(m, &n);
    if (!item)
        return bad(m, "no mark");
    switch (m->op) {
    case 't':  return push(m, sequence(m, VALUE_TUPLE, item, n));
    case 'l':  return push(m, sequence(m, VALUE_LIST, item, n));
    case 0x91: return push(m, sequence(m, VALUE_SET, item, n));
    case 'd':
        v = make(m, VALUE_DICT);
        rc = v ? set_items(m, v, item, n) : 0;
        return rc ? rc : push(m, v);
    case 'e':  return append(m, top(m), item, n);
    case 'u':  return set_items(m, top(m), item, n);
    case 0x90:
        v = top(m);
        return value_is(v, VALUE_SET) ? add_items(m, &v->u.seq, item, n)
                                      : bad(m, "adds to what is no set");
    default: return 0;                  /* POP_MARK */
    }
}

/* INST and OBJ: class and arguments since the mark. */
static int op_inst(struct machine *m)
{
    struct value **item, *class = NULL, *args;
    size_t n = 0;
    int rc;

    if (m->op == 'i') {
        if ((rc = push_line_global(m)) != 0)
            return rc;
        class = pop(m);
    }
    item = pop_mark(m, &n);
    if (!item || (m->op == 'o' && n == 0))
        return bad(m, "no mark, or no class");
    if (m->op == 'o') {
        class = item[0];
        item++;
        n--;
    }
    args = sequence(m, VALUE_TUPLE, item, n);
    return args ? push_call(m, class, args, NULL, false) : nomem(m);
}

/* Opcodes that record names, calls, persistent ids and memos. */
static int op_record(struct machine *m)
{
    struct value *a, *b, *c;
    const char *p;
    size_t i, n;
    int rc;

    switch (m->op) {
    case 'c': return push_line_global(m);
    case 0x93:
        b = pop(m);
        a = pop(m);
        if (!value_is(a, VALUE_STR) || !value_is(b, VALUE_STR))
            return bad(m, "a global's names are no texts");
        return push_global(m, a->u.text.p, a->u.text.n, b->u.text.p, b->u.text.n);
    case 'R': case 0x81:
        b = pop(m);
        a = pop(m);
        return push_call(m, a, b, NULL, m->op == 0x81);
    case 0x92:
        c = pop(m);
        b = pop(m);
        a = pop(m);
        return value_is(c, VALUE_DICT) ? push_call(m, a, b, c, true)
                                       : bad(m, "keyword arguments are no dictionary");
    case 'b':  return build(m);
    case 'i': case 'o': return op_inst(m);
    case 'Q':
        a = pop(m);
        return a ? push(m, sequence(m, VALUE_PERSISTENT, &a, 1)) : bad(m, "no persistent id");
    case 'P':
        if ((rc = line(m, &p, &n)) != 0)
            return rc;
        a = text(m, VALUE_STR, p, n);
        return a ? push(m, sequence(m, VALUE_PERSISTENT, &a, 1)) : nomem(m);
    case 'q':  return memo_put(m, ckpt_cursor_u8(m->c));
    case 'r':  return memo_put(m, ckpt_cursor_u32le(m->c));
    case 0x94: return memo_put(m, m->next_memo++);
    case 'h':  return memo_get(m, ckpt_cursor_u8(m->c));
    case 'j':  return memo_get(m, ckpt_cursor_u32le(m->c));
    case 'p':
    case 'g':
        rc = line_index(m, &i);
        return rc ? rc : m->op == 'p' ? memo_put(m, i) : memo_get(m, i);
    default:   return 1;
    }
}

/* Opcodes that steer the machine. */
static int op_control(struct machine *m)
{
    uint64_t n;

    switch (m->op) {
    case 0x80:
        if (m->at != 0)
            return bad(m, "the protocol is named in the middle");
        return ckpt_cursor_u8(m->c) <= 5 ? 0 : bad(m, "protocols 0 to 5 are known");
    case 0x95:
        n = ckpt_cursor_u64le(m->c);
        if (m->c->pos - 8 <= m->frame_end)
            return bad(m, "a frame inside a frame");
        if (n > ckpt_cursor_left(m->c)) {
            m->c->failed = true;        /* like any read past the end */
            return bad(m, "a frame passes the end");
        }
        m->frame_end = m->c->pos + (size_t)n;
        return 0;
    case '(':  return push_mark(m);
    case '0':  return pop(m) ? 0 : bad(m, "nothing to pop");
    case '2':  return top(m) ? push(m, top(m)) : bad(m, "nothing to duplicate");
    case '.':
        m->done = true;
        return m->n == 1 && m->n_mark == 0 ? 0 : bad(m, "stops with other than one value");
    case 0x82: case 0x83: case 0x84:
        return ckpt_fail(m->err, CKPT_EREFUSED,
                                "pickle: an extension registry is asked for at %zu", m->at);
    case 0x97: case 0x98:
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                                "pickle: out-of-band buffers are not read");
    default:   return bad(m, "no such opcode");
    }
}

static int step(struct machine *m)
{
    bool framed = m->c->pos <= m->frame_end;
    int rc = op_constant(m);

    if (rc == 1)
        rc = op_container(m);
    if (rc == 1)
        rc = op_record(m);
    if (rc == 1)
        rc = op_control(m);
    if (rc == 0 && m->c->failed)
        rc = bad(m, "the pickle ends inside an argument");
    if (rc == 0 && framed && m->c->pos > m->frame_end)
        rc = bad(m, "an opcode passes the end of its frame");
    return rc;
}

int pickle_read(struct value **out, struct ckpt_cursor *c, struct ckpt_arena *arena,
                struct value_seq *names, struct ckpt_err *err)
{
    struct machine m = {.c = c, .a = arena, .err = err, .names = names};
    size_t base = c->pos;
    int rc = 0;

    *out = NULL;
    while (rc == 0 && !m.done) {
        m.at = c->pos - base;
        m.op = ckpt_cursor_u8(c);
        rc = c->failed ? ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                                      "pickle: ends at %zu without STOP", m.at) : step(&m);
    }
    if (rc == 0)
        *out = m.stack[0];
    ckpt_free(m.stack);
    ckpt_free(m.mark);
    ckpt_free(m.memo);
    return rc;
}
