/* hub - see hub.h. */
#include "libckpt/remote/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/proof.h"
#include "libckpt/remote/hub_auth.h"
#include "libckpt/remote/hub_cache.h"

#define MAX_PAGES        10000
#define REVISION_BYTES   ((uint64_t)16 << 20)
#define PAGE_BYTES       ((uint64_t)64 << 20)

/* State of locate, in the tree's arena. */
struct hub {
    const char     *endpoint, *kind, *id, *revision;
    char            commit[41];
    struct hub_auth auth;
};

/* -- names ------------------------------------------------------------------------------------ */

/* A part of an id: letters, digits, "-_.", at most 96, with a letter, digit or "_" at both ends. */
static bool is_part(const char *s, size_t n)
{
    static const char dots[] = "-.";

    if (n == 0 || n > 96 || strchr(dots, s[0]) || strchr(dots, s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        bool word = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                    (s[i] >= '0' && s[i] <= '9') || s[i] == '_';

        if (!word && !strchr(dots, s[i]))
            return false;
        if (i && !word && s[i - 1] == s[i])     /* "--", ".." */
            return false;
    }
    return n < 4 || memcmp(s + n - 4, ".git", 4) != 0;
}

/* Length of a revision: refs/pr/N and refs/convert/NAME contain slashes. */
static size_t revision_length(const char *s)
{
    static const char *const deep[] = {"refs/pr/", "refs/convert/"};
    size_t n = 0;

    for (size_t i = 0; i < 2; i++)
        if (strncmp(s, deep[i], strlen(deep[i])) == 0)
            n = strlen(deep[i]);
    return n + strcspn(s + n, "/");
}

static bool is_revision(const char *s)
{
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p <= 32 || strchr("\\?*[~^:\177", *p))
            return false;
    return *s && *s != '/' && !strstr(s, "..");
}

int hub_parse(struct hub_place *p, const char *url, struct ckpt_err *err)
{
    static const char *const kinds[] = {"models/", "datasets/", "spaces/"};
    const char *s = url + strlen("hf://"), *id, *at;
    size_t n, first, rev = 0;

    memset(p, 0, sizeof *p);
    snprintf(p->kind, sizeof p->kind, "models");
    for (size_t i = 0; i < 3; i++)
        if (strncmp(s, kinds[i], strlen(kinds[i])) == 0) {
            snprintf(p->kind, sizeof p->kind, "%.*s", (int)strlen(kinds[i]) - 1, kinds[i]);
            s += strlen(kinds[i]);
            break;
        }
    id = s;
    first = strcspn(s, "/@");
    n = first;
    if (s[n] == '/' && s[n + 1] && s[n + 1] != '@')
        n += 1 + strcspn(s + n + 1, "/@");
    if (!is_part(id, first) || (n > first && !is_part(id + first + 1, n - first - 1)) ||
        n >= sizeof p->id)
        goto bad;
    memcpy(p->id, id, n);
    at = id + n;
    snprintf(p->revision, sizeof p->revision, "main");
    if (*at == '@') {
        rev = revision_length(++at);
        if (rev == 0 || rev >= sizeof p->revision)
            goto bad;
        snprintf(p->revision, sizeof p->revision, "%.*s", (int)rev, at);
        at += rev;
        if (!http_unescape(p->revision) || !is_revision(p->revision))
            goto bad;
    }
    if (*at && *at != '/')
        goto bad;
    if ((size_t)(at - url) >= sizeof p->root)
        goto bad;
    memcpy(p->root, url, (size_t)(at - url));
    while (*at == '/')
        at++;
    n = strlen(at);
    while (n > 0 && at[n - 1] == '/')
        n--;
    if (n >= sizeof p->path)
        goto bad;
    memcpy(p->path, at, n);
    return 0;
bad:
    ckpt_fail(err, CKPT_EUSAGE, "%.300s: no address of the Hub", url);
    return ckpt_err_hint(err, "as in hf://owner/name, hf://owner/name@revision/path, "
                         "hf://datasets/owner/name");
}

/* -- what the Hub says ------------------------------------------------------------------------ */

int hub_read_commit(char commit[41], const json_t *answer, struct ckpt_err *err)
{
    const char *sha;

    if (!json_is_object(answer))
        return ckpt_fail(err, CKPT_EPROTOCOL, "the answer about a revision is no object");
    sha = json_string_value(json_object_get(answer, "sha"));
    if (!sha || strlen(sha) != 40 || strspn(sha, "0123456789abcdef") != 40)
        return ckpt_fail(err, CKPT_EPROTOCOL, "the answer about a revision names no commit");
    memcpy(commit, sha, 41);
    return 0;
}

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

int hub_read_page(struct tree *t, const json_t *page, struct ckpt_err *err)
{
    json_t *e;
    size_t i;
    int rc;

    if (!json_is_array(page))
        return ckpt_fail(err, CKPT_EPROTOCOL, "the list of files is no array");
    json_array_foreach ((json_t *)page, i, e) {
        const char *type = json_string_value(json_object_get(e, "type"));
        const char *path = json_string_value(json_object_get(e, "path"));
        const char *oid = json_string_value(json_object_get(e, "oid"));
        json_t *lfs = json_object_get(e, "lfs"), *size = json_object_get(e, "size");
        const char *sha = json_string_value(json_object_get(lfs, "oid"));
        char digest[CACHE_KEY] = "";

        if (!type || !path)
            return ckpt_fail(err, CKPT_EPROTOCOL, "file %zu of the list has no type or path", i);
        if (strcmp(type, "directory") == 0)
            continue;
        if (json_is_object(lfs))
            size = json_object_get(lfs, "size");
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return ckpt_fail(err, CKPT_EPROTOCOL, "%.200s: the list has no size of it", path);
        if (is_hex(sha, 64))
            snprintf(digest, sizeof digest, "sha256-%s", sha);
        else if (!lfs && is_hex(oid, 40))
            snprintf(digest, sizeof digest, "sha1-%s", oid);
        if ((rc = tree_add(t, path, (uint64_t)json_integer_value(size), digest, err)) != 0)
            return rc;
    }
    return 0;
}

/* The Hub answers alike for missing and private repositories, and tells them apart only in
 * X-Error-Code. */
static int tell(const struct hub_place *p, const struct http_answer *a, bool has_token,
                struct ckpt_err *err)
{
    const char *code = a->problem_code;

    if (strcmp(code, "RevisionNotFound") == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no revision %s", p->root, p->revision);
    if (strcmp(code, "GatedRepo") == 0) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: its terms are not accepted yet", p->root);
        return ckpt_err_hint(err, "accept them on its page, and set HF_TOKEN");
    }
    if (strcmp(code, "RepoNotFound") == 0 || a->status == 404 ||
        (a->status == 401 && !strstr(a->problem, "Invalid credentials"))) {
        ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such repository, or no right to see it", p->root);
        return ckpt_err_hint(err, has_token ? "the token that was found may not see it"
                                            : "if it is private, set HF_TOKEN");
    }
    return ckpt_err_code(err);
}

static int ask_commit(struct hub *h, const struct hub_place *p, struct http *http,
                      struct ckpt_err *err)
{
    char url[HTTP_URL], revision[800];
    struct http_answer a;
    json_t *answer = NULL;
    int rc;

    if (!http_escape(revision, sizeof revision, p->revision, "") ||
        (size_t)snprintf(url, sizeof url, "%s/api/%s/%s/revision/%s" HUB_COMMIT_ONLY,
                         h->endpoint, p->kind, p->id, revision) >= sizeof url)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", p->root);
    rc = http_json(http, &answer, &(struct http_request){
        .url = url, .name = p->root, .auth = hub_auth_of(&h->auth),
        .limit = REVISION_BYTES}, &a, err);
    if (rc)
        return tell(p, &a, h->auth.token, err);
    if (hub_read_commit(h->commit, answer, err))
        rc = ckpt_err_in(err, "%s", p->root);
    json_decref(answer);
    return rc;
}

/* Replace url by the next page's address.  The address comes from the server: only http(s) is
 * accepted, and no http after https. */
static int go_on(char *url, char *next, const struct http_answer *a, const char *name,
                 struct ckpt_err *err)
{
    char from[512], to[512];

    if (a->bad_next || http_join(next, url, a->next, err) || http_origin(from, url, err) ||
        http_origin(to, next, err) ||
        (strncmp(from, "https:", 6) == 0 && strncmp(to, "https:", 6) != 0))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: its list of files goes on where nothing can be "
                         "asked for", name);
    memcpy(url, next, HTTP_URL);
    return 0;
}

int hub_list(struct tree *t, const struct hub_auth *auth, const char *kind, const char *id,
             const char *commit, struct ckpt_err *err)
{
    char *url = ckpt_alloc(2, HTTP_URL), *next = url ? url + HTTP_URL : NULL;
    struct http *http = http_shared(err);
    struct http_answer a;
    int rc = !http ? ckpt_err_code(err) : url ? 0 : ckpt_nomem(err, HTTP_URL), pages = 0;

    if (rc == 0 && (size_t)snprintf(url, HTTP_URL, "%s/api/%s/%s/tree/%s?recursive=true",
                                    auth->endpoint, kind, id, commit) >= HTTP_URL)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", t->name);
    while (rc == 0) {
        json_t *page = NULL;

        rc = http_json(http, &page, &(struct http_request){
            .url = url, .name = t->name, .auth = hub_auth_of(auth), .limit = PAGE_BYTES}, &a, err);
        if (rc == 0 && hub_read_page(t, page, err))
            rc = ckpt_err_in(err, "%s", t->name);
        json_decref(page);
        if (rc || (!a.next[0] && !a.bad_next))
            break;
        if (++pages == MAX_PAGES)
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: its list of files does not end", t->name);
        else
            rc = go_on(url, next, &a, t->name, err);
    }
    ckpt_free(url);
    return rc ? rc : tree_ready(t, err);
}

/* -- lists that were kept --------------------------------------------------------------------- */

static void keep_list(const char *key, const struct tree *t, const struct hub *h)
{
    json_t *files = json_array(), *list = json_pack("{s:s}", "commit", h->commit);

    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(files, json_pack("[s,I,s]", t->file[i].path,
                                               (json_int_t)t->file[i].size, t->file[i].digest));
    if (list && files && json_object_set(list, "files", files) == 0)
        cache_keep_list(key, list);
    json_decref(files);
    json_decref(list);
}

/* Load a list into t if it is of that commit ("": of any; h->commit gets it). */
static bool use_list(struct tree *t, struct hub *h, const char *key)
{
    json_t *list = cache_list(key), *files = json_object_get(list, "files"), *e;
    const char *commit = json_string_value(json_object_get(list, "commit"));
    struct ckpt_err ignored = {0};
    bool good = is_hex(commit, 40) && (!h->commit[0] || strcmp(commit, h->commit) == 0);
    size_t i;

    json_array_foreach (files, i, e) {
        const char *path = json_string_value(json_array_get(e, 0));
        const char *digest = json_string_value(json_array_get(e, 2));
        json_t *size = json_array_get(e, 1);

        good = good && path && digest && strlen(digest) < CACHE_KEY && json_is_integer(size) &&
               json_integer_value(size) >= 0 &&
               tree_add(t, path, (uint64_t)json_integer_value(size), digest, &ignored) == 0;
    }
    good = good && json_is_array(files) && tree_ready(t, &ignored) == 0;
    if (good)
        memcpy(h->commit, commit, 41);
    else
        t->n = 0;
    json_decref(list);
    return good;
}

/* -- the tree --------------------------------------------------------------------------------- */

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    const struct hub *h = t->self;
    char path[3 * 1365 + 1];
    bool model = strcmp(h->kind, "models") == 0;
    int rc;

    if (!http_escape(path, sizeof path, f->path, "/") ||
        (size_t)snprintf(url, HTTP_URL, "%s/%s%s%s/resolve/%s/%s", h->endpoint,
                         model ? "" : h->kind, model ? "" : "/", h->id, h->commit,
                         path) >= HTTP_URL)
        return ckpt_fail(err, CKPT_ELIMIT, "%s/%.200s: the address is too long", t->name, f->path);
    rc = hub_cache_blob(have, h->kind, h->id, f, err);
    return rc || *have || !f->digest[0] ? rc : cache_find(have, f->digest, f->size, f->path, err);
}

/* What was fetched whole is the other client's too. */
static void got(const struct tree *t, const struct tree_file *f, struct ckpt_file *whole)
{
    const struct hub *h = t->self;

    hub_cache_add(&(struct hub_cache_file){.kind = h->kind, .id = h->id, .revision = h->revision,
                                           .commit = h->commit, .path = f->path,
                                           .digest = f->digest}, whole);
}

static int set_up(struct tree *t, const struct hub_place *p, struct ckpt_err *err)
{
    struct hub *h = ckpt_arena_alloc(&t->arena, 1, sizeof *h);
    int rc;

    if (!h)
        return ckpt_nomem(err, sizeof *h);
    t->self = h;
    t->locate = locate;
    t->got = got;
    h->revision = ckpt_arena_strndup(&t->arena, p->revision, strlen(p->revision));
    h->kind = ckpt_arena_strndup(&t->arena, p->kind, strlen(p->kind));
    h->id = ckpt_arena_strndup(&t->arena, p->id, strlen(p->id));
    if (!h->kind || !h->id || !h->revision)
        return ckpt_nomem(err, 256);
    rc = hub_auth_open(&h->auth, err);
    h->endpoint = h->auth.endpoint;
    t->auth = hub_auth_of(&h->auth);
    return rc;
}

int hub_open(struct tree **out, char local[1024], const struct hub_place *p, struct ckpt_err *err)
{
    char key[CACHE_KEY], what[1200];
    struct http *http = NULL;
    struct tree *t = NULL;
    struct hub *h = NULL;
    int rc = tree_new(&t, p->root, err);

    *out = NULL;
    local[0] = '\0';
    if (rc == 0)
        rc = set_up(t, p, err);
    if (rc)
        goto out;
    h = t->self;
    snprintf(what, sizeof what, "%s\n%s\n%s\n%s", h->endpoint, p->kind, p->id, p->revision);
    cache_key(key, "hub", what);
    if (is_hex(p->revision, 40) || http_offline()) {
        if (use_list(t, h, key))
            goto out;
        if (http_offline()) {
            if (!hub_cache_snapshot(local, p))
                rc = ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: is not in the cache, and "
                                  "nothing is asked for offline", p->root);
            goto out;
        }
    }
    http = http_shared(err);
    rc = http ? 0 : ckpt_err_code(err);
    if (rc == 0)
        rc = ask_commit(h, p, http, err);
    if (rc == 0 && !use_list(t, h, key)) {
        rc = hub_list(t, &h->auth, p->kind, p->id, h->commit, err);
        if (rc == 0)
            keep_list(key, t, h);
    }
out:
    if (rc == 0 && !local[0]) {
        *out = t;
        return 0;
    }
    if (h)
        hub_auth_close(&h->auth);
    tree_free(t);
    return rc;
}
