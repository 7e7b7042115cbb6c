/* git/source - see git/source.h. */
#include "libckpt/remote/git/source.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/proof.h"
#include "libckpt/remote/git/git_own.h"
#include "libckpt/remote/git/instead.h"
#include "libckpt/remote/git/lfs.h"
#include "libckpt/remote/git/lfs_get.h"
#include "libckpt/remote/git/lfs_place.h"

#define SPARE 60                /* seconds that the address of an object must be valid for */

/* An opened commit: the self of its tree. */
struct source {
    struct ckpt_git  *git;      /* of the mirror, or on this host */
    struct git_mirror mirror;
    bool              far;
    char              commit[CKPT_GIT_ID];
    bool              has_place;
    struct lfs_place  place;
    struct lfs_get   *get;      /* of each file of the tree, once it was asked about */
    bool             *asked;
};

/* -- addresses -------------------------------------------------------------------------------- */

static const char *const schemes[] = {"git+file://", "git+https://", "git+http://", "git+ssh://"};
#define N_SCHEMES (sizeof schemes / sizeof schemes[0])

/* Length of the scheme, or 0; *local for the first. */
static size_t scheme_of(const char *address, bool *local)
{
    for (size_t i = 0; i < N_SCHEMES; i++)
        if (strncmp(address, schemes[i], strlen(schemes[i])) == 0) {
            *local = i == 0;
            return strlen(schemes[i]);
        }
    return 0;
}

bool git_source_is(const char *address)
{
    bool local;

    return scheme_of(address, &local) > 0;
}

/* Where the repository ends in path, which begins with a slash: *revision is what follows '@' in
 * that component, else NULL; 0 when nothing marks it. */
static size_t marked_end(const char *path, const char **revision)
{
    const char *part = path;

    *revision = NULL;
    while (*part == '/') {
        size_t n = strcspn(++part, "/");
        const char *at = memchr(part, '@', n);

        if (at && at > part) {
            *revision = at + 1;
            return (size_t)(at - path);
        }
        if (n > 4 && strncmp(part + n - 4, ".git", 4) == 0)
            return (size_t)(part + n - path);
        part += n;
    }
    return 0;
}

/* The end of the deepest repository on the way to path, or its own. */
static size_t found_end(const char *path)
{
    char part[4096];

    for (size_t n = strlen(path); n > 1; n--) {
        if ((path[n] && path[n] != '/') || n >= sizeof part)
            continue;
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (http_unescape(part) && ckpt_git_is_repository(part))
            return n;
    }
    return strlen(path);
}

static int bad(const char *address, struct ckpt_err *err)
{
    ckpt_fail(err, CKPT_EUSAGE, "%.300s: no address of a git repository", address);
    return ckpt_err_hint(err, "as in git+https://host/owner/name.git, "
                         "git+https://host/owner/name@revision/path, git+file:///path/name.git");
}

/* A name that git would take for an option, or a range, is none of a revision. */
static bool is_revision(const char *s)
{
    if (*s == '-' || *s == '+' || strstr(s, "..") || strpbrk(s, ":^~?*[\\ "))
        return false;
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127)
            return false;
    return true;
}

int git_source_parse(struct git_source_place *p, const char *address, struct ckpt_err *err)
{
    size_t n = scheme_of(address, &p->local), end, k;
    const char *path = address + n, *revision, *rest;

    memset(p, 0, sizeof *p);
    scheme_of(address, &p->local);
    if (!p->local)
        path += strcspn(path, "/");
    if (n == 0 || *path != '/' || !path[1])
        return bad(address, err);
    end = marked_end(path, &revision);
    if (end == 0)
        end = p->local ? found_end(path) : strlen(path);
    rest = path + end;
    if (revision) {
        k = strcspn(revision, "/");
        if (k == 0 || (size_t)snprintf(p->revision, sizeof p->revision, "%.*s", (int)k,
                                       revision) >= sizeof p->revision ||
            !http_unescape(p->revision) || !is_revision(p->revision))
            return bad(address, err);
        rest = revision + k;
    }
    k = p->local ? n : 0;               /* git_place_parse knows git+https:// */
    if ((size_t)snprintf(p->url, sizeof p->url, "%.*s", (int)((size_t)(path - address) + end - k),
                         address + k) >= sizeof p->url ||
        (size_t)snprintf(p->root, sizeof p->root, "%.*s", (int)(rest - address), address) >=
            sizeof p->root || (p->local && !http_unescape(p->url)))
        return bad(address, err);
    for (k = strlen(p->root); k > n && p->root[k - 1] == '/'; k--)
        p->root[k - 1] = '\0';
    rest += strspn(rest, "/");
    for (k = strlen(rest); k > 0 && rest[k - 1] == '/'; k--)
        ;
    return (size_t)snprintf(p->path, sizeof p->path, "%.*s", (int)k, rest) < sizeof p->path
               ? 0 : bad(address, err);
}

/* Whether a folder is a bare repository. */
static bool is_bare(const char *path)
{
    static const char *const parts[] = {"/objects", "/refs", "/HEAD"};
    char name[PATH_MAX];
    struct stat st;

    for (size_t i = 0; i < 3; i++)
        if ((size_t)snprintf(name, sizeof name, "%s%s", path, parts[i]) >= sizeof name ||
            stat(name, &st) || (i < 2 ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode)))
            return false;
    return true;
}

/* In a path, the end of the first component that ends in .git, or has ".git@" in it: then *at. */
static size_t git_end(const char *path, const char **at)
{
    *at = NULL;
    for (const char *s = path; (s = strstr(s, ".git")) != NULL; s += 4) {
        if (s == path || s[-1] == '/')
            continue;
        if (s[4] == '@' && s[5])
            *at = s + 5;
        if (!s[4] || s[4] == '/' || *at)
            return (size_t)(s + 4 - path);
    }
    return 0;
}

/* The end of the folder on the way to path that exists, when path does not: only that can be a
 * repository. */
static size_t existing_end(const char *path)
{
    char part[PATH_MAX];
    struct stat st;
    size_t n = strlen(path);

    while (n > 0 && n < sizeof part) {
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (stat(part, &st) == 0)
            return n;
        while (n > 0 && path[n - 1] != '/')
            n--;
        while (n > 0 && path[n - 1] == '/')
            n--;
    }
    return 0;
}

bool git_source_of_path(char *address, size_t size, const char *path)
{
    char repo[PATH_MAX], whole[PATH_MAX], escaped[3 * PATH_MAX];
    const char *at, *rest;
    struct stat st;
    size_t n = git_end(path, &at);

    n = n ? n : existing_end(path);
    if (n >= sizeof repo || n == 0)
        return false;
    snprintf(repo, sizeof repo, "%.*s", (int)n, path);
    rest = at ? at + strcspn(at, "/") : path + n;
    if (!is_bare(repo) || (*rest && stat(path, &st) == 0) || (at && stat(path, &st) == 0) ||
        !realpath(repo, whole) || !http_escape(escaped, sizeof escaped, whole, "/"))
        return false;
    return (size_t)snprintf(address, size, "git+file://%s%s%.*s%s", escaped,
                            at ? "@" : n < 4 || strcmp(repo + n - 4, ".git") ? "@HEAD" : "",
                            (int)(at ? rest - at : 0), at ? at : "", rest) < size;
}

/* -- the files of a commit -------------------------------------------------------------------- */

/* Size and digest of a blob: its own, or those of the object that it points to. */
static int measure(struct source *s, const git_index_entry *e, uint64_t *size,
                   char digest[CACHE_KEY], struct ckpt_err *err)
{
    char oid[CKPT_SHA256_HEX], hex[GIT_OID_HEXSZ + 1];
    git_blob *blob = NULL;
    git_object_t type;
    git_odb *odb = NULL;
    size_t n = 0;
    int rc = 0;

    if (git_repository_odb(&odb, s->git->repo) || git_odb_read_header(&n, &type, odb, &e->id) ||
        type != GIT_OBJECT_BLOB)
        rc = git_fail(err, CKPT_EFORMAT, e->path);
    *size = n;
    git_oid_tostr(hex, sizeof hex, &e->id);
    snprintf(digest, CACHE_KEY, "sha1-%s", hex);
    if (rc == 0 && n < CKPT_LFS_POINTER_MAX) {
        if (git_blob_lookup(&blob, s->git->repo, &e->id))
            rc = git_fail(err, CKPT_EFORMAT, e->path);
        else if (ckpt_lfs_parse(git_blob_rawcontent(blob), n, oid, size))
            snprintf(digest, CACHE_KEY, "sha256-%s", oid);
        git_blob_free(blob);
    }
    git_odb_free(odb);
    return rc;
}

static int list(struct tree *t, struct source *s, struct ckpt_err *err)
{
    const git_index_entry *e;
    char digest[CACHE_KEY];
    uint64_t size;
    int rc = 0;

    for (size_t i = 0; rc == 0 && (e = git_index_get_byindex(s->git->index, i)) != NULL; i++) {
        if (e->mode != GIT_FILEMODE_BLOB && e->mode != GIT_FILEMODE_BLOB_EXECUTABLE) {
            ckpt_log(CKPT_LOG_WARNING, "%s/%s: %s, left out", t->name, e->path,
                     e->mode == GIT_FILEMODE_LINK ? "a symbolic link" : "another repository");
            continue;
        }
        rc = measure(s, e, &size, digest, err);
        rc = rc ? rc : tree_add(t, e->path, size, digest, err);
    }
    return rc ? rc : tree_ready(t, err);
}

/* -- one file --------------------------------------------------------------------------------- */

struct blob {
    struct source *s;
    const char    *hex;
};

static int fill(void *ctx, struct cache_sink *sink, struct ckpt_err *err)
{
    const struct blob *b = ctx;
    git_blob *blob = NULL;
    git_oid id;
    int rc;

    if (git_oid_fromstr(&id, b->hex) || git_blob_lookup(&blob, b->s->git->repo, &id))
        return git_fail(err, CKPT_EFORMAT, b->hex);
    rc = cache_put(sink, git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob), 0, err);
    git_blob_free(blob);
    return rc;
}

/* An object in the repository's own store; *have stays NULL when it is not there. */
static int find_object(struct ckpt_file **have, const struct source *s, const char *name,
                       const struct tree_file *f, struct ckpt_err *err)
{
    const char *oid = strchr(f->digest, '-') + 1;
    char path[4096 + 100], record[CACHE_KEY];
    struct ckpt_err ignored = {0};
    enum cache_proof proof = CACHE_UNKNOWN;
    uint64_t base;
    int rc;

    snprintf(path, sizeof path, "%s/lfs/objects/%.2s/%.2s/%s", ckpt_git_dir(s->git), oid, oid + 2,
             oid);
    snprintf(record, sizeof record, "lfs-%.70s", oid);
    if (ckpt_file_open(have, path, 0, &ignored))
        return 0;
    rc = cache_prove(&proof, ckpt_file_fd(*have, &base), f->digest, record, err);
    if (rc == 0 && (ckpt_file_size(*have) != f->size || proof == CACHE_WRONG))
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "digest", "%s/%s: its object in the repository is "
                          "damaged", name, f->path);
    if (rc) {
        ckpt_file_close(*have);
        *have = NULL;
    }
    return rc;
}

static int find_place(struct source *s, struct ckpt_err *err)
{
    int rc = s->has_place ? 0 : lfs_place_find(&s->place, &s->mirror, "download", err);

    s->has_place = s->has_place || rc == 0;
    return rc;
}

/* Ask the LFS server about file i, and about those after it with the same request. */
static int ask_from(const struct tree *t, struct source *s, size_t i, struct ckpt_err *err)
{
    struct lfs_server server = {.name = s->mirror.place.host, .url = s->place.url,
                                .auth = &s->place.auth, .http = http_shared(err)};
    struct lfs_object object[LFS_GET_OBJECTS];
    struct lfs_get *get = ckpt_alloc(LFS_GET_OBJECTS, sizeof *get);
    size_t of[LFS_GET_OBJECTS], n = 0;
    int rc = !server.http ? ckpt_err_code(err) : get ? 0 : ckpt_nomem(err, sizeof *get);

    for (; i < t->n && n < LFS_GET_OBJECTS; i++)
        if (strncmp(t->file[i].digest, "sha256-", 7) == 0 && (n == 0 || !s->asked[i])) {
            object[n] = (struct lfs_object){.oid = t->file[i].digest + 7, .size = t->file[i].size,
                                            .name = t->file[i].path};
            of[n++] = i;
        }
    if (rc == 0)
        rc = lfs_get_ask(&server, object, n, get, (struct ckpt_arena *)(uintptr_t)&t->arena, err);
    for (size_t k = 0; rc == 0 && k < n; k++) {
        s->get[of[k]] = get[k];
        s->asked[of[k]] = true;
    }
    ckpt_free(get);
    return rc;
}

static int ask(const struct tree *t, struct source *s, size_t i, struct ckpt_err *err)
{
    const struct lfs_action *a = &s->get[i].action;
    bool fresh = s->asked[i] && (!a->until || a->until > time(NULL) + SPARE);
    int rc = fresh ? 0 : find_place(s, err);

    return rc || fresh ? rc : ask_from(t, s, i, err);
}

static int locate_object(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                         struct ckpt_file **have, struct ckpt_err *err)
{
    struct source *s = t->self;
    size_t i = (size_t)(f - t->file);
    int rc = find_object(have, s, t->name, f, err);

    if (rc == 0 && !*have)
        rc = cache_find(have, f->digest, f->size, f->path, err);
    if (rc || *have)
        return rc;
    if (!s->far) {
        ckpt_fail(err, CKPT_ENOTFOUND, "%s/%s: the repository does not have its object %.12s...",
                  t->name, f->path, f->digest + 7);
        return ckpt_err_hint(err, "git lfs fetch --all gets the objects of a clone");
    }
    if ((rc = ask(t, s, i, err)) != 0)
        return rc;
    if (!s->get[i].action.href)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s/%s: not on the LFS server: %s", t->name, f->path,
                         s->get[i].why);
    snprintf(url, HTTP_URL, "%s", s->get[i].action.href);
    return 0;
}

/* What the server first said about the object stays as it is: other threads may read it. */
static int renew(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                 const struct http_auth **auth, struct ckpt_err *err)
{
    struct source *s = t->self;
    struct ckpt_arena *arena = (struct ckpt_arena *)(uintptr_t)&t->arena;
    struct lfs_server server = {.name = s->mirror.place.host, .url = s->place.url,
                                .auth = &s->place.auth, .http = http_shared(err)};
    struct lfs_object object = {.oid = f->digest + 7, .size = f->size, .name = f->path};
    struct lfs_get *get = ckpt_arena_alloc(arena, 1, sizeof *get);
    int rc = !server.http ? ckpt_err_code(err) : get ? 0 : ckpt_nomem(err, sizeof *get);

    rc = rc ? rc : lfs_get_ask(&server, &object, 1, get, arena, err);
    if (rc == 0 && !get->action.href)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s/%s: not on the LFS server: %s", t->name, f->path,
                       get->why);
    if (rc)
        return rc;
    snprintf(url, HTTP_URL, "%s", get->action.href);
    *auth = get->auth.sign && get->action.headers[0] ? &get->auth : NULL;
    return 0;
}

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    struct blob b = {.s = t->self, .hex = strchr(f->digest, '-') + 1};
    int rc;

    *url = '\0';
    *have = NULL;
    if (strncmp(f->digest, "sha256-", 7) == 0)
        return locate_object(t, f, url, have, err);
    rc = cache_find(have, f->digest, f->size, f->path, err);
    return rc || *have ? rc : cache_get(have, f->digest, f->size, f->path, fill, &b, err);
}

static const struct http_auth *auth_of(const struct tree *t, const struct tree_file *f)
{
    const struct source *s = t->self;
    const struct lfs_get *g = &s->get[f - t->file];

    return g->auth.sign && g->action.headers[0] ? &g->auth : NULL;
}

/* -- opening ---------------------------------------------------------------------------------- */

/* The commit of a repository on this host. */
static int find_commit(struct source *s, const struct git_source_place *p, struct ckpt_err *err)
{
    git_object *any = NULL, *commit = NULL;
    int rc = 0;

    if (git_revparse_single(&any, s->git->repo, *p->revision ? p->revision : "HEAD") ||
        git_object_peel(&commit, any, GIT_OBJECT_COMMIT))
        rc = *p->revision ? ckpt_fail(err, CKPT_ENOTFOUND, "%s: has no branch, tag or commit %s",
                                      p->url, p->revision)
                          : ckpt_fail(err, CKPT_ENOTFOUND, "%s: has no commit yet", p->url);
    else
        git_oid_tostr(s->commit, sizeof s->commit, git_object_id(commit));
    git_object_free(commit);
    git_object_free(any);
    return rc;
}

/* The commit on another host; offline the one that was found there last. */
static int fetch_commit(struct source *s, const struct git_source_place *p, struct ckpt_err *err)
{
    struct git_place place;
    char key[CACHE_KEY], text[4500];
    const char *known;
    json_t *last;
    int rc = git_instead_parse(&place, p->url, false, err);

    rc = rc ? rc : git_mirror_open(&s->mirror, &place, NULL, err);
    if (rc)
        return rc;
    s->git = s->mirror.git;
    s->far = true;
    snprintf(text, sizeof text, "%s\n%s", place.url, p->revision);
    cache_key(key, "git", text);
    if (http_offline()) {
        last = cache_list(key);
        known = json_string_value(json_object_get(last, "commit"));
        snprintf(s->commit, sizeof s->commit, "%s", known ? known : "");
        json_decref(last);
        rc = known ? 0 : ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: is not in the cache, and "
                                      "nothing is asked for offline", p->root);
    } else if ((rc = git_mirror_fetch(&s->mirror, p->revision, s->commit, err)) == 0) {
        last = json_pack("{s:s}", "commit", s->commit);
        cache_keep_list(key, last);
        json_decref(last);
    }
    git_mirror_unlock(&s->mirror);
    return rc;
}

static int read_tree(struct source *s, const char *name, struct ckpt_err *err)
{
    git_commit *commit = NULL;
    git_tree *tree = NULL;
    git_oid id;
    int rc = 0;

    git_index_free(s->git->index);
    s->git->index = NULL;
    if (git_oid_fromstr(&id, s->commit) || git_commit_lookup(&commit, s->git->repo, &id) ||
        git_commit_tree(&tree, commit) || git_index_new(&s->git->index) ||
        git_index_read_tree(s->git->index, tree))
        rc = git_fail(err, CKPT_EFORMAT, name);
    git_tree_free(tree);
    git_commit_free(commit);
    return rc;
}

static void close_source(struct source *s)
{
    if (s->far)
        git_mirror_close(&s->mirror);
    else
        ckpt_git_close(s->git);
    ckpt_free(s);
}

int git_source_open(struct tree **out, const struct git_source_place *p, struct ckpt_err *err)
{
    struct source *s = ckpt_alloc(1, sizeof *s);
    struct tree *t = NULL;
    int rc = s ? tree_new(&t, p->root, err) : ckpt_nomem(err, sizeof *s);

    *out = NULL;
    if (rc == 0 && p->local) {
        rc = ckpt_git_open(&s->git, p->url, false, err);
        rc = rc ? rc : find_commit(s, p, err);
    } else if (rc == 0) {
        rc = fetch_commit(s, p, err);
    }
    rc = rc ? rc : read_tree(s, p->root, err);
    if (rc == 0) {
        t->self = s;
        t->locate = locate;
        t->renew = renew;
        t->auth_of = auth_of;
        rc = list(t, s, err);
    }
    if (rc == 0) {
        s->get = ckpt_arena_alloc(&t->arena, t->n + 1, sizeof *s->get);
        s->asked = ckpt_arena_alloc(&t->arena, t->n + 1, sizeof *s->asked);
        rc = s->get && s->asked ? 0 : ckpt_nomem(err, t->n * sizeof *s->get);
    }
    if (rc == 0) {
        ckpt_log(CKPT_LOG_DEBUG, "%s: is commit %s", p->root, s->commit);
        *out = t;
        return 0;
    }
    tree_free(t);
    if (s)
        close_source(s);
    return rc;
}
