/*
 * repo.c - repositories that can be written, below ROOT/repos/KIND/OWNER/NAME:
 *
 *   repo.json          what moves: references, discussions, who may see it
 *   commits/COMMIT     JSON: title, message, parent, date, files {PATH: {size, oid[, lfs]}}
 *   blobs/SHA1         contents of regular files        lfs/SHA256   objects
 */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

void repo_dir(char *dst, size_t size, const char *kind, const char *owner, const char *name)
{
    snprintf(dst, size, "%.2000s/repos/%s/%s/%s", root, kind, owner, name);
}

json_t *repo_load(const char *dir)
{
    char path[SERVE_PATH + 20];

    snprintf(path, sizeof path, "%s/repo.json", dir);
    return json_load_file(path, 0, NULL);
}

static void save(const char *path, const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);

    if (!text || !write_file(path, text, strlen(text))) {
        perror(path);
        exit(74);
    }
    free(text);
}

void repo_save(const char *dir, const json_t *repo)
{
    char path[SERVE_PATH + 20];

    snprintf(path, sizeof path, "%s/repo.json", dir);
    save(path, repo);
}

bool is_hex(const char *s, size_t n)
{
    return strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

json_t *repo_commit_load(const char *dir, const char *oid)
{
    char path[SERVE_PATH + 60];

    snprintf(path, sizeof path, "%s/commits/%s", dir, oid);
    return json_load_file(path, 0, NULL);
}

bool repo_resolve(const char *dir, const json_t *repo, const char *rev, char oid[41],
                  char ref[512])
{
    static const char *const folders[] = {"", "refs/heads/", "refs/tags/"};
    const json_t *refs = json_object_get(repo, "refs");
    char path[SERVE_PATH + 60];

    for (int i = 0; i < 3; i++) {
        const char *at;

        snprintf(ref, 512, "%s%.400s", folders[i], rev);
        at = json_string_value(json_object_get(refs, ref));
        if (at) {
            snprintf(oid, 41, "%s", at);
            if (i == 2 || strncmp(ref, "refs/tags/", 10) == 0)
                *ref = '\0';
            return true;
        }
    }
    *ref = '\0';
    snprintf(path, sizeof path, "%s/commits/%.40s", dir, rev);
    if (!is_hex(rev, 40) || file_size(path) < 0)
        return false;
    snprintf(oid, 41, "%s", rev);
    return true;
}

void now_text(char dst[32])
{
    struct timeval t;
    struct tm tm;
    char day[24];

    gettimeofday(&t, NULL);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
    snprintf(dst, 32, "%s.%03dZ", day, (int)(t.tv_usec / 1000));
}

void repo_commit_add(const char *dir, json_t *repo, const char *ref, const char *title,
                     const char *message, const char *parent, json_t *files, char oid[41])
{
    json_int_t serial = json_integer_value(json_object_get(repo, "serial")) + 1;
    char date[32], path[SERVE_PATH + 60], *text;
    json_t *commit;

    now_text(date);
    commit = json_pack("{s:s,s:s,s:s,s:s,s:I,s:o}", "title", title, "message", message, "parent",
                       parent, "date", date, "serial", serial, "files", files);
    text = json_dumps(commit, JSON_COMPACT);
    hex_digest(oid, "sha1", dir, strlen(dir), text, strlen(text));
    free(text);
    snprintf(path, sizeof path, "%s/commits/%s", dir, oid);
    save(path, commit);
    json_decref(commit);
    json_object_set_new(repo, "serial", json_integer(serial));
    json_object_set_new(json_object_get(repo, "refs"), ref, json_string(oid));
}

json_t *repo_blob(const char *dir, const char *bytes, size_t n)
{
    char oid[41], path[SERVE_PATH + 60];

    git_sha(oid, bytes, n);
    snprintf(path, sizeof path, "%s/blobs/%s", dir, oid);
    if (file_size(path) != (long long)n && !write_file(path, bytes, n))
        perror(path);
    return json_pack("{s:I,s:s}", "size", (json_int_t)n, "oid", oid);
}

json_t *repo_pointer(const char *oid, long long size)
{
    char text[200], blob[41];
    int n = snprintf(text, sizeof text, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\n"
                     "size %lld\n", oid, size);

    git_sha(blob, text, (size_t)n);
    return json_pack("{s:I,s:s,s:s,s:i}", "size", (json_int_t)size, "oid", blob, "lfs", oid,
                     "pointerSize", n);
}

void repo_object(char *dst, size_t size, const char *dir, const char *oid)
{
    snprintf(dst, size, "%.4000s/lfs/%s", dir, oid);
}

char *repo_text(const char *dir, const json_t *files, const char *path)
{
    const char *oid = text_of(json_object_get(files, path), "oid", NULL);
    char at[SERVE_PATH], *map, *text = NULL;
    size_t n;

    if (!oid)
        return NULL;
    snprintf(at, sizeof at, "%.4000s/blobs/%s", dir, oid);
    map = map_file(at, &n);
    if (map) {
        text = malloc(n + 1);
        memcpy(text, map, n);
        text[n] = '\0';
        unmap(map, n);
    }
    return text;
}
