/*
 * term - what a terminal can show: its width, and whether it wants bold words.
 */
#ifndef CKPT_TOOLS_TERM_H
#define CKPT_TOOLS_TERM_H

#include <stdbool.h>

/* Columns to write into: COLUMNS, else those of the terminal fd, else 80. */
int term_width(int fd);
/* The same; 0 when fd is no terminal, and nothing is to be cut. */
int term_columns(int fd);
/* Whether fd is a terminal that may be drawn on: TERM is not "dumb". */
bool term_draws(int fd);
/* Whether it may be given bold text too: NO_COLOR is not set. */
bool term_bold(int fd);

#endif
