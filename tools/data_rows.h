/*
 * data_rows - the options of all tools that read records: how data is read, what a record is.
 */
#ifndef CKPT_TOOLS_DATA_ROWS_H
#define CKPT_TOOLS_DATA_ROWS_H

#include "tools/opt/opt.h"
#include "trainer/data/options.h"

/* s holds the defaults, and the values after parsing. */
struct opt_section data_rows(struct data_settings *s);

#endif
