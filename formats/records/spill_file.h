/*
 * records/spill_file - texts that were expensive to make, kept packed in a file without a name.
 *
 * Lines are put in order into parts and read back in any order.  The file lies in $TMPDIR, or
 * /var/tmp (libckpt/io/spool.h), and is gone when the file is closed or the process dies; it is
 * about as large as the lines packed with LZ4, and memory is 24 bytes a block of some 16 KiB.
 */
#ifndef CKPT_FORMATS_RECORDS_SPILL_FILE_H
#define CKPT_FORMATS_RECORDS_SPILL_FILE_H

#include "libckpt/base/buf.h"

struct spill_file;

/* A run of lines; zeroed before its first.  One thread puts into a part; any thread gets from
 * it what was put before it was told. */
struct spill_part {
    struct spill_block *block;
    size_t              n, cap;
    int64_t             lines;
    struct ckpt_buf     filling;        /* lines that are in no block yet */
    int64_t             filling_first;
};

int spill_file_open(struct spill_file **out, struct ckpt_err *err);
void spill_file_close(struct spill_file *s);
/* Append a line, without an end and with none inside.  CKPT_EIO when the disk is full. */
int spill_file_put(struct spill_file *s, struct spill_part *p, const void *line, size_t len,
                   struct ckpt_err *err);
/* After the last line: all of them can be read. */
int spill_file_flush(struct spill_file *s, struct spill_part *p, struct ckpt_err *err);
/* Line i < p->lines into buf (cleared first).  After the flush; any thread. */
int spill_file_get(struct spill_file *s, const struct spill_part *p, int64_t i,
                   struct ckpt_buf *buf, struct ckpt_err *err);
void spill_file_part_release(struct spill_part *p);

#endif
