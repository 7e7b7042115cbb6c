/*
 * checkpoint/factors - Adafactor's numbers of rows and columns in optimizer.pt.
 *
 * Every rank has all of them.  Where the optimizer is sharded the file lies beside the ranks'
 * shards, which have true weights and, with beta1, exp_avg; else exp_avg is in it too.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_FACTORS_H
#define CKPT_TRAINER_CHECKPOINT_FACTORS_H

#include "formats/hf/trainer_files.h"
#include "libckpt/commit.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/optim/order.h"

/* Write dir's optimizer.pt; reader: of the order's slots, for exp_avg (NULL: not in this file). */
int factors_save(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                 const struct optim_order *order, const struct adamw_reader *reader,
                 struct ckpt_err *err);
/* Read them from a file that we or transformers' Adafactor (4 or 5) wrote; prove: verify its
 * checksums. */
int factors_load(struct session *s, const char *file, bool prove, struct ckpt_err *err);

#endif
