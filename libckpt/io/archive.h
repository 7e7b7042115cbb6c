/*
 * archive - a tar or zip file seen as the directory it was made of.
 *
 * Nothing is unpacked under a name: members are found by reading the archive's headers once, and
 * a file of the directory is a window of the archive (tar) or of a file without a name with the
 * unpacked bytes (zip; compressed tar goes through spool.h first).  libarchive 3.6 or newer reads
 * the headers: ustar, pax, GNU and old tar; zip, stored and deflated, zip64.
 *
 * An archive that breaks one of these rules is refused as a whole: no absolute name, no "..", no
 * empty part, at most 4095 bytes and 64 parts; no name twice, no file that is also a folder;
 * regular files, folders, and hard links to files before them.  Symbolic links are listed, never
 * followed, and refused when they lead out; devices, fifos and sparse files are refused.  Every
 * size is held against the bytes that are there, a tar must have its end mark followed by nothing
 * but zeros, and the two directories of a zip must agree.
 */
#ifndef CKPT_LIBCKPT_IO_ARCHIVE_H
#define CKPT_LIBCKPT_IO_ARCHIVE_H

#include "libckpt/file.h"

#define ARCHIVE_MAX_MEMBERS 1048576u
#define ARCHIVE_MAX_PARTS   64u

/* True when the 512 first bytes are a tar header whose checksum is right. */
bool ckpt_archive_is_tar(const unsigned char *head, size_t n);
/* True for a zip file that can be listed and is a folder of files, not a torch file. */
bool ckpt_archive_is_zip(struct ckpt_file *file);
/*
 * The directory that was packed: the single named folder at the top, or the top level itself
 * where the archive was made of "." or of several entries.  Takes file (plain tar or zip), on
 * failure too.  where: see ckpt_spool_file.
 */
int ckpt_archive_open(struct ckpt_dir **out, struct ckpt_file *file, const char *where,
                      struct ckpt_err *err);

#endif
