/*
 * oci - a model in an OCI registry as a tree: ModelPack and ORAS artifacts.
 *
 *   oci://host[:port]/name[:tag | @sha256:digest][/path]
 *
 *   GET {host}/v2/{name}/manifests/{tag or digest}   {"config": {...}, "layers": [{"mediaType",
 *                                                    "digest", "size", "annotations"}]}
 *   GET {host}/v2/{name}/blobs/{digest}              the bytes, or a redirect to them
 *
 * Each layer is a file; its path is the annotation org.cncf.model.filepath or
 * org.opencontainers.image.title.  The tag is "latest" when none is named.  A registry on this
 * host is asked over http, any other over https.  Credentials: oci_auth.h.
 *
 * Source: OCI distribution-spec and image-spec 1.1, ModelPack model-spec 0.0.7, ORAS 1.2.
 */
#ifndef CKPT_LIBCKPT_REMOTE_OCI_OCI_H
#define CKPT_LIBCKPT_REMOTE_OCI_OCI_H

#include "libckpt/remote/oci/oci_auth.h"
#include "libckpt/remote/tree.h"

#define OCI_FILEPATH       "org.cncf.model.filepath"
#define OCI_TITLE          "org.opencontainers.image.title"
#define OCI_MANIFEST       "application/vnd.oci.image.manifest.v1+json"
#define OCI_MANIFEST_BYTES ((uint64_t)4 << 20)     /* what registries must accept */
#define OCI_DIGEST         72                      /* "sha256:", 64 digits, terminator */

struct oci_place {
    char host[300];             /* as in credentials: "host:port", "docker.io" */
    char origin[320];           /* "https://host:port" */
    char name[256];
    char reference[OCI_DIGEST + 60];    /* a tag, or a digest */
    bool by_digest;
    char root[800];             /* the address without the path, as it was written */
    char path[4096];            /* "" for the model itself */
};

struct oci_repo {
    struct http     *http;
    struct oci_place place;
    struct oci_auth  auth;
};

/* CKPT_EUSAGE when url has another form. */
int oci_parse(struct oci_place *p, const char *url, struct ckpt_err *err);
bool oci_is_tag(const char *s);
int oci_digest(char digest[OCI_DIGEST], const void *bytes, size_t n, struct ckpt_err *err);
/* {origin}/v2/{name}/verb/rest */
int oci_address(char url[HTTP_URL], const struct oci_repo *r, const char *verb, const char *rest,
                struct ckpt_err *err);
/* actions: "pull", "pull,push". */
int oci_repo_open(struct oci_repo *r, const struct oci_place *p, const char *actions,
                  struct ckpt_err *err);
void oci_repo_close(struct oci_repo *r);
/*
 * http_get with the repository's credentials; a token that is refused is renewed once.  Fills
 * what the registry's error means.
 */
int oci_call(struct oci_repo *r, struct http_request *q, struct http_answer *a,
             struct ckpt_err *err);
/* The bytes of a manifest, which are those of its digest: ckpt_free text. */
int oci_manifest(char **text, size_t *n, char digest[OCI_DIGEST], struct oci_repo *r,
                 const char *reference, struct ckpt_err *err);
int oci_open(struct tree **out, const struct oci_place *p, struct ckpt_err *err);

#endif
