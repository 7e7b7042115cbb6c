/* upload - see upload.h. */
#include "tools/push/upload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/journal.h"
#include "tools/progress.h"
#include "tools/push/events.h"

#define STREAMS 4               /* transfers at once, where --jobs is not given */
#define ROUNDS  4               /* times that a file is looked at */

struct item {
    struct upload_file file;
    struct transfer   *of;
    struct stat        seen;    /* of the file when its bytes were first opened; st_size -1: not */
    bool               done;
};

/* One transfer: a whole file, or a part of it. */
struct job {
    struct item *item;
    size_t       part;
};

struct transfer {
    const struct upload *u;
    struct item         *item;
    struct job          *job;
    size_t               n_jobs, cap_jobs;
    struct journal      *journal;
    struct progress     *progress;
    pthread_mutex_t      lock;  /* guards again, done, passed, sent, seen and arena */
    uint64_t             passed, sent;
    size_t               n_shown;       /* files that are visible, of those sent */
    struct ckpt_arena    arena;
};

/* -- digests ---------------------------------------------------------------------------------- */

struct digests {
    struct push_plan *p;
    bool              follow;
    struct progress  *progress;
    pthread_mutex_t   lock;
    uint64_t          done;
};

static int digest(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct digests *d = ctx;
    struct push_file *f = &d->p->file[i];
    int rc = cli_stop ? cli_stopped(err) : push_plan_digest(f->oid, d->p, i, d->follow, false, err);

    (void)worker;
    pthread_mutex_lock(&d->lock);
    d->done += f->size;
    progress_tick(d->progress, d->done, d->p->bytes);
    pthread_mutex_unlock(&d->lock);
    return rc;
}

int upload_digests(struct push_plan *p, const struct cli *cli, bool follow, struct ckpt_err *err)
{
    struct digests d = {.p = p, .follow = follow, .lock = PTHREAD_MUTEX_INITIALIZER,
                        .progress = progress_new(cli, "digests", true)};
    int rc = ckpt_pool_run(ckpt_pool_default(8), p->n, digest, &d, err);

    progress_end(d.progress);
    pthread_mutex_destroy(&d.lock);
    return rc;
}

/* -- the journal ------------------------------------------------------------------------------ */

const char *upload_keep(const struct upload_file *f, const char *text)
{
    struct transfer *t = ((const struct item *)f)->of;
    const char *kept;

    pthread_mutex_lock(&t->lock);
    kept = ckpt_arena_strndup(&t->arena, text, strlen(text));
    pthread_mutex_unlock(&t->lock);
    return kept;
}

/* Space for the answers to the parts of a file of so many bytes. */
static int make_parts(struct upload_file *f, struct transfer *t)
{
    f->n_parts = f->chunk && f->of->size ? (size_t)((f->of->size - 1) / f->chunk + 1) : 1;
    pthread_mutex_lock(&t->lock);
    f->tag = ckpt_arena_alloc(&t->arena, f->n_parts, sizeof *f->tag);
    pthread_mutex_unlock(&t->lock);
    return f->tag ? 0 : CKPT_ENOMEM;
}

/* The session of a file, and its parts, as an earlier process recorded them. */
static void take_up(struct item *item)
{
    struct upload_file *f = &item->file;
    const json_t *record;
    size_t k;

    json_array_foreach ((json_t *)journal_records(item->of->journal), k, record) {
        const char *path = json_string_value(json_object_get(record, "path"));
        const char *oid = json_string_value(json_object_get(record, "oid"));
        const char *session = json_string_value(json_object_get(record, "session"));
        const char *tag = json_string_value(json_object_get(record, "tag"));
        json_int_t part = json_integer_value(json_object_get(record, "part"));
        json_int_t chunk = json_integer_value(json_object_get(record, "chunk"));

        if (!path || !oid || strcmp(path, f->of->to) != 0 || strcmp(oid, f->of->oid) != 0)
            continue;
        if (session && chunk > 0) {
            f->session = upload_keep(f, session);
            f->chunk = (uint64_t)chunk;
            if (!f->session || make_parts(f, item->of))
                f->session = NULL;
        } else if (tag && f->session && part >= 0 && (size_t)part < f->n_parts) {
            f->tag[part] = upload_keep(f, tag);
        }
    }
}

static void record_session(const struct item *item)
{
    const struct upload_file *f = &item->file;

    journal_add(item->of->journal, json_pack("{s:s, s:s, s:s, s:I}", "path", f->of->to, "oid",
                                             f->of->oid, "session", f->session, "chunk",
                                             (json_int_t)f->chunk));
}

/* Whether a file goes on with the session of record k: it has this digest, and no later session. */
static bool goes_on(const struct transfer *t, const json_t *records, size_t k, const char *path)
{
    const char *oid = json_string_value(json_object_get(json_array_get(records, k), "oid"));
    bool planned = false;

    for (size_t i = 0; oid && i < t->u->p->n && !planned; i++)
        planned = strcmp(t->u->p->file[i].to, path) == 0 &&
                  strcmp(t->u->p->file[i].oid, oid) == 0;
    for (size_t i = k + 1; planned && i < json_array_size(records); i++) {
        const json_t *later = json_array_get(records, i);
        const char *other = json_string_value(json_object_get(later, "path"));

        planned = !other || strcmp(other, path) != 0 || !json_object_get(later, "session");
    }
    return planned;
}

/* Give up the uploads that an earlier process began and this one has no use for. */
static void drop_others(const struct transfer *t)
{
    const json_t *records = journal_records(t->journal), *record;
    size_t k;

    json_array_foreach ((json_t *)records, k, record) {
        const char *path = json_string_value(json_object_get(record, "path"));
        const char *session = json_string_value(json_object_get(record, "session"));

        if (t->u->drop && path && session && !goes_on(t, records, k, path))
            t->u->drop(t->u->ctx, path, session);
    }
}

/* -- looking ---------------------------------------------------------------------------------- */

static int look(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct transfer *t = ctx;
    struct item *item = &t->item[i];
    struct upload_file *f = &item->file;
    const char *session;
    uint64_t chunk;
    int rc = http_stopped(err);

    (void)worker;
    if (rc || item->done)
        return rc;
    if (f->again)
        *f = (struct upload_file){.of = f->of};
    else
        take_up(item);
    session = f->session;
    chunk = f->chunk;
    if ((rc = t->u->look(t->u->ctx, f, err)) != 0 || f->skip)
        return rc;
    if ((f->session != session || f->chunk != chunk || !f->tag) && make_parts(f, t))
        return ckpt_nomem(err, f->n_parts * sizeof *f->tag);
    if (f->session && (f->session != session || f->chunk != chunk))
        record_session(item);
    return 0;
}

/* -- bytes ------------------------------------------------------------------------------------ */

/* A body that is digested while it is sent. */
struct sending {
    const struct push_file *of;
    struct ckpt_sha256     *sha;
    uint64_t                at;
};

static int begin_sending(void *ctx, struct ckpt_err *err)
{
    struct sending *x = ctx;
    unsigned char digest[CKPT_SHA256_BYTES];

    x->at = 0;
    return ckpt_sha256_end(x->sha, digest, err);
}

static int changed(const struct push_file *f, struct ckpt_err *err)
{
    return ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was sent", f->from);
}

static int pass(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct sending *x = ctx;
    unsigned char digest[CKPT_SHA256_BYTES];
    char hex[CKPT_SHA256_HEX];
    int rc = ckpt_sha256_add(x->sha, bytes, n, err);

    x->at += n;
    if (rc || x->at < x->of->size || n == 0)
        return rc;
    if ((rc = ckpt_sha256_end(x->sha, digest, err)) != 0)
        return rc;
    ckpt_digest_hex(hex, digest, sizeof digest);
    return strcmp(hex, x->of->oid) == 0 ? 0 : changed(x->of, err);
}

/* Whether the open file is still the one whose bytes were sent before. */
static bool is_same(struct item *item, const struct ckpt_file *file)
{
    struct stat now, *seen = &item->seen;
    uint64_t base;
    int fd = ckpt_file_fd(file, &base);
    bool same;

    if (ckpt_file_size(file) != item->file.of->size)
        return false;
    if (fd < 0 || fstat(fd, &now))
        return true;                    /* a member of an archive: its bytes are digested */
    pthread_mutex_lock(&item->of->lock);
    if (seen->st_size < 0)
        *seen = now;
    same = seen->st_dev == now.st_dev && seen->st_ino == now.st_ino &&
           seen->st_size == now.st_size && seen->st_mtim.tv_sec == now.st_mtim.tv_sec &&
           seen->st_mtim.tv_nsec == now.st_mtim.tv_nsec &&
           seen->st_ctim.tv_sec == now.st_ctim.tv_sec &&
           seen->st_ctim.tv_nsec == now.st_ctim.tv_nsec;
    pthread_mutex_unlock(&item->of->lock);
    return same;
}

/* Send a part of file, or all of it. */
static int send_bytes(struct item *item, size_t part, char tag[FIELD_BYTES], struct ckpt_err *err)
{
    const struct transfer *t = item->of;
    struct upload_file *f = &item->file;
    struct sending x = {.of = f->of};
    struct http_body body = {.type = "application/octet-stream", .at = part * f->chunk,
                             .n = f->of->size - part * f->chunk};
    struct ckpt_file *file = NULL;
    int rc = push_plan_open(&file, t->u->p, (size_t)(f->of - t->u->p->file), t->u->follow, err);

    body.file = file;
    if (f->chunk && body.n > f->chunk)
        body.n = f->chunk;
    if (rc == 0 && !is_same(item, file))
        rc = changed(f->of, err);
    if (rc == 0 && body.n == f->of->size) {
        rc = ckpt_sha256_new(&x.sha, err);
        body.sha256 = f->of->oid;
        body.begin = begin_sending;
        body.pass = pass;
        body.ctx = &x;
    }
    if (rc == 0)
        rc = t->u->send(t->u->ctx, f, part, &body, tag, err);
    if (rc == 0 && !is_same(item, file))
        rc = changed(f->of, err);
    ckpt_sha256_free(x.sha);
    ckpt_file_close(file);
    return rc;
}

static int send_part(struct item *item, size_t part, struct ckpt_err *err)
{
    struct transfer *t = item->of;
    struct upload_file *f = &item->file;
    uint64_t n = f->of->size;
    char tag[FIELD_BYTES] = "";
    int rc = send_bytes(item, part, tag, err);

    if (f->chunk)
        n = n - part * f->chunk < f->chunk ? n - part * f->chunk : f->chunk;
    if (rc)
        return rc;
    if (!(f->tag[part] = upload_keep(f, tag)))
        return ckpt_nomem(err, sizeof tag);
    if (f->session)
        journal_add(t->journal, json_pack("{s:s, s:s, s:I, s:s}", "path", f->of->to, "oid",
                                          f->of->oid, "part", (json_int_t)part, "tag", tag));
    pthread_mutex_lock(&t->lock);
    t->passed += n;
    progress_tick(t->progress, t->passed, t->u->p->bytes);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

/* Take an error that another look may mend. */
static int unless_again(struct transfer *t, const struct upload_file *f, int rc,
                        struct ckpt_err *err)
{
    bool again;

    pthread_mutex_lock(&t->lock);
    again = f->again;
    pthread_mutex_unlock(&t->lock);
    if (rc && again) {
        ckpt_log(CKPT_LOG_DEBUG, "%s", err->text);
        ckpt_err_clear(err);
    }
    return again ? 0 : rc;
}

static int do_job(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct transfer *t = ctx;
    struct item *item = t->job[k].item;
    int rc = http_stopped(err);
    bool again;

    (void)worker;
    pthread_mutex_lock(&t->lock);
    again = item->file.again;
    pthread_mutex_unlock(&t->lock);
    return rc || again ? rc : unless_again(t, &item->file, send_part(item, t->job[k].part, err),
                                           err);
}

/* Make a file visible. */
static int show(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct transfer *t = ctx;
    struct item *item = t->job[k].item;
    struct upload_file *f = &item->file;
    int rc = http_stopped(err);

    (void)worker;
    if (rc == 0 && f->late)
        rc = send_part(item, 0, err);
    if (rc == 0 && t->u->end)
        rc = t->u->end(t->u->ctx, f, err);
    pthread_mutex_lock(&t->lock);
    item->done = rc == 0;
    t->sent += rc == 0 ? f->of->size : 0;
    t->n_shown += rc == 0;
    progress_files(t->progress, t->n_shown, t->u->p->n);
    pthread_mutex_unlock(&t->lock);
    if (rc == 0)
        push_event_file(t->u->cli, f->of, true);
    return unless_again(t, f, rc, err);
}

/* -- rounds ----------------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b)
{
    const struct job *x = a, *y = b;
    uint64_t p = x->item->file.of->size, q = y->item->file.of->size;

    return p != q ? (p < q ? 1 : -1)
           : x->item != y->item ? (x->item > y->item ? 1 : -1)
           : x->part != y->part ? (x->part > y->part ? 1 : -1) : 0;
}

static int add_job(struct transfer *t, struct item *item, size_t part, struct ckpt_err *err)
{
    if (ckpt_reserve(&t->job, t->n_jobs, &t->cap_jobs, sizeof *t->job, err))
        return CKPT_ENOMEM;
    t->job[t->n_jobs++] = (struct job){.item = item, .part = part};
    return 0;
}

/* The transfers of this round: parts that the destination does not have. */
static int plan_bytes(struct transfer *t, struct ckpt_err *err)
{
    int rc = 0;

    t->n_jobs = 0;
    for (size_t i = 0; i < t->u->p->n; i++) {
        struct item *item = &t->item[i];
        struct upload_file *f = &item->file;

        if (!item->done && f->skip) {
            item->done = true;
            t->passed += f->of->size;
            push_event_file(t->u->cli, f->of, false);
        }
        for (size_t k = 0; rc == 0 && !item->done && !f->late && k < f->n_parts; k++)
            if (!f->tag[k])
                rc = add_job(t, item, k, err);
    }
    if (t->n_jobs)
        qsort(t->job, t->n_jobs, sizeof *t->job, larger_first);
    return rc;
}

/* The files that are to be made visible now. */
static int plan_shows(struct transfer *t, bool index, struct ckpt_err *err)
{
    int rc = 0;

    t->n_jobs = 0;
    for (size_t i = 0; rc == 0 && i < t->u->p->n; i++) {
        struct item *item = &t->item[i];

        if (!item->done && !item->file.again && item->file.of->index == index)
            rc = add_job(t, item, 0, err);
    }
    return rc;
}

static size_t open_items(const struct transfer *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->u->p->n; i++)
        n += !t->item[i].done;
    return n;
}

/* Index files become visible when all others are, and one after another. */
static int run_round(struct transfer *t, size_t streams, struct ckpt_err *err)
{
    int rc = ckpt_pool_run(streams, t->u->p->n, look, t, err);

    rc = rc ? rc : plan_bytes(t, err);
    rc = rc ? rc : ckpt_pool_run(streams, t->n_jobs, do_job, t, err);
    rc = rc ? rc : plan_shows(t, false, err);
    rc = rc ? rc : ckpt_pool_run(streams, t->n_jobs, show, t, err);
    for (size_t i = 0; rc == 0 && i < t->u->p->n; i++)
        if (!t->item[i].done && !t->item[i].file.of->index)
            return 0;
    rc = rc ? rc : plan_shows(t, true, err);
    return rc ? rc : ckpt_pool_run(1, t->n_jobs, show, t, err);
}

int upload_run(const struct upload *u, uint64_t *sent, struct ckpt_err *err)
{
    struct transfer t = {.u = u, .lock = PTHREAD_MUTEX_INITIALIZER,
                         .item = ckpt_alloc(u->p->n ? u->p->n : 1, sizeof *t.item)};
    size_t streams = u->cli->jobs > 0 ? (size_t)u->cli->jobs : STREAMS;
    int rc = t.item ? 0 : ckpt_nomem(err, u->p->n * sizeof *t.item);

    for (size_t i = 0; rc == 0 && i < u->p->n; i++)
        t.item[i] = (struct item){.of = &t, .file.of = &u->p->file[i], .seen.st_size = -1};
    t.journal = rc == 0 ? journal_open(u->target) : NULL;
    if (rc == 0)
        drop_others(&t);
    t.progress = progress_new(u->cli, "push", true);
    for (int round = 1; rc == 0; round++) {
        rc = run_round(&t, streams, err);
        if (rc || open_items(&t) == 0)
            break;
        if (round == ROUNDS)
            rc = ckpt_fail(err, CKPT_ESTOPPED, "%s: %zu files were refused %d times", u->target,
                           open_items(&t), ROUNDS);
        else
            ckpt_log(CKPT_LOG_NOTE, "%s: %zu files are sent again", u->target, open_items(&t));
    }
    progress_end(t.progress);
    journal_close(t.journal, rc == 0);
    *sent = t.sent;
    pthread_mutex_destroy(&t.lock);
    ckpt_free(t.job);
    ckpt_free(t.item);
    ckpt_arena_release(&t.arena);
    return rc;
}
