/* hub_write - see hub_write.h. */
#include "libckpt/remote/hub_write.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"

#define ANSWER_BYTES ((uint64_t)4 << 20)
#define JSON_TYPE    "application/json"

int hub_repo_open(struct hub_repo *r, const struct hub_place *p, struct ckpt_err *err)
{
    int rc;

    memset(r, 0, sizeof *r);
    snprintf(r->kind, sizeof r->kind, "%s", p->kind);
    snprintf(r->id, sizeof r->id, "%s", p->id);
    snprintf(r->name, sizeof r->name, "hf://%s%s%s", strcmp(p->kind, "models") ? p->kind : "",
             strcmp(p->kind, "models") ? "/" : "", p->id);
    r->http = http_shared(err);
    if (!r->http)
        return ckpt_err_code(err);
    if ((rc = hub_auth_open(&r->auth, err)) != 0)
        return ckpt_err_in(err, "%s", r->name);
    if (r->auth.token)
        return 0;
    ckpt_fail(err, CKPT_EREFUSED, "%s: nothing is published without a token", r->name);
    return ckpt_err_hint(err, "HF_TOKEN, or the file that hf auth login writes, holds one");
}

void hub_repo_close(struct hub_repo *r) { hub_auth_close(&r->auth); }

/* -- one request ------------------------------------------------------------------------------ */

/* {E}/api/{kind}/{id}/verb[/rest], rest escaped with its slashes. */
static int address(char url[HTTP_URL], const struct hub_repo *r, const char *verb,
                   const char *rest, struct ckpt_err *err)
{
    char part[3 * 256 + 1] = "";

    if ((rest && !http_escape(part, sizeof part, rest, "")) ||
        (size_t)snprintf(url, HTTP_URL, "%s/api/%s/%s/%s%s%s", r->auth.endpoint, r->kind, r->id,
                         verb, rest ? "/" : "", part) >= HTTP_URL)
        return ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", r->name);
    return 0;
}

/* Say in our words what the Hub's codes mean. */
static int explain(const struct hub_repo *r, const struct http_answer *a, struct ckpt_err *err)
{
    static const char storage[] = "storage";
    const char *code = a->problem_code;

    if (a->status == 401 && strstr(err->text, "Invalid credentials")) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: the token is invalid or has expired", r->name);
        return ckpt_err_hint(err, "HF_TOKEN, or hf auth login, sets another");
    }
    if (strcmp(code, "RepoNotFound") == 0 || (a->status == 404 && !*code)) {
        ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such repository, or no right to see it", r->name);
        return ckpt_err_hint(err, "--create creates it");
    }
    if (strcmp(code, "RevisionNotFound") == 0)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such branch", r->name);
    if (a->status == 403 && !strstr(err->text, storage))
        ckpt_err_hint(err, "the token needs the right to write to %s", r->id);
    if (a->status == 409)
        return ckpt_fail_as(err, CKPT_ESTOPPED, "busy", "%s: another commit is being made",
                            r->name);
    if (a->status == 412)
        return ckpt_fail_as(err, CKPT_ESTOPPED, "moved", "%s: another commit came first", r->name);
    return ckpt_err_code(err);
}

/* Send value (taken; NULL: no body) and get the answer's JSON, where out is not NULL. */
static int call(json_t **out, const struct hub_repo *r, const char *method, const char *url,
                json_t *value, struct http_answer *a, struct ckpt_err *err)
{
    struct http_body body = {.type = JSON_TYPE};
    struct http_request q = {.url = url, .name = r->name, .auth = hub_auth_of(&r->auth),
                             .limit = ANSWER_BYTES, .method = method};
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)64 << 20);
    if (value) {
        rc = ckpt_json_write(&b, value, 0, false, err);
        body.bytes = b.data;
        body.n = b.len;
        q.body = &body;
    }
    json_decref(value);
    if (rc == 0)
        rc = out ? http_json(r->http, out, &q, a, err) : http_send(r->http, &q, a, err);
    ckpt_buf_release(&b);
    return rc && a->status >= 400 ? explain(r, a, err) : rc;
}

/* The same for an address below the repository's. */
static int call_repo(json_t **out, const struct hub_repo *r, const char *method, const char *verb,
                     const char *rest, json_t *value, struct http_answer *a, struct ckpt_err *err)
{
    char url[HTTP_URL];
    int rc = address(url, r, verb, rest, err);

    if (rc) {
        json_decref(value);
        return rc;
    }
    return call(out, r, method, url, value, a, err);
}

/* -- the repository --------------------------------------------------------------------------- */

int hub_may_write(bool *exists, const struct hub_repo *r, struct ckpt_err *err)
{
    struct http_answer a;
    int rc = call_repo(NULL, r, NULL, "auth-check/write", NULL, NULL, &a, err);

    *exists = rc != CKPT_ENOTFOUND;
    return *exists ? rc : 0;
}

int hub_create(const struct hub_repo *r, bool is_private, struct ckpt_err *err)
{
    const char *slash = strchr(r->id, '/');
    char url[HTTP_URL], type[12];
    struct http_answer a;
    json_t *value;
    int rc;

    snprintf(url, sizeof url, "%s/api/repos/create", r->auth.endpoint);
    snprintf(type, sizeof type, "%.*s", (int)strlen(r->kind) - 1, r->kind);
    value = json_pack("{s:s, s:s*, s:s, s:b}", "name", slash ? slash + 1 : r->id, "organization",
                      NULL, "type", type, "private", is_private);
    if (value && slash)
        json_object_set_new(value, "organization", json_stringn(r->id, (size_t)(slash - r->id)));
    if (!value)
        return ckpt_nomem(err, 256);
    rc = call(NULL, r, "POST", url, value, &a, err);
    return rc && a.status == 409 ? 0 : rc;
}

int hub_head(char commit[41], const struct hub_repo *r, const char *revision, struct ckpt_err *err)
{
    char base[HTTP_URL], url[HTTP_URL];
    struct http_answer a;
    json_t *answer = NULL;
    int rc = address(base, r, "revision", revision, err);

    if (rc == 0 && (size_t)snprintf(url, sizeof url, "%s%s", base, HUB_COMMIT_ONLY) >= sizeof url)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", r->name);
    rc = rc ? rc : call(&answer, r, NULL, url, NULL, &a, err);

    if (rc == 0 && (rc = hub_read_commit(commit, answer, err)) != 0)
        rc = ckpt_err_in(err, "%s", r->name);
    json_decref(answer);
    return rc;
}

int hub_branch(const struct hub_repo *r, const char *branch, const char *commit,
               struct ckpt_err *err)
{
    json_t *value = json_pack("{s:s}", "startingPoint", commit);
    struct http_answer a;
    int rc = value ? call_repo(NULL, r, "POST", "branch", branch, value, &a, err)
                   : ckpt_nomem(err, 64);

    return rc && value && a.status == 409 ? 0 : rc;
}

int hub_tag(const struct hub_repo *r, const char *tag, const char *commit, struct ckpt_err *err)
{
    json_t *value = json_pack("{s:s}", "tag", tag);
    struct http_answer a;
    int rc = value ? call_repo(NULL, r, "POST", "tag", commit, value, &a, err)
                   : ckpt_nomem(err, 64);

    if (rc && value && a.status == 409)
        return ckpt_fail(err, CKPT_ECREATE, "%s: has a tag %s already", r->name, tag);
    return rc;
}

int hub_pull_request(char revision[32], const struct hub_repo *r, const char *title,
                     const char *description, struct ckpt_err *err)
{
    json_t *value = json_pack("{s:s, s:s, s:b}", "title", title, "description", description,
                              "pullRequest", 1);
    json_t *answer = NULL, *num;
    struct http_answer a;
    int rc = value ? call_repo(&answer, r, "POST", "discussions", NULL, value, &a, err)
                   : ckpt_nomem(err, 256);

    num = json_object_get(answer, "num");
    if (rc == 0 && (!json_is_integer(num) || json_integer_value(num) < 1))
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer about a pull request has no number",
                       r->name);
    if (rc == 0)
        snprintf(revision, 32, "refs/pr/%lld", (long long)json_integer_value(num));
    json_decref(answer);
    return rc;
}

/* -- files ------------------------------------------------------------------------------------ */

static struct hub_file *file_of(struct hub_file *file, size_t n, const char *path)
{
    for (size_t i = 0; path && i < n; i++)
        if (strcmp(file[i].path, path) == 0)
            return &file[i];
    return NULL;
}

/* One file of the answer. */
static int take_mode(const struct hub_repo *r, struct hub_file *file, size_t n, const json_t *e,
                     struct ckpt_err *err)
{
    const char *path = json_string_value(json_object_get(e, "path"));
    const char *mode = json_string_value(json_object_get(e, "uploadMode"));
    const char *oid = json_string_value(json_object_get(e, "oid"));
    struct hub_file *f = file_of(file, n, path);

    if (!f)
        return 0;
    if (!mode || (strcmp(mode, "lfs") != 0 && strcmp(mode, "regular") != 0))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: %.200s is to be sent as \"%.40s\", which is "
                         "neither lfs nor regular", r->name, f->path, mode ? mode : "");
    f->lfs = strcmp(mode, "lfs") == 0 && f->size > 0;   /* LFS has no empty objects */
    f->ignored = json_is_true(json_object_get(e, "shouldIgnore"));
    if (oid && strlen(oid) < sizeof f->oid)
        snprintf(f->oid, sizeof f->oid, "%s", oid);
    f->sample = NULL;                                   /* it is answered */
    return 0;
}

int hub_preupload(const struct hub_repo *r, const char *revision, struct hub_file *file, size_t n,
                  struct ckpt_err *err)
{
    json_t *list = json_array(), *value, *answer = NULL, *e;
    struct http_answer a;
    size_t i;
    int rc = 0;

    for (i = 0; list && i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "path", file[i].path, "sample",
                                              file[i].sample, "size", (json_int_t)file[i].size));
    value = json_pack("{s:o}", "files", list);
    if (!value || json_array_size(list) != n)
        rc = ckpt_nomem(err, 64 * n);
    rc = rc ? rc : call_repo(&answer, r, "POST", "preupload", revision, value, &a, err);
    json_array_foreach (json_object_get(answer, "files"), i, e)
        rc = rc ? rc : take_mode(r, file, n, e, err);
    for (i = 0; rc == 0 && i < n; i++)
        if (file[i].sample)
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: was asked how %.200s is to be sent, and did "
                           "not answer", r->name, file[i].path);
    json_decref(answer);
    return rc;
}

int hub_commit(char id[41], const struct hub_repo *r, const char *revision,
               const struct http_body *lines, struct ckpt_err *err)
{
    struct http_request q = {.name = r->name, .auth = hub_auth_of(&r->auth), .body = lines,
                             .limit = ANSWER_BYTES, .method = "POST", .once = true};
    char url[HTTP_URL];
    struct http_answer a = {0};
    json_t *answer = NULL;
    const char *oid;
    int rc = address(url, r, "commit", revision, err);

    q.url = url;
    if (rc == 0 && (rc = http_json(r->http, &answer, &q, &a, err)) != 0) {
        if (a.status >= 200 && a.status < 300)      /* a page, or half of an answer */
            return ckpt_fail_as(err, CKPT_ESTOPPED, "unanswered", "%s: no answer about the commit",
                                r->name);
        return a.status >= 400 && strcmp(err->reason, "unanswered") != 0 ? explain(r, &a, err) : rc;
    }
    oid = json_string_value(json_object_get(answer, "commitOid"));
    if (rc == 0 && (!oid || strlen(oid) != 40))
        rc = ckpt_fail_as(err, CKPT_ESTOPPED, "unanswered", "%s: the answer about a commit names "
                          "none", r->name);
    if (rc == 0)
        memcpy(id, oid, 41);
    json_decref(answer);
    return rc;
}

int hub_files(struct tree **out, const struct hub_repo *r, const char *commit,
              struct ckpt_err *err)
{
    int rc = tree_new(out, r->name, err);

    if (rc == 0)
        rc = hub_list(*out, &r->auth, r->kind, r->id, commit, err);
    if (rc) {
        tree_free(*out);
        *out = NULL;
    }
    return rc;
}
