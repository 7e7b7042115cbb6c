/* hub_check - read a published file of the Hub back, and compare its digest. */
#ifndef CKPT_LIBCKPT_REMOTE_HUB_CHECK_H
#define CKPT_LIBCKPT_REMOTE_HUB_CHECK_H

#include "libckpt/remote/hub_write.h"

/*
 * Fetch the file at path of a commit, without keeping it.  oid is its SHA-256 (lfs), or the SHA-1
 * of its git blob.  CKPT_EPROTOCOL "unconfirmed" when it is another file.
 */
int hub_check(const struct hub_repo *r, const char *commit, const char *path, uint64_t size,
              bool lfs, const char *oid, struct ckpt_err *err);

#endif
