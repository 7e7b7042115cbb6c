/*
 * sink - the write side: takes the tensors of a list, range by range, and writes a format.
 *
 * The list of tensors is complete before the first byte is written, so a format can lay out its
 * files at once, and ranges may arrive in any order from any thread (unless the sink is a
 * stream).
 */
#ifndef CKPT_LIBCKPT_SINK_H
#define CKPT_LIBCKPT_SINK_H

#include <jansson.h>

#include "libckpt/api.h"
#include "libckpt/commit.h"
#include "libckpt/source.h"
#include "libckpt/tensor.h"

CKPT_BEGIN_C

/* The place in a file where a range is stored unchanged. */
struct ckpt_sink_extent {
    struct ckpt_out *out;
    uint64_t         offset;                    /* bytes */
    bool             seen;      /* must pass through write, for a checksum */
};

struct ckpt_sink_ops {
    const char *format;
    /* Write a checked, non-empty range of tensor i.  Any thread, unless stream. */
    int (*write)(void *self, size_t i, int64_t start, int64_t count, const void *src,
                 struct ckpt_err *err);
    /* Where the range goes, for copies inside the kernel and for aligned buffers; NULL or false
     * when unknown. */
    bool (*locate)(void *self, size_t i, int64_t start, int64_t count,
                   struct ckpt_sink_extent *out);
    int (*commit)(void *self, struct ckpt_err *err);    /* takes self */
    void (*abort)(void *self);                          /* takes self */
};

struct ckpt_sink;

/* Takes self (aborted on failure); keeps tensors until commit or abort.  stream: ranges must
 * come in order, tensor by tensor as the list has them. */
int ckpt_sink_new(struct ckpt_sink **out, const struct ckpt_sink_ops *ops, void *self,
                  const struct ckpt_tensors *tensors, bool stream, struct ckpt_err *err);
const struct ckpt_tensors *ckpt_sink_tensors(const struct ckpt_sink *sink);
bool ckpt_sink_is_stream(const struct ckpt_sink *sink);
int ckpt_sink_write(struct ckpt_sink *sink, size_t i, int64_t start, int64_t count,
                    const void *src, struct ckpt_err *err);
bool ckpt_sink_locate(struct ckpt_sink *sink, size_t i, int64_t start, int64_t count,
                      struct ckpt_sink_extent *out);
/* The caller put a located range into the file itself: count it. */
void ckpt_sink_wrote(struct ckpt_sink *sink, size_t i, int64_t count);
/*
 * Finish: every element of every tensor must have been written (counted; CKPT_ESTATE else).
 * Takes sink.
 */
int ckpt_sink_commit(struct ckpt_sink *sink, struct ckpt_err *err);
void ckpt_sink_abort(struct ckpt_sink *sink);           /* NULL accepted */

CKPT_END_C

#endif
