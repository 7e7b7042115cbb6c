/* archive_index - what archive.c and archive_read.c share: the members of an archive. */
#ifndef CKPT_LIBCKPT_IO_ARCHIVE_INDEX_H
#define CKPT_LIBCKPT_IO_ARCHIVE_INDEX_H

#include <stdatomic.h>

#include "libckpt/io/archive.h"

enum member_kind { MEMBER_FILE, MEMBER_DIR, MEMBER_LINK };

struct member {
    const char      *path;          /* clean */
    uint64_t         offset, size;  /* in bytes */
    enum member_kind kind;
};

/* Shared by a directory and all directories opened below it. */
struct archive_index {
    atomic_size_t     refs;
    struct ckpt_arena arena;
    struct member    *member;       /* in archive order; sorted by path when reading is done */
    size_t            n, cap;
    struct ckpt_file *bytes;        /* the file that offsets refer to */
    bool              of_here;      /* packed as ".": the top level is the directory, not a
                                       folder of it */
};

/* Fill index from file, whose first bytes say what it is; sets bytes.  Takes file. */
int archive_read_all(struct archive_index *index, struct ckpt_file *file, const char *where,
                     struct ckpt_err *err);

/* The central directory of a zip file. */
struct archive_zip_entry {
    const char *name;
    uint64_t    offset, packed;     /* of the local header; bytes of the member in the file */
    unsigned    flags, method;
};

struct archive_zip {
    struct archive_zip_entry *entry;
    size_t                    n;
    uint64_t                  directory;    /* its offset */
};

/* Fill z in the central directory's order, allocating in arena. */
int archive_zip_list(struct archive_zip *z, struct ckpt_file *file, struct ckpt_arena *arena,
                     struct ckpt_err *err);
/*
 * Check that local headers agree with the central directory, that no two members share bytes, and
 * that no member hides between them unlisted.  Contents of members are not examined: one may be a
 * zip file itself.  Sorts entries by offset.
 */
int archive_zip_headers(bool *same, struct archive_zip *z, struct ckpt_file *file,
                        struct ckpt_err *err);
/* The member with exactly that path in a sorted index; NULL when there is none. */
const struct member *archive_find(const struct archive_index *index, const char *path);

#endif
