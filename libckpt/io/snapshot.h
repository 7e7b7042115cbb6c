/*
 * snapshot - the one kind of symbolic link that is followed without CKPT_FOLLOW: in the cache of
 * the Hub's own client, a snapshot consists of links to blobs of its repository.
 *
 *   models--owner--name/blobs/<hex>                       the bytes, by their digest
 *   models--owner--name/snapshots/<commit>/a/b.json  ->  ../../../blobs/<hex>
 *
 * and datasets--, spaces--.  The target must have exactly this form: up to the repository's
 * folder and no further, then a name of 40 or 64 hex digits in blobs, which is a regular file.
 * Source: huggingface_hub 0.36, file_download.py.
 */
#ifndef CKPT_LIBCKPT_IO_SNAPSHOT_H
#define CKPT_LIBCKPT_IO_SNAPSHOT_H

#include <sys/stat.h>

/* Open the blob that the link rel below dir_fd points to; -1 and ELOOP when the link has another
 * form. */
int snapshot_open(int dir_fd, const char *rel, int flags);
/* fstat of that blob. */
int snapshot_stat(int dir_fd, const char *name, struct stat *st);

#endif
