/* sign/bundle - see bundle.h. */
#include "libckpt/sign/bundle.h"

#include <string.h>

#include "libckpt/base/base64.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

#define MEDIA   "application/vnd.dev.sigstore.bundle.v0.3+json"
#define PAYLOAD "application/vnd.in-toto+json"

void sign_bundle_release(struct sign_bundle *b)
{
    ckpt_arena_release(&b->arena);
    memset(b, 0, sizeof *b);
}

void sign_bundle_pae(struct ckpt_buf *out, const void *payload, size_t n)
{
    ckpt_buf_printf(out, "DSSEv1 %zu %s %zu ", strlen(PAYLOAD), PAYLOAD, n);
    ckpt_buf_put(out, payload, n);
}

/* -- reading ---------------------------------------------------------------------------------- */

/* The bytes of a member that is base64. */
static int parse_bytes(struct sign_bytes *out, struct sign_bundle *b, const json_t *of,
                       const char *key, struct ckpt_err *err)
{
    const char *text;
    size_t n;
    int rc = ckpt_json_str(&text, of, key, err);

    if (rc)
        return rc;
    n = strlen(text);
    out->data = ckpt_arena_alloc(&b->arena, n / 4 * 3 + 4, 1);
    if (!out->data)
        return ckpt_nomem(err, n);
    if (base64_decode(out->data, &out->n, text, n) && out->n > 0) {
        char *again = base64_encode(out->data, out->n);     /* one spelling of each value */
        bool same = again && strcmp(again, text) == 0;

        ckpt_free(again);
        if (same)
            return 0;
    }
    return ckpt_fail(err, CKPT_EFORMAT, "%s is no base64", key);
}

/* Refuse members that are not known: they could change what the others mean. */
static int only(const json_t *object, const char *const *known, struct ckpt_err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)object, key, value) {
        const char *const *k = known;

        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k)
            return ckpt_fail(err, CKPT_EFORMAT, "\"%.60s\" is no member that is known", key);
    }
    return 0;
}

static int parse_chain(struct sign_bundle *b, const json_t *chain, struct ckpt_err *err)
{
    json_t *list, *one;
    size_t i;
    int rc = ckpt_json_get(&list, chain, "certificates", JSON_ARRAY, err);

    if (rc == 0 && (json_array_size(list) == 0 || json_array_size(list) > SIGN_CERTIFICATES))
        rc = ckpt_fail(err, CKPT_EFORMAT, "%zu certificates, 1 to %d are wanted",
                       json_array_size(list), SIGN_CERTIFICATES);
    if (rc)
        return rc;
    json_array_foreach (list, i, one)
        if ((rc = parse_bytes(&b->certificate[i], b, one, "rawBytes", err)) != 0)
            return rc;
    b->n_certificates = json_array_size(list);
    return 0;
}

/* What the signature is checked with.  Entries of logs say nothing here: no log is trusted. */
static int parse_material(struct sign_bundle *b, const json_t *bundle, struct ckpt_err *err)
{
    static const char *const known[] = {"publicKey", "x509CertificateChain", "certificate",
                                        "tlogEntries", "timestampVerificationData", NULL};
    static const char *const of_key[] = {"hint", "rawBytes", "keyDetails", NULL};
    json_t *all, *key, *chain;
    const char *hint;
    int rc = ckpt_json_get(&all, bundle, "verificationMaterial", JSON_OBJECT, err);

    rc = rc ? rc : only(all, known, err);
    if (rc)
        return rc;
    key = json_object_get(all, "publicKey");
    chain = json_object_get(all, "x509CertificateChain");
    if (json_object_get(all, "certificate")) {
        ckpt_fail(err, CKPT_EUNSUPPORTED, "it is signed without a key, by an identity of Sigstore");
        return ckpt_err_hint(err, "model_signing verify sigstore checks that");
    }
    if (!json_is_object(key) == !json_is_object(chain))
        return ckpt_fail(err, CKPT_EFORMAT, "one of publicKey and x509CertificateChain is wanted");
    if (chain)
        return parse_chain(b, chain, err);
    rc = only(key, of_key, err);
    rc = rc ? rc : ckpt_json_str_or(&hint, key, "hint", "", err);
    if (rc || !*hint)
        return rc;
    b->hint = ckpt_arena_strndup(&b->arena, hint, strlen(hint));
    return b->hint ? 0 : ckpt_nomem(err, strlen(hint));
}

static int parse_envelope(struct sign_bundle *b, const json_t *bundle, struct ckpt_err *err)
{
    static const char *const known[] = {"payload", "payloadType", "signatures", NULL};
    static const char *const of_one[] = {"sig", "keyid", NULL};
    json_t *envelope, *list;
    const char *type;
    int rc = ckpt_json_get(&envelope, bundle, "dsseEnvelope", JSON_OBJECT, err);

    rc = rc ? rc : only(envelope, known, err);
    rc = rc ? rc : ckpt_json_str(&type, envelope, "payloadType", err);
    rc = rc ? rc : ckpt_json_get(&list, envelope, "signatures", JSON_ARRAY, err);
    if (rc)
        return rc;
    if (strcmp(type, PAYLOAD) != 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "what is signed is \"%.80s\", %s is wanted", type,
                         PAYLOAD);
    if (json_array_size(list) != 1)
        return ckpt_fail(err, CKPT_EFORMAT, "%zu signatures, one is wanted", json_array_size(list));
    rc = only(json_array_get(list, 0), of_one, err);
    rc = rc ? rc : parse_bytes(&b->payload, b, envelope, "payload", err);
    return rc ? rc : parse_bytes(&b->signature, b, json_array_get(list, 0), "sig", err);
}

int sign_bundle_parse(struct sign_bundle *b, const char *text, size_t len, struct ckpt_err *err)
{
    static const char *const known[] = {"mediaType", "verificationMaterial", "dsseEnvelope",
                                        "messageSignature", NULL};
    const char *media;
    json_t *bundle;
    int rc;

    memset(b, 0, sizeof *b);
    if (len > SIGN_BUNDLE_MAX)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %zu MiB", SIGN_BUNDLE_MAX >> 20);
    if ((rc = ckpt_json_parse(&bundle, text, len, CKPT_JSON_STRICT, err)) != 0)
        return rc;
    rc = ckpt_json_str(&media, bundle, "mediaType", err);
    if (rc == 0 && strcmp(media, MEDIA) != 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a bundle of the kind \"%.80s\", %s is read", media,
                       MEDIA);
    rc = rc ? rc : only(bundle, known, err);
    rc = rc ? rc : parse_material(b, bundle, err);
    rc = rc ? rc : parse_envelope(b, bundle, err);
    json_decref(bundle);
    return rc;
}

/* -- writing ---------------------------------------------------------------------------------- */

static json_t *text_of(const struct sign_bytes *b)
{
    char *text = base64_encode(b->data, b->n);
    json_t *json = text ? json_string(text) : NULL;

    ckpt_free(text);
    return json;
}

static json_t *material_of(const struct sign_bundle *b)
{
    json_t *list;

    if (b->n_certificates == 0)
        return json_pack("{s:{s:s}, s:[]}", "publicKey", "hint", b->hint, "tlogEntries");
    list = json_array();
    for (size_t i = 0; i < b->n_certificates; i++)
        if (json_array_append_new(list, json_pack("{s:o}", "rawBytes",
                                                  text_of(&b->certificate[i])))) {
            json_decref(list);
            return NULL;
        }
    return json_pack("{s:{s:o}, s:[]}", "x509CertificateChain", "certificates", list,
                     "tlogEntries");
}

json_t *sign_bundle_json(const struct sign_bundle *b)
{
    return json_pack("{s:s, s:o, s:{s:o, s:s, s:[{s:o, s:s}]}}", "mediaType", MEDIA,
                     "verificationMaterial", material_of(b), "dsseEnvelope", "payload",
                     text_of(&b->payload), "payloadType", PAYLOAD, "signatures", "sig",
                     text_of(&b->signature), "keyid", "");
}
