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

/* The address of a session, as an answer names it.  It comes from the server: no http after
 * https. */
static int session_address(char to[HTTP_URL], const struct oci_repo *r, const char *url,
                           const char *location, struct ckpt_err *err)
{
    char origin[512];

    if (!*location || http_join(to, url, location, err) || http_origin(origin, to, err) ||
        (strncmp(r->place.origin, "https:", 6) == 0 && strncmp(origin, "https:", 6) != 0))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer names no session that can be used",
                         r->place.root);
    return 0;
}

static int begin_session(char to[HTTP_URL], struct oci_repo *r, struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = ""};
    char url[HTTP_URL];
    struct http_answer a = {0};
    int rc = oci_address(url, r, "blobs/uploads", "", err);

    rc = rc ? rc : oci_call(r, &(struct http_request){.url = url, .method = "POST",
                            .body = &nothing, .limit = ANSWER_BYTES}, &a, err);
    return rc ? rc : session_address(to, r, url, a.location, err);
}

/* What a request to a session came to: another session may succeed where this one has ended. */
static int session_code(const struct oci_repo *r, int rc, long status, struct ckpt_err *err)
{
    bool lost = rc == CKPT_ESTOPPED && strcmp(err->reason, "unanswered") == 0;

    if (rc && (status == 404 || status == 416 || lost))     /* the session, not the repository */
        return ckpt_fail_as(err, CKPT_ESTOPPED, "session", "%s: the upload's session has ended",
                            r->place.root);
    return rc;
}

/* End a session by the digest of its blob, with all of it or after its parts. */
static int end_session(struct oci_repo *r, char session[HTTP_URL], const char *digest,
                       const struct http_body *body, long *status, struct ckpt_err *err)
{
    struct http_answer a = {0};
    size_t n = strlen(session);
    int rc;

    if ((size_t)snprintf(session + n, HTTP_URL - n, "%sdigest=sha256%%3A%s",
                         strchr(session, '?') ? "&" : "?", digest + strlen("sha256:")) >=
        HTTP_URL - n)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", r->place.root);
    rc = oci_call(r, &(struct http_request){.url = session, .method = "PUT", .body = body,
                                            .limit = ANSWER_BYTES}, &a, err);
    *status = a.status;
    return session_code(r, rc, a.status, err);
}

/* In parts of so many bytes, one after another: each answer names where the next one goes.  The
 * registry digests what came. */
static int send_parts(struct oci_repo *r, const char *digest, const struct http_body *body,
                      uint64_t each, long *status, struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = ""};
    struct http_body part = *body;
    char session[HTTP_URL], next[HTTP_URL], range[80];
    int rc = begin_session(session, r, err);

    *status = 0;
    part.begin = NULL;
    part.pass = NULL;
    part.sha256 = NULL;
    for (uint64_t at = 0; rc == 0 && at < body->n; at += part.n) {
        struct http_answer a = {0};

        part.n = body->n - at < each ? body->n - at : each;
        part.at = body->at + at;
        part.bytes = body->bytes ? (const char *)body->bytes + at : NULL;
        snprintf(range, sizeof range, "Content-Range: %llu-%llu\n", (unsigned long long)at,
                 (unsigned long long)(at + part.n - 1));
        rc = oci_call(r, &(struct http_request){.url = session, .method = "PATCH", .body = &part,
                      .headers = range, .once = true, .limit = ANSWER_BYTES}, &a, err);
        *status = a.status;
        rc = session_code(r, rc, a.status, err);
        rc = rc ? rc : session_address(next, r, session, a.location, err);
        memcpy(session, next, rc == 0 ? strlen(next) + 1 : 0);
    }
    return rc ? rc : end_session(r, session, digest, &nothing, status, err);
}

int oci_send(struct oci_repo *r, const char *digest, const struct http_body *body,
             struct ckpt_err *err)
{
    static const uint64_t parts[] = {(uint64_t)16 << 20, (uint64_t)1 << 20};
    char session[HTTP_URL];
    long status = 0;
    int rc = begin_session(session, r, err);

    rc = rc ? rc : end_session(r, session, digest, body, &status, err);
    for (size_t i = 0; rc && status == 413 && i < sizeof parts / sizeof parts[0]; i++)
        if (body->n > parts[i]) {       /* what stands before a registry may bound a request */
            ckpt_err_clear(err);
            rc = send_parts(r, digest, body, parts[i], &status, err);
        }
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
