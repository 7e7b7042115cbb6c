/*
 * snapshot - the one kind of symbolic link that is followed unasked: in the cache of the Hub's
 * own client a snapshot is made of links to the files of its repository.
 *
 *   models--owner--name/blobs/<hex>                       the bytes, by their digest
 *   models--owner--name/snapshots/<commit>/a/b.json  ->  ../../../blobs/<hex>
 *
 * and datasets--, spaces--.  The link must say just that: up to the repository's folder and no
 * further, then a name of 40 or 64 hex digits in blobs, which is a file and no link.  Source:
 * huggingface_hub 0.36, file_download.py.
 */
#ifndef CKPT_LIBCKPT_IO_SNAPSHOT_H
#define CKPT_LIBCKPT_IO_SNAPSHOT_H

#include <sys/stat.h>

/* Open the blob that the link rel below the directory dir_fd stands for; -1 and ELOOP when it is
 * no such link. */
int snapshot_open(int dir_fd, const char *rel, int flags);
/* fstat of that blob. */
int snapshot_stat(int dir_fd, const char *name, struct stat *st);

#endif
