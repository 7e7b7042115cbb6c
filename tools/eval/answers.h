/*
 * eval/answers - what one system answered to each row, and the references to compare it with.
 */
#ifndef CKPT_TOOLS_EVAL_ANSWERS_H
#define CKPT_TOOLS_EVAL_ANSWERS_H

#include <jansson.h>

#include "libckpt/mem.h"
#include "tools/eval/bertscore.h"
#include "tools/eval/score/score.h"

/* A zeroed struct has no row. */
struct answers {
    struct score_row *row;      /* [n] */
    size_t            n;
    struct ckpt_arena arena;    /* holds them and their texts */
};

/* Memory for n rows, which are then empty. */
int answers_init(struct answers *a, size_t n, struct ckpt_err *err);
void answers_release(struct answers *a);
/* A text, or a number as text, in the arena; NULL where v is neither, or out of memory. */
const char *answers_text(struct answers *a, const json_t *v);
/*
 * References of row i: a text, a number, a list of them, or an object whose member "text" is one
 * of these, as SQuAD has it.  CKPT_EFORMAT where there is none.
 */
int answers_references(struct answers *a, size_t i, const json_t *v, struct ckpt_err *err);
/* The field answers of a record of data where it is a list of some, with or without SQuAD's "text"
 * around it; NULL: it names none, so that its completion is the one answer. */
const json_t *answers_named(const json_t *record);
/* Two systems answer the same rows: CKPT_EFORMAT names the first other one of b. */
int answers_same(const struct answers *a, const struct answers *b, struct ckpt_err *err);
/* A metric of score.h, or bertscore as `encoder` says. */
int answers_score(struct score **out, const char *metric, const struct answers *a,
                  const struct bertscore_want *encoder, struct ckpt_err *err);
/*
 * Write path, a line of JSON a row: prompt (unless prompts[n] is NULL), prediction and
 * references; - is standard output.  An existing file is replaced only with overwrite (else
 * CKPT_ECREATE).
 */
int answers_write(const struct answers *a, const char *const *prompts, const char *path,
                  bool overwrite, struct ckpt_err *err);

#endif
