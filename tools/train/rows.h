/*
 * train/rows - the options of ckpt-train that are settings of the run, and which of them depend on
 * each other.
 *
 * Options of the process - how ranks start, who hears of the run, other programs' names - are rows
 * of the rooms that act on them; those of records are shared with ckpt-eval (tools/data_rows.h).
 */
#ifndef CKPT_TOOLS_TRAIN_ROWS_H
#define CKPT_TOOLS_TRAIN_ROWS_H

#include "tools/opt/opt.h"
#include "trainer/run/settings.h"

/* Which options depend on each other, also those of other rooms. */
extern const struct opt_rule train_rows_rule[];
extern const size_t train_rows_n_rules;

/* Model, adapter and which data; data_rows follow.  s holds the defaults, and the values after
 * parsing. */
struct opt_section train_rows_model(struct settings *s);
/* The rest of the data, training, telling, saving, ranks and devices. */
struct opt_section train_rows_run(struct settings *s);

#endif
