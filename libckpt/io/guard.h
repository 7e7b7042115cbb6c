/*
 * guard - verify checksums of a file's ranges when the first byte of a range is read.
 *
 * The first reader of a range verifies all of it (or has it verified, see guard_proofs_new);
 * other readers of that range do not wait.  So bytes may be wrong when they are read, but then
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
 * From now on the first read of each of these ranges verifies all of it, once: CKPT_EFORMAT
 * "digest" when it is wrong.  The ranges are sorted by offset, do not overlap and are borrowed
 * until the file is closed.  At most one call per file; windows of the file are not guarded.
 */
int ckpt_guard_file(struct ckpt_file *file, const struct ckpt_sum *sum, size_t n,
                    struct ckpt_err *err);
/* Verify the ranges that a read there would verify, for callers that move bytes in another way. */
int ckpt_guard_prove(const struct ckpt_file *file, uint64_t offset, uint64_t n,
                    struct ckpt_err *err);

struct guard;

/* sum: sorted by offset, without overlap, borrowed until guard_free. */
int guard_new(struct guard **out, const struct ckpt_sum *sum, size_t n, struct ckpt_err *err);
void guard_free(struct guard *g);                       /* NULL accepted */
/* Verify the ranges that [offset, offset + n) touches, unless another thread has begun to.  Any
 * thread. */
int guard_prove(struct guard *g, const struct ckpt_file *file, uint64_t offset, uint64_t n,
                struct ckpt_err *err);

/*
 * Verification in the background: a thread that uses these proofs hands the ranges it touches to
 * worker threads, so that a copy's disk is not idle meanwhile.  The file must stay open until
 * guard_proofs_end.
 */
struct proofs;

int guard_proofs_new(struct proofs **out, size_t threads, struct ckpt_err *err);
/* From now on ranges that this thread touches go to p; NULL: it verifies them itself again. */
void guard_proofs_use(struct proofs *p);
/* Whether a wrong checksum has been found. */
bool guard_proofs_failed(struct proofs *p);
/* Wait until all are verified; the error is the first mismatch.  Takes p; NULL accepted. */
int guard_proofs_end(struct proofs *p, struct ckpt_err *err);

#endif
