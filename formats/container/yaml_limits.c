/* yaml_limits - see yaml_limits.h. */
#include "formats/container/yaml_limits.h"

#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#include "libckpt/mem.h"

/* Count lines that begin like directives, since the parser compares each with all others. */
static int check_directives(const char *text, size_t len, struct ckpt_err *err)
{
    size_t line = 1, n = 0;

    for (const char *at = text, *end = text + len; at < end; line++) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));

        if (*at == '%' && ++n > YAML_MAX_DIRECTIVES)
            return ckpt_fail(err, CKPT_ELIMIT, "line %zu: more than %d directives", line,
                             YAML_MAX_DIRECTIVES);
        at = eol ? eol + 1 : end;
    }
    return 0;
}

struct counts {
    size_t depth, anchors, nodes;
};

static bool is_anchored(const yaml_event_t *e)
{
    return e->type == YAML_ALIAS_EVENT ||
           (e->type == YAML_SCALAR_EVENT && e->data.scalar.anchor) ||
           (e->type == YAML_SEQUENCE_START_EVENT && e->data.sequence_start.anchor) ||
           (e->type == YAML_MAPPING_START_EVENT && e->data.mapping_start.anchor);
}

static int count(struct counts *c, const yaml_event_t *e, struct ckpt_err *err)
{
    bool begins = e->type == YAML_SEQUENCE_START_EVENT || e->type == YAML_MAPPING_START_EVENT;
    bool ends = e->type == YAML_SEQUENCE_END_EVENT || e->type == YAML_MAPPING_END_EVENT;
    size_t line = e->start_mark.line + 1;

    c->depth = c->depth + begins - ends;
    c->nodes += begins || e->type == YAML_SCALAR_EVENT;
    c->anchors += is_anchored(e);
    if (c->depth > YAML_MAX_DEPTH)
        return ckpt_fail(err, CKPT_ELIMIT, "line %zu: nested deeper than %d levels", line,
                         YAML_MAX_DEPTH);
    if (c->anchors > YAML_MAX_ANCHORS)
        return ckpt_fail(err, CKPT_ELIMIT, "line %zu: more than %d anchors and aliases", line,
                         YAML_MAX_ANCHORS);
    if (c->nodes > YAML_MAX_NODES)
        return ckpt_fail(err, CKPT_ELIMIT, "line %zu: more than %d values", line, YAML_MAX_NODES);
    return 0;
}

int yaml_check_limits(const char *text, size_t len, struct ckpt_err *err)
{
    struct counts c = {0};
    yaml_parser_t parser;
    yaml_event_t event;
    bool more = true;
    int rc = check_directives(text, len, err);

    if (rc)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return ckpt_nomem(err, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (rc == 0 && more && yaml_parser_parse(&parser, &event)) {
        more = event.type != YAML_STREAM_END_EVENT;
        rc = count(&c, &event, err);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}
