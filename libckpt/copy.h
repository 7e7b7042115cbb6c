/*
 * copy - source -> sink with bounded memory; the only mover of tensor bytes.
 *
 * Work is cut into pieces of a few MiB; each worker owns one buffer of chunk_bytes, so peak memory
 * is workers * chunk_bytes and 64 bytes a tensor, whatever the model's size.  Where the output has
 * several files, several are written at a time.
 * Checksums that the source's files store are verified by threads beside the copy, before it
 * ends.  Ranges that lie verbatim on both sides never pass through user memory (ckpt_out_copy),
 * unless the file takes writes past the page cache (ckpt_out_is_direct), which are faster.  A
 * stream is written in order: a worker that has read its chunk waits for the chunks before it, so
 * the workers' buffers serve as read-ahead.
 */
#ifndef CKPT_LIBCKPT_COPY_H
#define CKPT_LIBCKPT_COPY_H

#include "libckpt/api.h"
#include "libckpt/sink.h"
#include "libckpt/source.h"

CKPT_BEGIN_C

/* Called at most a few times a second, from one worker at a time. */
typedef void ckpt_copy_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* All zero: the defaults. */
struct ckpt_copy_opts {
    size_t            size;             /* sizeof this struct; 0: version 0.1 */
    size_t            workers;          /* 0: the number of CPUs, at most 64 */
    size_t            chunk_bytes;      /* 0: 4 MiB, of more than 16 workers 64 MiB
                                           together, but 1 MiB each */
    ckpt_copy_progress_fn *progress;         /* NULL: none; counts bytes written */
    void             *progress_ctx;
    const volatile int *stop;           /* non-NULL and set: end with CKPT_ESTOPPED */
};

/*
 * Copy every tensor of sink's list from the tensor of the same name in src (dtype and shape
 * must agree: CKPT_EMISMATCH names the tensor and both).  CKPT_ESTOPPED when stop was set.
 * Does not commit the sink; after a failure it can only be aborted.
 */
int ckpt_copy(struct ckpt_sink *sink, struct ckpt_source *src,
              const struct ckpt_copy_opts *opts, struct ckpt_err *err);

/* Bytes of memory that ckpt_copy takes for n tensors with that many workers (0: by CPUs). */
uint64_t ckpt_copy_memory(size_t workers, size_t n);

CKPT_END_C

#endif
