/*
 * generate/space - which rows of a session's cache are in use: pieces of any length, first fit.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_SPACE_H
#define CKPT_TRAINER_MODEL_GENERATE_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct space_piece {
    int64_t first, n;
};

struct space {
    int64_t             size;           /* rows in all */
    int64_t             n;              /* pieces in use */
    struct space_piece *piece;          /* [n] by rising first; the caller's, with places for all
                                           pieces there may be */
};

/* The first row of the lowest gap of n rows, which are then in use; -1: there is none.  No rows
 * are a piece too, at 0, of which space_drop need not be told. */
int64_t space_take(struct space *s, int64_t n);
/* Free the piece that begins at first. */
void space_drop(struct space *s, int64_t first);

#endif
