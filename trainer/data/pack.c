/* pack - see pack.h. */
#include "trainer/data/pack.h"

#include <stdlib.h>
#include <string.h>

int pack_init(struct pack *p, int64_t max_tokens, int64_t max_docs, struct ckpt_err *err)
{
    size_t n = (size_t)max_tokens, docs = (size_t)max_docs;

    memset(p, 0, sizeof *p);
    if (max_tokens < 1 || max_tokens > INT32_MAX || max_docs < 1 || max_docs > INT32_MAX - 1)
        return ckpt_fail(err, CKPT_ECONFIG,
                         "a batch of %lld tokens in %lld documents: both must lie in 1..%d",
                         (long long)max_tokens, (long long)max_docs, INT32_MAX - 1);
    p->ids = ckpt_alloc(n, sizeof *p->ids);
    p->positions = ckpt_alloc(n, sizeof *p->positions);
    p->rows = ckpt_alloc(n, sizeof *p->rows);
    p->targets = ckpt_alloc(n, sizeof *p->targets);
    p->doc_start = ckpt_alloc(docs + 1, sizeof *p->doc_start);
    p->samples = ckpt_alloc(docs, sizeof *p->samples);
    if (!p->ids || !p->positions || !p->rows || !p->targets || !p->doc_start || !p->samples) {
        pack_release(p);
        return ckpt_nomem(err, 4 * n * sizeof *p->ids + (docs + 1) * sizeof *p->doc_start +
                                   docs * sizeof *p->samples);
    }
    p->max_tokens = max_tokens;
    p->max_docs = max_docs;
    p->batch = (struct batch){.ids = p->ids, .positions = p->positions, .rows = p->rows,
                              .doc_start = p->doc_start, .targets = p->targets,
                              .samples = p->samples};
    return 0;
}

int pack_init_pairs(struct pack *p, int64_t max_enc, struct ckpt_err *err)
{
    p->enc_ids = ckpt_alloc((size_t)max_enc, sizeof *p->enc_ids);
    p->enc_start = ckpt_alloc((size_t)p->max_docs + 1, sizeof *p->enc_start);
    if (!p->enc_ids || !p->enc_start)
        return ckpt_nomem(err, (size_t)max_enc * sizeof *p->enc_ids);
    p->max_enc = max_enc;
    p->batch.enc_ids = p->enc_ids;
    p->batch.enc_start = p->enc_start;
    return 0;
}

int pack_init_padded(struct pack *p, struct ckpt_err *err)
{
    p->real_start = ckpt_alloc((size_t)p->max_docs, sizeof *p->real_start);
    p->real_end = ckpt_alloc((size_t)p->max_docs, sizeof *p->real_end);
    p->batch.real_start = p->real_start;
    p->batch.real_end = p->real_end;
    return p->real_start && p->real_end
               ? 0 : ckpt_nomem(err, (size_t)p->max_docs * sizeof *p->real_start);
}

void pack_release(struct pack *p)
{
    ckpt_free(p->real_start);
    ckpt_free(p->real_end);
    ckpt_free(p->enc_ids);
    ckpt_free(p->enc_start);
    ckpt_free(p->ids);
    ckpt_free(p->positions);
    ckpt_free(p->rows);
    ckpt_free(p->targets);
    ckpt_free(p->doc_start);
    ckpt_free(p->samples);
    memset(p, 0, sizeof *p);
}

void pack_clear(struct pack *p)
{
    p->batch.n_tokens = p->batch.n_docs = p->batch.n_rows = p->batch.n_enc = 0;
}

int pack_add(struct pack *p, const struct sample *s, int64_t name, bool supervised,
             struct ckpt_err *err)
{
    struct batch *b = &p->batch;
    int32_t row = (int32_t)b->n_tokens;
    int64_t n = s->n_enc ? s->n - 1 : s->n;

    if (n > p->max_tokens - b->n_tokens || s->n_enc > p->max_enc - b->n_enc ||
        b->n_docs == p->max_docs)
        return ckpt_fail(err, CKPT_ESTATE,
                         "a sample of %lld tokens does not fit into a batch that holds %lld of "
                         "%lld tokens and %lld of %lld documents", (long long)s->n,
                         (long long)b->n_tokens, (long long)p->max_tokens, (long long)b->n_docs,
                         (long long)p->max_docs);
    memcpy(p->ids + row, s->ids, (size_t)n * sizeof *s->ids);
    for (int64_t i = 0; i < n; i++)
        p->positions[row + i] = (int32_t)i;
    for (int64_t i = 0; supervised && i + 1 < s->n; i++) {
        if (s->labels[i + 1] == SAMPLE_NO_LABEL)
            continue;
        p->rows[b->n_rows] = row + (int32_t)i;
        p->targets[b->n_rows++] = s->labels[i + 1];
    }
    if (p->real_start) {
        p->real_start[b->n_docs] = row + (int32_t)s->pad_before;
        p->real_end[b->n_docs] = row + (int32_t)(s->n - s->pad_after);
    }
    p->samples[b->n_docs] = name;
    p->doc_start[b->n_docs++] = row;
    if (s->n_enc) {
        memcpy(p->enc_ids + b->n_enc, s->enc, (size_t)s->n_enc * sizeof *s->enc);
        p->enc_start[b->n_docs - 1] = (int32_t)b->n_enc;
        b->n_enc += s->n_enc;
        p->enc_start[b->n_docs] = (int32_t)b->n_enc;
    }
    b->n_tokens += n;
    p->doc_start[b->n_docs] = (int32_t)b->n_tokens;
    return 0;
}

/* A sample of the window that is being packed. */
struct piece {
    int64_t at;                 /* index in the order */
    int64_t bin;                /* number within the window */
    int32_t length;
};

static int longest_first(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Bins in the order of their earliest sample; inside a bin the order's order. */
static int by_first(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;

    if (x->bin != y->bin)
        return x->bin < y->bin ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Memory of packing one window.  room (free tokens) is a tree of maxima over the bins, leaves
 * from PACK_WINDOW. */
struct window {
    struct piece piece[PACK_WINDOW];
    int64_t      room[2 * PACK_WINDOW];
    int64_t      rank[PACK_WINDOW];     /* bin -> its place in the output */
};

/* The first bin with at least `need` free tokens, which are taken: O(log window). */
static int64_t first_fit(struct window *w, int64_t need)
{
    size_t i = 1;
    int64_t bin;

    while (i < PACK_WINDOW)
        i = w->room[2 * i] >= need ? 2 * i : 2 * i + 1;
    bin = (int64_t)i - PACK_WINDOW;
    w->room[i] -= need;
    for (i /= 2; i >= 1; i /= 2)
        w->room[i] = w->room[2 * i] > w->room[2 * i + 1] ? w->room[2 * i] : w->room[2 * i + 1];
    return bin;
}

/* Pack the n <= PACK_WINDOW pieces of entries first, first + 1, ...; they come out grouped by
 * bin, bins numbered from 0 in the order of their earliest entry. */
static void pack_window(struct window *w, int64_t first, int64_t n, int64_t max_tokens)
{
    int64_t n_bin = 0;

    for (size_t i = 0; i < 2 * PACK_WINDOW; i++)
        w->room[i] = max_tokens;
    qsort(w->piece, (size_t)n, sizeof *w->piece, longest_first);
    for (int64_t i = 0; i < n; i++)
        w->piece[i].bin = first_fit(w, w->piece[i].length);
    /* reuse room for the bin of each entry, in the epoch's order */
    for (int64_t i = 0; i < n; i++)
        w->room[w->piece[i].at - first] = w->piece[i].bin;
    for (int64_t i = 0; i < n; i++)
        w->rank[i] = -1;
    for (int64_t i = 0; i < n; i++)
        if (w->rank[w->room[i]] < 0)
            w->rank[w->room[i]] = n_bin++;
    for (int64_t i = 0; i < n; i++)
        w->piece[i].bin = w->rank[w->piece[i].bin];
    qsort(w->piece, (size_t)n, sizeof *w->piece, by_first);
}

/* Append the packed window's bins to the plan. */
static void take_window(struct pack_plan *plan, const struct window *w, const int64_t *order,
                        int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || w->piece[i].bin != w->piece[i - 1].bin)
            plan->bin[plan->n_bin++] = first + i;
        plan->item[first + i] = order[w->piece[i].at];
    }
}

int pack_plan_make(struct pack_plan *plan, const int64_t *order, int64_t n,
                   const int32_t *length, int64_t max_tokens, struct ckpt_err *err)
{
    struct window *w = ckpt_alloc(1, sizeof *w);
    int rc = 0;

    if (!plan->item) {
        plan->item = ckpt_alloc((size_t)n, sizeof *plan->item);
        plan->bin = ckpt_alloc((size_t)n + 1, sizeof *plan->bin);
    }
    if (!w || !plan->item || !plan->bin) {
        rc = ckpt_nomem(err, (size_t)n * sizeof *plan->item);
        goto out;
    }
    plan->n = n;
    plan->n_bin = plan->largest = 0;
    for (int64_t first = 0; first < n; first += PACK_WINDOW) {
        int64_t m = n - first < PACK_WINDOW ? n - first : PACK_WINDOW;

        for (int64_t i = 0; i < m; i++) {
            int32_t len = length[order[first + i]];

            if (len > max_tokens) {
                rc = ckpt_fail(err, CKPT_ELIMIT,
                               "sample %lld has %d tokens, a packed batch takes %lld",
                               (long long)order[first + i], len, (long long)max_tokens);
                goto out;
            }
            w->piece[i] = (struct piece){.at = first + i, .length = len};
        }
        pack_window(w, first, m, max_tokens);
        take_window(plan, w, order, first, m);
    }
    plan->bin[plan->n_bin] = n;
    for (int64_t b = 0; b < plan->n_bin; b++)
        if (plan->bin[b + 1] - plan->bin[b] > plan->largest)
            plan->largest = plan->bin[b + 1] - plan->bin[b];
out:
    ckpt_free(w);
    return rc;
}

void pack_plan_release(struct pack_plan *plan)
{
    ckpt_free(plan->item);
    ckpt_free(plan->bin);
    memset(plan, 0, sizeof *plan);
}
