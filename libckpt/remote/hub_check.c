/* hub_check - see hub_check.h. */
#include "libckpt/remote/hub_check.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/digest.h"

/* Bytes that arrive, digested as git or Git LFS does. */
struct arriving {
    EVP_MD_CTX *md;
    uint64_t    size;
    bool        lfs;
};

/* Each try begins anew. */
static int begin(void *ctx, const struct http_answer *a, struct ckpt_err *err)
{
    struct arriving *x = ctx;
    char head[40];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)x->size) + 1;

    (void)a;
    return EVP_DigestInit_ex(x->md, x->lfs ? EVP_sha256() : EVP_sha1(), NULL) == 1 &&
                   (x->lfs || EVP_DigestUpdate(x->md, head, (size_t)n) == 1)
               ? 0 : ckpt_nomem(err, 256);
}

static int put(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct arriving *x = ctx;

    return EVP_DigestUpdate(x->md, bytes, n) == 1 ? 0 : ckpt_nomem(err, 256);
}

int hub_check(const struct hub_repo *r, const char *commit, const char *path, uint64_t size,
              bool lfs, const char *oid, struct ckpt_err *err)
{
    struct arriving x = {.md = EVP_MD_CTX_new(), .size = size, .lfs = lfs};
    bool model = strcmp(r->kind, "models") == 0;
    char url[HTTP_URL], part[3 * 1365 + 1], hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned char digest[EVP_MAX_MD_SIZE];
    struct http_answer a;
    unsigned n = 0;
    int rc = x.md ? 0 : ckpt_nomem(err, 256);

    if (rc == 0 && (!http_escape(part, sizeof part, path, "/") ||
                    (size_t)snprintf(url, sizeof url, "%s/%s%s%s/resolve/%s/%s", r->auth.endpoint,
                                     model ? "" : r->kind, model ? "" : "/", r->id, commit,
                                     part) >= sizeof url))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", path);
    rc = rc ? rc : http_get(r->http, &(struct http_request){
        .url = url, .name = path, .auth = hub_auth_of(&r->auth), .limit = size, .begin = begin,
        .put = put, .ctx = &x}, &a, err);
    if (rc == 0 && EVP_DigestFinal_ex(x.md, digest, &n) != 1)
        rc = ckpt_nomem(err, 256);
    EVP_MD_CTX_free(x.md);
    if (rc)
        return rc;
    ckpt_digest_hex(hex, digest, n);
    return strcmp(hex, oid) == 0
               ? 0 : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: %s of commit %s is not "
                                  "what was sent", r->name, path, commit);
}
