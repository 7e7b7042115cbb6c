/*
 * zip_walk - everything that some reader of a zip file could find in it.
 *
 * zip.h refuses archives that readers would disagree about; a search for danger needs what each of
 * them would see: the members of the directory, wherever their local headers are and however
 * they are called there, and the bytes that belong to no member (in front, between, after: other
 * archives, or a pickle).  Offsets are taken as Python's zipfile takes them, from where the
 * directory really is.
 * Source: as in zip.h; CPython 3.13 Lib/zipfile/__init__.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_ZIP_WALK_H
#define CKPT_FORMATS_CONTAINER_ZIP_WALK_H

#include "libckpt/file.h"

struct zip_piece {
    const char *name;           /* of a member, in the directory; NULL: bytes of none */
    uint64_t    offset, size;   /* in the file */
    uint64_t    plain;          /* what it says it unpacks to */
    unsigned    method;         /* 0 stored, 8 deflated */
    bool        encrypted;
    const char *wrong;          /* how its two headers differ, or NULL */
};

/* An end record is where a zip file ends, whatever it begins with. */
bool zip_ends_here(struct ckpt_file *file);
/* Bytes in front of the archive that ends the file, when they end as an archive too; else 0. */
uint64_t zip_front(struct ckpt_file *file);
/* In arena, by offset.  CKPT_EFORMAT when no directory can be found. */
int zip_walk(struct zip_piece **out, size_t *n, struct ckpt_file *file, struct ckpt_arena *arena,
             struct ckpt_err *err);

#endif
