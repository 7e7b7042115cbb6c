/* bpe - see bpe.h. */
#include "formats/tokens/model/bpe.h"

#include <string.h>
#include <sys/random.h>

#include "formats/tokens/unicode/unicode.h"
#include "libckpt/mem.h"

#define NO_RANK     UINT32_MAX
#define SHORT_WORD  64              /* bytes; up to this length scanning is faster than a heap */
#define MAX_AFFIX   64              /* bytes of a prefix or suffix */
#define MAX_WORD    ((size_t)1 << 26) /* bytes; an unsplit word takes 56 times that */

struct pair {
    uint64_t key;                   /* left << 32 | right; NO_PAIR: empty */
    uint32_t rank;
    int32_t  joined;
};
#define NO_PAIR UINT64_MAX          /* no pair: ids are not negative */

struct bpe {
    struct bpe_opts o;
    int32_t         byte_id[256];
    struct pair    *pair;           /* open addressing; cap is a power of two >= 2 n_merge */
    size_t          mask;
    uint64_t        seed;           /* so that no file can provoke collisions */
    int32_t        *page[0x1100];   /* ids of characters, in pages of 256; NULL: none has an id */
};

/* A pair that may be merged. */
struct bpe_candidate {
    uint32_t rank, at;
    int32_t  joined;
};

static inline size_t pair_slot(const struct bpe *b, uint64_t key)
{
    uint64_t h = (key ^ b->seed) * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(h ^ h >> 32) & b->mask;
}

static inline const struct pair *pair_find(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = pair_slot(b, key);

    while (b->pair[i].key != key && b->pair[i].key != NO_PAIR)
        i = (i + 1) & b->mask;
    return &b->pair[i];
}

/* A repeated pair takes the later rank, as in the reference's table. */
static void pair_put(struct bpe *b, const struct bpe_merge *m)
{
    uint64_t key = (uint64_t)(uint32_t)m->left << 32 | (uint32_t)m->right;
    size_t i = pair_slot(b, key);

    while (b->pair[i].key != key && b->pair[i].key != NO_PAIR)
        i = (i + 1) & b->mask;
    b->pair[i] = (struct pair){.key = key, .rank = m->rank, .joined = m->joined};
}

/* Ids of single characters. */
static int make_pages(struct bpe *b, const struct bpe_opts *o, struct ckpt_err *err)
{
    for (size_t i = 0; i < o->n_chr; i++) {
        int32_t **page = &b->page[o->chr[i].cp >> 8];

        if (!*page) {
            *page = ckpt_alloc(256, sizeof **page);
            if (!*page)
                return ckpt_nomem(err, 256 * sizeof **page);
            memset(*page, 0xff, 256 * sizeof **page);
        }
        (*page)[o->chr[i].cp & 0xff] = o->chr[i].id;
    }
    return 0;
}

int bpe_new(struct bpe **out, const struct bpe_opts *opts, struct ckpt_err *err)
{
    struct bpe *b;
    size_t cap = 16;
    int rc;

    *out = NULL;
    if ((opts->prefix && strlen(opts->prefix) > MAX_AFFIX) ||
        (opts->suffix && strlen(opts->suffix) > MAX_AFFIX))
        return ckpt_fail(err, CKPT_ELIMIT, "a prefix or suffix of more than %d bytes",
                         MAX_AFFIX);
    b = ckpt_alloc(1, sizeof *b);
    if (!b)
        return ckpt_nomem(err, sizeof *b);
    while (cap < 2 * opts->n_merge)
        cap *= 2;
    b->o = *opts;
    b->o.merge = NULL;
    b->o.chr = NULL;
    b->o.byte_id = NULL;
    memcpy(b->byte_id, opts->byte_id, sizeof b->byte_id);
    b->mask = cap - 1;
    if (getrandom(&b->seed, sizeof b->seed, GRND_NONBLOCK) != (ssize_t)sizeof b->seed)
        b->seed = (uint64_t)(uintptr_t)b;
    b->pair = ckpt_alloc(cap, sizeof *b->pair);
    if (!b->pair) {
        ckpt_free(b);
        return ckpt_nomem(err, cap * sizeof *b->pair);
    }
    for (size_t i = 0; i < cap; i++)
        b->pair[i] = (struct pair){.key = NO_PAIR, .rank = NO_RANK, .joined = -1};
    for (size_t i = 0; i < opts->n_merge; i++)
        pair_put(b, &opts->merge[i]);
    rc = make_pages(b, opts, err);
    if (rc) {
        bpe_free(b);
        return rc;
    }
    *out = b;
    return 0;
}

void bpe_free(struct bpe *b)
{
    if (!b)
        return;
    for (size_t i = 0; i < sizeof b->page / sizeof *b->page; i++)
        ckpt_free(b->page[i]);
    ckpt_free(b->pair);
    ckpt_free(b);
}

void bpe_run_release(struct bpe_run *run)
{
    ckpt_free(run->id);
    ckpt_free(run->len);
    ckpt_free(run->rank);
    ckpt_free(run->joined);
    ckpt_free(run->next);
    ckpt_free(run->prev);
    ckpt_free(run->heap);
}

static int reserve(struct bpe_run *run, size_t n, struct ckpt_err *err)
{
    const struct ckpt_array all[] = {
        {&run->id, sizeof *run->id},     {&run->len, sizeof *run->len},
        {&run->rank, sizeof *run->rank}, {&run->joined, sizeof *run->joined},
        {&run->next, sizeof *run->next}, {&run->prev, sizeof *run->prev},
    };

    return ckpt_reserve_all(all, sizeof all / sizeof *all, &run->cap, n, err);
}

/* One symbol per byte; returns how many. */
static size_t first_bytes(const struct bpe *b, struct bpe_run *run, const unsigned char *s,
                          size_t n)
{
    size_t m = 0;
    bool unknown = false;

    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[s[i]];

        if (id < 0 && b->o.unk_id < 0)
            continue;
        if (id < 0 && unknown && b->o.fuse_unk) {
            run->len[m - 1]++;
            continue;
        }
        unknown = id < 0;
        run->id[m] = unknown ? b->o.unk_id : id;
        run->len[m++] = 1;
    }
    return m;
}

/* The id of a character: from the table, or looked up with its suffix or prefix when it is the
 * last or not the first of a word, in vocabularies that distinguish these. */
static int32_t char_id(const struct bpe *b, const unsigned char *s, size_t width, bool first,
                       bool last)
{
    unsigned char spelt[2 * MAX_AFFIX + 4];
    size_t n = 0, affix;
    const int32_t *page;
    uint32_t cp;

    if ((first || !b->o.prefix) && (!last || !b->o.suffix)) {
        cp = utf8_get(s, &width);
        page = b->page[cp >> 8];
        return page ? page[cp & 0xff] : -1;
    }
    if (!first && b->o.prefix) {
        affix = strlen(b->o.prefix);
        memcpy(spelt, b->o.prefix, affix);
        n = affix;
    }
    memcpy(spelt + n, s, width);
    n += width;
    if (last && b->o.suffix) {
        affix = strlen(b->o.suffix);
        memcpy(spelt + n, b->o.suffix, affix);
        n += affix;
    }
    return b->o.find(b->o.find_ctx, spelt, n);
}

static bool falls_back(const struct bpe *b, const unsigned char *s, size_t width)
{
    for (size_t k = 0; k < width; k++)
        if (b->byte_id[s[k]] < 0)
            return false;
    return b->o.byte_fallback;
}

/* One symbol per character; returns how many.  An unknown one is held back until the next known
 * one, even across bytes in between, as in the reference. */
static size_t first_chars(const struct bpe *b, struct bpe_run *run, const unsigned char *s,
                          size_t n)
{
    size_t m = 0, width;
    uint32_t waiting = 0;               /* length of the unknown text, 0: none */

    for (size_t i = 0; i < n; i += width) {
        int32_t id;

        width = utf8_width(s[i]);
        id = char_id(b, s + i, width, i == 0, i + width == n);
        if (id < 0 && falls_back(b, s + i, width)) {
            for (size_t k = 0; k < width; k++) {
                run->id[m] = b->byte_id[s[i + k]];
                run->len[m++] = 1;
            }
            continue;
        }
        if (id < 0 && b->o.unk_id < 0)
            continue;
        if (id < 0 && waiting && b->o.fuse_unk) {
            waiting += (uint32_t)width;
            continue;
        }
        if (waiting) {
            run->id[m] = b->o.unk_id;
            run->len[m++] = waiting;
        }
        waiting = id < 0 ? (uint32_t)width : 0;
        if (id >= 0) {
            run->id[m] = id;
            run->len[m++] = (uint32_t)width;
        }
    }
    if (waiting) {
        run->id[m] = b->o.unk_id;
        run->len[m++] = waiting;
    }
    return m;
}

/* Few symbols: the arrays stay packed, every merge scans for the lowest rank. */
static size_t merge_short(const struct bpe *b, struct bpe_run *run, size_t m)
{
    int32_t *id = run->id, *joined = run->joined;
    uint32_t *len = run->len, *rank = run->rank;

    for (size_t i = 0; i + 1 < m; i++) {
        const struct pair *p = pair_find(b, id[i], id[i + 1]);

        rank[i] = p->rank;
        joined[i] = p->joined;
    }
    while (m > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < m; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        id[best] = joined[best];
        len[best] += len[best + 1];
        m--;
        for (size_t i = best + 1; i < m; i++) {
            id[i] = id[i + 1];
            len[i] = len[i + 1];
            rank[i] = rank[i + 1];
            joined[i] = joined[i + 1];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < m; i++) {
            const struct pair *p = pair_find(b, id[i], id[i + 1]);

            rank[i] = p->rank;
            joined[i] = p->joined;
        }
    }
    return m;
}

static inline bool before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Every symbol starts with one candidate and a merge adds two and removes one or more, so 3n
 * places are enough. */
static void heap_push(struct bpe_run *run, struct bpe_candidate c)
{
    size_t i = run->n_heap++;

    while (i > 0 && before(&c, &run->heap[(i - 1) / 2])) {
        run->heap[i] = run->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    run->heap[i] = c;
}

static struct bpe_candidate heap_pop(struct bpe_run *run)
{
    struct bpe_candidate top = run->heap[0], c = run->heap[--run->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < run->n_heap) {
        if (child + 1 < run->n_heap && before(&run->heap[child + 1], &run->heap[child]))
            child++;
        if (!before(&run->heap[child], &c))
            break;
        run->heap[i] = run->heap[child];
        i = child;
    }
    run->heap[i] = c;
    return top;
}

#define NONE UINT32_MAX

static void consider(const struct bpe *b, struct bpe_run *run, uint32_t at)
{
    const struct pair *p;

    if (at == NONE || run->next[at] == NONE)
        return;
    p = pair_find(b, run->id[at], run->id[run->next[at]]);
    if (p->rank != NO_RANK)
        heap_push(run, (struct bpe_candidate){.rank = p->rank, .at = at, .joined = p->joined});
}

/* Many symbols: a linked list and a heap of candidates, n log n. */
static int merge_long(const struct bpe *b, struct bpe_run *run, size_t *m, struct ckpt_err *err)
{
    size_t n = *m, kept = 0;

    if (run->cap_heap < 3 * n) {
        void *heap = ckpt_grow(run->heap, 3 * n, sizeof *run->heap);

        if (!heap)
            return ckpt_nomem(err, 3 * n * sizeof *run->heap);
        run->heap = heap;
        run->cap_heap = 3 * n;
    }
    run->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        run->prev[i] = i > 0 ? (uint32_t)(i - 1) : NONE;
        run->next[i] = i + 1 < n ? (uint32_t)(i + 1) : NONE;
    }
    for (size_t i = 0; i < n; i++)
        consider(b, run, (uint32_t)i);
    while (run->n_heap > 0) {
        struct bpe_candidate c = heap_pop(run);
        uint32_t right = run->next[c.at];

        /* Stale: merged (len 0), without a right neighbour, or a different pair by now. */
        if (run->len[c.at] == 0 || right == NONE ||
            pair_find(b, run->id[c.at], run->id[right])->joined != c.joined)
            continue;
        run->id[c.at] = c.joined;
        run->len[c.at] += run->len[right];
        run->len[right] = 0;
        run->next[c.at] = run->next[right];
        if (run->next[right] != NONE)
            run->prev[run->next[right]] = c.at;
        consider(b, run, run->prev[c.at]);
        consider(b, run, c.at);
    }
    for (size_t i = 0; i < n; i++)
        if (run->len[i] > 0) {
            run->id[kept] = run->id[i];
            run->len[kept++] = run->len[i];
        }
    *m = kept;
    return 0;
}

int bpe_encode(const struct bpe *b, struct bpe_run *run, const unsigned char *s, size_t n,
               struct word *out, struct ckpt_err *err)
{
    size_t m = 0;
    int32_t whole = -1;
    int rc;

    if (n > MAX_WORD)
        return ckpt_fail(err, CKPT_ELIMIT, "a word of %zu bytes; the limit is %zu", n,
                         MAX_WORD);
    if ((rc = reserve(run, n, err)) != 0)
        return rc;
    if (b->o.ignore_merges)
        whole = b->o.find(b->o.find_ctx, s, n);
    if (whole >= 0) {
        run->id[0] = whole;
        run->len[0] = (uint32_t)n;
        m = 1;
    } else {
        m = b->o.chars ? first_chars(b, run, s, n) : first_bytes(b, run, s, n);
        if (m <= SHORT_WORD)
            m = merge_short(b, run, m);
        else if ((rc = merge_long(b, run, &m, err)) != 0)
            return rc;
    }
    *out = (struct word){.id = run->id, .len = run->len, .n = m};
    return 0;
}

#define MARK(s) ((s)[0] == 0xe2 && (s)[1] == 0x96 && (s)[2] == 0x81)

size_t bpe_part(const struct bpe *b, const unsigned char *s, size_t n)
{
    size_t i = 0;

    if (!b->o.parts)
        return n;
    while (n - i >= 3 && MARK(s + i))
        i += 3;
    while (n - i >= 3) {
        const unsigned char *at = memchr(s + i, 0xe2, n - i - 2);

        if (!at)
            break;
        i = (size_t)(at - s);
        if (MARK(at))
            return i;
        i++;
    }
    return n;
}
