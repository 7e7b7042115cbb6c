/*
 * sample_file - samples in a file, to be read in any order where they lie.
 *
 *   offset  bytes
 *        0      8   "CKPTIDS1"
 *        8     16   key: digest of what the samples depend on
 *       24      8   n: records
 *       32      8   the file's
 *       40     56   struct data_stats' seven numbers
 *       96    256   its first_bad, NUL-terminated
 *      352     16   XXH3-128 of the XXH3-128s of SAMPLE_FILE_BLOCK entries of the index each
 *      368     16   XXH3-128 of bytes [0, 368)
 *      384   16 n   index: u64 offset, u32 bytes, i32 length (-1: record without a sample)
 *                   samples, in any order
 *
 * A sample: the first 8 bytes of XXH3-128 of what follows; u32 flags, n, n_enc, first; i64 lead,
 * given; ids [n]; labels; enc [n_enc].  Ids are u16 or, with a flag, i32.  Labels are the ids,
 * with -100 before first; or one bit per id, set where the label is the id; or i32 each.  Numbers
 * are little-endian.  The index is verified when the file is opened, a sample when it is read.
 */
#ifndef CKPT_TRAINER_DATA_SAMPLE_FILE_H
#define CKPT_TRAINER_DATA_SAMPLE_FILE_H

#include "libckpt/base/buf.h"
#include "libckpt/file.h"
#include "trainer/data/stream.h"

#define SAMPLE_FILE_KEY   16
#define SAMPLE_FILE_HEAD  384
#define SAMPLE_FILE_ENTRY 16
#define SAMPLE_FILE_BLOCK 256

struct sample_file;

/* Takes file.  CKPT_EMISMATCH when it has another key or another number of records, CKPT_EFORMAT
 * when it is damaged. */
int sample_file_open(struct sample_file **out, struct ckpt_file *file,
                     const unsigned char key[SAMPLE_FILE_KEY], int64_t n, struct ckpt_err *err);
void sample_file_close(struct sample_file *f);
const struct data_stats *sample_file_stats(const struct sample_file *f);
/* For every record: sample_length, or -1.  length is [n]. */
int sample_file_lengths(const struct sample_file *f, int32_t *length, struct ckpt_err *err);
/* Sample i < n; *have is false when record i has none.  CKPT_EFORMAT when it is damaged.  Any
 * thread. */
int sample_file_get(const struct sample_file *f, int64_t i, struct sample *s, bool *have,
                    struct ckpt_err *err);

/* Append a sample in the file's layout. */
void sample_file_put(struct ckpt_buf *b, const struct sample *s);
void sample_file_entry(struct ckpt_buf *b, uint64_t offset, uint32_t bytes, int32_t length);
/* The first SAMPLE_FILE_HEAD bytes; index is the digest of the index. */
int sample_file_head(unsigned char head[SAMPLE_FILE_HEAD],
                     const unsigned char key[SAMPLE_FILE_KEY], int64_t n, uint64_t bytes,
                     const struct data_stats *stats, const unsigned char index[16],
                     struct ckpt_err *err);

#endif
