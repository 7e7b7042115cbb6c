/* git/mirror - see git/mirror.h. */
#include "libckpt/remote/git/mirror.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/at.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/git/git_own.h"
#include "libckpt/remote/http.h"

/* State of libgit2's callbacks in one exchange. */
struct exchange {
    struct git_mirror *m;
    int                asked;           /* times that credentials were asked for */
    char               refused[300];    /* why the host did not update the branch; or "" */
};

/* -- credentials ------------------------------------------------------------------------------ */

/* The i-th way to log in over ssh: the agent, then the usual key files. */
static int ssh_key(git_credential **out, const char *user, int i)
{
    static const char *const names[] = {"id_ed25519", "id_ecdsa", "id_rsa"};
    const char *home = getenv("HOME");
    char private_key[4096], public_key[4096];

    if (i == 0 && getenv("SSH_AUTH_SOCK"))
        return git_credential_ssh_key_from_agent(out, user);
    for (int k = i > 0 ? i - 1 : 0; home && k < 3; k++) {
        snprintf(private_key, sizeof private_key, "%s/.ssh/%s", home, names[k]);
        snprintf(public_key, sizeof public_key, "%s/.ssh/%s.pub", home, names[k]);
        if (access(private_key, R_OK) == 0)
            return git_credential_ssh_key_new(out, user, access(public_key, R_OK) ? NULL
                                              : public_key, private_key, NULL);
    }
    return GIT_EAUTH;
}

static int on_credentials(git_credential **out, const char *url, const char *user, unsigned types,
                          void *ctx)
{
    struct exchange *x = ctx;
    const struct git_login *l;
    const char *name = user && *user ? user : "git";

    (void)url;
    if (types & GIT_CREDENTIAL_USERNAME)
        return git_credential_username_new(out, name);
    if ((types & GIT_CREDENTIAL_SSH_KEY) && x->asked < 4)
        return ssh_key(out, name, x->asked++);
    if ((types & GIT_CREDENTIAL_USERPASS_PLAINTEXT) && x->asked++ == 0) {
        l = git_mirror_login(x->m);
        if (!*l->password)
            return GIT_EAUTH;
        x->m->used_login = true;
        return git_credential_userpass_plaintext_new(out, l->user, l->password);
    }
    git_error_clear();
    return GIT_EAUTH;
}

static int on_update(const char *ref, const char *status, void *ctx)
{
    struct exchange *x = ctx;

    (void)ref;
    if (status)
        snprintf(x->refused, sizeof x->refused, "%s", status);
    return 0;
}

static int on_transfer(const git_indexer_progress *p, void *ctx)
{
    struct ckpt_err ignored = {0};

    (void)p;
    (void)ctx;
    return http_stopped(&ignored) ? -1 : 0;
}

static void set_calls(git_remote_callbacks *c, struct exchange *x)
{
    git_remote_init_callbacks(c, GIT_REMOTE_CALLBACKS_VERSION);
    c->credentials = on_credentials;
    c->push_update_reference = on_update;
    c->transfer_progress = on_transfer;
    c->payload = x;
}

/* -- errors ----------------------------------------------------------------------------------- */

/* Whether a connection that was there has ended. */
static bool is_cut(const char *text)
{
    static const char *const words[] = {"EOF", "reset", "closed", "unexpected disconnection",
                                        "early", "recv", "send"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]))
            return true;
    return false;
}

/* Fail for a status that git's transport tells in its words; false: it tells none. */
static bool explain_status(const struct git_mirror *m, const char *text, struct ckpt_err *err)
{
    const char *at = strstr(text, "status code: ");
    long status = at ? strtol(at + 13, NULL, 10) : 0;
    int code;

    if (status < 400 || status > 599 || status == 401)
        return false;
    code = http_status_code(status);
    if (code == CKPT_ENOTFOUND)
        ckpt_fail(err, code, "%s: no such repository on %s, or no right to see it (status %ld)",
                  m->place.path, m->place.host, status);
    else if (code == CKPT_ESTOPPED || status == 412)
        ckpt_fail_as(err, CKPT_ESTOPPED, status == 412 ? "refused" : "passing", "%s: status %ld",
                     m->place.host, status);
    else
        ckpt_fail(err, code, "%s: status %ld", m->place.host, status);
    if (status == 403)
        ckpt_err_hint(err, "the login has no right to this");
    return true;
}

/* Fail for an exchange that ended with code. */
static int explain(const struct git_mirror *m, int code, struct ckpt_err *err)
{
    const git_error *e = git_error_last();
    const char *text = e && e->message ? e->message : "git failed";
    bool missing = strstr(text, "404") || strstr(text, "not found") || strstr(text, "not exist");

    if (http_stopped(err))
        return ckpt_err_code(err);
    if (code == GIT_EAUTH || strstr(text, "401") || strstr(text, "authentication")) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: refuses the credential, or asks for one", m->place.host);
        return ckpt_err_hint(err, m->place.ssh ? "ssh-add, or a key in ~/.ssh, logs in"
                                               : "git's credential helpers hold a password or a "
                                                 "token: git-credential(1)");
    }
    if (code == GIT_ECERTIFICATE)
        return ckpt_fail_as(err, CKPT_EREFUSED, "certificate", "%s: %s", m->place.host, text);
    if (explain_status(m, text, err))
        return ckpt_err_code(err);
    if (missing)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: no such repository on %s, or no right to see it",
                         m->place.path, m->place.host);
    if (e && e->klass != GIT_ERROR_SSH && e->klass != GIT_ERROR_SSL && is_cut(text))
        return ckpt_fail_as(err, CKPT_ESTOPPED, "passing", "%s: %s", m->place.host, text);
    if (e && (e->klass == GIT_ERROR_OS || e->klass == GIT_ERROR_NET || e->klass == GIT_ERROR_SSH))
        return ckpt_fail(err, CKPT_EDEVICE, "%s: %s", m->place.host, text);
    return ckpt_fail(err, CKPT_EPROTOCOL, "%s: %s", m->place.host, text);
}

/* -- the mirror ------------------------------------------------------------------------------- */

/* Lock and open the bare repository of the cache. */
static int open_bare(struct git_mirror *m, struct ckpt_err *err)
{
    char key[CACHE_KEY], dir[4096], lock[4096 + 8];
    int rc;

    cache_key(key, "git", m->place.url);
    if (!*key || !cache_ready("git") || !cache_path(dir, sizeof dir, "git", key))
        return ckpt_fail(err, CKPT_ECONFIG, "%s: without a cache no repository on another host is "
                         "used by git", m->place.host);
    snprintf(lock, sizeof lock, "%s.lock", dir);
    m->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->lock < 0)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", lock);
    if (flock(m->lock, LOCK_EX | LOCK_NB)) {
        ckpt_log(CKPT_LOG_NOTE, "%s: waiting for another process that publishes there",
                 m->place.host);
        if (flock(m->lock, LOCK_EX))
            return ckpt_fail_errno(err, CKPT_EIO, errno, "%s", lock);
    }
    rc = ckpt_git_open(&m->git, dir, true, err);
    if (rc == CKPT_EFORMAT) {           /* a killed process left half of it */
        ckpt_err_clear(err);
        rc = ckpt_outdir_remove(dir, err);
        rc = rc ? rc : ckpt_git_open(&m->git, dir, true, err);
    }
    return rc;
}

int git_mirror_open(struct git_mirror *m, const struct git_place *p, const char *branch,
                    struct ckpt_err *err)
{
    int rc;

    memset(m, 0, sizeof *m);
    m->place = *p;
    m->lock = -1;
    if (branch)
        snprintf(m->branch, sizeof m->branch, "%s", branch);
    if ((rc = open_bare(m, err)) != 0) {
        git_mirror_close(m);
        return rc;
    }
    return 0;
}

const struct git_login *git_mirror_login(struct git_mirror *m)
{
    if (!m->has_login)
        git_login_find(&m->login, &m->place);
    m->has_login = true;
    return &m->login;
}

void git_mirror_unlock(struct git_mirror *m)
{
    if (m->lock >= 0)
        close(m->lock);
    m->lock = -1;
}

void git_mirror_close(struct git_mirror *m)
{
    ckpt_git_close(m->git);
    git_login_forget(&m->login);
    git_mirror_unlock(m);
    m->git = NULL;
}

/* Connect, and find what the host has: the branch's name, where none is given, and its commit. */
static int connect(git_remote **out, struct git_mirror *m, struct exchange *x, bool push,
                   struct ckpt_err *err)
{
    git_remote_callbacks calls;
    git_buf name = {0};
    int code;

    set_calls(&calls, x);
    if (git_remote_create_anonymous(out, m->git->repo, m->place.url))
        return git_fail(err, CKPT_EUSAGE, m->place.host);
    code = git_remote_connect(*out, push ? GIT_DIRECTION_PUSH : GIT_DIRECTION_FETCH, &calls, NULL,
                              NULL);
    if (m->used_login)
        git_login_report(&m->login, &m->place, code == 0);
    if (code)
        return explain(m, code, err);
    if (m->branch[0])
        return 0;
    if (git_remote_default_branch(&name, *out) == 0 && strncmp(name.ptr, "refs/heads/", 11) == 0)
        snprintf(m->branch, sizeof m->branch, "%s", name.ptr + 11);
    else
        snprintf(m->branch, sizeof m->branch, "main");
    git_buf_dispose(&name);
    return 0;
}

/* Whether the host has the branch; id gets its commit. */
static bool find_head(git_oid *id, git_remote *remote, const char *branch)
{
    const git_remote_head **head = NULL;
    char ref[512];
    size_t n = 0;

    snprintf(ref, sizeof ref, "refs/heads/%s", branch);
    if (git_remote_ls(&head, &n, remote))
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(head[i]->name, ref) == 0) {
            *id = head[i]->oid;
            return true;
        }
    return false;
}

/* Call what talks with the host until it makes no sense to try it again. */
static int repeat(struct git_mirror *m,
                  int (*once)(struct git_mirror *m, void *ctx, struct ckpt_err *err), void *ctx,
                  struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    uint64_t began = 0;
    const char *trusted = http ? http_authorities(http) : NULL;
    int rc;

    if (trusted && git_libgit2_opts(GIT_OPT_SET_SSL_CERT_LOCATIONS, trusted, NULL))
        return ckpt_fail(err, CKPT_ECONFIG, "%s: no certificates are read from it", trusted);
    rc = http ? once(m, ctx, err) : ckpt_err_code(err);
    for (long tries = 1;
         rc == CKPT_EDEVICE || (rc && strcmp(err->reason, "passing") == 0); tries++) {
        if ((rc = http_again(http, tries, &began, err)) != 0)
            break;
        rc = once(m, ctx, err);
    }
    return rc;
}

static int begin_once(struct git_mirror *m, void *ctx, struct ckpt_err *err)
{
    struct exchange x = {.m = m};
    git_fetch_options fetch;
    git_remote *remote = NULL;
    char spec[1100], ref[512];
    char *specs[] = {spec};
    git_oid id;
    int rc = connect(&remote, m, &x, false, err), code = 0;

    (void)ctx;
    snprintf(ref, sizeof ref, "refs/heads/%s", m->branch);
    if (rc == 0 && find_head(&id, remote, m->branch)) {
        git_fetch_options_init(&fetch, GIT_FETCH_OPTIONS_VERSION);
        set_calls(&fetch.callbacks, &x);
        fetch.download_tags = GIT_REMOTE_DOWNLOAD_TAGS_NONE;
        snprintf(spec, sizeof spec, "+%s:%s", ref, ref);
        code = git_remote_fetch(remote, &(git_strarray){specs, 1}, &fetch, NULL);
        rc = code ? explain(m, code, err) : 0;
    } else if (rc == 0) {
        git_reference_remove(m->git->repo, ref);    /* an earlier run's, never sent */
    }
    git_remote_free(remote);
    return rc ? rc : ckpt_git_begin(m->git, m->branch, err);
}

int git_mirror_begin(struct git_mirror *m, struct ckpt_err *err)
{
    return repeat(m, begin_once, NULL, err);
}

/* -- reading ---------------------------------------------------------------------------------- */

#define READ_REF "refs/ckpt/read"       /* what was fetched last */

/* The host's full name of what revision names, as git looks for it. */
static bool find_name(char name[512], git_remote *remote, const char *revision)
{
    static const char *const before[] = {"refs/tags/", "refs/heads/", "refs/", ""};
    const git_remote_head **head = NULL;
    size_t n = 0;

    if (git_remote_ls(&head, &n, remote))
        return false;
    for (size_t k = 0; k < sizeof before / sizeof before[0]; k++) {
        if ((size_t)snprintf(name, 512, "%s%s", before[k], revision) >= 512)
            continue;
        for (size_t i = 0; i < n; i++)
            if (strcmp(head[i]->name, name) == 0)
                return true;
    }
    return false;
}

static bool has_commit(struct git_mirror *m, const char *revision, char id[CKPT_GIT_ID])
{
    git_commit *commit = NULL;
    git_oid oid;
    bool has = strlen(revision) == GIT_OID_HEXSZ && git_oid_fromstr(&oid, revision) == 0 &&
               git_commit_lookup(&commit, m->git->repo, &oid) == 0;

    git_commit_free(commit);
    if (has)
        git_oid_tostr(id, CKPT_GIT_ID, &oid);
    return has;
}

static int fetch_spec(struct git_mirror *m, git_remote *remote, struct exchange *x, char *spec,
                      struct ckpt_err *err)
{
    git_fetch_options fetch;
    int code;

    git_fetch_options_init(&fetch, GIT_FETCH_OPTIONS_VERSION);
    set_calls(&fetch.callbacks, x);
    fetch.download_tags = GIT_REMOTE_DOWNLOAD_TAGS_NONE;
    code = git_remote_fetch(remote, &(git_strarray){&spec, 1}, &fetch, NULL);
    return code ? explain(m, code, err) : 0;
}

/* The commit that was fetched. */
static int read_commit(struct git_mirror *m, const char *revision, char id[CKPT_GIT_ID],
                       struct ckpt_err *err)
{
    git_reference *ref = NULL;
    git_object *commit = NULL;
    int rc = 0;

    if (git_reference_lookup(&ref, m->git->repo, READ_REF) ||
        git_reference_peel(&commit, ref, GIT_OBJECT_COMMIT))
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: %s is no commit", m->place.host, revision);
    else
        git_oid_tostr(id, CKPT_GIT_ID, git_object_id(commit));
    git_object_free(commit);
    git_reference_free(ref);
    return rc;
}

/* What is fetched, and where its commit goes. */
struct asked {
    const char *revision;
    char       *id;
};

static int fetch_once(struct git_mirror *m, void *ctx, struct ckpt_err *err)
{
    const char *revision = ((struct asked *)ctx)->revision;
    char *id = ((struct asked *)ctx)->id;
    char branches[] = "+refs/heads/*:refs/ckpt/heads/*", tags[] = "+refs/tags/*:refs/ckpt/tags/*";
    struct exchange x = {.m = m};
    git_remote *remote = NULL;
    char name[512], spec[600];
    bool found;
    int rc;

    if (has_commit(m, revision, id))
        return 0;
    rc = connect(&remote, m, &x, false, err);
    if (rc == 0 && !*revision)
        revision = m->branch;
    found = rc == 0 && find_name(name, remote, revision);
    if (found) {
        snprintf(spec, sizeof spec, "+%s:" READ_REF, name);
        rc = fetch_spec(m, remote, &x, spec, err);
        rc = rc ? rc : read_commit(m, revision, id, err);
    } else if (rc == 0 && strlen(revision) == GIT_OID_HEXSZ) {
        rc = fetch_spec(m, remote, &x, branches, err);
        rc = rc ? rc : fetch_spec(m, remote, &x, tags, err);
        found = rc == 0 && has_commit(m, revision, id);
    }
    if (rc == 0 && !found)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%s: %s has no branch, tag or commit %s", m->place.host,
                       m->place.path, revision);
    git_remote_free(remote);
    return rc;
}

int git_mirror_fetch(struct git_mirror *m, const char *revision, char id[CKPT_GIT_ID],
                     struct ckpt_err *err)
{
    return repeat(m, fetch_once, &(struct asked){revision, id}, err);
}

static int send_once(struct git_mirror *m, void *ctx, struct ckpt_err *err)
{
    struct exchange x = {.m = m};
    git_push_options push;
    git_remote *remote = NULL;
    char spec[1100];
    char *specs[] = {spec};
    git_oid own, there;
    int rc = connect(&remote, m, &x, true, err), code = 0;

    (void)ctx;
    if (rc == 0 && git_reference_name_to_id(&own, m->git->repo, m->git->ref))
        rc = git_fail(err, CKPT_ESTATE, m->git->ref);
    if (rc == 0) {
        git_push_options_init(&push, GIT_PUSH_OPTIONS_VERSION);
        set_calls(&push.callbacks, &x);
        snprintf(spec, sizeof spec, "%s:%s", m->git->ref, m->git->ref);
        code = git_remote_push(remote, &(git_strarray){specs, 1}, &push);
    }
    git_remote_free(remote);
    if (rc)
        return rc;
    if (code == GIT_ENONFASTFORWARD || strstr(x.refused, "fast-forward") ||
        strstr(x.refused, "fetch first") || strstr(x.refused, "failed to update ref") ||
        strstr(x.refused, "lock"))
        return ckpt_fail_as(err, CKPT_ESTOPPED, "moved", "%s: moved while this commit was made",
                            m->branch);
    if (x.refused[0])
        return ckpt_fail(err, CKPT_EREFUSED, "%s: refuses to update %s: %s", m->place.host,
                         m->branch, x.refused);
    if (code && (rc = explain(m, code, err)) == CKPT_EREFUSED)
        return rc;
    /* An answer that was lost is no failure: what the host has now decides. */
    remote = NULL;
    x = (struct exchange){.m = m};
    if (connect(&remote, m, &x, false, code ? &(struct ckpt_err){0} : err) == 0 &&
        find_head(&there, remote, m->branch) && git_oid_equal(&own, &there)) {
        ckpt_err_clear(err);
        rc = 0;
    } else if (!rc) {
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: does not have the commit that it took",
                       m->place.host);
    }
    git_remote_free(remote);
    return rc;
}

int git_mirror_send(struct git_mirror *m, struct ckpt_err *err)
{
    return repeat(m, send_once, NULL, err);
}
