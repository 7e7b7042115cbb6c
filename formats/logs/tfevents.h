/*
 * tfevents - TensorBoard event files: scalars by tag, and what else was logged.
 *
 * Source: tensorboard 2.21 compat/proto/{event,summary,tensor}.proto, data_compat.py,
 * event_accumulator.py; TFRecord framing of tensorflow/core/lib/io/record_writer.cc:
 *
 *   u64 LE  length of the payload
 *   u32 LE  masked CRC-32C of these eight bytes
 *   ...     payload, an Event
 *   u32 LE  masked CRC-32C of the payload
 *
 * The first Event says file_version "brain.Event:N".  A number is a simple_value, or a tensor of
 * one element under the plugin "scalars"; that plugin is named with a tag's first value only.  A
 * SessionLog START drops values of its step and later, as TensorBoard does.
 */
#ifndef CKPT_FORMATS_LOGS_TFEVENTS_H
#define CKPT_FORMATS_LOGS_TFEVENTS_H

#include "formats/logs/run_log.h"

bool tfevents_is(const unsigned char *head, size_t len);
/* Fill a fresh log.  CKPT_EFORMAT when a checksum is wrong. */
int tfevents_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);

#endif
