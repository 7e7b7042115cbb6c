/*
 * dav.c - a WebDAV server of ROOT/dav by /dav: folders one by one, and one file at a time.  Who asks is
 * the user of git.c, or has the token that writes.  A path below "full" has 1000 bytes of space.
 */
#include "tests/serve/serve.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void tag_of(char tag[60], const struct stat *st)
{
    snprintf(tag, 60, "\"%llx-%llx-%llx\"", (unsigned long long)st->st_ino, (unsigned long long)st->st_size,
             (unsigned long long)st->st_mtim.tv_nsec);
}

static void plain(struct request *r, int status) { answer(r, status, "", "", 0); }

/* -- lists ---------------------------------------------------------------------------------------- */

static size_t put_escaped(char *out, const char *path)
{
    size_t n = 0;

    for (; *path; path++)
        n += (size_t)(strchr(" %&<>\"'", *path) || (unsigned char)*path >= 128
                      ? sprintf(out + n, "%%%02X", (unsigned)(unsigned char)*path) : sprintf(out + n, "%c", *path));
    return n;
}

static size_t put_response(char *out, const char *href, const char *file)
{
    struct stat st;
    char tag[60], when[60];
    size_t n = 0;
    struct tm tm;

    if (stat(file, &st))
        return 0;
    tag_of(tag, &st);
    strftime(when, sizeof when, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&st.st_mtime, &tm));
    n += (size_t)sprintf(out + n, " <d:response>\n  <d:href>http://127.0.0.1:%d", port_of[0]);
    n += put_escaped(out + n, href);
    n += (size_t)sprintf(out + n, "%s</d:href>\n  <d:propstat><d:prop>", S_ISDIR(st.st_mode) ? "/" : "");
    if (S_ISDIR(st.st_mode))
        n += (size_t)sprintf(out + n, "<d:resourcetype><d:collection/></d:resourcetype>%s", strstr(href, "/full") ?
                             "<d:quota-available-bytes>1000</d:quota-available-bytes>" : "");
    else
        n += (size_t)sprintf(out + n, "<d:resourcetype/><lp1:getcontentlength>%lld</lp1:getcontentlength>"
                             "<lp1:getetag>&quot;%.*s&quot;</lp1:getetag>", (long long)st.st_size,
                             (int)strlen(tag) - 2, tag + 1);
    n += (size_t)sprintf(out + n, "<d:getlastmodified>%s</d:getlastmodified></d:prop><d:status>HTTP/1.1 200 OK"
                         "</d:status></d:propstat>\n  <d:propstat><d:prop><d:quota-used-bytes/></d:prop>"
                         "<d:status>HTTP/1.1 404 Not Found</d:status></d:propstat>\n </d:response>\n", when);
    return n;
}

static void find_properties(struct request *r, const char *file)
{
    char *out = malloc(1 << 22), depth[20], href[SERVE_PATH], sub[SERVE_PATH];
    struct dirent *e;
    size_t n;
    DIR *d;

    field(depth, sizeof depth, r, "Depth:");
    snprintf(href, sizeof href, "%s", r->path);
    while (*href && href[strlen(href) - 1] == '/')
        href[strlen(href) - 1] = '\0';
    n = (size_t)sprintf(out, "<?xml version=\"1.0\"?>\n<d:multistatus xmlns:d=\"DAV:\" xmlns:lp1=\"DAV:\">\n");
    n += put_response(out + n, href, file);
    d = strcmp(depth, "1") == 0 ? opendir(file) : NULL;
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            char below[SERVE_PATH];

            snprintf(sub, sizeof sub, "%.4000s/%s", file, e->d_name);
            snprintf(below, sizeof below, "%.4000s/%s", href, e->d_name);
            n += put_response(out + n, below, sub);
        }
    if (d)
        closedir(d);
    n += (size_t)sprintf(out + n, "</d:multistatus>");
    if (strcmp(depth, "infinity") == 0 || !*depth)
        plain(r, 403);
    else if (access(file, F_OK))
        plain(r, 404);
    else
        answer(r, 207, "Content-Type: application/xml\r\n", out, n);
    free(out);
}

/* -- changes --------------------------------------------------------------------------------------- */

static bool has_parent(const char *file)
{
    char above[SERVE_PATH];
    struct stat st;

    snprintf(above, sizeof above, "%s", file);
    *strrchr(above, '/') = '\0';
    return stat(above, &st) == 0 && S_ISDIR(st.st_mode);
}

static void put_file(struct request *r, const char *file)
{
    if (!has_parent(file)) {
        plain(r, 409);
        return;
    }
    write_file(file, r->body ? r->body : "", r->n_body);
    if (is(r, "rot"))
        rot_file(file);
    plain(r, 201);
}

static void make_folder(struct request *r, const char *file)
{
    struct stat st;

    plain(r, stat(file, &st) == 0 ? 405 : has_parent(file) && mkdir(file, 0777) == 0 ? 201 : 409);
}

static void move_file(struct request *r, const char *file)
{
    char to[SERVE_PATH], overwrite[10], path[2 * SERVE_PATH];
    const char *at;

    field(to, sizeof to, r, "Destination:");
    field(overwrite, sizeof overwrite, r, "Overwrite:");
    unescape(to);
    at = strstr(to, "/dav/");
    snprintf(path, sizeof path, "%s%s", root, at ? at : "/none/none");
    if (is(r, "moves"))
        write_file(path, "somebody else's", 15);
    if (!at || strstr(to, ".."))
        plain(r, 502);
    else if (file_size(file) < 0)
        plain(r, 404);
    else if (*overwrite == 'F' && file_size(path) >= 0)
        plain(r, 412);
    else
        plain(r, !has_parent(path) || rename(file, path) ? 409 : 201);
}

static void send_one(struct request *r, const char *file)
{
    char headers[100], tag[60];
    struct stat st;
    size_t n;
    char *at = map_file(file, &n);

    if (!at || stat(file, &st)) {
        plain(r, 404);
        return;
    }
    tag_of(tag, &st);
    snprintf(headers, sizeof headers, "ETag: %s\r\n", tag);
    answer(r, 200, headers, at, n);
    unmap(at, n);
}

static void drop(struct request *r, const char *file) { plain(r, unlink(file) ? 404 : 204); }

static const struct dav_route {
    const char *method;
    void (*run)(struct request *r, const char *file);
} routes[] = {
    {"PROPFIND", find_properties}, {"PUT", put_file}, {"MKCOL", make_folder}, {"MOVE", move_file},
    {"GET", send_one}, {"HEAD", send_one}, {"DELETE", drop},
};

void serve_dav(struct request *r)
{
    char file[SERVE_PATH];
    size_t n = (size_t)snprintf(file, sizeof file, "%s%.4000s", root, r->path);

    while (n > 0 && file[n - 1] == '/')
        file[--n] = '\0';
    if (strcmp(r->token, SERVE_LOGIN) != 0 && token_level(r) < 2) {
        answer(r, *r->token ? 403 : 401, "WWW-Authenticate: Basic realm=\"d\"\r\n", "", 0);
        return;
    }
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(r->method, routes[i].method) == 0) {
            routes[i].run(r, file);
            pthread_mutex_unlock(&lock);
            return;
        }
    pthread_mutex_unlock(&lock);
    plain(r, 405);
}
