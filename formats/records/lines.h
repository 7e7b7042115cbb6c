/*
 * lines - a text file as a list of lines with random access: one scan finds where each starts.
 *
 * Memory is eight bytes a line and does not depend on the file's size otherwise.  A line ends
 * at "\n", a "\r" before it does not belong to it, the last line needs no end; a byte order
 * mark in front of the file is skipped.
 */
#ifndef CKPT_FORMATS_RECORDS_LINES_H
#define CKPT_FORMATS_RECORDS_LINES_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/file.h"

#define LINES_MAX_LINE ((uint64_t)64 << 20)     /* bytes; the string budget of robustness R5 */

struct lines {
    struct ckpt_file *file;
    uint64_t         *start;        /* [n] offset of each line's first byte */
    int64_t           n;
    size_t            cap;
};

/* What is the same for each kind of records that are lines; self is a struct lines. */

/* skip_blank: lines of white space alone are not listed. */
int lines_open(void *self, struct ckpt_file *file, bool skip_blank, struct ckpt_err *err);
int64_t lines_count(void *self);
/* Line i, without its end, as what parse makes of it; errors name the line.  Any thread. */
int lines_get(void *self, int64_t i, json_t **out,
              int (*parse)(json_t **out, const char *line, size_t n, struct ckpt_err *err),
              struct ckpt_err *err);
void lines_close(void *self);

#endif
