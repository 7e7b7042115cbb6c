/*
 * eval/opened - what is open while one model is evaluated: its session, and the data.
 *
 * Abbreviations: eval.
 */
#ifndef CKPT_TOOLS_EVAL_OPENED_H
#define CKPT_TOOLS_EVAL_OPENED_H

#include "tools/eval/eval.h"
#include "tools/eval/tasks/choices.h"
#include "trainer/data/loader.h"
#include "trainer/run/session.h"

struct eval_opened {
    const struct eval_want *w;
    struct session          s;
    struct records         *records;
    struct data_source     *source;
    struct loader          *loader;
    struct choices         *choices;    /* of --task; there is no source then */
};

/*
 * Open the model at the path `model`, with adapter (or NULL) applied, and the data that e->w
 * names, if any; the loader unless rows are scored in windows.  e has only w set.  Close e either
 * way, with the code and record that the work ended with.
 */
int eval_open(struct eval_opened *e, const char *model, const char *adapter, struct ckpt_err *err);
void eval_close(struct eval_opened *e, int rc, const struct ckpt_err *err);

#endif
