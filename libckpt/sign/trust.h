/*
 * sign/trust - whether a bundle was signed by whom its reader trusts: the owner of a public key, or
 * of a certificate below given roots.
 *
 * A certificate must hold at the beginning of its own validity, as with the reference: a bundle
 * says nothing of the time of signing.  who->expired marks one that has ended since.
 */
#ifndef CKPT_LIBCKPT_SIGN_TRUST_H
#define CKPT_LIBCKPT_SIGN_TRUST_H

#include "libckpt/sign/key.h"
#include "libckpt/sign/manifest.h"

struct sign_trust {
    struct sign_key key;        /* public; key.key is NULL with roots */
    STACK_OF(X509) *roots;
};

/* Who signed, after the signature was checked. */
struct sign_signer {
    char name[512];             /* of the certificate; "" with a key */
    char hint[65];              /* of the key */
    char until[40];             /* end of the certificate's validity, "" with a key */
    bool expired;               /* that is over, or that of a certificate above */
};

/* One of both files, the other is NULL.  Release in any case. */
int sign_trust_open(struct sign_trust *t, const char *public_key, const char *roots,
                    struct ckpt_err *err);
void sign_trust_release(struct sign_trust *t);
/*
 * Check a bundle's signature, and read what it signs.  m is to be released in any case.
 * CKPT_EREFUSED: "signer" by another key or below no root, "signature" when it does not match;
 * else as sign_bundle_parse and sign_manifest_parse.
 */
int sign_trust_check(struct sign_manifest *m, struct sign_signer *who, const struct sign_trust *t,
                     const char *text, size_t len, struct ckpt_err *err);

#endif
