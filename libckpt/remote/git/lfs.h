/*
 * lfs - Git LFS: pointer files, the paths that get one, and a local object store.
 *
 * Source: git-lfs docs/spec.md (pointer format v1) and docs/man/git-lfs-config (storage layout:
 * lfs/objects/OID[0:2]/OID[2:4]/OID), version 3.3.  A bare repository on this host that is
 * cloned by path serves its own lfs/objects to git-lfs (its standalone file transfer).
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_LFS_H
#define CKPT_LIBCKPT_REMOTE_GIT_LFS_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/base/buf.h"
#include "libckpt/digest.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"

#define CKPT_LFS_POINTER_MAX 1024           /* a pointer file is shorter, by the specification */
#define CKPT_LFS_THRESHOLD   10485760u      /* larger files become pointers whatever their name */

/* Append the text of a pointer to out. */
void ckpt_lfs_pointer(struct ckpt_buf *out, const char *oid, uint64_t size);
/* True when text is a pointer; then oid and size are filled. */
bool ckpt_lfs_parse(const char *text, size_t len, char oid[CKPT_SHA256_HEX], uint64_t *size);
/* Whether the Hub's default .gitattributes stores a file of this name by pointer. */
bool ckpt_lfs_by_name(const char *path);
/* The lines of that .gitattributes. */
void ckpt_lfs_attributes(struct ckpt_buf *out);

/* Called with the number of bytes done of the current file.  May be NULL. */
typedef void ckpt_lfs_progress(void *ctx, uint64_t bytes);

/*
 * Put file into the store below git_dir.  oid is its SHA-256, made by the caller; the bytes are
 * digested again while they are copied, with CKPT_EFORMAT "changed" for a file that changed
 * meanwhile.  *had is true when the store had the object already, verified: nothing is written
 * then.
 */
int ckpt_lfs_put(bool *had, const char *git_dir, const char *oid, struct ckpt_file *file,
                 ckpt_lfs_progress *progress, void *ctx, struct ckpt_err *err);

/* Whether the store lists an object of that name and size, unverified: to estimate the cost of a
 * plan. */
bool ckpt_lfs_listed(const char *git_dir, const char *oid, uint64_t size);

#endif
