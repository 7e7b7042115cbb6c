/*
 * pickle_out - the opcodes needed to write values that torch's weights-only loader reads.
 *
 * Protocol 2.  Bytes are spelt as Python 3 spells them there (_codecs.encode of Latin-1 text).
 * Tensors become torch._utils._rebuild_tensor_v2 over a persistent id; see
 * checkpoint layout in torch_out.  Source: CPython 3 Lib/pickle.py, torch/_tensor.py.
 */
#ifndef CKPT_PICKLE_OUT_H
#define CKPT_PICKLE_OUT_H

#include "formats/container/value.h"
#include "libckpt/buf.h"

/* What a tensor's storage is called: its class, key and size. */
struct pickle_storage {
    enum ckpt_dtype dtype;
    int64_t         numel;              /* elements */
};

/* Append the whole pickle.  CKPT_ELIMIT for values nested deeper than 512. */
int pickle_write(struct ckpt_buf *out, const struct value *v,
                 const struct pickle_storage *storage, size_t n_storage, struct ckpt_err *err);

#endif
