/* jinja_parts - what the rooms of jinja share: tokens, the flat tree, values. */
#ifndef CKPT_JINJA_PARTS_H
#define CKPT_JINJA_PARTS_H

#include "formats/text/jinja.h"
#include "libckpt/mem.h"

/* -- tokens (jinja_lex.c) -------------------------------------------------------------------- */

enum token_kind {
    TOK_TEXT, TOK_VAR, TOK_VAR_END, TOK_BLOCK, TOK_BLOCK_END, TOK_NAME, TOK_STRING, TOK_INT,
    TOK_FLOAT, TOK_OP, TOK_END
};

struct token {
    enum token_kind kind;
    const char     *s;          /* the spelling, or the value of a string; in the arena */
    size_t          n;
    int             line;
};

/* All tokens, the last TOK_END. */
int jinja_lex(struct token **out, size_t *n, const char *text, size_t len,
              struct ckpt_arena *arena, struct ckpt_err *err);

/* -- values (jinja_value.c) ------------------------------------------------------------------ */

enum value_kind {
    V_UNDEFINED, V_NONE, V_BOOL, V_INT, V_FLOAT, V_STRING, V_LIST, V_MAP, V_MACRO, V_FUNCTION,
    V_METHOD
};

struct value;
struct value_list { struct value *item; size_t n, cap; };
struct value_pair;
struct value_map { struct value_pair *pair; size_t n, cap; bool is_namespace; };

struct value {
    enum value_kind kind;
    union {
        bool    b;
        int64_t i;
        double  d;
        struct { const char *s; size_t n; } str;    /* UTF-8; undefined: the name it had */
        struct value_list *list;
        struct value_map  *map;
        int32_t            node;                    /* of a macro */
        int                function;
        struct { const struct value *self; const char *name; } method;
    };
    bool is_tuple;                                  /* a list that prints with parentheses */
};

struct value_pair { struct value key, value; };

/* One rendering. */
struct run {
    const struct jinja *t;
    struct ckpt_arena   arena;
    struct jinja_out   *out;
    struct ckpt_buf    *to;             /* where text goes: out->text, or a block's own */
    struct ckpt_err    *err;
    struct variable    *var;
    size_t              n_var, cap_var, frame;  /* variables from frame on are the innermost */
    int64_t             steps, now;
    int                 depth, line, loops;
};

#define STR(text) ((struct value){.kind = V_STRING, .str = {(text), sizeof(text) - 1}})

struct value value_none(void);
struct value value_bool(bool b);
struct value value_int(int64_t i);
struct value value_str(const char *s, size_t n);
/* These give V_UNDEFINED and set err when memory is short. */
struct value value_list_new(struct run *r, size_t room);
struct value value_map_new(struct run *r);
struct value value_copy_str(struct run *r, const char *s, size_t n);
struct value value_of_buf(struct run *r, struct ckpt_buf *b);       /* releases b */
struct value value_of_json(struct run *r, const json_t *v);
int value_append(struct run *r, struct value_list *list, struct value v);
int value_put(struct run *r, struct value_map *map, struct value key, struct value v);
const struct value *value_get(const struct value_map *map, const char *key, size_t n);
const struct value *value_find(const struct value_map *map, const struct value *key);

bool value_true(const struct value *v);
bool value_is_number(const struct value *v);
double value_number(const struct value *v);
bool value_equal(const struct value *a, const struct value *b);
/* Less than; false with err where Python raises TypeError. */
bool value_less(struct run *r, const struct value *a, const struct value *b);
bool value_is_str(const struct value *v, const char *s);
const char *value_type(const struct value *v);
/* Python's str() (quoted false) or repr(). */
void value_print(struct ckpt_buf *b, const struct value *v, bool quoted);
/* json.dumps(v, ensure_ascii=False, indent=); indent < 0: one line. */
int value_json(struct run *r, struct ckpt_buf *b, const struct value *v, int indent, int level);
/* The items that iterating gives: of a map its keys, of a string its characters. */
int value_items(struct run *r, const struct value *v, struct value_list **out);
size_t utf8_count(const char *s, size_t n);
/* Byte offset of character k, at most n. */
size_t utf8_offset(const char *s, size_t n, size_t k);
bool utf8_is_space(const char *s, size_t n, size_t *width);

/* -- the tree (jinja_parse.c) ---------------------------------------------------------------- */

enum node_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_MAP, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT,
    N_NEGATE, N_PLUS, N_AND, N_OR, N_COND, N_OP, N_KEYWORD,
    /* statements */
    N_TEXT, N_PRINT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_BREAK, N_CONTINUE,
    N_GENERATION, N_FILTER_BLOCK
};

/*
 * Children are numbers of nodes, -1 for none; next chains a list (statements, arguments).
 *
 *   N_ATTR a.name     N_ITEM a[b]      N_SLICE a[b:c:d]    N_CALL a(b...)   N_FILTER a|name(b...)
 *   N_TEST a is name(b...)             N_COND b if a else c                 N_OP a op b
 *   N_LIST a...       N_MAP key value key value...         N_KEYWORD name=a
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
    struct value   value;               /* N_CONST; N_TEXT: a string; is_tuple: N_LIST */
};

struct jinja {
    struct ckpt_arena arena;
    struct node      *node;
    size_t            n, cap;
    int32_t           root;             /* first statement, or -1 */
};

/* -- evaluation ------------------------------------------------------------------------------ */

struct args {
    struct value     *item;             /* [n] by position */
    size_t            n;
    struct value_map *named;            /* or NULL */
};

/* V_UNDEFINED with err on failure; err is what tells. */
struct value jinja_eval(struct run *r, int32_t node);
int jinja_fail(struct run *r, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);
struct value jinja_call(struct run *r, const struct value *f, const struct args *args);
/* Argument i, or that of the name, or fallback. */
struct value jinja_arg(const struct args *args, size_t i, const char *name, struct value fallback);
struct value jinja_attr(struct run *r, const struct value *v, const char *name, size_t n);
struct value jinja_filter(struct run *r, const char *name, struct value v, const struct args *args);
bool jinja_test(struct run *r, const char *name, const struct value *v, const struct args *args);
struct value jinja_method(struct run *r, const struct value *self, const char *name,
                          const struct args *args);
bool jinja_has_method(const struct value *v, const char *name);
/* Known when the template is parsed. */
bool jinja_knows_filter(const char *name);
bool jinja_knows_test(const char *name);
struct value jinja_op(struct run *r, const char *op, struct value a, struct value b);

#endif
