/*
 * body.h - Where a response's body may go, as http_request's begin and put: into memory, or into a
 * digest alone.  Each try of a request starts from the first byte.
 */
#ifndef CKPT_LIBCKPT_REMOTE_BODY_H
#define CKPT_LIBCKPT_REMOTE_BODY_H

#include "libckpt/digest.h"
#include "libckpt/remote/http.h"

/* ctx is a ckpt_buf: it becomes the body. */
int body_text_begin(void *ctx, const struct http_answer *a, struct ckpt_err *err);
int body_text_put(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);

/* ctx is a ckpt_sha256: it has taken the body. */
int body_digest_begin(void *ctx, const struct http_answer *a, struct ckpt_err *err);
int body_digest_put(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);

#endif
