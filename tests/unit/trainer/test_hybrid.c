/*
 * Hybrid sharding among threads: groups of ranks take the steps of ranks that all hold everything, whatever
 * the stage, as hosts and as GPUs pass layers; and splits, failures and diverging ranks are reported.
 */
#include "tests/unit/golden_model.h"
#include "tests/unit/threads_comm.h"

#include "trainer/checkpoint/replicas.h"
#include "trainer/rng.h"

enum { WORLD = 4, STEPS = 3, PASSES = 2 };

static const struct model_opts train = {.max_tokens = 16, .max_docs = 2, .max_rows = 16,
                                        .train = true};

/* A way to shard, and what its ranks come to. */
struct way {
    int                stage, group;    /* group 0: no groups */
    bool               gpu;             /* discrete memory, collectives in groups */
    bool               keep, unnamed;   /* stage 3 keeps all; the last pass is not told to be it */
    enum ckpt_dtype    reduce;
    const struct arch *arch;
    const int         *local;           /* [WORLD] numbers on their nodes */
    float             *weights;         /* [WORLD][numel] */
    double             norm[WORLD];
    int                sums[WORLD];     /* over the replicas */
    struct threads_hub *hub;
};

struct rank {
    struct way *way;
    int         number;
    int       (*run)(struct rank *r, struct comm *world, struct ckpt_err *err);
    int         rc;
    struct ckpt_err err;
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const uint64_t *seed = ctx;

    (void)err;
    rng_normal(dst, start, count, 0.5f, *seed, i);
    return 0;
}

/* A gradient whose sums over ranks and passes are exact in any order, also in 16 bits. */
static float gradient(int rank, int step, int pass, int64_t e)
{
    return (float)((rank + 1) * (pass + 1) + (int)(e % 5) + step) / 64;
}

static void add_gradients(const struct model_weights *w, const struct params *p, int layer,
                          float *grad, int rank, int step, int pass)
{
    bool fresh = w->fresh(w->ctx, layer);

    for (size_t i = 0; i < p->n; i++) {
        const struct param *q = &p->item[i];

        if (q->layer != layer || !q->trainable)
            continue;
        for (int64_t e = 0; e < q->numel; e++) {
            float x = gradient(rank, step, pass, e + (int64_t)i);

            grad[q->grad_offset + e] = fresh && q->written ? x : grad[q->grad_offset + e] + x;
        }
    }
}

static void pass(struct zero *z, const struct params *p, int rank, int step, int number)
{
    const struct model_weights *w = zero_weights(z);

    for (int u = 0; u < p->n_layers; u++) {
        w->acquire(w->ctx, u);
        w->release(w->ctx, u);
    }
    for (int u = p->n_layers - 1; u >= 0; u--) {
        w->acquire(w->ctx, u);
        add_gradients(w, p, u, w->grad(w->ctx, u), rank, step, number);
        w->grad_done(w->ctx, u);
        w->release(w->ctx, u);
    }
}

static void take_steps(struct rank *r, struct zero *z, const struct params *p)
{
    for (int step = 1; step <= STEPS; step++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = step,
                          .verdict = zero_verdict(z)};

        zero_begin(z);
        for (int k = 0; k < PASSES; k++) {
            if (k + 1 == PASSES && !r->way->unnamed)
                zero_last(z);
            pass(z, p, r->number, step, k);
        }
        zero_reduce(z);
        zero_judge(z, 0, 1);
        zero_step(z, &a, 0.1);
        r->way->norm[r->number] = zero_verdict_host(z).norm;
    }
}

/* All of the true weights, as this rank gathers them. */
static int copy_weights(struct rank *r, struct zero *z, const struct params *p,
                        struct ckpt_err *err)
{
    float *to = r->way->weights + r->number * p->numel;

    for (int u = 0; u < p->n_layers; u++)
        if (p->layer_numel[u] > 0) {
            const float *x = zero_master(z, u, err);

            if (!x)
                return ckpt_err_code(err);
            for (size_t i = 0; i < p->n; i++)
                if (p->item[i].layer == u) {
                    memcpy(to, x + p->item[i].offset, (size_t)p->item[i].numel * sizeof *to);
                    to += p->item[i].numel;
                }
        }
    return 0;
}

struct parts { struct comm *shard, *replicas; };

static int split(struct parts *of, struct comm *world, int group, struct ckpt_err *err)
{
    int rc = 0;

    *of = (struct parts){world, NULL};
    if (group)
        rc = comm_split(&of->shard, world, COMM_WITHIN, group, err);
    if (group && rc == 0)
        rc = comm_split(&of->replicas, world, COMM_ACROSS, group, err);
    return rc;
}

/* A model's arrays as this rank of the way has them. */
static int open_zero(struct zero **z, struct model **m, struct device *dev, struct rank *r,
                     const struct parts *of, struct ckpt_err *err)
{
    struct way *way = r->way;
    struct model_opts model = train;
    struct zero_opts opts = {.stage = way->stage, .train = true, .replicas = of->replicas,
                             .keep_weights = way->keep, .keep_grads = way->keep,
                             .reduce = way->reduce};
    uint64_t seed = 3;
    int rc;

    dev->discrete = way->gpu;
    model.ranks = way->stage > 0 ? of->shard->world_size : 1;
    if ((rc = model_new(m, way->arch, &model, dev, err)) != 0 ||
        (rc = zero_new(z, model_params(*m), &opts, dev, of->shard, err)) != 0)
        return rc;
    return zero_fill(*z, ZERO_MASTER, fill, &seed, err);
}

static int train_some(struct rank *r, struct comm *world, struct ckpt_err *err)
{
    struct device *dev = cpu_device(1);
    struct model *m = NULL;
    struct zero *z = NULL;
    struct parts of;
    int rc = split(&of, world, r->way->group, err);

    if (rc == 0)
        rc = open_zero(&z, &m, dev, r, &of, err);
    if (rc == 0)
        take_steps(r, z, model_params(m));
    if (rc == 0)
        rc = copy_weights(r, z, model_params(m), err);
    if (rc == 0 && of.replicas && of.replicas->world_size > 1)
        r->way->sums[r->number] = threads_of(of.replicas)->n_sums;
    if (rc == 0)
        rc = comm_error(world, err);
    zero_free(z);
    model_free(m);
    device_close(dev);
    return rc;
}

static void *thread(void *arg)
{
    struct rank *r = arg;
    struct comm *c = threads_open(r->way->hub, r->way->gpu ? &threads_grouped : &threads_plain,
                                  r->number, WORLD);

    r->rc = r->run(r, c, &r->err);
    comm_close(c);
    return NULL;
}

static void run(struct rank rank[WORLD], struct way *way,
                int (*body)(struct rank *, struct comm *, struct ckpt_err *))
{
    pthread_t id[WORLD];

    way->hub = threads_hub(WORLD);
    for (int r = 0; r < WORLD; r++) {
        rank[r] = (struct rank){.way = way, .number = r, .run = body};
        assert_int_equal(pthread_create(&id[r], NULL, thread, &rank[r]), 0);
    }
    for (int r = 0; r < WORLD; r++)
        pthread_join(id[r], NULL);
}

static void train_way(struct way *way, const struct golden *g)
{
    struct rank rank[WORLD];

    way->arch = g->arch;
    way->weights = calloc((size_t)(WORLD * model_params(g->model)->numel), sizeof *way->weights);
    run(rank, way, train_some);
    for (int r = 0; r < WORLD; r++)
        if (rank[r].rc)
            fail_msg("stage %d, groups of %d, rank %d: %s", way->stage, way->group, r,
                     rank[r].err.text);
}

TEST(groups_take_the_steps_of_ranks_that_hold_everything)
{
    struct way all = {.stage = 0};
    int64_t n;
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    n = model_params(g.model)->numel;
    train_way(&all, &g);
    for (int stage = 1; stage <= 3; stage++)
        for (int group = 0; group <= WORLD; group += group ? group : 1)
            for (int how = 0; how < 8; how++) {
                struct way way = {.stage = stage, .group = group, .gpu = how & 1,
                                  .keep = stage == 3 && how & 2, .unnamed = how & 4};

                train_way(&way, &g);
                for (int r = 0; r < WORLD; r++) {
                    if (memcmp(way.weights + r * n, all.weights, (size_t)n * sizeof *way.weights))
                        fail_msg("stage %d, groups of %d, way %d, rank %d: other weights", stage,
                                 group, how, r);
                    assert_true(fabs(way.norm[r] / all.norm[0] - 1) < 1e-12);
                    assert_true(way.norm[r] == way.norm[0]);
                }
                free(way.weights);
            }
    free(all.weights);
    golden_close(&g);
}

/* Once a step, and no more: on hosts all at once, on GPUs layer by layer. */
TEST(replicas_meet_once_a_step)
{
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    for (int gpu = 0; gpu < 2; gpu++) {
        struct way way = {.stage = 3, .group = 2, .gpu = gpu};
        int layers = 0;

        train_way(&way, &g);
        for (int u = 0; u < model_params(g.model)->n_layers; u++)
            layers += model_params(g.model)->layer_grad[u] > 0;
        for (int r = 0; r < WORLD; r++)
            assert_int_equal(way.sums[r], STEPS * (gpu ? layers : 1));
        free(way.weights);
    }
    golden_close(&g);
}

TEST(gradients_of_16_bits_cross_groups_too)
{
    struct way plain = {.stage = 2, .gpu = true, .reduce = CKPT_BF16};
    struct way way = {.stage = 2, .group = 2, .gpu = true, .reduce = CKPT_BF16};
    struct golden g;
    int64_t n;

    golden_open(&g, "bloom-a", &train, 1);
    n = model_params(g.model)->numel;
    train_way(&plain, &g);
    train_way(&way, &g);
    assert_memory_equal(way.weights, plain.weights, (size_t)(WORLD * n) * sizeof *way.weights);
    free(plain.weights);
    free(way.weights);
    golden_close(&g);
}

/* -- the split -------------------------------------------------------------------------------- */

/* Sums of ranks tell who is in a part. */
static int sum_parts(struct rank *r, struct comm *world, struct ckpt_err *err)
{
    int64_t sum = 1 << world->rank, cross = sum;
    struct parts of;
    int rc = split(&of, world, 2, err);

    if (rc)
        return rc;
    comm_all_reduce(of.shard, &sum, 1, CKPT_I64, COMM_SUM);
    comm_all_reduce(of.replicas, &cross, 1, CKPT_I64, COMM_SUM);
    return sum == 3 << r->number / 2 * 2 && cross == 5 << r->number % 2 &&
                   of.shard->rank == r->number % 2 && of.replicas->rank == r->number / 2 &&
                   of.shard->stride == 1 && of.replicas->stride == 2 &&
                   of.shard->global_rank == r->number
               ? 0 : ckpt_fail(err, CKPT_ESTATE, "%d: %lld and %lld", r->number, (long long)sum,
                               (long long)cross);
}

TEST(a_part_has_the_ranks_of_its_group_or_of_its_place)
{
    struct way way = {0};
    struct rank rank[WORLD];

    run(rank, &way, sum_parts);
    for (int r = 0; r < WORLD; r++)
        OK(rank[r].rc, rank[r].err);
}

/* A failure inside of rank 2's group. */
static int fail_inside(struct rank *r, struct comm *world, struct ckpt_err *err)
{
    struct parts of;
    int rc = split(&of, world, 2, err);

    if (rc == 0 && r->number == 2)
        ckpt_fail(&of.shard->err, CKPT_ECOMM, "rank 2: reduce_scatter: a link is gone");
    rc = rc ? rc : comm_agree(world, 0, err);
    return rc && world->agreed ? rc : CKPT_ESTATE;
}

TEST(a_failure_in_a_part_is_the_worlds)
{
    struct way way = {0};
    struct rank rank[WORLD];

    run(rank, &way, fail_inside);
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(rank[r].rc, CKPT_ECOMM);
        assert_string_equal(rank[r].err.text, "rank 2: reduce_scatter: a link is gone");
    }
}

static int find_node(struct rank *r, struct comm *world, struct ckpt_err *err)
{
    int size = 0, rc;

    world->local_rank = r->way->local[r->number];
    rc = comm_split_node(&size, world, err);
    r->way->sums[r->number] = size;
    return rc;
}

TEST(a_node_is_what_its_ranks_say)
{
    static const struct { int local[WORLD], size; const char *says; } rows[] = {
        {{0, 1, 2, 3}, 4, NULL},
        {{0, 1, 0, 1}, 2, NULL},
        {{0, 0, 0, 0}, 1, NULL},
        {{0, 0, 1, 1}, 0, "rank 1 is not number 1 of its node"},
        {{0, 1, 2, 0}, 0, "nodes have up to 3 ranks, the last has fewer"},
        {{1, 0, 1, 0}, 0, "rank 0 is not number 0 of its node"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct way way = {.local = rows[i].local};
        struct rank rank[WORLD];

        run(rank, &way, find_node);
        for (int r = 0; r < WORLD; r++) {
            assert_int_equal(rank[r].rc, rows[i].says ? CKPT_ECONFIG : 0);
            if (rows[i].says)
                assert_non_null(strstr(rank[r].err.text, rows[i].says));
            else
                assert_int_equal(way.sums[r], rows[i].size);
        }
    }
}

TEST(groups_fill_a_world)
{
    struct ckpt_err err = {0};
    struct comm *c, *part;

    assert_int_equal(comm_split_check(12, 4, &err), 0);
    assert_int_equal(comm_split_check(12, 5, &err), CKPT_ECONFIG);
    assert_string_equal(err.text, "groups of 5 ranks do not fill a world of 12");
    assert_string_equal(err.hint, "`hybrid_shard_size N` sets the ranks of a group: 1, 2, 3, 4, 6 "
                        "or 12");
    assert_int_equal(comm_split_check(1, 2, &err), CKPT_ECONFIG);
    assert_non_null(strstr(err.hint, "a group: 1"));
    assert_int_equal(comm_split_check(4, 8, &err), CKPT_ECONFIG);
    assert_int_equal(comm_split_check(1 << 30, 3, &err), CKPT_ECONFIG);      /* many sizes: no overflow */
    /* Ranks that are planned have planned parts, or stand alone in them. */
    OK(comm_open_single(&c, 8, &err), err);
    OK(comm_split(&part, c, COMM_WITHIN, 4, &err), err);
    assert_true(part->world_size == 4 && part->planned);
    OK(comm_split(&part, c, COMM_ACROSS, 8, &err), err);
    assert_true(part->world_size == 1 && !part->planned);
    assert_int_equal(comm_split(&part, c, COMM_WITHIN, 3, &err), CKPT_ECONFIG);
    assert_true(c->agreed && !part);
    comm_close(c);
}

/* -- a checkpoint ----------------------------------------------------------------------------- */

/* Rank 3 has one weight of its own. */
static int drift(struct rank *r, struct comm *world, struct ckpt_err *err)
{
    struct session s = {.comm = world, .dev = cpu_device(1)};
    struct parts of;
    float other = 7;
    int rc = split(&of, world, 2, err);

    if (rc == 0)
        rc = open_zero(&s.zero, &s.model, s.dev, r, &of, err);
    s.shard = of.shard;
    s.replicas = of.replicas;
    if (rc == 0)
        rc = comm_agree(world, replicas_check(&s, err), err);
    if (rc == 0 && r->number == 3)
        rc = zero_write(s.zero, ZERO_EXP_AVG, 1, 0, 1, &other, err);
    if (rc == 0)
        rc = comm_agree(world, replicas_check(&s, err), err);
    zero_free(s.zero);
    model_free(s.model);
    device_close(s.dev);
    return rc;
}

TEST(groups_that_drifted_apart_are_not_saved)
{
    struct way way = {.stage = 2, .group = 2};
    struct rank rank[WORLD];
    struct golden g;

    golden_open(&g, "bloom-a", &train, 1);
    way.arch = g.arch;
    run(rank, &way, drift);
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(rank[r].rc, CKPT_ECOMM);
        assert_string_equal(rank[r].err.text, "rank 3: weights or moments are not those of rank 1, "
                            "of which they are to be a copy");
    }
    golden_close(&g);
}
