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

/* Shared by the directories that are opened below each other. */
struct archive_index {
    atomic_size_t     refs;
    struct ckpt_arena arena;
    struct member    *member;       /* as they come; sorted by path when reading is done */
    size_t            n, cap;
    struct ckpt_file *bytes;        /* what offsets are in */
    bool              of_here;      /* made of ".": no folder of it is the directory */
};

/* Fill index from file, whose first bytes say what it is; sets bytes.  Takes file. */
int archive_read_all(struct archive_index *index, struct ckpt_file *file, const char *where,
                     struct ckpt_err *err);

/* The central directory of a zip file. */
struct archive_zip_entry {
    const char *name;
    uint64_t    offset, packed;     /* of the header before the member; its bytes in the file */
    unsigned    flags, method;
};

struct archive_zip {
    struct archive_zip_entry *entry;
    size_t                    n;
    uint64_t                  directory;    /* its offset */
};

/* Fill z, in the directory's order, in arena. */
int archive_zip_list(struct archive_zip *z, struct ckpt_file *file, struct ckpt_arena *arena,
                     struct ckpt_err *err);
/*
 * Whether the headers before the members say the same as the directory, no two members share
 * bytes, and none lies between them that the directory does not tell.  What is inside of a member
 * is not looked at: it may be a zip file itself.  Sorts entries by offset.
 */
int archive_zip_headers(bool *same, struct archive_zip *z, struct ckpt_file *file,
                        struct ckpt_err *err);
/* The member of exactly that path, of a sorted index; NULL when there is none. */
const struct member *archive_find(const struct archive_index *index, const char *path);

#endif
