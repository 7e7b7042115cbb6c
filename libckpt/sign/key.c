/* sign/key - see key.h. */
#include "libckpt/sign/key.h"

#include <string.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/file.h"

#define PEM_MAX ((uint64_t)4 << 20)     /* bytes of a file: the roots of a system are half a MiB */

static const struct { const char *group; const EVP_MD *(*md)(void); } curves[] = {
    {"prime256v1", EVP_sha256}, {"secp384r1", EVP_sha384}, {"secp521r1", EVP_sha512},
};

/* The library's reason for its last error, which is forgotten. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return text ? text : "no reason is known";
}

static const EVP_MD *digest_for(const EVP_PKEY *key)
{
    char group[64] = "";

    if (EVP_PKEY_get_base_id(key) == EVP_PKEY_EC)
        EVP_PKEY_get_group_name(key, group, sizeof group, NULL);
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++)
        if (strcmp(group, curves[i].group) == 0)
            return curves[i].md();
    return NULL;
}

int sign_key_supported(const EVP_PKEY *key, struct ckpt_err *err)
{
    const char *name = EVP_PKEY_get0_type_name(key);

    if (digest_for(key))
        return 0;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "a key of the kind %.40s on no curve that models are "
                     "signed with: P-256, P-384, P-521", name ? name : "?");
}

/* -- files ------------------------------------------------------------------------------------ */

/* A file in memory, for the library's readers; wipe what arena has before it is released. */
static int open_pem(BIO **out, struct ckpt_arena *arena, char **text, size_t *n, const char *path,
                    struct ckpt_err *err)
{
    struct ckpt_file *file;
    int rc = ckpt_file_open(&file, path, CKPT_FOLLOW, err);

    *out = NULL;
    if (rc)
        return rc;
    rc = ckpt_file_slurp(file, arena, PEM_MAX, text, n, err);
    ckpt_file_close(file);
    if (rc == 0 && !(*out = BIO_new_mem_buf(*text, (int)*n)))
        rc = ckpt_nomem(err, 64);
    return rc;
}

struct phrase {
    const char *text;
    bool        asked;
};

static int give_phrase(char *to, int size, int writes, void *ctx)
{
    struct phrase *p = ctx;
    size_t n = p->text ? strlen(p->text) : 0;

    (void)writes;
    p->asked = true;
    if (!p->text || n > (size_t)size)
        return -1;
    memcpy(to, p->text, n);
    return (int)n;
}

/* The hint of a public key. */
static int make_hint(struct sign_key *k, struct ckpt_err *err)
{
    unsigned char digest[CKPT_SHA256_BYTES];
    BIO *bio = BIO_new(BIO_s_mem());
    char *text;
    long n = 0;
    bool ok = bio && PEM_write_bio_PUBKEY(bio, k->key) == 1 &&
              (n = BIO_get_mem_data(bio, &text)) > 0 &&
              EVP_Digest(text, (size_t)n, digest, NULL, EVP_sha256(), NULL) == 1;

    if (ok)
        ckpt_digest_hex(k->hint, digest, sizeof digest);
    BIO_free(bio);
    return ok ? 0 : ckpt_fail(err, CKPT_EFORMAT, "the public key: %s", reason());
}

/* A key with all that is asked of it. */
static int take_key(struct sign_key *k, const char *path, const struct phrase *phrase,
                    const char *kind, struct ckpt_err *err)
{
    int rc;

    if (!k->key && phrase->asked) {
        reason();
        ckpt_fail_as(err, CKPT_EREFUSED, "passphrase", "%s: %s", path, phrase->text
                     ? "the passphrase does not open it" : "it is encrypted, and no passphrase is "
                     "given");
        return CKPT_EREFUSED;
    }
    if (!k->key)
        return ckpt_fail(err, CKPT_EFORMAT, "%s: no %s key in PEM: %s", path, kind, reason());
    rc = sign_key_supported(k->key, err);
    rc = rc ? rc : make_hint(k, err);
    return rc ? ckpt_err_in(err, "%s", path) : 0;
}

int sign_key_open(struct sign_key *k, const char *path, const char *certificates,
                  const char *passphrase, struct ckpt_err *err)
{
    struct phrase phrase = {.text = passphrase};
    struct ckpt_arena arena = {0};
    BIO *bio = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc;

    memset(k, 0, sizeof *k);
    rc = open_pem(&bio, &arena, &text, &n, path, err);
    if (rc == 0) {
        k->key = PEM_read_bio_PrivateKey(bio, NULL, give_phrase, &phrase);
        rc = take_key(k, path, &phrase, "private", err);
    }
    BIO_free(bio);
    if (text)
        OPENSSL_cleanse(text, n);
    ckpt_arena_release(&arena);
    if (rc == 0 && certificates)
        rc = sign_chain_open(&k->chain, certificates, err);
    if (rc == 0 && k->chain && sk_X509_num(k->chain) > SIGN_CERTIFICATES)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: more than %d certificates", certificates,
                       SIGN_CERTIFICATES);
    if (rc == 0 && k->chain && X509_check_private_key(sk_X509_value(k->chain, 0), k->key) != 1) {
        reason();
        ckpt_fail(err, CKPT_EMISMATCH, "%s: the first certificate is not that of the key %s",
                  certificates, path);
        rc = ckpt_err_hint(err, "the signer's certificate comes first, then those above it");
    }
    return rc;
}

int sign_key_open_public(struct sign_key *k, const char *path, struct ckpt_err *err)
{
    struct phrase phrase = {0};
    struct ckpt_arena arena = {0};
    BIO *bio = NULL;
    char *text;
    size_t n;
    int rc;

    memset(k, 0, sizeof *k);
    rc = open_pem(&bio, &arena, &text, &n, path, err);
    if (rc == 0) {
        k->key = PEM_read_bio_PUBKEY(bio, NULL, give_phrase, &phrase);
        rc = take_key(k, path, &phrase, "public", err);
    }
    BIO_free(bio);
    ckpt_arena_release(&arena);
    return rc;
}

void sign_chain_free(STACK_OF(X509) *chain) { sk_X509_pop_free(chain, X509_free); }

void sign_key_release(struct sign_key *k)
{
    EVP_PKEY_free(k->key);
    sign_chain_free(k->chain);
    memset(k, 0, sizeof *k);
}

int sign_chain_open(STACK_OF(X509) **out, const char *path, struct ckpt_err *err)
{
    struct phrase phrase = {0};
    struct ckpt_arena arena = {0};
    BIO *bio = NULL;
    X509 *one;
    char *text;
    size_t n;
    int rc = open_pem(&bio, &arena, &text, &n, path, err);

    *out = rc ? NULL : sk_X509_new_null();
    if (rc == 0 && !*out)
        rc = ckpt_nomem(err, 64);
    while (rc == 0 && (one = PEM_read_bio_X509(bio, NULL, give_phrase, &phrase)) != NULL)
        if (!sk_X509_push(*out, one)) {
            X509_free(one);
            rc = ckpt_nomem(err, 64);
        }
    if (rc == 0 && (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE ||
                    sk_X509_num(*out) == 0))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%s: no certificates in PEM: %s", path, reason());
    ERR_clear_error();
    BIO_free(bio);
    ckpt_arena_release(&arena);
    if (rc) {
        sign_chain_free(*out);
        *out = NULL;
    }
    return rc;
}

/* -- signatures ------------------------------------------------------------------------------- */

static int put_certificates(struct sign_bundle *b, const struct sign_key *k, struct ckpt_err *err)
{
    for (int i = 0; i < sk_X509_num(k->chain); i++) {
        struct sign_bytes *to = &b->certificate[i];
        int n = i2d_X509(sk_X509_value(k->chain, i), NULL);
        unsigned char *end;

        if (n <= 0)
            return ckpt_fail(err, CKPT_EFORMAT, "a certificate: %s", reason());
        to->n = (size_t)n;
        if (!(to->data = end = ckpt_arena_alloc(&b->arena, to->n, 1)))
            return ckpt_nomem(err, to->n);
        i2d_X509(sk_X509_value(k->chain, i), &end);
        b->n_certificates = (size_t)i + 1;
    }
    return 0;
}

int sign_key_sign(struct sign_bundle *b, const struct sign_key *k, struct ckpt_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct ckpt_buf pae;
    int rc = 0;

    ckpt_buf_init(&pae, SIGN_TEXT_MAX + 256);
    sign_bundle_pae(&pae, b->payload.data, b->payload.n);
    if (!ctx || !ckpt_buf_ok(&pae))
        rc = ckpt_nomem(err, b->payload.n);
    b->signature.n = (size_t)EVP_PKEY_get_size(k->key);
    if (rc == 0 && !(b->signature.data = ckpt_arena_alloc(&b->arena, b->signature.n, 1)))
        rc = ckpt_nomem(err, b->signature.n);
    if (rc == 0 && (EVP_DigestSignInit(ctx, NULL, digest_for(k->key), NULL, k->key) != 1 ||
                    EVP_DigestSign(ctx, b->signature.data, &b->signature.n, pae.data,
                                   pae.len) != 1))
        rc = ckpt_fail(err, CKPT_EIO, "signing: %s", reason());
    EVP_MD_CTX_free(ctx);
    ckpt_buf_release(&pae);
    if (rc == 0 && !(b->hint = ckpt_arena_strndup(&b->arena, k->hint, strlen(k->hint))))
        rc = ckpt_nomem(err, sizeof k->hint);
    return rc == 0 && k->chain ? put_certificates(b, k, err) : rc;
}

int sign_key_check(const struct sign_bundle *b, EVP_PKEY *key, struct ckpt_err *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct ckpt_buf pae;
    int good = 0, rc = sign_key_supported(key, err);

    ckpt_buf_init(&pae, SIGN_BUNDLE_MAX);
    sign_bundle_pae(&pae, b->payload.data, b->payload.n);
    if (rc == 0 && (!ctx || !ckpt_buf_ok(&pae)))
        rc = ckpt_nomem(err, b->payload.n);
    if (rc == 0 && EVP_DigestVerifyInit(ctx, NULL, digest_for(key), NULL, key) == 1)
        good = EVP_DigestVerify(ctx, b->signature.data, b->signature.n, pae.data, pae.len);
    ERR_clear_error();
    EVP_MD_CTX_free(ctx);
    ckpt_buf_release(&pae);
    return rc || good == 1
               ? rc : ckpt_fail_as(err, CKPT_EREFUSED, "signature", "the signature does not match "
                                   "what it is said to be of");
}
