/*
 * simulate - a communicator for one rank of a world that is not there: collectives over a device's
 * buffers take the time that a model gives them, and nothing leaves the device.
 *
 * The model.  n ranks fill nodes of G GPUs.  S is what NCCL's tests call the size: in an
 * all-gather and a reduce-scatter the bytes of all ranks together, in an all-reduce and a broadcast
 * those of the buffer.
 *
 *   all-gather, reduce-scatter, broadcast: a ring
 *     t = start + max(hops, inside, between)
 *     hops    = (n - nodes) hop + (nodes - 1) net_hop
 *     inside  = r / speed(r)                   r = (n - 1)/n S bytes reach each GPU
 *     speed(r) = link sqrt(r / (r + 3 half))   half of the link's speed at r = half
 *     between = (nodes - 1)/nodes S / (G network)
 *   all-reduce: the faster of two
 *     ring: a reduce-scatter, then an all-gather:
 *           t = start + 2 max(hops, inside, between)
 *     tree: t = start + 2 (min(n, G) - 1) tree_hop + 2 log2(nodes) tree_net_hop
 *                     + 2 max(inside, between) / tree_share
 *
 * What it assumes:
 *   - A rank of a ring sends on a chunk while it receives the next.  A chunk's way around the ring
 *     (hops) and the time that all chunks take through one link (inside) thus pass together, and
 *     the longer one counts.  Hops count in small messages alone, where NCCL uses its protocol LL,
 *     so that they cost what they do there.
 *   - A ring enters each node once, and there are as many rings as the node has GPUs, each with a
 *     network card of its own: S passes a node's border once, over G cards.  A hierarchical
 *     ring moves as much.  The last node has all its cards, however few ranks are on it.
 *   - All-gather and reduce-scatter have rings alone.  NCCL's PAT algorithm, whose hops are
 *     logarithmic in number, is for nodes of one GPU.
 *   - Where ranks are split (hybrid sharding), all parts do the same at the same time, and each
 *     rank uses its own links.  A group that fills no whole number of nodes is taken to begin on
 *     one.
 *   - Ranks arrive together, and no other job uses the network: where others do, or rings pass
 *     many switches, speeds fall with the number of nodes (NCCL's issue 1229: 360 GB/s at 4 nodes
 *     of H100, 260 at 128).
 *   - NCCL's kernels take some SMs from the operations beside them; here copies do that until they
 *     are done.
 *
 * The link was measured on two GPUs.  In a node of eight, NCCL has more channels and is faster:
 * simulate_net may name another speed.
 */
#ifndef CKPT_TRAINER_COMM_SIMULATE_H
#define CKPT_TRAINER_COMM_SIMULATE_H

#include "trainer/comm/comm.h"

struct device;

/* What a run is simulated on; node 0: it is not simulated. */
struct simulate_net {
    int    node;                        /* GPUs of a node */
    double network;                     /* bytes/s from node to node, for each GPU and direction */
    double link;                        /* bytes/s that reach a GPU in a node; 0: as measured */
};

/* The model's constants: seconds, bytes, bytes/s. */
struct simulate_model {
    double start;                       /* of any collective */
    double link, half;                  /* in a node: bytes/s that reach a GPU; half of them at */
    double hop, hop_among;              /* from GPU to GPU, in one node and in one of several */
    double net_hop;                     /* from node to node */
    double tree_hop, tree_hop_among, tree_net_hop;
    double tree_share;                  /* of a ring's speed */
};

extern const struct simulate_model simulate_model;

enum simulate_kind {
    SIMULATE_ALL_GATHER, SIMULATE_REDUCE_SCATTER, SIMULATE_BROADCAST, SIMULATE_ALL_REDUCE,
    SIMULATE_KINDS
};

int simulate_nodes(const struct simulate_net *net, int n);
/* What ranks of a part of the world see that are so many apart: fewer of theirs on each node, and
 * the same speeds, as each has links and a network card of its own. */
struct simulate_net simulate_part(const struct simulate_net *net, int stride);
/* Seconds of a collective of S bytes over n ranks; 0 for one rank, or without bytes. */
double simulate_seconds(const struct simulate_net *net, enum simulate_kind kind, int n, double S);

/* What a device does for a collective, in the order of its stream OP_STREAM_COMM. */
struct simulate_device {
    void (*begin)(struct device *dev);  /* note the time */
    /* dst[times][bytes] <- src[bytes], each time; src may be one of them. */
    void (*repeat)(struct device *dev, void *dst, const void *src, size_t bytes, int64_t times);
    void (*end)(struct device *dev, double seconds);    /* wait until that long after begin */
};

/*
 * A communicator of rank 0 of n.  An all-gather puts this rank's part into every rank's place:
 * values as random as true ones, which draw as much power.  A reduce-scatter gives this rank's part
 * of its own buffer; all-reduce and broadcast leave theirs.  The collectives of a group begin and
 * end together, those of a kind as one of all their bytes.  dev and how outlive it.
 */
int simulate_open(struct comm **out, int n, const struct simulate_net *net, struct device *dev,
                  const struct simulate_device *how, struct ckpt_err *err);

/* Groups count as one. */
struct simulate_sum {
    int64_t n;
    double  seconds, bytes;
};

/* The collectives since the last call, or since the beginning. */
struct simulate_sum simulate_take(struct comm *c);
/* While it is paused, collectives do nothing, take no time and are not counted. */
void simulate_pause(struct comm *c, bool paused);

#endif
