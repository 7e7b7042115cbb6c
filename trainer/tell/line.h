/*
 * line - a row of numbers as a line for people or for grep.
 *
 * kv:    step=10 epoch=0.5 loss=2.34512 grad_norm=1.203 learning_rate=5e-05 ...
 * dict:  {'loss': '2.345', 'grad_norm': '1.203', 'learning_rate': '5e-05', 'epoch': '0.5'}, as
 *        transformers 5.23 prints its logs (trainer_callback.py, PrinterCallback)
 */
#ifndef CKPT_TRAINER_TELL_LINE_H
#define CKPT_TRAINER_TELL_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether text has the row in that format (kv, dict); false for any other: nothing is written.
 * null is nan, as numbers that are not finite are in JSON. */
bool line_of_row(char *text, size_t size, const char *format, const json_t *row);

#endif
