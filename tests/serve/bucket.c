/*
 * bucket.c - a bucket that takes objects: ROOT/s3/BUCKET holds them, ROOT/s3-meta/BUCKET what their
 * writers noted, ROOT/s3-uploads/BUCKET/ID the parts of unfinished uploads.
 */
#include "tests/serve/serve.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAST_PART (5 << 20)
#define PAGE       2            /* parts of a page of a list */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long serial;

/* What a request is about. */
struct what {
    struct request *r;
    const char     *bucket, *key;
    char            upload[100], part[20];
    char            object[SERVE_PATH], meta[SERVE_PATH], folder[SERVE_PATH];
};

static void refuse_xml(struct request *r, int status, const char *code, const char *headers)
{
    char body[400], all[300];
    int n = snprintf(body, sizeof body, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>as the "
                     "bucket says</Message><RequestId>1</RequestId></Error>", code);

    snprintf(all, sizeof all, "Content-Type: application/xml\r\n%s", headers);
    answer(r, status, all, body, (size_t)n);
}

static void answer_xml(struct request *r, const char *text)
{
    answer(r, 200, "Content-Type: application/xml\r\n", text, strlen(text));
}

static bool begins(const char *s, const char *with) { return strncmp(s, with, strlen(with)) == 0; }

/* -- who may ------------------------------------------------------------------------------------ */

/* The body must be what was signed.  A region, a session and rights go by the bucket's name. */
static bool may_write(struct request *r, const char *bucket)
{
    char digest[100], session[100], have[65];

    field(digest, sizeof digest, r, "x-amz-content-sha256:");
    field(session, sizeof session, r, "x-amz-security-token:");
    hex_digest(have, "sha256", "", 0, r->body ? r->body : "", r->n_body);
    if (!begins(r->token, "AWS4-HMAC-SHA256_Credential=AKIDTEST/") ||
        !strstr(r->token, "SignedHeaders=host;") ||
        !strstr(r->token, ";x-amz-content-sha256;x-amz-date"))
        refuse_xml(r, 403, "AccessDenied", "");
    else if (begins(bucket, "far") && !strstr(r->token, "/eu-west-1/s3/"))
        refuse_xml(r, 400, "AuthorizationHeaderMalformed", "x-amz-bucket-region: eu-west-1\r\n");
    else if (strcmp(session, "old") == 0)
        refuse_xml(r, 400, "ExpiredToken", "");
    else if (begins(bucket, "readonly"))
        refuse_xml(r, 403, "AccessDenied", "");
    else if (strcmp(digest, have) != 0)
        refuse_xml(r, 400, "XAmzContentSHA256Mismatch", "");
    else
        return true;
    return false;
}

/* -- objects ------------------------------------------------------------------------------------ */

/* The ETag of the object, with quotes; "" when there is none. */
static void tag_of(char tag[50], const char *path)
{
    char sha[41];
    size_t n;
    char *at = map_file(path, &n);

    *tag = '\0';
    if (!at)
        return;
    git_sha(sha, at, n);
    snprintf(tag, 50, "\"%s\"", sha);
    unmap(at, n);
}

/* Whether the conditions of a request hold.  Locked. */
static bool holds(const struct what *w)
{
    char match[100], none[100], tag[50];

    field(match, sizeof match, w->r, "If-Match:");
    field(none, sizeof none, w->r, "If-None-Match:");
    if ((*match || *none) && strcmp(w->bucket, "plain") == 0) {
        refuse_xml(w->r, 501, "NotImplemented", "");
        return false;
    }
    if (is(w->r, "moves"))
        write_file(w->object, "somebody else's", 15);
    tag_of(tag, w->object);
    if ((!*match || strcmp(match, tag) == 0) && (strcmp(none, "*") != 0 || !*tag))
        return true;
    refuse_xml(w->r, 412, "PreconditionFailed", "");
    return false;
}

static void store(const struct what *w, const char *bytes, size_t n, const char *meta)
{
    write_file(w->object, bytes, n);
    write_file(w->meta, meta, begins(w->bucket, "plain") ? 0 : strlen(meta));
    if (is(w->r, "rot"))
        rot_file(w->object);
}

static void put_object(const struct what *w)
{
    char meta[100], tag[50], headers[100];

    field(meta, sizeof meta, w->r, "x-amz-meta-sha256:");
    pthread_mutex_lock(&lock);
    if (holds(w)) {
        store(w, w->r->body ? w->r->body : "", w->r->n_body, meta);
        tag_of(tag, w->object);
        snprintf(headers, sizeof headers, "ETag: %s\r\n", tag);
        answer(w->r, 200, headers, "", 0);
    }
    pthread_mutex_unlock(&lock);
}

static void drop_object(const struct what *w)
{
    unlink(w->object);
    unlink(w->meta);
    answer(w->r, 204, "", "", 0);
}

static void head_object(const struct what *w)
{
    char tag[50], headers[300], *meta, *at;
    size_t n, k;

    at = map_file(w->object, &n);
    if (!at) {
        refuse_xml(w->r, 404, "NoSuchKey", "");
        return;
    }
    tag_of(tag, w->object);
    meta = map_file(w->meta, &k);
    snprintf(headers, sizeof headers, "ETag: %s\r\n%s%.*s%s", tag, k ? "x-amz-meta-sha256: " : "", (int)k,
             meta ? meta : "", k ? "\r\n" : "");
    answer(w->r, 200, headers, at, n);
    unmap(meta, k);
    unmap(at, n);
}

/* -- uploads in parts ------------------------------------------------------------------------------ */

static void begin_upload(const struct what *w)
{
    char path[SERVE_PATH + 100], meta[100], text[300], id[60];

    field(meta, sizeof meta, w->r, "x-amz-meta-sha256:");
    snprintf(id, sizeof id, "up+%lx/%lx", (long)getpid(), __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    snprintf(path, sizeof path, "%s%s/meta", w->folder, id);
    write_file(path, meta, strlen(meta));
    snprintf(text, sizeof text, "<InitiateMultipartUploadResult><Bucket>%s</Bucket><UploadId>%s</UploadId>"
             "</InitiateMultipartUploadResult>", w->bucket, id);
    answer_xml(w->r, text);
}

static bool upload_exists(const struct what *w)
{
    char path[SERVE_PATH + 300];

    snprintf(path, sizeof path, "%s%s/meta", w->folder, w->upload);
    if (file_size(path) >= 0 && !strstr(w->upload, ".."))
        return true;
    refuse_xml(w->r, 404, "NoSuchUpload", "");
    return false;
}

static void part_path(char path[SERVE_PATH + 300], const struct what *w, long n)
{
    snprintf(path, SERVE_PATH + 300, "%s%s/part.%ld", w->folder, w->upload, n);
}

static void put_part(const struct what *w)
{
    char path[SERVE_PATH + 300], tag[50], headers[100];

    if (!upload_exists(w))
        return;
    part_path(path, w, atol(w->part));
    write_file(path, w->r->body ? w->r->body : "", w->r->n_body);
    tag_of(tag, path);
    snprintf(headers, sizeof headers, "ETag: %s\r\n", tag);
    answer(w->r, 200, headers, "", 0);
}

static void list_parts(const struct what *w)
{
    char path[SERVE_PATH + 300], tag[50], marker[20], *out = malloc(1 << 20);
    size_t k = 0;
    long last, n = 0;

    query_value(marker, sizeof marker, w->r->query, "part-number-marker=");
    last = atol(marker);
    if (begins(w->bucket, "nolist")) {
        refuse_xml(w->r, 405, "MethodNotAllowed", "");
    } else if (upload_exists(w)) {
        k += (size_t)sprintf(out, "<ListPartsResult>");
        for (long i = last + 1; i < 100 && n < PAGE; i++) {
            part_path(path, w, i);
            tag_of(tag, path);
            if (!*tag)
                continue;
            k += (size_t)sprintf(out + k, "<Part><PartNumber>%ld</PartNumber><ETag>&quot;%.40s&quot;</ETag>"
                                 "<Size>%lld</Size></Part>", i, tag + 1, file_size(path));
            last = i;
            n++;
        }
        sprintf(out + k, "<IsTruncated>%s</IsTruncated><NextPartNumberMarker>%ld</NextPartNumberMarker>"
                "</ListPartsResult>", n == PAGE ? "true" : "false", last);
        answer_xml(w->r, out);
    }
    free(out);
}

static void drop_parts(const struct what *w)
{
    char path[SERVE_PATH + 300];

    for (long i = 1; i < 100; i++) {
        part_path(path, w, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s%s/meta", w->folder, w->upload);
    unlink(path);
}

static void give_up(const struct what *w)
{
    if (!upload_exists(w))
        return;
    drop_parts(w);
    answer(w->r, 204, "", "", 0);
}

/* All parts, in their order, into *all; what is wrong with them, or NULL. */
static const char *join_parts(const struct what *w, char **all, size_t *n)
{
    const char *at = w->r->body ? w->r->body : "";
    long number, count = 0;
    char tag[100], have[50], path[SERVE_PATH + 300], *part;
    bool was_short = false;
    size_t k;

    while ((at = strstr(at, "<Part>")) != NULL) {
        if (sscanf(at, "<Part><PartNumber>%ld</PartNumber><ETag>%99[^<]", &number, tag) != 2)
            return "MalformedXML";
        if (number != ++count)
            return "InvalidPartOrder";
        if (was_short)
            return "EntityTooSmall";
        part_path(path, w, number);
        tag_of(have, path);
        if (!*have || strcmp(have, tag) != 0)
            return "InvalidPart";
        part = map_file(path, &k);
        *all = realloc(*all, *n + k + 1);
        memcpy(*all + *n, part, k);
        *n += k;
        was_short = k < LEAST_PART;
        unmap(part, k);
        at++;
    }
    return count ? NULL : "MalformedXML";
}

static void finish(const struct what *w)
{
    char path[SERVE_PATH + 300], meta[100], *noted, *all = NULL;
    const char *wrong;
    size_t n = 0, k;

    pthread_mutex_lock(&lock);
    if (upload_exists(w) && holds(w)) {
        wrong = join_parts(w, &all, &n);
        if (wrong) {
            refuse_xml(w->r, 400, wrong, "");
        } else if (is(w->r, "inside")) {
            answer_xml(w->r, "\n\n<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>We encountered an "
                       "internal error. Please try again.</Message></Error>");
        } else {
            snprintf(path, sizeof path, "%s%s/meta", w->folder, w->upload);
            noted = map_file(path, &k);
            snprintf(meta, sizeof meta, "%.*s", (int)k, noted ? noted : "");
            unmap(noted, k);
            store(w, all, n, meta);
            drop_parts(w);
            answer_xml(w->r, "\n<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
        }
    }
    pthread_mutex_unlock(&lock);
    free(all);
}

/* -- the routes ------------------------------------------------------------------------------------ */

static void make_bucket(const struct what *w)
{
    make_folders(w->object);
    answer(w->r, 200, "", "", 0);
}

static const struct route {
    const char *method;
    int         key;            /* wanted */
    const char *query;          /* its begin, or "" for none of an upload */
    void (*run)(const struct what *w);
} routes[] = {
    {"PUT", 0, "", make_bucket},            {"HEAD", 1, "", head_object},
    {"PUT", 1, "partNumber=", put_part},    {"PUT", 1, "", put_object},
    {"POST", 1, "uploads", begin_upload},   {"POST", 1, "uploadId=", finish},
    {"GET", 1, "uploadId=", list_parts},    {"GET", 1, "part-number-marker=", list_parts},
    {"DELETE", 1, "uploadId=", give_up},    {"DELETE", 1, "", drop_object},
};

bool serve_bucket_write(struct request *r, const char *bucket, const char *key)
{
    struct what w = {.r = r, .bucket = bucket, .key = key};
    struct stat st;

    snprintf(w.object, sizeof w.object, "%s/s3/%s/%.3000s", root, bucket, key);
    snprintf(w.meta, sizeof w.meta, "%s/s3-meta/%s/%.3000s", root, bucket, key);
    snprintf(w.folder, sizeof w.folder, "%s/s3-uploads/%s/", root, bucket);
    query_value(w.upload, sizeof w.upload, r->query, "uploadId=");
    query_value(w.part, sizeof w.part, r->query, "partNumber=");
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *k = &routes[i];
        char path[SERVE_PATH];

        if (strcmp(r->method, k->method) != 0 || k->key != (*key != '\0') || !begins(r->query, k->query))
            continue;
        if (strcmp(r->method, "HEAD") != 0 && !may_write(r, bucket))
            return true;
        snprintf(path, sizeof path, "%s/s3/%s", root, bucket);
        if (k->run != make_bucket && stat(path, &st))
            refuse_xml(r, 404, "NoSuchBucket", "");
        else
            k->run(&w);
        return true;
    }
    return false;
}
