/* lfs_http - see lfs_http.h. */
#include "libckpt/remote/lfs_http.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/digest.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/lfs_action.h"

#define BATCH        100u               /* objects of one request */
#define ROUNDS       4                  /* times that the addresses of an object are asked for */
#define ANSWER_BYTES ((uint64_t)64 << 20)
#define LFS_TYPE     "application/vnd.git-lfs+json"
#define ACCEPT       "Accept: " LFS_TYPE "\n"

/* One object of a call. */
struct item {
    struct lfs_action action;
    size_t            left;             /* parts still to be sent, under the lock */
    bool              asked, done;
    bool              again;            /* its addresses were refused: ask for others */
};

/* One transfer: a whole object, or one part of it. */
struct job {
    size_t object, part;
};

struct transfer {
    const struct lfs_server *s;
    const struct lfs_object *object;
    struct item             *item;
    size_t                   n;
    struct job              *job;
    size_t                   n_jobs;
    pthread_mutex_t          lock;      /* guards left, done, again, tags, sent, why, arena */
    uint64_t                 sent;
    char                     why[400];  /* what an object was refused with */
    struct ckpt_arena        arena;
};

static void advance(struct transfer *t, uint64_t bytes)
{
    if (t->s->progress)
        t->s->progress(t->s->ctx, bytes);
}

static void tell_done(struct transfer *t, size_t i, bool sent)
{
    if (t->s->done)
        t->s->done(t->s->ctx, i, sent);
}

/* -- which objects, and where ----------------------------------------------------------------- */

/* A server may insist on a protocol of its own, as one whose objects lie in Xet's store could. */
static int check_transfer(const struct lfs_server *s, json_t **answer, struct ckpt_err *err)
{
    const char *how = json_string_value(json_object_get(*answer, "transfer"));
    char named[40];

    if (!how || strcmp(how, "basic") == 0 || strcmp(how, "multipart") == 0)
        return 0;
    snprintf(named, sizeof named, "%.39s", how);
    json_decref(*answer);
    *answer = NULL;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: takes and gives its objects by \"%s\" alone; "
                     "basic and multipart transfers are done", s->name, named);
}

int lfs_batch(const struct lfs_server *s, json_t **out, const json_t *value, struct ckpt_err *err)
{
    struct http_body body = {.type = LFS_TYPE};
    struct http_answer a = {0};
    char url[HTTP_URL];
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, (size_t)16 << 20);
    if ((size_t)snprintf(url, sizeof url, "%s/objects/batch", s->url) >= sizeof url)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", s->name);
    if (rc == 0)
        rc = ckpt_json_write(&b, value, 0, false, err);
    body.bytes = b.data;
    body.n = b.len;
    rc = rc ? rc : http_json(s->http, out, &(struct http_request){
        .url = url, .name = s->name, .auth = s->auth, .method = "POST", .body = &body,
        .headers = ACCEPT, .limit = ANSWER_BYTES}, &a, err);
    rc = rc ? rc : check_transfer(s, out, err);
    if (rc && a.status == 413)
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: status 413: %zu objects are too many for it at "
                       "once", s->name, json_array_size(json_object_get(value, "objects")));
    ckpt_buf_release(&b);
    return rc;
}

static json_t *question(const struct transfer *t, const size_t *which, size_t n)
{
    json_t *objects = json_array();
    json_t *value = json_pack("{s:s, s:[s,s], s:s, s:O}", "operation", "upload", "transfers",
                              "basic", "multipart", "hash_algo", "sha256", "objects", objects);

    for (size_t k = 0; value && k < n; k++)
        json_array_append_new(objects, json_pack("{s:s, s:I}", "oid", t->object[which[k]].oid,
                                                 "size", (json_int_t)t->object[which[k]].size));
    if (value && t->s->ref)
        json_object_set_new(value, "ref", json_pack("{s:s}", "name", t->s->ref));
    json_decref(objects);
    return value;
}

/* The first of n asked objects with this oid that has no answer. */
static struct item *asked_for(struct transfer *t, const size_t *which, size_t n, const char *oid,
                              const struct lfs_object **o)
{
    for (size_t k = 0; oid && k < n; k++) {
        *o = &t->object[which[k]];
        if (!t->item[which[k]].asked && strcmp((*o)->oid, oid) == 0)
            return &t->item[which[k]];
    }
    return NULL;
}

/* Ask about n objects. */
static int batch(struct transfer *t, const size_t *which, size_t n, struct ckpt_err *err)
{
    json_t *answer = NULL, *value = question(t, which, n), *e;
    const struct lfs_object *o = NULL;
    size_t i;
    int rc = value ? lfs_batch(t->s, &answer, value, err) : ckpt_nomem(err, 64 * n);

    json_decref(value);
    json_array_foreach (json_object_get(answer, "objects"), i, e) {
        struct item *item = rc ? NULL : asked_for(t, which, n,
                                                  json_string_value(json_object_get(e, "oid")), &o);

        if (!item)
            continue;
        rc = lfs_action_read(&item->action, &t->arena, o, e, t->s->name, err);
        item->asked = true;
        if (rc == 0 && item->action.n_parts > 0)
            journal_add(t->s->journal, lfs_action_record(&item->action, o));
    }
    for (i = 0; rc == 0 && i < n; i++)
        if (!t->item[which[i]].asked)
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: did not answer about %.200s", t->s->name,
                           t->object[which[i]].name);
    json_decref(answer);
    return rc;
}

static int ask_all(struct transfer *t, struct ckpt_err *err)
{
    size_t which[BATCH], n = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        if (!t->item[i].done && !t->item[i].asked)
            which[n++] = i;
        if (n == BATCH) {
            rc = batch(t, which, n, err);
            n = 0;
        }
    }
    return rc == 0 && n > 0 ? batch(t, which, n, err) : rc;
}

/* Take up the objects whose parts were on their way when an earlier process ended. */
static void take_up(struct transfer *t)
{
    const json_t *records = journal_records(t->s->journal);
    json_t *record;
    size_t k;

    json_array_foreach ((json_t *)records, k, record) {
        const char *oid = json_string_value(json_object_get(record, "oid"));
        const char *tag = json_string_value(json_object_get(record, "tag"));
        size_t part = (size_t)json_integer_value(json_object_get(record, "part"));

        for (size_t i = 0; oid && i < t->n; i++) {
            struct lfs_action *a = &t->item[i].action;

            if (strcmp(t->object[i].oid, oid) != 0)
                continue;
            if (!tag)
                t->item[i].asked = lfs_action_resume(a, &t->arena, &t->object[i], record);
            else if (t->item[i].asked && part < a->n_parts)
                a->tag[part] = ckpt_arena_strndup(&t->arena, tag, strlen(tag));
        }
    }
}

/* -- bytes ------------------------------------------------------------------------------------ */

/* A body that is digested while it is sent, and does not end when it is not the object's. */
struct sending {
    struct transfer         *t;
    const struct lfs_object *o;
    struct ckpt_sha256      *sha;       /* NULL for a part */
    uint64_t                 at;
};

static int begin_sending(void *ctx, struct ckpt_err *err)
{
    struct sending *x = ctx;
    unsigned char digest[CKPT_SHA256_BYTES];

    x->at = 0;
    return x->sha ? ckpt_sha256_end(x->sha, digest, err) : 0;
}

static int pass(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct sending *x = ctx;
    unsigned char digest[CKPT_SHA256_BYTES];
    char hex[CKPT_SHA256_HEX];
    int rc = x->sha ? ckpt_sha256_add(x->sha, bytes, n, err) : 0;

    x->at += n;
    if (rc || !x->sha || x->at < x->o->size || n == 0)
        return rc;
    if ((rc = ckpt_sha256_end(x->sha, digest, err)) != 0)
        return rc;
    ckpt_digest_hex(hex, digest, sizeof digest);
    return strcmp(hex, x->o->oid) == 0 ? 0
           : ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was sent",
                          x->o->name);
}

/* Whether an answer says that an address is valid no more. */
static bool is_expired(const struct http_answer *a, const struct ckpt_err *err)
{
    return a->status == 403 || a->status == 410 || a->status == 404 ||
           (a->status == 400 && strstr(err->text, "xpired"));
}

/* PUT n bytes of object i.  answer gets the last answer. */
static int put_bytes(struct transfer *t, size_t i, const char *url, const char *headers,
                     uint64_t at, uint64_t n, bool whole, struct http_answer *answer,
                     struct ckpt_err *err)
{
    struct sending x = {.t = t, .o = &t->object[i]};
    struct http_body body = {.at = at, .n = n, .begin = begin_sending, .pass = pass, .ctx = &x};
    struct ckpt_file *file = NULL;
    int rc = t->s->open(t->s->ctx, i, &file, err);

    if (rc == 0 && ckpt_file_size(file) != x.o->size)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed before it was sent",
                          x.o->name);
    if (rc == 0 && whole)
        rc = ckpt_sha256_new(&x.sha, err);
    body.file = file;
    body.type = whole && !strstr(headers, "ontent-Type:") && !strstr(headers, "ontent-type:")
                    ? "application/octet-stream" : NULL;
    if (rc == 0)
        rc = http_send(t->s->http, &(struct http_request){
            .url = url, .name = x.o->name, .method = "PUT", .body = &body, .headers = headers},
            answer, err);
    ckpt_sha256_free(x.sha);
    ckpt_file_close(file);
    return rc;
}

/* POST value to an address of an action. */
static int post(struct transfer *t, const char *name, const char *url, const char *headers,
                bool with_token, json_t *value, struct http_answer *a, struct ckpt_err *err)
{
    struct http_body body = {.type = LFS_TYPE};
    char lines[4200];
    struct ckpt_buf b;
    int rc = value ? 0 : ckpt_nomem(err, 256);

    ckpt_buf_init(&b, (size_t)32 << 20);
    snprintf(lines, sizeof lines, "%s%s", ACCEPT, headers);
    if (rc == 0)
        rc = ckpt_json_write(&b, value, 0, false, err);
    json_decref(value);
    body.bytes = b.data;
    body.n = b.len;
    if (rc == 0)
        rc = http_send(t->s->http, &(struct http_request){
            .url = url, .name = name, .method = "POST", .body = &body, .headers = lines,
            .auth = with_token && !strstr(headers, "uthorization:") ? t->s->auth : NULL}, a, err);
    ckpt_buf_release(&b);
    return rc;
}

static int complete(struct transfer *t, size_t i, struct http_answer *a, struct ckpt_err *err)
{
    const struct lfs_action *x = &t->item[i].action;
    json_t *parts = json_array();

    for (size_t k = 0; k < x->n_parts; k++)
        json_array_append_new(parts, json_pack("{s:I, s:s}", "partNumber", (json_int_t)k + 1,
                                               "etag", x->tag[k]));
    return post(t, t->object[i].name, x->href, "", false,
                json_pack("{s:s, s:o}", "oid", t->object[i].oid, "parts", parts), a, err);
}

/* Whether an answer says that the parts are not what the server has: it may have the object all the
 * same, or want it anew.  A server that does not verify an object is asked whether it has it. */
static bool is_refused(const struct http_answer *a, bool verifying)
{
    static const long refusals[] = {400, 403, 404, 409, 410, 422};

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (a->status == refusals[i])
            return true;
    return verifying && a->status >= 400 && a->status < 500 &&
           http_status_code(a->status) != CKPT_ESTOPPED;
}

/* Whether the bytes of an object that a server refused are still the object's. */
static int check_source(struct transfer *t, size_t i, struct ckpt_err *err)
{
    const struct lfs_object *o = &t->object[i];
    struct ckpt_file *file = NULL;
    struct ckpt_err other = {0};
    char hex[CKPT_SHA256_HEX];
    int rc = t->s->open(t->s->ctx, i, &file, &other);

    rc = rc ? rc : ckpt_sha256_file(hex, file, &other);
    ckpt_file_close(file);
    if (rc)
        return 0;                       /* another try will tell */
    return strcmp(hex, o->oid) == 0 ? 0
           : ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was sent", o->name);
}

/* Remember why an object is sent again, for when that does not end; 0. */
static int note_refusal(struct transfer *t, struct ckpt_err *err)
{
    pthread_mutex_lock(&t->lock);
    snprintf(t->why, sizeof t->why, "%.*s", (int)sizeof t->why - 1, err->text);
    pthread_mutex_unlock(&t->lock);
    ckpt_err_clear(err);
    return 0;
}

/* An object whose bytes are all sent: complete its parts, and let the server verify it. */
static int finish(struct transfer *t, size_t i, struct ckpt_err *err)
{
    const struct lfs_object *o = &t->object[i];
    struct item *item = &t->item[i];
    struct http_answer a = {0};
    int rc = item->action.n_parts > 0 ? complete(t, i, &a, err) : 0, changed = 0;
    bool verifying;

    verifying = rc == 0;
    if (rc == 0 && item->action.verify)
        rc = post(t, o->name, item->action.verify, item->action.verify_headers, true,
                  json_pack("{s:s, s:I}", "oid", o->oid, "size", (json_int_t)o->size), &a, err);
    if (rc && (a.status == 400 || a.status == 422))
        changed = check_source(t, i, err);
    pthread_mutex_lock(&t->lock);
    item->done = rc == 0;
    item->again = rc && !changed && is_refused(&a, verifying);
    t->sent += rc == 0 ? o->size : 0;
    pthread_mutex_unlock(&t->lock);
    if (rc == 0)
        tell_done(t, i, true);
    return changed ? changed : item->again ? note_refusal(t, err) : rc;
}

static int send_part(struct transfer *t, size_t i, size_t part, struct http_answer *a,
                     struct ckpt_err *err)
{
    const struct lfs_object *o = &t->object[i];
    struct lfs_action *x = &t->item[i].action;
    uint64_t at = part * x->chunk, n = o->size - at < x->chunk ? o->size - at : x->chunk;
    int rc = put_bytes(t, i, x->part[part], "", at, n, false, a, err);

    if (rc)
        return rc;
    if (!a->tag[0])
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the store gives no ETag for a part", o->name);
    pthread_mutex_lock(&t->lock);
    x->tag[part] = ckpt_arena_strndup(&t->arena, a->tag, strlen(a->tag));
    pthread_mutex_unlock(&t->lock);
    if (!x->tag[part])
        return ckpt_nomem(err, sizeof a->tag);
    journal_add(t->s->journal, json_pack("{s:s, s:I, s:s}", "oid", o->oid, "part",
                                         (json_int_t)part, "tag", a->tag));
    advance(t, n);
    return 0;
}

static int do_job(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct transfer *t = ctx;
    size_t i = t->job[k].object;
    struct item *item = &t->item[i];
    struct http_answer a = {0};
    bool again, last;
    int rc = http_stopped(err);

    (void)worker;
    pthread_mutex_lock(&t->lock);
    again = item->again;
    pthread_mutex_unlock(&t->lock);
    if (rc || again)
        return rc;
    if (item->action.n_parts > 0)
        rc = send_part(t, i, t->job[k].part, &a, err);
    else
        rc = put_bytes(t, i, item->action.href, item->action.headers, 0, t->object[i].size, true,
                       &a, err);
    again = rc && is_expired(&a, err);
    pthread_mutex_lock(&t->lock);
    item->again = item->again || again;
    last = rc == 0 && --item->left == 0;
    pthread_mutex_unlock(&t->lock);
    if (rc == 0 && item->action.n_parts == 0)
        advance(t, t->object[i].size);
    return again ? note_refusal(t, err) : rc ? rc : last ? finish(t, i, err) : 0;
}

/* -- rounds ----------------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b, void *ctx)
{
    const struct job *x = a, *y = b;
    const struct lfs_object *o = ctx;
    uint64_t p = o[x->object].size, q = o[y->object].size;

    return p != q ? (p < q ? 1 : -1)
           : x->object != y->object ? (x->object > y->object ? 1 : -1)
           : x->part != y->part ? (x->part > y->part ? 1 : -1) : 0;
}

/* The transfers of this round: objects that the server lacks, parts that it has not got. */
static int plan_jobs(struct transfer *t, struct ckpt_err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->item[i].action.n_parts + 1;
    ckpt_free(t->job);
    t->n_jobs = 0;
    t->job = ckpt_alloc(n, sizeof *t->job);
    if (!t->job)
        return ckpt_nomem(err, n * sizeof *t->job);
    for (size_t i = 0; i < t->n; i++) {
        struct item *item = &t->item[i];
        const struct lfs_action *a = &item->action;
        size_t first = t->n_jobs;

        if (item->done)
            continue;
        if (a->present) {
            item->done = true;
            advance(t, t->object[i].size);
            tell_done(t, i, false);
            continue;
        }
        if (a->n_parts == 0)
            t->job[t->n_jobs++] = (struct job){.object = i};
        for (size_t k = 0; k < a->n_parts; k++)
            if (!a->tag[k])
                t->job[t->n_jobs++] = (struct job){.object = i, .part = k};
        item->left = t->n_jobs - first;
    }
    qsort_r(t->job, t->n_jobs, sizeof *t->job, larger_first, (void *)(uintptr_t)t->object);
    return 0;
}

/* Objects of which all parts were sent before, but not completed. */
static int finish_parts(struct transfer *t, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < t->n; i++)
        if (!t->item[i].done && t->item[i].left == 0)
            rc = finish(t, i, err);
    return rc;
}

static size_t open_items(struct transfer *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++) {
        if (t->item[i].done)
            continue;
        n++;
        t->item[i].asked = t->item[i].again = false;
    }
    return n;
}

int lfs_send(const struct lfs_server *s, const struct lfs_object *object, size_t n, uint64_t *sent,
             struct ckpt_err *err)
{
    struct transfer t = {.s = s, .object = object, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER,
                         .item = ckpt_alloc(n ? n : 1, sizeof *t.item)};
    int rc = t.item ? 0 : ckpt_nomem(err, n * sizeof *t.item);

    if (rc == 0)
        take_up(&t);
    for (int round = 1; rc == 0; round++) {
        rc = ask_all(&t, err);
        rc = rc ? rc : plan_jobs(&t, err);
        rc = rc ? rc : finish_parts(&t, err);
        rc = rc ? rc : ckpt_pool_run(s->streams, t.n_jobs, do_job, &t, err);
        if (rc || open_items(&t) == 0)
            break;
        if (round == ROUNDS)
            rc = ckpt_fail(err, CKPT_EREFUSED, "%s: refuses the bytes of %zu objects at each of %d "
                           "addresses that it gave; at last %s", s->name, open_items(&t), ROUNDS,
                           t.why);
        else
            ckpt_log(CKPT_LOG_NOTE, "%s: addresses have expired; asking for others", s->name);
    }
    *sent = t.sent;
    pthread_mutex_destroy(&t.lock);
    ckpt_free(t.job);
    ckpt_free(t.item);
    ckpt_arena_release(&t.arena);
    return rc;
}
