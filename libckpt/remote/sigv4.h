/*
 * sigv4 - requests to S3 signed with AWS Signature Version 4, as fields of their header.
 *
 * Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference; its
 * published examples are the test.  Signed: method, path as it stands in the address (each part
 * encoded once), query sorted, host, range, the digest of an empty body, the date, and the
 * session's token.  libcurl's own signer omits the digest, and strict servers refuse that.
 */
#ifndef CKPT_LIBCKPT_REMOTE_SIGV4_H
#define CKPT_LIBCKPT_REMOTE_SIGV4_H

#include <stddef.h>
#include <time.h>

#include "libckpt/fail.h"

struct sigv4_key {
    char id[256], secret[256];
    char session[4096];         /* or "" */
    char region[64];
};

/*
 * Write header lines, each ended by '\n'.  The method has no body; range is "bytes=a-b", or NULL.
 * CKPT_ELIMIT when the lines do not fit.
 */
int sigv4_sign(char *lines, size_t size, const struct sigv4_key *key, const char *method,
               const char *url, const char *range, time_t now, struct ckpt_err *err);

#endif
