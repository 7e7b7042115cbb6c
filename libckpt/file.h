/*
 * file - random-access bytes to read: a file, or memory; and the directories they lie in.
 *
 * Every foreign byte is read through here.  No name below a directory handle leads out of it: no
 * absolute path, no "..", no symbolic link (unless CKPT_FOLLOW, or a link of the Hub client's
 * snapshots, io/snapshot.h).  Only regular files are opened, non-blocking so that a fifo cannot
 * hang the caller.  The size from fstat is the only number that is trusted.
 */
#ifndef CKPT_LIBCKPT_FILE_H
#define CKPT_LIBCKPT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/fail.h"
#include "libckpt/mem.h"

CKPT_BEGIN_C

enum ckpt_open_flags {
    CKPT_FOLLOW = 1 << 0,       /* symbolic links are followed; the target must be regular */
    /* Verify the checksums that a format stores as bytes are read; a remote file is fetched whole
     * and its digest verified before more than its header is read. */
    CKPT_PROVE  = 1 << 1
};

struct ckpt_dir;
struct ckpt_file;

/* One entry of a directory. */
struct ckpt_entry {
    const char *name;           /* one component */
    uint64_t    size;           /* bytes; 0 for a directory */
    bool        is_dir;
    bool        is_file;        /* regular, or a link to a regular file with CKPT_FOLLOW */
};

/* Open a directory the user named.  Links among the parents the user typed are followed. */
int ckpt_dir_open(struct ckpt_dir **out, const char *path, unsigned flags, struct ckpt_err *err);
int ckpt_dir_open_at(struct ckpt_dir **out, struct ckpt_dir *parent, const char *rel,
                     struct ckpt_err *err);
void ckpt_dir_close(struct ckpt_dir *dir);
const char *ckpt_dir_path(const struct ckpt_dir *dir);
/* All entries but "." and "..", sorted by name (bytes), in arena; at most 1,048,576. */
int ckpt_dir_list(struct ckpt_dir *dir, struct ckpt_arena *arena, struct ckpt_entry **out,
                  size_t *n, struct ckpt_err *err);
/*
 * Several directories seen as one: the nodes of a run each wrote a folder to their own disk.
 * Takes the n >= 1 directories, on failure too.  A file found in several of them must be
 * identical in all, byte by byte (compared when it is opened; CKPT_EFORMAT "ambiguous").
 */
int ckpt_dir_union(struct ckpt_dir **out, struct ckpt_dir **part, size_t n,
                   struct ckpt_err *err);
/* True when rel names a regular file below dir that could be opened by the rules above. */
bool ckpt_dir_has(struct ckpt_dir *dir, const char *rel);
/*
 * Announce that the headers of these n files are read next, so that remote ones can be fetched
 * together; no effect on local files.  Absent names are no error.
 */
int ckpt_dir_expect(struct ckpt_dir *dir, const char *const *rel, size_t n,
                    struct ckpt_err *err);
/* The last path component: non-empty, no "/", no NUL, neither "." nor "..", at most 255. */
bool ckpt_file_name_is_clean(const char *name);
/* Components joined by "/", each clean, none starting with ".": safe below a directory. */
bool ckpt_file_path_is_clean(const char *rel);
/* Hidden names are reserved for unfinished files, except these, which formats need: .metadata of
 * torch.distributed.checkpoint, .data_ready of prepared data. */
bool ckpt_file_name_is_kept(const char *name);
/* A clean path, or one whose last component alone is such a name. */
bool ckpt_file_path_is_kept(const char *rel);

/* Open a file the user named: "-" is not special here. */
int ckpt_file_open(struct ckpt_file **out, const char *path, unsigned flags,
                   struct ckpt_err *err);
int ckpt_file_open_at(struct ckpt_file **out, struct ckpt_dir *dir, const char *rel,
                      struct ckpt_err *err);
/* A file that is memory: keeps bytes until closed; name is copied. */
int ckpt_file_memory(struct ckpt_file **out, const void *bytes, size_t size, const char *name,
                     struct ckpt_err *err);
/* A window [offset, offset + size) of another file, which must outlive it. */
int ckpt_file_window(struct ckpt_file **out, struct ckpt_file *file, uint64_t offset,
                     uint64_t size, const char *name, struct ckpt_err *err);
void ckpt_file_close(struct ckpt_file *file);

const char *ckpt_file_name(const struct ckpt_file *file);  /* as the caller gave it, for messages */
uint64_t ckpt_file_size(const struct ckpt_file *file);
/* The descriptor, or -1 for memory; *base is the file's first byte in it, for copy_file_range. */
int ckpt_file_fd(const struct ckpt_file *file, uint64_t *base);

/* The flags that the file, or its directory, was opened with. */
unsigned ckpt_file_flags(const struct ckpt_file *file);

/* Exactly n bytes at offset.  Any thread.  CKPT_EFORMAT "truncated" past the end, CKPT_EIO. */
int ckpt_file_read_at(const struct ckpt_file *file, void *dst, size_t n, uint64_t offset,
                      struct ckpt_err *err);
/* The whole file into arena memory, NUL-terminated; CKPT_ELIMIT beyond limit bytes. */
int ckpt_file_slurp(struct ckpt_file *file, struct ckpt_arena *arena, uint64_t limit,
                    char **out, size_t *len, struct ckpt_err *err);
/* Tell the kernel how the file will be read. */
void ckpt_file_sequential(const struct ckpt_file *file);
/* True when both are the same file on disk (device and inode), or the same member of one. */
bool ckpt_file_same(const struct ckpt_file *a, const struct ckpt_file *b);

CKPT_END_C

#endif
