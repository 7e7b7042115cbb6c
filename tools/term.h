/*
 * term - properties of a terminal: its width, and whether it shows bold text.
 */
#ifndef CKPT_TOOLS_TERM_H
#define CKPT_TOOLS_TERM_H

#include <stdbool.h>

/* Columns to use: COLUMNS, else those of the terminal fd, else 80. */
int term_width(int fd);
/* The same; 0 when fd is not a terminal and nothing need be cut. */
int term_columns(int fd);
/* Whether fd is a terminal that may be drawn on: TERM is not "dumb". */
bool term_draws(int fd);
/* Whether it may also get bold text: NO_COLOR is not set. */
bool term_bold(int fd);

#endif
