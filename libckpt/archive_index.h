/* archive_index - what archive.c and archive_read.c share: the members of an archive. */
#ifndef CKPT_ARCHIVE_INDEX_H
#define CKPT_ARCHIVE_INDEX_H

#include <stdatomic.h>

#include "libckpt/archive.h"

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
/* Names as the central directory of a zip file has them, in its order, in arena. */
int archive_zip_names(const char ***out, size_t *n, struct ckpt_file *file,
                      struct ckpt_arena *arena, struct ckpt_err *err);
/* The member of exactly that path, of a sorted index; NULL when there is none. */
const struct member *archive_find(const struct archive_index *index, const char *path);

#endif
