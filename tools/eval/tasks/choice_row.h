/*
 * tasks/choice_row - a record with a question and several answers -> a context and
 * continuations.
 *
 *   ctx or ctx_a and ctx_b, endings, label      HellaSwag
 *   question, choices {text, label}, answerKey  ARC
 *   question, choices, answer; [subject]        MMLU: the continuations are letters
 *   prompt, choices, label or answer            as it is
 *
 * Source: tasks hellaswag, arc_easy and mmlu of lm-evaluation-harness 0.4.13, without examples.
 * The right one is a number from 0, or its letter or text where it is a string.
 */
#ifndef CKPT_TOOLS_EVAL_TASKS_CHOICE_ROW_H
#define CKPT_TOOLS_EVAL_TASKS_CHOICE_ROW_H

#include <jansson.h>

#include "libckpt/mem.h"
#include "tools/opt/opt.h"
#include "trainer/data/template.h"

struct choice_row {
    const char        *context;         /* without white space at its end */
    const char *const *choice;          /* [n] */
    const char *const *continuation;    /* [n] what follows the context: a space, or the white
                                           space that the context ended with, and the choice */
    size_t             n, right;
};

struct choice_opts {
    const struct template *prompt;      /* of the context; NULL: as the fields say */
    struct opt_list        words;       /* the choices of every record, with its field label; none:
                                           the record's own */
};

/* Texts are in the arena.  CKPT_EFORMAT names what a record lacks. */
int choice_row_read(struct choice_row *out, const json_t *record, const struct choice_opts *o,
                    struct ckpt_arena *a, struct ckpt_err *err);

#endif
