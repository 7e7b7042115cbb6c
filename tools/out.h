/*
 * out - rows and fields -> an aligned table for people, or one JSON document for programs, from
 * the same calls.  Text from files is escaped in the table and unchanged in the JSON; invalid
 * UTF-8 is escaped in both.  In JSON every field is a line, every row of a table is a line, and
 * numbers that are not finite are null.
 *
 * A field or column without a title is for programs only.
 */
#ifndef CKPT_TOOLS_OUT_H
#define CKPT_TOOLS_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/fail.h"

struct out;

/* On a terminal a table is fitted to its width: text is cut in its middle, or with OUT_WRAP
 * continued in the next line; columns that do not fit are named below the table.  In a pipe
 * everything is printed in full. */
enum out_align { OUT_LEFT, OUT_RIGHT, OUT_WRAP };

struct out_column {
    const char    *key;         /* JSON key, stable */
    const char    *title;       /* table heading, or NULL */
    enum out_align align;
};

/* Writes to stdout. */
int out_new(struct out **out, bool json, struct ckpt_err *err);
/* A field of the document: "format: safetensors". */
void out_str(struct out *o, const char *key, const char *title, const char *value);
void out_int(struct out *o, const char *key, const char *title, int64_t value);
void out_real(struct out *o, const char *key, const char *title, double value);
/* Bytes: a number in JSON, "1.5 GB" for people. */
void out_bytes(struct out *o, const char *key, const char *title, uint64_t value);
/* A JSON value; NULL is null for programs, and not printed for people. */
void out_json(struct out *o, const char *key, const char *title, const json_t *value);
/* A line for people. */
void out_line(struct out *o, const char *text);
/* A table: begin, then each row's cells in column order, then end. */
void out_table(struct out *o, const char *key, const struct out_column *column, size_t n);
void out_cell_str(struct out *o, const char *value);
void out_cell_int(struct out *o, int64_t value);
void out_cell_bytes(struct out *o, uint64_t value);
void out_cell_real(struct out *o, double value);
/* Text that is JSON already, like a shape. */
void out_cell_json(struct out *o, const char *json);
/* A JSON value in one line; NULL is null. */
void out_cell_value(struct out *o, const json_t *value);
/* Text for people, JSON for programs. */
void out_cell_pair(struct out *o, const char *text, const char *json);
/* Nothing: null. */
void out_cell_none(struct out *o);
/* A number, or nothing where it is NaN. */
void out_cell_known(struct out *o, double value);
void out_table_end(struct out *o);
/* Give the whole text in text (released by the caller) instead of printing it; takes o. */
int out_take(struct out *o, struct ckpt_buf *text, struct ckpt_err *err);
/* Print everything; takes o.  CKPT_EIO when stdout refuses. */
int out_end(struct out *o, struct ckpt_err *err);
/* Print nothing; takes o. */
void out_abort(struct out *o);

#endif
