/*
 * yaml_limits - refuse YAML that would keep libyaml busy for minutes: its work grows with the
 * square of nesting, of anchors and of directives.
 *
 * Counts libyaml's own events until a limit is passed; builds no document. Source: libyaml 0.2.5
 * src/scanner.c (yaml_parser_stale_simple_keys), src/loader.c (yaml_parser_register_anchor),
 * src/parser.c (yaml_parser_append_tag_directive).
 */
#ifndef CKPT_FORMATS_CONTAINER_YAML_LIMITS_H
#define CKPT_FORMATS_CONTAINER_YAML_LIMITS_H

#include <stddef.h>

#include "libckpt/fail.h"

#define YAML_MAX_DEPTH      64          /* as JSON's */
#define YAML_MAX_ANCHORS    1000        /* and aliases */
#define YAML_MAX_DIRECTIVES 16
#define YAML_MAX_NODES      200000      /* some 100 bytes of memory each */

/*
 * CKPT_ELIMIT, with the line, when text exceeds a limit.  Invalid YAML passes: the parser that
 * runs next reports it.
 */
int yaml_check_limits(const char *text, size_t len, struct ckpt_err *err);

#endif
