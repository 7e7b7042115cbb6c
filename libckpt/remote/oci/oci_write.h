/*
 * oci_write - blobs and manifests to an OCI registry.
 *
 *   HEAD blobs/{digest}            whether it is there
 *   POST blobs/uploads/?mount=&from=   201: another repository of the registry has lent it
 *   POST blobs/uploads/            202, Location: a session
 *   PUT  {Location}digest={digest} its bytes
 *   PATCH {Location}               a part of them, Content-Range: a-b; 202, the next Location
 *   PUT  manifests/{tag}           the one step that readers see
 *
 * A blob is sent in one request, since some registries refuse parts of one; in parts where the
 * answer to that is 413, as proxies give it.  Source: OCI distribution-spec 1.1.
 */
#ifndef CKPT_LIBCKPT_REMOTE_OCI_OCI_WRITE_H
#define CKPT_LIBCKPT_REMOTE_OCI_OCI_WRITE_H

#include "libckpt/remote/oci/oci.h"

/* The registry answers, and accepts the credentials. */
int oci_ping(struct oci_repo *r, struct ckpt_err *err);
int oci_has(bool *has, struct oci_repo *r, const char *digest, uint64_t size, struct ckpt_err *err);
/* Have it from another repository of the registry, if that has it and the registry lends it. */
int oci_mount(bool *has, struct oci_repo *r, const char *digest, const char *from,
              struct ckpt_err *err);
/* CKPT_ESTOPPED "session" when another session may succeed. */
int oci_send(struct oci_repo *r, const char *digest, const struct http_body *body,
             struct ckpt_err *err);
int oci_put_manifest(struct oci_repo *r, const char *reference, const char *text, size_t n,
                     struct ckpt_err *err);
/* Read a blob, without keeping it.  CKPT_EPROTOCOL "unconfirmed" when its digest is another. */
int oci_check(struct oci_repo *r, const char *name, const char *digest, uint64_t size,
              struct ckpt_err *err);

#endif
