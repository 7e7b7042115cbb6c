/*
 * out_fit - column widths of a table that fit a terminal.
 */
#ifndef CKPT_TOOLS_OUT_FIT_H
#define CKPT_TOOLS_OUT_FIT_H

#include "tools/out.h"

#define OUT_FIT_COLUMNS 24
#define OUT_FIT_CUT     1024    /* buffer size of a cell's line */

struct out_fit {
    const struct out_column *column;
    size_t                   n_column;
    size_t                   width[OUT_FIT_COLUMNS];    /* first the wanted width, then the width
                                                           given */
    bool                     dropped[OUT_FIT_COLUMNS];
};

/* Narrow f's columns to a screen of that many columns; 0: no limit. */
void out_fit_to(struct out_fit *f, size_t screen);
/* Characters, not bytes: continuation bytes of UTF-8 count nothing. */
size_t out_fit_columns(const char *s);
/* text itself if it fits, or its beginning and end in dst. */
const char *out_fit_cut(char dst[OUT_FIT_CUT], const char *text, size_t width);
/* The part of text that fits into a line, with whole words if possible; *rest is the remainder. */
const char *out_fit_wrap(char dst[OUT_FIT_CUT], const char *text, size_t width, const char **rest);

#endif
