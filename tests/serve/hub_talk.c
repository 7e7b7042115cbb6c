/* hub_talk.c - discussions and pull requests. */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 20

static json_t *event(struct call *c, const char *type, json_t *data)
{
    json_int_t serial = json_integer_value(json_object_get(c->repo, "serial")) + 1;
    char date[32], id[30];

    now_text(date);
    snprintf(id, sizeof id, "%024llx", (long long)serial);
    json_object_set_new(c->repo, "serial", json_integer(serial));
    c->changed = true;
    return json_pack("{s:s,s:s,s:s,s:{s:s},s:o}", "id", id, "type", type, "createdAt", date, "author",
                     "name", "alice", "data", data);
}

static json_t *comment(struct call *c, const char *text)
{
    return event(c, "comment", json_pack("{s:b,s:b,s:{s:s}}", "edited", 0, "hidden", 0, "latest",
                                         "raw", text));
}

static json_t *talks(struct call *c)
{
    return json_object_get(c->repo, "discussions");
}

/* The discussion that the first segment numbers; NULL: refused. */
static json_t *talk(struct call *c)
{
    json_t *t = c->n_seg && atol(c->seg[0]) > 0
                ? json_array_get(talks(c), (size_t)atol(c->seg[0]) - 1) : NULL;

    if (!t)
        refuse(c, 404, "", "Discussion not found");
    return t;
}

static void add_event(json_t *t, json_t *e)
{
    json_array_append_new(json_object_get(t, "events"), e);
}

static long open_talk(struct call *c, const char *title, const char *text, const char *status,
                      bool pull)
{
    long num = (long)json_array_size(talks(c)) + 1;
    char date[32];
    json_t *t;

    now_text(date);
    t = json_pack("{s:I,s:s,s:s,s:b,s:s,s:{s:s},s:{s:s},s:[]}", "num", (json_int_t)num, "title",
                  title, "status", status, "isPullRequest", pull, "createdAt", date, "author", "name",
                  "alice", "repo", "name", c->id, "events");
    /* "models" to "model" */
    json_object_set_new(json_object_get(t, "repo"), "type",
                        json_stringn(c->kind, strlen(c->kind) - 1));
    add_event(t, comment(c, text));
    json_array_append_new(talks(c), t);
    return num;
}

long talk_open_pull(struct call *c, const char *title, const char *text, const char *status,
                    const char *base, const char *commit)
{
    long num = open_talk(c, title, text, status, true);
    json_t *t = json_array_get(talks(c), (size_t)num - 1);
    char ref[40];

    snprintf(ref, sizeof ref, "refs/pr/%ld", num);
    json_object_set_new(t, "changes", json_pack("{s:s}", "base", base));
    json_object_set_new(t, "start", json_string(commit));
    json_object_set_new(json_object_get(c->repo, "refs"), ref, json_string(commit));
    return num;
}

void talk_add_commit(struct call *c, const char *ref, const char *title, const char *commit)
{
    json_t *t = json_array_get(talks(c), (size_t)atol(ref + strlen("refs/pr/")) - 1);

    if (t)
        add_event(t, event(c, "commit", json_pack("{s:s,s:s}", "subject", title, "oid", commit)));
}

void hub_talk_new(struct call *c)
{
    const char *title = text_of(c->in, "title", ""), *text = text_of(c->in, "description", "");
    char oid[41], ref[512];
    long num;

    if (strlen(title) < 3 || strlen(title) > 200) {
        refuse(c, 400, "", "title must have 3 to 200 characters");
        return;
    }
    if (json_is_true(json_object_get(c->in, "pullRequest"))) {
        repo_resolve(c->dir, c->repo, "main", oid, ref);
        num = talk_open_pull(c, title, text, "draft", ref, oid);
    } else {
        num = open_talk(c, title, text, "open", false);
    }
    reply(c, json_pack("{s:I,s:s,s:b}", "num", (json_int_t)num, "title", title, "pullRequest",
                       json_is_true(json_object_get(c->in, "pullRequest"))));
}

static bool fits(const char *asked, const char *value)
{
    return !*asked || strcmp(asked, "all") == 0 || strcmp(asked, value) == 0;
}

void hub_talk_list(struct call *c)
{
    char type[40], author[100], status[40], p[20];
    json_t *out = json_array(), *t;
    size_t i, n = 0, from;

    query_value(type, sizeof type, c->r->query, "type=");
    query_value(author, sizeof author, c->r->query, "author=");
    query_value(status, sizeof status, c->r->query, "status=");
    query_value(p, sizeof p, c->r->query, "p=");
    from = (size_t)atol(p) * PAGE;
    json_array_foreach(talks(c), i, t) {
        bool pull = json_is_true(json_object_get(t, "isPullRequest"));

        if (!fits(type, pull ? "pull_request" : "discussion") || !fits(author, "alice") ||
            !fits(status, strcmp(text_of(t, "status", ""), "draft") == 0 ? "open" :
                  strcmp(text_of(t, "status", ""), "merged") == 0 ? "closed" : text_of(t, "status", "")))
            continue;
        if (n >= from && n < from + PAGE)
            json_array_append(out, t);
        n++;
    }
    reply(c, json_pack("{s:o,s:I,s:I}", "discussions", out, "count", (json_int_t)n, "start",
                       (json_int_t)from));
}

void hub_talk(struct call *c)
{
    json_t *t = talk(c), *out;

    if (!t)
        return;
    out = json_copy(t);
    json_object_set_new(out, "filesWithConflicts", json_array());
    json_object_set_new(out, "diff", json_string(""));
    reply(c, out);
}

void hub_talk_status(struct call *c)
{
    const char *status = text_of(c->in, "status", "");
    json_t *t = talk(c), *e;

    if (!t)
        return;
    if (strcmp(status, "open") != 0 && strcmp(status, "closed") != 0 && strcmp(status, "draft") != 0) {
        refuse(c, 400, "", "status must be open or closed");
    } else if (strcmp(text_of(t, "status", ""), "merged") == 0) {
        refuse(c, 400, "", "the pull request is merged");
    } else {
        e = event(c, "status-change", json_pack("{s:s}", "status", status));
        json_object_set_new(t, "status", json_string(status));
        add_event(t, json_incref(e));
        reply(c, json_pack("{s:o}", "newStatus", e));
    }
}

void hub_talk_comment(struct call *c)
{
    json_t *t = talk(c), *e;

    if (!t)
        return;
    e = comment(c, text_of(c->in, "comment", ""));
    add_event(t, json_incref(e));
    reply(c, json_pack("{s:o}", "newMessage", e));
}

/* -- merge ------------------------------------------------------------------------------------ */

static bool same_file(const json_t *a, const json_t *b, const char *path)
{
    return strcmp(text_of(json_object_get(a, path), "oid", ""),
                  text_of(json_object_get(b, path), "oid", "")) == 0;
}

/* What changed from start to theirs is done to ours; false: ours changed it too. */
static bool merge_files(json_t *ours, json_t *start, json_t *theirs)
{
    json_t *paths = json_copy(start), *file;
    const char *path;
    bool ok = true;

    json_object_update(paths, theirs);
    json_object_foreach(paths, path, file) {
        json_t *their = json_object_get(theirs, path);

        if (same_file(start, theirs, path))
            continue;
        ok = ok && (same_file(start, ours, path) || same_file(ours, theirs, path));
        if (their)
            json_object_set(ours, path, their);
        else
            json_object_del(ours, path);
    }
    json_decref(paths);
    return ok;
}

static json_t *files_of(struct call *c, const char *rev, char oid[41])
{
    char ref[512];
    json_t *commit, *files;

    if (!repo_resolve(c->dir, c->repo, rev, oid, ref))
        return json_object();
    commit = repo_commit_load(c->dir, oid);
    files = json_copy(json_object_get(commit, "files"));
    json_decref(commit);
    return files;
}

void hub_talk_merge(struct call *c)
{
    char ref[40], base[512], head[41], oid[41], title[400];
    json_t *t = talk(c), *ours, *start, *theirs;
    const char *status = text_of(t, "status", "");

    if (!t)
        return;
    if (!json_is_true(json_object_get(t, "isPullRequest")) || strcmp(status, "open") != 0) {
        refuse(c, 400, "", "not an open pull request");
        return;
    }
    snprintf(ref, sizeof ref, "refs/pr/%s", c->seg[0]);
    snprintf(base, sizeof base, "%s", text_of(json_object_get(t, "changes"), "base", ""));
    start = files_of(c, text_of(t, "start", ""), oid);
    theirs = files_of(c, ref, oid);
    ours = files_of(c, base, head);
    if (!merge_files(ours, start, theirs)) {
        refuse(c, 409, "", "The pull request conflicts with its base branch");
        json_decref(ours);
    } else {
        snprintf(title, sizeof title, "%.300s (#%s)", text_of(t, "title", ""), c->seg[0]);
        repo_commit_add(c->dir, c->repo, base, title, text_of(c->in, "comment", ""), head, ours, oid);
        json_object_set_new(t, "status", json_string("merged"));
        json_object_set_new(json_object_get(t, "changes"), "mergeCommitId", json_string(oid));
        add_event(t, event(c, "status-change", json_pack("{s:s}", "status", "merged")));
        reply(c, json_object());
    }
    json_decref(start);
    json_decref(theirs);
}
