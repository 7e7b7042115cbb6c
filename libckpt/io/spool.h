/*
 * spool - bytes without random access made into a file: input from a pipe, or compressed, goes
 * into a file without a name, which is gone with the process however that ends.  gzip, bzip2, xz,
 * lzma, lz4 and zstd are unpacked on the way, by libarchive 3.6 or newer and never by a program;
 * nothing else is changed.
 */
#ifndef CKPT_LIBCKPT_IO_SPOOL_H
#define CKPT_LIBCKPT_IO_SPOOL_H

#include "libckpt/file.h"

/* More than 64 MiB and 4096 bytes for each packed byte is taken for a bomb. */
#define SPOOL_FREE_BYTES ((uint64_t)64 << 20)
#define SPOOL_MOST_TIMES 4096u

struct ckpt_spool {
    const char         *name;       /* for messages */
    unsigned            flags;      /* enum ckpt_open_flags */
    const char         *where;      /* directory on the file system that takes the bytes;
                                       NULL: /var/tmp */
    const void         *before;     /* [n_before] bytes that were read already */
    size_t              n_before;
    const volatile int *stop;       /* CKPT_ESTOPPED when it becomes true; may be NULL */
};

/*
 * Everything that can be read from fd (borrowed) until its end, unpacked.  A regular file that
 * nothing was read from and that is not compressed is taken as it lies.
 */
int ckpt_spool_fd(struct ckpt_file **out, int fd, const struct ckpt_spool *how,
                  struct ckpt_err *err);
/* True when the first bytes are those of a compressed stream. */
bool ckpt_spool_is_compressed(const unsigned char *head, size_t n);
/* The content of a compressed file, unpacked in where.  Takes file, on failure too. */
int ckpt_spool_file(struct ckpt_file **out, struct ckpt_file *file, const char *where,
                    struct ckpt_err *err);
/* A file without a name in the directory where, or -1 with err filled in. */
int spool_create(const char *where, struct ckpt_err *err);
/* Append to it; name, for messages, is the packed file. */
int spool_put(int fd, const void *src, size_t n, const char *name, struct ckpt_err *err);
/* CKPT_ELIMIT when that ratio is a bomb's. */
int spool_check(const char *name, uint64_t unpacked, uint64_t packed, struct ckpt_err *err);

#endif
