/*
 * yaml_limits - refuse YAML that libyaml would take minutes for: its work grows with the square of
 * nesting, of anchors and of directives.
 *
 * libyaml's own events are counted until a limit is passed; no document is built.
 * Source: libyaml 0.2.5 src/scanner.c (yaml_parser_stale_simple_keys), src/loader.c
 * (yaml_parser_register_anchor), src/parser.c (yaml_parser_append_tag_directive).
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
 * CKPT_ELIMIT, naming the line, when text passes a limit.  Text that is not YAML passes: the parser
 * that follows says where it is wrong.
 */
int yaml_check_limits(const char *text, size_t len, struct ckpt_err *err);

#endif
