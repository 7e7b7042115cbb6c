/* pretok - see pretok.h. */
#include "formats/tokens/pretok.h"

#include <string.h>

#include "formats/tokens/regex.h"
#include "formats/tokens/scan.h"
#include "libckpt/buf.h"
#include "libckpt/json.h"
#include "libckpt/mem.h"

#define MAX_STEPS 16 /* the longest sequence seen has four; bounds the nesting of calls */

enum behaviour { REMOVED, ISOLATED, MERGED_PREVIOUS, MERGED_NEXT, CONTIGUOUS };

struct step {
    enum { STEP_SCAN, STEP_REGEX, STEP_PREFIX } kind;
    scan_fn        *scan;
    struct regex   *regex;
    enum behaviour  behaviour;
    bool            invert;
};

struct pretok {
    struct step step[MAX_STEPS];
    size_t      n_step;
    bool        bytes;
    bool        lone_bytelevel;     /* the whole pre-tokenizer is one ByteLevel */
};

struct pretok_run {
    struct regex_run *regex[MAX_STEPS];
    struct ckpt_buf   prefixed[MAX_STEPS];  /* " " and the piece */
};

/* Where a split stands; passed down the steps. */
struct walk {
    const struct pretok *p;
    struct pretok_run   *run;
    pretok_emit_fn      *emit;
    void                *ctx;
    struct ckpt_err     *err;
};

static int walk(const struct walk *w, size_t i_step, const struct piece *piece);

/* Hand bytes [from, to) of piece to the next step. */
static int hand(const struct walk *w, size_t i_step, const struct piece *piece, size_t from,
                size_t to)
{
    struct piece part = {.text = piece->text + from, .n = to - from, .at = piece->at + from};

    if (from == to)
        return 0;
    part.prefixed = piece->prefixed && from == 0;
    if (piece->prefixed && from > 0)
        part.at--;
    return walk(w, i_step + 1, &part);
}

static int walk_scan(const struct walk *w, size_t i_step, const struct piece *piece)
{
    scan_fn *scan = w->p->step[i_step].scan;
    int rc = 0;

    for (size_t from = 0, to; from < piece->n && rc == 0; from = to) {
        to = scan(piece->text, piece->n, from);
        rc = hand(w, i_step, piece, from, to);
    }
    return rc;
}

/* Segments as they come, and what is held back to be merged with a neighbour. */
struct split {
    const struct walk  *w;
    size_t              i_step;
    const struct piece *piece;
    size_t              held, end;      /* [held, end) waits */
    bool                held_match;     /* of the last segment that went into it */
    bool                any;
};

static int release(struct split *s, size_t next)
{
    int rc = hand(s->w, s->i_step, s->piece, s->held, s->end);

    s->held = s->end = next;
    s->any = false;
    return rc;
}

/*
 * One segment [from, to).  Matches and gaps alternate, but matches can touch; a match is glued
 * to a neighbour that is a gap, never to another match.
 */
static int segment(struct split *s, size_t from, size_t to, bool match)
{
    const struct step *step = &s->w->p->step[s->i_step];
    bool join = false;
    int rc = 0;

    match ^= step->invert;
    switch (step->behaviour) {
    case REMOVED:
        if (match) {
            rc = release(s, to);
            return rc;
        }
        break;
    case ISOLATED:
        break;
    case MERGED_PREVIOUS:
        join = match && s->any && !s->held_match;
        break;
    case MERGED_NEXT:
        join = !match && s->any && s->held_match;
        break;
    case CONTIGUOUS:
        join = s->any && match == s->held_match;
        break;
    }
    if (!join)
        rc = release(s, from);
    s->end = to;
    s->held_match = match;
    s->any = true;
    return rc;
}

static int walk_regex(const struct walk *w, size_t i_step, const struct piece *piece)
{
    const struct step *step = &w->p->step[i_step];
    struct split s = {.w = w, .i_step = i_step, .piece = piece};
    size_t done = 0, from = 0, start, end;
    bool found = true;
    int rc = 0;

    while (rc == 0 && from <= piece->n) {
        if (regex_find(step->regex, w->run->regex[i_step], piece->text, piece->n, from, &found,
                       &start, &end, w->err))
            return w->err->code;
        if (!found)
            break;
        if (start > done)
            rc = segment(&s, done, start, false);
        if (rc == 0 && end > start)
            rc = segment(&s, start, end, true);
        done = end;
        /* An empty match cuts but holds nothing; go on behind the next character. */
        from = end > start ? end : end + 1;
        while (from < piece->n && (piece->text[from] & 0xc0) == 0x80)
            from++;
    }
    if (rc == 0 && done < piece->n)
        rc = segment(&s, done, piece->n, false);
    return rc ? rc : release(&s, piece->n);
}

static int walk_prefix(const struct walk *w, size_t i_step, const struct piece *piece)
{
    struct ckpt_buf *b = &w->run->prefixed[i_step];
    struct piece longer = {.n = piece->n + 1, .at = piece->at, .prefixed = true};

    if (piece->text[0] == ' ')
        return walk(w, i_step + 1, piece);
    b->len = 0;
    ckpt_buf_put_u8(b, ' ');
    ckpt_buf_put(b, piece->text, piece->n);
    if (!ckpt_buf_ok(b))
        return ckpt_nomem(w->err, piece->n + 1);
    longer.text = b->data;
    return walk(w, i_step + 1, &longer);
}

/* Depth is the number of steps, at most MAX_STEPS, whatever the text. */
static int walk(const struct walk *w, size_t i_step, const struct piece *piece)
{
    if (i_step == w->p->n_step)
        return w->emit(w->ctx, piece, w->err);
    switch (w->p->step[i_step].kind) {
    case STEP_SCAN:   return walk_scan(w, i_step, piece);
    case STEP_REGEX:  return walk_regex(w, i_step, piece);
    case STEP_PREFIX: return walk_prefix(w, i_step, piece);
    }
    return 0;
}

int pretok_split(const struct pretok *p, struct pretok_run *run, const struct piece *piece,
                 pretok_emit_fn *emit, void *ctx, struct ckpt_err *err)
{
    struct walk w = {.p = p, .run = run, .emit = emit, .ctx = ctx, .err = err};

    return piece->n == 0 ? 0 : walk(&w, 0, piece);
}

static int add_step(struct pretok *p, const struct step *step, struct ckpt_err *err)
{
    if (p->n_step == MAX_STEPS)
        return ckpt_fail(err, CKPT_ELIMIT, "pre_tokenizer: more than %d steps", MAX_STEPS);
    p->step[p->n_step++] = *step;
    return 0;
}

static int parse_bytelevel(struct pretok *p, const json_t *json, struct ckpt_err *err)
{
    bool prefix, regex;
    int rc = 0;

    if (ckpt_json_bool_or(&prefix, json, "add_prefix_space", true, err) ||
        ckpt_json_bool_or(&regex, json, "use_regex", true, err))
        return err->code;
    if (p->bytes)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "pre_tokenizer: two ByteLevel steps would spell "
                         "bytes twice");
    if (prefix)
        rc = add_step(p, &(struct step){.kind = STEP_PREFIX}, err);
    if (rc == 0 && regex)
        rc = add_step(p, &(struct step){.kind = STEP_SCAN, .scan = scan_gpt2}, err);
    p->bytes = true;
    return rc;
}

static int parse_behaviour(enum behaviour *out, const json_t *json, struct ckpt_err *err)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *name;

    if (ckpt_json_str(&name, json, "behavior", err))
        return err->code;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum behaviour)i;
            return 0;
        }
    return ckpt_fail(err, CKPT_EFORMAT, "pre_tokenizer: split behaviour \"%s\" is unknown",
                     name);
}

static int parse_split(struct pretok *p, const json_t *json, struct ckpt_err *err)
{
    struct step step = {.kind = STEP_REGEX};
    json_t *pattern;
    const char *regex, *literal;

    if (ckpt_json_get(&pattern, json, "pattern", JSON_OBJECT, err) ||
        ckpt_json_str_or(&regex, pattern, "Regex", NULL, err) ||
        ckpt_json_str_or(&literal, pattern, "String", NULL, err) ||
        ckpt_json_bool_or(&step.invert, json, "invert", false, err) ||
        parse_behaviour(&step.behaviour, json, err))
        return err->code;
    if (!regex == !literal)
        return ckpt_fail(err, CKPT_EFORMAT, "pre_tokenizer: a pattern must be one of Regex and "
                         "String");
    if (p->bytes)
        return ckpt_fail(err, CKPT_EUNSUPPORTED,
                         "pre_tokenizer: a Split behind ByteLevel is not "
                         "read");
    if (regex && step.behaviour == ISOLATED && scan_for(regex)) {
        step.kind = STEP_SCAN;
        step.scan = scan_for(regex);
    } else if (regex_new(&step.regex, regex ? regex : literal,
                         strlen(regex ? regex : literal), !regex, err)) {
        return ckpt_err_in(err, "pre_tokenizer");
    }
    if (add_step(p, &step, err)) {
        regex_free(step.regex);
        return err->code;
    }
    return 0;
}

/* Component types but Sequence, which only lists others. */
static const struct {
    const char *type;
    int (*parse)(struct pretok *p, const json_t *json, struct ckpt_err *err);
} rows[] = {
    {"ByteLevel", parse_bytelevel},
    {"Split", parse_split},
};

static int parse_one(struct pretok *p, const json_t *json, struct ckpt_err *err)
{
    const char *type;

    if (ckpt_json_str(&type, json, "type", err))
        return ckpt_err_in(err, "pre_tokenizer");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].parse(p, json, err);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "pre_tokenizer: type \"%s\" is not read", type);
}

/* Sequences may hold sequences: a stack of those being read keeps this off the C stack. */
static int parse_all(struct pretok *p, const json_t *json, struct ckpt_err *err)
{
    struct { const json_t *list; size_t i; } open[CKPT_JSON_MAX_DEPTH];
    size_t depth = 0;
    const json_t *item = json;
    json_t *list;

    for (;;) {
        const char *type = item ? json_string_value(json_object_get(item, "type")) : NULL;

        if (type && strcmp(type, "Sequence") == 0) {
            if (ckpt_json_get(&list, item, "pretokenizers", JSON_ARRAY, err))
                return ckpt_err_in(err, "pre_tokenizer");
            if (depth == CKPT_JSON_MAX_DEPTH)
                return ckpt_fail(err, CKPT_ELIMIT, "pre_tokenizer: nested deeper than %d",
                                 CKPT_JSON_MAX_DEPTH);
            open[depth].list = list;
            open[depth++].i = 0;
        } else if (item && parse_one(p, item, err)) {
            return err->code;
        }
        while (depth > 0 && open[depth - 1].i == json_array_size(open[depth - 1].list))
            depth--;
        if (depth == 0)
            return 0;
        item = json_array_get(open[depth - 1].list, open[depth - 1].i++);
    }
}

int pretok_new(struct pretok **out, const json_t *json, struct ckpt_err *err)
{
    struct pretok *p = ckpt_alloc(1, sizeof *p);
    const char *type = json_string_value(json_object_get(json, "type"));

    *out = NULL;
    if (!p)
        return ckpt_nomem(err, sizeof *p);
    if (json && !json_is_null(json) && parse_all(p, json, err)) {
        pretok_free(p);
        return err->code;
    }
    p->lone_bytelevel = type && strcmp(type, "ByteLevel") == 0;
    *out = p;
    return 0;
}

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n_step; i++)
        regex_free(p->step[i].regex);
    ckpt_free(p);
}

bool pretok_bytes(const struct pretok *p) { return p->bytes; }

void pretok_set_prefix_space(struct pretok *p, bool on)
{
    bool has = p->n_step > 0 && p->step[0].kind == STEP_PREFIX;

    if (!p->lone_bytelevel || on == has)
        return;
    /* A ByteLevel is at most two steps: the prefix and the scan. */
    if (on) {
        memmove(p->step + 1, p->step, p->n_step * sizeof *p->step);
        p->step[0] = (struct step){.kind = STEP_PREFIX};
        p->n_step++;
    } else {
        memmove(p->step, p->step + 1, (p->n_step - 1) * sizeof *p->step);
        p->n_step--;
    }
}

int pretok_run_new(struct pretok_run **out, const struct pretok *p, struct ckpt_err *err)
{
    struct pretok_run *run = ckpt_alloc(1, sizeof *run);

    *out = NULL;
    if (!run)
        return ckpt_nomem(err, sizeof *run);
    for (size_t i = 0; i < MAX_STEPS; i++)
        ckpt_buf_init(&run->prefixed[i], SIZE_MAX);
    for (size_t i = 0; i < p->n_step; i++)
        if (p->step[i].regex && regex_run_new(&run->regex[i], p->step[i].regex, err)) {
            pretok_run_free(run);
            return err->code;
        }
    *out = run;
    return 0;
}

void pretok_run_free(struct pretok_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < MAX_STEPS; i++) {
        regex_run_free(run->regex[i]);
        ckpt_buf_release(&run->prefixed[i]);
    }
    ckpt_free(run);
}
