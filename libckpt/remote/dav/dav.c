/* dav - see dav.h. */
#include "libckpt/remote/dav/dav.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/xml.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/remote/dav/dav_login.h"

#define TEXT_BYTES  ((uint64_t)16 << 20)    /* of an answer: the list of one folder */
#define MAX_FOLDERS 65536u
#define MAX_DEPTH   64u                     /* a server may link a folder into itself */

static const char ask_properties[] =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<propfind xmlns=\"DAV:\"><prop><resourcetype/>"
    "<getcontentlength/><getetag/><getlastmodified/><quota-available-bytes/></prop></propfind>\n";

/* -- where ------------------------------------------------------------------------------------ */

static const struct { const char *scheme, *http; } schemes[] = {
    {"dav://", "http://"}, {"davs://", "https://"},
    {"webdav+http://", "http://"}, {"webdav+https://", "https://"},
};
#define N_SCHEMES (sizeof schemes / sizeof schemes[0])

static size_t scheme_of(const char *address)
{
    size_t i = 0;

    while (i < N_SCHEMES && strncmp(address, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
        i++;
    return i;
}

bool dav_is_address(const char *address) { return scheme_of(address) < N_SCHEMES; }

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    const struct dav *d = ctx;

    (void)what;
    return (size_t)snprintf(lines, size, "%s", d->line) < size
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s: the credential is too long", d->name);
}

/* http is for this host; elsewhere it is warned of, or refused. */
static int check_plain(const struct dav *d, struct ckpt_err *err)
{
    if (strncmp(d->base, "https:", 6) == 0 || http_is_loopback(d->base))
        return 0;
    if (!http_env_true("CKPT_INSECURE_HTTP")) {
        ckpt_fail(err, CKPT_EREFUSED, "%.300s: http authenticates neither the server nor the data",
                  d->name);
        return ckpt_err_hint(err, "use davs://, or set CKPT_INSECURE_HTTP=1");
    }
    ckpt_log(CKPT_LOG_WARNING, "%.300s: is asked over http, which authenticates neither the server "
             "nor the data", d->name);
    return 0;
}

int dav_open_place(struct dav *d, const char *address, struct ckpt_err *err)
{
    size_t i = scheme_of(address), n = strlen(address);
    const char *rest = i < N_SCHEMES ? address + strlen(schemes[i].scheme) : "";
    char host[512];
    int rc;

    *d = (struct dav){.auth = {.sign = sign}};
    d->auth.ctx = d;
    while (n > 0 && address[n - 1] == '/')
        n--;
    if (!*rest || *rest == '/' || strpbrk(address, "?#") || address + n <= rest) {
        ckpt_fail(err, CKPT_EUSAGE, "%.300s: names no folder of a server", address);
        return ckpt_err_hint(err, "as in davs://host/path");
    }
    if ((size_t)snprintf(d->name, sizeof d->name, "%.*s", (int)n, address) >= sizeof d->name ||
        (size_t)snprintf(d->base, sizeof d->base, "%s%.*s/", schemes[i].http,
                         (int)(address + n - rest), rest) >= sizeof d->base)
        return ckpt_fail(err, CKPT_ELIMIT, "an address of %zu bytes", n);
    if (strstr(d->base + strlen(schemes[i].http), "//") || strstr(d->base, "/../"))
        return ckpt_fail(err, CKPT_EUSAGE, "%.300s: a path with an empty part, or one that leads "
                         "up", address);
    if ((rc = http_origin(d->auth.origin, d->base, err)) != 0)
        return rc;
    if ((rc = check_plain(d, err)) != 0)
        return rc;
    snprintf(host, sizeof host, "%s", strstr(d->auth.origin, "://") + 3);
    *strrchr(host, ':') = '\0';
    return dav_login_find(d->line, sizeof d->line, host, err);
}

void dav_close_place(struct dav *d) { explicit_bzero(d->line, sizeof d->line); }

const struct http_auth *dav_auth(const struct dav *d) { return d->line[0] ? &d->auth : NULL; }

int dav_address(char url[HTTP_URL], const struct dav *d, const char *path, struct ckpt_err *err)
{
    size_t n = (size_t)snprintf(url, HTTP_URL, "%s", d->base);

    return n < HTTP_URL && http_escape(url + n, HTTP_URL - n, path, "/")
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s/%.200s: the address is too long", d->name,
                               path);
}

/* -- requests --------------------------------------------------------------------------------- */

/* What a status means where WebDAV says more than HTTP. */
static const struct {
    long        status;
    int         code;
    const char *reason, *text, *hint;
} meanings[] = {
    {404, CKPT_ENOTFOUND, "", "is not there", ""},
    {405, CKPT_EUNSUPPORTED, "", "the server does not do this: no WebDAV there, or read-only", ""},
    {409, CKPT_ENOTFOUND, "no-folder", "the folder that it lies in is not there", ""},
    {410, CKPT_ENOTFOUND, "", "is not there any more", ""},
    {412, CKPT_ESTOPPED, "moved", "is no longer what it was", ""},
    {413, CKPT_ELIMIT, "", "the server takes no request of this size", ""},
    {423, CKPT_ESTOPPED, "locked", "another client has locked it", "run it again later"},
    {507, CKPT_EIO, "no-space", "the server has no space left", ""},
};

static int explain(const struct dav_call *c, const struct http_answer *a, int rc,
                   struct ckpt_err *err)
{
    if (a->status == 401 || a->status == 403)
        return ckpt_err_hint(err, a->status == 401
                             ? "CKPT_DAV_USER with CKPT_DAV_PASSWORD, CKPT_DAV_TOKEN or ~/.netrc "
                               "give a login" : "the login has no right to this");
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (a->status == meanings[i].status) {
            ckpt_fail_as(err, meanings[i].code, meanings[i].reason, "%s: %s", c->name,
                         meanings[i].text);
            return *meanings[i].hint ? ckpt_err_hint(err, "%s", meanings[i].hint)
                                     : meanings[i].code;
        }
    return rc;
}

int dav_ask(char **text, const struct dav *d, const struct dav_call *c, struct http_answer *a,
            struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char *url = http ? ckpt_alloc(1, HTTP_URL) : NULL, *body = NULL;
    size_t n = 0;
    int rc = url ? dav_address(url, d, c->path, err)
                 : http ? ckpt_nomem(err, HTTP_URL) : ckpt_err_code(err);

    field_clear(a);
    rc = rc ? rc : http_text(http, &body, &n, &(struct http_request){
        .url = url, .name = c->name, .auth = dav_auth(d), .method = c->method,
        .headers = c->headers, .body = c->body, .limit = TEXT_BYTES}, a, err);
    if (rc && a->status)
        rc = explain(c, a, rc, err);
    if (rc == 0 && text && strlen(body) != n)
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer is no text", c->name);
    if (rc == 0 && text) {
        *text = body;
        body = NULL;
    }
    ckpt_free(body);
    ckpt_free(url);
    return rc;
}

static int ask_of(char **text, const struct dav *d, const char *path, const char *depth,
                  struct ckpt_err *err)
{
    const struct http_body body = {.type = "application/xml", .bytes = ask_properties,
                                   .n = sizeof ask_properties - 1};
    char name[5200], line[40];
    struct http_answer a;
    int rc;

    snprintf(name, sizeof name, "%s%s%s", d->name, *path ? "/" : "", path);
    snprintf(line, sizeof line, "Depth: %s\n", depth);
    *text = NULL;
    rc = dav_ask(text, d, &(struct dav_call){.name = name, .method = "PROPFIND", .path = path,
                                             .headers = line, .body = &body}, &a, err);
    if (rc == 0 && a.status != 207) {
        ckpt_free(*text);
        *text = NULL;
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the server does not list folders: status %ld, 207 "
                       "wanted", name, a.status);
    }
    return rc;
}

/* -- lists ------------------------------------------------------------------------------------ */

/* The path of an address, unescaped, without slashes at its end. */
static bool path_of(char *out, size_t size, const char *address)
{
    const char *at = strstr(address, "://");
    size_t n;

    at = at ? strchr(at + 3, '/') : address;
    if (!at || (size_t)snprintf(out, size, "%s", at) >= size || !http_unescape(out))
        return false;
    n = strlen(out);
    while (n > 0 && out[n - 1] == '/')
        out[--n] = '\0';
    return true;
}

/* Parse one <response>; false when it is of no file or folder directly in the folder asked for. */
static bool read_entry(struct dav_entry *e, struct xml response, const char *above)
{
    char href[HTTP_URL], path[HTTP_URL], word[32];
    unsigned long long n;
    size_t k = strlen(above);
    struct xml type, in = response, folder;

    if (!xml_text(href, sizeof href, response, "href") || !path_of(path, sizeof path, href) ||
        strncmp(path, above, k) != 0 || (path[k] && path[k] != '/'))
        return false;
    *e = (struct dav_entry){.size = FIELD_NONE, .free = FIELD_NONE};
    if ((size_t)snprintf(e->path, sizeof e->path, "%s", path[k] ? path + k + 1 : "") >=
            sizeof e->path || strchr(e->path, '/'))
        return false;
    e->is_folder = xml_next(&type, &in, "resourcetype") && xml_next(&folder, &type, "collection");
    if (xml_number(&n, response, "getcontentlength"))
        e->size = n;
    if (xml_text(word, sizeof word, response, "quota-available-bytes") && *word != '-' &&
        xml_number(&n, response, "quota-available-bytes"))
        e->free = n;
    xml_text(e->tag, sizeof e->tag, response, "getetag");
    xml_text(e->modified, sizeof e->modified, response, "getlastmodified");
    return true;
}

int dav_read_page(const char *text, const char *base, const char *name,
                  int (*found)(void *ctx, const struct dav_entry *e, struct ckpt_err *err),
                  void *ctx, struct ckpt_err *err)
{
    struct xml page = xml_of(text), list, response, at;
    struct dav_entry *e = ckpt_alloc(1, sizeof *e);
    char above[HTTP_URL];
    int rc = e ? 0 : ckpt_nomem(err, sizeof *e);

    if (rc == 0 && (!path_of(above, sizeof above, base) ||
                    !xml_next(&list, &page, "multistatus")))
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer is no list of a folder", name);
    for (at = list; rc == 0 && xml_next(&response, &at, "response");)
        if (read_entry(e, response, above))
            rc = found(ctx, e, err);
    if (rc == 0 && xml_next(&response, &at, "href"))
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the list breaks off", name);
    ckpt_free(e);
    return rc;
}

static int take_one(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    (void)err;
    if (!*e->path)
        *(struct dav_entry *)ctx = *e;
    return 0;
}

int dav_look(struct dav_entry *e, const struct dav *d, const char *path, struct ckpt_err *err)
{
    char *url = ckpt_alloc(1, HTTP_URL), *text = NULL;
    int rc = url ? dav_address(url, d, path, err) : ckpt_nomem(err, HTTP_URL);

    *e = (struct dav_entry){.path = "?", .size = FIELD_NONE, .free = FIELD_NONE};
    rc = rc ? rc : ask_of(&text, d, path, "0", err);
    rc = rc ? rc : dav_read_page(text, url, d->name, take_one, e, err);
    if (rc == 0 && *e->path)
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer says nothing of what was asked for",
                       d->name);
    ckpt_free(text);
    ckpt_free(url);
    return rc;
}

/* The folders that are still to be listed. */
struct walk {
    int (*found)(void *ctx, const struct dav_entry *e, struct ckpt_err *err);
    void       *ctx;
    const char *above;          /* "" or "folder/", of the page that is read */
    char      **todo;
    size_t      n, cap, seen;
};

static size_t depth_of(const char *path)
{
    size_t n = 0;

    while ((path = strchr(path, '/')) != NULL) {
        path++;
        n++;
    }
    return n;
}

static int walk_entry(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    struct walk *w = ctx;
    struct dav_entry *below;
    char *folder;
    int rc;

    if (!*e->path)
        return 0;                       /* the folder itself */
    below = ckpt_alloc(1, sizeof *below);
    if (!below)
        return ckpt_nomem(err, sizeof *below);
    *below = *e;
    rc = (size_t)snprintf(below->path, sizeof below->path, "%.2000s%.2000s", w->above, e->path) <
                 sizeof below->path
             ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: the path is too long", e->path);
    if (rc == 0 && e->is_folder && ckpt_file_path_is_clean(below->path)) {
        folder = ckpt_alloc(1, strlen(below->path) + 2);
        if (!folder || ckpt_reserve(&w->todo, w->n, &w->cap, sizeof *w->todo, err)) {
            rc = ckpt_nomem(err, strlen(below->path));
            ckpt_free(folder);
        } else {
            snprintf(folder, strlen(below->path) + 2, "%s/", below->path);
            w->todo[w->n++] = folder;
        }
    }
    if (rc == 0 && (w->seen + w->n > MAX_FOLDERS || depth_of(below->path) > MAX_DEPTH))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%.200s: more than %u folders, or deeper than %u", e->path,
                       MAX_FOLDERS, MAX_DEPTH);
    rc = rc ? rc : w->found(w->ctx, below, err);
    ckpt_free(below);
    return rc;
}

static int walk_one(struct walk *w, const struct dav *d, const char *path, struct ckpt_err *err)
{
    char *url = ckpt_alloc(1, HTTP_URL), *text = NULL;
    int rc = url ? dav_address(url, d, path, err) : ckpt_nomem(err, HTTP_URL);

    w->above = path;
    w->seen++;
    rc = rc ? rc : ask_of(&text, d, path, "1", err);
    rc = rc ? rc : dav_read_page(text, url, d->name, walk_entry, w, err);
    ckpt_free(text);
    ckpt_free(url);
    return rc;
}

int dav_list(const struct dav *d, const char *path,
             int (*found)(void *ctx, const struct dav_entry *e, struct ckpt_err *err), void *ctx,
             struct ckpt_err *err)
{
    struct walk w = {.found = found, .ctx = ctx};
    int rc = walk_one(&w, d, path, err);

    while (rc == 0 && w.n > 0) {
        char *next = w.todo[--w.n];

        rc = walk_one(&w, d, next, err);
        ckpt_free(next);
    }
    while (w.n > 0)
        ckpt_free(w.todo[--w.n]);
    ckpt_free(w.todo);
    return rc;
}

/* -- as a source ------------------------------------------------------------------------------ */

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    *have = NULL;
    return dav_address(url, t->self, f->path, err);
}

static int add_file(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    return e->is_folder ? 0 : tree_add(ctx, e->path, e->size, "", err);
}

static int open_tree(struct tree **tree, struct dav *d, struct ckpt_err *err)
{
    struct tree *t = NULL;
    int rc = tree_new(&t, d->name, err);

    if (rc == 0) {
        t->self = d;
        t->locate = locate;
        t->auth = dav_auth(d);
        rc = dav_list(d, "", add_file, t, err);
    }
    rc = rc ? rc : tree_ready(t, err);
    if (rc == 0 && t->n == 0)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: nothing lies there", d->name);
    if (rc)
        tree_free(t);
    else
        *tree = t;
    return rc;
}

int dav_open(struct tree **tree, struct range **object, const char *address,
             struct ckpt_err *err)
{
    struct dav *d = ckpt_alloc(1, sizeof *d);
    struct dav_entry *e = ckpt_alloc(1, sizeof *e);
    char url[2048];
    int rc = d && e ? dav_open_place(d, address, err) : ckpt_nomem(err, sizeof *d);

    *tree = NULL;
    *object = NULL;
    rc = rc ? rc : dav_look(e, d, "", err);
    if (rc == CKPT_ENOTFOUND) {         /* a file may not be there by a name with "/" at its end */
        ckpt_err_clear(err);
        rc = 0;
    }
    if (rc == 0 && e->is_folder) {
        rc = open_tree(tree, d, err);
    } else if (rc == 0) {
        snprintf(url, sizeof url, "%.*s", (int)strlen(d->base) - 1, d->base);
        rc = range_new(object, &(struct range_at){.name = d->name, .url = url, .auth = dav_auth(d),
                                                  .size = FIELD_NONE, .digest = ""}, err);
    }
    ckpt_free(e);
    if (d && rc) {              /* what was opened keeps the place, for the life of the process */
        dav_close_place(d);
        ckpt_free(d);
    }
    return rc;
}
