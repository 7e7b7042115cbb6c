/*
 * sign/folder - whether the files of a folder are those of a signed manifest.
 */
#ifndef CKPT_LIBCKPT_SIGN_FOLDER_H
#define CKPT_LIBCKPT_SIGN_FOLDER_H

#include "libckpt/file.h"
#include "libckpt/sign/manifest.h"

/* What is told of a file that is not as signed. */
enum sign_difference {
    SIGN_CHANGED,       /* its digest, or size, is another */
    SIGN_MISSING,
    SIGN_UNSIGNED,      /* it is there, and the manifest does not have it */
    SIGN_IRREGULAR      /* a link, or no file */
};

typedef void sign_differs_fn(void *ctx, const char *path, enum sign_difference what);

struct sign_compare {
    const struct sign_manifest *m;
    struct ckpt_dir            *dir;
    const struct ckpt_file     *signature;      /* the file with it, which cannot be in it */
    bool                        ignore_unsigned;
    size_t                      workers;
    sign_differs_fn            *differs;        /* called in this thread, in the order of names */
    void                       *ctx;
};

/* Read all files.  *n gets the number of differences; an error is one of reading. */
int sign_folder_compare(const struct sign_compare *c, size_t *n, struct ckpt_err *err);
/* Digest of the bytes [start, end) of a file, sign_hash_bytes of it. */
int sign_folder_digest(unsigned char digest[SIGN_DIGEST_MAX], const struct ckpt_file *file,
                       enum sign_hash hash, uint64_t start, uint64_t end, struct ckpt_err *err);

#endif
