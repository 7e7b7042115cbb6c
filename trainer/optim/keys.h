/*
 * optim/keys - "key=value,key=value", or the same as a JSON object, into the fields of a struct:
 * HF's optim_args and lr_scheduler_kwargs.
 *
 * A table of rows says which keys there are; a caller names those of them that count now.  Python's
 * True, False and None are understood; None leaves a field as it was.
 */
#ifndef CKPT_TRAINER_OPTIM_KEYS_H
#define CKPT_TRAINER_OPTIM_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define KEYS_TEXT 80                    /* bytes of a value in words */

enum keys_kind {
    KEYS_REAL,                          /* double */
    KEYS_INT,                           /* int64_t */
    KEYS_BOOL,                          /* bool */
    KEYS_THREE,                         /* double[3]: "x:y:z", of JSON an array */
    KEYS_WORD                           /* int: the index of one of the row's words */
};

struct keys_row {
    const char    *name;
    enum keys_kind kind;
    size_t         at;                  /* offset of the field */
    double         min, max;            /* of numbers */
    const char    *words;               /* "linear cosine", space-separated */
};

struct keys_table {
    const char            *setting;     /* for messages: "optim_args" */
    const struct keys_row *row;
    size_t                 n;
};

/*
 * Set the fields of *to that text names.  allowed: names of rows that count, space-separated;
 * NULL: all.  of: who allows them, for a message ("sgd").  CKPT_ECONFIG names the key, or the value
 * and what is wanted.
 */
int keys_set(void *to, const struct keys_table *table, const char *text, const char *allowed,
             const char *of, struct ckpt_err *err);
/* Whether text sets that key. */
bool keys_has(const char *text, const char *key);
/* Whether one of the words, space-separated, is this one; its index, or -1. */
int keys_word(const char *words, const char *word, size_t n);
/* The i-th of space-separated words, of so many characters; 0: there are fewer.  words may be
 * NULL. */
size_t keys_word_at(const char **word, const char *words, size_t i);
/* A field in words; of a number that is NaN "none". */
void keys_text(char text[KEYS_TEXT], const void *from, const struct keys_row *r);

#endif
