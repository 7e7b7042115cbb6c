/*
 * s3 - a bucket of S3, or of a compatible store.
 *
 *   s3://bucket/key     the objects below key/ as a directory, else the object
 *
 *   GET {E}/{bucket}?list-type=2&prefix={key}/   <ListBucketResult> with a <Key> and <Size> in each
 *                                                <Contents>, more by <NextContinuationToken>
 *   GET {E}/{bucket}/{key}                       the bytes
 *
 * {E} and the key are found as s3/place.h and s3/key.h say; without a key requests are not signed.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_S3_H
#define CKPT_LIBCKPT_REMOTE_S3_S3_H

#include "libckpt/remote/s3/place.h"
#include "libckpt/remote/tree.h"

/* Gives a tree or an object, depending on the address. */
int s3_open(struct tree **tree, struct range **object, const char *url, struct ckpt_err *err);
/* Add all objects below prefix ("" or "key/") to t, their keys without it. */
int s3_list(struct tree *t, struct s3 *s, const char *prefix, struct ckpt_err *err);
/*
 * Add the objects of one response to t, their keys without prefix; next (1100 bytes) gets the
 * token for the next request, "" at the last.  CKPT_EPROTOCOL when text is no such response.
 */
int s3_read_page(struct tree *t, const char *text, const char *prefix, char next[1100],
                 struct ckpt_err *err);

#endif
