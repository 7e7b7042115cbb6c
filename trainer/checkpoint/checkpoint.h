/*
 * checkpoint - save all of a run's state: checkpoint-<step>/ as HF Trainer names it.
 *
 * Stages 1 to 3: global_step<step>/ as DeepSpeed writes it at that stage, zero_to_fp32.py and
 * `latest`.  Stages 0 to 2: model.safetensors; 0: optimizer.pt.  An adapter has adapter_config.json
 * and adapter_model.safetensors in place of the model, in all stages, and its shards hold only the
 * adapter.  All: config.json, tokenizer files, trainer_state.json, scheduler.pt, rng_state files,
 * scaler.pt if the loss is scaled, training_args.bin and MANIFEST.json with the digests of all
 * others.  A checkpoint is built aside and then renamed, so that under its name it is always
 * complete.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_CHECKPOINT_H
#define CKPT_TRAINER_CHECKPOINT_CHECKPOINT_H

#include "trainer/checkpoint/folders.h"
#include "trainer/run/state.h"
#include "trainer/optim/groups.h"
#include "trainer/optim/table.h"
#include "trainer/optim/scaler.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

struct ckpt_outdir;
struct side_files;

/* Input of a save besides the session. */
struct checkpoint {
    const struct settings  *settings;
    struct schedule        *schedule;   /* its state is set when a run is resumed */
    const struct optim_groups *groups;
    const struct run_state *state;
    struct scaler          *scaler;     /* loss scale; set when a run is resumed */
    const struct side_files *side;      /* side files of the trained model */
    const struct folders   *folders;    /* where the ranks write */
    const char             *base;       /* base that a saved adapter names; NULL: its own */
    bool                    replace;    /* the checkpoint of that name is damaged: replace it */
    unsigned char           data[16];   /* fingerprint of the training data */
    char                    chat[33];   /* digest of the chat template (data_source_template) */
};

/*
 * Save as output_dir/checkpoint-<global_step>.  Collective.  path gets the final name on every
 * rank.  On failure there is nothing under that name, or with c->replace the earlier checkpoint.
 * Of several folders each gets its ranks' files and a manifest of them, and the names are given
 * once all folders are complete: a failure then may leave some without one.  state_dict gets on
 * rank 0 the name of the file beside it that the settings want (state_dict.h), or "".
 */
int checkpoint_save(char path[4096], char state_dict[4096], struct session *s,
                    const struct checkpoint *c, struct ckpt_err *err);
/*
 * Write a bare model directory at path, which must not exist: model.safetensors, config.json,
 * tokenizer files.  Collective.
 */
int checkpoint_save_bare(const char *path, struct session *s, struct ckpt_err *err);

/* -- parts of a save ------------------------------------------------------------------------- */

/* What describes the model: configuration, tokenizer, arguments, files of its base, card: its card
 * too.  Rank 0. */
int checkpoint_describe(struct session *s, const struct checkpoint *c, struct ckpt_outdir *dir,
                        bool card, struct ckpt_err *err);
/* model.safetensors, or an adapter's file, in the folder staging.  Collective. */
int checkpoint_save_model(struct session *s, const struct settings *set, const char *staging,
                          struct ckpt_err *err);

#endif
