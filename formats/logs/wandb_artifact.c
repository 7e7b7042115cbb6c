/* wandb_artifact - artifacts of a W&B run; see wandb_out.h. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

#include "formats/container/protobuf_out.h"
#include "formats/logs/wandb_out_own.h"
#include "libckpt/base/evp.h"
#include "libckpt/digest.h"

enum { ARTIFACT = 8 };          /* of Record, wandb_internal.proto */

/* An id that W&B draws for what has no version yet: 128 letters and digits. */
static int draw_id(char id[129], struct ckpt_err *err)
{
    unsigned char bytes[128];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "random numbers");
    for (size_t i = 0; i < sizeof bytes; i++)
        id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[bytes[i] % 36];
    id[128] = '\0';
    return 0;
}

/* The MD5 of a manifest: ArtifactManifestV1.digest of wandb 0.31. */
static int manifest_digest(char hex[33], const struct wandb_out_artifact *a, struct ckpt_err *err)
{
    static const char head[] = "wandb-artifact-manifest-v1\n";
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    unsigned char digest[16];
    bool good;

    ERR_clear_error();
    good = md && EVP_DigestInit_ex(md, EVP_md5(), NULL) == 1 &&
           EVP_DigestUpdate(md, head, strlen(head)) == 1;

    for (size_t i = 0; i < a->n; i++)
        good = good && EVP_DigestUpdate(md, a->file[i].path, strlen(a->file[i].path)) == 1 &&
               EVP_DigestUpdate(md, ":", 1) == 1 &&
               EVP_DigestUpdate(md, a->file[i].digest, strlen(a->file[i].digest)) == 1 &&
               EVP_DigestUpdate(md, "\n", 1) == 1;
    good = good && EVP_DigestFinal_ex(md, digest, NULL) == 1;
    EVP_MD_CTX_free(md);
    if (!good)
        return ckpt_evp_failed(err, "md5");
    ckpt_digest_hex(hex, digest, sizeof digest);
    return 0;
}

static void put_manifest(struct ckpt_buf *b, const struct wandb_out_artifact *a)
{
    size_t manifest = protobuf_out_begin(b, 12), at;

    protobuf_out_varint(b, 1, 1);
    protobuf_out_text(b, 2, "wandb-storage-policy-v1");
    at = protobuf_out_begin(b, 3);
    protobuf_out_text(b, 1, "storageLayout");
    protobuf_out_text(b, 2, "\"V2\"");
    protobuf_out_end(b, at);
    for (size_t i = 0; i < a->n; i++) {
        at = protobuf_out_begin(b, 4);
        protobuf_out_text(b, 1, a->file[i].path);
        protobuf_out_text(b, 2, a->file[i].digest);
        if (a->file[i].size > 0)
            protobuf_out_varint(b, 4, a->file[i].size);
        protobuf_out_text(b, 6, a->file[i].local);
        protobuf_out_end(b, at);
    }
    protobuf_out_end(b, manifest);
}

int wandb_out_artifact(struct wandb_out *o, const struct wandb_out_artifact *a,
                       struct ckpt_err *err)
{
    char id[129], sequence[129], digest[33];
    struct ckpt_buf *b;
    size_t at;
    int rc;

    if ((rc = draw_id(id, err)) != 0 || (rc = draw_id(sequence, err)) != 0 ||
        (rc = manifest_digest(digest, a, err)) != 0)
        return rc;
    b = wandb_out_begin(o);
    at = protobuf_out_begin(b, ARTIFACT);
    protobuf_out_text(b, 1, o->id);
    protobuf_out_text(b, 2, o->project);
    protobuf_out_text(b, 4, a->type);
    protobuf_out_text(b, 5, a->name);
    protobuf_out_text(b, 6, digest);
    protobuf_out_text(b, 8, a->metadata);
    protobuf_out_varint(b, 9, 1);                       /* user_created */
    protobuf_out_text(b, 11, "latest");
    protobuf_out_text(b, 11, a->alias);
    put_manifest(b, a);
    protobuf_out_varint(b, 14, 1);                      /* finalize */
    protobuf_out_text(b, 15, id);
    protobuf_out_text(b, 16, sequence);
    protobuf_out_text(b, 20, "MANIFEST_MD5");
    protobuf_out_end(b, at);
    return wandb_out_record(o, err);
}
