/* simulate - see simulate.h. */
#include "trainer/comm/simulate.h"

#include <math.h>

#include "libckpt/mem.h"

/*
 * start, link, half: fitted to all-gathers on two H200 over NVLink (NCCL 2.28, NCCL_NVLS_ENABLE=0):
 * 268 GB/s (S over time) at 1 GiB, 153 GB/s at 16 MiB, 32 us at 1 MiB.
 * The others: NCCL, src/graph/tuning.cc (01afd20a): hwLat of LL on NVLINK and NET, for rings and
 * trees; in several nodes NVLINK's times 1.8; busBw of trees times 0.9.
 */
const struct simulate_model simulate_model = {
    .start = 13e-6, .link = 136e9, .half = 4.07e6,
    .hop = 0.47e-6, .hop_among = 1.8 * 0.47e-6, .net_hop = 2.7e-6,
    .tree_hop = 0.52e-6, .tree_hop_among = 1.8 * 0.52e-6, .tree_net_hop = 5.0e-6,
    .tree_share = 0.9,
};

int simulate_nodes(const struct simulate_net *net, int n)
{
    return (n + net->node - 1) / net->node;
}

struct simulate_net simulate_part(const struct simulate_net *net, int stride)
{
    struct simulate_net part = *net;

    part.node = net->node > stride ? net->node / stride : 1;
    return part;
}

/* Seconds that the bytes need, by the slower of the two kinds of links. */
static double through(const struct simulate_net *net, int n, double S)
{
    const struct simulate_model *m = &simulate_model;
    double nodes = simulate_nodes(net, n), G = net->node, r = (n - 1.0) / n * S;
    double link = net->link > 0 ? net->link : m->link;
    double inside = net->node > 1 ? sqrt(r * (r + 3 * m->half)) / link : 0;
    double between = (nodes - 1) / nodes * S / (G * net->network);

    return fmax(inside, between);
}

double simulate_seconds(const struct simulate_net *net, enum simulate_kind kind, int n, double S)
{
    const struct simulate_model *m = &simulate_model;
    int nodes = simulate_nodes(net, n), here = n < net->node ? n : net->node;
    double hop = nodes > 1 ? m->hop_among : m->hop;
    double tree_hop = nodes > 1 ? m->tree_hop_among : m->tree_hop;
    double bytes = through(net, n, S), ring, tree;

    if (n < 2 || S <= 0)
        return 0;
    ring = fmax((n - nodes) * hop + (nodes - 1) * m->net_hop, bytes);
    if (kind != SIMULATE_ALL_REDUCE)
        return m->start + ring;
    tree = (here - 1) * tree_hop + log2(nodes) * m->tree_net_hop + bytes / m->tree_share;
    return m->start + 2 * fmin(ring, tree);
}

/* -- the communicator ------------------------------------------------------------------------- */

struct comm_simulate {
    struct comm                   head;
    struct device                *dev;
    const struct simulate_device *how;
    struct simulate_net           net;
    bool                          grouped, begun, paused;
    double                        bytes[SIMULATE_KINDS];    /* of the collectives in work */
    struct simulate_sum           sum;
};

static struct comm_simulate *of(struct comm *c) { return (struct comm_simulate *)c; }

/* Whether there is anything to do; the first collective of a group begins it. */
static bool begin(struct comm_simulate *m)
{
    if (m->paused)
        return false;
    if (!m->begun)
        m->how->begin(m->dev);
    m->begun = true;
    return true;
}

static void end(struct comm_simulate *m)
{
    double seconds = 0;

    if (!m->begun)
        return;
    for (int kind = 0; kind < SIMULATE_KINDS; kind++) {
        seconds += simulate_seconds(&m->net, (enum simulate_kind)kind, m->head.world_size,
                                    m->bytes[kind]);
        m->sum.bytes += m->bytes[kind];
        m->bytes[kind] = 0;
    }
    m->how->end(m->dev, seconds);
    m->sum.seconds += seconds;
    m->sum.n++;
    m->begun = false;
}

static void moved(struct comm_simulate *m, enum simulate_kind kind, double bytes)
{
    m->bytes[kind] += bytes;
    if (!m->grouped)
        end(m);
}

static void sim_all_reduce(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, enum comm_op op)
{
    (void)buf;
    (void)op;
    if (begin(of(c)))
        moved(of(c), SIMULATE_ALL_REDUCE, (double)n * (double)ckpt_dtype_size(t));
}

static void sim_all_gather(struct comm *c, void *dst, const void *src, int64_t n,
                           enum ckpt_dtype t)
{
    struct comm_simulate *m = of(c);
    size_t part = (size_t)n * ckpt_dtype_size(t);

    if (!begin(m))
        return;
    m->how->repeat(m->dev, dst, src, part, c->world_size);
    moved(m, SIMULATE_ALL_GATHER, (double)part * c->world_size);
}

static void sim_reduce_scatter(struct comm *c, void *dst, const void *src, int64_t n,
                               enum ckpt_dtype t)
{
    struct comm_simulate *m = of(c);
    size_t part = (size_t)n * ckpt_dtype_size(t);

    if (!begin(m))
        return;
    if (dst != src)                     /* rank 0's part comes first */
        m->how->repeat(m->dev, dst, src, part, 1);
    moved(m, SIMULATE_REDUCE_SCATTER, (double)part * c->world_size);
}

static void sim_broadcast(struct comm *c, void *buf, int64_t n, enum ckpt_dtype t, int root)
{
    (void)buf;
    (void)root;
    if (begin(of(c)))
        moved(of(c), SIMULATE_BROADCAST, (double)n * (double)ckpt_dtype_size(t));
}

/* Of the hosts: their communicator's. */
static void sim_barrier(struct comm *c) { (void)c; }

static void sim_group(struct comm *c, bool begins)
{
    of(c)->grouped = begins;
    if (!begins)
        end(of(c));
}

static void sim_close(struct comm *c) { (void)c; }

static const struct comm_ops sim_ops = {
    .name = "simulated",
    .all_reduce = sim_all_reduce, .all_gather = sim_all_gather,
    .reduce_scatter = sim_reduce_scatter, .broadcast = sim_broadcast, .barrier = sim_barrier,
    .group = sim_group, .close = sim_close,
};

int simulate_open(struct comm **out, int n, const struct simulate_net *net, struct device *dev,
                  const struct simulate_device *how, struct ckpt_err *err)
{
    struct comm_simulate *m = ckpt_alloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->head.ops = &sim_ops;
    m->head.world_size = n;
    m->head.planned = true;
    m->dev = dev;
    m->how = how;
    m->net = *net;
    *out = &m->head;
    return 0;
}

struct simulate_sum simulate_take(struct comm *c)
{
    struct simulate_sum sum = of(c)->sum;

    of(c)->sum = (struct simulate_sum){0};
    return sum;
}

void simulate_pause(struct comm *c, bool paused) { of(c)->paused = paused; }
