/*
 * wandb - the record files of Weights & Biases runs (run-ID.wandb): history as scalars by key,
 * configuration, summary, and facts about the run.
 *
 * Source: wandb 0.31 proto/wandb_internal.proto, core/pkg/leveldb/record.go.  The file is blocks
 * of 32,768 bytes; the first begins with 7 bytes ":W&B", u16 LE 0xBEE1, version 0.  Then chunks:
 *
 *   u32 LE  CRC-32 (zlib's) of the type and the data
 *   u16 LE  length of the data
 *   u8      type: 1 a record in one piece, 2 its first part, 3 a middle one, 4 its last
 *   ...     data
 *
 * Where fewer than 7 bytes are left in a block the next chunk begins the next block.  A record is
 * a protobuf Record.  Values are JSON texts; nested keys are joined with ".".
 */
#ifndef CKPT_FORMATS_LOGS_WANDB_H
#define CKPT_FORMATS_LOGS_WANDB_H

#include "formats/logs/run_log.h"

bool wandb_is(const unsigned char *head, size_t len);
/* Fill a fresh log.  CKPT_EFORMAT when a checksum is wrong. */
int wandb_read(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err);

#endif
