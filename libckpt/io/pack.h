/*
 * pack - the files of a directory as one tar or zip file, or as a stream.
 *
 * The same files give the same bytes: sorted by path, no times, owners or modes of this machine,
 * no threads.  tar is ustar, with pax records where that is not enough, compressed as the name
 * says; zip members are stored.  Written through libarchive 3.6 or newer.
 */
#ifndef CKPT_LIBCKPT_IO_PACK_H
#define CKPT_LIBCKPT_IO_PACK_H

#include "libckpt/commit.h"
#include "libckpt/file.h"

enum ckpt_pack {
    CKPT_PACK_NONE, CKPT_PACK_TAR, CKPT_PACK_TAR_GZ, CKPT_PACK_TAR_BZ2, CKPT_PACK_TAR_XZ,
    CKPT_PACK_TAR_ZST, CKPT_PACK_ZIP
};

/* The kind of a file by its name: .tar .tar.gz .tgz .tar.bz2 .tar.xz .tar.zst .tzst .zip. */
enum ckpt_pack ckpt_pack_of(const char *name);
/*
 * Append all regular files below dir to out, which is neither committed nor aborted.
 * CKPT_EREFUSED for anything that is neither file nor folder.  stop: CKPT_ESTOPPED when it
 * becomes true; may be NULL.
 */
int ckpt_pack(struct ckpt_out *out, struct ckpt_dir *dir, enum ckpt_pack kind,
              const volatile int *stop, struct ckpt_err *err);

#endif
