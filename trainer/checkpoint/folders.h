/*
 * checkpoint/folders - whether the ranks' output is one folder, or one on each node's own disk.
 *
 * Found before the first step, not taken from names: each rank leaves a file and looks which of the
 * others' it sees.  Ranks that see each other's write one checkpoint together; where there are
 * several folders, each gets its ranks' shards, and `ckpt-merge --together` reads them as one.
 * Where nothing is sharded, each has all but the other ranks' random states.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_FOLDERS_H
#define CKPT_TRAINER_CHECKPOINT_FOLDERS_H

#include "trainer/comm/comm.h"

struct folders {
    int  n;                     /* folders; 0: not looked yet, which means one */
    int  mine;                  /* this rank's, counted by their lowest ranks */
    int  first;                 /* the lowest rank that sees this one's */
    bool leads;                 /* this rank is it: creates and completes checkpoints there */
};

/*
 * Look.  Makes the folder where it is absent: rank 0 has made its own before.  A full, foreign or
 * absent disk is reported here; the error names rank and host.  Rank 0 tells what was found when
 * there are several, and for all ranks that shard together what resuming needs.  Collective.
 */
int folders_find(struct folders *f, const char *output_dir, struct comm *c, bool sharded,
                 struct ckpt_err *err);
/* Of every folder its leader's text to the ranks of it.  Collective. */
int folders_share(const struct folders *f, struct comm *c, char *text, size_t size,
                  struct ckpt_err *err);

#endif
