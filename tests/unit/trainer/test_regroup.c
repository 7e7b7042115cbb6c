/* regroup: ranks that hold parts of each parameter give each other equal parts of the whole, each
 * element once, whatever the sizes; a rank that cannot write its part does not keep the others. */
#include "tests/unit/unit.h"

#include <pthread.h>

#include "formats/deepspeed/layout.h"
#include "trainer/shard/regroup.h"

#define MOST 8

/* Ranks in one process: the buffers that all read. */
struct table {
    pthread_barrier_t all;
    const float      *given[MOST];
    const int64_t    *count[MOST];
    int64_t           vote;
};

struct seat {
    struct comm     c;
    struct table   *table;
    struct regroup  g;
    float          *got;                /* [part] */
    int64_t         next;               /* where the next put begins */
    int             fails_at;           /* the put that fails; 0: none */
    int             puts, rc;
};

static void at_once(struct comm *c, void *dst, const int64_t *taken, const void *src,
                    const int64_t *given, enum ckpt_dtype t)
{
    struct table *all = ((struct seat *)c)->table;
    float *to = dst;

    (void)t;
    all->given[c->rank] = src;
    all->count[c->rank] = given;
    pthread_barrier_wait(&all->all);
    for (int r = 0; r < c->world_size; r++) {
        const float *from = all->given[r];

        for (int k = 0; k < c->rank; k++)
            from += all->count[r][k];
        if (all->count[r][c->rank] != taken[r])
            abort();                    /* both sides know both counts */
        memcpy(to, from, (size_t)taken[r] * sizeof *to);
        to += taken[r];
    }
    pthread_barrier_wait(&all->all);
}

static void no_vote(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    (void)c;
    (void)buf;
    (void)n;
    (void)t;
    (void)op;
}

static const struct comm_ops ops = {.name = "table", .all_reduce = no_vote, .exchange = at_once};

/* Element e of parameter i. */
static float element(size_t i, int64_t e) { return (float)i * 1000.0f + (float)e; }

static int read_part(void *ctx, size_t i, int64_t start, int64_t count, float *to,
                     struct ckpt_err *err)
{
    const struct seat *s = ctx;
    struct ds_piece p = ds3_piece(s->g.numel[i], 0, s->g.rank, s->g.world_size);

    (void)err;
    if (start < 0 || start + count > p.count)
        abort();
    for (int64_t e = 0; e < count; e++)
        to[e] = element(i, p.start + start + e);
    return 0;
}

static int put_part(void *ctx, int64_t at, int64_t count, const float *from, struct ckpt_err *err)
{
    struct seat *s = ctx;

    if (at != s->next || at + count > s->g.part)
        abort();
    if (++s->puts == s->fails_at)
        return ckpt_fail(err, CKPT_EIO, "the disk is full");
    s->next += count;
    memcpy(s->got + at, from, (size_t)count * sizeof *from);
    return 0;
}

static void *take_part(void *seat)
{
    struct seat *s = seat;
    struct ckpt_err err = {0};

    s->rc = regroup(&s->c, &s->g, &(struct regroup_ends){read_part, put_part, s}, &err);
    return NULL;
}

/* All ranks at work; failing: the rank whose second put fails, -1 for none. */
static void go(struct seat *seat, int world, const int64_t *numel, size_t n, int64_t window,
               int failing)
{
    static struct table table;
    pthread_t thread[MOST];
    int64_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += numel[i];
    assert_int_equal(pthread_barrier_init(&table.all, NULL, (unsigned)world), 0);
    for (int r = 0; r < world; r++) {
        seat[r] = (struct seat){
            .c = {.ops = &ops, .rank = r, .world_size = world}, .table = &table,
            .g = {numel, n, ds12_part(total, world, DS_ALIGN), r, world, window},
            .fails_at = r == failing ? 2 : 0};
        seat[r].got = calloc((size_t)seat[r].g.part + 1, sizeof(float));
        assert_int_equal(pthread_create(&thread[r], NULL, take_part, &seat[r]), 0);
    }
    for (int r = 0; r < world; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&table.all);
}

/* Every real element of a rank's part, which ends where the sequence does. */
static void check(const struct seat *s)
{
    int64_t base = 0, from = s->g.part * s->g.rank;

    for (size_t i = 0; i < s->g.n; base += s->g.numel[i++])
        for (int64_t e = 0; e < s->g.numel[i]; e++)
            if (base + e >= from && base + e < from + s->g.part &&
                s->got[base + e - from] != element(i, e))
                fail_msg("rank %d of %d: element %lld of parameter %zu is %g", s->g.rank,
                         s->g.world_size, (long long)e, i, (double)s->got[base + e - from]);
}

static const int64_t sizes[] = {31 * 18, 1, 23 * 18, 5, 11, 97, 2};
#define N (sizeof sizes / sizeof sizes[0])

TEST(every_rank_gets_its_part_of_the_whole)
{
    static const int worlds[] = {1, 2, 3, 8};
    static const int64_t windows[] = {0, 1, 7, 64};

    for (size_t k = 0; k < 4; k++)
        for (size_t w = 0; w < 4; w++) {
            struct seat seat[MOST];

            go(seat, worlds[k], sizes, N, windows[w], -1);
            for (int r = 0; r < worlds[k]; r++) {
                assert_int_equal(seat[r].rc, 0);
                check(&seat[r]);
                free(seat[r].got);
            }
        }
}

TEST(fewer_elements_than_ranks)
{
    static const int64_t few[] = {3, 1};
    struct seat seat[MOST];

    go(seat, 8, few, 2, 0, -1);
    for (int r = 0; r < 8; r++) {
        assert_int_equal(seat[r].rc, 0);
        check(&seat[r]);
        free(seat[r].got);
    }
}

TEST(a_rank_that_fails_goes_on_giving)
{
    struct seat seat[MOST];

    go(seat, 3, sizes, N, 50, 1);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(seat[r].rc, r == 1 ? CKPT_EIO : 0);
        if (r != 1)
            check(&seat[r]);
        free(seat[r].got);
    }
    assert_int_equal(seat[1].puts, 2);
}
