/* body - see body.h. */
#include "libckpt/remote/body.h"

#include "libckpt/base/buf.h"
#include "libckpt/err.h"

int body_text_begin(void *ctx, const struct http_answer *a, struct ckpt_err *err)
{
    (void)a;
    (void)err;
    ((struct ckpt_buf *)ctx)->len = 0;
    return 0;
}

int body_text_put(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    ckpt_buf_put(ctx, bytes, n);
    return ckpt_buf_ok(ctx) ? 0 : ckpt_nomem(err, n);
}

/* Ending a digest begins the next. */
int body_digest_begin(void *ctx, const struct http_answer *a, struct ckpt_err *err)
{
    unsigned char digest[CKPT_SHA256_BYTES];

    (void)a;
    return ckpt_sha256_end(ctx, digest, err);
}

int body_digest_put(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    return ckpt_sha256_add(ctx, bytes, n, err);
}
