/*
 * pickle/out - values as the pickle that torch.save would have written.
 *
 * Protocol 2, in the opcodes that torch's weights-only loader knows: batches of 1000, a memo for
 * every text, container, name and call, bytes as _codecs.encode of Latin-1 text, tensors as
 * torch._utils._rebuild_tensor_v2 (_v3 where torch has no typed storage) over a persistent id.
 * Values read from a file that torch wrote are written back byte for byte.
 * Source: CPython 3.13 Modules/_pickle.c; torch 2.15 serialization.py, _tensor.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_OUT_H
#define CKPT_FORMATS_CONTAINER_PICKLE_OUT_H

#include "formats/container/value.h"
#include "libckpt/base/buf.h"

/* A tensor's storage: its class and size; its key is its index. */
struct pickle_storage {
    enum ckpt_dtype dtype;
    int64_t         numel;              /* elements */
};

/*
 * Append the pickle.  Shared values are written once.  CKPT_ELIMIT for values nested deeper than
 * 512; CKPT_EUNSUPPORTED for values that protocol 2 does not have (keyword arguments, raw
 * persistent ids); CKPT_ESTATE for a tensor that exceeds its storage.
 */
int pickle_write(struct ckpt_buf *out, const struct value *v,
                 const struct pickle_storage *storage, size_t n_storage, struct ckpt_err *err);

#endif
