/*
 * file_at - shared by file.c, guard.c, dir.c and the virtual directories: a descriptor becomes a
 * file, an errno a sentence, a table of calls a directory.
 */
#ifndef CKPT_LIBCKPT_IO_FILE_AT_H
#define CKPT_LIBCKPT_IO_FILE_AT_H

#include "libckpt/commit.h"
#include "libckpt/file.h"

/* Takes fd, on failure too; refuses anything but a regular file. */
int file_take_fd(struct ckpt_file **out, int fd, const char *name, unsigned flags,
                 struct ckpt_err *err);
/* ckpt_file_read_at without the guard's checks. */
int file_read(const struct ckpt_file *file, void *dst, size_t n, uint64_t offset,
              struct ckpt_err *err);
/* Whether every component of path is a clean name (file.h) that good accepts. */
bool file_parts_are(const char *rel, bool (*good)(const char *part));
/* The error of an open that failed with errnum. */
int file_open_failed(struct ckpt_err *err, const char *name, int errnum);
/* A window like ckpt_file_window's that does not need the other file to stay open. */
int file_part(struct ckpt_file **out, const struct ckpt_file *file, uint64_t offset,
              uint64_t size, const char *name, struct ckpt_err *err);

/* Bytes that have come.  Any thread. */
typedef void file_tick_fn(void *ctx, uint64_t bytes);

/*
 * Get all bytes of a file that is elsewhere, at once and verified, rather than as they are read.
 * With take they are meant for one place, file_take moves them there, and no other cache gets
 * them.  Nothing to do for other files.  *came is false where they were here already.
 */
int file_fetch(const struct ckpt_file *file, bool take, bool *came, file_tick_fn *tick, void *ctx,
               struct ckpt_err *err);
/*
 * Move the bytes that file_fetch got to be taken into out, which is empty and is committed next;
 * the file can still be read.  False where that cannot be, and nothing is done: they are used by
 * others, or lie on another file system, say.  They are copied then.
 */
bool file_take(const struct ckpt_file *file, struct ckpt_out *out);

/* A file that is not on disk: one self, reference-counted by the files made of it.  Any thread. */
struct file_ops {
    /* Read n >= 1 bytes that lie within the size; flags are the file's. */
    int (*read)(void *self, void *dst, size_t n, uint64_t offset, unsigned flags,
                struct ckpt_err *err);
    /* A descriptor with all the bytes, byte 0 at offset 0; -1 while there is none. */
    int (*fd)(void *self);
    /* As file_fetch and file_take. */
    int (*fetch)(void *self, bool take, bool *came, file_tick_fn *tick, void *ctx,
                 struct ckpt_err *err);
    bool (*take)(void *self, struct ckpt_out *out);
    void (*keep)(void *self);
    void (*drop)(void *self);
};

/* Takes one reference of self, on failure too (dropped). */
int file_make(struct ckpt_file **out, const struct file_ops *ops, void *self, uint64_t size,
              const char *name, unsigned flags, struct ckpt_err *err);

/* A directory that is not on disk.  rel never leads out; path is the directory's path with rel. */
struct dir_ops {
    int (*open_file)(void *self, struct ckpt_file **out, const char *rel, const char *path,
                     struct ckpt_err *err);
    int (*open_dir)(void *self, struct ckpt_dir **out, const char *rel, const char *path,
                    struct ckpt_err *err);
    /* Entries in any order, each name once, in arena. */
    int (*list)(void *self, const char *path, struct ckpt_arena *arena, struct ckpt_entry **out,
                size_t *n, struct ckpt_err *err);
    bool (*has)(void *self, const char *rel);
    /* The heads of these files are read next; NULL where announcing that makes no difference. */
    int (*expect)(void *self, const char *const *rel, size_t n, struct ckpt_err *err);
    void (*close)(void *self);
};

/* Takes self, on failure too (closed). */
int file_make_dir(struct ckpt_dir **out, const struct dir_ops *ops, void *self, const char *path,
                  struct ckpt_err *err);

#endif
