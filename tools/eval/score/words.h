/*
 * words - texts as sequences of numbers, and what two sequences share.
 *
 * White space and lower case are Python's: str.split, str.lower.
 */
#ifndef CKPT_TOOLS_EVAL_SCORE_WORDS_H
#define CKPT_TOOLS_EVAL_SCORE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/base/map.h"
#include "libckpt/mem.h"

/* A number for each different word, from 0. */
struct words_vocab {
    struct ckpt_map  *map;
    struct ckpt_arena arena;
};

struct words {
    int32_t *id;
    size_t   n, cap;
};

int words_vocab_new(struct words_vocab *v, struct ckpt_err *err);
void words_vocab_free(struct words_vocab *v);
void words_free(struct words *w);

/* Append a word. */
int words_add(struct words *w, const char *word, size_t len, struct words_vocab *v,
              struct ckpt_err *err);
/* Append the words between white space. */
int words_split(struct words *w, const char *text, size_t len, struct words_vocab *v,
                struct ckpt_err *err);
/* Append the characters that are no white space. */
int words_characters(struct words *w, const char *text, struct ckpt_err *err);
bool words_is_space(uint32_t cp);
/* text without white space at its ends; *len gets its bytes. */
const char *words_strip(const char *text, size_t *len);

/* How many runs of k there are. */
static inline size_t words_runs(const struct words *w, size_t k)
{
    return w->n >= k ? w->n - k + 1 : 0;
}
/*
 * How many runs of k words of a are in one of the n b's too: each as often as in a, and as in the b
 * that has it most often, at most.
 */
int words_common(double *out, const struct words *a, const struct words *b, size_t n, size_t k,
                 struct ckpt_err *err);

#endif
