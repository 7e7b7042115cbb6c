/*
 * sigv4 - requests to S3 signed with AWS Signature Version 4, as fields of their header.
 *
 * Source: "Authenticating Requests (AWS Signature Version 4)", Amazon S3 API Reference; its
 * published examples are the test.  Signed: method, path as it stands in the address (each part
 * encoded once), query sorted, host, range, the digest of the body (UNSIGNED-PAYLOAD when it is
 * not known), the date, the session's token, and all lines that the request adds.  libcurl's own
 * signer omits the digest, and strict servers refuse that.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_SIGV4_H
#define CKPT_LIBCKPT_REMOTE_S3_SIGV4_H

#include <stddef.h>
#include <time.h>

#include "libckpt/remote/http.h"

struct sigv4_key {
    char id[256], secret[256];
    char session[4096];         /* or "" */
    char region[64];
};

/* Write header lines, each ended by '\n'.  CKPT_ELIMIT when they do not fit. */
int sigv4_sign(char *lines, size_t size, const struct sigv4_key *key,
               const struct http_signed *what, time_t now, struct ckpt_err *err);

#endif
