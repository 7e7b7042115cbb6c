/* read.c - folders that are repositories, a bucket or a web server: read alone. */
#include "tests/serve/serve.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_large(const char *path)
{
    static const char *const globs[] = {"*.safetensors", "*.bin", "*.pt", "*.parquet", "*.gguf"};

    for (size_t i = 0; i < sizeof globs / sizeof *globs; i++)
        if (fnmatch(globs[i], path, 0) == 0)
            return true;
    return false;
}

/* -- the hub ---------------------------------------------------------------------------------- */

struct list {
    char **item;
    size_t n;
};

static void walk(struct list *l, const char *top, const char *rel)
{
    char path[8192];
    struct dirent *e;
    struct stat st;
    DIR *d;

    snprintf(path, sizeof path, "%s/%s", top, rel);
    d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        char sub[4096];

        if (e->d_name[0] == '.' && strcmp(e->d_name, ".gitattributes") != 0)
            continue;
        snprintf(sub, sizeof sub, "%.3000s%s%.1000s", rel, *rel ? "/" : "", e->d_name);
        snprintf(path, sizeof path, "%s/%s", top, sub);
        if (stat(path, &st))
            continue;
        l->item = realloc(l->item, (l->n + 1) * sizeof *l->item);
        l->item[l->n++] = strdup(sub);
        if (S_ISDIR(st.st_mode))
            walk(l, top, sub);
    }
    if (d)
        closedir(d);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All below a folder, by path. */
static struct list list_of(const char *top)
{
    struct list l = {0};

    walk(&l, top, "");
    if (l.n)
        qsort(l.item, l.n, sizeof *l.item, by_text);
    return l;
}

/* An answer of text that was made of a list; both are freed. */
static void answer_list(struct request *r, const char *headers, char *text, size_t n, struct list *l)
{
    answer(r, 200, headers, text, n);
    for (size_t i = 0; i < l->n; i++)
        free(l->item[i]);
    free(l->item);
    free(text);
}

static void send_tree(struct request *r, const char *top)
{
    const char *cursor = strstr(r->query, "cursor=");
    size_t from = cursor ? (size_t)atol(cursor + 7) : 0, cap = 1 << 20, k = 0;
    struct list l = list_of(top);
    char *out = malloc(cap), headers[8192] = "Content-Type: application/json\r\n";

    k += (size_t)sprintf(out + k, "[");
    for (size_t i = from; i < l.n && i < from + (size_t)options.page; i++) {
        char path[8192], sha[41], sha256[65];
        size_t n;
        char *body;

        snprintf(path, sizeof path, "%.4000s/%.4000s", top, l.item[i]);
        body = map_file(path, &n);
        k += (size_t)sprintf(out + k, "%s", i > from ? "," : "");
        if (!body) {
            k += (size_t)sprintf(out + k, "{\"type\":\"directory\",\"path\":\"%s\",\"oid\":\"%040d\","
                                 "\"size\":0}", l.item[i], 0);
            continue;
        }
        git_sha(sha, body, n);
        hex_digest(sha256, "sha256", "", 0, body, n);
        k += (size_t)sprintf(out + k, "{\"type\":\"file\",\"path\":\"%s\",\"size\":%zu,"
                             "\"oid\":\"%s\"", l.item[i], n, sha);
        if (is_large(l.item[i]))
            k += (size_t)sprintf(out + k, ",\"lfs\":{\"oid\":\"%s\",\"size\":%zu,"
                                 "\"pointerSize\":134}", sha256, n);
        k += (size_t)sprintf(out + k, "}");
        unmap(body, n);
    }
    k += (size_t)sprintf(out + k, "]");
    if (from + (size_t)options.page < l.n)
        snprintf(headers + strlen(headers), 5000, "Link: <http://127.0.0.1:%d%s?recursive=true&"
                 "cursor=%zu>; rel=\"next\"\r\n", port_of[0], r->path, from + (size_t)options.page);
    answer_list(r, headers, out, k, &l);
}

void send_file(struct request *r, const char *path, const char *commit)
{
    char headers[1024], sha[41];
    size_t n;
    char *body = map_file(path, &n);

    if (!body) {
        fail(r, 404, "EntryNotFound", "Entry not found");
        return;
    }
    git_sha(sha, body, n);
    snprintf(headers, sizeof headers, "%s%s%s%s%s%s", is(r, "etag") ? "" : "ETag: \"",
             is(r, "etag") ? "" : sha, is(r, "etag") ? "" : "\"\r\n",
             commit ? "X-Repo-Commit: " : "", commit ? commit : "", commit ? "\r\n" : "");
    answer(r, 200, headers, body, n);
    unmap(body, n);
}

/* A large file is elsewhere: the address carries its own leave. */
static void send_away(struct request *r, const char *path, const char *commit)
{
    char headers[12288], sha256[65];
    size_t n;
    char *body = map_file(path, &n);

    if (!body) {
        fail(r, 404, "EntryNotFound", "Entry not found");
        return;
    }
    hex_digest(sha256, "sha256", "", 0, body, n);
    unmap(body, n);
    snprintf(headers, sizeof headers, "Location: http://127.0.0.1:%d/cdn%s?sig=secret\r\n"
             "X-Linked-Etag: \"%s\"\r\nX-Linked-Size: %zu\r\nX-Repo-Commit: %s\r\n", port_of[1],
             path + strlen(root), sha256, n, commit);
    answer(r, 302, headers, "", 0);
}

static void send_info(struct request *r, const char *top, const char *owner, const char *name,
                      const char *commit)
{
    char *out = malloc(1 << 20), path[8192];
    struct list l = list_of(top);
    size_t k, n = 0;
    struct stat st;

    k = (size_t)sprintf(out, "{\"id\":\"%s/%s\",\"sha\":\"%s\",\"siblings\":[", owner, name, commit);
    for (size_t i = 0; i < l.n; i++) {
        snprintf(path, sizeof path, "%.4000s/%.4000s", top, l.item[i]);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
            k += (size_t)sprintf(out + k, "%s{\"rfilename\":\"%s\"}", n++ ? "," : "", l.item[i]);
    }
    k += (size_t)sprintf(out + k, "]}");
    answer_list(r, "Content-Type: application/json\r\n", out, k, &l);
}

static void commit_of(char hex[41], const char *top)
{
    hex_digest(hex, "sha1", "", 0, top + strlen(root), strlen(top) - strlen(root));
}

static bool may(struct request *r, const char *id)
{
    if (strncmp(id, "private", 7) != 0 || token_level(r) > 0)
        return true;
    fail(r, 401, "RepoNotFound", "Repository not found");
    return false;
}

/* /api/KIND/OWNER/NAME/VERB/REST */
static void serve_api(struct request *r)
{
    char kind[32], owner[200], name[200], verb[32], rest[300] = "", top[8192], commit[41];
    struct stat st;

    if (sscanf(r->path, "/api/%31[^/]/%199[^/]/%199[^/]/%31[^/]/%299[^\n]", kind, owner, name, verb,
               rest) < 5) {
        fail(r, 404, "", "Not found");
        return;
    }
    snprintf(top, sizeof top, "%s/hub/%s/%s/%s", root, kind, owner, name);
    commit_of(commit, top);
    if (!may(r, owner))
        return;
    if (stat(top, &st))
        fail(r, 401, "RepoNotFound", "Repository not found");
    else if (strcmp(rest, "main") != 0 && strcmp(rest, "refs/pr/1") != 0 &&
             strcmp(rest, commit) != 0)
        fail(r, 404, "RevisionNotFound", "Invalid rev id");
    else if (strcmp(verb, "tree") == 0)
        send_tree(r, top);
    else {
        send_info(r, top, owner, name, commit);
    }
}

/* /[datasets/]OWNER/NAME/resolve/COMMIT/PATH */
static void serve_resolve(struct request *r)
{
    const char *kind = "models", *at = r->path + 1;
    char owner[200], name[200], commit[100], top[4096], path[8192];
    int n = 0;

    if (strncmp(at, "datasets/", 9) == 0) {
        kind = "datasets";
        at += 9;
    }
    if (sscanf(at, "%199[^/]/%199[^/]/resolve/%99[^/]/%n", owner, name, commit, &n) < 3 || n == 0) {
        fail(r, 404, "", "Not found");
        return;
    }
    if (!may(r, owner))
        return;
    snprintf(top, sizeof top, "%s/hub/%s/%s/%s", root, kind, owner, name);
    snprintf(path, sizeof path, "%s/%s", top, at + n);
    if (is_large(path))
        send_away(r, path, commit);
    else
        send_file(r, path, commit);
}

/* -- a bucket --------------------------------------------------------------------------------- */

static void send_list(struct request *r, const char *top)
{
    char prefix[512], token[64], *out = malloc(1 << 20), path[8192];
    size_t k = 0, i, sent = 0;
    struct list l = list_of(top);
    struct stat st;

    query_value(prefix, sizeof prefix, r->query, "prefix=");
    query_value(token, sizeof token, r->query, "continuation-token=");
    k += (size_t)sprintf(out + k, "<?xml version=\"1.0\"?><ListBucketResult>");
    for (i = *token ? (size_t)atol(token + 1) : 0; i < l.n && sent < 3; i++) {
        snprintf(path, sizeof path, "%.4000s/%.4000s", top, l.item[i]);
        if (strncmp(l.item[i], prefix, strlen(prefix)) != 0 || stat(path, &st) ||
            !S_ISREG(st.st_mode))
            continue;
        sent++;
        k += (size_t)sprintf(out + k, "<Contents><Key>%s</Key><Size>%lld</Size></Contents>",
                             l.item[i], (long long)st.st_size);
    }
    if (i < l.n)
        k += (size_t)sprintf(out + k, "<IsTruncated>true</IsTruncated><NextContinuationToken>+%zu"
                             "</NextContinuationToken>", i);
    k += (size_t)sprintf(out + k, "</ListBucketResult>");
    answer_list(r, "Content-Type: application/xml\r\n", out, k, &l);
}

static void serve_bucket(struct request *r)
{
    const char *at = r->path + 4;
    size_t n = strcspn(at, "/");
    char path[8192], bucket[256];
    struct stat st;

    snprintf(bucket, sizeof bucket, "%.*s", (int)n, at);
    if (serve_bucket_write(r, bucket, at[n] ? at + n + 1 : ""))
        return;

    if (strncmp(at, "private", 7) == 0 &&
        (strncmp(r->token, "AWS4-HMAC-SHA256_Credential=AKIDTEST/", 37) != 0 ||
         (*r->range && !strstr(r->token, "host;range;")))) {
        answer(r, 403, "", "<Error><Code>AccessDenied</Code></Error>", 40);
        return;
    }
    snprintf(path, sizeof path, "%s/s3/%s", root, at);
    if (strstr(r->query, "list-type=2")) {
        snprintf(path, sizeof path, "%s/s3/%.*s", root, (int)n, at);
        if (stat(path, &st)) {
            answer(r, 404, "", "<Error><Code>NoSuchBucket</Code></Error>", 40);
            return;
        }
        send_list(r, path);
    } else {
        send_file(r, path, NULL);
    }
}


void serve_static(struct request *r)
{
    char path[SERVE_PATH];

    if (strncmp(r->path, "/api/", 5) == 0) {
        serve_api(r);
    } else if (strncmp(r->path, "/s3/", 4) == 0) {
        serve_bucket(r);
    } else if (strncmp(r->path, "/web/", 5) == 0) {
        snprintf(path, sizeof path, "%s%s", root, r->path);
        send_file(r, path, NULL);
    } else {
        serve_resolve(r);
    }
}
