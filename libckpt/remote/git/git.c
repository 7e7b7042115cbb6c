/* git - see git.h.  Written against libgit2 1.5 (Debian 12) and 1.7 (Ubuntu 24.04). */
#include "libckpt/remote/git/git.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "libckpt/commit.h"
#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "libckpt/remote/git/git_own.h"

#define PIECE ((size_t)1 << 20)
#define WAITS 20                        /* for other programs, of 50 ms */

int git_fail(struct ckpt_err *err, int code, const char *what)
{
    const git_error *e = git_error_last();

    return ckpt_fail(err, code, "%s: %s", what, e && e->message ? e->message : "git failed");
}

bool ckpt_git_is_repository(const char *path)
{
    bool yes;

    git_libgit2_init();
    yes = git_repository_open_ext(NULL, path, GIT_REPOSITORY_OPEN_NO_SEARCH, NULL) == 0;
    git_libgit2_shutdown();
    return yes;
}

/* Split "Name <mail>"; as git does, drop spaces and some punctuation at the ends of both. */
static int read_author(git_signature **who, const char *author, struct ckpt_err *err)
{
    const char *open = strchr(author, '<'), *close = open ? strchr(open, '>') : NULL;
    char name[256], mail[256];

    *who = NULL;
    if (!open || !close || close[1 + strspn(close + 1, " ")] || strchr(open + 1, '<') ||
        strpbrk(author, "\r\n") || !ckpt_utf8_valid(author, strlen(author)) ||
        (size_t)(open - author) >= sizeof name || (size_t)(close - open) > sizeof mail)
        return ckpt_fail(err, CKPT_EUSAGE, "%.300s: no author: \"Name <mail>\" wanted", author);
    snprintf(name, sizeof name, "%.*s", (int)(open - author), author);
    snprintf(mail, sizeof mail, "%.*s", (int)(close - open - 1), open + 1);
    if (git_signature_now(who, name, mail))
        return ckpt_fail(err, CKPT_EUSAGE, "%.300s: no author: a name and a mail address wanted",
                         author);
    return 0;
}

static bool is_branch(const char *branch)
{
    int valid = 0;

    return strlen(branch) < 400 && git_branch_name_is_valid(&valid, branch) == 0 && valid &&
           strcmp(branch, "HEAD") != 0 && ckpt_utf8_valid(branch, strlen(branch));
}

int ckpt_git_check(const char *branch, const char *message, const char *author,
                   struct ckpt_err *err)
{
    git_signature *who = NULL;
    int rc;

    git_libgit2_init();
    if (branch && !is_branch(branch))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%.300s: no name for a branch", branch);
    else if (message && !message[strspn(message, " \t\r\n")])
        rc = ckpt_fail(err, CKPT_EUSAGE, "the message of the commit is empty");
    else if (message && !ckpt_utf8_valid(message, strlen(message)))
        rc = ckpt_fail(err, CKPT_EUSAGE, "the message of the commit is no UTF-8");
    else
        rc = read_author(&who, author, err);
    git_signature_free(who);
    git_libgit2_shutdown();
    return rc;
}

static void wait_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); }

/* Whether the library failed for want of a disk, which it tells in words alone. */
static bool disk_failed(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EIO};
    const git_error *e = git_error_last();

    for (size_t i = 0; e && e->message && i < sizeof errors / sizeof errors[0]; i++)
        if (strstr(e->message, strerror(errors[i])))
            return true;
    return false;
}

/* A repository that could not be made: nothing of it stays, unless another program is in it. */
static int tell_unmade(const char *path, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    struct ckpt_lock *alone;

    git_fail(err, CKPT_EIO, path);
    if ((alone = ckpt_lock_removal(path)) != NULL)
        ckpt_outdir_remove(path, &ignored);
    ckpt_lock_release(alone);
    return ckpt_err_code(err);
}

/* Make the repository, if it is to be made and no other program has begun to; else open it. */
static int make_or_open(struct ckpt_git *g, const char *path, bool create, struct ckpt_err *err)
{
    git_repository_init_options init;
    struct stat st;

    git_repository_init_options_init(&init, GIT_REPOSITORY_INIT_OPTIONS_VERSION);
    init.flags = GIT_REPOSITORY_INIT_BARE | GIT_REPOSITORY_INIT_MKPATH |
                 GIT_REPOSITORY_INIT_NO_REINIT;
    init.initial_head = "main";
    if (create && stat(path, &st) != 0) {
        g->created = git_repository_init_ext(&g->repo, path, &init) == 0;
        if (g->created)
            return 0;
        if (stat(path, &st) != 0)
            return git_fail(err, CKPT_ECREATE, path);
        if (disk_failed())
            return tell_unmade(path, err);
    }
    for (int i = 0; git_repository_open_ext(&g->repo, path, GIT_REPOSITORY_OPEN_NO_SEARCH,
                                            NULL) != 0; i++) {
        if (!create || i == WAITS) {
            bool absent = stat(path, &st) != 0;

            git_fail(err, absent ? CKPT_ENOTFOUND : CKPT_EFORMAT, path);
            return absent ? ckpt_err_hint(err, "--create makes a bare repository there")
                          : ckpt_err_code(err);
        }
        wait_a_little();                /* another program is making it */
    }
    return 0;
}

int ckpt_git_open(struct ckpt_git **out, const char *path, bool create, struct ckpt_err *err)
{
    struct ckpt_git *g = ckpt_alloc(1, sizeof *g);
    size_t n;

    *out = NULL;
    if (!g)
        return ckpt_nomem(err, sizeof *g);
    git_libgit2_init();
    git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1);
    if (make_or_open(g, path, create, err)) {
        ckpt_git_close(g);
        return ckpt_err_code(err);
    }
    snprintf(g->dir, sizeof g->dir, "%s", git_repository_commondir(g->repo));
    n = strlen(g->dir);
    if (n > 1 && g->dir[n - 1] == '/')
        g->dir[n - 1] = '\0';
    g->lease = ckpt_lock_reader(g->dir);
    *out = g;
    return 0;
}

void ckpt_git_close(struct ckpt_git *g)
{
    if (!g)
        return;
    git_index_free(g->index);
    git_aside_close(g->aside);
    git_repository_free(g->repo);
    git_libgit2_shutdown();
    ckpt_lock_release(g->lease);
    ckpt_free(g);
}

void ckpt_git_discard(struct ckpt_git *g)
{
    struct ckpt_err ignored = {0};
    struct ckpt_lock *alone = NULL;
    git_strarray refs = {0};
    char dir[sizeof g->dir];
    bool empty;

    if (!g)
        return;
    memcpy(dir, g->dir, sizeof dir);
    ckpt_lock_release(g->lease);
    g->lease = NULL;
    if (g->created)
        alone = ckpt_lock_removal(dir); /* else others publish to it */
    empty = alone && git_reference_list(&refs, g->repo) == 0 && refs.count == 0;
    git_strarray_dispose(&refs);
    ckpt_git_close(g);
    if (empty)
        ckpt_outdir_remove(dir, &ignored);
    ckpt_lock_release(alone);
}

const char *ckpt_git_dir(const struct ckpt_git *g) { return g->dir; }

/* A branch "a" and one "a/b" cannot both exist: checked before anything is sent. */
static int check_neighbours(struct ckpt_git *g, struct ckpt_err *err)
{
    git_reference_iterator *it = NULL;
    const char *other;
    size_t n = strlen(g->ref);
    int rc = 0;

    if (git_reference_iterator_new(&it, g->repo))
        return git_fail(err, CKPT_EFORMAT, g->ref);
    while (rc == 0 && git_reference_next_name(&other, it) == 0) {
        size_t k = strlen(other), most = k < n ? k : n;

        if (k != n && strncmp(other, g->ref, most) == 0 && (k < n ? g->ref[k] : other[n]) == '/')
            rc = ckpt_fail(err, CKPT_EUSAGE, "%s: there is %.300s, and one cannot lie in the other",
                           g->ref, other);
    }
    git_reference_iterator_free(it);
    return rc;
}

/* Name the reference that the commit will update. */
static int name_ref(struct ckpt_git *g, const char *branch, struct ckpt_err *err)
{
    git_reference *head = NULL;
    int valid = 0, rc = 0;

    if (branch) {
        if (!is_branch(branch) ||
            (size_t)snprintf(g->ref, sizeof g->ref, "refs/heads/%s", branch) >= sizeof g->ref)
            return ckpt_fail(err, CKPT_EUSAGE, "%s: no name for a branch", branch);
    } else if (git_reference_lookup(&head, g->repo, "HEAD")) {
        rc = git_fail(err, CKPT_EFORMAT, "HEAD");
    } else if (git_reference_type(head) != GIT_REFERENCE_SYMBOLIC) {
        rc = ckpt_fail(err, CKPT_EUSAGE, "HEAD names no branch: say which with --branch");
    } else {
        if ((size_t)snprintf(g->ref, sizeof g->ref, "%s",
                             git_reference_symbolic_target(head)) >= sizeof g->ref)
            rc = ckpt_fail(err, CKPT_ELIMIT, "HEAD: a branch name of %zu bytes, %zu at most",
                           strlen(git_reference_symbolic_target(head)), sizeof g->ref - 1);
    }
    git_reference_free(head);
    if (rc == 0 && (git_reference_name_is_valid(&valid, g->ref) || !valid))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%s: no name for a branch", g->ref);
    return rc ? rc : check_neighbours(g, err);
}

int ckpt_git_begin(struct ckpt_git *g, const char *branch, struct ckpt_err *err)
{
    git_commit *commit = NULL;
    git_tree *tree = NULL;
    int rc = name_ref(g, branch, err);

    git_index_free(g->index);
    g->index = NULL;
    if (rc == 0 && git_index_new(&g->index))
        rc = git_fail(err, CKPT_ENOMEM, "index");
    if (rc)
        return rc;
    rc = git_reference_name_to_id(&g->parent, g->repo, g->ref);
    g->has_parent = rc == 0;
    if (rc == GIT_ENOTFOUND)
        return 0;
    if (rc || git_commit_lookup(&commit, g->repo, &g->parent) || git_commit_tree(&tree, commit) ||
        git_index_read_tree(g->index, tree))
        rc = git_fail(err, CKPT_EFORMAT, g->ref);
    git_tree_free(tree);
    git_commit_free(commit);
    return rc;
}

/* Whether a path would leave a work tree, or enter its .git, on any file system's rules for
 * names. */
static bool leads_astray(const char *path)
{
    char part[256];

    while (path) {
        size_t n = strcspn(path, "/");

        snprintf(part, sizeof part, "%.*s", (int)(n < 256 ? n : 0), path);
        if (!ckpt_file_name_is_clean(part) || strcasecmp(part, ".git") == 0 ||
            strcasecmp(part, "git~1") == 0)
            return true;
        path = path[n] ? path + n + 1 : NULL;
    }
    return false;
}

int ckpt_git_check_path(const char *path, struct ckpt_err *err)
{
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127) {
            ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: a control character in the name "
                         "of a file", path);
            return ckpt_err_hint(err, "rename it, or leave it out with --exclude");
        }
    return leads_astray(path) || strlen(path) >= 4096
               ? ckpt_fail_as(err, CKPT_EREFUSED, "refused-path", "%s: no path for a repository",
                              path) : 0;
}

/* Prepare to write the first object. */
static int begin_objects(struct ckpt_git *g, const char *path, struct ckpt_err *err)
{
    int rc = ckpt_git_check_path(path, err);    /* libgit2 does not check it for an index without
                                                   a repository */

    if (rc)
        return rc;
    return g->aside ? 0 : git_aside_open(&g->aside, g->repo, err);
}

static int add(struct ckpt_git *g, const git_oid *id, const char *path, struct ckpt_err *err)
{
    git_index_entry entry = {.mode = GIT_FILEMODE_BLOB, .path = path, .id = *id};

    return git_index_add(g->index, &entry) ? git_fail(err, CKPT_EREFUSED, path) : 0;
}

int ckpt_git_put(struct ckpt_git *g, const char *path, const void *bytes, size_t n,
                 struct ckpt_err *err)
{
    int rc;

    git_oid id;

    if ((rc = begin_objects(g, path, err)) != 0)
        return rc;
    if (git_blob_create_from_buffer(&id, g->repo, bytes, n))
        return git_fail(err, CKPT_EIO, path);
    return add(g, &id, path, err);
}

/* Copy file into a blob's stream. */
static int write_blob(git_odb_stream *to, const struct ckpt_file *file, ckpt_git_progress *progress,
                      void *ctx, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    char *buf = ckpt_alloc_buffer(PIECE);
    int rc = buf ? 0 : ckpt_nomem(err, PIECE);

    for (uint64_t at = 0, n; rc == 0 && at < size; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        rc = ckpt_file_read_at(file, buf, (size_t)n, at, err);
        if (rc == 0 && git_odb_stream_write(to, buf, (size_t)n))
            rc = git_fail(err, CKPT_EIO, ckpt_file_name(file));
        if (progress)
            progress(ctx, n);
    }
    ckpt_free(buf);
    return rc;
}

int ckpt_git_put_file(struct ckpt_git *g, const char *path, const struct ckpt_file *file,
                      ckpt_git_progress *progress, void *ctx, struct ckpt_err *err)
{
    git_odb_stream *to = NULL;
    git_odb *odb = NULL;
    git_oid id;
    int rc = begin_objects(g, path, err);

    if (rc == 0 && (git_repository_odb(&odb, g->repo) ||
                    git_odb_open_wstream(&to, odb, (git_object_size_t)ckpt_file_size(file),
                                         GIT_OBJECT_BLOB)))
        rc = git_fail(err, CKPT_EIO, path);
    if (rc == 0)
        rc = write_blob(to, file, progress, ctx, err);
    if (rc == 0 && git_odb_stream_finalize_write(&id, to))
        rc = git_fail(err, CKPT_EIO, path);
    git_odb_stream_free(to);
    git_odb_free(odb);
    return rc ? rc : add(g, &id, path, err);
}

int ckpt_git_read(struct ckpt_buf *out, const struct ckpt_git *g, const char *path,
                  struct ckpt_err *err)
{
    const git_index_entry *e = git_index_get_bypath(g->index, path, 0);
    git_blob *blob = NULL;
    int rc = 0;

    if (!e)
        return ckpt_fail(err, CKPT_ENOTFOUND, "%s: not in the tree", path);
    if (e->mode != GIT_FILEMODE_BLOB && e->mode != GIT_FILEMODE_BLOB_EXECUTABLE)
        return ckpt_fail_as(err, CKPT_EREFUSED, "not-regular", "%s: is no file in the repository",
                            path);
    if (git_blob_lookup(&blob, g->repo, &e->id))
        return git_fail(err, CKPT_EFORMAT, path);
    if ((uint64_t)git_blob_rawsize(blob) > out->limit)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: %llu bytes, %zu at most", path,
                       (unsigned long long)git_blob_rawsize(blob), out->limit);
    else
        ckpt_buf_put(out, git_blob_rawcontent(blob), (size_t)git_blob_rawsize(blob));
    git_blob_free(blob);
    return rc ? rc : ckpt_buf_ok(out) ? 0 : ckpt_nomem(err, out->len);
}

bool ckpt_git_has(const struct ckpt_git *g, const char *path)
{
    return git_index_get_bypath(g->index, path, 0) != NULL;
}

void ckpt_git_parent(const struct ckpt_git *g, char id[CKPT_GIT_ID])
{
    *id = '\0';
    if (g->has_parent)
        git_oid_tostr(id, CKPT_GIT_ID, &g->parent);
}

void ckpt_git_blob(const struct ckpt_git *g, const char *path, char id[CKPT_GIT_ID])
{
    const git_index_entry *e = git_index_get_bypath(g->index, path, 0);

    *id = '\0';
    if (e && (e->mode == GIT_FILEMODE_BLOB || e->mode == GIT_FILEMODE_BLOB_EXECUTABLE))
        git_oid_tostr(id, CKPT_GIT_ID, &e->id);
}

int ckpt_git_hash(char id[CKPT_GIT_ID], const void *bytes, size_t n, struct ckpt_err *err)
{
    git_oid oid;

    if (git_odb_hash(&oid, bytes, n, GIT_OBJECT_BLOB))
        return git_fail(err, CKPT_ENOMEM, "digest");
    git_oid_tostr(id, CKPT_GIT_ID, &oid);
    return 0;
}

const char *ckpt_git_path(const struct ckpt_git *g, size_t i)
{
    const git_index_entry *e = git_index_get_byindex(g->index, i);

    return e ? e->path : NULL;
}

int ckpt_git_remove(struct ckpt_git *g, const char *path, struct ckpt_err *err)
{
    return git_index_remove(g->index, path, 0) ? git_fail(err, CKPT_ENOTFOUND, path) : 0;
}

/* Move the branch from the parent to the new commit, or report that it moved meanwhile. */
static int move_branch(struct ckpt_git *g, const git_oid *id, const char *message,
                       struct ckpt_err *err)
{
    git_reference *ref = NULL;
    int rc;

    for (int i = 0; i <= WAITS; i++) {
        if (g->has_parent)
            rc = git_reference_create_matching(&ref, g->repo, g->ref, id, 1, &g->parent, message);
        else
            rc = git_reference_create(&ref, g->repo, g->ref, id, 0, message);
        if (rc != GIT_ELOCKED)
            break;
        wait_a_little();                /* another publisher is moving it */
    }
    git_reference_free(ref);
    if (rc == GIT_ELOCKED) {
        ckpt_fail_as(err, CKPT_ESTOPPED, "locked", "%s: is locked by another program", g->ref);
        return ckpt_err_hint(err, "if none runs, remove %s/%s.lock, which a killed one left",
                             g->dir, g->ref);
    }
    if (rc == GIT_EMODIFIED || rc == GIT_EEXISTS)
        return ckpt_fail_as(err, CKPT_ESTOPPED, "moved", "%s: moved while this commit was made",
                            g->ref);
    return rc ? git_fail(err, CKPT_EIO, g->ref) : 0;
}

int ckpt_git_commit(struct ckpt_git *g, const char *message, const char *author,
                    char id[CKPT_GIT_ID], bool *changed, struct ckpt_err *err)
{
    git_commit *parent = NULL;
    git_signature *who = NULL;
    git_tree *tree = NULL;
    git_oid tree_id, commit_id;
    int rc;

    *changed = false;
    rc = read_author(&who, author, err);
    if (rc == 0 && !g->aside)
        rc = git_aside_open(&g->aside, g->repo, err);
    if (rc)
        goto out;
    if (git_index_write_tree_to(&tree_id, g->index, g->repo) ||
        git_tree_lookup(&tree, g->repo, &tree_id) ||
        (g->has_parent && git_commit_lookup(&parent, g->repo, &g->parent))) {
        rc = git_fail(err, CKPT_EIO, "commit");
        goto out;
    }
    if (parent && git_oid_equal(&tree_id, git_commit_tree_id(parent))) {
        git_oid_tostr(id, CKPT_GIT_ID, &g->parent);
        goto out;
    }
    if (git_commit_create_v(&commit_id, g->repo, NULL, who, who, "UTF-8", message, tree,
                            parent ? 1 : 0, parent)) {
        rc = git_fail(err, CKPT_EIO, "commit");
        goto out;
    }
    rc = git_aside_move(g->aside, err);
    if (rc == 0)
        rc = move_branch(g, &commit_id, message, err);
    git_oid_tostr(id, CKPT_GIT_ID, &commit_id);
    *changed = rc == 0;
out:
    git_signature_free(who);
    git_commit_free(parent);
    git_tree_free(tree);
    return rc;
}
