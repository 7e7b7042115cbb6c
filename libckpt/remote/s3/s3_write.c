/* s3_write - see s3_write.h. */
#include "libckpt/remote/s3/s3_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/xml.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "libckpt/remote/body.h"

#define PART_BYTES   ((uint64_t)8 << 20)    /* a killed process loses no more of a stream */
#define MOST_PARTS   10000u                 /* of one object, by S3 */
#define PIECE        ((size_t)1 << 18)
#define FINISH_TRIES 4                      /* of a completion that fails within its answer */
#define FINISH_BYTES ((size_t)4 << 20)      /* 10,000 parts, with ETags of 32 digits: 1 MB */

uint64_t s3_part_bytes(uint64_t size)
{
    uint64_t least = (size + MOST_PARTS - 1) / MOST_PARTS, unit = (uint64_t)1 << 20;

    least = (least + unit - 1) / unit * unit;
    return least > PART_BYTES ? least : PART_BYTES;
}

/* Messages name an object by its address in the bucket. */
static const char *name_of(char name[1200], const struct s3 *s, const char *key)
{
    snprintf(name, 1200, "s3://%s/%.1100s", s->bucket, key);
    return name;
}

int s3_head(struct s3_object *o, struct s3 *s, const char *key, struct ckpt_err *err)
{
    char name[1200];
    struct http_answer a;
    int rc = s3_place_ask(NULL, s, &(struct s3_call){.name = name_of(name, s, key), .key = key,
                                                     .head = true}, &a, err);

    *o = (struct s3_object){.exists = rc == 0, .size = FIELD_NONE};
    if (rc == 0) {
        o->size = a.length;
        memcpy(o->tag, a.tag, sizeof o->tag);
        memcpy(o->sha256, a.sha256, sizeof o->sha256);
    } else if (a.status == 404) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

/* Header lines of a request that stores an object. */
static void put_lines(char *lines, size_t size, const char *sha256, const char *condition)
{
    int n = sha256 ? snprintf(lines, size, "x-amz-meta-sha256: %s\n", sha256) : 0;

    if (condition)
        snprintf(lines + n, size - (size_t)n, "%s: %s\n", *condition ? "If-Match" : "If-None-Match",
                 *condition ? condition : "*");
    else if (n == 0)
        *lines = '\0';
}

int s3_put(struct s3 *s, const char *key, const struct http_body *body, const char *sha256,
           const char *condition, struct ckpt_err *err)
{
    char name[1200], lines[FIELD_BYTES + 200];
    struct http_answer a;

    put_lines(lines, sizeof lines, sha256, condition);
    return s3_place_ask(NULL, s, &(struct s3_call){.name = name_of(name, s, key), .key = key,
                        .method = "PUT", .headers = lines, .body = body}, &a, err);
}

/* -- parts ------------------------------------------------------------------------------------ */

int s3_begin(char id[S3_UPLOAD], struct s3 *s, const char *key, const char *sha256,
             struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = "", .sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae"
                                      "41e4649b934ca495991b7852b855"};
    char name[1200], lines[FIELD_BYTES + 200], *text = NULL;
    struct http_answer a;
    int rc;

    put_lines(lines, sizeof lines, sha256, NULL);
    rc = s3_place_ask(&text, s, &(struct s3_call){.name = name_of(name, s, key), .key = key,
                      .method = "POST", .query = "uploads=", .headers = lines, .body = &nothing},
                      &a, err);
    if (rc == 0 && (!xml_text(id, S3_UPLOAD, xml_of(text), "UploadId") || !*id))
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer names no upload", name);
    ckpt_free(text);
    return rc;
}

/* "uploadId=..." with what is before it. */
static int upload_query(char *query, size_t size, const char *before, const char *id,
                        struct ckpt_err *err)
{
    size_t n = (size_t)snprintf(query, size, "%suploadId=", before);

    return n < size && http_escape(query + n, size - n, id, "")
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "the name of an upload of %zu bytes", strlen(id));
}

static int digest_of(char hex[CKPT_SHA256_HEX], const struct http_body *b, struct ckpt_err *err)
{
    unsigned char *piece = ckpt_alloc(PIECE, 1);
    struct ckpt_sha256 *sha = NULL;
    int rc = piece ? ckpt_sha256_new(&sha, err) : ckpt_nomem(err, PIECE);

    for (uint64_t at = 0, n; rc == 0 && at < b->n; at += n) {
        n = b->n - at < PIECE ? b->n - at : PIECE;
        if (b->file && (rc = ckpt_file_read_at(b->file, piece, (size_t)n, b->at + at, err)) != 0)
            break;
        rc = ckpt_sha256_add(sha, b->file ? piece : (const unsigned char *)b->bytes + at,
                             (size_t)n, err);
    }
    rc = ckpt_sha256_finish(hex, sha, rc, err);
    ckpt_free(piece);
    return rc;
}

int s3_send_part(char tag[FIELD_BYTES], struct s3 *s, const char *key, const char *id, size_t n,
                 const struct http_body *body, struct ckpt_err *err)
{
    char name[1200], before[60], query[4 * S3_UPLOAD], hex[CKPT_SHA256_HEX];
    struct http_body with = *body;
    struct http_answer a;
    int rc;

    snprintf(before, sizeof before, "partNumber=%zu&", n);
    rc = upload_query(query, sizeof query, before, id, err);
    if (rc == 0 && !with.sha256 && s->is_signed && !s3_place_is_private(s)) {
        rc = digest_of(hex, body, err);
        with.sha256 = hex;
    }
    rc = rc ? rc : s3_place_ask(NULL, s, &(struct s3_call){.name = name_of(name, s, key),
                                .key = key, .method = "PUT", .query = query, .body = &with},
                                &a, err);
    if (rc == 0 && (!a.tag[0] || strpbrk(a.tag, "<>&")))
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer to a part has no ETag that can be "
                       "used", name);
    if (rc == 0)
        memcpy(tag, a.tag, sizeof a.tag);
    return rc;
}

int s3_read_parts(struct s3_part *part, size_t n_parts, const char *text, const char *name,
                  unsigned long long *next, struct ckpt_err *err)
{
    struct xml page = xml_of(text), list, one, at;
    unsigned long long number, size, last = *next;
    char word[8];

    *next = 0;
    if (!xml_next(&list, &page, "ListPartsResult"))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer is no list of parts", name);
    for (at = list; xml_next(&one, &at, "Part");) {
        struct s3_part *p;

        if (!xml_number(&number, one, "PartNumber") || !xml_number(&size, one, "Size") ||
            number == 0 || number > n_parts)
            return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the list has a part that was not sent",
                             name);
        p = &part[number - 1];
        if (xml_text(p->tag, sizeof p->tag, one, "ETag"))
            p->size = size;
    }
    if (!xml_text(word, sizeof word, list, "IsTruncated") || strcmp(word, "true") != 0)
        return 0;
    if (!xml_number(next, list, "NextPartNumberMarker") || *next <= last)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the list of parts does not end", name);
    return 0;
}

int s3_parts(struct s3_part *part, size_t n_parts, struct s3 *s, const char *key, const char *id,
             struct ckpt_err *err)
{
    char name[1200], before[80], query[4 * S3_UPLOAD];
    unsigned long long next = 0;
    int rc = 0;

    do {
        struct http_answer a;
        char *text = NULL;

        before[0] = '\0';
        if (next)
            snprintf(before, sizeof before, "part-number-marker=%llu&", next);
        rc = upload_query(query, sizeof query, before, id, err);
        rc = rc ? rc : s3_place_ask(&text, s, &(struct s3_call){.name = name_of(name, s, key),
                                    .key = key, .query = query}, &a, err);
        rc = rc ? rc : s3_read_parts(part, n_parts, text, name, &next, err);
        ckpt_free(text);
    } while (rc == 0 && next);
    return rc;
}

/* -- the step that readers see ---------------------------------------------------------------- */

/* An answer of status 200 may be an error all the same: the store sends it before it is done. */
static int judge(struct http_answer *a, const char *text, const char *name, bool *again,
                 struct ckpt_err *err)
{
    struct xml in = xml_of(text), error;

    *again = false;
    if (!xml_next(&error, &in, "Error"))
        return 0;
    xml_text(a->problem_code, sizeof a->problem_code, error, "Code");
    xml_text(a->problem, sizeof a->problem, error, "Message");
    *again = strcmp(a->problem_code, "InternalError") == 0 ||
             strcmp(a->problem_code, "SlowDown") == 0 ||
             strcmp(a->problem_code, "ServiceUnavailable") == 0;
    return s3_place_explain(a, name, ckpt_fail(err, CKPT_EPROTOCOL, "%s: %.100s: %.200s", name,
                                               a->problem_code, a->problem), err);
}

static int finish_once(struct s3 *s, const struct s3_call *c, bool *again, struct ckpt_err *err)
{
    struct http_answer a;
    char *text = NULL;
    int rc = s3_place_ask(&text, s, c, &a, err);

    *again = false;
    rc = rc ? rc : judge(&a, text, c->name, again, err);
    ckpt_free(text);
    return rc;
}

int s3_finish(struct s3 *s, const char *key, const char *id, const char *const *tag,
              size_t n_parts, const char *condition, struct ckpt_err *err)
{
    char name[1200], query[4 * S3_UPLOAD], lines[FIELD_BYTES + 200], hex[CKPT_SHA256_HEX];
    struct http_body body = {.type = "application/xml"};
    struct s3_call call = {.name = name_of(name, s, key), .key = key, .method = "POST",
                           .query = query, .headers = lines, .body = &body};
    struct ckpt_buf b;
    bool again = true;
    int rc = upload_query(query, sizeof query, "", id, err);

    put_lines(lines, sizeof lines, NULL, condition);
    ckpt_buf_init(&b, FINISH_BYTES);
    ckpt_buf_put_str(&b, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < n_parts; i++)
        ckpt_buf_printf(&b, "<Part><PartNumber>%zu</PartNumber><ETag>%s</ETag></Part>", i + 1,
                        tag[i]);
    ckpt_buf_put_str(&b, "</CompleteMultipartUpload>");
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the list of %zu parts is too long", name, n_parts);
    body.bytes = b.data;
    body.n = b.len;
    rc = rc ? rc : digest_of(hex, &body, err);
    body.sha256 = hex;
    for (int k = 0; rc == 0 && again && k < FINISH_TRIES; k++) {
        if (k > 0)
            nanosleep(&(struct timespec){.tv_nsec = 200000000L * k}, NULL);
        ckpt_err_clear(err);
        rc = http_stopped(err);
        rc = rc ? rc : finish_once(s, &call, &again, err);
        if (rc && again && k + 1 < FINISH_TRIES)
            rc = 0;
    }
    ckpt_buf_release(&b);
    return rc;
}

/* -- without bytes ---------------------------------------------------------------------------- */

int s3_give_up(struct s3 *s, const char *key, const char *id, struct ckpt_err *err)
{
    char name[1200], query[4 * S3_UPLOAD];
    struct http_answer a;
    int rc = upload_query(query, sizeof query, "", id, err);

    rc = rc ? rc : s3_place_ask(NULL, s, &(struct s3_call){.name = name_of(name, s, key),
                                .key = key, .method = "DELETE", .query = query}, &a, err);
    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int s3_delete(struct s3 *s, const char *key, struct ckpt_err *err)
{
    char name[1200];
    struct http_answer a;
    int rc = s3_place_ask(NULL, s, &(struct s3_call){.name = name_of(name, s, key), .key = key,
                                                     .method = "DELETE"}, &a, err);

    if (rc && a.status == 404 && strcmp(err->reason, "no-bucket") != 0) {
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int s3_make_bucket(struct s3 *s, struct ckpt_err *err)
{
    char text[300] = "", hex[CKPT_SHA256_HEX], name[80];
    struct http_body body = {.type = "application/xml", .bytes = text};
    struct http_answer a;
    int rc;

    if (strcmp(s->key.region, "us-east-1") != 0)
        snprintf(text, sizeof text, "<CreateBucketConfiguration><LocationConstraint>%s"
                 "</LocationConstraint></CreateBucketConfiguration>", s->key.region);
    body.n = strlen(text);
    snprintf(name, sizeof name, "s3://%s", s->bucket);
    rc = digest_of(hex, &body, err);
    body.sha256 = hex;
    return rc ? rc : s3_place_ask(NULL, s, &(struct s3_call){.name = name, .key = "",
                                  .method = "PUT", .body = &body}, &a, err);
}

/* -- reading back ----------------------------------------------------------------------------- */

int s3_check(struct s3 *s, const char *key, const char *sha256, uint64_t size,
             struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char name[1200], hex[CKPT_SHA256_HEX] = "", *url = http ? ckpt_alloc(1, HTTP_URL) : NULL;
    struct ckpt_sha256 *sha = NULL;
    struct http_answer a;
    int rc = url ? ckpt_sha256_new(&sha, err) : http ? ckpt_nomem(err, HTTP_URL)
                                                     : ckpt_err_code(err);

    name_of(name, s, key);
    rc = rc ? rc : s3_place_address(url, s, key, NULL, err);
    rc = rc ? rc : http_get(http, &(struct http_request){.url = url, .name = name,
                            .auth = s3_place_auth(s), .limit = size, .ctx = sha,
                            .begin = body_digest_begin, .put = body_digest_put}, &a, err);
    rc = ckpt_sha256_finish(hex, sha, rc, err);
    ckpt_free(url);
    return rc || strcmp(hex, sha256) == 0
               ? rc : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: is not what was sent",
                                   name);
}
