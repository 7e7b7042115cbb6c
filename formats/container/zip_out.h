/*
 * zip_out - zip archives as torch writes them: stored members, payloads aligned to 64 bytes,
 * sizes in data descriptors, zip64 end records always, date 1980-00-00.
 *
 * All names and sizes are known before the first byte is written, and so are all offsets;
 * payloads may then be written in any order, and CRC-32s of their pieces are combined.  Source:
 * PyTorch 2.15 caffe2/serialize/inline_container.cc over miniz 3; field by field from files it
 * wrote.
 */
#ifndef CKPT_FORMATS_CONTAINER_ZIP_OUT_H
#define CKPT_FORMATS_CONTAINER_ZIP_OUT_H

#include <stdbool.h>

#include "libckpt/commit.h"

#define ZIP_ALIGNMENT 64

struct zip_member {
    const char *name;           /* borrowed until the layout is freed */
    uint64_t    size;
    uint64_t    header;         /* offset of its local header: set by zip_layout */
    uint64_t    data;           /* offset of its payload: set by zip_layout */
    uint32_t    crc;            /* CRC-32 of the payload, needed by zip_finish */
    bool        ended;          /* its descriptor is written */
};

/* Set header and data of every member; returns the offset of the central directory. */
uint64_t zip_layout(struct zip_member *member, size_t n);
/* Bytes of the archive. */
uint64_t zip_total(const struct zip_member *member, size_t n, uint64_t directory);
/* Write all local headers.  base: offset of the archive in the file, 0 unless it is one of
 * several. */
int zip_begin(struct ckpt_out *out, uint64_t base, const struct zip_member *member, size_t n,
              struct ckpt_err *err);
/* Write the descriptor of a member whose crc is set, so that no byte is missing between it and
 * the next; zip_finish does it otherwise. */
int zip_end_member(struct ckpt_out *out, uint64_t base, struct zip_member *m, struct ckpt_err *err);
/* Write descriptors, directory and end records; every crc must be set. */
int zip_finish(struct ckpt_out *out, uint64_t base, const struct zip_member *member, size_t n,
               uint64_t directory, struct ckpt_err *err);

#endif
