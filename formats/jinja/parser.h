/* jinja/parser - shared by expressions (jinja/parse.c) and statements (jinja/block.c). */
#ifndef CKPT_FORMATS_JINJA_PARSER_H
#define CKPT_FORMATS_JINJA_PARSER_H

#include "formats/jinja/parts.h"

struct parser {
    struct jinja       *t;
    const struct token *token;
    size_t              i;
    int                 depth, loops;
    bool                soft;           /* in a branch: a filter that is unknown fails when used */
    struct ckpt_err    *err;
    int                 rc;             /* code of the first failure, which ends parsing, or 0 */
};

/* Report an error: returns -1 and sets p->rc; s is quoted. */
int32_t jp_bad(struct parser *p, int code, const char *what, const char *s, size_t n);
int32_t jp_wrong(struct parser *p, const char *wanted);
int32_t jp_no_memory(struct parser *p, size_t bytes);
/* Enter one level; false beyond the limit. */
bool jp_enter(struct parser *p);
const struct token *jp_now(const struct parser *p);
bool jp_is(const struct token *t, enum token_kind kind, const char *s);
bool jp_accept(struct parser *p, enum token_kind kind, const char *s);
bool jp_expect(struct parser *p, const char *s);
int32_t jp_new(struct parser *p, enum node_kind kind);
int32_t jp_node(struct parser *p, enum node_kind kind, int32_t a, int32_t b, int32_t c);
struct node *jp_at(struct parser *p, int32_t i);
/* Copy a name to a string. */
bool jp_name(struct parser *p, int32_t n, const struct token *t);
/* Append a node to a chain: sets first if it is empty, and moves *last. */
void jp_chain(struct parser *p, int32_t *first, int32_t *last, int32_t n);
int32_t jp_expr(struct parser *p);
/* Parse an expression without a ternary. */
int32_t jp_or(struct parser *p);
/* Parse arguments after the opening parenthesis, including the closing one. */
int32_t jp_args(struct parser *p);
/* Parse a filter's name and arguments, applied to node n. */
int32_t jp_filter(struct parser *p, int32_t n);

#endif
