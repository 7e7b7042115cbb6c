/*
 * send_dav - a folder of a WebDAV server; see dest.h.
 *
 * Each file is sent under a name of its own and moved to its name when the bytes of all are there,
 * index files last.  WebDAV knows no digests: .ckpt-push.json in the folder has the SHA-256 of each
 * file that was published, with the ETag and the time that the server then gave it, and a file that
 * still has all of them is not sent again.  It is hidden, so that readers pass over it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/dav/dav_write.h"
#include "tools/push/dest.h"
#include "tools/push/there.h"
#include "tools/push/upload.h"

#define STREAMS    4                    /* files read back at once */
#define OWN_PREFIX ".ckpt-push"         /* of names that are not published files */
#define SUMS       OWN_PREFIX ".json"
#define SUMS_BYTES ((size_t)1 << 20)    /* of that file: some 5,000 files */

/* What the server lists: files, and an object {path: [ETag, time]}. */
struct listing {
    struct tree *tree;
    json_t      *marks;
    bool         has_sums;
};

struct job {
    struct push_plan       *p;
    const struct send_want *want;
    const char             *address;
    struct dav              dav;
    struct listing          before;
    json_t                 *sums;       /* {path: {size, sha256, etag, modified}}, as they were */
    const char            **gone;       /* paths to remove */
    size_t                  n_gone;
    uint64_t                free;       /* bytes, or FIELD_NONE */
};

/* -- what is there ---------------------------------------------------------------------------- */

static int list_entry(void *ctx, const struct dav_entry *e, struct ckpt_err *err)
{
    struct listing *l = ctx;
    const char *slash = strrchr(e->path, '/'), *name = slash ? slash + 1 : e->path;

    if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0) {
        l->has_sums = l->has_sums || strcmp(e->path, SUMS) == 0;
        return 0;
    }
    if (e->is_folder)
        return 0;
    if (json_object_set_new(l->marks, e->path, json_pack("[s, s]", e->tag, e->modified)))
        return ckpt_nomem(err, strlen(e->path));
    return tree_add(l->tree, e->path, e->size, "", err);
}

static void free_listing(struct listing *l)
{
    tree_free(l->tree);
    json_decref(l->marks);
    *l = (struct listing){0};
}

static int list(struct listing *l, const struct dav *d, bool exists, struct ckpt_err *err)
{
    int rc = tree_new(&l->tree, d->name, err);

    l->marks = json_object();
    if (rc == 0 && !l->marks)
        rc = ckpt_nomem(err, 64);
    if (rc == 0 && exists)
        rc = dav_list(d, "", list_entry, l, err);
    rc = rc ? rc : tree_ready(l->tree, err);
    if (rc)
        free_listing(l);
    return rc;
}

static const char *mark_of(const struct listing *l, const char *path, size_t which)
{
    const char *mark = json_string_value(json_array_get(json_object_get(l->marks, path), which));

    return mark ? mark : "";
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

/* Whether a file that is listed is still the one that was published with this digest. */
static bool has_sum(const struct listing *l, const json_t *sums, const char *path, const char *oid)
{
    const json_t *sum = json_object_get(sums, path);
    const struct tree_file *there = there_file(l->tree, path);
    const char *tag = mark_of(l, path, 0), *modified = mark_of(l, path, 1);

    return sum && there && (*tag || *modified) &&
           (uint64_t)json_integer_value(json_object_get(sum, "size")) == there->size &&
           (!oid || strcmp(text_of(sum, "sha256"), oid) == 0) &&
           strcmp(text_of(sum, "etag"), tag) == 0 &&
           strcmp(text_of(sum, "modified"), modified) == 0;
}

/* A file of sums that cannot be read means that nothing is known. */
static int read_sums(struct job *j, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    json_t *all = NULL;
    char *text = NULL;
    size_t n = 0;
    int rc = j->before.has_sums ? dav_read(&text, &n, &j->dav, SUMS, err) : 0;

    if (rc == 0 && text && ckpt_json_parse(&all, text, n, CKPT_JSON_STRICT, &ignored) == 0)
        j->sums = json_incref(json_object_get(all, "files"));
    if (!json_is_object(j->sums)) {
        json_decref(j->sums);
        j->sums = json_object();
    }
    json_decref(all);
    ckpt_free(text);
    return rc ? rc : j->sums ? 0 : ckpt_nomem(err, 64);
}

static int write_sums(struct job *j, const struct listing *after, struct ckpt_err *err)
{
    json_t *files = json_object(), *all, *sum;
    struct http_body body = {.type = "application/json"};
    char aside[DAV_PATH];
    struct ckpt_buf b;
    const char *path;
    int rc = dav_aside(aside, SUMS, "0000000000000000", err);

    json_object_foreach (j->sums, path, sum)
        if (has_sum(after, j->sums, path, NULL))
            json_object_set(files, path, sum);
    for (size_t i = 0; i < j->p->n; i++) {
        const struct push_file *f = &j->p->file[i];

        json_object_set_new(files, f->to, json_pack("{s:I, s:s, s:s, s:s}", "size",
                                                    (json_int_t)f->size, "sha256", f->oid, "etag",
                                                    mark_of(after, f->to, 0), "modified",
                                                    mark_of(after, f->to, 1)));
    }
    ckpt_buf_init(&b, SUMS_BYTES);
    all = json_pack("{s:s, s:o}", "by", "ckpt-push", "files", files);
    if (rc == 0 && !json_equal(files, j->sums)) {
        rc = all ? ckpt_json_write(&b, all, 0, true, err) : ckpt_nomem(err, SUMS_BYTES);
        if (rc == 0 && !ckpt_buf_ok(&b))
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: of more than %zu bytes is not kept", SUMS,
                           SUMS_BYTES);
        body.bytes = b.data;
        body.n = b.len;
        rc = rc ? rc : dav_put(&j->dav, aside, &body, err);
        rc = rc ? rc : dav_move(&j->dav, aside, SUMS, true, err);
    }
    json_decref(all);
    ckpt_buf_release(&b);
    return rc;
}

/* -- before the first byte -------------------------------------------------------------------- */

/* Look at the folder, or make it. */
static int find_base(bool *exists, uint64_t *free_bytes, const struct dav *d,
                     const struct send_want *w, struct ckpt_err *err)
{
    struct dav_entry *e = ckpt_alloc(1, sizeof *e);
    int rc = e ? dav_look(e, d, "", err) : ckpt_nomem(err, sizeof *e);

    *exists = rc == 0;
    *free_bytes = rc == 0 ? e->free : FIELD_NONE;
    if (rc == 0 && !e->is_folder)
        rc = ckpt_fail(err, CKPT_ECREATE, "%s: is no folder", d->name);
    ckpt_free(e);
    if (rc != CKPT_ENOTFOUND)
        return rc;
    if (!w->create)
        return ckpt_err_hint(err, "--create makes the folder");
    ckpt_err_clear(err);
    if (w->dry_run)
        return 0;
    rc = dav_make_base(d, err);
    *exists = rc == 0;
    return rc;
}

/* A login that may write can put an empty file, and remove it. */
static int try_right(const struct dav *d, struct ckpt_err *err)
{
    const struct http_body nothing = {.bytes = ""};
    int rc = dav_put(d, OWN_PREFIX "-right", &nothing, err);

    return rc ? rc : dav_delete(d, OWN_PREFIX "-right", err);
}

int send_dav_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    struct dav *dav = ckpt_alloc(1, sizeof *dav);
    uint64_t free_bytes;
    bool exists;
    int rc = dav ? dav_open_place(dav, d->address, err) : ckpt_nomem(err, sizeof *dav);

    if (rc == 0 && http_offline())
        rc = ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: nothing is published offline",
                          d->address);
    rc = rc ? rc : find_base(&exists, &free_bytes, dav, w, err);
    if (rc == 0 && !w->dry_run)
        rc = try_right(dav, err);
    if (dav)
        dav_close_place(dav);
    ckpt_free(dav);
    return rc;
}

static int open_job(struct job *j, struct ckpt_err *err)
{
    char aside[DAV_PATH];
    bool exists;
    int rc = dav_open_place(&j->dav, j->address, err);

    for (size_t i = 0; rc == 0 && i < j->p->n; i++)
        rc = dav_aside(aside, j->p->file[i].to, j->p->file[i].oid, err);
    rc = rc ? rc : find_base(&exists, &j->free, &j->dav, j->want, err);
    rc = rc ? rc : list(&j->before, &j->dav, exists, err);
    rc = rc ? rc : read_sums(j, err);
    return rc ? rc : there_gone(&j->gone, &j->n_gone, j->before.tree, j->p, &j->want->remove, err);
}

static void close_job(struct job *j)
{
    free_listing(&j->before);
    json_decref(j->sums);
    dav_close_place(&j->dav);
}

static bool has(const struct job *j, const struct push_file *f)
{
    return has_sum(&j->before, j->sums, f->to, f->oid);
}

/* The folders of the plan, where the list shows nothing in them. */
static int make_folders(const struct job *j, struct ckpt_err *err)
{
    char folder[DAV_PATH], made[DAV_PATH] = "";
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->p->n; i++) {
        const char *path = j->p->file[i].to, *slash = strrchr(path, '/');

        if (!slash || there_file(j->before.tree, path))
            continue;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
        if (strcmp(folder, made) != 0)
            rc = dav_make_folder(&j->dav, folder, err);
        memcpy(made, folder, sizeof made);
    }
    return rc;
}

static int check_space(const struct job *j, struct ckpt_err *err)
{
    uint64_t wanted = 0;

    for (size_t i = 0; i < j->p->n; i++)
        wanted += has(j, &j->p->file[i]) ? 0 : j->p->file[i].size;
    return j->free == FIELD_NONE || wanted <= j->free
               ? 0 : ckpt_fail_as(err, CKPT_EIO, "no-space", "%s: %.1f MB are to be written, %.1f "
                                  "MB are free", j->address, (double)wanted / 1e6,
                                  (double)j->free / 1e6);
}

/* -- bytes ------------------------------------------------------------------------------------ */

/* Whether an earlier process sent the file: *sent, under its aside name; *shown, it was moved. */
static int find_sent(bool *sent, bool *shown, const struct job *j, const struct upload_file *f,
                     const char *aside, struct ckpt_err *err)
{
    const struct tree_file *there = there_file(j->before.tree, f->of->to);
    struct dav_file a;
    int rc = dav_head(&a, &j->dav, aside, err);

    *sent = rc == 0 && a.exists && a.size == f->of->size &&
            (!a.tag[0] || strcmp(f->tag[0], "-") == 0 || strcmp(f->tag[0], a.tag) == 0);
    *shown = false;
    if (rc || a.exists || !there || there->size != f->of->size)
        return rc;
    return dav_check(shown, &j->dav, f->of->to, f->of->oid, f->of->size, err);
}

static int look(void *ctx, struct upload_file *f, struct ckpt_err *err)
{
    struct job *j = ctx;
    uint64_t chunk = f->of->size ? f->of->size : 1;
    char aside[DAV_PATH];
    bool sent;
    int rc = 0;

    f->skip = has(j, f->of);
    if (f->skip)
        return 0;
    if ((rc = dav_aside(aside, f->of->to, f->of->oid, err)) != 0)
        return rc;
    if (f->session && strcmp(f->session, aside) == 0 && f->chunk == chunk) {
        if (f->tag[0] && (rc = find_sent(&sent, &f->skip, j, f, aside, err)) != 0)
            return rc;
        if (f->tag[0] && !sent)
            f->tag[0] = NULL;
        return 0;
    }
    f->session = upload_keep(f, aside);
    f->chunk = chunk;
    return f->session ? 0 : ckpt_nomem(err, sizeof aside);
}

static void drop(void *ctx, const char *path, const char *session)
{
    struct job *j = ctx;
    struct ckpt_err ignored = {0};
    const char *slash = strrchr(session, '/'), *name = slash ? slash + 1 : session;

    (void)path;
    if (strncmp(name, OWN_PREFIX "-", strlen(OWN_PREFIX "-")) == 0 &&
        dav_delete(&j->dav, session, &ignored) == 0)
        ckpt_log(CKPT_LOG_DEBUG, "%s: %s is removed", j->address, session);
}

static int send_file(void *ctx, struct upload_file *f, size_t part, const struct http_body *body,
                     char tag[FIELD_BYTES], struct ckpt_err *err)
{
    struct job *j = ctx;
    struct dav_file a;
    int rc = dav_put(&j->dav, f->session, body, err);

    (void)part;
    rc = rc ? rc : dav_head(&a, &j->dav, f->session, err);
    if (rc == 0 && (!a.exists || (a.size != f->of->size && a.size != FIELD_NONE)))
        rc = ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: the server does not have %s as "
                          "it was sent", j->address, f->of->to);
    if (rc == 0)
        snprintf(tag, FIELD_BYTES, "%s", a.tag[0] ? a.tag : "-");
    return rc;
}

static int moved(const struct job *j, const struct push_file *f, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_ESTOPPED, "moved", "%s: somebody else has written %s meanwhile",
                 j->address, f->to);
    return ckpt_err_hint(err, "run it again when the other one has ended");
}

/* The file that is to be replaced is still the one that was listed. */
static int check_old(const struct job *j, const struct push_file *f, struct ckpt_err *err)
{
    struct dav_entry *e = ckpt_alloc(1, sizeof *e);
    int rc = e ? dav_look(e, &j->dav, f->to, err) : ckpt_nomem(err, sizeof *e);

    if (rc == CKPT_ENOTFOUND) {
        ckpt_err_clear(err);
        rc = 0;
    } else if (rc == 0 && (strcmp(e->tag, mark_of(&j->before, f->to, 0)) != 0 ||
                           strcmp(e->modified, mark_of(&j->before, f->to, 1)) != 0)) {
        rc = moved(j, f, err);
    }
    ckpt_free(e);
    return rc;
}

/* After an error of the move: the answer to an earlier try may have been lost. */
static int unless_there(struct job *j, struct upload_file *f, int rc, struct ckpt_err *err)
{
    struct ckpt_err other = {0};
    struct dav_file aside;
    bool is;

    if (rc != CKPT_ENOTFOUND && strcmp(err->reason, "moved") != 0)
        return rc;
    if (dav_head(&aside, &j->dav, f->session, &other))
        return rc;
    if (!aside.exists) {
        if (dav_check(&is, &j->dav, f->of->to, f->of->oid, f->of->size, &other) == 0 && is) {
            ckpt_err_clear(err);
            return 0;
        }
        f->again = true;
        return rc;
    }
    return rc == CKPT_ENOTFOUND ? rc : moved(j, f->of, err);
}

static int end(void *ctx, struct upload_file *f, struct ckpt_err *err)
{
    struct job *j = ctx;
    bool listed = there_file(j->before.tree, f->of->to) != NULL;
    int rc = listed ? check_old(j, f->of, err) : 0;

    if (rc)
        return rc;
    rc = dav_move(&j->dav, f->session, f->of->to, listed, err);
    return rc ? unless_there(j, f, rc, err) : 0;
}

/* -- afterwards ------------------------------------------------------------------------------- */

static int read_back(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    const struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];
    bool is;
    int rc = dav_check(&is, &j->dav, f->to, f->oid, f->size, err);

    (void)worker;
    return rc || is ? rc
           : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: %s is not what was sent",
                          j->address, f->to);
}

static int publish(struct job *j, const struct cli *cli, uint64_t *sent, struct ckpt_err *err)
{
    const struct upload u = {.p = j->p, .cli = cli, .follow = j->want->follow,
                             .target = j->dav.base, .drop = drop, .look = look, .send = send_file,
                             .end = end, .ctx = j};
    struct listing after = {0};
    struct ckpt_err other = {0};
    int rc = check_space(j, err);

    rc = rc ? rc : make_folders(j, err);
    rc = rc ? rc : upload_run(&u, sent, err);
    for (size_t i = 0; rc == 0 && i < j->n_gone; i++)
        rc = dav_delete(&j->dav, j->gone[i], err);
    rc = rc ? rc : list(&after, &j->dav, true, err);
    rc = rc ? rc : there_confirm(after.tree, j->p, j->address, err);
    if (rc == 0 && j->want->verify)
        rc = ckpt_pool_run(STREAMS, j->p->n, read_back, j, err);
    if (rc == 0 && write_sums(j, &after, &other))
        ckpt_log(CKPT_LOG_WARNING, "%s: digests are not kept, and the next run sends all again",
                 other.text);
    free_listing(&after);
    return rc;
}

int send_dav(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job *j = ckpt_alloc(1, sizeof *j);
    uint64_t sent = 0;
    size_t there = 0;
    int rc = j ? upload_digests(p, cli, w->follow, err) : ckpt_nomem(err, sizeof *j);

    if (j)
        *j = (struct job){.p = p, .want = w, .address = d->address, .free = FIELD_NONE};
    rc = rc ? rc : open_job(j, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++)
        there += has(j, &p->file[i]);
    if (rc == 0 && w->dry_run)
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %zu of them are there, %zu are to be removed",
                 d->address, p->n, there, j->n_gone);
    rc = rc || !w->dry_run ? rc : check_space(j, err);
    if (rc == 0 && !w->dry_run)
        rc = publish(j, cli, &sent, err);
    if (rc == 0 && !w->dry_run) {
        snprintf(url, url_size, "%s", j->dav.name);
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new; %zu removed",
                 d->address, p->n, (unsigned long long)p->bytes, (unsigned long long)sent,
                 j->n_gone);
    }
    if (j)
        close_job(j);
    ckpt_free(j);
    return rc;
}
