/*
 * container/protobuf_out - write fields of a protocol buffers message into a buffer.
 *
 * Source: protobuf.dev, "Encoding"; see protobuf.h for the types.  Fields are written where a value
 * is given, zeros too, which proto2 and proto3 both read.  Errors are the buffer's, checked once at
 * its end.
 */
#ifndef CKPT_FORMATS_CONTAINER_PROTOBUF_OUT_H
#define CKPT_FORMATS_CONTAINER_PROTOBUF_OUT_H

#include "libckpt/base/buf.h"

void protobuf_out_varint(struct ckpt_buf *b, uint32_t number, uint64_t v);
void protobuf_out_double(struct ckpt_buf *b, uint32_t number, double v);
void protobuf_out_float(struct ckpt_buf *b, uint32_t number, float v);
void protobuf_out_bytes(struct ckpt_buf *b, uint32_t number, const void *bytes, size_t n);
/* NULL and "" are left out. */
void protobuf_out_text(struct ckpt_buf *b, uint32_t number, const char *text);
/* Doubles without keys between them, "packed". */
void protobuf_out_doubles(struct ckpt_buf *b, uint32_t number, const double *v, size_t n);

/*
 * A message inside of one: what is put between the two becomes the field's content.
 *
 *     size_t at = protobuf_out_begin(b, 5);
 *     protobuf_out_varint(b, 1, 7);
 *     protobuf_out_end(b, at);
 */
size_t protobuf_out_begin(struct ckpt_buf *b, uint32_t number);
void protobuf_out_end(struct ckpt_buf *b, size_t at);

#endif
