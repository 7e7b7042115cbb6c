/* compose - see compose.h.  Decompositions and classes come from utf8proc. */
#include "formats/tokens/unicode/compose.h"

#include <string.h>
#include <utf8proc.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"

#define MAX_DECOMPOSED 18           /* characters of U+FDFA's decomposition, the longest */

/* A character, and how it changes the text: 0 replaces one, 1 is new, -k replaces one and
 * removes k more. */
struct change { uint32_t cp; int32_t change; uint8_t class; };

struct compose_run {
    struct change *item, *sorted;       /* [cap] */
    size_t         n, cap;
};

int compose_run_new(struct compose_run **out, struct ckpt_err *err)
{
    *out = ckpt_alloc(1, sizeof **out);
    return *out ? 0 : ckpt_nomem(err, sizeof **out);
}

void compose_run_free(struct compose_run *run)
{
    if (!run)
        return;
    ckpt_free(run->item);
    ckpt_free(run->sorted);
    ckpt_free(run);
}

static bool is_hangul(uint32_t cp)
{
    return cp >= 0xac00 && cp <= 0xd7a3;
}

static uint8_t class_of(uint32_t cp)
{
    if (cp < 0x300 || unicode_is_after_9(cp))
        return 0;
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

/*
 * Whether a character is unchanged and no neighbour can change or cross it: texts are processed
 * from one such to the next.
 */
static bool is_inert(uint32_t cp, enum compose_form form)
{
    const utf8proc_property_t *p;
    bool compat = form == COMPOSE_NFKC || form == COMPOSE_NFKD;
    bool composed = form == COMPOSE_NFC || form == COMPOSE_NFKC;

    if (cp < 0x80 || (form == COMPOSE_NFC && cp < 0x300) || unicode_is_after_9(cp))
        return true;
    if (is_hangul(cp))
        return composed;
    p = utf8proc_get_property((utf8proc_int32_t)cp);
    if (p->combining_class != 0)
        return false;
    if (p->decomp_seqindex != UINT16_MAX && (compat || p->decomp_type == 0))
        return false;
    if (!composed)
        return true;
    /* Second halves of a pair: those in the table, and Hangul's vowels and finals. */
    return (p->comb_index == UINT16_MAX || p->comb_index < 0x8000) &&
           !(cp >= 0x1161 && cp <= 0x1175) && !(cp >= 0x11a8 && cp <= 0x11c2);
}

static bool push(struct compose_run *run, uint32_t cp, int32_t change)
{
    const struct ckpt_array all[] = {
        {&run->item, sizeof *run->item}, {&run->sorted, sizeof *run->sorted},
    };
    struct ckpt_err ignored = {0};

    if (run->n == run->cap && ckpt_reserve_all(all, 2, &run->cap, run->n + 1, &ignored))
        return false;
    run->item[run->n++] = (struct change){cp, change, class_of(cp)};
    return true;
}

static bool push_decomposed(struct compose_run *run, uint32_t cp, bool compat)
{
    utf8proc_int32_t d[MAX_DECOMPOSED];
    utf8proc_ssize_t n;
    int class;
    int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);

    if (cp < 0x80 || unicode_is_after_9(cp))
        return push(run, cp, 0);
    n = utf8proc_decompose_char((utf8proc_int32_t)cp, d, MAX_DECOMPOSED,
                                (utf8proc_option_t)options, &class);
    if (n <= 0 || n > MAX_DECOMPOSED)
        return push(run, cp, 0);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        if (!push(run, (uint32_t)d[i], i > 0))
            return false;
    return true;
}

/* Sort a few marks by class, stably. */
static void insert_marks(struct change *item, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct change c = item[i];
        size_t k = i;

        for (; k > 0 && item[k - 1].class > c.class; k--)
            item[k] = item[k - 1];
        item[k] = c;
    }
}

/* The same for any number, counting. */
static void count_marks(struct change *item, struct change *sorted, size_t n)
{
    size_t begin[257] = {0};

    for (size_t i = 0; i < n; i++)
        begin[item[i].class + 1]++;
    for (size_t class = 1; class < 257; class++)
        begin[class] += begin[class - 1];
    for (size_t i = 0; i < n; i++)
        sorted[begin[item[i].class]++] = item[i];
    memcpy(item, sorted, n * sizeof *item);
}

/* Each run of marks between starters. */
static void sort_marks(struct compose_run *run)
{
    for (size_t i = 0, end; i < run->n; i = end) {
        for (end = i; end < run->n && run->item[end].class != 0; end++)
            ;
        if (end - i > 32)
            count_marks(run->item + i, run->sorted, end - i);
        else if (end - i > 1)
            insert_marks(run->item + i, end - i);
        end += end == i;
    }
}

/* The composition of a and b, or 0. */
static uint32_t pair_of(uint32_t a, uint32_t b)
{
    utf8proc_int32_t two[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    int options = UTF8PROC_COMPOSE | UTF8PROC_STABLE;

    if (b < 0x300 || unicode_is_after_9(a) || unicode_is_after_9(b) ||
        utf8proc_normalize_utf32(two, 2, (utf8proc_option_t)options) != 1 ||
        unicode_is_after_9((uint32_t)two[0]))
        return 0;
    return (uint32_t)two[0];
}

/* Compose starters with following characters, in place. */
static void recompose(struct compose_run *run)
{
    struct change *item = run->item;
    size_t kept = 0, starter = SIZE_MAX;
    int last = -1;                      /* class of what was kept after the starter */

    for (size_t i = 0; i < run->n; i++) {
        struct change c = item[i];
        uint32_t joined = 0;

        if (starter != SIZE_MAX && (last == -1 || last < c.class))
            joined = pair_of(item[starter].cp, c.cp);
        if (joined) {
            item[starter].cp = joined;
            item[starter].change += c.change - 1;
            continue;
        }
        if (c.class == 0) {
            starter = kept;
            last = -1;
        } else if (starter != SIZE_MAX) {
            last = c.class;
        }
        item[kept++] = c;
    }
    run->n = kept;
}

/* Process characters [from, to) of p, which begin with an inert one or at the text's start, into
 * run->item. */
static bool work_out(const struct piece *p, size_t from, size_t to, enum compose_form form,
                     struct compose_run *run)
{
    size_t width;

    run->n = 0;
    for (size_t i = from; i < to; i += width)
        if (!push_decomposed(run, utf8_get(p->text + i, &width),
                             form == COMPOSE_NFKC || form == COMPOSE_NFKD))
            return false;
    sort_marks(run);
    if (form == COMPOSE_NFC || form == COMPOSE_NFKC)
        recompose(run);
    return true;
}

static bool is_same(const struct piece *p, size_t from, size_t to, const struct compose_run *run)
{
    size_t i = from, width;

    for (size_t k = 0; k < run->n; k++) {
        if (i >= to || run->item[k].change != 0 || utf8_get(p->text + i, &width) != run->item[k].cp)
            return false;
        i += width;
    }
    return i == to;
}

static void write(struct edit *e, const struct compose_run *run)
{
    for (size_t k = 0; k < run->n; k++) {
        const struct change *c = &run->item[k];

        if (c->change > 0) {
            edit_insert(e, c->cp);
            continue;
        }
        edit_replace(e, c->cp);
        for (int32_t gone = c->change; gone < 0 && e->pos < e->in->n; gone++)
            edit_drop(e, utf8_width(e->in->text[e->pos]));
    }
}

int compose(struct piece *p, enum compose_form form, struct compose_run *run,
            struct edit_buf *buf, struct ckpt_err *err)
{
    const struct piece in = *p;
    struct edit e;
    size_t i = 0, from = 0, width;
    bool changed = false;

    while (i < in.n) {
        if (in.text[i] < 0x80) {
            from = i++;
            continue;
        }
        if (is_inert(utf8_get(in.text + i, &width), form)) {
            from = i;
            i += width;
            continue;
        }
        /* [from, i): from the last inert character to the next. */
        do
            i += width;
        while (i < in.n && !is_inert(utf8_get(in.text + i, &width), form));
        if (!work_out(&in, from, i, form, run))
            return ckpt_nomem(err, run->cap * sizeof *run->item);
        if (is_same(&in, from, i, run)) {
            from = i;
            continue;
        }
        if (!changed)
            edit_begin(&e, &in, buf);
        changed = true;
        edit_copy(&e, from - e.pos);
        write(&e, run);
        edit_drop(&e, i > e.pos ? i - e.pos : 0);
        from = i;
    }
    return changed ? edit_end(&e, p, err) : 0;
}
