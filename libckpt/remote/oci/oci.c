/* oci - see oci.h. */
#include "libckpt/remote/oci/oci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/remote/body.h"
#include "libckpt/remote/cache/cache.h"

#define ACCEPT "Accept: " OCI_MANIFEST ", application/vnd.oci.image.index.v1+json, " \
               "application/vnd.docker.distribution.manifest.v2+json, " \
               "application/vnd.docker.distribution.manifest.list.v2+json\n"

/* -- names ------------------------------------------------------------------------------------ */

static bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

/* "sha256:" and 64 digits. */
static bool is_digest(const char *s)
{
    return strncmp(s, "sha256:", 7) == 0 && is_hex(s + 7, 64);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool oci_is_tag(const char *s)
{
    size_t n = strlen(s);

    for (size_t i = 0; i < n; i++)
        if (!is_word(s[i]) && !(i > 0 && strchr(".-", s[i])))
            return false;
    return n > 0 && n <= 128;
}

/* Parts of lower-case letters and digits, joined by ".", "_", "__" or dashes. */
static bool is_name(const char *name)
{
    bool joint = true;

    for (const char *s = name; *s; s++) {
        bool letter = (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9');
        bool again = s > name && s[-1] == *s && (*s == '-' || *s == '_');

        if (!letter && (!strchr("._-/", *s) || (joint && !again)))
            return false;
        joint = !letter;
    }
    return !joint;
}

static bool is_host(const char *s)
{
    size_t n = strcspn(s, ":");

    if (n == 0 || s[0] == '.' || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word(s[i]) && !strchr(".-", s[i]))
            return false;
    s += n;
    return !*s || (strlen(s) > 1 && strlen(s) <= 6 && strspn(s + 1, "0123456789") == strlen(s + 1));
}

static int bad_address(const char *url, struct ckpt_err *err)
{
    ckpt_fail(err, CKPT_EUSAGE, "%.300s: no address in an OCI registry", url);
    return ckpt_err_hint(err, "as in oci://host/owner/name:tag, oci://host:port/name@sha256:...");
}

/* The name, up to its tag or digest.  A tag ends at '/', where a path begins. */
static bool split_name(struct oci_place *p, const char *s, const char **end)
{
    size_t n = strcspn(s, ":@"), k;

    if (n == 0 || n + 9 > sizeof p->name)
        return false;
    while (n > 0 && s[n - 1] == '/')
        n--;
    snprintf(p->name, sizeof p->name, "%s%.*s", strcmp(p->host, "docker.io") == 0 &&
             !memchr(s, '/', n) ? "library/" : "", (int)n, s);
    snprintf(p->reference, sizeof p->reference, "latest");
    s += strcspn(s, ":@");
    *end = s;
    if (!*s)
        return true;
    p->by_digest = *s++ == '@';
    k = strcspn(s, "/");
    *end = s + k;
    return (size_t)snprintf(p->reference, sizeof p->reference, "%.*s", (int)k, s) <
               sizeof p->reference &&
           (p->by_digest ? is_digest(p->reference) : oci_is_tag(p->reference));
}

int oci_parse(struct oci_place *p, const char *url, struct ckpt_err *err)
{
    const char *s = url + strlen("oci://"), *end = s;
    char plain[320];
    size_t n = strcspn(s, "/");
    bool docker;

    memset(p, 0, sizeof *p);
    if (n >= sizeof p->host || !s[n])
        return bad_address(url, err);
    snprintf(p->host, sizeof p->host, "%.*s", (int)n, s);
    if (strcmp(p->host, "index.docker.io") == 0 || strcmp(p->host, "registry-1.docker.io") == 0)
        snprintf(p->host, sizeof p->host, "docker.io");
    if (!is_host(p->host) || !split_name(p, s + n + 1, &end) || !is_name(p->name) ||
        (size_t)(end - url) >= sizeof p->root)
        return bad_address(url, err);
    docker = strcmp(p->host, "docker.io") == 0;
    snprintf(plain, sizeof plain, "http://%s", p->host);
    snprintf(p->origin, sizeof p->origin, "%s://%s", http_is_loopback(plain) ? "http" : "https",
             docker ? "registry-1.docker.io" : p->host);
    memcpy(p->root, url, (size_t)(end - url));
    n = (size_t)(end - url);
    while (n > 0 && p->root[n - 1] == '/')
        p->root[--n] = '\0';
    end += strspn(end, "/");
    n = strlen(end);
    while (n > 0 && end[n - 1] == '/')
        n--;
    if (n >= sizeof p->path)
        return bad_address(url, err);
    memcpy(p->path, end, n);
    return 0;
}

/* -- requests --------------------------------------------------------------------------------- */

int oci_address(char url[HTTP_URL], const struct oci_repo *r, const char *verb, const char *rest,
                struct ckpt_err *err)
{
    return (size_t)snprintf(url, HTTP_URL, "%s/v2/%s/%s/%s", r->place.origin, r->place.name, verb,
                            rest) < HTTP_URL
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", r->place.root);
}

int oci_repo_open(struct oci_repo *r, const struct oci_place *p, const char *actions,
                  struct ckpt_err *err)
{
    char scope[320];

    memset(r, 0, sizeof *r);
    r->place = *p;
    r->http = http_shared(err);
    snprintf(scope, sizeof scope, "repository:%s:%s", p->name, actions);
    return r->http ? oci_auth_open(&r->auth, p->origin, p->host, scope, err) : ckpt_err_code(err);
}

void oci_repo_close(struct oci_repo *r) { oci_auth_close(&r->auth); }

/* What the codes of registries mean to the user. */
static const struct {
    const char *code;
    int         rc;
    const char *reason, *text, *hint;
} problems[] = {
    {"UNAUTHORIZED", CKPT_EREFUSED, "refused", "the name, password or token is not accepted",
     "docker login or skopeo login stores others"},
    {"DENIED", CKPT_EREFUSED, "refused", "no right to do this, or no such repository",
     "docker login or skopeo login stores credentials"},
    {"NAME_UNKNOWN", CKPT_ENOTFOUND, "absent", "no such repository, or no right to see it", NULL},
    {"NAME_INVALID", CKPT_EUSAGE, "usage", "the registry does not accept this name", NULL},
    {"MANIFEST_UNKNOWN", CKPT_ENOTFOUND, "absent", "no such tag or digest", NULL},
    {"BLOB_UNKNOWN", CKPT_ENOTFOUND, "absent", "the registry has lost a blob of the manifest",
     NULL},
    {"BLOB_UPLOAD_UNKNOWN", CKPT_ESTOPPED, "session", "the upload's session has ended", NULL},
    {"BLOB_UPLOAD_INVALID", CKPT_ESTOPPED, "session", "the upload's session cannot go on", NULL},
    {"DIGEST_INVALID", CKPT_ESTOPPED, "session", "the bytes that arrived have another digest",
     NULL},
    {"MANIFEST_BLOB_UNKNOWN", CKPT_ESTOPPED, "blob", "the registry has lost a blob that was sent",
     "run it again"},
    {"TOOMANYREQUESTS", CKPT_ESTOPPED, "busy", "too many requests", "run it again later"},
    {"UNSUPPORTED", CKPT_EUNSUPPORTED, "unsupported", "the registry does not support this", NULL},
};

static int explain(const struct oci_repo *r, const struct http_answer *a, struct ckpt_err *err)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        if (strcmp(a->problem_code, problems[i].code) == 0) {
            ckpt_fail_as(err, problems[i].rc, problems[i].reason, "%s: %s (%s)", r->place.root,
                         problems[i].text, problems[i].code);
            return problems[i].hint ? ckpt_err_hint(err, "%s", problems[i].hint) : problems[i].rc;
        }
    return ckpt_err_code(err);
}

int oci_call(struct oci_repo *r, struct http_request *q, struct http_answer *a,
             struct ckpt_err *err)
{
    int rc;

    q->name = q->name ? q->name : r->place.root;
    q->auth = &r->auth.http;
    rc = http_get(r->http, q, a, err);
    if (rc && a->status == 401 && a->challenge[0]) {
        ckpt_err_clear(err);
        if ((rc = oci_auth_answer(&r->auth, a->challenge, err)) != 0)
            return rc;
        rc = http_get(r->http, q, a, err);
    }
    return rc && a->status >= 400 ? explain(r, a, err) : rc;
}

/* -- manifests -------------------------------------------------------------------------------- */

int oci_digest(char digest[OCI_DIGEST], const void *bytes, size_t n, struct ckpt_err *err)
{
    unsigned char sha[CKPT_SHA256_BYTES];
    struct ckpt_sha256 *s;
    int rc = ckpt_sha256_new(&s, err);

    rc = rc ? rc : ckpt_sha256_add(s, bytes, n, err);
    rc = rc ? rc : ckpt_sha256_end(s, sha, err);
    ckpt_sha256_free(s);
    memcpy(digest, "sha256:", 8);
    if (rc == 0)
        ckpt_digest_hex(digest + 7, sha, sizeof sha);
    return rc;
}

int oci_manifest(char **text, size_t *n, char digest[OCI_DIGEST], struct oci_repo *r,
                 const char *reference, struct ckpt_err *err)
{
    struct http_request q = {.headers = ACCEPT, .limit = OCI_MANIFEST_BYTES,
                             .begin = body_text_begin, .put = body_text_put};
    struct http_answer a = {0};
    const char *want = is_digest(reference) ? reference : a.content_digest;
    char url[HTTP_URL];
    struct ckpt_buf b;
    int rc = oci_address(url, r, "manifests", reference, err);

    *text = NULL;
    ckpt_buf_init(&b, (size_t)OCI_MANIFEST_BYTES + 1);
    q.url = url;
    q.ctx = &b;
    rc = rc ? rc : oci_call(r, &q, &a, err);
    rc = rc ? rc : oci_digest(digest, b.data, b.len, err);
    if (rc == 0 && *want && strcmp(want, digest) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: the manifest's digest is %s, %.80s "
                          "wanted", r->place.root, digest, want);
    if (rc == 0 && !ckpt_buf_str(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc) {
        ckpt_buf_release(&b);
        return rc;
    }
    *text = (char *)b.data;
    *n = b.len;
    return 0;
}

static bool ends(const char *s, const char *with)
{
    size_t n = strlen(s), k = strlen(with);

    return n >= k && strcmp(s + n - k, with) == 0;
}

/* tar, and what compresses. */
static bool is_packed(const char *type)
{
    static const char *const tails[] = {".tar", "+gzip", "+zstd", ".gzip", ".zstd", ".tar.gz"};

    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        if (ends(type, tails[i]))
            return true;
    return false;
}

static int read_layer(struct tree *t, const json_t *layer, size_t i, struct ckpt_err *err)
{
    const json_t *notes = json_object_get(layer, "annotations");
    const json_t *size = json_object_get(layer, "size");
    const char *type = json_string_value(json_object_get(layer, "mediaType"));
    const char *digest = json_string_value(json_object_get(layer, "digest"));
    const char *path = json_string_value(json_object_get(notes, OCI_FILEPATH));
    char key[CACHE_KEY];

    path = path ? path : json_string_value(json_object_get(notes, OCI_TITLE));
    if (!type || !digest || !json_is_integer(size) || json_integer_value(size) < 0)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: layer %zu has no type, digest or size", t->name,
                         i);
    if (!is_digest(digest))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: layer %zu has the digest %.80s, SHA-256 "
                         "wanted", t->name, i, digest);
    if (is_packed(type))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: layer %zu (%.100s) is an archive of type "
                         "%.100s, a layer for each file is wanted", t->name, i,
                         path ? path : digest,
                         type);
    if (!path)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: layer %zu of type %.100s has no file name",
                         t->name, i, type);
    snprintf(key, sizeof key, "sha256-%s", digest + 7);
    return tree_add(t, path, (uint64_t)json_integer_value(size), key, err);
}

/* The only manifest of an index. */
static int read_index(char child[OCI_DIGEST], const struct tree *t, const json_t *manifests,
                      struct ckpt_err *err)
{
    const char *digest = json_string_value(json_object_get(json_array_get(manifests, 0), "digest"));

    if (json_array_size(manifests) != 1)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: is an index of %zu manifests, one model "
                         "wanted: name one by its digest", t->name, json_array_size(manifests));
    if (!digest || !is_digest(digest))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the index has no digest of its manifest",
                         t->name);
    snprintf(child, OCI_DIGEST, "%s", digest);
    return 0;
}

/* Add the layers of a manifest to t.  child gets the digest of the only manifest of an index,
 * else "". */
static int read_manifest(struct tree *t, char child[OCI_DIGEST], const json_t *manifest,
                         struct ckpt_err *err)
{
    const json_t *layers = json_object_get(manifest, "layers"), *layer;
    const json_t *manifests = json_object_get(manifest, "manifests");
    size_t i;
    int rc;

    child[0] = '\0';
    if (json_is_array(manifests))
        return read_index(child, t, manifests, err);
    if (!json_is_array(layers))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the manifest has no layers", t->name);
    if (json_array_size(layers) == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: the manifest has no files", t->name);
    for (i = 0; (layer = json_array_get(layers, i)) != NULL; i++)
        if ((rc = read_layer(t, layer, i, err)) != 0)
            return rc;
    return tree_ready(t, err);
}

/* -- the tree --------------------------------------------------------------------------------- */

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    char digest[OCI_DIGEST];
    int rc;

    snprintf(digest, sizeof digest, "sha256:%s", f->digest + strlen("sha256-"));
    rc = oci_address(url, t->self, "blobs", digest, err);
    *have = NULL;
    return rc ? rc : cache_find(have, f->digest, f->size, f->path, err);
}

static int read_tree(struct tree *t, char child[OCI_DIGEST], struct oci_repo *r,
                     const char *reference, struct ckpt_err *err)
{
    char digest[OCI_DIGEST], *text = NULL;
    json_t *json = NULL;
    size_t n = 0;
    int rc = oci_manifest(&text, &n, digest, r, reference, err);

    if (rc == 0 && ckpt_json_parse(&json, text, n, CKPT_JSON_STRICT, err)) {
        err->code = CKPT_EPROTOCOL;
        rc = ckpt_err_in(err, "%s", t->name);
    }
    rc = rc ? rc : read_manifest(t, child, json, err);
    json_decref(json);
    ckpt_free(text);
    return rc;
}

int oci_open(struct tree **out, const struct oci_place *p, struct ckpt_err *err)
{
    struct oci_repo *r = ckpt_alloc(1, sizeof *r);
    struct tree *t = NULL;
    char child[OCI_DIGEST] = "", deeper[OCI_DIGEST];
    int rc = r ? oci_repo_open(r, p, "pull", err) : ckpt_nomem(err, sizeof *r);

    *out = NULL;
    rc = rc ? rc : tree_new(&t, p->root, err);
    if (rc == 0) {
        t->self = r;
        t->locate = locate;
        t->auth = &r->auth.http;
        rc = read_tree(t, child, r, p->reference, err);
    }
    if (rc == 0 && child[0]) {
        rc = read_tree(t, deeper, r, child, err);
        if (rc == 0 && deeper[0])
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: an index of an index", t->name);
    }
    if (rc == 0) {
        *out = t;
        return 0;
    }
    tree_free(t);
    if (r)
        oci_repo_close(r);
    ckpt_free(r);
    return rc;
}
