/* shuffle - see shuffle.h.  Source: accelerate 1.15 data_loader.py (BatchSamplerShard), torch
 * 2.15 utils/data/distributed.py, transformers 5.17 trainer_pt_utils.py (LengthGroupedSampler). */
#include "trainer/data/shuffle.h"

#include <stdlib.h>

#include "libckpt/mem.h"
#include "trainer/data/mt19937.h"

struct shuffle {
    struct shuffle_opts o;
    int64_t             micros;
    int64_t             each;           /* distributed: entries per rank */
    int64_t             epoch;          /* epoch of order, -1: none yet */
    int64_t            *order;          /* [n] */
    int64_t             piece;          /* samples that are sorted together; 0: no sorting */
    struct place       *place;          /* [piece] */
};

/* A sample of a piece, for a stable sort. */
struct place { int64_t item, at; int32_t length; };

static int64_t div_up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

static int check(const struct shuffle_opts *o, struct ckpt_err *err)
{
    int64_t global;

    if (o->n < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "the data has no samples");
    if (o->micro_batch < 1 || o->grad_accum < 1)
        return ckpt_fail(err, CKPT_ECONFIG,
                         "micro-batch of %lld samples and %lld accumulations: both must be 1 "
                         "or more", (long long)o->micro_batch, (long long)o->grad_accum);
    if (o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size)
        return ckpt_fail(err, CKPT_ECONFIG, "rank %d of %d ranks", o->rank, o->world_size);
    /* All entry numbers of an epoch, including added ones, fit in int64_t. */
    if (__builtin_mul_overflow(o->micro_batch, (int64_t)o->world_size, &global) ||
        global > INT64_MAX / 4 || o->n > INT64_MAX / 4)
        return ckpt_fail(err, CKPT_ECONFIG, "micro-batch of %lld samples is too large",
                         (long long)o->micro_batch);
    if (o->length && o->group < 1)
        return ckpt_fail(err, CKPT_ECONFIG, "groups of %lld samples by length",
                         (long long)o->group);
    if (o->distributed && o->tail == SHUFFLE_MASK)
        return ckpt_fail(err, CKPT_ECONFIG, "a distributed sampler does not tell completions");
    if (o->tail == SHUFFLE_DROP && o->n < global)
        return ckpt_fail(err, CKPT_ECONFIG,
                         "%lld samples do not fill one micro-batch of %lld on %d ranks, and "
                         "incomplete ones are dropped", (long long)o->n,
                         (long long)o->micro_batch, o->world_size);
    return 0;
}

/* 50 groups, or as many as make four pieces of the data. */
static int64_t piece_of(const struct shuffle_opts *o)
{
    int64_t groups = o->n / o->group / 4;

    groups = groups > 50 ? 50 : groups < 1 ? 1 : groups;
    return o->group > o->n / groups ? o->n : groups * o->group;
}

int shuffle_new(struct shuffle **out, const struct shuffle_opts *opts, struct ckpt_err *err)
{
    struct shuffle *s;
    int64_t global;
    int rc;

    *out = NULL;
    if ((rc = check(opts, err)) != 0)
        return rc;
    s = ckpt_alloc(1, sizeof *s);
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->o = *opts;
    s->epoch = -1;
    global = opts->micro_batch * opts->world_size;
    s->micros = opts->tail == SHUFFLE_DROP ? opts->n / global : div_up(opts->n, global);
    s->each = div_up(opts->tail == SHUFFLE_DROP && opts->n % opts->world_size
                         ? opts->n - opts->world_size : opts->n, opts->world_size);
    if (opts->distributed)
        s->micros = opts->tail == SHUFFLE_DROP ? s->each / opts->micro_batch
                                               : div_up(s->each, opts->micro_batch);
    s->order = ckpt_alloc((size_t)opts->n, sizeof *s->order);
    if (!s->order) {
        ckpt_free(s);
        return ckpt_nomem(err, (size_t)opts->n * sizeof *s->order);
    }
    if (opts->length) {
        s->piece = piece_of(opts);
        s->place = ckpt_alloc((size_t)s->piece, sizeof *s->place);
        if (!s->place) {
            shuffle_free(s);
            return ckpt_nomem(err, (size_t)s->piece * sizeof *s->place);
        }
    }
    *out = s;
    return 0;
}

void shuffle_free(struct shuffle *s)
{
    if (!s)
        return;
    ckpt_free(s->order);
    ckpt_free(s->place);
    ckpt_free(s);
}

int64_t shuffle_micros(const struct shuffle *s) { return s->micros; }

int64_t shuffle_steps(const struct shuffle *s) { return div_up(s->micros, s->o.grad_accum); }

void shuffle_slice(const struct shuffle *s, int64_t i_micro, struct shuffle_slice *out)
{
    int64_t b = s->o.micro_batch, left;

    out->stride = 1;
    if (s->o.distributed) {
        left = s->each - i_micro * b;
        out->stride = s->o.world_size;
        out->first = i_micro * b * out->stride + s->o.rank;
        out->n = out->real = left < b ? left : b;
        return;
    }
    out->first = (i_micro * s->o.world_size + s->o.rank) * b;
    out->n = b;
    left = s->o.n - out->first;
    left = left < 0 ? 0 : left > b ? b : left;
    /* accelerate leaves the batches of a single rank unchanged. */
    if (s->o.world_size == 1)
        out->n = left;
    out->real = s->o.tail == SHUFFLE_MASK ? left : out->n;
}

int64_t shuffle_step(const struct shuffle *s, int64_t i_step, int64_t *first)
{
    int64_t left;

    *first = i_step * s->o.grad_accum;
    left = s->micros - *first;
    return left < s->o.grad_accum ? left : s->o.grad_accum;
}

static int longest_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void group_by_length(struct shuffle *s)
{
    int64_t longest = 0, keep;

    for (int64_t first = 0; first < s->o.n; first += s->piece) {
        int64_t n = s->o.n - first < s->piece ? s->o.n - first : s->piece;
        int64_t *order = s->order + first;

        for (int64_t i = 0; i < n; i++)
            s->place[i] = (struct place){order[i], i, s->o.length[order[i]]};
        qsort(s->place, (size_t)n, sizeof *s->place, longest_first);
        for (int64_t i = 0; i < n; i++)
            order[i] = s->place[i].item;
        if (s->o.length[order[0]] > s->o.length[s->order[longest]])
            longest = first;
    }
    keep = s->order[0];
    s->order[0] = s->order[longest];
    s->order[longest] = keep;
}

const int64_t *shuffle_order(struct shuffle *s, int64_t epoch)
{
    struct mt19937 g;

    if (s->epoch == epoch || (s->epoch >= 0 && !s->o.shuffle))
        return s->order;
    if (s->o.shuffle) {
        mt19937_seed(&g, s->o.seed + (uint64_t)epoch);
        mt19937_randperm(&g, s->order, s->o.n);
    } else {
        for (int64_t i = 0; i < s->o.n; i++)
            s->order[i] = i;
    }
    if (s->piece)
        group_by_length(s);
    s->epoch = epoch;
    return s->order;
}
