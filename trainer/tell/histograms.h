/*
 * run/histograms - the distribution of each trained parameter and of its gradient, for the reports.
 *
 * The tensors are gathered on rank 0 as a save gathers them, in pieces or layer by layer, and only
 * counted there: memory is that of one layer, and of one histogram.
 */
#ifndef CKPT_TRAINER_TELL_HISTOGRAMS_H
#define CKPT_TRAINER_TELL_HISTOGRAMS_H

#include "formats/logs/histogram.h"
#include "trainer/shard/zero.h"

/* Called on rank 0 for each tensor: "gradients/NAME", "parameters/NAME". */
typedef void histograms_fn(void *ctx, const char *tag, const struct histogram *h);

/* Collective, in the midst of step number, between the backward pass and the update; scale is the
 * loss's. */
int histograms_gather(struct zero *zero, struct comm *comm, double scale, histograms_fn *put,
                      void *ctx, struct ckpt_err *err);

#endif
