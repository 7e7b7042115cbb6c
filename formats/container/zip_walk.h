/*
 * zip_walk - everything in a zip file that some program could read from it.
 *
 * zip.h refuses archives that programs read differently; a search for danger must see what each
 * of them would: the members of the directory, wherever their local headers are and whatever
 * names these have, and the bytes that belong to no member (before, between, after: other
 * archives, or a pickle).  Offsets are interpreted as in Python's zipfile, relative to the actual
 * place of the directory. Source: as in zip.h; CPython 3.13 Lib/zipfile/__init__.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_ZIP_WALK_H
#define CKPT_FORMATS_CONTAINER_ZIP_WALK_H

#include "libckpt/file.h"

struct zip_piece {
    const char *name;           /* a member's, from the directory; NULL: bytes of no member */
    uint64_t    offset, size;   /* in the file */
    uint64_t    plain;          /* its unpacked size, from the directory */
    unsigned    method;         /* 0 stored, 8 deflated */
    bool        encrypted;
    const char *wrong;          /* how its two headers differ, or NULL */
};

/* Whether the file ends in an end record, which makes it a zip file whatever its beginning. */
bool zip_ends_here(struct ckpt_file *file);
/* Bytes before the archive at the file's end, if they end in an archive too; else 0. */
uint64_t zip_front(struct ckpt_file *file);
/* The pieces in arena, sorted by offset.  CKPT_EFORMAT when no directory can be found. */
int zip_walk(struct zip_piece **out, size_t *n, struct ckpt_file *file, struct ckpt_arena *arena,
             struct ckpt_err *err);

#endif
