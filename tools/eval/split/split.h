/*
 * eval/split - the ranks that share the rows of an evaluation (--nproc).
 *
 * Every rank opens the same models and data by itself, without talking to the others, and works on
 * its part of the rows: numbers whose remainder by the number of ranks is its own.  Losses and
 * likelihoods are summed over ranks, where all but one bring 0, so that they have the bits of one
 * rank.  Generated rows go to the first rank (split/rows.h).  The first rank alone reads standard
 * input, prints, and writes files; it tells the others each model.
 *
 * A struct split that is NULL stands for one rank: its calls return at once.
 */
#ifndef CKPT_TOOLS_EVAL_SPLIT_SPLIT_H
#define CKPT_TOOLS_EVAL_SPLIT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct cli;
struct comm;
struct split;

#define SPLIT_GPUS (-1)                 /* nproc: as many as there are GPUs */

struct split_opts {
    int64_t      nproc;                 /* ranks to start; 0: none */
    char       **argv;                  /* this program's; the ranks get the same */
    struct cli  *cli;                   /* one after the first prints errors alone */
    const char **device;                /* as in struct device_opts; becomes the rank's own */
    int64_t     *threads;               /* likewise */
};

/*
 * 0: this process evaluates, as the only rank (*out is NULL) or as one of several; 1: it has
 * started ranks, and *status is what they came to.  report_open comes before.
 */
int split_begin(struct split **out, int *status, const struct split_opts *opts,
                struct ckpt_err *err);
/*
 * The end, with the outcome of the work.  True: the failure, if there is one, is told by another
 * process, or has been told; *status is then what this process exits with.
 */
bool split_end(struct split *s, int rc, int *status, struct ckpt_err *err);

/* Whether this rank is the one that prints and writes. */
bool split_first(const struct split *s);
/* Whether row i is this rank's. */
bool split_mine(const struct split *s, int64_t i);
/* Whether the ranks cannot talk any more. */
bool split_lost(const struct split *s);
struct comm *split_comm(struct split *s);

/* The calls below are collective. */

/* Whether all have succeeded, else on every rank the failure of the lowest one that failed, with
 * its name unless all have failed alike. */
int split_agree(struct split *s, int rc, struct ckpt_err *err);
/* v[n] <- its sum over ranks. */
int split_sum(struct split *s, double *v, size_t n, struct ckpt_err *err);
/* The first rank's *item (NULL: there is no other) goes to the others, which own what they get.  Of
 * one of its descriptors ("-", /dev/fd/63) they get the same file. */
int split_item(struct split *s, char **item, struct ckpt_err *err);

#endif
