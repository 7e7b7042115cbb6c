/*
 * sign/key - the keys and certificates that models are signed and verified with, from PEM files.
 *
 * ECDSA on P-256 with SHA-256, P-384 with SHA-384, P-521 with SHA-512: what the specification
 * names and the reference has.  Other keys are refused.
 */
#ifndef CKPT_LIBCKPT_SIGN_KEY_H
#define CKPT_LIBCKPT_SIGN_KEY_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "libckpt/sign/bundle.h"

struct sign_key {
    EVP_PKEY       *key;
    STACK_OF(X509) *chain;      /* the signer's certificate first; NULL: none */
    char            hint[65];   /* SHA-256 of the public key's PEM text, as hex */
};

/* A private key, with the certificates of a second file (NULL: none).  passphrase: of the key's
 * file, or NULL.  CKPT_EREFUSED "passphrase" when it is wrong or missing, CKPT_EMISMATCH when the
 * first certificate is not the key's.  Release in any case. */
int sign_key_open(struct sign_key *k, const char *path, const char *certificates,
                  const char *passphrase, struct ckpt_err *err);
/* A public key. */
int sign_key_open_public(struct sign_key *k, const char *path, struct ckpt_err *err);
void sign_key_release(struct sign_key *k);

/* Fill b's signature, and what it is to be checked with, from its payload. */
int sign_key_sign(struct sign_bundle *b, const struct sign_key *k, struct ckpt_err *err);
/* CKPT_EREFUSED "signature" when b's signature is not by that key. */
int sign_key_check(const struct sign_bundle *b, EVP_PKEY *key, struct ckpt_err *err);

/* All certificates of a PEM file; free with sign_chain_free. */
int sign_chain_open(STACK_OF(X509) **out, const char *path, struct ckpt_err *err);
void sign_chain_free(STACK_OF(X509) *chain);
/* CKPT_EUNSUPPORTED when nothing is signed with such a key. */
int sign_key_supported(const EVP_PKEY *key, struct ckpt_err *err);

#endif
