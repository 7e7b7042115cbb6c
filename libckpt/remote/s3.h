/*
 * s3 - a bucket of S3, or of a compatible store.
 *
 *   s3://bucket/key     the objects below key/ as a directory, else the object
 *
 *   GET {E}/{bucket}?list-type=2&prefix={key}/   <ListBucketResult> with a <Key> and <Size> in each
 *                                                <Contents>, more by <NextContinuationToken>
 *   GET {E}/{bucket}/{key}                       the bytes
 *
 * {E} is AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; without one a bucket has its own host at AWS.
 * The key is AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the profile's
 * (AWS_PROFILE, "default") in ~/.aws/credentials; without either requests are not signed.  The
 * region is AWS_REGION, AWS_DEFAULT_REGION, or the profile's in ~/.aws/config.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_H
#define CKPT_LIBCKPT_REMOTE_S3_H

#include "libckpt/remote/tree.h"

/* Gives a tree or an object, depending on the address. */
int s3_open(struct tree **tree, struct range **object, const char *url, struct ckpt_err *err);
/*
 * Add the objects of one response to t, their keys without prefix; next (1100 bytes) gets the
 * token for the next request, "" at the last.  CKPT_EPROTOCOL when text is no such response.
 */
int s3_read_page(struct tree *t, const char *text, const char *prefix, char next[1100],
                 struct ckpt_err *err);

#endif
