/*
 * field - the header fields of an HTTP response.
 *
 * Source: RFC 9110 (fields, Retry-After), RFC 9110 14.4 (Content-Range), RFC 8288 (Link), the
 * draft ratelimit-headers-09, the Hub's X-Linked-*, X-Repo-Commit and X-Error-*, S3's X-Amz-*, the
 * registries' Docker-Content-Digest.  A malformed value counts as absent; a caller that needs it
 * reports that.
 */
#ifndef CKPT_LIBCKPT_REMOTE_FIELD_H
#define CKPT_LIBCKPT_REMOTE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIELD_BYTES 512         /* longest value stored, with terminator */
#define FIELD_LINK  4096
#define FIELD_NONE  UINT64_MAX  /* an absent number */

/* The response to one request.  Absent numbers are FIELD_NONE, absent texts "". */
struct http_answer {
    long     status;
    uint64_t length;                    /* bytes of the body */
    uint64_t range_at, range_end;       /* of Content-Range: bytes [at, end) */
    uint64_t total;                     /* of the whole file, by Content-Range */
    uint64_t wait;                      /* seconds until another try makes sense */
    uint64_t linked_size;               /* X-Linked-Size: of the file, by the Hub */
    char     linked_etag[FIELD_BYTES];  /* X-Linked-ETag: its digest; without quotes, as etag */
    char     etag[FIELD_BYTES];
    char     tag[FIELD_BYTES];          /* ETag as it stands, with its quotes */
    bool     weak;                      /* etag does not identify the bytes */
    char     modified[FIELD_BYTES];
    char     type[FIELD_BYTES];         /* Content-Type */
    char     encoding[FIELD_BYTES];     /* Content-Encoding */
    char     commit[FIELD_BYTES];
    char     problem[FIELD_BYTES];      /* X-Error-Message */
    char     problem_code[FIELD_BYTES]; /* X-Error-Code */
    char     next[FIELD_LINK];          /* Link; rel="next" */
    bool     bad_next;                  /* there is one, but it is malformed or too long */
    char     date[FIELD_BYTES];         /* Retry-After when it is a date */
    char     location[FIELD_LINK];
    char     challenge[FIELD_LINK];     /* WWW-Authenticate: Bearer before another */
    char     content_digest[FIELD_BYTES];   /* Docker-Content-Digest */
    char     now[FIELD_BYTES];          /* Date: the server's clock */
    char     region[FIELD_BYTES];       /* X-Amz-Bucket-Region */
    char     sha256[FIELD_BYTES];       /* X-Amz-Meta-Sha256: of an object, as its writer says */
};

void field_clear(struct http_answer *a);
/* One line of a header, with or without its end. */
void field_line(struct http_answer *a, const char *line, size_t len);

#endif
