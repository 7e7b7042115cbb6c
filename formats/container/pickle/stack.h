/*
 * pickle/stack - the stack, the marks and the memo of a walk, which never fail for what a pickle
 * does: an empty stack gives values that are unknown, and the first such thing is kept.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_STACK_H
#define CKPT_FORMATS_CONTAINER_PICKLE_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

/* MEMBER: of a class, by getattr. */
enum item_kind { OTHER, TEXT, BYTES, INT, NAME, TUPLE, DICT, MADE, MEMBER };

struct fields;

struct item {
    enum item_kind kind;
    size_t    n;                /* bytes of a text, items of a tuple, the name of NAME and MADE */
    union {
        const char    *p;
        int64_t        i;
        struct item   *item;
        struct fields *f;       /* DICT, MADE; NULL when nothing asks (pickle/fields.h) */
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
    const char       *broken;           /* what a loader would stop at; cleared by who reads it */
};

/* CKPT_ELIMIT, CKPT_ENOMEM: these and the two below. */
int stack_push(struct pickle_stack *s, struct item item, struct ckpt_err *err);
int stack_mark(struct pickle_stack *s, struct ckpt_err *err);
/* Remember the topmost item. */
int stack_keep(struct pickle_stack *s, uint64_t index, struct ckpt_err *err);
/* NULL when there is none above the last mark. */
struct item *stack_top(struct pickle_stack *s);
struct item stack_pop(struct pickle_stack *s);
/* Items since the last mark, which is taken away: so many from item[*from] on, until a push. */
size_t stack_pop_mark(struct pickle_stack *s, size_t *from);
/* POP: an item, or the mark above all. */
void stack_drop(struct pickle_stack *s);
/* What is remembered, or OTHER. */
struct item stack_recall(struct pickle_stack *s, uint64_t index);
void stack_release(struct pickle_stack *s);

#endif
