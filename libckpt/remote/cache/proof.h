/*
 * cache/proof - whether a cache may be trusted, and whether an object in it is unchanged.
 *
 * Computing a digest reads the whole file, so this is done once: proofs/<name> of the cache keeps
 * the digest with device, inode, size and times of the file.  While these are unchanged, the file
 * is the one that was verified; a time too close to that of the proof does not count, since a
 * later change could leave the time unchanged (git's index has the same race).
 *
 * A key "sha256-<hex>" or "sha1-<hex>" (of a git blob) names the digest.  For all other keys the
 * digest is in the record, made when the object was put.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_PROOF_H
#define CKPT_LIBCKPT_REMOTE_CACHE_PROOF_H

#include <time.h>

#include "libckpt/digest.h"
#include "libckpt/remote/cache/cache.h"

enum cache_proof {
    CACHE_PROVED,
    CACHE_WRONG,                /* its digest differs from its key or record */
    CACHE_UNKNOWN               /* no digest is known for it */
};

/* Whether the regular file fd is the object of key; name: of the record, "" for none. */
int cache_prove(enum cache_proof *proof, int fd, const char *key, const char *name,
                struct ckpt_err *err);
/* Record the object fd, just put and verified as far as possible. */
void cache_record(int fd, const char *key, const char *name);
/*
 * The SHA-256 of a regular file that is not of the cache, or with git the SHA-1 of its git blob:
 * from the record of an earlier call where the file is unchanged, else computed and recorded.
 * CKPT_EFORMAT "changed" when it changes meanwhile.
 */
int cache_digest(char hex[CKPT_SHA256_HEX], int fd, bool git, struct ckpt_err *err);
/* When the object of that record was last used; false when there is no record. */
bool cache_record_time(const char *name, struct timespec *used);

/* CKPT_EREFUSED when another user can change the folder at path. */
int cache_check_owner(const char *path, struct ckpt_err *err);

#endif
