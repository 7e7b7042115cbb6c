/* sign/trust - see trust.h. */
#include "libckpt/sign/trust.h"

#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "libckpt/digest.h"
#include "libckpt/err.h"

int sign_trust_open(struct sign_trust *t, const char *public_key, const char *roots,
                    struct ckpt_err *err)
{
    memset(t, 0, sizeof *t);
    return roots ? sign_chain_open(&t->roots, roots, err)
                 : sign_key_open_public(&t->key, public_key, err);
}

void sign_trust_release(struct sign_trust *t)
{
    sign_key_release(&t->key);
    sign_chain_free(t->roots);
    memset(t, 0, sizeof *t);
}

/* -- certificates ----------------------------------------------------------------------------- */

/* The certificates of a bundle, the signer's first. */
static int chain_of(STACK_OF(X509) **out, const struct sign_bundle *b, struct ckpt_err *err)
{
    *out = sk_X509_new_null();
    for (size_t i = 0; *out && i < b->n_certificates; i++) {
        const unsigned char *at = b->certificate[i].data, *end = at + b->certificate[i].n;
        X509 *one = d2i_X509(NULL, &at, (long)b->certificate[i].n);

        if (!one || at != end || !sk_X509_push(*out, one)) {
            X509_free(one);
            sign_chain_free(*out);
            *out = NULL;
            ERR_clear_error();
            return ckpt_fail(err, CKPT_EFORMAT, "certificate %zu cannot be read", i + 1);
        }
    }
    return *out ? 0 : ckpt_nomem(err, 64);
}

/* Whether the first of chain is one below the roots at that time; X509_V_OK or the reason. */
static int verify_at(const struct sign_trust *t, STACK_OF(X509) *chain, time_t when)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    int verdict = X509_V_ERR_UNSPECIFIED;

    for (int i = 0; store && i < sk_X509_num(t->roots); i++)
        X509_STORE_add_cert(store, sk_X509_value(t->roots, i));
    if (store && ctx && X509_STORE_CTX_init(ctx, store, sk_X509_value(chain, 0), chain) == 1) {
        X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), when);
        verdict = X509_verify_cert(ctx) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(ctx);
        if (verdict == X509_V_OK && X509_STORE_CTX_get_error(ctx) != X509_V_OK)
            verdict = X509_V_ERR_UNSPECIFIED;
    }
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    ERR_clear_error();
    return verdict;
}

/* As the reference: a usage of digital signatures, or the extended one of signing code. */
static bool may_sign(X509 *leaf)
{
    uint32_t usage = X509_get_key_usage(leaf), more = X509_get_extended_key_usage(leaf);

    return (usage != UINT32_MAX && (usage & KU_DIGITAL_SIGNATURE)) ||
           (more != UINT32_MAX && (more & XKU_CODE_SIGN));
}

static bool time_of(time_t *out, const ASN1_TIME *t)
{
    struct tm tm = {0};

    if (ASN1_TIME_to_tm(t, &tm) != 1)
        return false;
    *out = timegm(&tm);
    return *out != (time_t)-1;
}

static void describe(struct sign_signer *who, X509 *leaf)
{
    BIO *bio = BIO_new(BIO_s_mem());
    time_t end;
    struct tm tm;
    int n;

    if (bio && X509_NAME_print_ex(bio, X509_get_subject_name(leaf), 0, XN_FLAG_RFC2253) >= 0 &&
        (n = BIO_read(bio, who->name, sizeof who->name - 1)) > 0)
        who->name[n] = '\0';
    BIO_free(bio);
    if (time_of(&end, X509_get0_notAfter(leaf)) && gmtime_r(&end, &tm))
        strftime(who->until, sizeof who->until, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int check_chain(struct sign_signer *who, const struct sign_trust *t,
                       const struct sign_bundle *b, struct ckpt_err *err)
{
    STACK_OF(X509) *chain;
    EVP_PKEY *key = NULL;
    time_t begin;
    X509 *leaf;
    int verdict, rc = chain_of(&chain, b, err);

    if (rc)
        return rc;
    leaf = sk_X509_value(chain, 0);
    describe(who, leaf);
    if (!time_of(&begin, X509_get0_notBefore(leaf)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "the certificate's times cannot be read");
    if (rc == 0 && (verdict = verify_at(t, chain, begin)) != X509_V_OK)
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "signer", "the certificate of %s is below no given "
                          "root: %s", who->name, X509_verify_cert_error_string(verdict));
    if (rc == 0 && !may_sign(leaf))
        rc = ckpt_fail_as(err, CKPT_EREFUSED, "signer", "the certificate of %s is not for "
                          "signatures", who->name);
    if (rc == 0 && !(key = X509_get_pubkey(leaf)))
        rc = ckpt_fail(err, CKPT_EFORMAT, "the certificate of %s has no key that can be read",
                       who->name);
    rc = rc ? rc : sign_key_check(b, key, err);
    who->expired = rc == 0 && verify_at(t, chain, time(NULL)) != X509_V_OK;
    EVP_PKEY_free(key);
    sign_chain_free(chain);
    ERR_clear_error();
    return rc;
}

/* -- keys ------------------------------------------------------------------------------------- */

static int check_key(struct sign_signer *who, const struct sign_trust *t,
                     const struct sign_bundle *b, struct ckpt_err *err)
{
    if (b->hint && strcmp(b->hint, t->key.hint) != 0)
        return ckpt_fail_as(err, CKPT_EREFUSED, "signer", "it is signed with another key: %.64s, "
                            "the given one is %s", b->hint, t->key.hint);
    memcpy(who->hint, t->key.hint, sizeof who->hint);
    return sign_key_check(b, t->key.key, err);
}

int sign_trust_check(struct sign_manifest *m, struct sign_signer *who, const struct sign_trust *t,
                     const char *text, size_t len, struct ckpt_err *err)
{
    struct sign_bundle b;
    int rc;

    memset(m, 0, sizeof *m);
    memset(who, 0, sizeof *who);
    rc = sign_bundle_parse(&b, text, len, err);
    if (rc == 0 && !t->roots != (b.n_certificates == 0)) {
        ckpt_fail_as(err, CKPT_EREFUSED, "signer", "it is signed with %s", t->roots
                     ? "a key, not with a certificate" : "a certificate, not with a key alone");
        rc = ckpt_err_hint(err, "--%s names what to check it with",
                           t->roots ? "public-key" : "certificate-root");
    }
    if (rc == 0)
        rc = t->roots ? check_chain(who, t, &b, err) : check_key(who, t, &b, err);
    if (rc == 0)
        rc = sign_manifest_parse(m, (const char *)b.payload.data, b.payload.n, err);
    sign_bundle_release(&b);
    return rc;
}
