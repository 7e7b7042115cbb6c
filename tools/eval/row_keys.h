/*
 * eval/row_keys - which row of predictions is which: the index or id of each, where all have one.
 *
 * Rows that are written as they finish are in no order, so rows of two systems are paired by
 * these, and only without them by their places.
 */
#ifndef CKPT_TOOLS_EVAL_ROW_KEYS_H
#define CKPT_TOOLS_EVAL_ROW_KEYS_H

#include "tools/eval/answers.h"

/* A zeroed struct has no row. */
struct row_keys {
    const char     **key;               /* [n] in the arena of the answers; NULL: it has none */
    size_t           n, n_keys;
    const char      *field;             /* of all of them: "index" or "id" */
    struct ckpt_map *map;               /* key -> first row with it; NULL before row_keys_end */
    size_t           n_again, again;    /* rows whose key is an earlier row's; the first of them */
};

int row_keys_init(struct row_keys *k, struct answers *a, struct ckpt_err *err);
void row_keys_release(struct row_keys *k);
/* Row i of a is this record. */
int row_keys_note(struct row_keys *k, struct answers *a, size_t i, const json_t *record,
                  struct ckpt_err *err);
/* All rows are noted. */
int row_keys_end(struct row_keys *k, struct ckpt_err *err);
/*
 * Put the rows of b in the order of a's, if in each every row has a key of its own and both are of
 * the same field; else leave them as they are.  CKPT_EFORMAT where b lacks a row of a.
 */
int row_keys_pair(struct answers *b, const struct row_keys *of_b, const struct row_keys *of_a,
                  struct ckpt_err *err);

#endif
