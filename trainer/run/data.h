/*
 * run/data - the data of a run: which records are meant, cut into training and held-out ones where
 * that is asked for, and the batches that come of them.
 */
#ifndef CKPT_TRAINER_RUN_DATA_H
#define CKPT_TRAINER_RUN_DATA_H

#include "trainer/data/loader.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

/* One data set, from files to batches. */
struct data_set {
    struct records     *records;
    struct data_source *source;
    struct loader      *loader;         /* NULL: there is no such data */
    bool                prepared;       /* of the folder that the cut has made */
};

struct run_data {
    const struct settings *settings;
    struct session        *session;
    const volatile int    *stop;
    struct data_set        train, eval;
    char                   scratch[4096];   /* cut data of a run that writes nothing,
                                           removed at the end; "" none */
};

/* Zeroed before.  Some ranks may fail where others do not: to be agreed on.  All given outlives
 * it. */
int run_data_open(struct run_data *r, const struct settings *s, struct session *session,
                  const volatile int *stop, struct ckpt_err *err);
void run_data_close(struct run_data *r);

#endif
