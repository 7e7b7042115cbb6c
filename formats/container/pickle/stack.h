/*
 * pickle/stack - the stack, the marks and the memo of a walk.  No pickle can make it fail:
 * popping an empty stack gives an unknown value, and the first such fault is recorded.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_STACK_H
#define CKPT_FORMATS_CONTAINER_PICKLE_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

/* MEMBER: attribute of a class, by getattr. */
enum item_kind { OTHER, TEXT, BYTES, INT, NAME, TUPLE, DICT, MADE, MEMBER };

struct fields;

struct item {
    enum item_kind kind;
    size_t    n;                /* bytes of a text, items of a tuple, the name for NAME and MADE */
    union {
        const char    *p;
        int64_t        i;
        struct item   *item;
        struct fields *f;       /* DICT, MADE; NULL when not needed (pickle/fields.h) */
    } u;
};

struct memo_slot;

/* Zeroed is empty. */
struct pickle_stack {
    struct item      *item;
    size_t            n, cap;
    size_t           *mark;             /* heights */
    size_t            n_mark, cap_mark;
    struct memo_slot *memo;             /* open addressing */
    size_t            n_memo, cap_memo;
    const char       *broken;  /* the first reason why a loader would stop; cleared by its reader */
};

/* CKPT_ELIMIT, CKPT_ENOMEM; also for the two below. */
int stack_push(struct pickle_stack *s, struct item item, struct ckpt_err *err);
int stack_mark(struct pickle_stack *s, struct ckpt_err *err);
/* Memoise the topmost item. */
int stack_keep(struct pickle_stack *s, uint64_t index, struct ckpt_err *err);
/* The topmost item; NULL when there is none above the last mark. */
struct item *stack_top(struct pickle_stack *s);
struct item stack_pop(struct pickle_stack *s);
/* Pop the items since the last mark, and the mark: returns their number; they are at item[*from]
 * on until the next push. */
size_t stack_pop_mark(struct pickle_stack *s, size_t *from);
/* POP: remove an item, or a mark if it is topmost. */
void stack_drop(struct pickle_stack *s);
/* The memoised item, or OTHER. */
struct item stack_recall(struct pickle_stack *s, uint64_t index);
void stack_release(struct pickle_stack *s);

#endif
