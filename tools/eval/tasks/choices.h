/*
 * tasks/choices - questions with several answers: the likelihoods that a model gives the answers.
 *
 * Source: lm-evaluation-harness 0.4.13, api/model.py and models/huggingface.py: context and
 * continuation are tokenised together, and the tokens after as many as the context alone has are
 * the continuation's; an empty context is bos, else eos; what is too long loses its beginning; the
 * first of equal likelihoods is chosen.
 */
#ifndef CKPT_TOOLS_EVAL_TASKS_CHOICES_H
#define CKPT_TOOLS_EVAL_TASKS_CHOICES_H

#include "formats/records/record.h"
#include "tools/eval/answers.h"
#include "tools/eval/split/split.h"
#include "tools/eval/tasks/choice_row.h"
#include "trainer/run/session.h"

struct choices;

struct choices_opts {
    const char     *prompt_template;    /* of the context, or NULL */
    struct opt_list words;              /* the choices of every record; none: the record's own */
    int64_t         max_length;         /* tokens; 0: the model's */
    int64_t         batch;              /* choices in a pass */
    struct split   *split;              /* ranks that share the passes, or NULL */
};

/* Read and tokenise all records; neither is kept. */
int choices_open(struct choices **out, struct records *records, const struct session *s,
                 const struct choices_opts *o, struct ckpt_err *err);
void choices_close(struct choices *c);
/* The largest batch, for session_plan. */
struct model_opts choices_plan(const struct choices *c);
/*
 * Compute the likelihoods; collective.  CKPT_EFORMAT where one is not a number.
 */
int choices_run(struct choices *c, struct session *s, struct ckpt_err *err);
/* The metric choices of all rows. */
int choices_score(struct score **out, const struct choices *c, struct ckpt_err *err);
/* Fill a with the texts of the chosen and of the right ones, and prompts[n] with contexts; the
 * choices outlive them. */
int choices_answers(struct answers *a, const char ***prompts, const struct choices *c,
                    struct ckpt_err *err);

#endif
