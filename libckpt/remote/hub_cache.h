/*
 * hub_cache - the cache of the Hub's own client (huggingface_hub), read and added to.
 *
 *   models--owner--name/blobs/<etag>                 bytes; the etag is the SHA-256 of an LFS file,
 *                                                    the SHA-1 of the git blob of another
 *   models--owner--name/snapshots/<commit>/<path>    a link to ../../blobs/<etag>
 *   models--owner--name/refs/<revision>              the commit
 *
 * below HF_HUB_CACHE, or $HF_HOME/hub.  A file that is fetched whole becomes a blob by a hard link
 * to the object of our cache: its bytes are stored once, and each client may remove its own name.
 * On another file system it is copied.
 *
 * Source: huggingface_hub 0.36, file_download.py, docs/source/en/guides/manage-cache.md.
 */
#ifndef CKPT_LIBCKPT_REMOTE_HUB_CACHE_H
#define CKPT_LIBCKPT_REMOTE_HUB_CACHE_H

#include "libckpt/remote/hub.h"

/* *out is NULL when there is no such blob, or a damaged one (with a warning).  A blob is named by
 * its digest: it is verified like our own objects, and never modified. */
int hub_cache_blob(struct ckpt_file **out, const char *kind, const char *id,
                   const struct tree_file *f, struct ckpt_err *err);
/* The snapshot of a revision, when it is there. */
bool hub_cache_snapshot(char local[1024], const struct hub_place *p);

/* A file of a commit. */
struct hub_cache_file {
    const char *kind, *id;
    const char *revision;       /* by which the commit was found */
    const char *commit, *path;
    const char *digest;         /* "sha256-<hex>", "sha1-<hex>" */
};

/* Add a complete, verified file.  What cannot be added is not an error. */
void hub_cache_add(const struct hub_cache_file *f, const struct ckpt_file *whole);

#endif
