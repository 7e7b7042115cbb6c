/* oci_write - see oci_write.h. */
#include "libckpt/remote/oci/oci_write.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/remote/body.h"

#define ANSWER_BYTES ((uint64_t)1 << 20)

int oci_ping(struct oci_repo *r, struct ckpt_err *err)
{
    char url[HTTP_URL];
    struct http_answer a = {0};

    snprintf(url, sizeof url, "%s/v2/", r->place.origin);
    return oci_call(r, &(struct http_request){.url = url, .limit = ANSWER_BYTES}, &a, err);
}

int oci_has(bool *has, struct oci_repo *r, const char *digest, uint64_t size, struct ckpt_err *err)
{
    char url[HTTP_URL];
    struct http_answer a = {0};
    int rc = oci_address(url, r, "blobs", digest, err);

    rc = rc ? rc : oci_call(r, &(struct http_request){.url = url, .head = true}, &a, err);
    *has = rc == 0 && (a.length == FIELD_NONE || a.length == size);
    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int oci_mount(bool *has, struct oci_repo *r, const char *digest, const char *from,
              struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = ""};
    char url[HTTP_URL], session[HTTP_URL], origin[512];
    struct ckpt_err ignored = {0};
    struct http_answer a = {0};
    size_t n;
    int rc = oci_address(url, r, "blobs/uploads", "", err);

    *has = false;
    if (rc)
        return rc;
    n = strlen(url);
    if ((size_t)snprintf(url + n, sizeof url - n, "?mount=sha256%%3A%s&from=%s",
                         digest + strlen("sha256:"), from) >= sizeof url - n)
        return 0;
    rc = oci_call(r, &(struct http_request){.url = url, .method = "POST", .body = &nothing,
                                            .limit = ANSWER_BYTES}, &a, &ignored);
    *has = rc == 0 && a.status == 201;
    /* Not lent: a session was opened instead, and is not used. */
    if (rc == 0 && a.status == 202 && *a.location &&
        http_join(session, url, a.location, &ignored) == 0 &&
        http_origin(origin, session, &ignored) == 0 && strcmp(origin, r->place.origin) == 0)
        oci_call(r, &(struct http_request){.url = session, .method = "DELETE",
                                           .limit = ANSWER_BYTES}, &a, &ignored);
    return http_stopped(err);
}

/* The address of a session, with the digest that ends it.  It comes from the server: no http
 * after https. */
static int end_address(char to[HTTP_URL], const struct oci_repo *r, const char *url,
                       const char *location, const char *digest, struct ckpt_err *err)
{
    char origin[512];
    size_t n;

    if (!*location || http_join(to, url, location, err) || http_origin(origin, to, err) ||
        (strncmp(r->place.origin, "https:", 6) == 0 && strncmp(origin, "https:", 6) != 0))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer names no session that can be used",
                         r->place.root);
    n = strlen(to);
    return (size_t)snprintf(to + n, HTTP_URL - n, "%sdigest=sha256%%3A%s", strchr(to, '?') ? "&"
                            : "?", digest + strlen("sha256:")) < HTTP_URL - n
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", r->place.root);
}

int oci_send(struct oci_repo *r, const char *digest, const struct http_body *body,
             struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = ""};
    char url[HTTP_URL], to[HTTP_URL];
    struct http_answer a = {0};
    int rc = oci_address(url, r, "blobs/uploads", "", err);

    rc = rc ? rc : oci_call(r, &(struct http_request){.url = url, .method = "POST",
                            .body = &nothing, .limit = ANSWER_BYTES}, &a, err);
    rc = rc ? rc : end_address(to, r, url, a.location, digest, err);
    if (rc)
        return rc;
    rc = oci_call(r, &(struct http_request){.url = to, .method = "PUT", .body = body,
                                            .limit = ANSWER_BYTES}, &a, err);
    if (rc && (a.status == 404 || a.status == 416))     /* the session, and not the repository */
        return ckpt_fail_as(err, CKPT_ESTOPPED, "session", "%s: the upload's session has ended",
                            r->place.root);
    return rc;
}

int oci_put_manifest(struct oci_repo *r, const char *reference, const char *text, size_t n,
                     struct ckpt_err *err)
{
    const struct http_body body = {.type = OCI_MANIFEST, .bytes = text, .n = n};
    char url[HTTP_URL];
    struct http_answer a = {0};
    int rc = oci_address(url, r, "manifests", reference, err);

    return rc ? rc : oci_call(r, &(struct http_request){.url = url, .method = "PUT", .body = &body,
                              .limit = ANSWER_BYTES}, &a, err);
}

/* -- reading back ----------------------------------------------------------------------------- */

int oci_check(struct oci_repo *r, const char *name, const char *digest, uint64_t size,
              struct ckpt_err *err)
{
    char url[HTTP_URL], hex[CKPT_SHA256_HEX] = "";
    struct http_answer a = {0};
    struct ckpt_sha256 *s;
    int rc = ckpt_sha256_new(&s, err);

    rc = rc ? rc : oci_address(url, r, "blobs", digest, err);
    rc = rc ? rc : oci_call(r, &(struct http_request){.url = url, .limit = size, .ctx = s,
                            .begin = body_digest_begin, .put = body_digest_put}, &a, err);
    rc = ckpt_sha256_finish(hex, s, rc, err);
    return rc || strcmp(hex, digest + strlen("sha256:")) == 0
               ? rc : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed",
                                   "%s: %s is not what was sent", r->place.root, name);
}
