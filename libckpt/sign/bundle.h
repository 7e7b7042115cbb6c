/*
 * sign/bundle - the file model.sig: a bundle of Sigstore with an envelope (DSSE) in it.
 *
 *   {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
 *    "verificationMaterial": {"publicKey": {"hint": HEX}, "tlogEntries": []},
 *    "dsseEnvelope": {"payload": BASE64, "payloadType": "application/vnd.in-toto+json",
 *                     "signatures": [{"sig": BASE64, "keyid": ""}]}}
 *
 * With certificates the material is {"x509CertificateChain": {"certificates": [{"rawBytes":
 * BASE64 of DER}, ...]}}, that of the signer first.  The hint is the SHA-256 of the public key's
 * PEM text.  What is signed is not the payload but its encoding with its type (PAE).
 * Source: ossf/model-signing-spec v1.0; DSSE 1.0; model-signing 1.1.1 sign_sigstore_pb.py.
 */
#ifndef CKPT_LIBCKPT_SIGN_BUNDLE_H
#define CKPT_LIBCKPT_SIGN_BUNDLE_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define SIGN_TEXT_MAX     ((size_t)64 << 20)    /* bytes of a statement */
#define SIGN_BUNDLE_MAX   ((size_t)96 << 20)    /* bytes of a bundle: a statement in base64 */
#define SIGN_CERTIFICATES 16                    /* in one chain */

struct sign_bytes {
    unsigned char *data;
    size_t         n;
};

struct sign_bundle {
    struct ckpt_arena arena;
    struct sign_bytes payload, signature;
    const char       *hint;     /* of the public key; NULL: of an older writer, or certificates */
    struct sign_bytes certificate[SIGN_CERTIFICATES];   /* DER, the signer's first */
    size_t            n_certificates;
};

/* Read one; release it in any case.  CKPT_EUNSUPPORTED: signed without a key (Sigstore's identities
 * and logs), or of another version. */
int sign_bundle_parse(struct sign_bundle *b, const char *text, size_t len, struct ckpt_err *err);
void sign_bundle_release(struct sign_bundle *b);
/* As JSON, a new reference.  NULL: no memory. */
json_t *sign_bundle_json(const struct sign_bundle *b);
/* The bytes that are signed for a payload. */
void sign_bundle_pae(struct ckpt_buf *out, const void *payload, size_t n);

#endif
