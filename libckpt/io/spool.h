/*
 * spool - give bytes without random access (a pipe, or compressed input) a file to seek in: an
 * unnamed file, which is gone with the process however that ends.  gzip, bzip2, xz, lzma, lz4 and
 * zstd are unpacked on the way, by libarchive 3.6 or newer and never by a program; nothing else
 * is changed.
 */
#ifndef CKPT_LIBCKPT_IO_SPOOL_H
#define CKPT_LIBCKPT_IO_SPOOL_H

#include "libckpt/file.h"

/* Output beyond 64 MiB and 4096 times the packed bytes is refused as a decompression bomb. */
#define SPOOL_FREE_BYTES ((uint64_t)64 << 20)
#define SPOOL_MOST_TIMES 4096u

struct ckpt_spool {
    const char         *name;       /* for messages */
    unsigned            flags;      /* enum ckpt_open_flags */
    const char         *where;      /* directory for the unnamed file; NULL: /var/tmp */
    const void         *before;     /* [n_before] bytes already read from the input */
    size_t              n_before;
    const volatile int *stop;       /* CKPT_ESTOPPED when it becomes true; may be NULL */
};

/*
 * Spool everything readable from fd (borrowed) until its end, unpacked.  A regular file is used
 * directly if it is not compressed and nothing was read from it yet.
 */
int ckpt_spool_fd(struct ckpt_file **out, int fd, const struct ckpt_spool *how,
                  struct ckpt_err *err);
/* True when the first bytes are those of a compressed stream. */
bool ckpt_spool_is_compressed(const unsigned char *head, size_t n);
/* The content of a compressed file, unpacked in directory where.  Takes file, on failure too. */
int ckpt_spool_file(struct ckpt_file **out, struct ckpt_file *file, const char *where,
                    struct ckpt_err *err);
/* Create an unnamed file in directory where; -1 with err filled. */
int spool_create(const char *where, struct ckpt_err *err);
/* Append to it; name, for messages, is the packed file. */
int spool_put(int fd, const void *src, size_t n, const char *name, struct ckpt_err *err);
/* CKPT_ELIMIT when the ratio is beyond the limit above. */
int spool_check(const char *name, uint64_t unpacked, uint64_t packed, struct ckpt_err *err);

#endif
