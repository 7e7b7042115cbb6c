/*
 * adapter - the adapter that a run trains: its configuration from options or from a saved one,
 * its tensors in and out, as PEFT's save_pretrained has them.
 *
 * Source: peft 0.21 config.py, utils/constants.py (targets by family), utils/save_and_load.py.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_ADAPTER_H
#define CKPT_TRAINER_CHECKPOINT_ADAPTER_H

#include "libckpt/commit.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

/* True when the settings ask for an adapter. */
bool adapter_wanted(const struct settings *s);
/* adapter_config.json out of the settings' options for that model. */
int adapter_config_of(json_t **out, const struct settings *s, const struct arch *arch,
                      struct ckpt_err *err);
/* The same as a directory has it; the base it names is the JSON's base_model_name_or_path. */
int adapter_config_read(json_t **out, const char *dir, struct ckpt_err *err);
/* CKPT_EMISMATCH names what a checkpoint's adapter has otherwise than the options say. */
int adapter_same(const json_t *saved, const json_t *wanted, const char *path,
                 struct ckpt_err *err);
/*
 * The directory of the base an adapter's configuration names: as it says, or seen from the
 * adapter's directory dir.  CKPT_ECONFIG when it names none.
 */
int adapter_base(char path[4096], const json_t *config, const char *dir, struct ckpt_err *err);
/* True when path is a directory with an adapter_config.json. */
bool adapter_lies_at(const char *path);

/*
 * Fresh factors: A as PEFT draws it, B zero, magnitudes the lengths of the base's rows.  Once the
 * base is loaded; the same whatever the number of ranks.  Collective.
 */
int adapter_init(struct session *s, uint64_t seed, struct ckpt_err *err);
/* Everything trained, from a directory's adapter_model.safetensors or .bin.  Collective. */
int adapter_load(struct session *s, const char *dir, struct ckpt_err *err);

/* adapter_config.json into a directory in the making, with what was changed written out. */
int adapter_save_config(struct session *s, const char *base, struct ckpt_outdir *dir,
                        struct ckpt_err *err);

#endif
