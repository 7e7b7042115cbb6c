/* digest - see digest.h. */
#include "libckpt/digest.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "libckpt/base/evp.h"
#include "libckpt/mem.h"

#define CHUNK ((size_t)1 << 20)

struct ckpt_sha256 {
    EVP_MD_CTX *ctx;
};

static int start(struct ckpt_sha256 *s, struct ckpt_err *err)
{
    ERR_clear_error();
    return EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1 ? 0
                                                              : ckpt_evp_failed(err, "sha-256");
}

int ckpt_sha256_new(struct ckpt_sha256 **out, struct ckpt_err *err)
{
    struct ckpt_sha256 *s = ckpt_alloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->ctx = EVP_MD_CTX_new();
    if (!s->ctx) {
        ckpt_free(s);
        return ckpt_nomem(err, sizeof *s);
    }
    rc = start(s, err);
    if (rc) {
        ckpt_sha256_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

int ckpt_sha256_add(struct ckpt_sha256 *s, const void *bytes, size_t n, struct ckpt_err *err)
{
    return EVP_DigestUpdate(s->ctx, bytes, n) == 1 ? 0
                                                   : ckpt_evp_failed(err, "sha-256");
}

int ckpt_sha256_end(struct ckpt_sha256 *s, unsigned char digest[CKPT_SHA256_BYTES],
                    struct ckpt_err *err)
{
    if (EVP_DigestFinal_ex(s->ctx, digest, NULL) != 1)
        return ckpt_evp_failed(err, "sha-256");
    return start(s, err);
}

void ckpt_sha256_free(struct ckpt_sha256 *s)
{
    if (s)
        EVP_MD_CTX_free(s->ctx);
    ckpt_free(s);
}

void ckpt_digest_hex(char *dst, const unsigned char *bytes, size_t n)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        dst[2 * i] = hex[bytes[i] >> 4];
        dst[2 * i + 1] = hex[bytes[i] & 15];
    }
    dst[2 * n] = '\0';
}

int ckpt_sha256_finish(char hex[CKPT_SHA256_HEX], struct ckpt_sha256 *s, int rc,
                       struct ckpt_err *err)
{
    unsigned char digest[CKPT_SHA256_BYTES];

    rc = rc ? rc : ckpt_sha256_end(s, digest, err);
    if (rc == 0)
        ckpt_digest_hex(hex, digest, sizeof digest);
    ckpt_sha256_free(s);
    return rc;
}

int ckpt_sha256_file(char hex[CKPT_SHA256_HEX], struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    void *chunk = ckpt_alloc_buffer(CHUNK);
    struct ckpt_sha256 *s = NULL;
    int rc = chunk ? ckpt_sha256_new(&s, err) : ckpt_nomem(err, CHUNK);

    ckpt_file_sequential(file);
    for (uint64_t at = 0; rc == 0 && at < size; at += CHUNK) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        rc = ckpt_file_read_at(file, chunk, n, at, err);
        if (rc == 0)
            rc = ckpt_sha256_add(s, chunk, n, err);
    }
    rc = ckpt_sha256_finish(hex, s, rc, err);
    ckpt_free(chunk);
    return rc;
}

static void put_canonical(unsigned char digest[CKPT_XXH128_BYTES], XXH128_hash_t hash)
{
    XXH128_canonical_t c;

    XXH128_canonicalFromHash(&c, hash);
    for (size_t i = 0; i < sizeof c.digest; i++)
        digest[i] = c.digest[i];
}

void ckpt_xxh128(unsigned char digest[CKPT_XXH128_BYTES], const void *bytes, size_t n)
{
    put_canonical(digest, XXH3_128bits(bytes, n));
}

struct ckpt_xxh128_state {
    XXH3_state_t *state;
};

int ckpt_xxh128_new(struct ckpt_xxh128_state **out, struct ckpt_err *err)
{
    struct ckpt_xxh128_state *s = ckpt_alloc(1, sizeof *s);

    *out = NULL;
    if (s)
        s->state = XXH3_createState();
    if (!s || !s->state) {
        ckpt_free(s);
        return ckpt_nomem(err, sizeof *s);
    }
    XXH3_128bits_reset(s->state);
    *out = s;
    return 0;
}

void ckpt_xxh128_add(struct ckpt_xxh128_state *s, const void *bytes, size_t n)
{
    XXH3_128bits_update(s->state, bytes, n);
}

void ckpt_xxh128_end(struct ckpt_xxh128_state *s, unsigned char digest[CKPT_XXH128_BYTES])
{
    put_canonical(digest, XXH3_128bits_digest(s->state));
    XXH3_128bits_reset(s->state);
}

void ckpt_xxh128_free(struct ckpt_xxh128_state *s)
{
    if (s)
        XXH3_freeState(s->state);
    ckpt_free(s);
}
