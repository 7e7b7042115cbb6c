/*
 * plan - which samples make up micro-batch m of step s: the shuffle's rules over samples, or
 * over packed bins.  Used by the loader; one thread.
 */
#ifndef CKPT_TRAINER_DATA_PLAN_H
#define CKPT_TRAINER_DATA_PLAN_H

#include "trainer/data/loader.h"

struct data_plan {
    const struct data_source *source;
    struct loader_opts        o;
    struct shuffle           *order;    /* of samples */
    struct shuffle           *cut;      /* distributes bins; without packing the same as order */
    struct pack_plan          bins;
    int64_t                   epoch, first_step, steps;     /* the current epoch; its steps */
};

int data_plan_init(struct data_plan *p, const struct data_source *source,
                   const struct loader_opts *opts, struct ckpt_err *err);
void data_plan_release(struct data_plan *p);
/* Enter the epoch that contains step, walking from the current one or from the first. */
int data_plan_find(struct data_plan *p, int64_t step, struct ckpt_err *err);
/* Enter the next epoch. */
int data_plan_next(struct data_plan *p, struct ckpt_err *err);

/* A group of samples [0, n): those of a bin, or a single sample.  again: how many passes over the
 * epoch's order came before it; not 0 where micro-batches are completed from its start. */
struct data_group { const int64_t *item; int64_t n, again; };
/* Group k of the slice, 0 <= k < slice.n. */
struct data_group data_plan_group(struct data_plan *p, const struct shuffle_slice *slice,
                                  int64_t k);

#endif
