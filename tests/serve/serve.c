/*
 * serve - a hub and a web server on loopback, for tests: serve ROOT LOG [RULE ...]
 *
 * Prints "PORT STORAGE" when it listens, the two ports of 127.0.0.1, and serves until it is killed
 * or its parent ends:
 *
 *   /api/{models,datasets}/ID/revision/REV, .../tree/COMMIT   ROOT/hub/{models,datasets}/ID
 *   /[datasets/]ID/resolve/COMMIT/PATH      large kinds of files answer 302 to STORAGE
 *   /web/PATH                               ROOT/web/PATH
 *   /s3/BUCKET?list-type=2..., /s3/BUCKET/KEY   ROOT/s3/BUCKET; signed where it begins "private"
 *   STORAGE/cdn/...                         what those redirects lead to; needs its sig=, and
 *                                           takes a token for a leak
 *
 * Repositories whose owner begins with "private" want "Bearer hf_canary".  Each request is a line of
 * LOG: "PORT METHOD TARGET RANGE TOKEN STATUS BYTES", RANGE and TOKEN "-" when there are none.
 *
 * RULE is ACTION[:[SKIP+]TIMES]@GLOB: of the requests whose path the glob matches, TIMES (all) after
 * the first SKIP get
 *   status=N[,SECONDS]  that status, with Retry-After
 *   reset   nothing, the connection closes      short   half of the body, then it closes
 *   slow    a byte, and another in a minute     flip    the last byte of the body changed
 *   plain   no ranges                           chunk   no ranges, and no length
 *   etag    another ETag each time              total   a wrong length of the whole in a range
 *   html    a page                              cut     half of the body as if it were all
 *   loop    a redirect to itself                away=URL  a redirect to URL
 *   head    a header without end                gzip    a Content-Encoding nobody asked for
 *   echo=N  that status, and the Authorization it got as the message; say=N the same in JSON's
 *           escapes; lead    a redirect to a path that has it
 *   line    a line of a header without end      dust    chunks that are all extension
 *   link=X  a page of a list that goes on at X; at an endless address where X is "long"
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_FILES 25           /* of a page of a tree */

struct rule {
    char action[16], value[512], glob[512];
    long skip, times;           /* left; times -1: no end */
};

struct request {
    int         fd, port;
    char        method[8], target[4096], path[4096], query[4096], range[100], token[600];
    bool        close;
    /* what a rule asks for */
    const char *act, *value;
};

static const char *root;
static FILE *log_file;
static int port_of[2];
static struct rule rules[64];
static size_t n_rules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long serial;

static void say(const struct request *r, int status, long long bytes)
{
    pthread_mutex_lock(&lock);
    fprintf(log_file, "%s %s %s %s %s %d %lld\n", r->port == port_of[0] ? "hub" : "cdn", r->method,
            r->target, *r->range ? r->range : "-", *r->token ? r->token : "-", status, bytes);
    fflush(log_file);
    pthread_mutex_unlock(&lock);
}

static bool put(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);

        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

static bool is(const struct request *r, const char *action)
{
    return r->act && strcmp(r->act, action) == 0;
}

static const char *reason(int status)
{
    return status == 200 ? "OK" : status == 206 ? "Partial Content" : status == 302 ? "Found"
           : status == 404 ? "Not Found" : "Status";
}

/* An answer of bytes in memory, ranges and rules applied. */
static void answer(struct request *r, int status, const char *headers, const char *body, size_t n)
{
    unsigned long long from = 0, last = n ? n - 1 : 0;
    char head[8192], extra[200] = "";
    size_t send_n = n, k;
    bool ranged = false;
    char tail;

    if (status == 200 && *r->range && !is(r, "plain") && !is(r, "chunk") &&
        sscanf(r->range, "bytes=%llu-%llu", &from, &last) >= 1) {
        if (last >= n)
            last = n ? n - 1 : 0;
        if (from >= n) {
            status = 416;
            send_n = 0;
            snprintf(extra, sizeof extra, "Content-Range: bytes */%zu\r\n", n);
        } else {
            status = 206;
            ranged = true;
            send_n = (size_t)(last - from + 1);
            snprintf(extra, sizeof extra, "Content-Range: bytes %llu-%llu/%zu\r\n", from, last,
                     n + (is(r, "total") ? 1 : 0));
        }
    }
    if (is(r, "cut"))
        send_n /= 2;
    k = (size_t)snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\n%s%s", status, reason(status),
                         headers, extra);
    if (is(r, "etag"))
        k += (size_t)snprintf(head + k, sizeof head - k, "ETag: \"v%ld\"\r\n", ++serial);
    if (is(r, "gzip"))
        k += (size_t)snprintf(head + k, sizeof head - k, "Content-Encoding: gzip\r\n");
    if (is(r, "chunk"))
        k += (size_t)snprintf(head + k, sizeof head - k, "Connection: close\r\n\r\n");
    else
        k += (size_t)snprintf(head + k, sizeof head - k, "Content-Length: %zu\r\n\r\n", send_n);
    say(r, status, (long long)send_n);
    put(r->fd, head, k);
    if (strcmp(r->method, "HEAD") == 0)
        return;
    body += ranged ? from : 0;
    if (is(r, "short")) {
        put(r->fd, body, send_n / 2);
        r->close = true;
    } else if (is(r, "slow")) {
        put(r->fd, body, 1);
        sleep(60);
        r->close = true;
    } else if (is(r, "flip") && send_n) {
        tail = (char)(body[send_n - 1] ^ 1);
        put(r->fd, body, send_n - 1);
        put(r->fd, &tail, 1);
    } else {
        put(r->fd, body, send_n);
    }
    r->close = r->close || is(r, "chunk");
}

static void fail(struct request *r, int status, const char *code, const char *message)
{
    char headers[1024], body[1024];
    int n = snprintf(body, sizeof body, "{\"error\":\"%s\"}", message);

    snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s%s%s", *code ?
             "X-Error-Code: " : "", code, *code ? "\r\n" : "");
    answer(r, status, headers, body, (size_t)n);
}

/* -- files ------------------------------------------------------------------------------------ */

static char *map_file(const char *path, size_t *n)
{
    int fd = open(path, O_RDONLY);
    struct stat st;
    char *at;

    *n = 0;
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    *n = (size_t)st.st_size;
    at = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : "";
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static void unmap(char *at, size_t n)
{
    if (n)
        munmap(at, n);
}

static void hex_digest(char *hex, const EVP_MD *md, const char *head, size_t n_head,
                       const char *body, size_t n)
{
    unsigned char d[64];
    unsigned len = 0;
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    EVP_DigestInit_ex(c, md, NULL);
    EVP_DigestUpdate(c, head, n_head);
    EVP_DigestUpdate(c, body, n);
    EVP_DigestFinal_ex(c, d, &len);
    EVP_MD_CTX_free(c);
    for (unsigned i = 0; i < len; i++)
        sprintf(hex + 2 * i, "%02x", d[i]);
}

static void git_sha(char hex[41], const char *body, size_t n)
{
    char head[40];
    int k = snprintf(head, sizeof head, "blob %zu", n) + 1;

    hex_digest(hex, EVP_sha1(), head, (size_t)k, body, n);
}

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
    for (size_t i = from; i < l.n && i < from + PAGE_FILES; i++) {
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
        hex_digest(sha256, EVP_sha256(), "", 0, body, n);
        k += (size_t)sprintf(out + k, "{\"type\":\"file\",\"path\":\"%s\",\"size\":%zu,"
                             "\"oid\":\"%s\"", l.item[i], n, sha);
        if (is_large(l.item[i]))
            k += (size_t)sprintf(out + k, ",\"lfs\":{\"oid\":\"%s\",\"size\":%zu,"
                                 "\"pointerSize\":134}", sha256, n);
        k += (size_t)sprintf(out + k, "}");
        unmap(body, n);
    }
    k += (size_t)sprintf(out + k, "]");
    if (from + PAGE_FILES < l.n)
        snprintf(headers + strlen(headers), 5000, "Link: <http://127.0.0.1:%d%s?recursive=true&"
                 "cursor=%zu>; rel=\"next\"\r\n", port_of[0], r->path, from + PAGE_FILES);
    answer_list(r, headers, out, k, &l);
}

static void send_file(struct request *r, const char *path, const char *commit)
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
    hex_digest(sha256, EVP_sha256(), "", 0, body, n);
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
    hex_digest(hex, EVP_sha1(), "", 0, top + strlen(root), strlen(top) - strlen(root));
}

static bool may(struct request *r, const char *id)
{
    if (strncmp(id, "private", 7) != 0 || strcmp(r->token, "Bearer_hf_canary") == 0)
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

static void unescape(char *s)
{
    char *to = s;

    for (; *s; s++)
        if (*s == '%' && isxdigit((unsigned char)s[1]) && isxdigit((unsigned char)s[2])) {
            char hex[3] = {s[1], s[2], 0};

            *to++ = (char)strtol(hex, NULL, 16);
            s += 2;
        } else {
            *to++ = *s;
        }
    *to = '\0';
}

/* -- a bucket --------------------------------------------------------------------------------- */

static void query_value(char *dst, size_t size, const char *query, const char *name)
{
    const char *at = strstr(query, name);

    *dst = '\0';
    if (at)
        snprintf(dst, size, "%.*s", (int)strcspn(at + strlen(name), "&"), at + strlen(name));
    unescape(dst);
}

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
    char path[8192];

    if (strncmp(at, "private", 7) == 0 &&
        (strncmp(r->token, "AWS4-HMAC-SHA256_Credential=AKIDTEST/", 37) != 0 ||
         (*r->range && !strstr(r->token, "host;range;")))) {
        answer(r, 403, "", "<Error><Code>AccessDenied</Code></Error>", 40);
        return;
    }
    snprintf(path, sizeof path, "%s/s3/%s", root, at);
    if (strstr(r->query, "list-type=2")) {
        snprintf(path, sizeof path, "%s/s3/%.*s", root, (int)n, at);
        send_list(r, path);
    } else {
        send_file(r, path, NULL);
    }
}

/* -- one request ------------------------------------------------------------------------------ */

static void apply_rules(struct request *r)
{
    r->act = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; !r->act && i < n_rules; i++)
        if (rules[i].times != 0 && fnmatch(rules[i].glob, r->path, 0) == 0) {
            if (rules[i].skip > 0) {
                rules[i].skip--;
                continue;
            }
            rules[i].times -= rules[i].times > 0;
            r->act = rules[i].action;
            r->value = rules[i].value;
        }
    pthread_mutex_unlock(&lock);
}

/* Answers that are all rule.  True when one was given. */
static bool by_rule(struct request *r)
{
    char headers[8192] = "";
    int status, seconds = 0;

    if (is(r, "reset")) {
        say(r, 0, 0);
        r->close = true;
    } else if (is(r, "status")) {
        status = atoi(r->value);
        if (strchr(r->value, ','))
            seconds = atoi(strchr(r->value, ',') + 1);
        snprintf(headers, sizeof headers, "Retry-After: %d\r\n", seconds);
        answer(r, status, headers, "{\"error\":\"as the rule says\"}", 28);
    } else if (is(r, "echo")) {
        char body[800];
        int n = snprintf(body, sizeof body, "{\"error\":\"bad %s\"}", r->token);

        for (char *p = body; *p; p++)
            if (*p == '_' && p > body && p[-1] == 'r')
                *p = ' ';
        answer(r, atoi(r->value), "", body, (size_t)n);
    } else if (is(r, "say")) {
        char body[8000] = "{\"error\":\"bad ";
        size_t k = strlen(body);

        for (const char *p = r->token; *p; p++)
            k += (size_t)sprintf(body + k, "\\u%04x", (unsigned)(unsigned char)*p);
        k += (size_t)sprintf(body + k, "\"}");
        answer(r, atoi(r->value), "", body, k);
    } else if (is(r, "lead")) {
        snprintf(headers, sizeof headers, "Location: /web/%s/%%63%%61nary\r\n", r->token);
        answer(r, 302, headers, "", 0);
    } else if (is(r, "link")) {
        char far[6001];

        memset(far, 'x', 6000);
        far[6000] = '\0';
        snprintf(headers, sizeof headers, "Content-Type: application/json\r\nLink: <%s>; "
                 "rel=\"next\"\r\n", strcmp(r->value, "long") == 0 ? far : r->value);
        answer(r, 200, headers, "[]", 2);
    } else if (is(r, "line") || is(r, "dust")) {
        static char much[65536];

        memset(much, 'x', sizeof much);
        put(r->fd, is(r, "line") ? "HTTP/1.1 200 OK\r\nX-More: "
                                 : "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
            is(r, "line") ? 25 : 49);
        for (int i = 0; i < 400 && put(r->fd, much, is(r, "line") ? sizeof much : 4096); i++)
            usleep(is(r, "line") ? 0 : 20000);
        say(r, 200, 0);
        r->close = true;
    } else if (is(r, "html")) {
        answer(r, 200, "Content-Type: text/html\r\n", "<!doctype html><html></html>", 28);
    } else if (is(r, "loop") || is(r, "away")) {
        snprintf(headers, sizeof headers, "Location: %s\r\n", is(r, "loop") ? r->target : r->value);
        answer(r, 302, headers, "", 0);
    } else if (is(r, "head")) {
        put(r->fd, "HTTP/1.1 200 OK\r\n", 17);
        for (int i = 0; i < 100000 && put(r->fd, "X-More: and more and more\r\n", 27); i++)
            ;
        say(r, 200, 0);
        r->close = true;
    } else {
        return false;
    }
    return true;
}

static void serve_one(struct request *r)
{
    char path[8192];

    apply_rules(r);
    if (by_rule(r))
        return;
    if (strstr(r->path, "..")) {
        fail(r, 400, "", "no");
    } else if (r->port == port_of[1]) {
        if (*r->token)
            fail(r, 400, "", "a token came to the wrong host");
        else if (!strstr(r->query, "sig=secret"))
            fail(r, 403, "", "expired");
        else {
            snprintf(path, sizeof path, "%s%s", root, r->path + 4);
            send_file(r, path, NULL);
        }
    } else if (strncmp(r->path, "/api/", 5) == 0) {
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

/* Read until the empty line; false at the end of the connection. */
static bool read_head(int fd, char *buf, size_t size, size_t *have, size_t *end)
{
    for (;;) {
        char *stop = memmem(buf, *have, "\r\n\r\n", 4);
        ssize_t k;

        if (stop) {
            *end = (size_t)(stop - buf) + 4;
            return true;
        }
        k = *have < size ? recv(fd, buf + *have, size - *have, 0) : 0;
        if (k <= 0)
            return false;
        *have += (size_t)k;
    }
}

static void field(char *dst, size_t size, const char *head, const char *name)
{
    const char *at = strcasestr(head, name);
    size_t n;

    *dst = '\0';
    if (!at)
        return;
    at += strlen(name);
    at += strspn(at, " ");
    n = strcspn(at, "\r");
    snprintf(dst, size, "%.*s", (int)n, at);
    for (char *p = dst; *p; p++)
        *p = *p == ' ' ? '_' : *p;
}

/* A socket, and the port that it is of. */
struct door {
    int fd, port;
};

static void *serve_client(void *ctx)
{
    struct door c = *(struct door *)ctx;
    size_t have = 0, end, size = 65536;
    char *buf = malloc(size + 1);
    bool open = true;

    free(ctx);
    while (open && read_head(c.fd, buf, size, &have, &end)) {
        struct request *r = calloc(1, sizeof *r);
        char keep = buf[end], *q;

        buf[end] = '\0';
        r->fd = c.fd;
        r->port = c.port;
        sscanf(buf, "%7s %4095s", r->method, r->target);
        field(r->range, sizeof r->range, buf, "\r\nRange:");
        field(r->token, sizeof r->token, buf, "\r\nAuthorization:");
        buf[end] = keep;
        snprintf(r->path, sizeof r->path, "%s", r->target);
        q = strchr(r->path, '?');
        if (q) {
            snprintf(r->query, sizeof r->query, "%s", q + 1);
            *q = '\0';
        }
        unescape(r->path);
        serve_one(r);
        open = !r->close;
        free(r);
        memmove(buf, buf + end, have - end);
        have -= end;
    }
    close(c.fd);
    free(buf);
    return NULL;
}

static void *serve_port(void *ctx)
{
    struct door *d = ctx;

    for (;;) {
        int fd = accept(d->fd, NULL, NULL), one = 1;
        struct door *c = fd < 0 ? NULL : malloc(sizeof *c);
        pthread_t thread;

        if (!c)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        *c = (struct door){fd, d->port};
        if (pthread_create(&thread, NULL, serve_client, c))
            exit(71);
        pthread_detach(thread);
    }
}

static struct door listen_on(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    struct door d = {.fd = socket(AF_INET, SOCK_STREAM, 0)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (d.fd < 0 || bind(d.fd, (struct sockaddr *)&a, sizeof a) || listen(d.fd, 128) ||
        getsockname(d.fd, (struct sockaddr *)&a, &n)) {
        perror("serve");
        exit(71);
    }
    d.port = ntohs(a.sin_port);
    return d;
}

static void add_rule(const char *text)
{
    struct rule *r = &rules[n_rules++];
    const char *at = strrchr(text, '@');
    char head[600];
    char *colon, *value;

    snprintf(head, sizeof head, "%.*s", (int)(at - text), text);
    snprintf(r->glob, sizeof r->glob, "%s", at + 1);
    r->times = -1;
    colon = strrchr(head, ':');
    if (colon && isdigit((unsigned char)colon[1]) && !strchr(colon, '/')) {
        r->times = strtol(colon + 1, &value, 10);
        if (*value == '+') {
            r->skip = r->times;
            r->times = atol(value + 1);
        }
        *colon = '\0';
    }
    value = strchr(head, '=');
    if (value) {
        *value = '\0';
        snprintf(r->value, sizeof r->value, "%s", value + 1);
    }
    snprintf(r->action, sizeof r->action, "%.15s", head);
}

int main(int argc, char **argv)
{
    struct door d[2];
    pthread_t thread;

    if (argc < 3)
        return 64;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    root = argv[1];
    log_file = fopen(argv[2], "a");
    for (int i = 3; i < argc && n_rules < 64; i++)
        add_rule(argv[i]);
    for (int i = 0; i < 2; i++) {
        d[i] = listen_on();
        port_of[i] = d[i].port;
    }
    if (!log_file || pthread_create(&thread, NULL, serve_port, &d[1]))
        return 71;
    printf("%d %d\n", port_of[0], port_of[1]);
    fflush(stdout);
    serve_port(&d[0]);
}
