/*
 * sign/manifest - the list of a model's files with their digests, as a signature covers it.
 *
 * It is the statement of in-toto that OpenSSF Model Signing 1.0 defines:
 *
 *   {"_type": "https://in-toto.io/Statement/v1",
 *    "subject": [{"name": MODEL, "digest": {"sha256": ROOT}}],
 *    "predicateType": "https://model_signing/signature/v1.0",
 *    "predicate": {
 *      "serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": false,
 *                        "ignore_paths": [PATH, ...]},
 *      "resources": [{"name": PATH, "algorithm": "sha256", "digest": HEX}, ...]}}
 *
 * ROOT is the SHA-256 of all digests (their bytes, not their hex) in the order of the list.  With
 * the method "shards" a resource is a part of a file, called PATH:START:END, and empty files have
 * none.  Written here: files in the order of their names' bytes, SHA-256.  Read: any order, both
 * methods, BLAKE2b too.
 * Source: ossf/model-signing-spec v1.0; model-signing 1.1.1 _signing/signing.py, manifest.py.
 */
#ifndef CKPT_LIBCKPT_SIGN_MANIFEST_H
#define CKPT_LIBCKPT_SIGN_MANIFEST_H

#include <stdbool.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"

#define SIGN_DIGEST_MAX 64      /* bytes: BLAKE2b */

enum sign_hash { SIGN_SHA256, SIGN_BLAKE2B };

struct sign_item {
    const char   *name;         /* path below the model: clean, no part is "." or ".." */
    uint64_t      start, end;   /* with shards: the bytes of the file that the digest is of */
    unsigned char digest[SIGN_DIGEST_MAX];
};

/* A zeroed one is empty and valid. */
struct sign_manifest {
    struct ckpt_arena arena;
    const char       *model;    /* name of the folder when it was signed; proves nothing */
    struct sign_item *item;     /* after parsing sorted by name and start */
    size_t            n, cap;
    enum sign_hash    hash;
    bool              shards;
    const char      **ignore;   /* paths that the signature does not cover, with what is below */
    size_t            n_ignore;
};

void sign_manifest_release(struct sign_manifest *m);
/* Add a file with its SHA-256; the name is copied.  Names come in the order of their bytes.
 * CKPT_EREFUSED for a name that no manifest may have. */
int sign_manifest_add(struct sign_manifest *m, const char *name, const unsigned char digest[32],
                      struct ckpt_err *err);
/* The statement; ignores what sign_manifest_ignored does for an empty manifest. */
int sign_manifest_write(struct ckpt_buf *out, const struct sign_manifest *m, struct ckpt_err *err);
/* Read one.  CKPT_EFORMAT when its parts contradict each other, CKPT_EUNSUPPORTED for another
 * predicate, method or hash, CKPT_EREFUSED for a path that leads out of the model.  Release m in
 * any case. */
int sign_manifest_parse(struct sign_manifest *m, const char *text, size_t len,
                        struct ckpt_err *err);
/* Whether a path is one of those that the manifest ignores, or is below one; the files that git
 * keeps beside a model always are. */
bool sign_manifest_ignored(const struct sign_manifest *m, const char *path);
/* The first item of a file, or NULL. */
const struct sign_item *sign_manifest_find(const struct sign_manifest *m, const char *name);
size_t sign_hash_bytes(enum sign_hash hash);

#endif
