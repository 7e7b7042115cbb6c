/*
 * jinja - the templates that turn chat messages into text, rendered as transformers does.
 *
 * Jinja 3.1 as transformers' apply_chat_template runs it: trim_blocks, lstrip_blocks, loop
 * controls, the generation tag, an immutable sandbox, tojson without HTML escapes.  It implements
 * the part of the language that published chat templates use; anything else is refused by name
 * and line when the template is parsed, except filters and tests in branches, when they are used.
 * A template cannot reach a file, a process or other memory: values are copies that are freed
 * after rendering, and depth, steps, memory and output are limited.
 *
 * Source: jinja2 3.1 (lexer.py, parser.py, runtime.py, filters.py, tests.py) for behaviour,
 * transformers 5.17 utils/chat_template_utils.py for the environment.
 *
 * Abbreviations: jp (jinja's parser), jv (jinja's values).
 */
#ifndef CKPT_FORMATS_JINJA_JINJA_H
#define CKPT_FORMATS_JINJA_JINJA_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/fail.h"

#define JINJA_MAX_TEMPLATE ((size_t)1 << 20)    /* bytes */
#define JINJA_MAX_OUTPUT   ((size_t)64 << 20)
#define JINJA_MAX_MEMORY   ((uint64_t)256 << 20)
#define JINJA_MAX_STEPS    20000000             /* evaluated nodes */
#define JINJA_MAX_DEPTH    96                   /* of nested expressions, blocks and calls */

struct jinja;

/* CKPT_EFORMAT and CKPT_EUNSUPPORTED name the line. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct ckpt_err *err);
void jinja_free(struct jinja *t);

/* Bytes [begin, end) of the text that came from between {% generation %} and {% endgeneration
 * %}. */
struct jinja_span { size_t begin, end; };

struct jinja_out {
    struct ckpt_buf    text;
    struct jinja_span *span;
    size_t             n_span, cap;
};

/*
 * Render with the members of vars as variables.  now: seconds since 1970 for strftime_now; 0: the
 * clock.  out is zeroed, or one to be refilled.  An error that the template raises itself
 * (raise_exception) is CKPT_EFORMAT with its message.  Any thread.
 */
int jinja_render(const struct jinja *t, const json_t *vars, int64_t now, struct jinja_out *out,
                 struct ckpt_err *err);
/* Add a span. */
int jinja_out_add(struct jinja_out *out, size_t begin, size_t end, struct ckpt_err *err);
void jinja_out_release(struct jinja_out *out);

#endif
