/*
 * out_fit - a table's columns -> widths that a terminal has room for.
 */
#ifndef CKPT_TOOLS_OUT_FIT_H
#define CKPT_TOOLS_OUT_FIT_H

#include "tools/out.h"

#define OUT_FIT_COLUMNS 24
#define OUT_FIT_CUT     1024    /* room for a line of a cell */

struct out_fit {
    const struct out_column *column;
    size_t                   n_column;
    size_t                   width[OUT_FIT_COLUMNS];    /* wanted, then given */
    bool                     dropped[OUT_FIT_COLUMNS];
};

/* Narrow f's columns to a screen of so many columns; 0: as wide as they want. */
void out_fit_to(struct out_fit *f, size_t screen);
/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
size_t out_fit_columns(const char *s);
/* text itself where it fits, or its beginning and end in dst. */
const char *out_fit_cut(char dst[OUT_FIT_CUT], const char *text, size_t width);
/* What of text goes into a line, words whole where they can be; *rest is what does not. */
const char *out_fit_wrap(char dst[OUT_FIT_CUT], const char *text, size_t width, const char **rest);

#endif
