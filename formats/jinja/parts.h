/* jinja/parts - shared by the files of jinja: tokens, the flat tree, values. */
#ifndef CKPT_FORMATS_JINJA_PARTS_H
#define CKPT_FORMATS_JINJA_PARTS_H

#include "formats/jinja/jinja.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"

/* -- tokens (jinja/lex.c) -------------------------------------------------------------------- */

enum token_kind {
    TOK_TEXT, TOK_VAR, TOK_VAR_END, TOK_BLOCK, TOK_BLOCK_END, TOK_NAME, TOK_STRING, TOK_INT,
    TOK_FLOAT, TOK_OP, TOK_END
};

struct token {
    enum token_kind kind;
    const char     *s;          /* the spelling, or a string's value; in the arena */
    size_t          n;
    int             line;
};

/* All tokens, the last TOK_END. */
int jinja_lex(struct token **out, size_t *n, const char *text, size_t len,
              struct ckpt_arena *arena, struct ckpt_err *err);

/* -- values (jinja/value.c) ------------------------------------------------------------------ */

enum jv_kind {
    V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_STRING, V_LIST, V_MAP, V_MACRO, V_FUNCTION,
    V_METHOD
};

struct jv;
struct jv_list { struct jv *item; size_t n, cap; };
struct jv_pair;
struct jv_map { struct jv_pair *pair; size_t n, cap; bool is_namespace; };

struct jv {
    enum jv_kind kind;
    union {
        bool    b;
        int64_t i;
        double  d;
        struct { const char *s; size_t n; } str;    /* UTF-8; for undefined: its name */
        struct jv_list *list;
        struct jv_map  *map;
        int32_t            node;                    /* of a macro */
        int                function;
        struct { const struct jv *self; const char *name; } method;
    };
    bool is_tuple;                                  /* a list that prints with parentheses */
    bool is_safe;                                   /* a string of the filters safe and escape */
    bool is_group;                                  /* a tuple of groupby: .grouper and .list */
};

struct jv_pair { struct jv key, value; };

/* One rendering. */
struct run {
    const struct jinja *t;
    struct ckpt_arena   arena;
    struct jinja_out   *out;
    struct ckpt_buf    *to;             /* output goes here: out->text, or a block's buffer */
    struct ckpt_err    *err;
    int                 rc;             /* code of the first failure, which ends rendering, or 0 */
    struct variable    *var;
    size_t              n_var, cap_var, frame;  /* variables from frame on are in the innermost
                                                   scope */
    int64_t             steps, now;
    int                 depth, line;
};

#define STR(text) ((struct jv){.kind = V_STRING, .str = {(text), sizeof(text) - 1}})

struct jv jv_none(void);
struct jv jv_bool(bool b);
struct jv jv_int(int64_t i);
struct jv jv_str(const char *s, size_t n);
/* These give V_UNDEFINED when out of memory. */
struct jv jv_list_new(struct run *r, size_t room);
struct jv jv_map_new(struct run *r);
struct jv jv_copy_str(struct run *r, const char *s, size_t n);
struct jv jv_of_buf(struct run *r, struct ckpt_buf *b);       /* releases b */
struct jv jv_of_json(struct run *r, const json_t *v);
int jv_append(struct run *r, struct jv_list *list, struct jv v);
int jv_put(struct run *r, struct jv_map *map, struct jv key, struct jv v);
const struct jv *jv_get(struct run *r, const struct jv_map *map, const char *key, size_t n);
const struct jv *jv_find(struct run *r, const struct jv_map *map, const struct jv *key);
/*
 * Count work on that many bytes as one step or more; too many steps end rendering.  NULL: not
 * counted.
 */
#define JINJA_STEP_BYTES 64
#define JINJA_SLOW       16     /* cost of a byte that is examined singly, or searched for a hard
                                   text, relative to one that is compared or copied */
void jv_work(struct run *r, size_t bytes);

bool jv_true(const struct jv *v);
bool jv_is_number(const struct jv *v);
double jv_number(const struct jv *v);
bool jv_equal(struct run *r, const struct jv *a, const struct jv *b);
/* Less than; false with err where Python raises TypeError. */
bool jv_less(struct run *r, const struct jv *a, const struct jv *b);
bool jv_is_str(const struct jv *v, const char *s);
const char *jv_type(const struct jv *v);
/* Python's str() (quoted false) or repr(). */
void jv_print(struct ckpt_buf *b, const struct jv *v, bool quoted);
/* The arguments of json.dumps. */
struct jv_json {
    int       indent;                   /* < 0: one line */
    struct jv item, key;                /* strings after an item, and after a key */
    bool      ascii, sorted;            /* escape other characters; put keys in order */
};
int jv_json(struct run *r, struct ckpt_buf *b, const struct jv *v, const struct jv_json *how,
            int level);
/* The items of an iteration: keys of a map, characters of a string. */
int jv_items(struct run *r, const struct jv *v, struct jv_list **out);
size_t jv_utf8_count(const char *s, size_t n);
/* Byte offset of character k, at most n. */
size_t jv_utf8_offset(const char *s, size_t n, size_t k);
bool jv_utf8_is_space(const char *s, size_t n, size_t *width);

/* -- the tree (jinja/parse.c) ---------------------------------------------------------------- */

enum node_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_MAP, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT,
    N_NEGATE, N_PLUS, N_AND, N_OR, N_COND, N_OP, N_KEYWORD, N_STAR, N_STARS,
    /* statements */
    N_TEXT, N_PRINT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_BREAK, N_CONTINUE,
    N_GENERATION, N_FILTER_BLOCK
};

/*
 * Children are indices of nodes, -1 for none; next chains a list (statements, arguments).
 *
 *   N_ATTR a.name     N_ITEM a[b]      N_SLICE a[b:c:d]    N_CALL a(b...)   N_FILTER a|name(b...)
 *   N_TEST a is name(b...)             N_COND b if a else c                 N_OP a op b
 *   N_LIST a...       N_MAP key value key value...         N_KEYWORD name=a
 *   N_STAR *a         N_STARS **a
 *   N_PRINT a         N_IF a: b... else c...               N_SET a... = b   N_SET_BLOCK a = c...
 *   N_FOR a... in b if d: c... else e...                   N_MACRO name(a...): c...
 *   N_GENERATION c...                  N_FILTER_BLOCK a: c...
 */
struct node {
    enum node_kind kind;
    int            line;
    int32_t        a, b, c, d, e, next;
    const char    *name;                /* N_OP: the operator */
    size_t         n_name;
    struct jv   value;               /* N_CONST; N_TEXT: a string; is_tuple: N_LIST */
};

struct jinja {
    struct ckpt_arena arena;
    struct node      *node;
    size_t            n, cap;
    int32_t           root;             /* first statement, or -1 */
};

/* -- evaluation ------------------------------------------------------------------------------ */

struct args {
    struct jv     *item;                /* [n] by position */
    size_t         n;
    struct jv_map *named;               /* or NULL */
};

/* Variables: those from the last push on form the innermost scope, which pop removes. */
int jinja_set(struct run *r, const char *name, size_t n, struct jv value);
const struct jv *jinja_get(const struct run *r, const char *name, size_t n);
size_t jinja_push(struct run *r);
void jinja_pop(struct run *r, size_t before);
/* The output of statements, as a string. */
struct jv jinja_capture(struct run *r, int32_t first);
int jinja_args_of(struct run *r, int32_t first, struct args *args);
/* V_UNDEFINED with r->rc on failure. */
struct jv jinja_eval(struct run *r, int32_t node);
/* End rendering with an error, unless it has ended; both return r->rc. */
int jinja_fail(struct run *r, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);
int jinja_no_memory(struct run *r, size_t bytes);
/* The error of a failed buffer, which does not tell the cause: far below its limit, memory ran
 * out. */
int jinja_full(struct run *r, const struct ckpt_buf *b);
struct jv jinja_call(struct run *r, const struct jv *f, const struct args *args);
/* Argument i, or the one of that name, or fallback. */
struct jv jinja_arg(const struct args *args, size_t i, const char *name, struct jv fallback);
struct jv jinja_attr(struct run *r, const struct jv *v, const char *name, size_t n);
/* v[key] */
struct jv jinja_item(struct run *r, const struct jv *v, const struct jv *key);
struct jv jinja_filter(struct run *r, const char *name, struct jv v, const struct args *args);
struct jv jinja_batch(struct run *r, const struct jv_list *items, const struct args *args);
struct jv jinja_slice(struct run *r, const struct jv_list *items, const struct args *args);
struct jv jinja_word_count(const struct jv *v);
/* v % args, and v.format(args), of strings as in Python */
struct jv jinja_percent(struct run *r, struct jv v, const struct args *args);
struct jv jinja_format(struct run *r, struct jv v, const struct args *args);
/* A string with HTML's signs escaped. */
struct jv jinja_escape(struct run *r, struct jv v);
/* loop.cycle and loop.changed */
void jinja_loop_methods(struct run *r, struct jv *loop);
struct jv jinja_loop_method(struct run *r, const struct jv *loop, const char *name,
                            const struct args *args);
bool jinja_test(struct run *r, const char *name, const struct jv *v, const struct args *args);
struct jv jinja_method(struct run *r, const struct jv *self, const char *name,
                          const struct args *args);
bool jinja_has_method(const struct jv *v, const char *name);
struct jv jinja_strip(struct jv v, const struct jv *chars, bool left, bool right);
struct jv jinja_replace(struct run *r, struct jv v, const struct jv *from,
                           const struct jv *to, int64_t most);
struct jv jinja_case(struct run *r, struct jv v, char how);  /* 'u', 'l', 't', 'c' */
struct jv jinja_join(struct run *r, const struct jv_list *items, const struct jv *by);
struct jv jinja_items(struct run *r, const struct jv_map *map);
/* Used when the template is parsed. */
bool jinja_knows_filter(const char *name);
bool jinja_knows_test(const char *name);
struct jv jinja_op(struct run *r, const char *op, struct jv a, struct jv b);

#endif
