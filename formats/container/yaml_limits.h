/*
 * yaml_limits - what libyaml is not given: its work grows with the square of nesting, of anchors
 * and of directives, so that some kilobytes of them take a minute.
 *
 * Its own events tell, read until a limit is passed; nothing is built of them.
 * Source: libyaml 0.2.5 src/scanner.c (yaml_parser_stale_simple_keys), src/loader.c
 * (yaml_parser_register_anchor), src/parser.c (yaml_parser_append_tag_directive).
 */
#ifndef CKPT_FORMATS_CONTAINER_YAML_LIMITS_H
#define CKPT_FORMATS_CONTAINER_YAML_LIMITS_H

#include <stddef.h>

#include "libckpt/err.h"

#define YAML_MAX_DEPTH      64          /* as JSON's */
#define YAML_MAX_ANCHORS    1000        /* and aliases */
#define YAML_MAX_DIRECTIVES 16
#define YAML_MAX_NODES      200000      /* some 100 bytes of memory each */

/*
 * CKPT_ELIMIT, which names the line, when text has more of something.  What is no YAML passes: the
 * parser that follows tells where.
 */
int yaml_check_limits(const char *text, size_t len, struct ckpt_err *err);

#endif
