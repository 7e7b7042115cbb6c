/* hub_lines - see hub_lines.h. */
#include "tools/push/hub_lines.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/base64.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/file_at.h"
#include "libckpt/io/spool.h"
#include "tools/cli.h"

#define MEMORY_BYTES ((size_t)1 << 20)          /* lines beyond it go to a file */
#define LINES_BYTES  ((uint64_t)192 << 20)      /* of one commit */
#define FILE_BYTES   ((uint64_t)32 << 20)       /* of one regular file */
#define PIECE        ((size_t)48 << 10)         /* of a file, a multiple of three */

static int too_much(struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ELIMIT, "more than 100 MB of files that are not in LFS: for one "
                     "commit that is too much");
}

/* Move the text to the file. */
static int spill(struct hub_lines *l, struct ckpt_err *err)
{
    int rc;

    if (l->fd < 0 && (l->fd = spool_create(cli_spool(), err)) < 0)
        return ckpt_err_code(err);
    rc = spool_put(l->fd, l->text.data, l->text.len, "the lines of a commit", err);
    l->text.len = 0;
    return rc;
}

static int put(struct hub_lines *l, const char *text, size_t n, struct ckpt_err *err)
{
    int rc = 0;

    l->bytes += n;
    if (l->bytes > LINES_BYTES)
        return too_much(err);
    if (l->text.len + n > MEMORY_BYTES && l->text.len > 0)
        rc = spill(l, err);
    ckpt_buf_put(&l->text, text, n);
    return rc || ckpt_buf_ok(&l->text) ? rc : ckpt_nomem(err, n);
}

/* A value as JSON, taken. */
static int put_json(struct hub_lines *l, json_t *value, struct ckpt_err *err)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    int rc = text ? put(l, text, strlen(text), err) : ckpt_nomem(err, 256);

    ckpt_free(text);
    json_decref(value);
    return rc;
}

/* {"key": key, "value": value}: value is taken. */
static int put_line(struct hub_lines *l, const char *key, json_t *value, struct ckpt_err *err)
{
    int rc = put_json(l, value ? json_pack("{s:s, s:o}", "key", key, "value", value) : NULL, err);

    return rc ? rc : put(l, "\n", 1, err);
}

/* -- a regular file --------------------------------------------------------------------------- */

/* The bytes of a file in base64, digested as git does. */
static int put_bytes(struct hub_lines *l, EVP_MD_CTX *md, const struct ckpt_file *file,
                     struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    unsigned char *piece = ckpt_alloc_buffer(PIECE);
    int rc = piece ? 0 : ckpt_nomem(err, PIECE);

    for (uint64_t at = 0; rc == 0 && at < size; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        char *text = NULL;

        rc = ckpt_file_read_at(file, piece, n, at, err);
        if (rc == 0 && (EVP_DigestUpdate(md, piece, n) != 1 || !(text = base64_encode(piece, n))))
            rc = ckpt_nomem(err, 2 * n);
        if (rc == 0)
            rc = put(l, text, strlen(text), err);
        ckpt_free(text);
    }
    ckpt_free(piece);
    return rc;
}

static int begin_digest(EVP_MD_CTX *md, uint64_t size, struct ckpt_err *err)
{
    char head[40];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size) + 1;

    return md && EVP_DigestInit_ex(md, EVP_sha1(), NULL) == 1 &&
                   EVP_DigestUpdate(md, head, (size_t)n) == 1 ? 0 : ckpt_nomem(err, 256);
}

/* Whether what was put is what was planned; a file whose digest is not known has its size alone. */
static int check_digest(EVP_MD_CTX *md, const char *oid, const char *name, struct ckpt_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(md, digest, &n) != 1)
        return ckpt_nomem(err, 256);
    ckpt_digest_hex(hex, digest, n);
    return !*oid || strcmp(hex, oid) == 0
               ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was "
                                  "published", name);
}

/* The line of a regular file, with its content.  It must still be the one that was digested. */
static int put_regular(struct hub_lines *l, const struct hub_plan *h, size_t i,
                       struct ckpt_err *err)
{
    static const char before[] = "{\"key\":\"file\",\"value\":{\"path\":";
    static const char between[] = ",\"encoding\":\"base64\",\"content\":\"", after[] = "\"}}\n";
    struct push_file *f = &h->p->file[i];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    struct ckpt_file *file = NULL;
    int rc = push_plan_open(&file, h->p, i, h->follow, err);

    if (rc == 0 && ckpt_file_size(file) != f->size)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was published",
                          f->from);
    if (rc == 0 && f->size > FILE_BYTES)
        rc = too_much(err);
    rc = rc ? rc : begin_digest(md, f->size, err);
    rc = rc ? rc : put(l, before, sizeof before - 1, err);
    rc = rc ? rc : put_json(l, json_string(f->to), err);
    rc = rc ? rc : put(l, between, sizeof between - 1, err);
    rc = rc ? rc : put_bytes(l, md, file, err);
    rc = rc ? rc : put(l, after, sizeof after - 1, err);
    rc = rc ? rc : check_digest(md, h->item[i].oid, f->from, err);
    EVP_MD_CTX_free(md);
    ckpt_file_close(file);
    return rc;
}

/* -- all -------------------------------------------------------------------------------------- */

static int put_all(struct hub_lines *l, const struct hub_plan *h, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < h->p->n; i++) {
        const struct push_file *f = &h->p->file[i];

        if (h->item[i].how != HUB_SEND)
            continue;
        rc = !f->lfs ? put_regular(l, h, i, err)
                     : put_line(l, "lfsFile", json_pack("{s:s, s:s, s:s, s:I}", "path", f->to,
                                                        "algo", "sha256", "oid", h->item[i].oid,
                                                        "size", (json_int_t)f->size), err);
    }
    return rc;
}

int hub_lines_make(struct hub_lines *l, const struct hub_plan *h, const char *summary,
                   const char *mark, const char *parent, const struct opt_list *gone,
                   struct ckpt_err *err)
{
    char description[64];
    int rc;

    *l = (struct hub_lines){.fd = -1};
    ckpt_buf_init(&l->text, 2 * MEMORY_BYTES);
    snprintf(description, sizeof description, "ckpt-push-id: %s", mark);
    rc = put_line(l, "header", json_pack("{s:s, s:s, s:s}", "summary", summary, "description",
                                         description, "parentCommit", parent), err);
    rc = rc ? rc : put_all(l, h, err);
    for (size_t k = 0; rc == 0 && k < gone->n; k++)
        rc = put_line(l, "deletedFile", json_pack("{s:s}", "path", gone->item[k]), err);
    if (rc || l->fd < 0)
        return rc;
    rc = spill(l, err);
    if (rc == 0) {
        rc = file_take_fd(&l->file, l->fd, "the lines of a commit", 0, err);
        l->fd = -1;
    }
    return rc;
}

struct http_body hub_lines_body(const struct hub_lines *l)
{
    return (struct http_body){.type = "application/x-ndjson", .file = l->file, .n = l->bytes,
                              .bytes = l->file ? NULL : l->text.data};
}

void hub_lines_release(struct hub_lines *l)
{
    ckpt_file_close(l->file);
    if (l->fd >= 0)
        close(l->fd);
    ckpt_buf_release(&l->text);
    *l = (struct hub_lines){.fd = -1};
}
