/*
 * send_hub - one commit in a repository of the Hugging Face Hub; see dest.h.
 *
 * All objects are sent first, then one commit on the revision's head makes them visible, or none
 * does.  A commit whose answer is lost is looked for at the head before it is sent again; one that
 * came second is made again on the new head, if that left our paths alone.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/git/git.h"
#include "libckpt/base/pool.h"
#include "libckpt/remote/hub_check.h"
#include "tools/push/dest.h"
#include "tools/push/hub_lines.h"
#include "tools/push/objects.h"
#include "tools/push/plan_file.h"

#define TRIES       5           /* of a commit on a head that moves */
#define STREAMS     4           /* files read back at once */
#define LOST_POLLS  20          /* looks at the head for a lost commit, a few soon, the others with
                                   waits of a quarter of http_patience: some 90 s */

struct job {
    struct push_plan       *p;
    struct hub_plan         plan;
    const struct send_want *want;
    const struct cli       *cli;
    struct hub_repo         repo;
    struct hub_place        place;
    char                    revision[256];
    char                    parent[41], id[41];
    char                    mark[33];
    struct opt_list         gone;
    uint64_t                sent;
    bool                    changed;
    bool                    absent;     /* the repository is not there yet; or was not, and is
                                           created by this command */
};

static const char *summary(const struct job *j, char *text, size_t size)
{
    const char *source = j->p->source, *slash = strrchr(source, '/');

    snprintf(text, size, "Upload %s with ckpt-push", slash && slash[1] ? slash + 1 : source);
    return j->want->message ? j->want->message : text;
}

/* -- before the first byte -------------------------------------------------------------------- */

static int parse(struct hub_place *place, const struct dest *d, const struct send_want *w,
                 struct ckpt_err *err)
{
    int rc = hub_parse(place, d->place, err);

    if (rc == 0 && place->path[0]) {
        ckpt_fail(err, CKPT_EUSAGE, "%s: names a path in the repository", d->address);
        return ckpt_err_hint(err, "--path-in-repo %s publishes below it", place->path);
    }
    if (rc == 0 && w->branch && strchr(d->place, '@'))
        return ckpt_fail(err, CKPT_EUSAGE, "%s: names a revision, and --branch another",
                         d->address);
    if (rc == 0 && w->author)
        return ckpt_fail(err, CKPT_EUSAGE, "--author: commits on the Hub are the token owner's");
    return rc;
}

/* The repository is there, and the token may write to it; with create it is created. */
static int need_repo(const struct hub_repo *r, const struct send_want *w, bool create, bool *absent,
                     struct ckpt_err *err)
{
    bool exists;
    int rc = hub_may_write(&exists, r, err);

    *absent = rc == 0 && !exists;
    if (rc || exists)
        return rc;
    if (!w->create) {
        ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such repository, or no right to see it", r->name);
        return ckpt_err_hint(err, "--create creates it");
    }
    return create ? hub_create(r, w->is_private, err) : 0;
}

int send_hub_check(const struct dest *d, const struct send_want *w, struct ckpt_err *err)
{
    struct hub_place place;
    struct hub_repo repo;
    bool absent;
    int rc = parse(&place, d, w, err);

    if (rc)
        return rc;
    if (http_offline())
        return ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: nothing is published offline",
                            d->address);
    rc = hub_repo_open(&repo, &place, err);
    rc = rc ? rc : need_repo(&repo, w, false, &absent, err);
    hub_repo_close(&repo);
    return rc;
}

/* The head to commit on; a branch that is absent begins where main is, in a dry run too. */
static int find_parent(struct job *j, const char **ask, struct ckpt_err *err)
{
    char from[41];
    int rc = hub_head(j->parent, &j->repo, j->revision, err);

    *ask = j->revision;
    if (rc != CKPT_ENOTFOUND)
        return rc;
    ckpt_err_clear(err);
    if (j->want->dry_run) {
        *ask = "main";
        return hub_head(j->parent, &j->repo, "main", err);
    }
    if ((rc = hub_head(from, &j->repo, "main", err)) != 0 ||
        (rc = hub_branch(&j->repo, j->revision, from, err)) != 0)
        return rc;
    return hub_head(j->parent, &j->repo, j->revision, err);
}

static bool in_plan(const struct push_plan *p, const char *path)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->file[i].to, path) == 0)
            return true;
    return false;
}

/* Published files that match a --delete glob and are not sent now. */
static int find_gone(struct job *j, const struct tree *t, struct ckpt_err *err)
{
    char **gone = ckpt_arena_alloc(&j->plan.arena, t->n + 1, sizeof *gone);

    if (!gone)
        return ckpt_nomem(err, t->n * sizeof *gone);
    j->gone = (struct opt_list){.item = (const char *const *)gone};
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < j->want->remove.n; k++) {
            const char *path = t->file[i].path;

            if (fnmatch(j->want->remove.item[k], path, 0) != 0 || in_plan(j->p, path))
                continue;
            gone[j->gone.n] = ckpt_arena_strndup(&j->plan.arena, path, strlen(path));
            if (!gone[j->gone.n++])
                return ckpt_nomem(err, strlen(path));
            break;
        }
    return 0;
}

/* -- the objects ------------------------------------------------------------------------------ */

static int send_objects(struct job *j, struct ckpt_err *err)
{
    bool model = strcmp(j->repo.kind, "models") == 0;
    char url[HTTP_URL], target[HTTP_URL + 300];
    struct push_objects to = {.url = url, .name = j->repo.name, .target = target, .cli = j->cli,
                              .auth = hub_auth_of(&j->repo.auth), .follow = j->want->follow};
    uint64_t sent = 0;
    int rc;

    for (size_t i = 0; i < j->p->n; i++)
        snprintf(j->p->file[i].oid, sizeof j->p->file[i].oid, "%s",
                 j->plan.item[i].how == HUB_SEND ? j->plan.item[i].oid : "");
    snprintf(url, sizeof url, "%s/%s%s%s.git/info/lfs", j->repo.auth.endpoint,
             model ? "" : j->repo.kind, model ? "" : "/", j->repo.id);
    if (strncmp(j->revision, "refs/", 5) != 0)
        to.ref = j->revision;
    snprintf(target, sizeof target, "%s %s", url, j->revision);
    rc = push_objects_send(&to, j->p, &sent, err);
    j->sent += sent;
    return rc;
}

/* -- the commit ------------------------------------------------------------------------------- */

/* Whether a commit has all that is planned; *differs gets a path that it has not, or NULL. */
static int look(struct job *j, const char *commit, const char **differs, struct ckpt_err *err)
{
    struct tree *t = NULL;
    int rc = hub_files(&t, &j->repo, commit, err);

    *differs = NULL;
    if (rc == 0)
        *differs = hub_plan_differs(&j->plan, t);
    for (size_t k = 0; rc == 0 && !*differs && k < j->gone.n; k++)
        if (tree_kind(t, j->gone.item[k]) != 0)
            *differs = j->gone.item[k];
    tree_free(t);
    return rc;
}

/* The answer to a commit was lost.  *landed: the head is that commit, j->id.  *moved: the head is
 * another's. */
static int look_for_lost(struct job *j, bool *landed, bool *moved, struct ckpt_err *err)
{
    char head[41];
    const char *differs;
    int rc = 0;

    *landed = *moved = false;
    ckpt_log(CKPT_LOG_WARNING, "%s: no answer to the commit; looking whether it is there",
             j->repo.name);
    for (int k = 0; rc == 0 && k < LOST_POLLS && !*landed && !*moved; k++) {
        long ms = k < 4 ? 250 : 250 * http_patience(j->repo.http);

        if (cli_stop)
            return cli_stopped(err);
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
        rc = hub_head(head, &j->repo, j->revision, err);
        if (rc || strcmp(head, j->parent) == 0)
            continue;
        rc = look(j, head, &differs, err);
        *landed = rc == 0 && !differs;
        *moved = !*landed;
        memcpy(j->id, head, sizeof head);
    }
    return rc;
}

/* Somebody else's commit came first: whether it left all planned paths alone. */
static int check_conflict(struct job *j, struct ckpt_err *err)
{
    struct tree *before = NULL, *now = NULL;
    char head[41];
    int rc = hub_head(head, &j->repo, j->revision, err);

    rc = rc ? rc : hub_files(&before, &j->repo, j->parent, err);
    rc = rc ? rc : hub_files(&now, &j->repo, head, err);
    for (size_t i = 0; rc == 0 && i < j->p->n; i++)
        if (!tree_same(before, now, j->p->file[i].to))
            rc = ckpt_fail_as(err, CKPT_ESTOPPED, "conflict", "%s: another commit changed %s while "
                              "this was published", j->repo.name, j->p->file[i].to);
    tree_free(before);
    tree_free(now);
    if (rc == 0)
        ckpt_log(CKPT_LOG_NOTE, "%s: another commit came first; committing on top of it",
                 j->repo.name);
    return rc;
}

/* Commit the lines, until it is known whether they landed.  *again: the head has moved. */
static int commit_lines(struct job *j, const struct hub_lines *lines, bool *again,
                        struct ckpt_err *err)
{
    struct http_body body = hub_lines_body(lines);
    long tries = http_tries(j->repo.http);
    bool landed = false;
    int rc = 0;

    *again = false;
    for (int k = 0; k < tries && !landed; k++) {
        rc = hub_commit(j->id, &j->repo, j->revision, &body, err);
        if (rc == CKPT_ESTOPPED && strcmp(err->reason, "moved") == 0) {
            const char *differs;

            ckpt_err_clear(err);        /* it may be ours, sent before and landed since */
            rc = hub_head(j->id, &j->repo, j->revision, err);
            rc = rc ? rc : look(j, j->id, &differs, err);
            *again = rc == 0 && differs;
            return *again ? check_conflict(j, err) : rc;
        }
        if (rc == CKPT_ESTOPPED && strcmp(err->reason, "busy") == 0 && k + 1 < tries) {
            int seconds = 1 << (k < 5 ? k : 5);

            ckpt_log(CKPT_LOG_NOTE, "%s; trying again in %d s", err->text, seconds);
            ckpt_err_clear(err);
            nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
            continue;
        }
        if (rc != CKPT_ESTOPPED || strcmp(err->reason, "unanswered") != 0)
            return rc;
        ckpt_err_clear(err);
        if ((rc = look_for_lost(j, &landed, again, err)) != 0 || landed)
            return rc;
        if (*again)
            return check_conflict(j, err);
    }
    return ckpt_fail_as(err, CKPT_ESTOPPED, "unanswered", "%s: no answer to %ld commits, and none "
                        "of them is there", j->repo.name, tries);
}

/* Whether somebody looks at the plan: what is there is listed for that, and nothing else. */
static bool shown(const struct job *j) { return j->want->dry_run || j->want->plan; }

/* Tell the plan what was found, and whether that is what is to be carried out. */
static int settle(struct job *j, const struct tree *t, struct ckpt_err *err)
{
    int rc;

    push_plan_forget(j->p);
    rc = hub_plan_settle(&j->plan, t, shown(j), err);
    for (size_t k = 0; rc == 0 && k < j->gone.n; k++)
        rc = push_plan_remove(j->p, j->gone.item[k], err);
    j->p->head = j->absent ? "" : ckpt_arena_strndup(&j->p->arena, j->parent, 40);
    if (rc == 0 && !j->p->head)
        rc = ckpt_nomem(err, 41);
    return rc ? rc : plan_file_agrees(j->want->plan, j->p, err);
}

/* A dry run that would create the repository: names decide how files go, all are new. */
static int settle_absent(struct job *j, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < j->p->n; i++) {
        j->p->file[i].lfs = j->p->file[i].large;
        rc = push_plan_digest(j->plan.item[i].oid, j->p, i, j->want->follow, !j->p->file[i].lfs,
                              err);
    }
    return rc ? rc : settle(j, NULL, err);
}

/* One attempt on the head of now.  *again: another commit came first. */
static int publish_once(struct job *j, bool *again, struct ckpt_err *err)
{
    struct tree *t = NULL;
    struct hub_lines lines = {.fd = -1};
    const char *ask = j->revision;
    char text[512], target[600];
    bool sends = false;
    int rc = find_parent(j, &ask, err);

    *again = false;
    rc = rc ? rc : hub_plan_ask(&j->plan, &j->repo, ask, err);
    if (rc == 0 && (shown(j) || j->want->remove.n > 0))
        rc = hub_files(&t, &j->repo, j->parent, err);
    if (rc == 0 && j->want->remove.n > 0)
        rc = find_gone(j, t, err);
    rc = rc ? rc : settle(j, t, err);
    tree_free(t);
    snprintf(target, sizeof target, "%s %s", j->repo.name, j->revision);
    rc = rc ? rc : hub_plan_mark(j->mark, &j->plan, target, err);
    for (size_t i = 0; i < j->p->n; i++)
        sends = sends || j->plan.item[i].how == HUB_SEND;
    j->changed = sends || j->gone.n > 0;
    if (rc || j->want->dry_run || !j->changed)
        goto out;
    rc = send_objects(j, err);
    rc = rc ? rc : hub_lines_make(&lines, &j->plan, summary(j, text, sizeof text), j->mark,
                                  j->parent, &j->gone, err);
    rc = rc ? rc : commit_lines(j, &lines, again, err);
out:
    if (rc == 0 && !j->changed)
        memcpy(j->id, j->parent, sizeof j->id);
    hub_lines_release(&lines);
    return rc;
}

/* The commit that the Hub names must have all that was planned. */
static int confirm(struct job *j, struct ckpt_err *err)
{
    const char *differs;
    int rc = look(j, j->id, &differs, err);

    return rc || !differs ? rc
           : ckpt_fail_as(err, CKPT_EPROTOCOL, "unconfirmed", "%s: commit %s does not have %s as "
                          "it was sent", j->repo.name, j->id, differs);
}

static int read_back(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    const struct push_file *f = &j->p->file[i];

    (void)worker;
    if (j->plan.item[i].how == HUB_IGNORED || !j->plan.item[i].oid[0])
        return 0;
    return hub_check(&j->repo, j->id, f->to, f->size, f->lfs, j->plan.item[i].oid, err);
}

static int open_pull_request(struct job *j, struct ckpt_err *err)
{
    char text[512];

    return hub_pull_request(j->revision, &j->repo, summary(j, text, sizeof text),
                            "Uploaded by ckpt-push.", err);
}

static int publish(struct job *j, struct ckpt_err *err)
{
    const struct send_want *w = j->want;
    bool again = true;
    int rc = need_repo(&j->repo, w, !w->dry_run, &j->absent, err);

    if (rc == 0 && w->create_pr && !w->dry_run)
        rc = open_pull_request(j, err);
    if (rc == 0 && w->dry_run && j->absent)
        return settle_absent(j, err);
    for (int k = 0; rc == 0 && again; k++) {
        if (k == TRIES)
            rc = ckpt_fail(err, CKPT_ESTOPPED, "%s: %d times another commit came first",
                           j->repo.name, TRIES);
        else
            rc = publish_once(j, &again, err);
    }
    if (rc || w->dry_run)
        return rc;
    if (j->changed)
        rc = confirm(j, err);
    if (rc == 0 && w->verify)
        rc = ckpt_pool_run(STREAMS, j->p->n, read_back, j, err);
    return rc == 0 && w->tag ? hub_tag(&j->repo, w->tag, j->id, err) : rc;
}

int send_hub(char *url, size_t url_size, const struct dest *d, struct push_plan *p,
             const struct send_want *w, const struct cli *cli, struct ckpt_err *err)
{
    struct job j = {.p = p, .want = w, .cli = cli};
    int rc = parse(&j.place, d, w, err);

    for (size_t i = 0; rc == 0 && i < p->n; i++)
        rc = ckpt_git_check_path(p->file[i].to, err);
    snprintf(j.revision, sizeof j.revision, "%s", w->branch ? w->branch : j.place.revision);
    rc = rc ? rc : hub_plan_new(&j.plan, p, w->follow, err);
    rc = rc ? rc : hub_repo_open(&j.repo, &j.place, err);
    rc = rc ? rc : publish(&j, err);
    if (rc == 0 && !w->dry_run) {
        snprintf(url, url_size, "%s@%s", j.repo.name, j.id);
        ckpt_log(CKPT_LOG_NOTE, "%s: %zu files, %llu bytes, %llu of them new LFS objects%s%s",
                 j.repo.name, p->n, (unsigned long long)p->bytes, (unsigned long long)j.sent,
                 j.changed ? "" : "; nothing changed", w->create_pr ? "; as a pull request" : "");
    }
    hub_repo_close(&j.repo);
    hub_plan_free(&j.plan);
    return rc;
}
