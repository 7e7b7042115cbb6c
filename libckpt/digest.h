/*
 * digest - digests of bytes: SHA-256 (OpenSSL) and XXH3-128 (xxHash).
 */
#ifndef CKPT_LIBCKPT_DIGEST_H
#define CKPT_LIBCKPT_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"

CKPT_BEGIN_C

#define CKPT_SHA256_BYTES 32
#define CKPT_SHA256_HEX   65    /* with terminator */
#define CKPT_XXH128_BYTES 16

struct ckpt_sha256;

int ckpt_sha256_new(struct ckpt_sha256 **out, struct ckpt_err *err);
int ckpt_sha256_add(struct ckpt_sha256 *s, const void *bytes, size_t n, struct ckpt_err *err);
/* Fill digest and start anew. */
int ckpt_sha256_end(struct ckpt_sha256 *s, unsigned char digest[CKPT_SHA256_BYTES],
                    struct ckpt_err *err);
void ckpt_sha256_free(struct ckpt_sha256 *s);
/* The last call of one that made s: unless rc is a failure, fill hex (lower case); free s (may be
 * NULL).  Returns rc, or the failure to do so. */
int ckpt_sha256_finish(char hex[CKPT_SHA256_HEX], struct ckpt_sha256 *s, int rc,
                       struct ckpt_err *err);

/* SHA-256 of a whole file as lower-case hex. */
int ckpt_sha256_file(char hex[CKPT_SHA256_HEX], struct ckpt_file *file, struct ckpt_err *err);
void ckpt_digest_hex(char *dst, const unsigned char *bytes, size_t n);   /* 2n + 1 bytes of dst */
/* XXH3 with 128 bits, canonical byte order. */
void ckpt_xxh128(unsigned char digest[CKPT_XXH128_BYTES], const void *bytes, size_t n);

/* The same in pieces. */
struct ckpt_xxh128_state;

int ckpt_xxh128_new(struct ckpt_xxh128_state **out, struct ckpt_err *err);
void ckpt_xxh128_add(struct ckpt_xxh128_state *s, const void *bytes, size_t n);
/* Fill digest and start anew. */
void ckpt_xxh128_end(struct ckpt_xxh128_state *s, unsigned char digest[CKPT_XXH128_BYTES]);
void ckpt_xxh128_free(struct ckpt_xxh128_state *s);

CKPT_END_C

#endif
