/*
 * data_rows - the options that say how data is read and what a record is: those of all tools that
 * take records.
 */
#ifndef CKPT_TOOLS_DATA_ROWS_H
#define CKPT_TOOLS_DATA_ROWS_H

#include "tools/opt/opt.h"
#include "trainer/data/options.h"

#define DATA_ROWS 20

struct data_want {
    struct data_settings s;             /* filled with defaults before data_rows */
    const char          *delimiter;     /* as it is spelt */
};

/* Fills at most DATA_ROWS rows, tells how many. */
size_t data_rows(struct opt *row, struct data_want *w);
/* After parsing: spelt values into settings. */
int data_rows_take(struct data_want *w, struct ckpt_err *err);

#endif
