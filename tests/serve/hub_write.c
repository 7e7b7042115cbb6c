/* hub_write.c - new repositories, preupload, commits. */
#include "tests/serve/serve.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LFS_WORDS " filter=lfs diff=lfs merge=lfs -text\n"
#define MOST_REGULAR 10000000
#define MOST_FILES 256

/* What the .gitattributes of a new repository sends to LFS. */
static const char *const large[] = {
    "*.7z", "*.arrow", "*.bin", "*.bz2", "*.ckpt", "*.ftz", "*.gz", "*.h5", "*.joblib", "*.lfs.*",
    "*.mlmodel", "*.model", "*.msgpack", "*.npy", "*.npz", "*.onnx", "*.ot", "*.parquet", "*.pb",
    "*.pickle", "*.pkl", "*.pt", "*.pth", "*.rar", "*.safetensors", "saved_model/**/*", "*.tar.*",
    "*.tar", "*.tflite", "*.tgz", "*.wasm", "*.xz", "*.zip", "*.zst", "*tfevents*",
};

/* -- repositories ----------------------------------------------------------------------------- */

static bool good_name(const char *s)
{
    size_t n = strlen(s);

    return n > 0 && n <= 96 && !strchr("-.", s[0]) && !strchr("-.", s[n - 1]) && !strstr(s, "--") &&
           !strstr(s, "..") && (n < 4 || strcmp(s + n - 4, ".git") != 0) &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

/* The repository that a body names; false: refused. */
static bool named(struct call *c)
{
    const char *name = text_of(c->in, "name", ""), *slash = strchr(name, '/');
    const char *type = text_of(c->in, "type", "model");

    if (strcmp(type, "model") != 0 && strcmp(type, "dataset") != 0 && strcmp(type, "space") != 0) {
        refuse(c, 400, "", "type must be model, dataset or space");
        return false;
    }
    snprintf(c->owner, sizeof c->owner, "%.*s", slash ? (int)(slash - name) : 200,
             slash ? name : text_of(c->in, "organization", "alice"));
    snprintf(c->name, sizeof c->name, "%s", slash ? slash + 1 : name);
    if (!good_name(c->owner) || !good_name(c->name)) {
        refuse(c, 400, "", "Invalid repository name");
        return false;
    }
    snprintf(c->kind, sizeof c->kind, "%ss", type);
    snprintf(c->id, sizeof c->id, "%s/%s", c->owner, c->name);
    repo_dir(c->dir, sizeof c->dir, c->kind, c->owner, c->name);
    c->repo = repo_load(c->dir);
    return true;
}

static void set_url(const struct call *c, char *dst, size_t size)
{
    snprintf(dst, size, "http://127.0.0.1:%d/%s%s%s", port_of[0], strcmp(c->kind, "models") ?
             c->kind : "", strcmp(c->kind, "models") ? "/" : "", c->id);
}

static void first_commit(struct call *c)
{
    char text[4096] = "", oid[41];
    json_t *files = json_object();
    size_t k = 0;

    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        k += (size_t)snprintf(text + k, sizeof text - k, "%s" LFS_WORDS, large[i]);
    json_object_set_new(files, ".gitattributes", repo_blob(c->dir, text, k));
    repo_commit_add(c->dir, c->repo, "refs/heads/main", "initial commit", "", "", files, oid);
    c->changed = true;
}

void hub_create(struct call *c)
{
    const char *visibility = text_of(c->in, "visibility", "public");
    bool hidden = json_is_true(json_object_get(c->in, "private")) || strcmp(visibility, "private") == 0;
    char url[1024], id[25], sha[41], text[800];

    if (!named(c))
        return;
    set_url(c, url, sizeof url);
    if (c->repo) {
        snprintf(text, sizeof text, "You already created this %s repo",
                 text_of(c->in, "type", "model"));
        refuse(c, 409, "", text);
        json_object_set_new(c->out, "url", json_string(url));
        return;
    }
    hex_digest(sha, "sha1", "", 0, c->id, strlen(c->id));
    snprintf(id, sizeof id, "%.24s", sha);
    c->repo = json_pack("{s:s,s:b,s:{},s:[],s:i}", "_id", id, "private", hidden, "refs",
                        "discussions", "serial", 0);
    first_commit(c);
    reply(c, json_pack("{s:s,s:s,s:s}", "url", url, "name", c->id, "id", id));
}

void hub_delete(struct call *c)
{
    static long serial;
    char away[SERVE_PATH];

    if (!named(c))
        return;
    snprintf(away, sizeof away, "%.4000s/deleted/%d-%ld", root, (int)getpid(), ++serial);
    make_folders(away);
    if (!c->repo || rename(c->dir, away))
        refuse(c, 404, "RepoNotFound", "Repository not found");
    else
        reply(c, json_object());
}

void hub_settings(struct call *c)
{
    json_t *hidden = json_object_get(c->in, "private");
    const char *visibility = text_of(c->in, "visibility", NULL);

    if (visibility)
        json_object_set_new(c->repo, "private", json_boolean(strcmp(visibility, "private") == 0));
    else if (json_is_boolean(hidden))
        json_object_set(c->repo, "private", hidden);
    c->changed = true;
    reply(c, json_pack("{s:O}", "private", json_object_get(c->repo, "private")));
}

/* -- preupload -------------------------------------------------------------------------------- */

/* The bytes of base64, malloced; NULL: not base64. */
static unsigned char *decode(const char *text, size_t *n)
{
    size_t len = strlen(text), pad = 0;
    unsigned char *out;
    int k;

    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    out = malloc(len / 4 * 3 + 4);
    k = len % 4 || len > 0x7fffffff ? -1
        : EVP_DecodeBlock(out, (const unsigned char *)text, (int)len);
    if (k < (int)pad) {
        free(out);
        return NULL;
    }
    *n = (size_t)k - pad;
    return out;
}

static bool is_binary(const char *sample)
{
    size_t n = 0;
    unsigned char *bytes = decode(sample, &n);
    bool yes = false;

    for (size_t i = 0; bytes && i < n; i++)
        yes = yes || bytes[i] < 7 || (bytes[i] > 13 && bytes[i] < 27);
    free(bytes);
    return yes;
}

static json_t *mode_of(const json_t *asked, const json_t *files, const char *attributes,
                       const char *ignore)
{
    const char *path = text_of(asked, "path", "");
    json_int_t size = json_integer_value(json_object_get(asked, "size"));
    json_t *file = json_object_get(files, path), *row;
    bool lfs = size > 0 && (attribute_lfs(attributes, path) || size > MOST_REGULAR ||
                            is_binary(text_of(asked, "sample", "")));

    row = json_pack("{s:s,s:s,s:b}", "path", path, "uploadMode", lfs ? "lfs" : "regular",
                    "shouldIgnore", ignored(ignore, path));
    if (file)
        json_object_set_new(row, "oid", json_string(text_of(file, "lfs", text_of(file, "oid", ""))));
    return row;
}

void hub_preupload(struct call *c)
{
    json_t *asked = json_object_get(c->in, "files"), *commit, *files, *out, *one;
    char rev[500], oid[41], ref[512], *attributes, *ignore;
    size_t i;

    join_segments(rev, sizeof rev, c, 0);
    if (!json_is_array(asked) || json_array_size(asked) > MOST_FILES) {
        refuse(c, 400, "", asked ? "\"files\" must have at most 256 entries" : "files is missing");
        return;
    }
    if (!repo_resolve(c->dir, c->repo, rev, oid, ref)) {
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
        return;
    }
    commit = repo_commit_load(c->dir, oid);
    files = json_object_get(commit, "files");
    attributes = repo_text(c->dir, files, ".gitattributes");
    ignore = repo_text(c->dir, files, ".gitignore");
    out = json_array();
    json_array_foreach(asked, i, one)
        json_array_append_new(out, mode_of(one, files, text_of(c->in, "gitAttributes", attributes),
                                           text_of(c->in, "gitIgnore", ignore)));
    reply(c, json_pack("{s:o,s:s}", "files", out, "commitOid", oid));
    free(attributes);
    free(ignore);
    json_decref(commit);
}

/* -- a commit --------------------------------------------------------------------------------- */

struct change {
    struct call *c;
    json_t      *header, *files, *seen; /* seen: paths of this commit */
    bool         lfs;
};

/* A folder's may end in a slash. */
static bool good_path(const char *path, bool folder)
{
    size_t n = strlen(path);
    char part[4096];

    snprintf(part, sizeof part, "/%.*s/", (int)(n - (folder && n > 0 && path[n - 1] == '/')), path);
    return *path && *path != '/' && n < 4000 && !strstr(part, "/../") &&
           !strstr(part, "/./") && !strstr(part, "//") && !strstr(part, "/.git/") &&
           !strchr(path, '\\');
}

static void add_regular(struct change *m, const char *path, const json_t *value)
{
    const char *text = text_of(value, "content", NULL), *how = text_of(value, "encoding", "utf-8");
    bool base64 = strcmp(how, "base64") == 0;
    size_t n = text ? strlen(text) : 0;
    char *bytes = text && base64 ? (char *)decode(text, &n) : NULL, problem[400] = "";
    json_t *file;

    if (!text || (base64 && !bytes) || (!base64 && strcmp(how, "utf-8") != 0)) {
        refuse(m->c, 400, "", "a file without content, or in no known encoding");
        return;
    }
    if (strcmp(path, "README.md") == 0)
        card_errors(problem, sizeof problem, bytes ? bytes : text, n);
    if (*problem) {
        refuse(m->c, 400, "", "Invalid metadata in README.md.");
        json_object_set_new(m->c->out, "errors", json_pack("[{s:s}]", "message", problem));
    } else {
        file = repo_blob(m->c->dir, bytes ? bytes : text, n);
        if (is(m->c->r, "rot")) {
            char at[SERVE_PATH];

            snprintf(at, sizeof at, "%.4000s/blobs/%s", m->c->dir, text_of(file, "oid", ""));
            rot_file(at);
        }
        json_object_set_new(m->files, path, file);
    }
    free(bytes);
}

static void add_large(struct change *m, const char *path, const json_t *value)
{
    const char *oid = text_of(value, "oid", "");
    json_t *size = json_object_get(value, "size");
    char at[SERVE_PATH], text[5000];
    long long have;

    repo_object(at, sizeof at, m->c->dir, oid);
    have = is_hex(oid, 64) ? file_size(at) : -1;
    if (have < 0 || (size && json_integer_value(size) != have)) {
        snprintf(text, sizeof text, "Your push was rejected because an LFS pointer pointed to a file "
                 "that does not exist. Offending file: %.4000s", path);
        refuse(m->c, 400, "", text);
        return;
    }
    m->lfs = true;
    json_object_set_new(m->files, path, repo_pointer(oid, have));
}

static void drop_file(struct change *m, const char *path, const json_t *value)
{
    (void)value;
    if (json_object_del(m->files, path))
        refuse(m->c, 404, "EntryNotFound", "A file with that name does not exist at that revision");
}

static void drop_folder(struct change *m, const char *path, const json_t *value)
{
    size_t n = strlen(path), dropped = 0;
    const char *key;
    json_t *file;
    void *next;

    (void)value;
    while (n > 0 && path[n - 1] == '/')
        n--;
    json_object_foreach_safe(m->files, next, key, file)
        if (strncmp(key, path, n) == 0 && key[n] == '/') {
            json_object_del(m->files, key);
            dropped++;
        }
    if (!dropped)
        refuse(m->c, 404, "EntryNotFound", "A folder with that name does not exist at that revision");
}

static const struct line {
    const char *key;
    void (*run)(struct change *m, const char *path, const json_t *value);
} lines[] = {{"file", add_regular}, {"lfsFile", add_large}, {"deletedFile", drop_file},
             {"deletedFolder", drop_folder}};

static void run_line(struct change *m, const json_t *line)
{
    const char *key = text_of(line, "key", ""), *path;
    const json_t *value = json_object_get(line, "value");

    path = text_of(value, "path", "");
    if (!good_path(path, strcmp(key, "deletedFolder") == 0)) {
        refuse(m->c, 400, "", "Invalid path");
        return;
    }
    if (json_object_get(m->seen, path)) {
        refuse(m->c, 400, "", "The same path twice in a commit");
        return;
    }
    json_object_set_new(m->seen, path, json_true());
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strcmp(key, lines[i].key) == 0) {
            lines[i].run(m, path, value);
            return;
        }
    refuse(m->c, 400, "", "A line of a commit with an unknown key");
}

/* The lines of a body, which are JSON; the first is the header. */
static void run_lines(struct change *m)
{
    char *rest = NULL, *text = m->c->r->body ? strdup(m->c->r->body) : strdup("");

    for (char *at = strtok_r(text, "\n", &rest); at && !m->c->out; at = strtok_r(NULL, "\n", &rest)) {
        json_t *line = json_loads(at, 0, NULL);
        bool header = strcmp(text_of(line, "key", ""), "header") == 0;

        if (!line || header != (m->header == NULL))
            refuse(m->c, 400, "", line ? "A commit begins with its header" : "A line is no JSON");
        else if (header)
            m->header = json_incref(json_object_get(line, "value"));
        else
            run_line(m, line);
        json_decref(line);
    }
    free(text);
    if (!m->c->out && !*text_of(m->header, "summary", ""))
        refuse(m->c, 400, "", "The summary of a commit must not be empty");
}

/* A path that is also a folder of another one. */
static void check_folders(struct change *m)
{
    json_t *value;
    const char *path;
    char part[4096];

    json_object_foreach(m->files, path, value)
        for (const char *at = strchr(path, '/'); at && !m->c->out; at = strchr(at + 1, '/')) {
            snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
            if (json_object_get(m->files, part))
                refuse(m->c, 400, "", "A path is a file and a folder");
        }
}

/* LFS files that no pattern sends there get a line of their own. */
static void extend_attributes(struct change *m)
{
    char *text = repo_text(m->c->dir, m->files, ".gitattributes"), *grown;
    json_t *file, *added = json_object();
    const char *path;

    json_object_foreach(m->files, path, file)
        if (json_object_get(m->seen, path) && text_of(file, "lfs", NULL) && !attribute_lfs(text, path)) {
            size_t n = text ? strlen(text) : 0, size = n + strlen(path) + 60;

            grown = malloc(size);
            snprintf(grown, size, "%s%s" LFS_WORDS, text ? text : "", path);
            free(text);
            text = grown;
            json_object_set_new(added, path, json_true());
        }
    if (json_object_size(added))
        json_object_set_new(m->files, ".gitattributes", repo_blob(m->c->dir, text, strlen(text)));
    json_decref(added);
    free(text);
}

static void land(struct change *m, const char *ref, const char *base, const char *parent)
{
    struct call *c = m->c;
    const char *title = text_of(m->header, "summary", ""), *text = text_of(m->header, "description", "");
    char url[1024], commit_url[1200], oid[41], pull[40] = "";
    long num = 0;

    if (!*ref) {
        num = talk_open_pull(c, title, text, "open", base, parent);
        snprintf(pull, sizeof pull, "refs/pr/%ld", num);
        ref = pull;
    }
    repo_commit_add(c->dir, c->repo, ref, title, text, parent, json_incref(m->files), oid);
    if (strncmp(ref, "refs/pr/", 8) == 0)
        talk_add_commit(c, ref, title, oid);
    c->changed = true;
    set_url(c, url, sizeof url);
    snprintf(commit_url, sizeof commit_url, "%s/commit/%s", url, oid);
    reply(c, json_pack("{s:b,s:s,s:s,s:s}", "success", 1, "commitOid", oid, "commitUrl", commit_url,
                       "hookOutput", ""));
    if (num) {
        snprintf(commit_url, sizeof commit_url, "%s/discussions/%ld", url, num);
        json_object_set_new(c->out, "pullRequestUrl", json_string(commit_url));
    }
}

/* The branch to commit to, and the commit to start from; false: refused. */
static bool starting_point(struct change *m, char ref[512], char oid[41], bool pull)
{
    const char *parent = text_of(m->header, "parentCommit", "");
    char rev[500], unused[512];
    struct call *c = m->c;

    join_segments(rev, sizeof rev, c, 0);
    if (!repo_resolve(c->dir, c->repo, rev, oid, ref) || (!*ref && !pull))
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    else if (*parent && pull && !repo_resolve(c->dir, c->repo, parent, oid, unused))
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    else if (*parent && !pull && strcmp(parent, oid) != 0)
        refuse(c, 412, "", "A commit has happened since. Please refresh and try again.");
    else
        return true;
    return false;
}

/* The header, which is wanted before the tree that the other lines change. */
static json_t *peek_header(const char *body)
{
    json_t *line = body ? json_loads(body, JSON_DISABLE_EOF_CHECK, NULL) : NULL, *header;

    header = json_incref(json_object_get(line, "value"));
    json_decref(line);
    return header;
}

void hub_commit(struct call *c)
{
    struct change m = {.c = c, .seen = json_object()};
    char ref[512] = "", oid[41], flag[10];
    json_t *commit;
    bool pull;

    query_value(flag, sizeof flag, c->r->query, "create_pr=");
    pull = strcmp(flag, "1") == 0 || strcasecmp(flag, "true") == 0;
    m.header = peek_header(c->r->body);
    if (starting_point(&m, ref, oid, pull)) {
        json_decref(m.header);
        m.header = NULL;
        commit = repo_commit_load(c->dir, oid);
        m.files = json_copy(json_object_get(commit, "files"));
        json_decref(commit);
        run_lines(&m);
        check_folders(&m);
        if (!c->out && m.lfs)
            extend_attributes(&m);
        if (!c->out)
            land(&m, pull ? "" : ref, *ref ? ref : "refs/heads/main", oid);
        json_decref(m.files);
    }
    json_decref(m.header);
    json_decref(m.seen);
}

void hub_move(struct call *c, const char *rev, const char *path)
{
    char oid[41], made[41], ref[512], text[60];
    json_t *commit, *files;
    int n;

    if (!repo_resolve(c->dir, c->repo, rev, oid, ref) || !*ref)
        return;
    commit = repo_commit_load(c->dir, oid);
    files = json_copy(json_object_get(commit, "files"));
    json_decref(commit);
    n = snprintf(text, sizeof text, "moved at %lld\n",
                 (long long)json_integer_value(json_object_get(c->repo, "serial")));
    json_object_set_new(files, path, repo_blob(c->dir, text, (size_t)n));
    repo_commit_add(c->dir, c->repo, ref, "A commit of somebody else", "", oid, files, made);
    repo_save(c->dir, c->repo);
}
