/*
 * guard - checksums of a file's ranges, proved when the first byte of a range is asked for.
 *
 * The first reader of a range proves all of it (or has it proved, see guard_proofs_new); other
 * readers of that range do not wait.  So bytes are not known to be right when they are read, but
 * the first reader of their range fails before it finishes: publish the work of many readers only
 * after all of them have succeeded.
 */
#ifndef CKPT_LIBCKPT_IO_GUARD_H
#define CKPT_LIBCKPT_IO_GUARD_H

#include "libckpt/file.h"

/* A range of a file whose CRC-32 is known. */
struct ckpt_sum {
    const char *name;           /* for messages */
    uint64_t    offset, size;
    uint32_t    crc;
};
/*
 * From now on the first read of each of these ranges proves all of that range, once:
 * CKPT_EFORMAT "digest".  The ranges are sorted by offset, do not overlap and are borrowed until
 * the file is closed.  One call a file; windows made of the file are not guarded.
 */
int ckpt_guard_file(struct ckpt_file *file, const struct ckpt_sum *sum, size_t n,
                    struct ckpt_err *err);
/* Prove what a read there would prove, for callers that move the bytes in another way. */
int ckpt_guard_prove(const struct ckpt_file *file, uint64_t offset, uint64_t n,
                    struct ckpt_err *err);

struct guard;

/* sum: sorted by offset, apart, borrowed until guard_free. */
int guard_new(struct guard **out, const struct ckpt_sum *sum, size_t n, struct ckpt_err *err);
void guard_free(struct guard *g);                       /* NULL accepted */
/* Prove the ranges that [offset, offset + n) touches, unless another thread has begun to.  Any
 * thread. */
int guard_prove(struct guard *g, const struct ckpt_file *file, uint64_t offset, uint64_t n,
                struct ckpt_err *err);

/*
 * Proofs beside the reading: a thread that uses them hands the ranges it touches to threads of
 * theirs, so that a copy's disk is not idle meanwhile.  The file must stay open until
 * guard_proofs_end.
 */
struct proofs;

int guard_proofs_new(struct proofs **out, size_t threads, struct ckpt_err *err);
/* From now on the ranges that this thread touches go to p; NULL: it proves them itself again. */
void guard_proofs_use(struct proofs *p);
/* Whether a wrong checksum was found already. */
bool guard_proofs_failed(struct proofs *p);
/* Wait until all are proved; the error is the first wrong one.  Takes p; NULL accepted. */
int guard_proofs_end(struct proofs *p, struct ckpt_err *err);

#endif
