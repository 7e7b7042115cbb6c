/*
 * s3_write - objects into a bucket of S3, or of a compatible store.
 *
 *   HEAD   {key}                              size, ETag, x-amz-meta-sha256
 *   PUT    {key}                              a whole object, its SHA-256 in x-amz-meta-sha256
 *   POST   {key}?uploads                      <UploadId>: an upload in parts
 *   PUT    {key}?partNumber=N&uploadId=U      a part; ETag
 *   GET    {key}?uploadId=U                   <ListPartsResult>: the parts that are there
 *   POST   {key}?uploadId=U                   all its parts: the one step that readers see
 *   DELETE {key}?uploadId=U                   gives it up
 *
 * A signature covers the bytes of a whole object, and over http those of a part, so that the store
 * refuses other bytes; over https TLS protects a part.  The digest of an object is in its metadata,
 * since the ETag of an object that came in parts is that of the parts.  Source: Amazon S3 API
 * Reference, 2006-03-01.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_S3_WRITE_H
#define CKPT_LIBCKPT_REMOTE_S3_S3_WRITE_H

#include "libckpt/digest.h"
#include "libckpt/remote/s3/place.h"

#define S3_KEY_BYTES   1024u                        /* of a key, at most */
#define S3_UPLOAD      1100                         /* buffer for the name of an upload */
#define S3_WHOLE_BYTES ((uint64_t)16 << 20)         /* longer objects are sent in parts */

/* An object as the store has it. */
struct s3_object {
    bool     exists;
    uint64_t size;                      /* FIELD_NONE: not told */
    char     tag[FIELD_BYTES];          /* its ETag, with quotes */
    char     sha256[FIELD_BYTES];       /* as its writer noted it, or "" */
};

/* A part as the store has it. */
struct s3_part {
    uint64_t size;                      /* 0: it is not there */
    char     tag[FIELD_BYTES];
};

/* Bytes of each part of an object but the last: at most 10,000 parts. */
uint64_t s3_part_bytes(uint64_t size);

int s3_head(struct s3_object *o, struct s3 *s, const char *key, struct ckpt_err *err);
/*
 * Send a whole object; sha256 in hex.  condition: NULL; "": only if there is none; an ETag: only if
 * that one is still there.  CKPT_EREFUSED "moved" when the condition fails.
 */
int s3_put(struct s3 *s, const char *key, const struct http_body *body, const char *sha256,
           const char *condition, struct ckpt_err *err);
/* Begin an upload in parts; id gets its name. */
int s3_begin(char id[S3_UPLOAD], struct s3 *s, const char *key, const char *sha256,
             struct ckpt_err *err);
/* Send part number n, from 1.  CKPT_ENOTFOUND "no-upload" when the upload has ended. */
int s3_send_part(char tag[FIELD_BYTES], struct s3 *s, const char *key, const char *id, size_t n,
                 const struct http_body *body, struct ckpt_err *err);
/* Fill part[0] to part[n_parts - 1] with those that the store has. */
int s3_parts(struct s3_part *part, size_t n_parts, struct s3 *s, const char *key, const char *id,
             struct ckpt_err *err);
/* Read one answer of that list; *next gets the number to go on behind, 0 at the last. */
int s3_read_parts(struct s3_part *part, size_t n_parts, const char *text, const char *name,
                  unsigned long long *next, struct ckpt_err *err);
/* Make the object of its parts, whose tags are in order.  condition as of s3_put. */
int s3_finish(struct s3 *s, const char *key, const char *id, const char *const *tag,
              size_t n_parts, const char *condition, struct ckpt_err *err);
int s3_give_up(struct s3 *s, const char *key, const char *id, struct ckpt_err *err);
int s3_delete(struct s3 *s, const char *key, struct ckpt_err *err);
/* Make the bucket, in the region of the requests. */
int s3_make_bucket(struct s3 *s, struct ckpt_err *err);
/* Read an object, without keeping it.  CKPT_EPROTOCOL "unconfirmed" when its digest is another. */
int s3_check(struct s3 *s, const char *key, const char *sha256, uint64_t size,
             struct ckpt_err *err);

#endif
