/* pretok_steps - see pretok_steps.h.  Source: huggingface/tokenizers 0.23
 * src/pre_tokenizers/, src/tokenizer/{normalizer,pattern}.rs. */
#include "formats/tokens/pretok_steps.h"

#include <string.h>

/* State of a split, passed down the steps. */
struct walk {
    const struct pretok *p;
    struct pretok_run   *run;
    pretok_emit_fn      *emit;
    void                *ctx;
    struct ckpt_err     *err;
};

static int walk(const struct walk *w, size_t i_step, const struct piece *piece);

/* Pass bytes [from, to) of piece to the next step. */
static int hand(const struct walk *w, size_t i_step, const struct piece *piece, size_t from,
                size_t to)
{
    struct piece part = {.text = piece->text + from, .n = to - from, .at = piece->at + from};

    if (from == to)
        return 0;
    if (piece->span) {
        part.span = piece->span + from;
        part.at = part.span->start;
    }
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

/* Segments in order, and the one held back to be merged with a neighbour. */
struct split {
    const struct walk  *w;
    size_t              i_step;
    const struct piece *piece;
    size_t              held, end;      /* [held, end) is held back */
    bool                held_match;     /* whether its last segment was a match */
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
 * Take segment [from, to).  Matches and gaps alternate, but matches can be adjacent, or empty; a
 * match is merged with an adjacent gap, never with another match.
 */
static int segment(struct split *s, size_t from, size_t to, bool match)
{
    const struct pretok_step *step = &s->w->p->step[s->i_step];
    bool join = false;
    int rc = 0;

    match ^= step->invert;
    switch (step->behaviour) {
    case REMOVED:
        if (match)
            return release(s, to);
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
    const struct pretok_step *step = &w->p->step[i_step];
    struct split s = {.w = w, .i_step = i_step, .piece = piece};
    struct regex_match m = {0};
    size_t done = 0;
    bool found = true;
    int rc = 0;

    while (rc == 0 && found) {
        if (regex_next(step->regex, w->run->regex[i_step], piece->text, piece->n, &m, &found,
                       w->err))
            return ckpt_err_in(w->err, "pre_tokenizer");
        if (!found)
            break;
        if (m.start > done)
            rc = segment(&s, done, m.start, false);
        if (rc == 0)
            rc = segment(&s, m.start, m.end, true);
        done = m.end;
    }
    if (rc == 0 && done < piece->n)
        rc = segment(&s, done, piece->n, false);
    return rc ? rc : release(&s, piece->n);
}

static int walk_class(const struct walk *w, size_t i_step, const struct piece *piece)
{
    const struct pretok_step *step = &w->p->step[i_step];
    struct split s = {.w = w, .i_step = i_step, .piece = piece};
    size_t done = 0, width;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < piece->n; i += width) {
        uint32_t cp = utf8_get(piece->text + i, &width);

        if (step->is ? !step->is(cp) : cp != step->mark)
            continue;
        if (i > done)
            rc = segment(&s, done, i, false);
        if (rc == 0)
            rc = segment(&s, i, i + width, true);
        done = i + width;
    }
    if (rc == 0 && done < piece->n)
        rc = segment(&s, done, piece->n, false);
    return rc ? rc : release(&s, piece->n);
}

static int walk_words(const struct walk *w, size_t i_step, const struct piece *piece)
{
    enum { SPACE, WORD, OTHER } kind, last = SPACE;
    size_t from = 0, width;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < piece->n; i += width) {
        uint32_t cp = utf8_get(piece->text + i, &width);

        kind = unicode_is_word(cp) ? WORD : unicode_is_space(cp) ? SPACE : OTHER;
        if (kind == last)
            continue;
        if (last != SPACE)
            rc = hand(w, i_step, piece, from, i);
        from = i;
        last = kind;
    }
    return rc == 0 && last != SPACE ? hand(w, i_step, piece, from, piece->n) : rc;
}

/* Split where the script changes; characters without a script stay with those before. */
static int walk_scripts(const struct walk *w, size_t i_step, const struct piece *piece)
{
    size_t from = SIZE_MAX, width;
    uint8_t last = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < piece->n; i += width) {
        uint8_t script = unicode_script(utf8_get(piece->text + i, &width));

        if (script == 0)
            continue;
        /* Text before the first script is dropped, as in the reference. */
        if (from == SIZE_MAX || script != last) {
            rc = from == SIZE_MAX ? 0 : hand(w, i_step, piece, from, i);
            from = i;
        }
        last = script;
    }
    return rc == 0 && from != SIZE_MAX ? hand(w, i_step, piece, from, piece->n) : rc;
}

static int walk_fixed(const struct walk *w, size_t i_step, const struct piece *piece)
{
    size_t length = w->p->step[i_step].length, from = 0, chars = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < piece->n; i += utf8_width(piece->text[i]))
        if (chars++ == length) {
            rc = hand(w, i_step, piece, from, i);
            from = i;
            chars = 1;
        }
    return rc ? rc : hand(w, i_step, piece, from, piece->n);
}

/* Insert cp at the beginning: it takes the span of the first character, which then counts as
 * new. */
static void put_in_front(struct edit *e, uint32_t cp)
{
    size_t width;
    uint32_t first = utf8_get(e->in->text, &width);

    edit_replace(e, cp);
    edit_insert(e, first);
}

static int walk_prefix(const struct walk *w, size_t i_step, const struct piece *piece)
{
    struct piece longer;
    struct edit e;
    int rc;

    if (piece->text[0] == ' ')
        return walk(w, i_step + 1, piece);
    edit_begin(&e, piece, &w->run->buf[i_step]);
    put_in_front(&e, ' ');
    rc = edit_end(&e, &longer, w->err);
    return rc ? rc : walk(w, i_step + 1, &longer);
}

static int walk_metaspace(const struct walk *w, size_t i_step, const struct piece *piece)
{
    const struct pretok_step *step = &w->p->step[i_step];
    const unsigned char *space;
    size_t width, from = 0;
    struct piece marked;
    struct edit e;
    uint32_t first = utf8_get(piece->text, &width);
    bool prefix = first != ' ' && first != step->mark &&
                  (step->scheme == META_ALWAYS || (step->scheme == META_FIRST && piece->at == 0));
    int rc;

    edit_begin(&e, piece, &w->run->buf[i_step]);
    if (prefix)
        put_in_front(&e, step->mark);
    for (from = e.pos; (space = memchr(piece->text + from, ' ', piece->n - from));
         from = e.pos) {
        edit_copy(&e, (size_t)(space - piece->text) - e.pos);
        edit_replace(&e, step->mark);
    }
    rc = edit_end(&e, &marked, w->err);
    return rc ? rc : walk(w, i_step + 1, &marked);
}

static int walk_bytes(const struct walk *w, size_t i_step, const struct piece *piece)
{
    struct piece spelt = *piece;
    int rc;

    if ((rc = edit_spell_bytes(&spelt, &w->run->buf[i_step], w->err)) != 0)
        return rc;
    return walk(w, i_step + 1, &spelt);
}

/* Depth is the number of steps, at most PRETOK_MAX_STEPS, whatever the text. */
static int walk(const struct walk *w, size_t i_step, const struct piece *piece)
{
    if (i_step == w->p->n_step)
        return w->emit(w->ctx, piece, w->err);
    switch (w->p->step[i_step].kind) {
    case STEP_SCAN:      return walk_scan(w, i_step, piece);
    case STEP_REGEX:     return walk_regex(w, i_step, piece);
    case STEP_CLASS:     return walk_class(w, i_step, piece);
    case STEP_WORDS:     return walk_words(w, i_step, piece);
    case STEP_SCRIPTS:   return walk_scripts(w, i_step, piece);
    case STEP_FIXED:     return walk_fixed(w, i_step, piece);
    case STEP_PREFIX:    return walk_prefix(w, i_step, piece);
    case STEP_METASPACE: return walk_metaspace(w, i_step, piece);
    case STEP_BYTES:     return walk_bytes(w, i_step, piece);
    }
    return 0;
}

int pretok_split(const struct pretok *p, struct pretok_run *run, const struct piece *piece,
                 pretok_emit_fn *emit, void *ctx, struct ckpt_err *err)
{
    struct walk w = {.p = p, .run = run, .emit = emit, .ctx = ctx, .err = err};

    return piece->n == 0 ? 0 : walk(&w, 0, piece);
}
