/*
 * lines - a text file as a list of lines with random access: one scan finds where each starts.
 *
 * Memory is eight bytes a line and does not depend on the file's size otherwise.  A line ends
 * at "\n", a "\r" before it does not belong to it, the last line needs no end; a byte order
 * mark in front of the file is skipped.
 */
#ifndef CKPT_FORMATS_RECORDS_LINES_H
#define CKPT_FORMATS_RECORDS_LINES_H

#include "libckpt/base/buf.h"
#include "libckpt/file.h"

#define LINES_MAX_LINE ((uint64_t)64 << 20)     /* bytes; the string budget of robustness R5 */

struct lines;

/* takes file.  skip_blank: lines of white space alone are not listed. */
int lines_open(struct lines **out, struct ckpt_file *file, bool skip_blank,
               struct ckpt_err *err);
void lines_close(struct lines *l);
int64_t lines_count(const struct lines *l);
/* Line i into buf (cleared first), without its end.  Any thread. */
int lines_get(const struct lines *l, int64_t i, struct ckpt_buf *buf, struct ckpt_err *err);
/* The number of line i in the file, from 1: counted anew, for messages. */
int64_t lines_number(const struct lines *l, int64_t i);

#endif
