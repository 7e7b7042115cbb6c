/* regroup - see regroup.h. */
#include "trainer/shard/regroup.h"

#include <string.h>

#include "formats/deepspeed/layout.h"
#include "libckpt/mem.h"

#define BUDGET   ((int64_t)1 << 22)     /* elements that a rank gives at once, at most */
#define SMALLEST ((int64_t)1 << 10)     /* window, however many ranks */

/* The first parameter that a window touches, and where it begins in the sequence. */
struct cursor {
    size_t  i;
    int64_t base;
};

struct work {
    const struct regroup *g;
    int64_t               total, window;
    struct cursor        *cursor;       /* [world] of each rank's windows */
    int64_t              *given, *taken;    /* [world] elements of the round */
    float                *out, *in, *own;   /* what is given; taken, by rank; in its order */
};

/* A run of one parameter's elements in a window, all of one rank. */
struct run {
    size_t  i;
    int     owner;
    int64_t start, count;               /* in the owner's part */
};

/* The run that begins at element `at` of the sequence and ends before `end`. */
static struct run run_at(const struct regroup *g, struct cursor *c, int64_t at, int64_t end)
{
    int64_t e, part, left;

    while (at >= c->base + g->numel[c->i])
        c->base += g->numel[c->i++];
    e = at - c->base;
    part = ds3_part(g->numel[c->i], g->world_size);
    left = g->numel[c->i] - e < end - at ? g->numel[c->i] - e : end - at;
    return (struct run){.i = c->i, .owner = (int)(e / part), .start = e % part,
                        .count = part - e % part < left ? part - e % part : left};
}

/* The window of a rank's part in a round: [*at, *end) of the sequence. */
static void window_of(const struct work *w, int rank, int64_t round, int64_t *at, int64_t *end)
{
    int64_t from = round * w->window, to = from + w->window;

    if (to > w->g->part)
        to = w->g->part;
    *at = w->g->part * rank + from;
    *end = w->g->part * rank + to;
    if (*end > w->total)
        *end = w->total;
    if (*at > *end)
        *at = *end;
}

/* Read what the others' windows have of this rank, and its own, rank after rank. */
static int give(struct work *w, const struct regroup_ends *ends, int64_t round,
                struct ckpt_err *err)
{
    const struct regroup *g = w->g;
    float *to = w->out;
    int rc = 0;

    for (int r = 0; r < g->world_size; r++) {
        int64_t at, end;

        w->given[r] = 0;
        window_of(w, r, round, &at, &end);
        while (at < end) {
            struct run run = run_at(g, &w->cursor[r], at, end);

            at += run.count;
            if (run.owner != g->rank)
                continue;
            if (rc == 0)
                rc = ends->read(ends->ctx, run.i, run.start, run.count, to, err);
            to += run.count;
            w->given[r] += run.count;
        }
    }
    return rc;
}

/* What each rank has of this one's window. */
static void count_taken(struct work *w, int64_t round)
{
    const struct regroup *g = w->g;
    struct cursor c = w->cursor[g->rank];
    int64_t at, end;

    memset(w->taken, 0, (size_t)g->world_size * sizeof *w->taken);
    window_of(w, g->rank, round, &at, &end);
    while (at < end) {
        struct run run = run_at(g, &c, at, end);

        at += run.count;
        w->taken[run.owner] += run.count;
    }
}

/* Put the window, sorted from what came in by rank. */
static int put(struct work *w, struct cursor c, const struct regroup_ends *ends, int64_t round,
               struct ckpt_err *err)
{
    const struct regroup *g = w->g;
    int64_t at, end, from, *next = w->given;    /* the round's counts are done with */

    window_of(w, g->rank, round, &at, &end);
    from = at;
    if (at == end)
        return 0;
    next[0] = 0;
    for (int r = 1; r < g->world_size; r++)
        next[r] = next[r - 1] + w->taken[r - 1];
    while (at < end) {
        struct run run = run_at(g, &c, at, end);

        memcpy(w->own + (at - from), w->in + next[run.owner],
               (size_t)run.count * sizeof *w->own);
        next[run.owner] += run.count;
        at += run.count;
    }
    return ends->put(ends->ctx, from - g->part * g->rank, end - from, w->own, err);
}

static int allocate(struct work *w, struct ckpt_err *err)
{
    size_t n = (size_t)w->g->world_size, window = (size_t)w->window;

    w->cursor = ckpt_alloc(n, sizeof *w->cursor);
    w->given = ckpt_alloc(2 * n, sizeof *w->given);
    w->out = ckpt_alloc_buffer((n + 2) * window * sizeof *w->out);
    if (!w->cursor || !w->given || !w->out)
        return ckpt_nomem(err, (n + 2) * window * sizeof *w->out);
    w->taken = w->given + n;
    w->in = w->out + n * window;
    w->own = w->in + window;
    return 0;
}

int regroup(struct comm *c, const struct regroup *g, const struct regroup_ends *ends,
            struct ckpt_err *err)
{
    struct work w = {.g = g, .window = g->window > 0 ? g->window : BUDGET / g->world_size};
    int rc;

    for (size_t i = 0; i < g->n; i++)
        w.total += g->numel[i];
    if (w.window < SMALLEST && g->window == 0)
        w.window = SMALLEST;
    if (w.window > g->part && g->part > 0)
        w.window = g->part;
    rc = allocate(&w, err);
    if ((rc = comm_agree(c, rc, err)) != 0)
        goto out;
    for (int64_t round = 0; round * w.window < g->part && c->err.code == 0; round++) {
        struct cursor before = w.cursor[g->rank];
        int bad;

        count_taken(&w, round);
        bad = give(&w, ends, round, rc ? &(struct ckpt_err){0} : err);
        rc = rc ? rc : bad;
        comm_exchange(c, w.in, w.taken, w.out, w.given, CKPT_F32);
        if (rc == 0 && c->err.code == 0)
            rc = put(&w, before, ends, round, err);
    }
    if (rc == 0)
        rc = comm_error(c, err);
out:
    ckpt_free(w.cursor);
    ckpt_free(w.given);
    ckpt_free(w.out);
    return rc;
}
