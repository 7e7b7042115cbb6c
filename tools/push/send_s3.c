/*
 * send_s3 - a prefix of a bucket, one object a file; see dest.h.
 *
 * A bucket has no step that shows many objects at once: index files come last, when all that they
 * name is there, and one after another.  What the store has with the same size and SHA-256 (in its
 * metadata) is not sent.  An object is written only if it is still the one, or still absent, that
 * was found when the publishing began, so that two publishers cannot mix their files unnoticed.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/s3/s3.h"
#include "libckpt/remote/s3/s3_write.h"
#include "tools/push/dest.h"
#include "tools/push/there.h"
#include "tools/push/upload.h"

#define STREAMS   4             /* objects read back, or removed, at once */
#define KEY_SPACE (S3_KEY_BYTES + 8)

/* What is known of the object of a file. */
struct place {
    bool asked;                 /* beyond the first list */
    bool written;               /* by this process */
    char tag[FIELD_BYTES];      /* its ETag; "": there is none */
};

struct job {
    struct push_plan       *p;
    const struct send_want *want;
    const char             *address;
    struct s3               s3;
    struct tree            *before;         /* what was there */
    struct place           *place;          /* of each file of the plan */
    const char            **gone;           /* paths to remove */
    size_t                  n_gone, there;  /* there: files that need not be sent, of a dry run */
    bool                    plain;          /* the store knows no conditions */
    pthread_mutex_t         lock;           /* guards plain and there */
};

/* -- before the first byte -------------------------------------------------------------------- */

static int open_place(struct s3 *s, const struct dest *d, struct ckpt_err *err)
{
    const char *key;
    int rc = s3_place_open(s, &key, d->place, err);
    size_t n = rc ? 0 : strlen(key);

    if (rc)
        return rc;
    while (n > 0 && key[n - 1] == '/')
        n--;
    if (n + 1 > S3_KEY_BYTES)
        return ckpt_fail(err, CKPT_ELIMIT, "%.200s: a key of %zu bytes", d->address, n);
    snprintf(s->prefix, sizeof s->prefix, "%.*s%s", (int)n, key, n ? "/" : "");
    if (strstr(s->prefix, "//"))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: a key with an empty part", d->address);
    if (!s->is_signed) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: nothing is published without a key", d->address);
        return ckpt_err_hint(err, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                             "AWS_PROFILE: see ckpt-remote(7)");
    }
    return 0;
}

static int list(struct tree **t, struct s3 *s, const char *address, struct ckpt_err *err)
{
    int rc = tree_new(t, address, err);

    rc = rc ? rc : s3_list(*t, s, s->prefix, err);
    if (rc) {
        tree_free(*t);
        *t = NULL;
    }
    return rc;
}

/* A key that may write can begin an upload.  Nobody sees that one, and it is given up; a key may
 * lack the right to do that. */
static int try_right(struct s3 *s, struct ckpt_err *err)
{
    char id[S3_UPLOAD], key[sizeof s->prefix + 20];
    int rc;

    snprintf(key, sizeof key, "%s.ckpt-push", s->prefix);
    rc = s3_begin(id, s, key, NULL, err);
    if (rc == 0 && s3_give_up(s, key, id, err)) {
        ckpt_log(CKPT_LOG_WARNING, "%s; unfinished uploads will stay in the bucket", err->text);
        ckpt_err_clear(err);
    }
    return rc;
}

int send_s3_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    struct tree *t = NULL;
    struct s3 *s = ckpt_alloc(1, sizeof *s);
    int rc = s ? open_place(s, d, err) : ckpt_nomem(err, sizeof *s);

    if (rc == 0 && http_offline())
        rc = ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: nothing is published offline",
                          d->address);
    if (rc == 0)
        rc = list(&t, s, d->address, err);
    if (rc && w->create && strcmp(err->reason, "no-bucket") == 0) {
        ckpt_err_clear(err);
        rc = w->dry_run ? 0 : s3_make_bucket(s, err);
    }
    if (rc == 0 && !w->dry_run)
        rc = try_right(s, err);
    tree_free(t);
    if (s)
        s3_place_close(s);
    ckpt_free(s);
    return rc;
}

/* -- what is there ---------------------------------------------------------------------------- */

static int key_of(char key[KEY_SPACE], const struct job *j, const char *path, struct ckpt_err *err)
{
    return (size_t)snprintf(key, KEY_SPACE, "%s%s", j->s3.prefix, path) <= S3_KEY_BYTES
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: the key has more than %u bytes", path,
                               S3_KEY_BYTES);
}

static int open_job(struct job *j, const struct dest *d, struct ckpt_err *err)
{
    char key[KEY_SPACE];
    int rc = open_place(&j->s3, d, err);

    for (size_t i = 0; rc == 0 && i < j->p->n; i++)
        rc = key_of(key, j, j->p->file[i].to, err);
    if (rc == 0 && !(j->place = ckpt_alloc(j->p->n, sizeof *j->place)))
        rc = ckpt_nomem(err, j->p->n * sizeof *j->place);
    rc = rc ? rc : list(&j->before, &j->s3, d->address, err);
    if (rc && j->want->create && j->want->dry_run && strcmp(err->reason, "no-bucket") == 0) {
        ckpt_err_clear(err);
        rc = tree_new(&j->before, d->address, err);
    }
    return rc ? rc : there_gone(&j->gone, &j->n_gone, j->before, j->p, &j->want->remove, err);
}

static void close_job(struct job *j)
{
    tree_free(j->before);
    ckpt_free(j->place);
    s3_place_close(&j->s3);
    pthread_mutex_destroy(&j->lock);
}

/* Whether the store has file f. */
static int has(bool *is, struct job *j, const struct push_file *f, struct ckpt_err *err)
{
    struct place *at = &j->place[f - j->p->file];
    struct s3_object o = {0};
    char key[KEY_SPACE];
    int rc = key_of(key, j, f->to, err);

    if (rc == 0 && (at->asked || there_file(j->before, f->to)))
        rc = s3_head(&o, &j->s3, key, err);
    at->asked = true;
    *is = rc == 0 && o.exists && o.size == f->size && strcmp(o.sha256, f->oid) == 0;
    if (rc == 0)                /* "*": any object, where the store tells no ETag */
        snprintf(at->tag, sizeof at->tag, "%s", o.exists && !o.tag[0] ? "*" : o.tag);
    return rc;
}

/* -- parts ------------------------------------------------------------------------------------ */

/* Forget parts that the store does not have as the journal has them. */
static int confirm_parts(struct job *j, struct upload_file *f, const char *key,
                         struct ckpt_err *err)
{
    struct s3_part *part = ckpt_alloc(f->n_parts, sizeof *part);
    int rc = part ? s3_parts(part, f->n_parts, &j->s3, key, f->session, err)
                  : ckpt_nomem(err, f->n_parts * sizeof *part);

    for (size_t k = 0; rc == 0 && k < f->n_parts; k++) {
        uint64_t at = k * f->chunk, n = f->of->size - at < f->chunk ? f->of->size - at : f->chunk;

        if (f->tag[k] && (part[k].size != n || strcmp(part[k].tag, f->tag[k]) != 0))
            f->tag[k] = NULL;
    }
    ckpt_free(part);
    return rc;
}

static int begin_parts(struct job *j, struct upload_file *f, const char *key,
                       struct ckpt_err *err)
{
    char id[S3_UPLOAD];
    int rc = s3_begin(id, &j->s3, key, f->of->oid, err);

    if (rc)
        return rc;
    f->session = upload_keep(f, id);
    f->chunk = s3_part_bytes(f->of->size);
    return f->session ? 0 : ckpt_nomem(err, sizeof id);
}

static int look(void *ctx, struct upload_file *f, struct ckpt_err *err)
{
    struct job *j = ctx;
    char key[KEY_SPACE];
    int rc = has(&f->skip, j, f->of, err);

    rc = rc ? rc : key_of(key, j, f->of->to, err);
    if (rc || f->skip)
        return rc;
    if (f->of->size <= S3_WHOLE_BYTES) {
        f->late = true;
        f->session = NULL;
        f->chunk = 0;
        return 0;
    }
    if (f->session && (rc = confirm_parts(j, f, key, err)) != 0) {
        if (rc != CKPT_ENOTFOUND && rc != CKPT_EPROTOCOL && rc != CKPT_EREFUSED)
            return rc;
        if (rc == CKPT_ENOTFOUND)       /* else none are listed: the journal is believed */
            f->session = NULL;
        ckpt_err_clear(err);
    }
    return f->session ? 0 : begin_parts(j, f, key, err);
}

/* An unfinished upload that no file goes on with. */
static void drop(void *ctx, const char *path, const char *session)
{
    struct job *j = ctx;
    struct ckpt_err ignored = {0};
    char key[KEY_SPACE];

    if (key_of(key, j, path, &ignored) == 0 && s3_give_up(&j->s3, key, session, &ignored) == 0)
        ckpt_log(CKPT_LOG_DEBUG, "%s: an unfinished upload of %s is given up", j->address, path);
}

/* -- bytes ------------------------------------------------------------------------------------ */

/* The condition of a write, or NULL where the store knows none. */
static const char *condition_of(struct job *j, const struct push_file *f)
{
    const char *tag;

    pthread_mutex_lock(&j->lock);
    tag = j->plain ? NULL : j->place[f - j->p->file].tag;
    pthread_mutex_unlock(&j->lock);
    return tag;
}

/* Whether the store has file f by now; one that keeps no metadata is read. */
static int has_now(bool *is, struct job *j, const struct push_file *f, struct ckpt_err *err)
{
    struct ckpt_err differs = {0};
    struct s3_object o;
    char key[KEY_SPACE];
    int rc = has(is, j, f, err);

    rc = rc || *is ? rc : key_of(key, j, f->to, err);
    if (rc || *is || (rc = s3_head(&o, &j->s3, key, err)) != 0)
        return rc;
    if (o.exists && o.size == f->size && !o.sha256[0])
        *is = s3_check(&j->s3, key, f->oid, f->size, &differs) == 0;
    return 0;
}

static int written_by_other(const struct job *j, const struct push_file *f, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_ESTOPPED, "moved", "%s: somebody else has written %s meanwhile",
                 j->address, f->to);
    return ckpt_err_hint(err, "run it again when the other one has ended");
}

/* After an error of a write that shows an object: it may be there all the same, since the answer to
 * an earlier try was lost; or the store knows no conditions, and *again is set. */
static int unless_there(struct job *j, const struct push_file *f, bool conditional, int rc,
                        bool *again, struct ckpt_err *err)
{
    const char *reason = err->reason;
    bool moved = strcmp(reason, "moved") == 0, gone = strcmp(reason, "no-upload") == 0, is;
    struct ckpt_err other = {0};

    *again = false;
    if (rc == CKPT_EUNSUPPORTED && strcmp(reason, "not-implemented") == 0 && conditional) {
        pthread_mutex_lock(&j->lock);
        *again = !j->plain;
        j->plain = true;
        pthread_mutex_unlock(&j->lock);
        if (*again)
            ckpt_log(CKPT_LOG_NOTE, "%s: the store knows no conditional writes: another publisher "
                     "would not be noticed", j->address);
        *again = true;
        ckpt_err_clear(err);
        return 0;
    }
    if (!moved && !gone)
        return rc;
    if (has_now(&is, j, f, &other) == 0 && is) {
        ckpt_err_clear(err);
        return 0;
    }
    return moved ? written_by_other(j, f, err) : rc;
}

static int send_object(void *ctx, struct upload_file *f, size_t part, const struct http_body *body,
                       char tag[FIELD_BYTES], struct ckpt_err *err)
{
    struct job *j = ctx;
    char key[KEY_SPACE];
    const char *condition;
    bool again = true;
    int rc = key_of(key, j, f->of->to, err);

    if (rc == 0 && f->session) {
        rc = s3_send_part(tag, &j->s3, key, f->session, part + 1, body, err);
        f->again = rc && strcmp(err->reason, "no-upload") == 0;
        return rc;
    }
    j->place[f->of - j->p->file].written = true;
    while (rc == 0 && again) {
        again = false;
        condition = condition_of(j, f->of);
        rc = s3_put(&j->s3, key, body, f->of->oid, condition, err);
        rc = rc ? unless_there(j, f->of, condition, rc, &again, err) : 0;
    }
    f->again = rc && strcmp(err->reason, "no-upload") == 0;
    return rc;
}

static int end(void *ctx, struct upload_file *f, struct ckpt_err *err)
{
    struct job *j = ctx;
    char key[KEY_SPACE];
    const char *condition;
    bool again = true;
    int rc = f->session ? key_of(key, j, f->of->to, err) : 0;

    j->place[f->of - j->p->file].written = true;
    while (rc == 0 && f->session && again) {
        again = false;
        condition = condition_of(j, f->of);
        rc = s3_finish(&j->s3, key, f->session, f->tag, f->n_parts, condition, err);
        rc = rc ? unless_there(j, f->of, condition, rc, &again, err) : 0;
    }
    f->again = rc && strcmp(err->reason, "no-upload") == 0;
    return rc;
}

/* -- afterwards ------------------------------------------------------------------------------- */

static int remove_gone(struct job *j, struct ckpt_err *err)
{
    char key[KEY_SPACE];
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->n_gone; i++) {
        rc = key_of(key, j, j->gone[i], err);
        rc = rc ? rc : s3_delete(&j->s3, key, err);
    }
    return rc;
}

/* The store lists all files with their sizes. */
static int confirm(struct job *j, struct ckpt_err *err)
{
    struct tree *after;
    int rc = list(&after, &j->s3, j->address, err);

    rc = rc ? rc : there_confirm(after, j->p, j->address, err);
    tree_free(after);
    return rc;
}

/* What this process wrote is still there: another publisher, who began meanwhile, may have found it
 * and replaced it. */
static int confirm_one(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];
    bool is = true;
    int rc = j->place[i].written ? has_now(&is, j, f, err) : 0;

    (void)worker;
    return rc || is ? rc : written_by_other(j, f, err);
}

static int read_back(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];
    char key[KEY_SPACE];
    int rc = key_of(key, j, f->to, err);

    (void)worker;
    return rc ? rc : s3_check(&j->s3, key, f->oid, f->size, err);
}

static int look_only(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    bool is;
    int rc = has(&is, j, &j->p->file[i], err);

    (void)worker;
    pthread_mutex_lock(&j->lock);
    j->there += is;
    pthread_mutex_unlock(&j->lock);
    return rc;
}

static int publish(struct job *j, const struct cli *cli, uint64_t *sent, struct ckpt_err *err)
{
    char target[2000];
    const struct upload u = {.p = j->p, .cli = cli, .follow = j->want->follow, .target = target,
                             .drop = drop, .look = look, .send = send_object, .end = end,
                             .ctx = j};
    int rc;

    snprintf(target, sizeof target, "%.200s s3://%s/%s", j->s3.endpoint, j->s3.bucket,
             j->s3.prefix);
    rc = upload_run(&u, sent, err);
    rc = rc ? rc : remove_gone(j, err);
    rc = rc ? rc : confirm(j, err);
    rc = rc ? rc : ckpt_pool_run(STREAMS, j->p->n, confirm_one, j, err);
    return rc == 0 && j->want->verify ? ckpt_pool_run(STREAMS, j->p->n, read_back, j, err) : rc;
}

int send_s3(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
            const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job *j = ckpt_alloc(1, sizeof *j);
    uint64_t sent = 0;
    int rc;

    if (!j)
        return ckpt_nomem(err, sizeof *j);
    *j = (struct job){.p = p, .want = w, .address = d->address,
                      .lock = PTHREAD_MUTEX_INITIALIZER};
    rc = open_job(j, d, err);
    rc = rc ? rc : upload_digests(p, cli, w->follow, err);
    if (rc == 0 && w->dry_run) {
        rc = ckpt_pool_run(STREAMS, p->n, look_only, j, err);
        if (rc == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %zu of them are there, %zu are to be removed",
                     d->address, p->n, j->there, j->n_gone);
    } else if (rc == 0) {
        rc = publish(j, cli, &sent, err);
        if (rc == 0)
            ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new; %zu removed",
                     d->address, p->n, (unsigned long long)p->bytes, (unsigned long long)sent,
                     j->n_gone);
    }
    if (rc == 0 && !w->dry_run)
        snprintf(url, url_size, "s3://%s%s%.*s", j->s3.bucket, j->s3.prefix[0] ? "/" : "",
                 (int)strlen(j->s3.prefix) - (j->s3.prefix[0] != '\0'), j->s3.prefix);
    close_job(j);
    ckpt_free(j);
    return rc;
}
