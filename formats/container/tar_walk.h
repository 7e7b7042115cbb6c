/*
 * tar_walk - the members of a tar file in order, whatever their names.
 *
 * archive.h refuses an archive for one strange member; a search for danger continues.  ustar, old
 * and GNU tar (long names), pax (path, size).
 *   512 bytes of header: 0 name[100], 124 size[12] in octal or base 256, 148 checksum[8],
 *   156 type, 157 link[100], 257 "ustar", 345 prefix[155]; then the bytes, padded to 512.
 * Source: POSIX.1-2017 pax, GNU tar 1.34 manual "Basic Tar Format".
 */
#ifndef CKPT_FORMATS_CONTAINER_TAR_WALK_H
#define CKPT_FORMATS_CONTAINER_TAR_WALK_H

#include "libckpt/file.h"

enum tar_kind { TAR_FILE, TAR_DIR, TAR_LINK, TAR_ODD };     /* devices, fifos, sparse files */

struct tar_piece {
    char          name[4096];
    char          link[101];            /* target of a link */
    enum tar_kind kind;
    uint64_t      offset, size;
};

struct tar_walk {
    struct ckpt_file *file;             /* borrowed */
    uint64_t          at;               /* offset of the next header, or of the archive's end */
};

/* 1: the next member; 0: the end; CKPT_EFORMAT when a header is damaged or a member cut. */
int tar_walk_next(struct tar_walk *w, struct tar_piece *p, struct ckpt_err *err);

#endif
