/*
 * container/flatbuffer - FlatBuffers in memory, every offset checked before it is followed.
 *
 * Source: flatbuffers.dev, "Internals".  A buffer begins with a u32 offset to its root table.  A
 * table begins with an i32: its own position minus this number is its vtable, which holds a u16
 * of its own size, a u16 of the table's size, and for each field (slot) a u16 of its position in
 * the table, 0 for absent.  Tables, texts and vectors are u32 offsets, relative to the place of
 * the offset itself; a text or a vector begins with its u32 length.  All is little endian.
 */
#ifndef CKPT_FORMATS_CONTAINER_FLATBUFFER_H
#define CKPT_FORMATS_CONTAINER_FLATBUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes read; failed is set once an offset leads out of them. */
struct flatbuffer {
    const unsigned char *b;
    size_t               n;
    bool                 failed;
};

/* A table, or none: then at is 0 and every field is absent. */
struct flatbuffer_table {
    size_t at, size, vtable, vsize;
};

/* A vector of elements of one width; n 0 when absent. */
struct flatbuffer_vector {
    size_t at, n, width;
};

struct flatbuffer_table flatbuffer_root(struct flatbuffer *f);
/* Fields by slot.  For an absent one: fallback, no table, no text (NULL), or an empty vector. */
int64_t flatbuffer_int(struct flatbuffer *f, const struct flatbuffer_table *t, unsigned slot,
                       unsigned bytes,
                       int64_t fallback);
struct flatbuffer_table flatbuffer_child(struct flatbuffer *f, const struct flatbuffer_table *t,
                                         unsigned slot);
const char *flatbuffer_text(struct flatbuffer *f, const struct flatbuffer_table *t,
                            unsigned slot, size_t *len);
struct flatbuffer_vector flatbuffer_list(struct flatbuffer *f, const struct flatbuffer_table *t,
                                         unsigned slot,
                                         size_t width);
/* Element i < v->n of a vector of tables (width 4). */
struct flatbuffer_table flatbuffer_at(struct flatbuffer *f, const struct flatbuffer_vector *v,
                                      size_t i);
/* Eight bytes at byte `in` of element i < v->n. */
int64_t flatbuffer_i64(const struct flatbuffer *f, const struct flatbuffer_vector *v, size_t i,
                       size_t in);

#endif
