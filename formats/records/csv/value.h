/*
 * csv/value - what the text of a CSV field is: nothing, a number, true or false, as pandas' C
 * parser (3.0) tells them.
 */
#ifndef CKPT_FORMATS_RECORDS_CSV_VALUE_H
#define CKPT_FORMATS_RECORDS_CSV_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nothing, and unless literal one of pandas' words for it. */
bool csv_is_null(const char *s, size_t n, bool literal);
/* Numbers may stand between blanks. */
bool csv_as_int(const char *s, size_t n, int64_t *out);
/* Infinite only where the text says so.  Whole numbers that no int64 holds are none: they would
 * lose digits. */
bool csv_as_real(const char *s, size_t n, double *out);
/* 1, 0, or -1 for neither. */
int csv_as_bool(const char *s, size_t n);

#endif
