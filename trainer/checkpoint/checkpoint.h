/*
 * checkpoint - save all of a run's state: checkpoint-<step>/ as HF Trainer names it.
 *
 * Stage 3: global_step<step>/ as DeepSpeed writes it, and `latest`. Stage 0: model.safetensors
 * and optimizer.pt.  An adapter has adapter_config.json and adapter_model.safetensors in place of
 * the model, in both stages, and its shards hold only the adapter.  Both: config.json, tokenizer
 * files, trainer_state.json, scheduler.pt, rng_state files, scaler.pt if the loss is scaled,
 * training_args.bin and MANIFEST.json with the digests of all others.  A checkpoint is built
 * aside and then renamed, so that under its name it is always complete.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_CHECKPOINT_H
#define CKPT_TRAINER_CHECKPOINT_CHECKPOINT_H

#include "trainer/run/state.h"
#include "trainer/optim/scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

struct side_files;

/* Input of a save besides the session. */
struct checkpoint {
    const struct settings  *settings;
    const struct schedule  *schedule;
    const struct run_state *state;
    struct scaler          *scaler;     /* loss scale; set when a run is resumed */
    const struct side_files *side;      /* side files of the trained model */
    const char             *base;       /* base that a saved adapter names; NULL: its own */
    bool                    replace;    /* the checkpoint of that name is damaged: replace it */
    unsigned char           data[16];   /* fingerprint of the training data */
};

/*
 * Every rank creates and removes a file in the output directory, so that a full, foreign or
 * absent disk is reported before the first step.  Collective; the error names rank and host.
 */
int checkpoint_try(const char *output_dir, struct session *s, struct ckpt_err *err);
/*
 * Save as output_dir/checkpoint-<global_step>.  Collective.  path gets the final name on every
 * rank.  On failure there is nothing under that name, or with c->replace the earlier checkpoint.
 */
int checkpoint_save(char path[4096], struct session *s, const struct checkpoint *c,
                    struct ckpt_err *err);
/*
 * Write a bare model directory at path, which must not exist: model.safetensors, config.json,
 * tokenizer files.  Collective.
 */
int checkpoint_save_bare(const char *path, struct session *s, struct ckpt_err *err);

#endif
