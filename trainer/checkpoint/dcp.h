/*
 * checkpoint/dcp - weights and the optimizer's states as torch.distributed.checkpoint, each rank's
 * part in its own files.
 *
 *   pytorch_model_fsdp_0/   {"model": {name: weight}}, float32; of an adapter its tensors alone, as
 *                           PEFT names them
 *   optimizer_0/            {"optimizer": {"state": {name: {step, exp_avg, exp_avg_sq}},
 *                           "param_groups": [...]}}, float32, under names of the (wrapped) model
 *
 * These are the folders of HF Trainer and accelerate with FSDP's SHARDED_STATE_DICT.  Source:
 * accelerate 1.15 utils/fsdp_utils.py, transformers 5.23 trainer.py.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_DCP_H
#define CKPT_TRAINER_CHECKPOINT_DCP_H

#include "trainer/checkpoint/checkpoint.h"

#define DCP_MODEL_FOLDER "pytorch_model_fsdp_0"
#define DCP_OPTIM_FOLDER "optimizer_0"

/* Write this rank's files; index: both .metadata too.  At stage 0 one rank has everything.  Not
 * collective. */
int dcp_save(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir, bool index,
             struct ckpt_err *err);

#endif
