/* dav_write - see dav_write.h. */
#include "libckpt/remote/dav/dav_write.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "libckpt/remote/body.h"

#define LONG_BODY  ((uint64_t)1 << 20)      /* beyond it the server is asked for leave */
#define TEXT_BYTES ((uint64_t)1 << 20)

int dav_aside(char aside[DAV_PATH], const char *path, const char *oid, struct ckpt_err *err)
{
    const char *slash = strrchr(path, '/');
    unsigned char digest[CKPT_XXH128_BYTES];
    char hex[2 * CKPT_XXH128_BYTES + 1];

    ckpt_xxh128(digest, path, strlen(path));
    ckpt_digest_hex(hex, digest, sizeof digest);
    return (size_t)snprintf(aside, DAV_PATH, "%.*s.ckpt-push-%.16s%.8s",
                            slash ? (int)(slash - path) + 1 : 0, path, oid, hex) < DAV_PATH
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: the path is too long", path);
}

/* Messages name a file by its address. */
static const char *name_of(char name[5200], const struct dav *d, const char *path)
{
    snprintf(name, 5200, "%s%s%.4000s", d->name, *path ? "/" : "", path);
    return name;
}

int dav_head(struct dav_file *f, const struct dav *d, const char *path, struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char *url = http ? ckpt_alloc(1, HTTP_URL) : NULL, name[5200];
    struct http_answer a = {0};
    int rc = url ? dav_address(url, d, path, err)
                 : http ? ckpt_nomem(err, HTTP_URL) : ckpt_err_code(err);

    rc = rc ? rc : http_get(http, &(struct http_request){.url = url, .name = name_of(name, d, path),
                            .auth = dav_auth(d), .head = true}, &a, err);
    ckpt_free(url);
    *f = (struct dav_file){.exists = rc == 0, .size = FIELD_NONE};
    if (rc == 0) {
        f->size = a.length;
        memcpy(f->tag, a.tag, sizeof f->tag);
    } else if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int dav_put(const struct dav *d, const char *path, const struct http_body *body,
            struct ckpt_err *err)
{
    struct http_body with = *body;
    struct http_answer a;
    char name[5200];

    with.ask = body->n > LONG_BODY;
    return dav_ask(NULL, d, &(struct dav_call){.name = name_of(name, d, path), .method = "PUT",
                                               .path = path, .body = &with}, &a, err);
}

int dav_move(const struct dav *d, const char *aside, const char *path, bool replace,
             struct ckpt_err *err)
{
    char *url = ckpt_alloc(1, HTTP_URL), *lines = ckpt_alloc(1, HTTP_URL + 100), name[5200];
    struct http_answer a;
    int rc = url && lines ? dav_address(url, d, path, err) : ckpt_nomem(err, 2 * HTTP_URL);

    if (rc == 0)
        snprintf(lines, HTTP_URL + 100, "Destination: %s\nOverwrite: %s\n", url,
                 replace ? "T" : "F");
    rc = rc ? rc : dav_ask(NULL, d, &(struct dav_call){.name = name_of(name, d, path),
                           .method = "MOVE", .path = aside, .headers = lines}, &a, err);
    ckpt_free(lines);
    ckpt_free(url);
    return rc;
}

/* MKCOL; 405 says that something is there. */
static int make_one(const struct dav *d, const char *name, const char *path, bool *exists,
                    struct ckpt_err *err)
{
    struct http_answer a;
    int rc = dav_ask(NULL, d, &(struct dav_call){.name = name, .method = "MKCOL", .path = path}, &a,
                     err);

    *exists = rc && a.status == 405;
    if (*exists) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int dav_make_folder(const struct dav *d, const char *path, struct ckpt_err *err)
{
    char part[DAV_PATH], name[5200];
    bool exists;
    int rc = 0;

    for (const char *at = strchr(path, '/'); rc == 0 && at; at = strchr(at + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(at - path) + 1, path);
        rc = make_one(d, name_of(name, d, part), part, &exists, err);
    }
    return rc;
}

int dav_make_base(const struct dav *d, struct ckpt_err *err)
{
    struct dav *above = ckpt_alloc(1, sizeof *above);
    const char *at = strchr(strstr(d->base, "://") + 3, '/');
    bool exists;
    int rc = above ? 0 : ckpt_nomem(err, sizeof *above);

    /* Parents above what the login may see answer 403 or 405: only the last one counts. */
    for (at = at ? strchr(at + 1, '/') : NULL; rc == 0 && at; at = strchr(at + 1, '/')) {
        *above = *d;
        above->auth.ctx = above;
        above->base[at - d->base + 1] = '\0';
        rc = make_one(above, d->name, "", &exists, err);
        if (rc && at[1]) {
            ckpt_err_clear(err);
            rc = 0;
        }
    }
    if (above)
        dav_close_place(above);
    ckpt_free(above);
    return rc;
}

int dav_delete(const struct dav *d, const char *path, struct ckpt_err *err)
{
    struct http_answer a;
    char name[5200];
    int rc = dav_ask(NULL, d, &(struct dav_call){.name = name_of(name, d, path),
                                                 .method = "DELETE", .path = path}, &a, err);

    if (rc && a.status == 404) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

/* -- reading back ----------------------------------------------------------------------------- */

int dav_read(char **text, size_t *n, const struct dav *d, const char *path, struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char *url = http ? ckpt_alloc(1, HTTP_URL) : NULL, name[5200];
    struct http_answer a;
    int rc = url ? dav_address(url, d, path, err)
                 : http ? ckpt_nomem(err, HTTP_URL) : ckpt_err_code(err);

    *text = NULL;
    rc = rc ? rc : http_text(http, text, n, &(struct http_request){.url = url,
                             .name = name_of(name, d, path), .auth = dav_auth(d),
                             .limit = TEXT_BYTES}, &a, err);
    ckpt_free(url);
    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int dav_check(bool *is, const struct dav *d, const char *path, const char *sha256, uint64_t size,
              struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char *url = http ? ckpt_alloc(1, HTTP_URL) : NULL, name[5200], hex[CKPT_SHA256_HEX] = "";
    struct ckpt_sha256 *sha = NULL;
    struct http_answer a;
    int rc = url ? ckpt_sha256_new(&sha, err) : http ? ckpt_nomem(err, HTTP_URL)
                                                     : ckpt_err_code(err);

    rc = rc ? rc : dav_address(url, d, path, err);
    rc = rc ? rc : http_get(http, &(struct http_request){.url = url, .name = name_of(name, d, path),
                            .auth = dav_auth(d), .limit = size, .begin = body_digest_begin,
                            .put = body_digest_put, .ctx = sha}, &a, err);
    rc = ckpt_sha256_finish(hex, sha, rc, err);
    *is = rc == 0 && strcmp(hex, sha256) == 0;
    ckpt_free(url);
    return rc;
}
