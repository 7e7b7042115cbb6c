/*
 * push/card - results of evaluations in the README.md that is published; the source's own file
 * stays as it is.
 */
#ifndef CKPT_TOOLS_PUSH_CARD_H
#define CKPT_TOOLS_PUSH_CARD_H

#include <jansson.h>

#include "tools/push/plan.h"

struct push_card {
    const struct opt_list *path;        /* of the results */
    const char            *dataset;     /* that they are of; NULL: as they or the card say */
    json_t                *results;     /* what the files hold, in that order */
};

/*
 * Read results before there is anything to publish: of ckpt-eval --json, or eval_results.json,
 * all_results.json or trainer_state.json of a run.  CKPT_EFORMAT names a file that is none.
 * Release in any case.
 */
int push_card_open(struct push_card *c, const struct opt_list *path, const char *dataset,
                   struct ckpt_err *err);
void push_card_release(struct push_card *c);
/* Put them into the plan's card, which is made if it has none; nothing where there are none. */
int push_card(struct push_plan *p, const struct push_card *c, bool follow, struct ckpt_err *err);

#endif
