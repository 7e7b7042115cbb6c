/* hub_read.c - what a client asks of the Hub before it sends anything, and after. */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

void hub_whoami(struct call *c)
{
    reply(c, json_pack("{s:s,s:s,s:s,s:s,s:b,s:[{s:s,s:s,s:s}],s:{s:s,s:{s:s,s:s}}}", "type", "user",
                       "id", "5f0c746619cb630495b814fd", "name", "alice", "fullname", "Alice",
                       "isPro", 0, "orgs", "type", "org", "name", "acme", "roleInOrg", "admin",
                       "auth", "type", "access_token", "accessToken", "displayName", "test", "role",
                       c->level == 2 ? "write" : "read"));
}

void hub_auth(struct call *c)
{
    if (c->n_seg && strcmp(c->seg[0], "write") == 0 && c->level < 2)
        refuse(c, 403, "", "You don't have the required permissions: the token may only read");
    else
        reply(c, json_object());
}

/* -- cards ------------------------------------------------------------------------------------ */

static bool parse_yaml(char *dst, size_t size, const char *text, size_t n)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    bool ok;

    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    ok = yaml_parser_load(&parser, &doc);
    if (!ok) {
        snprintf(dst, size, "%s (%zu:1)", parser.problem, parser.problem_mark.line + 2);
    } else {
        const yaml_node_t *top = yaml_document_get_root_node(&doc);

        if (top && top->type != YAML_MAPPING_NODE)
            snprintf(dst, size, "The YAML metadata must be a mapping");
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    return ok;
}

void card_errors(char *dst, size_t size, const char *text, size_t n)
{
    const char *end;

    *dst = '\0';
    if (n < 4 || strncmp(text, "---\n", 4) != 0)
        return;
    end = memmem(text + 3, n - 3, "\n---", 4);
    if (!end)
        snprintf(dst, size, "The YAML metadata has no end");
    else
        parse_yaml(dst, size, text + 4, end >= text + 4 ? (size_t)(end - text - 3) : 0);
}

void hub_yaml(struct call *c)
{
    const char *text = text_of(c->in, "content", NULL);
    char problem[400];

    if (!text) {
        refuse(c, 400, "", "content is missing");
        return;
    }
    card_errors(problem, sizeof problem, text, strlen(text));
    if (*problem) {
        reply(c, json_pack("{s:[{s:s}],s:[]}", "errors", "message", problem, "warnings"));
        c->status = 400;
    } else if (strncmp(text, "---\n", 4) != 0) {
        reply(c, json_pack("{s:[],s:[{s:s}]}", "errors", "warnings", "message",
                           "empty or missing yaml metadata in repo card"));
    } else {
        reply(c, json_pack("{s:[],s:[]}", "errors", "warnings"));
    }
}

/* -- a revision ------------------------------------------------------------------------------- */

/* The commit of the first segment, or of main; NULL: refused. */
static json_t *revision(struct call *c, char oid[41])
{
    char ref[512];

    if (repo_resolve(c->dir, c->repo, c->n_seg ? c->seg[0] : "main", oid, ref))
        return repo_commit_load(c->dir, oid);
    refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    return NULL;
}

void hub_info(struct call *c)
{
    char oid[41], date[32];
    json_t *commit = revision(c, oid), *siblings = json_array(), *file;
    const char *path;

    if (commit && strstr(c->r->query, "expand=sha")) {
        reply(c, json_pack("{s:s,s:s,s:s}", "_id", text_of(c->repo, "_id", ""), "id", c->id, "sha",
                           oid));
        json_decref(siblings);
        json_decref(commit);
        return;
    }
    now_text(date);
    json_object_foreach(json_object_get(commit, "files"), path, file)
        json_array_append_new(siblings, json_pack("{s:s}", "rfilename", path));
    if (commit)
        reply(c, json_pack("{s:s,s:s,s:s,s:s,s:O,s:b,s:b,s:s,s:s,s:i,s:i,s:[],s:O}", "_id",
                           text_of(c->repo, "_id", ""), "id", c->id, "modelId", c->id, "sha", oid,
                           "private", json_object_get(c->repo, "private"), "gated", 0, "disabled", 0,
                           "lastModified", text_of(commit, "date", date), "createdAt", date,
                           "downloads", 0, "likes", 0, "tags", "siblings", siblings));
    json_decref(siblings);
    json_decref(commit);
}

static json_t *file_row(const char *path, const json_t *file)
{
    const char *lfs = text_of(file, "lfs", NULL);
    json_t *row = json_pack("{s:s,s:s,s:O,s:O}", "type", "file", "path", path, "size",
                            json_object_get(file, "size"), "oid", json_object_get(file, "oid"));

    if (lfs)
        json_object_set_new(row, "lfs", json_pack("{s:s,s:O,s:O}", "oid", lfs, "size",
                                                  json_object_get(file, "size"), "pointerSize",
                                                  json_object_get(file, "pointerSize")));
    return row;
}

static json_t *folder_row(const char *path, json_t *files)
{
    json_t *below = json_object(), *file;
    size_t n = strlen(path);
    const char *key;
    char *text, oid[41];

    json_object_foreach(files, key, file)
        if (strncmp(key, path, n) == 0 && key[n] == '/')
            json_object_set(below, key, json_object_get(file, "oid"));
    text = json_dumps(below, JSON_COMPACT | JSON_SORT_KEYS);
    hex_digest(oid, "sha1", "tree", 4, text, strlen(text));
    free(text);
    json_decref(below);
    return json_pack("{s:s,s:s,s:s,s:i}", "type", "directory", "path", path, "oid", oid, "size", 0);
}

/* Files below a folder and the folders on their way: {PATH: file or null}. */
static json_t *list_below(json_t *files, const char *top, bool deep)
{
    json_t *rows = json_object(), *file;
    size_t n = strlen(top);
    const char *path;
    char part[4096];

    json_object_foreach(files, path, file) {
        const char *at = path + n + (n > 0);

        if (n && (strncmp(path, top, n) != 0 || path[n] != '/'))
            continue;
        for (at = strchr(at, '/'); at; at = deep ? strchr(at + 1, '/') : NULL) {
            snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
            json_object_set_new(rows, part, json_null());
        }
        if (deep || !strchr(path + n + (n > 0), '/'))
            json_object_set(rows, path, file);
    }
    return rows;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char **sorted_keys(json_t *object)
{
    const char **keys = malloc((json_object_size(object) + 1) * sizeof *keys), *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(object, key, value)
        keys[n++] = key;
    qsort(keys, n, sizeof *keys, by_name);
    return keys;
}

/* Which rows of n a page holds, and the address of the next one. */
static void page(struct call *c, size_t n, size_t *from, size_t *end)
{
    char text[100];
    long size = options.page;

    query_value(text, sizeof text, c->r->query, "limit=");
    size = *text && atol(text) < size ? atol(text) : size;
    query_value(text, sizeof text, c->r->query, "cursor=");
    *from = (size_t)atol(text) < n ? (size_t)atol(text) : n;
    *end = n - *from > (size_t)size ? *from + (size_t)size : n;
    if (*end < n)
        snprintf(c->headers, sizeof c->headers, "Link: <http://127.0.0.1:%d%.*s?%scursor=%zu>; "
                 "rel=\"next\"\r\n", port_of[0], (int)strcspn(c->r->target, "?"), c->r->target,
                 strstr(c->r->query, "recursive=") && !strstr(c->r->query, "recursive=false") &&
                 !strstr(c->r->query, "recursive=False") ? "recursive=true&" : "", *end);
}

void hub_tree(struct call *c)
{
    char oid[41], top[4096], deep[20];
    json_t *commit = revision(c, oid), *files = json_object_get(commit, "files"), *rows, *out;
    size_t from, end;
    const char **keys;

    if (!commit)
        return;
    join_segments(top, sizeof top, c, 1);
    query_value(deep, sizeof deep, c->r->query, "recursive=");
    rows = list_below(files, top, strcasecmp(deep, "true") == 0 || strcmp(deep, "1") == 0);
    if (*top && json_object_size(rows) == 0) {
        refuse(c, 404, "EntryNotFound", "The path does not exist at that revision");
    } else {
        keys = sorted_keys(rows);
        out = json_array();
        page(c, json_object_size(rows), &from, &end);
        for (size_t i = from; i < end; i++) {
            json_t *file = json_object_get(rows, keys[i]);

            json_array_append_new(out, json_is_null(file) ? folder_row(keys[i], files)
                                                          : file_row(keys[i], file));
        }
        free(keys);
        reply(c, out);
    }
    json_decref(rows);
    json_decref(commit);
}

/* The paths of a form, or of JSON. */
static json_t *asked_paths(const struct call *c)
{
    json_t *paths = json_array();
    char *text, *rest;

    if (c->in)
        json_array_extend(paths, json_object_get(c->in, "paths"));
    if (c->in || !c->r->body)
        return paths;
    text = strdup(c->r->body);
    for (char *at = strtok_r(text, "&", &rest); at; at = strtok_r(NULL, "&", &rest)) {
        if (strncmp(at, "paths=", 6) != 0)
            continue;
        for (char *p = at; *p; p++)
            *p = *p == '+' ? ' ' : *p;
        unescape(at);
        json_array_append_new(paths, json_string(at + 6));
    }
    free(text);
    return paths;
}

void hub_paths(struct call *c)
{
    char oid[41];
    json_t *commit = revision(c, oid), *files = json_object_get(commit, "files"), *out, *paths, *p;
    json_t *all;
    size_t i;

    if (!commit)
        return;
    out = json_array();
    paths = asked_paths(c);
    all = list_below(files, "", true);
    json_array_foreach(paths, i, p) {
        const char *path = json_string_value(p);
        json_t *row = path ? json_object_get(all, path) : NULL;

        if (row)
            json_array_append_new(out, json_is_null(row) ? folder_row(path, files)
                                                         : file_row(path, row));
    }
    reply(c, out);
    if (json_array_size(paths) > 1000)
        refuse(c, 400, "", "at most 1000 paths");
    json_decref(all);
    json_decref(paths);
    json_decref(commit);
}

void hub_commits(struct call *c)
{
    char oid[41];
    json_t *commit = revision(c, oid), *all, *out;
    size_t from, end;

    if (!commit)
        return;
    all = json_array();
    while (commit) {
        json_t *next;

        json_array_append_new(all, json_pack("{s:s,s:s,s:s,s:s,s:[{s:s}]}", "id", oid, "title",
                                             text_of(commit, "title", ""), "message",
                                             text_of(commit, "message", ""), "date",
                                             text_of(commit, "date", ""), "authors", "user", "alice"));
        snprintf(oid, sizeof oid, "%s", text_of(commit, "parent", ""));
        next = *oid ? repo_commit_load(c->dir, oid) : NULL;
        json_decref(commit);
        commit = next;
    }
    out = json_array();
    page(c, json_array_size(all), &from, &end);
    for (size_t i = from; i < end; i++)
        json_array_append(out, json_array_get(all, i));
    json_decref(all);
    reply(c, out);
}
