/*
 * eval/gate - bounds on figures: a model that is beyond one does not go on to the next tool.
 */
#ifndef CKPT_TOOLS_EVAL_GATE_H
#define CKPT_TOOLS_EVAL_GATE_H

#include "tools/eval/figures.h"
#include "tools/opt/opt.h"

struct gate_want {
    struct opt_list above, below;       /* "loss=3.2": the largest and the smallest value allowed */
    struct opt_list worse;              /* "1%", "0.1", "f1=1%": how much worse than the base a
                                           figure, or each of them, may be */
};

/* Before any work: CKPT_EUSAGE for a bound that is not written so. */
int gate_check(const struct gate_want *w, struct ckpt_err *err);
/* Before any work: CKPT_EUSAGE for a bound on a figure that none of these metrics has. */
int gate_check_figures(const struct gate_want *w, const struct opt_list *metrics,
                       struct ckpt_err *err);
/*
 * CKPT_ENO, with a sentence that begins with who and names every figure beyond its bound; a figure
 * that is not a number is beyond any.  CKPT_EUSAGE for a bound on a figure that is not in f.
 */
int gate_pass(const struct gate_want *w, const struct figures *f, const char *who,
              struct ckpt_err *err);

#endif
