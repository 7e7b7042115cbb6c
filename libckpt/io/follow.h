/*
 * follow - the SHA-256 of a file while it is written: a thread reads behind the writers, so that
 * a large file is digested by the time its last byte is there.
 *
 * Writers say which ranges they have written, in any order; the thread goes on as far as no byte
 * is missing.  A range that was already read and is written again spoils the digest: there is
 * none then, and whoever wants it reads the file.  A failure of the thread is none of the file's.
 *
 * A file of a directory (ckpt_outdir) leaves its digest beside it when it is committed, under the
 * hidden name ".<name>.sha256", for whichever process completes the directory and takes it.
 */
#ifndef CKPT_LIBCKPT_IO_FOLLOW_H
#define CKPT_LIBCKPT_IO_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/commit.h"
#include "libckpt/digest.h"

#define FOLLOW_LEAST ((uint64_t)64 << 20)       /* smallest file, in bytes, for which this pays */

/* From now on files of the directory that reserve `least` bytes or more are followed; those that
 * joined it say so themselves. */
void follow_outdir(struct ckpt_outdir *dir, uint64_t least);
/* A flag of ckpt_out_create: the same for one file, of FOLLOW_LEAST bytes or more. */
#define FOLLOW_FILE (1u << 17)
/*
 * Take the digest that a committed file of a directory left, and remove it from there.  name: of
 * the file, below the directory dir_path; size: the file's.  False when there is none.
 */
bool follow_take(char hex[CKPT_SHA256_HEX], const char *dir_path, const char *name,
                 uint64_t size);

/* -- for commit.c ---------------------------------------------------------------------------- */

struct follow;

/* Follow the file open for reading as fd (borrowed), of exactly `size` bytes; NULL: it cannot
 * be. */
struct follow *follow_begin(int fd, uint64_t size);
/* Bytes [at, at + n) are in the file.  Any thread; f may be NULL. */
void follow_wrote(struct follow *f, uint64_t at, uint64_t n);
/* Wait for the thread, and release f.  True: hex is the digest of the whole file. */
bool follow_end(struct follow *f, char hex[CKPT_SHA256_HEX]);
/* End the thread, and release f; NULL accepted. */
void follow_abort(struct follow *f);
/* Leave the digest of the file `name` of dir_fd for follow_take. */
void follow_leave(int dir_fd, const char *name, uint64_t size, const char *hex);

#endif
