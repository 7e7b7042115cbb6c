/* hub.c - the API of writable repositories: who asks, what for, and of which repository. */
#include "tests/serve/serve.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Repositories change one request at a time; bodies come and answers leave outside of it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { ANYONE, READS, WRITES }; /* what a route wants of the token */

static const struct route {
    const char *method, *verb;
    int         level;
    handler    *run;
} global_routes[] = {
    {"GET", "whoami-v2", READS, hub_whoami},    {"POST", "validate-yaml", ANYONE, hub_yaml},
    {"POST", "repos/create", WRITES, hub_create}, {"DELETE", "repos/delete", WRITES, hub_delete},
}, routes[] = {
    {"GET", "", ANYONE, hub_info},              {"GET", "revision", ANYONE, hub_info},
    {"GET", "auth-check", READS, hub_auth},     {"PUT", "settings", WRITES, hub_settings},
    {"GET", "tree", ANYONE, hub_tree},          {"POST", "paths-info", ANYONE, hub_paths},
    {"GET", "commits", ANYONE, hub_commits},    {"POST", "preupload", WRITES, hub_preupload},
    {"POST", "commit", WRITES, hub_commit},     {"GET", "refs", ANYONE, hub_refs},
    {"POST", "branch", WRITES, hub_branch_new}, {"DELETE", "branch", WRITES, hub_branch_drop},
    {"POST", "tag", WRITES, hub_tag_new},       {"DELETE", "tag", WRITES, hub_tag_drop},
    {"POST", "super-squash", WRITES, hub_squash},
    {"GET", "discussions", ANYONE, hub_talk_list}, {"POST", "discussions", WRITES, hub_talk_new},
    {"GET", "discussions/", ANYONE, hub_talk},
    {"POST", "discussions/status", WRITES, hub_talk_status},
    {"POST", "discussions/comment", WRITES, hub_talk_comment},
    {"POST", "discussions/merge", WRITES, hub_talk_merge},
    {"POST", "info/lfs/objects/batch", WRITES, hub_batch},
    {"POST", "info/lfs/objects/verify", WRITES, hub_verify},
};

int token_level(const struct request *r)
{
    return *r->token == '\0' ? 0 : strcmp(r->token, "Bearer_hf_readonly") == 0 ? 1
           : strcmp(r->token, "Bearer_hf_canary") == 0 ||
                     strcmp(r->token, SERVE_LOGIN) == 0 ? 2 : -1;
}

const char *text_of(const json_t *object, const char *key, const char *fallback)
{
    const char *s = json_string_value(json_object_get(object, key));

    return s ? s : fallback;
}

void reply(struct call *c, json_t *out)
{
    json_decref(c->out);
    c->status = 200;
    c->out = out;
}

void refuse(struct call *c, int status, const char *code, const char *message)
{
    reply(c, json_pack("{s:s}", "error", message));
    c->status = status;
    snprintf(c->headers, sizeof c->headers, "%s%s%sX-Error-Message: %s\r\n",
             *code ? "X-Error-Code: " : "", code, *code ? "\r\n" : "", message);
}

void join_segments(char *dst, size_t size, const struct call *c, size_t first)
{
    size_t k = 0;

    *dst = '\0';
    for (size_t i = first; i < c->n_seg && k < size; i++)
        k += (size_t)snprintf(dst + k, size - k, "%s%s", i > first ? "/" : "", c->seg[i]);
}

static bool allowed(struct call *c, int level)
{
    bool hidden = c->repo && (json_is_true(json_object_get(c->repo, "private")) ||
                              strncmp(c->owner, "private", 7) == 0);

    if (c->level < 0)
        refuse(c, 401, "", "Invalid credentials in Authorization header");
    else if (c->level < 1 && hidden)
        refuse(c, 401, "RepoNotFound", "Repository not found");
    else if (c->level < 1 && level > ANYONE)
        refuse(c, 401, "", "Invalid username or password.");
    else if (c->level < level)
        refuse(c, 403, "", "You don't have the required permissions: the token may only read");
    else
        return true;
    return false;
}

static void run(struct call *c, const struct route *route)
{
    if (!allowed(c, route->level))
        return;
    if (c->r->n_body)
        c->in = json_loadb(c->r->body, c->r->n_body, 0, NULL);
    route->run(c);
    if (c->changed)
        repo_save(c->dir, c->repo);
}

static void send_reply(struct call *c)
{
    char headers[SERVE_PATH + 100], *text = c->out ? json_dumps(c->out, JSON_COMPACT) : NULL;

    snprintf(headers, sizeof headers, "Content-Type: application/json\r\n"
             "X-Request-Id: Root=1-test\r\n%s", c->headers);
    answer(c->r, c->status, headers, text ? text : "", text ? strlen(text) : 0);
    free(text);
}

/* The segments of a path, each unescaped by itself: a revision may hold a slash. */
static size_t split(char *path, char **seg, size_t most)
{
    size_t n = 0;
    char *rest;

    for (char *at = strtok_r(path, "/", &rest); at && n < most; at = strtok_r(NULL, "/", &rest)) {
        unescape(at);
        seg[n++] = at;
    }
    return n;
}

static const struct route *find(const struct route *rows, size_t n, const char *method,
                                const char *verb)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].method, method) == 0 && strcmp(rows[i].verb, verb) == 0)
            return &rows[i];
    return NULL;
}

static void set_repo(struct call *c, const char *kind, const char *owner, const char *name)
{
    snprintf(c->kind, sizeof c->kind, "%s", kind);
    snprintf(c->owner, sizeof c->owner, "%s", owner);
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->id, sizeof c->id, "%s/%s", owner, name);
    repo_dir(c->dir, sizeof c->dir, kind, owner, name);
    c->repo = repo_load(c->dir);
}

/* Segments: what is behind the verb; verbs of discussions end in what is done to one. */
static const struct route *api_route(struct call *c, char **seg, size_t n, char *verb, size_t size)
{
    size_t skip = 4;

    snprintf(verb, size, "%s", n > 3 ? seg[3] : "");
    if (n > 4 && strcmp(verb, "discussions") == 0)
        snprintf(verb, size, "discussions/%s", n > 5 ? seg[5] : "");
    for (size_t i = skip; i < n; i++)
        c->seg[c->n_seg++] = seg[i];
    set_repo(c, seg[0], seg[1], seg[2]);
    return find(routes, sizeof routes / sizeof *routes, c->r->method, verb);
}

static const struct route *lfs_route(struct call *c, char **seg, size_t n)
{
    char verb[200];
    bool typed = strcmp(seg[0], "datasets") == 0 || strcmp(seg[0], "spaces") == 0;
    size_t i = typed ? 1 : 0;
    char *dot;

    if (n != i + 6 || !(dot = strstr(seg[i + 1], ".git")))
        return NULL;
    *dot = '\0';
    snprintf(verb, sizeof verb, "%s/%s/%s/%s", seg[i + 2], seg[i + 3], seg[i + 4], seg[i + 5]);
    set_repo(c, typed ? seg[0] : "models", seg[i], seg[i + 1]);
    return find(routes, sizeof routes / sizeof *routes, c->r->method, verb);
}

/* -- a file ----------------------------------------------------------------------------------- */

/* What to send of a file: the path of its content, or an address. */
struct place {
    char path[SERVE_PATH], headers[SERVE_PATH + 300];
    bool away;
};

static void place_file(struct call *c, struct place *p)
{
    char oid[41], ref[512], path[4096], address[SERVE_PATH];
    json_t *commit, *file;
    const char *lfs;

    if (!allowed(c, ANYONE))
        return;
    if (!repo_resolve(c->dir, c->repo, c->n_seg ? c->seg[0] : "", oid, ref)) {
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
        return;
    }
    join_segments(path, sizeof path, c, 1);
    commit = repo_commit_load(c->dir, oid);
    file = json_object_get(json_object_get(commit, "files"), path);
    lfs = text_of(file, "lfs", NULL);
    if (!file) {
        refuse(c, 404, "EntryNotFound", "Entry not found");
        snprintf(c->headers + strlen(c->headers), 100, "X-Repo-Commit: %s\r\n", oid);
    } else if (lfs) {
        char rest[80];

        p->away = true;
        snprintf(rest, sizeof rest, "/%s", lfs);
        storage_address(address, sizeof address, "lfs", c, rest);
        snprintf(p->headers, sizeof p->headers, "Location: %s\r\nX-Linked-Etag: \"%s\"\r\n"
                 "X-Linked-Size: %lld\r\nX-Repo-Commit: %s\r\n", address, lfs,
                 (long long)json_integer_value(json_object_get(file, "size")), oid);
    } else {
        snprintf(p->path, sizeof p->path, "%.4000s/blobs/%s", c->dir, text_of(file, "oid", ""));
        snprintf(p->headers, sizeof p->headers, "ETag: \"%s\"\r\nX-Repo-Commit: %s\r\n",
                 text_of(file, "oid", ""), oid);
    }
    json_decref(commit);
}

/* /[datasets/]OWNER/NAME/resolve/REV/PATH; false: no writable repository of that name. */
static bool serve_resolve(struct call *c, char **seg, size_t n)
{
    bool typed = strcmp(seg[0], "datasets") == 0 || strcmp(seg[0], "spaces") == 0;
    struct place p = {.away = false};
    size_t i = typed ? 1 : 0, n_map;
    char *map;

    if (n < i + 5 || strcmp(seg[i + 2], "resolve") != 0)
        return false;
    pthread_mutex_lock(&lock);
    set_repo(c, typed ? seg[0] : "models", seg[i], seg[i + 1]);
    for (size_t k = i + 3; k < n; k++)
        c->seg[c->n_seg++] = seg[k];
    if (c->repo)
        place_file(c, &p);
    pthread_mutex_unlock(&lock);
    if (!c->repo)
        return false;
    if (c->out) {
        send_reply(c);
    } else if (p.away) {
        answer(c->r, 302, p.headers, "", 0);
    } else {
        map = map_file(p.path, &n_map);
        answer(c->r, map ? 200 : 500, p.headers, map ? map : "", n_map);
        unmap(map, n_map);
    }
    return true;
}

/* -- a call ----------------------------------------------------------------------------------- */

/* Whether a folder that is read alone may answer. */
static bool is_static(const char *verb)
{
    return strcmp(verb, "revision") == 0 || strcmp(verb, "tree") == 0;
}

static bool serve_api(struct call *c, char **seg, size_t n)
{
    const struct route *route = NULL;
    bool api = strcmp(seg[0], "api") == 0, global = false;
    char verb[300] = "", rev[1024];

    if (api) {
        snprintf(verb, sizeof verb, "%s%s%s", n > 1 ? seg[1] : "", n > 2 ? "/" : "",
                 n > 2 ? seg[2] : "");
        route = find(global_routes, sizeof global_routes / sizeof *global_routes, c->r->method, verb);
        global = route != NULL;
    }
    if (!route && n < 4)
        return false;
    pthread_mutex_lock(&lock);
    if (!route)
        route = api ? api_route(c, seg + 1, n - 1, verb, sizeof verb) : lfs_route(c, seg, n);
    if (route && !global && c->repo && is(c->r, "moves") && !c->r->mute) {
        join_segments(rev, sizeof rev, c, 0);
        hub_move(c, rev, *c->r->value ? c->r->value : "moved.txt");
    }
    if (route && (global || c->repo))
        run(c, route);
    else if (route && !is_static(verb) && allowed(c, route->level))
        refuse(c, c->level > 0 ? 404 : 401, "RepoNotFound", "Repository not found");
    pthread_mutex_unlock(&lock);
    if (c->out || c->status)
        send_reply(c);
    return c->out || c->status;
}

bool serve_hub(struct request *r)
{
    struct call c = {.r = r, .level = token_level(r)};
    char path[4096], *seg[64];
    bool done = false;
    size_t n;

    snprintf(path, sizeof path, "%.*s", (int)strcspn(r->target, "?"), r->target);
    n = split(path, seg, 60);
    if (n > 1)
        done = serve_resolve(&c, seg, n) || serve_api(&c, seg, n);
    json_decref(c.repo);
    json_decref(c.in);
    json_decref(c.out);
    return done;
}
