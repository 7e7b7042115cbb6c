/*
 * storage.c - Git LFS: the batch, and the storage that its addresses lead to.
 *
 * On the other port, each address with its leave in it (sig, exp):
 *
 *   PUT  /put/KIND/OWNER/NAME/OID            an object as a whole
 *   PUT  /part/KIND/OWNER/NAME/OID/UPLOAD/N  a part of one
 *   POST /complete/KIND/OWNER/NAME/OID/UPLOAD
 *   GET  /lfs/KIND/OWNER/NAME/OID
 *   GET  /cdn/PATH                           a large file of a folder that is read alone
 *
 * An upload lies in uploads/UPLOAD of its repository: meta, data, etag.N.
 */
#include "tests/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define MOST_OBJECTS 256

static long serial;

static long long now_ms(void)
{
    struct timeval t;

    gettimeofday(&t, NULL);
    return (long long)t.tv_sec * 1000 + t.tv_usec / 1000;
}

void storage_address(char *dst, size_t size, const char *verb, const struct call *c,
                     const char *rest)
{
    snprintf(dst, size, "http://127.0.0.1:%d/%s/%s/%s/%s%s?sig=secret&exp=%lld", port_of[1], verb,
             c->kind, c->owner, c->name, rest, now_ms() + options.expires * 1000LL);
}

/* -- the batch -------------------------------------------------------------------------------- */

static json_t *upload_whole(struct call *c, const char *oid)
{
    char rest[100], href[SERVE_PATH];

    snprintf(rest, sizeof rest, "/%s", oid);
    storage_address(href, sizeof href, "put", c, rest);
    return json_pack("{s:s,s:{},s:I}", "href", href, "header", "expires_in",
                     (json_int_t)options.expires);
}

static json_t *upload_parts(struct call *c, const char *oid, long long size)
{
    long long chunk = options.chunk, n = (size + chunk - 1) / chunk;
    char rest[200], href[SERVE_PATH], path[SERVE_PATH + 100], key[30], id[40];
    json_t *header = json_object();
    int k;

    snprintf(id, sizeof id, "%llx-%lx", now_ms(), __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
    snprintf(path, sizeof path, "%s/uploads/%s/meta", c->dir, id);
    k = snprintf(rest, sizeof rest, "%lld %lld\n", size, chunk);
    write_file(path, rest, (size_t)k);
    snprintf(key, sizeof key, "%lld", chunk);
    json_object_set_new(header, "chunk_size", json_string(key));
    for (long long i = 1; i <= n; i++) {
        snprintf(key, sizeof key, "%05lld", i);
        snprintf(rest, sizeof rest, "/%s/%s/%lld", oid, id, i);
        storage_address(href, sizeof href, "part", c, rest);
        json_object_set_new(header, key, json_string(href));
    }
    snprintf(rest, sizeof rest, "/%s/%s", oid, id);
    storage_address(href, sizeof href, "complete", c, rest);
    return json_pack("{s:s,s:o,s:I}", "href", href, "header", header, "expires_in",
                     (json_int_t)options.expires);
}

static json_t *batch_row(struct call *c, const json_t *asked, bool parts, bool download)
{
    const char *oid = text_of(asked, "oid", "");
    long long size = (long long)json_integer_value(json_object_get(asked, "size")), have;
    json_t *row = json_pack("{s:s,s:I,s:b}", "oid", oid, "size", (json_int_t)size, "authenticated",
                            1), *upload;
    char path[SERVE_PATH], href[SERVE_PATH], rest[100];

    repo_object(path, sizeof path, c->dir, oid);
    have = is_hex(oid, 64) ? file_size(path) : -1;
    if (!is_hex(oid, 64) || size <= 0 || (have >= 0 && have != size)) {
        json_object_set_new(row, "error", json_pack("{s:i,s:s}", "code", 422, "message",
                                                    "Invalid oid or size"));
    } else if (download && have < 0) {
        json_object_set_new(row, "error", json_pack("{s:i,s:s}", "code", 404, "message",
                                                    "Object does not exist"));
    } else if (download) {
        snprintf(rest, sizeof rest, "/%s", oid);
        storage_address(href, sizeof href, "lfs", c, rest);
        json_object_set_new(row, "actions", json_pack("{s:{s:s,s:I}}", "download", "href", href,
                                                      "expires_in", (json_int_t)options.expires));
    } else if (have < 0) {
        upload = parts && size > options.multipart ? upload_parts(c, oid, size)
                                                   : upload_whole(c, oid);
        snprintf(href, sizeof href, "http://127.0.0.1:%d/%s%s%s.git/info/lfs/objects/verify",
                 port_of[0], strcmp(c->kind, "models") ? c->kind : "",
                 strcmp(c->kind, "models") ? "/" : "", c->id);
        json_object_set_new(row, "actions", json_pack("{s:o,s:{s:s,s:{}}}", "upload", upload,
                                                      "verify", "href", href, "header"));
    }
    return row;
}

void hub_batch(struct call *c)
{
    json_t *asked = json_object_get(c->in, "objects"), *out, *one, *transfers;
    const char *algo = text_of(c->in, "hash_algo", "sha256"), *ref, *how;
    const char *operation = text_of(c->in, "operation", "");
    char oid[41], whole[512];
    bool parts = false;
    size_t i;

    transfers = json_object_get(c->in, "transfers");
    json_array_foreach(transfers, i, one) {
        how = json_string_value(one);
        parts = parts || (how && strcmp(how, "multipart") == 0);
    }
    ref = text_of(json_object_get(c->in, "ref"), "name", NULL);
    if (!json_is_array(asked) || json_array_size(asked) > MOST_OBJECTS)
        refuse(c, 400, "", asked ? "\"objects\" must have at most 256 entries" : "objects is missing");
    else if (strcmp(algo, "sha256") != 0 && strcmp(algo, "sha_256") != 0)
        refuse(c, 409, "", "hash_algo must be sha256");
    else if (strcmp(operation, "upload") != 0 && strcmp(operation, "download") != 0)
        refuse(c, 400, "", "operation must be upload or download");
    else if (ref && !repo_resolve(c->dir, c->repo, ref, oid, whole))
        refuse(c, 404, "RevisionNotFound", "Invalid rev id");
    if (c->out)
        return;
    out = json_array();
    json_array_foreach(asked, i, one)
        json_array_append_new(out, batch_row(c, one, parts, *operation == 'd'));
    reply(c, json_pack("{s:s,s:o,s:s}", "transfer", *options.transfer ? options.transfer
                       : parts ? "multipart" : "basic", "objects", out,
                       "hash_algo", "sha256"));
}

void hub_verify(struct call *c)
{
    const char *oid = text_of(c->in, "oid", "");
    char path[SERVE_PATH];
    long long have;

    repo_object(path, sizeof path, c->dir, oid);
    have = is_hex(oid, 64) ? file_size(path) : -1;
    if (have < 0)
        refuse(c, 404, "", "Object does not exist");
    else if (have != json_integer_value(json_object_get(c->in, "size")))
        refuse(c, 422, "", "Object has another size");
    else
        reply(c, json_object());
}

/* -- the storage ------------------------------------------------------------------------------ */

/* What an address says. */
struct address {
    char verb[16], dir[SERVE_PATH], oid[65], upload[40], path[SERVE_PATH + 200];
    long part;
};

static bool parse_address(const struct request *r, struct address *a)
{
    char kind[16], owner[200], name[200];

    *a = (struct address){.part = 0};
    if (sscanf(r->path, "/%15[^/]/%15[^/]/%199[^/]/%199[^/]/%64[0-9a-f]/%39[^/]/%ld", a->verb, kind,
               owner, name, a->oid, a->upload, &a->part) < 5 || !is_hex(a->oid, 64))
        return false;
    repo_dir(a->dir, sizeof a->dir, kind, owner, name);
    if (*a->upload)
        snprintf(a->path, sizeof a->path, "%.4000s/uploads/%s/data", a->dir, a->upload);
    else
        repo_object(a->path, sizeof a->path, a->dir, a->oid);
    return true;
}

static bool in_time(const struct request *r)
{
    char exp[30];

    query_value(exp, sizeof exp, r->query, "exp=");
    return strstr(r->query, "sig=secret") && (!*exp || atoll(exp) > now_ms());
}

static bool read_meta(const struct address *a, long long *size, long long *chunk)
{
    char path[SERVE_PATH + 100];
    FILE *f;
    int n;

    snprintf(path, sizeof path, "%s/uploads/%s/meta", a->dir, a->upload);
    f = fopen(path, "r");
    n = f ? fscanf(f, "%lld %lld", size, chunk) : 0;
    if (f)
        fclose(f);
    return n == 2;
}

/* The body of what may be stored goes to its file, of all else to memory. */
bool receive_storage(struct request *r)
{
    long long size, chunk, at, want;
    struct address a;

    if (strcmp(r->method, "PUT") != 0)
        return receive_text(r);
    if (*r->token || !in_time(r) || !parse_address(r, &a))
        return receive_nothing(r);
    if (strcmp(a.verb, "put") == 0) {
        snprintf(r->spool, sizeof r->spool, "%.4000s/uploads/%s.%ld", a.dir, a.oid,
                 __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED));
        if (receive_file(r, r->spool, 0, options.unproved))
            return true;
        unlink(r->spool);
        return false;
    }
    if (strcmp(a.verb, "part") != 0 || !read_meta(&a, &size, &chunk) || a.part < 1)
        return receive_nothing(r);
    at = (a.part - 1) * chunk;
    want = size - at < chunk ? size - at : chunk;
    if (at >= size || r->length != want)
        return receive_nothing(r);
    return receive_file(r, a.path, at, true);
}

static void stored(struct request *r, const char *path)
{
    if (is(r, "rot"))
        rot_file(path);
}

static void put_whole(struct request *r, const struct address *a)
{
    if (strcmp(r->sha256, a->oid) != 0 && !options.unproved) {
        unlink(r->spool);
        fail(r, 400, "", "The SHA-256 of the content is not the object's");
        return;
    }
    make_folders(a->path);
    if (rename(r->spool, a->path) && file_size(a->path) < 0) {
        fail(r, 500, "", "The object cannot be stored");
        return;
    }
    stored(r, a->path);
    answer(r, 200, "", "", 0);
}

static void put_part(struct request *r, const struct address *a)
{
    char path[SERVE_PATH + 100], headers[60];
    long long size, chunk;

    if (!read_meta(a, &size, &chunk)) {
        fail(r, 404, "", "No such upload");
        return;
    }
    if (!*r->etag) {
        fail(r, 400, "", "No such part, or one of a wrong length");
        return;
    }
    snprintf(path, sizeof path, "%s/uploads/%s/etag.%ld", a->dir, a->upload, a->part);
    write_file(path, r->etag, strlen(r->etag));
    snprintf(headers, sizeof headers, "ETag: \"%s\"\r\n", r->etag);
    answer(r, 200, headers, "", 0);
}

/* What is wrong with a completion, or NULL. */
static const char *part_problem(const struct address *a, const json_t *parts, long long n)
{
    char path[SERVE_PATH + 100], want[100];
    json_t *part;
    size_t i;

    if ((long long)json_array_size(parts) != n)
        return "wrong number of parts";
    json_array_foreach(parts, i, part) {
        size_t k = 0;
        char *etag;
        bool same;

        snprintf(path, sizeof path, "%s/uploads/%s/etag.%zu", a->dir, a->upload, i + 1);
        etag = map_file(path, &k);
        snprintf(want, sizeof want, "\"%.*s\"", (int)k, etag ? etag : "");
        same = etag && strcmp(text_of(part, "etag", ""), want) == 0 &&
               json_integer_value(json_object_get(part, "partNumber")) == (json_int_t)i + 1;
        unmap(etag, k);
        if (!same)
            return "a part is missing, or its ETag or number is another";
    }
    return NULL;
}

static void drop_upload(const struct address *a, long long n)
{
    char path[SERVE_PATH + 100];

    for (long long i = 1; i <= n; i++) {
        snprintf(path, sizeof path, "%s/uploads/%s/etag.%lld", a->dir, a->upload, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/uploads/%s/meta", a->dir, a->upload);
    unlink(path);
    snprintf(path, sizeof path, "%s/uploads/%s", a->dir, a->upload);
    rmdir(path);
}

static void complete(struct request *r, const struct address *a)
{
    char object[SERVE_PATH], sha256[65];
    long long size, chunk;
    const char *problem;
    json_t *in;
    size_t n;
    char *map;

    if (!read_meta(a, &size, &chunk)) {
        fail(r, 404, "", "No such upload");
        return;
    }
    in = r->n_body ? json_loadb(r->body, r->n_body, 0, NULL) : NULL;
    problem = strcmp(text_of(in, "oid", ""), a->oid) != 0
              ? "the oid is another" : part_problem(a, json_object_get(in, "parts"),
                                                    (size + chunk - 1) / chunk);
    json_decref(in);
    map = problem || options.unproved ? NULL : map_file(a->path, &n);
    if (map) {
        hex_digest(sha256, "sha256", "", 0, map, n);
        unmap(map, n);
        problem = strcmp(sha256, a->oid) != 0 ? "the SHA-256 of the content is not the object's"
                                              : NULL;
    }
    if (problem) {
        fail(r, 400, "", problem);
        return;
    }
    repo_object(object, sizeof object, a->dir, a->oid);
    make_folders(object);
    if (rename(a->path, object) && file_size(object) < 0) {
        fail(r, 500, "", "The object cannot be stored");
        return;
    }
    stored(r, object);
    drop_upload(a, (size + chunk - 1) / chunk);
    answer(r, 200, "Content-Type: application/json\r\n", "{\"success\":true}", 16);
}

static void send_object(struct request *r, const struct address *a)
{
    char headers[200];
    size_t n;
    char *map = map_file(a->path, &n);

    if (!map) {
        fail(r, 404, "", "Object does not exist");
        return;
    }
    snprintf(headers, sizeof headers, "ETag: \"%s\"\r\n", a->oid);
    answer(r, 200, headers, map, n);
    unmap(map, n);
}

static const struct storage_route {
    const char *method, *verb;
    void (*run)(struct request *r, const struct address *a);
} routes[] = {{"PUT", "put", put_whole},         {"PUT", "part", put_part},
              {"POST", "complete", complete}, {"GET", "lfs", send_object},
              {"HEAD", "lfs", send_object}};

static void run_route(struct request *r)
{
    struct address a;

    if (parse_address(r, &a))
        for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
            if (strcmp(r->method, routes[i].method) == 0 && strcmp(a.verb, routes[i].verb) == 0) {
                routes[i].run(r, &a);
                return;
            }
    fail(r, 404, "", "Not found");
}

void serve_storage(struct request *r)
{
    char path[SERVE_PATH];

    if (*r->token) {
        r->note = "LEAK";
        fail(r, 400, "", "a token came to the wrong host");
    } else if (!in_time(r)) {
        fail(r, 403, "", "Request has expired");
    } else if (strncmp(r->path, "/cdn/", 5) == 0) {
        snprintf(path, sizeof path, "%s%s", root, r->path + 4);
        send_file(r, path, NULL);
    } else {
        run_route(r);
    }
}
