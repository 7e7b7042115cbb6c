/*
 * train/names - other programs whose names and config files ckpt-train reads, and the options for
 * them.
 *
 * train/fields.c has the fields of transformers, TRL and PEFT, each with what becomes of it here;
 * train/dialects.c and train/axolotl.c have the config files of other trainers, train/deepspeed.c
 * DeepSpeed's.
 */
#ifndef CKPT_TOOLS_TRAIN_NAMES_H
#define CKPT_TOOLS_TRAIN_NAMES_H

#include "tools/opt/dialect.h"
#include "tools/opt/opt.h"
#include "trainer/run/settings.h"

struct train_names {
    bool        print_config, print_fields;
};

/* All of them, ended by NULL; that of the command line first. */
extern const struct opt_dialect *const train_dialects[];
/* transformers, TRL and PEFT: the names that other dialects lack. */
extern const struct opt_dialect train_fields;
/* What scripts for one task call their options. */
extern const struct opt_dialect train_scripts;
extern const struct opt_dialect train_trl, train_factory, train_axolotl, train_accelerate;
/* A ds_config.json. */
extern const struct opt_dialect train_deepspeed;
/* The members of lr_scheduler_kwargs and of fsdp_config. */
extern const struct opt_dialect train_scheduler, train_fsdp;

struct opt_section train_names_rows(struct train_names *n);
/* After parsing, before settings are checked: names become paths. */
int train_names_finish(const struct train_names *n, struct settings *s, struct cli *cli,
                       struct ckpt_err *err);
/* Tell what was accepted without effect. */
int train_names_tell(const struct cli *cli, const struct settings *s, struct ckpt_err *err);

/* What several dialects convert alike: bf16 "auto", a fraction of the data for evaluation, names of
 * modules. */
opt_convert train_names_bf16, train_names_eval_part, train_names_modules;
/* axolotl's kinds of records: a name, or the members of one's own. */
opt_convert train_names_record_type, train_names_custom_prompt;
/* Whether something was to be printed, which is done now. */
bool train_names_print(const struct train_names *n, const struct cli *cli);

/* Set the model, or data, that a name means: a path that is there, else one of the Hub. */
opt_convert train_names_model, train_names_data;
/* Set the data that names in LLaMA-Factory's dataset_info.json mean. */
opt_convert train_names_factory_data;

#endif
