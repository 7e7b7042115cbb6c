/*
 * commit - all-or-nothing outputs.
 *
 * A file is written aside in its own directory under a hidden name, synced, renamed, and the
 * directory synced; a directory is built aside and renamed whole.  A failed sync is final: the
 * output is given up, never synced again.  The rule:
 *
 *   - A file or directory under its final name is complete, at any moment and after any failure.
 *   - A commit that returns 0 lasts.  One that fails leaves the name as it was: absent, or the
 *     old file.  That holds for the last step too: a new name whose directory cannot be synced
 *     is taken back.  Only with CKPT_REPLACE, where the old file is gone by then, the new one
 *     stays, whole, and the error says that it may not last.
 *   - After abort, or a failed commit, nothing unfinished is left.  A killed process leaves files
 *     under hidden names; the next run that writes the same name (".<name>.<nonce>.tmp",
 *     ".<name>.staging-<nonce>") or removes anything there (".trash-<name>-<nonce>") removes them,
 *     and ckpt_outdir_sweep all of them: never those of a living process, and none where files
 *     cannot be locked.
 *   - Only files are replaced, and directories by ckpt_outdir_create_over: a device, a fifo or
 *     a socket, or a link to one, is refused with CKPT_ECREATE.  Write to those through
 *     ckpt_out_stream.
 */
#ifndef CKPT_LIBCKPT_COMMIT_H
#define CKPT_LIBCKPT_COMMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"

CKPT_BEGIN_C

enum ckpt_commit_flags {
    CKPT_REPLACE = 1 << 0,      /* an existing file of the final name is replaced at commit */
    CKPT_DRY_RUN = 1 << 1       /* of ckpt_create: refuse what it would refuse, create nothing */
};

struct ckpt_out;                /* a file being written */
struct ckpt_outdir;             /* a directory being built */

/*
 * CKPT_EUSAGE when a path is an address of another host (hf://owner/name, user@host:path): no
 * folder of that name is created by mistake.
 */
int ckpt_out_check(const char *path, struct ckpt_err *err);
/*
 * Create path's successor aside.  CKPT_ECREATE when the directory is absent or refuses, or when
 * path exists and CKPT_REPLACE is not given (looked at now and again at commit).
 */
int ckpt_out_create(struct ckpt_out **out, const char *path, unsigned flags,
                    struct ckpt_err *err);
/* Refuse what ckpt_out_create would refuse as things are now, and create nothing. */
int ckpt_out_ready(const char *path, unsigned flags, struct ckpt_err *err);
/* An output that is a stream (a pipe, stdout): only ckpt_out_write works; fd is borrowed. */
int ckpt_out_stream(struct ckpt_out **out, int fd, const char *name, struct ckpt_err *err);
/* Reserve size bytes on disk; a full disk is found here.  Files grow to exactly size. */
int ckpt_out_reserve(struct ckpt_out *out, uint64_t size, struct ckpt_err *err);
/* Append.  One thread. */
int ckpt_out_write(struct ckpt_out *out, const void *src, size_t n, struct ckpt_err *err);
/* Write at an offset.  Any thread.  Not for streams. */
int ckpt_out_write_at(struct ckpt_out *out, const void *src, size_t n, uint64_t offset,
                      struct ckpt_err *err);
/*
 * Bytes [from, from + n) of file to offset, inside the kernel where it can (shared extents,
 * copy_file_range), else through a bounce buffer of the caller's size.  Any thread.
 */
int ckpt_out_copy(struct ckpt_out *out, uint64_t offset, const struct ckpt_file *file,
                  uint64_t from, uint64_t n, void *bounce, size_t bounce_bytes,
                  struct ckpt_err *err);
bool ckpt_out_is_stream(const struct ckpt_out *out);
/*
 * True when large writes bypass the page cache, as long as their memory is aligned like their
 * file offset, modulo CKPT_OUT_PAGE bytes.  Other writes work too, through the page cache.
 */
bool ckpt_out_is_direct(const struct ckpt_out *out);
#define CKPT_OUT_PAGE 4096u
/* True when file is the very file that commit would replace (same device and inode). */
bool ckpt_out_would_replace(const struct ckpt_out *out, const struct ckpt_file *file);
/* Both take out (NULL accepted by abort). */
int ckpt_out_commit(struct ckpt_out *out, struct ckpt_err *err);
void ckpt_out_abort(struct ckpt_out *out);

/*
 * Build directory path aside (".<name>.staging-<nonce>" beside it).  CKPT_ECREATE when path
 * exists.  Leftover staging directories of earlier interrupted runs for the same path are
 * removed first when nobody holds their lock.
 */
int ckpt_outdir_create(struct ckpt_outdir **out, const char *path, struct ckpt_err *err);
/* The same, but a directory that has the name is replaced at commit: at any moment the name has
 * the old one or the new one, whole. */
int ckpt_outdir_create_over(struct ckpt_outdir **out, const char *path, struct ckpt_err *err);
/* Refuse what ckpt_outdir_create would refuse as things are now, and create nothing. */
int ckpt_outdir_ready(const char *path, struct ckpt_err *err);
/* Another process of the same save: write files into a staging directory someone created. */
int ckpt_outdir_join(struct ckpt_outdir **out, const char *staging, struct ckpt_err *err);
/* Absolute path of the directory while it is built, for ckpt_outdir_join in another process. */
const char *ckpt_outdir_staging(const struct ckpt_outdir *dir);
/* Create one file inside; rel may have several clean parts, and their folders are created; the
 * only hidden names allowed are .metadata and .data_ready.  Commit it as a file. */
int ckpt_outdir_file(struct ckpt_out **out, struct ckpt_outdir *dir, const char *rel,
                     struct ckpt_err *err);
/* Create a whole small file inside: create, write, commit. */
int ckpt_outdir_put(struct ckpt_outdir *dir, const char *rel, const void *bytes, size_t n,
                    struct ckpt_err *err);
/* Sync, rename whole (never replacing), sync the parent.  Takes dir.  Not after join. */
int ckpt_outdir_commit(struct ckpt_outdir *dir, struct ckpt_err *err);
/*
 * The other way to end: sync, and move the files, one by one, into the directory beside path,
 * where they replace those of their names; no folders.  Takes dir.  Each file is the old one or
 * the new one, whole; a failure may leave some of both.
 */
int ckpt_outdir_commit_beside(struct ckpt_outdir *dir, struct ckpt_err *err);
/* Remove what was built (after join: only close).  Takes dir; NULL accepted. */
void ckpt_outdir_abort(struct ckpt_outdir *dir);

/* Replace path's content with bytes, all or nothing: the one way to write a small file. */
int ckpt_out_put(const char *path, const void *bytes, size_t n, struct ckpt_err *err);
/* Remove a directory tree by handle, following no link: renamed to a trash name first. */
int ckpt_outdir_remove(const char *path, struct ckpt_err *err);
/* Remove whatever killed processes left unfinished in a directory, under any name.  What cannot be
 * removed stays. */
void ckpt_outdir_sweep(const char *path);

CKPT_END_C

#endif
