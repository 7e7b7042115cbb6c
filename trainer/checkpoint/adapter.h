/*
 * adapter - the adapter that a run trains: its configuration from options or from a saved
 * adapter, its tensors read and written as PEFT's save_pretrained does.
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
/* Make adapter_config.json from the settings' options for that model. */
int adapter_config_of(json_t **out, const struct settings *s, const struct arch *arch,
                      struct ckpt_err *err);
/* Read adapter_config.json from a directory; its base_model_name_or_path names the base. */
int adapter_config_read(json_t **out, const char *dir, struct ckpt_err *err);
/* CKPT_EMISMATCH names the first key in which a checkpoint's adapter differs from the options. */
int adapter_same(const json_t *saved, const json_t *wanted, const char *path,
                 struct ckpt_err *err);
/* Warn where options name other modules than a saved adapter has, which goes on with its own.
 * all-linear says nothing: it is replaced by names when an adapter is saved. */
void adapter_tell_modules(const json_t *saved, const json_t *wanted, const struct settings *s,
                          const char *path);
/*
 * The directory of the base that an adapter's configuration names: the path as given, or relative
 * to the adapter's directory dir.  CKPT_ECONFIG when it names none.
 */
int adapter_base(char path[4096], const json_t *config, const char *dir, struct ckpt_err *err);
/*
 * Whether a saved adapter changes what no parameters are made for beside the model's, as stacks of
 * experts, biases of factors, the head or another number of tokens, *vocab: it is used by folding
 * it into the weights (session.folded).
 */
int adapter_must_fold(bool *must, int64_t *vocab, const json_t *config, const char *dir,
                      const struct arch *arch, struct ckpt_err *err);
/* True when path is a directory with an adapter_config.json. */
bool adapter_lies_at(const char *path);

/*
 * Initialise the factors: A as PEFT draws it, B zero, magnitudes the norms of the base's rows.
 * Call after the base is loaded; the result does not depend on the number of ranks.  Collective.
 */
int adapter_init(struct session *s, uint64_t seed, struct ckpt_err *err);
/* Load all trained tensors from a directory's adapter_model.safetensors or .bin.  Collective. */
int adapter_load(struct session *s, const char *dir, struct ckpt_err *err);

/* Write adapter_config.json, with resolved defaults spelt out, into a directory being built. */
int adapter_save_config(struct session *s, const char *base, struct ckpt_outdir *dir,
                        struct ckpt_err *err);

#endif
