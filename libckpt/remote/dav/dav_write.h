/*
 * dav_write - files into a folder of a WebDAV server.
 *
 *   MKCOL  {folder}/                        one folder; 405 when it is there
 *   PUT    {folder}/.ckpt-push-...          a file under a name of its own
 *   MOVE   {folder}/.ckpt-push-...          to its name: the step that readers see
 *   DELETE {path}
 *
 * Source: RFC 4918, RFC 9110 (conditions).
 */
#ifndef CKPT_LIBCKPT_REMOTE_DAV_DAV_WRITE_H
#define CKPT_LIBCKPT_REMOTE_DAV_DAV_WRITE_H

#include "libckpt/digest.h"
#include "libckpt/remote/dav/dav.h"

#define DAV_PATH 4096           /* buffer for a path below a folder */

/* A file as the server has it. */
struct dav_file {
    bool     exists;
    uint64_t size;                      /* FIELD_NONE: not told */
    char     tag[FIELD_BYTES];          /* ETag as it stands, or "" */
};

/* The name that a file has while it is sent: in the same folder, the same in a second process. */
int dav_aside(char aside[DAV_PATH], const char *path, const char *oid, struct ckpt_err *err);
int dav_head(struct dav_file *f, const struct dav *d, const char *path, struct ckpt_err *err);
int dav_put(const struct dav *d, const char *path, const struct http_body *body,
            struct ckpt_err *err);
/* Give aside its name; replace: there may be a file by that name.  CKPT_ESTOPPED "moved" when
 * there is one and must not be; CKPT_ENOTFOUND when aside is not there. */
int dav_move(const struct dav *d, const char *aside, const char *path, bool replace,
             struct ckpt_err *err);
/* Make the folder path ("" or "a/b/"), where it is missing; parents: those above it too, that of
 * the address among them. */
int dav_make_folder(const struct dav *d, const char *path, struct ckpt_err *err);
int dav_make_base(const struct dav *d, struct ckpt_err *err);
int dav_delete(const struct dav *d, const char *path, struct ckpt_err *err);
/* Read a file of a known size, of 1 MiB at most: *text (ckpt_free), NULL when it is not there. */
int dav_read(char **text, size_t *n, const struct dav *d, const char *path, struct ckpt_err *err);
/* Read a file, without keeping it.  *is: whether it has that digest. */
int dav_check(bool *is, const struct dav *d, const char *path, const char *sha256, uint64_t size,
              struct ckpt_err *err);

#endif
